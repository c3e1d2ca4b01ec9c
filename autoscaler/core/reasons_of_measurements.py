"""Reasons of the kind "what was measured is not fit to act on". Members of `autoscaler.core.reasons.Reason`."""

from __future__ import annotations

from autoscaler.core.worded import Wording

METRICS_UNAVAILABLE = Wording(
    "MetricsUnavailable",
    "Prometheus cannot be asked, or answers with something else.",
    "Check --prometheus-url and the detail.",
    notify=True,
)
NOT_MEASURED_YET = Wording("NotMeasuredYet", "The container was seen a short time ago; its history is being read.")
NO_DATA = Wording("NoData", "Prometheus has no samples for this container. Missing is never zero.")
STALE_DATA = Wording("StaleData", "The newest sample is too old to act on.", "Check that the kubelet is being scraped.")
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
INSUFFICIENT_HISTORY = Wording("InsufficientHistory", "There is too little history yet, of this pod or at all.")
LOW_COVERAGE = Wording("LowCoverage", "Samples are missing: raises alone.", "See metrics.minCoverage, and scrapes.")
SCRAPE_GAP = Wording(
    "ScrapeGap", "Over a tenth of the samples is in holes: raises alone.", "See why scrapes failed then."
)
RATE_WINDOW_TOO_SHORT = Wording(
    "RateWindowTooShort", "CPU is scraped too seldom: it stays.", "Raise metrics.rateWindow."
)
PARTIAL_RESPONSE = Wording(
    "PartialResponse", "The server left data out: raises alone.", "Look at the stores behind it."
)
COUNTER_RESET = Wording(
    "CounterReset", "Restarts make CPU usage read too low: it is not lowered.", "Read the container's log."
)
