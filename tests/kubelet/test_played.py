"""The kubelet that the rig plays answers as the model does, behind a real API server: the questions of real ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubelet.answers import differences
from tests.kubelet.asking import Delete, Question, rounds
from tests.kubelet.cluster import Cluster, Ground
from tests.kubelet.model_kubelet import ModelKubelet
from tests.kubelet.questions import ACTORS, QUESTIONS
from tests.kubelet.real_kubelet import RealKubelet
from tests.rig.rig import Rig
from tests.rig.usage import Usage

# the rig starts every pod at once, and stops it at once
PLAYED = tuple(actor for actor in ACTORS if actor.phase == "Running")
NAMES = {actor.name for actor in PLAYED}


@pytest.mark.parametrize("static", [False, True], ids=["no static manager", "static CPU manager"])
def test_the_played_kubelet_answers_as_the_model(rig: Rig, tmp_path: Path, static: bool) -> None:
    node = "asked-static" if static else "asked"
    rig.agent.add_node(node, cpu="1900m", memory="1203728Ki", static_cpu_manager=static)
    cluster = Cluster(tmp_path, Ground(rig.admin_kubeconfig, "bridge", [node], None, reaches_pods=False))
    try:
        assert not (found := list(_differences(rig, cluster, static))), "\n".join(found)
    finally:
        cluster.close()
        rig.agent.remove_node(node)


def _differences(rig: Rig, cluster: Cluster, static: bool) -> Iterator[str]:
    (node,) = cluster.ground.nodes
    namespace = cluster.namespace(node)

    def hold(pod: str, mib: int) -> None:
        rig.agent.usage[namespace, pod, "app"] = Usage(memory=float((16 + mib) << 20))

    with RealKubelet(cluster, namespace, node, PLAYED, static=static, hold=hold, within_s=8) as played:
        model = ModelKubelet(played.site, PLAYED)
        for group in rounds([question for question in QUESTIONS if _is_for(question, static)]):
            expected = [model.answer(question) for question in group]
            answers = played.answer(list(zip(group, expected, strict=True)))
            for question, ours, theirs in zip(group, expected, answers, strict=True):
                yield from (f"{question.name}: {one}" for one in differences(question, ours, theirs))


def _is_for(question: Question, static: bool) -> bool:
    """Without those to which even a real one does not answer as the model, and what has nothing to do with a manager
    is not asked twice."""
    ends = any(isinstance(step, Delete) for step in question.steps)
    matters = bool(question.static) if static else question.static is not True
    return matters and not question.differs and not ends and set(question.pods) <= NAMES
