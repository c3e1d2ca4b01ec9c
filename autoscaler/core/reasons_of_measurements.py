"""Reasons of the kind "what was measured is not fit to act on". Members of `autoscaler.core.reasons.Reason`."""

from __future__ import annotations

from autoscaler.core.worded import Wording

METRICS_UNAVAILABLE = Wording(
    "MetricsUnavailable",
    "Prometheus cannot be asked, or answers with something else.",
    "Check --prometheus-url and the detail.",
    notify=True,
)
NOT_MEASURED_YET = Wording(
    "NotMeasuredYet",
    "The container was seen a short time ago; its history is being read.",
    "Wait: the log lines measuring of a controller say how far it is.",
)
NO_DATA = Wording(
    "NoData",
    "Prometheus has no samples for this container. Missing is never zero.",
    "doctor says by which labels series are looked for, and of how many of the selected pods they are there. Have the "
    "kubelets' /metrics/cadvisor scraped, or set prometheus.layout.",
)
STALE_DATA = Wording(
    "StaleData",
    "The newest sample is too old to act on.",
    "Check that the kubelet is being scraped: up of its job, and scrapes that fail.",
)
CLUSTER_AMBIGUOUS = Wording(
    "ClusterAmbiguous",
    "Prometheus has series of these pods from several clusters, and is not told which one is this one.",
    "Set prometheus.layout.clusterMatcher, like clusterMatcher: 'cluster=\"eu\"'; the detail names the clusters.",
    notify=True,
)
AMBIGUOUS_SOURCE = Wording(
    "AmbiguousSource",
    "Several scrape jobs have the container, and what they say of its usage differs by over a tenth.",
    "Set prometheus.layout.matchers to choose one; the detail names them, and one that most containers have.",
    notify=True,
)
DUPLICATE_SERIES = Wording(
    "DuplicateSeries",
    "Prometheus has the container several times, and what the copies say of its usage differs by over a tenth.",
    "Set prometheus.layout.matchers, or clusterMatcher, to choose one; the detail names the label that differs.",
    notify=True,
)
SOURCE_CHANGED = Wording(
    "SourceChanged",
    "The container's series come from another scrape job or endpoint than two hours ago, which may count differently: "
    "it may get more, but not less.",
    "Wait two hours, or go back to the former job; the detail names the new one.",
)
INSUFFICIENT_HISTORY = Wording(
    "InsufficientHistory",
    "There is too little history yet: the recommender wants more, or the newest sample may still be of an earlier pod "
    "of the name, which leaves raises alone.",
    "Wait for as long as the detail says, or let the recommender want less.",
)
LOW_COVERAGE = Wording(
    "LowCoverage",
    "Fewer samples are there than metrics.minCoverage, or too few pods of the workload have any: it may get more, but "
    "not less.",
    "See why scrapes fail (up of the kubelets' job), or lower metrics.minCoverage; the detail has the numbers.",
)
SCRAPE_GAP = Wording(
    "ScrapeGap",
    "Over a tenth of the samples is missing in holes of more than two scrapes: it may get more, but not less.",
    "See why scrapes failed then. It passes when the hole is older than metrics.lookback, or makes up less.",
)
RATE_WINDOW_TOO_SHORT = Wording(
    "RateWindowTooShort",
    "metrics.rateWindow holds fewer than four scrapes, so that CPU usage has gaps: CPU stays as it is, memory goes on.",
    "Raise metrics.rateWindow to four of the scrape intervals that the detail names, or scrape more often.",
)
PARTIAL_RESPONSE = Wording(
    "PartialResponse",
    "The server warned that an answer is not whole: it may get more, but not less.",
    "The detail has the warning, or how long ago it was: look at the stores behind the server. What was left out is "
    "read again.",
)
RANGE_TRUNCATED = Wording(
    "RangeTruncated",
    "Not all of metrics.lookback was read: all look-backs would have been more than prometheus.backfillSamples. It may "
    "get more, but not less, until the look-back has passed.",
    "Raise prometheus.backfillSamples if Prometheus can bear it, or shorten metrics.lookback; the detail has the "
    "numbers.",
)
RESOLUTION_REDUCED = Wording(
    "ResolutionReduced",
    "metrics.lookback is long, so that usage is kept as blocks of five minutes, and metrics.rateWindow is shorter than "
    "a block: CPU peaks in between are not seen, and CPU is not lowered.",
    "Raise metrics.rateWindow to the length of a block, or shorten metrics.lookback; the detail has the numbers.",
)
COUNTER_RESET = Wording(
    "CounterReset",
    "The container restarted lately, and its CPU usage reads too low for one metrics.rateWindow: it is said, and keeps "
    "nothing.",
    "Look into the container's log for why it restarted.",
)
COUNTER_RESET_STORM = Wording(
    "CounterResetStorm",
    "The container restarts so often that over a tenth of its CPU usage reads too low: CPU is not lowered.",
    "Look into the container's log.",
)
GPU_UNATTRIBUTED = Wording(
    "GpuUnattributed",
    "The pod asks for a GPU, its recommender reads what GPUs do, and dcgm-exporter's series of them name no pod.",
    "Let dcgm-exporter map pods (DCGM_EXPORTER_KUBERNETES=true).",
)
GPU_UTILIZATION_UNKNOWN = Wording(
    "GpuUtilizationUnknown",
    "The container has a part of a GPU (MIG), its recommender reads how busy that is, and there is no such series.",
    "Let dcgm-exporter collect DCGM_FI_PROF_GR_ENGINE_ACTIVE.",
)
