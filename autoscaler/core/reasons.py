"""The closed set of reasons: why something is done, and why it is not.

A reason is what a plan, a log line, a metric label and an event say. docs/reasons.md is generated from this table, and
a test keeps it current.
"""

from __future__ import annotations

from autoscaler.core import reasons_of_measurements as measured
from autoscaler.core import reasons_of_moves as moves
from autoscaler.core.worded import Worded

_NOTIFY = True


class Reason(Worded):
    """One CamelCase word for each thing that can be decided about a pod."""

    # acting
    INCREASE = "Increase", "The pod needs more than it has."
    DECREASE = "Decrease", "The pod has more than it needs."
    REBALANCE = "Rebalance", "Some of the pod's amounts rise and others fall."

    FIT = "Fit", "The node has no room for the whole resize: as much is asked for as there is room for."
    REVERT = (
        "Revert",
        "The resize has waited past its deadline and is given up: the spec goes back to what is in force.",
    )

    MIGRATE = (
        "Migrate",
        "The resize has waited past its deadline, and everything that a move needs was proved: the pod is evicted.",
    )
    SURGE = "Surge", "The pod is going to be moved: its Deployment gets one replica more first."
    SURGE_BACK = "SurgeBack", "The Deployment that got one replica more for a move gets its own number back."

    # the policy says no
    RECOMMEND_ONLY = (
        "RecommendOnly",
        "A change is proposed; the policy's mode is Recommend, so it is not made.",
        "Set spec.mode to Resize when you agree with the plan.",
    )
    POLICY_OFF = "PolicyOff", "The policy that selects this pod has mode Off.", "Set spec.mode to Recommend or Resize."
    AMBIGUOUS_POLICY = (
        "AmbiguousPolicy",
        "More than one policy selects this pod.",
        "Narrow one of the selectors that the detail names, until one policy is left.",
        _NOTIFY,
    )
    NO_CONTAINER_SELECTED = (
        "NoContainerSelected",
        "No container of the pod matches spec.containers of its policy.",
        'Add the container\'s name, or "*".',
        _NOTIFY,
    )

    # the pod cannot be resized
    DELETING = "Deleting", "The pod is being deleted.", "Wait: nothing is asked of it any more."
    NOT_RUNNING = (
        "NotRunning",
        "The pod is not bound to a node and running.",
        "Look at its events. It is sized once it runs.",
    )
    NODE_NOT_READY = (
        "NodeNotReady",
        "The pod's node is not Ready: its kubelet may not answer, and what is known of the pod may be old.",
        "Look at the node. Everything goes on by itself once it is back.",
        _NOTIFY,
    )
    CRASH_LOOP = (
        "CrashLoop",
        "A container ends again and again soon after it has started. What the container uses says "
        "nothing of what it needs, and a resize would have it started at once.",
        "Look into the container's log.",
        _NOTIFY,
    )
    RECOVERING = (
        "Recovering",
        "The pod is not ready, or a container of it has restarted a short time ago: it may get more, but not less. "
        "Memory is not lowered for an hour after an OOM kill.",
        "Wait, and look at why it is not ready, or has restarted.",
    )
    STATIC_POD = "StaticPod", "The pod is static: the API server refuses to resize it.", "Edit its file on the node."
    BEST_EFFORT = (
        "BestEffort",
        "A BestEffort pod can never gain requests or limits: its QoS class would change.",
        "Give the pod requests in its template.",
    )
    NO_REQUESTS = (
        "NoRequests",
        "No container that is sized has a request that could be changed: a field that is absent stays absent.",
        "Give the containers requests in the pod's template.",
    )
    POD_LEVEL_RESOURCES = (
        "PodLevelResources",
        "The pod sets spec.resources, which this version does not size.",
        "Set the resources of its containers instead, or exclude the pod from the policy.",
    )
    RESIZE_UNSUPPORTED = (
        "ResizeUnsupported",
        "The node cannot resize pods: its kubelet does not report containerStatuses[].resources, or it is not Linux.",
        "Upgrade the node to Kubernetes 1.33 or newer.",
    )
    QOS_WOULD_CHANGE = (
        "QoSWouldChange",
        "No legal change reaches the target without changing the pod's QoS class.",
        "For a Guaranteed pod let limits move too: limits: Keep or Equal.",
        _NOTIFY,
    )
    EXCEEDS_NODE = (
        "ExceedsNode",
        "The pod would need more than its node can allocate at all; the API server would refuse it.",
        "Lower maxAllowed, or run the pod on a larger node.",
        _NOTIFY,
    )

    STATIC_MANAGER = (
        "StaticManager",
        "The node runs a static CPU or memory manager: it can never change that resource of a Guaranteed pod in place.",
        "Run the pod on a node without one, or make it Burstable.",
        _NOTIFY,
    )
    PAGE_CACHE_ABOVE_TARGET = (
        "PageCacheAboveTarget",
        "The memory limit would fall to or below what the container uses with page cache; the kubelet would refuse it.",
        "It is lowered once usage has fallen. Page cache goes when files are dropped or closed; or raise minAllowed.",
    )
    MEMORY_USE_UNKNOWN = (
        "MemoryUseUnknown",
        "The memory limit would shrink, and what the container uses with page cache is not known.",
        "Keep the series that the detail names; it comes from the kubelet's /metrics/cadvisor.",
        _NOTIFY,
    )
    MEMORY_DECREASE_UNSUPPORTED = (
        "MemoryDecreaseUnsupported",
        "This version of Kubernetes cannot lower a memory limit in place.",
        "Upgrade to Kubernetes 1.34 or newer, or leave limits alone: limits: RequestsOnly.",
    )
    LIMIT_RANGE = (
        "LimitRange",
        "A LimitRange of the namespace refuses this size.",
        "Change the LimitRange, or keep minAllowed and maxAllowed inside it.",
    )
    RESOURCE_QUOTA = (
        "ResourceQuota",
        "A ResourceQuota of the namespace has nothing left for this size.",
        "Raise the quota, or lower maxAllowed.",
    )
    ADMISSION_DENIED = (
        "AdmissionDenied",
        "An admission policy or webhook of the cluster denies the resize, or makes another of it.",
        "The detail names it.",
    )
    THROTTLED = "Throttled", "The API server asks to wait before the resize is sent again.", "Wait: it is sent again."
    REFUSED = "Refused", "The API server refused the resize.", "The detail is its answer."

    # it is someone else's
    GATED = (
        "Gated",
        "A quota system such as Kueue admits the pod: it would not see that the pod has grown.",
        "Size it where it is queued.",
    )
    CRITICAL_POD = (
        "CriticalPod",
        "The pod's priority is that of the system: to make room for it, the kubelet would evict others, whatever their "
        "disruption budgets say.",
        "Exclude the pod from the policy.",
    )
    OTHER_AUTOSCALER = (
        "OtherAutoscaler",
        "A VerticalPodAutoscaler that is not Off targets the pod's workload.",
        "Set its updateMode to Off, or exclude the pod from the policy.",
        _NOTIFY,
    )
    OTHER_WRITER = (
        "OtherWriter",
        "Someone else asked for a size last: the pod is left to them for stability.otherWriterHold.",
        "Wait, or exclude the pod from the policy.",
        _NOTIFY,
    )
    LEFT_TO_HPA = (
        "LeftToHPA",
        "A HorizontalPodAutoscaler scales on the utilisation of the only resource that would change.",
        "Leave the resource out of controlledResources, or scale on another metric.",
    )

    # an earlier resize is not over
    RESIZE_PROPOSED = (
        "ResizeProposed",
        "A resize was accepted by the API server; the kubelet has not answered yet.",
        "Wait: it usually answers within seconds.",
    )
    KUBELET_SILENT = (
        "KubeletSilent",
        "The kubelet has not answered a resize for longer than it should.",
        "Look at the node's kubelet.",
        _NOTIFY,
    )
    RESIZE_DEFERRED = (
        "ResizeDeferred",
        "The kubelet wants to resize, but the node has no room now.",
        "Make room on the node, or wait: after fallback.after the policy decides.",
        _NOTIFY,
    )
    KUBELET_NOT_RETRYING = (
        "KubeletNotRetrying",
        "The kubelet deferred a resize, and has not looked again since there is room for it.",
        "Wait: it looks every 3 minutes, and whenever a pod on the node is resized or goes away.",
    )
    RESIZE_INFEASIBLE = (
        "ResizeInfeasible",
        "The kubelet says that this resize can never be done on this node.",
        "The detail has its words. After fallback.infeasibleAfter the policy decides.",
        _NOTIFY,
    )
    RESIZE_IN_PROGRESS = "ResizeInProgress", "The kubelet is applying a resize.", "Wait: it ends by itself."
    RESIZE_ERROR = (
        "ResizeError",
        "The kubelet failed to apply a resize and tries again by itself.",
        "The detail has its words. If it stays, look at the node's kubelet and container runtime.",
        _NOTIFY,
    )
    RESIZE_STALLED = (
        "ResizeStalled",
        "The kubelet has been applying a resize for longer than it should.",
        "Look at the node's kubelet and container runtime.",
        _NOTIFY,
    )
    DEADLINE_PASSED = (
        "DeadlinePassed",
        "The resize has waited past its deadline, and the policy says to keep asking.",
        "Make room on the node, or set fallback.action to Revert.",
        _NOTIFY,
    )
    MIGRATION_NOT_ENABLED = moves.MIGRATION_NOT_ENABLED
    MIGRATION_NOT_PERMITTED = moves.MIGRATION_NOT_PERMITTED
    NOT_REPLACEABLE = moves.NOT_REPLACEABLE
    NOT_SAFE_TO_EVICT = moves.NOT_SAFE_TO_EVICT
    WORKLOAD_CHANGING = moves.WORKLOAD_CHANGING
    NO_LANDING_NODE = moves.NO_LANDING_NODE
    NEEDS_NEW_NODE = moves.NEEDS_NEW_NODE
    REPLACEMENT_TOO_SMALL = moves.REPLACEMENT_TOO_SMALL
    EVICTION_BLOCKED = moves.EVICTION_BLOCKED
    EVICTION_REFUSED = moves.EVICTION_REFUSED
    POD_TOO_YOUNG = moves.POD_TOO_YOUNG
    SIBLING_UNAVAILABLE = moves.SIBLING_UNAVAILABLE
    DRAINING = moves.DRAINING
    GATE_UNKNOWN = moves.GATE_UNKNOWN
    SURGING = moves.SURGING
    SURGE_REFUSED = moves.SURGE_REFUSED
    SURGE_FAILED = moves.SURGE_FAILED
    REPLACING = moves.REPLACING
    REPLACEMENT_UNSCHEDULED = moves.REPLACEMENT_UNSCHEDULED
    REPLACEMENT_NOT_READY = moves.REPLACEMENT_NOT_READY
    RETRY_LATER = (
        "RetryLater",
        "The same ask was given up a short time ago, and its node still has no room for it.",
        "Wait for fallback.retryAfter, or make room on the node.",
    )
    NODE_FULL = (
        "NodeFull",
        "The node has no room for the increase, and another pod has asked for the next that appears.",
        "Make room on the node, or raise budgets.maxInFlightPerNode.",
    )
    WORKLOAD_BUSY = (
        "WorkloadBusy",
        "As many resizes of the workload are not over as budgets.maxInFlightPerWorkload allows.",
        "Wait, or raise that budget.",
    )
    DISRUPTION_BUDGET = (
        "DisruptionBudget",
        "The change would restart or replace the pod, and other pods are not available yet.",
        "Look at the pods that the detail names, or raise one of budgets.maxDisruptions….",
    )
    UNEXPLAINED_RESTART = (
        "UnexplainedRestart",
        "A container restarted within a minute of a resize, and neither its resizePolicy nor an OOM kill explains it.",
        "Look into the container's log. Then replace the pod, or set its annotation bridge-autoscaler.dev/acknowledged "
        "to the time now, like 2026-11-29T12:00:00Z.",
        _NOTIFY,
    )
    RESIZE_UNKNOWN = (
        "ResizeUnknown",
        "The pod's resize is in a state that this version does not know: hands off.",
        "Look at the pod's conditions; a newer version of bridge-autoscaler may know them.",
        _NOTIFY,
    )

    # the numbers are not fit to act on
    METRICS_UNAVAILABLE = measured.METRICS_UNAVAILABLE
    NOT_MEASURED_YET = measured.NOT_MEASURED_YET
    NO_DATA = measured.NO_DATA
    STALE_DATA = measured.STALE_DATA
    CLUSTER_AMBIGUOUS = measured.CLUSTER_AMBIGUOUS
    AMBIGUOUS_SOURCE = measured.AMBIGUOUS_SOURCE
    DUPLICATE_SERIES = measured.DUPLICATE_SERIES
    SOURCE_CHANGED = measured.SOURCE_CHANGED
    INSUFFICIENT_HISTORY = measured.INSUFFICIENT_HISTORY
    LOW_COVERAGE = measured.LOW_COVERAGE
    SCRAPE_GAP = measured.SCRAPE_GAP
    RATE_WINDOW_TOO_SHORT = measured.RATE_WINDOW_TOO_SHORT
    PARTIAL_RESPONSE = measured.PARTIAL_RESPONSE
    RANGE_TRUNCATED = measured.RANGE_TRUNCATED
    RESOLUTION_REDUCED = measured.RESOLUTION_REDUCED
    COUNTER_RESET = measured.COUNTER_RESET
    COUNTER_RESET_STORM = measured.COUNTER_RESET_STORM
    GPU_UNATTRIBUTED = measured.GPU_UNATTRIBUTED
    GPU_UTILIZATION_UNKNOWN = measured.GPU_UTILIZATION_UNKNOWN

    # the recommender did not answer
    RECOMMENDER_FAILED = "RecommenderFailed", "The recommender raised an error.", "The detail is its message.", _NOTIFY
    RECOMMENDER_INVALID = (
        "RecommenderInvalid",
        "The recommender returned something that is not an amount.",
        "Correct it; the detail says what it returned.",
        _NOTIFY,
    )
    RECOMMENDER_SLOW = (
        "RecommenderSlow",
        "The recommender took too long to answer.",
        "Make it faster, or give it less to look at.",
        _NOTIFY,
    )
    RECOMMENDER_ABSTAINED = (
        "RecommenderAbstained",
        "The recommender declined to answer.",
        "The detail has its words.",
    )

    # nothing worth doing
    AT_TARGET = "AtTarget", "The pod has the size that is proposed.", "Nothing has to be done."
    CHANGE_TOO_SMALL = "ChangeTooSmall", "The change is smaller than stability.minChange.", "Nothing, or lower it."
    COOLDOWN = "Cooldown", "The newest resize of this pod is too recent: stability.cooldown.", "Wait, or shorten it."
