"""The closed set of problems that belong to no single pod, beside reasons that concern all of Prometheus.

A plan lists them, the log has each when it appears. docs/reasons.md is generated from this table, too.
"""

from __future__ import annotations

from autoscaler.core.reasons import Reason
from autoscaler.core.worded import Worded

_INCOMPLETE = True


class Trouble(Worded):
    """One CamelCase word for each. `notify`: a plan with it is incomplete; the others are notes, which hold nothing."""

    # policies and plug-ins
    NOTHING_SELECTED = (
        "NothingSelected",
        "The selector of a policy matches no pod.",
        "Check spec.selector of the policy.",
    )
    PLUGIN_UNUSABLE = (
        "PluginUnusable",
        "A recommender that is installed cannot be used.",
        "The detail says what is wrong with it: correct the package, or uninstall it.",
        _INCOMPLETE,
    )

    # the cluster
    CAPABILITY_MISSING = (
        "CapabilityMissing",
        "Something that policies ask for is not granted, or cannot be read now. The detail says what is not done "
        "for it.",
        "kubectl apply -k the folder of rbac/ that the detail names; doctor checks each right.",
        _INCOMPLETE,
    )
    UNAVAILABLE = (
        "Unavailable",
        "A kind of object cannot be read now. The detail says what comes of that.",
        "The detail has the API server's words; it is tried again by itself.",
        _INCOMPLETE,
    )
    UNREADABLE = (
        "Unreadable",
        "An object is not as this version knows them, and is left out.",
        "Look at the object; a newer version of bridge-autoscaler may know it.",
        _INCOMPLETE,
    )
    UNKNOWN_QOS_CLASS = (
        "UnknownQoSClass",
        "A pod has a QoS class that this version does not know: it is left alone.",
        "A newer version of bridge-autoscaler may know it.",
        _INCOMPLETE,
    )
    PODS_MISSING = (
        "PodsMissing",
        "A workload whose pods may be moved lacks some: its controller has not made them.",
        "kubectl describe the workload: quotas and admission are usual causes. Nothing of it is moved meanwhile.",
        _INCOMPLETE,
    )
    SURGE_LEFT_BEHIND = (
        "SurgeLeftBehind",
        "A Deployment has one replica more for a move, and no policy moves its pods any more.",
        "Scale it back to what the detail says.",
        _INCOMPLETE,
    )
    NOT_TOLD = (
        "NotTold",
        "A pod could not be told that it should take no new sessions, or that it may again.",
        "Look at fallback.drain.notify and at what the pod answers; it is told again.",
        _INCOMPLETE,
    )

    # Prometheus: these hold nothing
    CLOCK_SKEW = (
        "ClockSkew",
        "Prometheus' clock differs from the API server's by more than 30 s. Its own is used for queries.",
        "Set both clocks by NTP.",
    )
    EXPORTED_LABELS = (
        "ExportedLabels",
        "Usage is read by the labels exported_namespace, exported_pod, exported_container.",
        "Nothing has to be done. With honorLabels: true in the scrape job the plain labels are the pods'.",
    )
    AMBIGUOUS_SOURCE = (
        "AmbiguousSource",
        "Several scrape jobs or endpoints have some containers. As far as they agree the greatest counts, once; a "
        "container of which they differ by over a tenth is held, by the reason of this name.",
        "Nothing has to be done. prometheus.layout.matchers chooses one.",
    )
    DUPLICATE_SERIES = (
        "DuplicateSeries",
        "Prometheus has some containers several times, as a pair of servers makes them. As far as copies agree the "
        "greatest counts, once; a container of which they differ by over a tenth is held, by the reason of this name.",
        "Nothing has to be done. prometheus.layout.matchers chooses one.",
    )
    SENTINEL_SAMPLES = (
        "SentinelSamples",
        "Some samples of GPUs are numbers by which DCGM says that it has none: they are left out, and counted.",
        "See dcgm-exporter's log for fields that the card or the driver does not have.",
    )
    HISTORY_LIMITED_TO_LIVE_PODS = (
        "HistoryLimitedToLivePods",
        "There is no kube_pod_owner: nothing in Prometheus says which earlier pods were of a workload. The history of "
        "a pod is that of its name.",
        "Nothing has to be done: owners come from the API server. With kube-state-metrics, queries of your own could "
        "find earlier pods.",
    )
    SIGNAL_UNAVAILABLE = (
        "SignalUnavailable",
        "The query of one signal is refused, or is too much for the server. That signal is missing; the rest goes on.",
        "Correct metrics.signals of the policy, or prometheus.layout; the detail has the server's words, and doctor "
        "asks for each signal.",
        _INCOMPLETE,
    )
    THROTTLING_NOT_APPLICABLE = (
        "ThrottlingNotApplicable",
        "A recommender reads throttled periods, and there are none of some containers: they have no CPU limit.",
        "Nothing has to be done.",
    )
    PSI_UNSUPPORTED = (
        "PsiUnsupported",
        "A recommender reads pressure (PSI), and the nodes of some containers do not count it: it is missing, not 0.",
        "Use cgroup v2, a kernel with PSI, and Kubernetes 1.34 or newer on those nodes.",
    )
    PEAK_UNSUPPORTED = (
        "PeakUnsupported",
        "A recommender reads the kernel's memory peak, and the kernels under some containers have none.",
        "Use a kernel of 5.19 or newer. Until then the peak is the greatest working set.",
    )
    GPU_UNATTRIBUTED = (
        "GpuUnattributed",
        "Some GPUs, or parts of one, are of no pod in dcgm-exporter's series: what they do is not known.",
        "Let dcgm-exporter map pods (DCGM_EXPORTER_KUBERNETES=true); GPUs that no pod has stay.",
    )
    GPU_UTILIZATION_UNKNOWN = (
        "GpuUtilizationUnknown",
        "A recommender reads the utilisation of GPUs, and of some parts of one (MIG) there is none.",
        "Let dcgm-exporter collect DCGM_FI_PROF_GR_ENGINE_ACTIVE.",
    )


ProblemWord = Reason | Trouble
"""What a problem is called: a reason, where it is the same that holds pods."""

NOTES = frozenset(trouble for trouble in Trouble if not trouble.notify)
"""Problems that hold nothing, and leave a plan complete."""
