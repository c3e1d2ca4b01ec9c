"""A Prometheus that scrapes real kubelets and the bridges on them, through the API server."""

from __future__ import annotations

from pathlib import Path

from tests.kubelet.cluster import PORT, Cluster, Json
from tests.kubelet.pods import COMPONENT
from tests.rig.prometheus_server import PrometheusServer

FAST = "5s"  # cAdvisor of an emulated node takes up to 2 s to answer
WINDOW = "40s"  # of CPU rates, which hold if every other scrape is late: four are needed
_SLOW = "15s"  # a kubelet's own metrics are many, and nobody is in a hurry for them


def measured(lookback: str = "2m") -> Json:
    """`spec.metrics` of a story's policy. A slow node's missing samples are another story's matter."""
    return {"lookback": lookback, "step": "5s", "rateWindow": WINDOW, "minCoverage": 0}


def prometheus(cluster: Cluster, folder: Path, scrape_interval: str = FAST) -> PrometheusServer:
    """Start it. Jobs: `cadvisor`, `resource`, `kubelet` and `bridges`."""
    folder.mkdir(parents=True)
    jobs = [
        _kubelets(cluster, "cadvisor", "metrics/cadvisor", scrape_interval),
        _kubelets(cluster, "resource", "metrics/resource", scrape_interval),
        _kubelets(cluster, "kubelet", "metrics", _SLOW),
        _bridges(cluster, scrape_interval),
    ]
    return PrometheusServer(folder, jobs, scrape_interval=scrape_interval)


def _job(cluster: Cluster, name: str, interval: str, discovery: Json, relabel: list[Json]) -> Json:
    address = {"target_label": "__address__", "replacement": cluster.url.removeprefix("http://")}
    return {
        "job_name": name,
        "scrape_interval": interval,
        "scrape_timeout": interval,
        "kubernetes_sd_configs": [{"api_server": cluster.url, **discovery}],
        "relabel_configs": [*relabel, address],
    }


def _kubelets(cluster: Cluster, name: str, path: str, interval: str) -> Json:
    node = ["__meta_kubernetes_node_name"]
    return _job(
        cluster,
        name,
        interval,
        {"role": "node"},
        [
            {"action": "keep", "source_labels": node, "regex": "|".join(cluster.ground.nodes)},
            {"source_labels": node, "target_label": "node"},
            {
                "source_labels": node,
                "target_label": "__metrics_path__",
                "regex": "(.+)",
                "replacement": f"/api/v1/nodes/$1/proxy/{path}",
            },
        ],
    )


def _bridges(cluster: Cluster, interval: str) -> Json:
    namespace, pod = "__meta_kubernetes_namespace", "__meta_kubernetes_pod_name"
    (label, value) = next(iter(COMPONENT.items()))
    return _job(
        cluster,
        "bridges",
        interval,
        {"role": "pod", "selectors": [{"role": "pod", "label": f"{label}={value}"}]},
        [
            {"action": "keep", "source_labels": [namespace], "regex": "e2e-.+"},
            {"action": "keep", "source_labels": ["__meta_kubernetes_pod_container_name"], "regex": "app"},
            {"action": "drop", "source_labels": ["__meta_kubernetes_pod_phase"], "regex": "Pending|Succeeded|Failed"},
            {"source_labels": [namespace], "target_label": "namespace"},
            {"source_labels": [pod], "target_label": "pod"},
            {
                "source_labels": [namespace, pod],
                "target_label": "__metrics_path__",
                "regex": "(.+);(.+)",
                "replacement": f"/api/v1/namespaces/$1/pods/$2:{PORT}/proxy/metrics",
            },
        ],
    )
