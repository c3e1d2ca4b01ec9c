"""The model of a kubelet and a real one are asked the same."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.kubelet.answers import Interview, applies, differences, write
from tests.kubelet.asking import Seen, rounds
from tests.kubelet.cluster import Cluster, Json, Refusal, eventually
from tests.kubelet.figures import Figures
from tests.kubelet.model_kubelet import ModelKubelet
from tests.kubelet.questions import ACTORS, QUESTIONS
from tests.kubelet.real_kubelet import RealKubelet
from tests.kubelet.stage import Stage


@pytest.mark.timeout(900)
def test_a_real_kubelet_answers_as_the_model(stage: Stage, figures: Figures) -> None:
    """E2E_RECORD names a file to write the answers to: captures/kubelets holds such files."""
    node, cluster = stage.node, stage.cluster
    static = cluster.ground.static_node == node
    answers: dict[str, list[Seen]] = {}
    found: list[str] = []

    def hold(pod: str, mib: int) -> None:
        eventually(f"{pod} takes the load", lambda: loaded(cluster, cluster.pod(stage.namespace, pod), mib))

    with (
        stage.prometheus.blind(),  # nothing is measured here, and scraping makes an emulated kubelet slow
        RealKubelet(cluster, stage.namespace, node, ACTORS, static=static, hold=hold) as real,
    ):
        model = ModelKubelet(real.site, ACTORS)
        asked = [question for question in QUESTIONS if applies(question, real.site)]
        groups = rounds(asked)
        for group in groups:
            expected = [model.answer(question) for question in group]
            answered = real.answer(list(zip(group, expected, strict=True)), restore=group is not groups[-1])
            for question, ours, theirs in zip(group, expected, answered, strict=True):
                answers[question.name] = theirs
                differing = differences(question, ours, theirs)
                if bool(differing) is not bool(question.differs):
                    found += [f"{question.name}: {one}" for one in differing or ["differs no more"]]
    if record := os.environ.get("E2E_RECORD"):
        version = cluster.node(node)["status"]["nodeInfo"]["kubeletVersion"]
        write(Path(record), Interview(version, real.site, answers))
    figures.note("model", f"{len(asked)} questions asked of {node}, {len(found)} answers are not the model's")
    assert not found, "\n".join(found)


def loaded(cluster: Cluster, pod: Json, mib: int) -> bool:
    """Whether a pod has taken so much memory; not while a question has it restart."""
    try:
        cluster.ask(pod, "POST", "load", {"memory_mib": mib})
    except Refusal as refusal:
        if refusal.status != 503:
            raise
        return False
    return True
