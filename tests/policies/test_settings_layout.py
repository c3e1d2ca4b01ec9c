"""The section `prometheus.layout`: what it accepts, what it means, and what is said of what it refuses."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from autoscaler.adapters.prometheus.layout import ANY, CLUSTER_LABELS, PRESETS, VARIANTS, Layout, Names
from autoscaler.cli.access import access_of
from autoscaler.settings import load_settings
from autoscaler.settings_layout import LayoutSection
from autoscaler.settings_prometheus import VARIABLES
from autoscaler.strictyaml import Refused


def layout_of(tmp_path: Path, layout: Any) -> Layout:
    return load_settings(config=written(tmp_path, layout)).prometheus.layout.layout()


def written(tmp_path: Path, layout: Any) -> Path:
    spec = {"prometheus": {"url": "http://prometheus:9090", "layout": layout}}
    head = {"apiVersion": "bridge-autoscaler.dev/v1alpha1", "kind": "BridgeConfig"}
    (tmp_path / "settings.yaml").write_text(yaml.safe_dump({**head, "spec": spec}))
    return tmp_path / "settings.yaml"


def test_without_settings_everything_is_found_out() -> None:
    assert LayoutSection().layout() == ANY
    assert ANY.variants == VARIANTS
    assert ANY.cluster_labels == CLUSTER_LABELS


def test_every_key(tmp_path: Path) -> None:
    found = layout_of(
        tmp_path,
        {
            "metrics": {"cpu": "a:cpu", "memory": "a:memory", "inUse": "a:in_use"},
            "labels": {"namespace": "ns", "pod": "p", "container": "c"},
            "matchers": 'job="kubelet", metrics_path!~"/a|/b"',
            "clusterLabel": "fleet",
            "clusterMatcher": 'region="eu"',
        },
    )
    assert (found.cpu, found.memory, found.in_use) == ("a:cpu", "a:memory", "a:in_use")
    assert found.names == Names("ns", "p", "c")
    assert found.variants[0].without == ()
    assert found.matchers + found.cluster == ('job="kubelet"', 'metrics_path!~"/a|/b"', 'region="eu"')
    # with the matcher there may still be several; who names the label wants to hear of that
    assert found.cluster_labels == ("fleet",)


def test_who_says_which_cluster_is_not_asked_which(tmp_path: Path) -> None:
    found = layout_of(tmp_path, {"clusterMatcher": 'cluster="eu"'})
    assert (found.cluster, found.cluster_labels) == (('cluster="eu"',), ())


def test_some_labels_alone_may_be_other_ones(tmp_path: Path) -> None:
    assert layout_of(tmp_path, {"labels": {"pod": "pod_name"}}).names == Names("namespace", "pod_name", "container")


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_can_be_named_and_changed(tmp_path: Path, preset: str) -> None:
    assert layout_of(tmp_path, {"preset": preset}) == PRESETS[preset]
    changed = layout_of(tmp_path, {"preset": preset, "matchers": 'job="cadvisor"', "labels": {}, "clusterLabel": "c"})
    assert changed.matchers == ('job="cadvisor"',)
    assert changed.cluster_labels == ("c",)
    assert changed.params == PRESETS[preset].params


def test_thanos_is_asked_for_replicas_once_whole_and_undiluted(tmp_path: Path) -> None:
    access = access_of(load_settings(config=written(tmp_path, {"preset": "thanos"})).prometheus)
    assert access.params == {"dedup": "true", "partial_response": "false", "max_source_resolution": "0s"}


@pytest.mark.parametrize(
    ("layout", "words"),
    [
        ({"preset": "prometheus"}, ["prometheus.layout.preset", "thanos", "mimir"]),
        ({"metrics": {"cpu": "sum(a)"}}, ["prometheus.layout.metrics.cpu", "'sum(a)'", "name of a metric"]),
        ({"metrics": {"memory": "NaN"}}, ["prometheus.layout.metrics.memory", "'NaN'"]),
        ({"labels": {"pod": "k8s.pod.name"}}, ["prometheus.layout.labels.pod", "'k8s.pod.name'", "name of a label"]),
        ({"labels": {"pod": "namespace"}}, ["prometheus.layout.labels", "three labels"]),
        ({"labels": {"node": "x"}}, ["prometheus.layout.labels.node", "namespace, pod, container"]),
        ({"clusterLabel": "__name__"}, ["prometheus.layout.clusterLabel"]),
        ({"clusterMatcher": "eu"}, ["prometheus.layout.clusterMatcher", "'eu' is not a matcher", 'job="kubelet"']),
        ({"clusterMatcher": ""}, ["prometheus.layout.clusterMatcher", "leave it out"]),
        ({"matchers": 'job="a" or up'}, ["prometheus.layout.matchers", "does not follow a matcher"]),
        ({"matchers": 'a="b"}[1h:1s]'}, ["prometheus.layout.matchers"]),
        ({"cluster_label": "x"}, ["prometheus.layout.cluster_label", "clusterLabel"]),
    ],
)
def test_what_is_refused_is_named(tmp_path: Path, layout: Any, words: list[str]) -> None:
    with pytest.raises(Refused) as caught:
        layout_of(tmp_path, layout)
    text = str(caught.value)
    assert "settings.yaml:" in text
    assert [word for word in words if word not in text] == [], text


def test_variables_say_the_same_and_complete_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prefix = "BRIDGE_AUTOSCALER_PROMETHEUS_LAYOUT"
    monkeypatch.setenv(f"{prefix}_CLUSTER_MATCHER", 'cluster="eu", region=~"west|north"')
    monkeypatch.setenv(f"{prefix}_METRICS_IN_USE", "a:u")
    monkeypatch.setenv(f"{prefix}_LABELS_POD", "pod_name")
    said = {
        "clusterMatcher": 'cluster="eu", region=~"west|north"',
        "metrics": {"inUse": "a:u"},
        "labels": {"pod": "pod_name"},
    }
    assert load_settings().prometheus.layout == LayoutSection.model_validate(said)
    from_both = load_settings(config=written(tmp_path, {"preset": "mimir", "metrics": {"cpu": "a:c"}, "labels": None}))
    both = {**said, "preset": "mimir", "metrics": {"inUse": "a:u", "cpu": "a:c"}}
    assert from_both.prometheus.layout == LayoutSection.model_validate(both)
    monkeypatch.setenv(f"{prefix}_LABELS_POD", "namespace")
    monkeypatch.setenv(f"{prefix}_MATCHERS", 'job="')
    with pytest.raises(Refused) as refused:
        load_settings()
    assert f"{prefix}_MATCHERS: 'job=\"' is not a matcher" in str(refused.value)
    assert "are to be three labels" in str(refused.value)


def test_every_key_and_preset_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text().partition("## Layouts")[2]
    rows = [line.split(" | ")[:3] for line in page.splitlines() if line.startswith("| `")]
    keys = {
        path: "none" if default is None else f"`{default}`"
        for key, section in LayoutSection().model_dump(by_alias=True).items()
        for path, default in (
            [(f"{key}.{inner}", value) for inner, value in section.items()]
            if isinstance(section, dict)
            else [(f"{key}.{name}", name) for name in Names._fields]
            if key == "labels"
            else [(key, section)]
        )
    }
    assert rows[: len(keys)] == [
        [f"| `{path}`", f"`{VARIABLES['layout', *path.split('.')]}`", default] for path, default in keys.items()
    ]
    assert [row[0] for row in rows[len(keys) :]] == [f"| `{preset}`" for preset in PRESETS]
