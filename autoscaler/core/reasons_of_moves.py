"""Reasons of the kind "a pod is not moved, or is being moved". Members of `autoscaler.core.reasons.Reason`."""

from __future__ import annotations

from autoscaler.core.worded import Wording

MIGRATION_NOT_ENABLED = Wording(
    "MigrationNotEnabled",
    "The resize has waited past its deadline, and the policy says to migrate without being allowed to.",
    "Set spec.mode to ResizeOrMigrate and fallback.strategy to Evict or Surge, or set fallback.action to Revert.",
    notify=True,
)
MIGRATION_NOT_PERMITTED = Wording(
    "MigrationNotPermitted",
    "The controller may not evict, or cannot see what an eviction is proved with: then it never evicts.",
    "kubectl apply -k rbac/migrate (and rbac/surge for strategy Surge).",
    notify=True,
)
NOT_REPLACEABLE = Wording(
    "NotReplaceable",
    "Nobody would make another pod on another node: it belongs to no controller, to a DaemonSet or to a Job.",
    "Make room on the node, or set fallback.action to Revert: until then the pod keeps asking and holds its "
    "place in the node's queue.",
    notify=True,
)
NOT_SAFE_TO_EVICT = Wording(
    "NotSafeToEvict",
    "An annotation of the pod says that it must not be evicted.",
    "Take away the annotation that the detail names, or set fallback.action to Revert: until then the pod keeps "
    "asking and holds its place in the node's queue.",
    notify=True,
)
WORKLOAD_CHANGING = Wording(
    "WorkloadChanging",
    "The pod's workload is being rolled out, or cannot be seen: its next pod may be another than this one.",
    "Wait for the rollout, or finish it.",
)
NO_LANDING_NODE = Wording(
    "NoLandingNode",
    "No other node would take the pod at its new size; the detail says what rules them out.",
    "Make room on one of them, or change what the pod asks of a node.",
    notify=True,
)
NEEDS_NEW_NODE = Wording(
    "NeedsNewNode",
    "Other nodes would take the pod, but have no room for its new size: a further or bigger node would do.",
    "Add a node.",
    notify=True,
)
REPLACEMENT_TOO_SMALL = Wording(
    "ReplacementTooSmall",
    "The next pod gets its template's size first, and may land where there is no room for more.",
    "Raise the template's requests, or cordon the nodes that the detail names, or set fallback.landing to Some.",
    notify=True,
)
EVICTION_BLOCKED = Wording(
    "EvictionBlocked",
    "A PodDisruptionBudget does not allow the eviction now.",
    "The detail names it. It is tried again; if it never allows any, make its workload larger or the budget wider.",
    notify=True,
)
EVICTION_REFUSED = Wording(
    "EvictionRefused",
    "The API server refused the eviction, or the change of the Deployment's scale. It is tried again later.",
    "The detail is its answer.",
    notify=True,
)
POD_TOO_YOUNG = Wording(
    "PodTooYoung",
    "A pod of the workload is younger than fallback.minPodAge: nothing is moved twice in a short time.",
    "Wait, or lower fallback.minPodAge.",
)
SIBLING_UNAVAILABLE = Wording(
    "SiblingUnavailable",
    "Another pod of the workload is not available, or missing.",
    "Look at the pod that the detail names.",
)
DRAINING = Wording(
    "Draining",
    "The pod is going to be moved once its users' sessions have ended. After fallback.drain.maxWait the policy "
    "decides: it is moved all the same (thenForce), or the move is called off.",
    "Wait, or end the sessions.",
)
GATE_UNKNOWN = Wording(
    "GateUnknown",
    "It was asked whether the pod has sessions, and is not known: what cannot be asked counts as closed.",
    "Look at fallback.drain and the detail.",
    notify=True,
)
SURGING = Wording(
    "Surging",
    "The Deployment has one replica more, and the new pod is not ready at its size yet.",
    "Wait: the old pod is evicted after that.",
)
SURGE_REFUSED = Wording(
    "SurgeRefused",
    "The workload cannot have one replica more for a move; the detail says why.",
    "Use strategy Evict, or remove what the detail names.",
    notify=True,
)
SURGE_FAILED = Wording(
    "SurgeFailed",
    "The new pod of a surge was not ready in time, and the Deployment got its own number of replicas back.",
    "Look at the events of the Deployment's pods. It is tried again after fallback.retryAfter.",
    notify=True,
)
REPLACING = Wording(
    "Replacing",
    "The pod is being replaced, or is the replacement and not ready yet.",
    "Wait: it becomes ReplacementUnscheduled or ReplacementNotReady if it takes too long.",
)
REPLACEMENT_UNSCHEDULED = Wording(
    "ReplacementUnscheduled",
    "The scheduler has found no node for the pod for more than a minute. Nothing of its workload is evicted.",
    "The detail is the scheduler's message.",
    notify=True,
)
REPLACEMENT_NOT_READY = Wording(
    "ReplacementNotReady",
    "The pod does not serve: for longer than fallback.readyWithin it has been on a node without being ready, or "
    "should have stopped. Neither it nor anything else of its workload is evicted.",
    "Look at the pod's events and logs.",
    notify=True,
)
