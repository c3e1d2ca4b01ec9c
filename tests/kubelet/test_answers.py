"""The model of a kubelet answers as the recorded real ones did: what `test_model.py` asks, without a node."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kubelet.answers import RECORDED, Interview, differences, read, write
from tests.kubelet.asking import Ask, Question, Seen
from tests.kubelet.model_kubelet import ModelKubelet
from tests.kubelet.questions import ACTORS, QUESTIONS

INTERVIEWS = {path.stem: read(path) for path in sorted(RECORDED.glob("*.json"))}


RECORDED_ANSWERS = [
    pytest.param(interview, question, id=f"{name}: {question.name}")
    for name, interview in INTERVIEWS.items()
    for question in QUESTIONS
    if question.name in interview.answers
]


@pytest.mark.parametrize(("interview", "question"), RECORDED_ANSWERS)
def test_the_model_answers_as_a_recorded_kubelet(interview: Interview, question: Question) -> None:
    answer = ModelKubelet(interview.site, ACTORS).answer(question)
    found = differences(question, answer, interview.answers[question.name])
    assert bool(found) is bool(question.differs), found


def test_enough_is_asked_and_all_of_it_recorded() -> None:
    names = {question.name for question in QUESTIONS}
    recorded = [name for interview in INTERVIEWS.values() for name in interview.answers]
    assert len(QUESTIONS) == len(names) >= 40
    assert names == set(recorded)
    for interview in INTERVIEWS.values():
        of_its_kind = {question.name for question in QUESTIONS if question.static is interview.site.static}
        assert of_its_kind <= interview.answers.keys()


def test_what_the_model_leaves_out_is_written_down() -> None:
    page = (Path(__file__).parents[2] / "docs" / "kubelet-model.md").read_text()
    assert [question.name for question in QUESTIONS if question.differs and f"`{question.name}`" not in page] == []


ASKED = Question("asked", [Ask("a", {})])
HASTY = Question("hasty", [Ask("a", {}, at_once=True), Ask("a", {})])


def seen(*states: str, said: str = "generation +1") -> list[Seen]:
    return [Seen(said, {"a": states})]


def test_a_kubelet_may_skip_a_state_and_show_one_without_its_condition_and_nothing_else() -> None:
    model = seen("pending@1 used: 7; size 1", "in progress@1; size 2", "size 3")
    end = model[0].states["a"][-1]
    for states in (model[0].states["a"], [end], ["pending@1 used: 8; size 1", end], ["size 2", end]):
        assert differences(ASKED, model, seen(*states)) == []
    for states in (["odd", end], ["in progress@1; size 2", "pending@1 used: 7; size 1", end]):
        (found,) = differences(ASKED, model, seen(*states))
        assert found == f"a goes by way of {states[-2].replace('7', '…')!r} really"
    (found,) = differences(ASKED, model, seen("size 2"))
    assert found == "a ends as 'size 3' in the model, and as 'size 2' really"
    (found,) = differences(ASKED, model, seen(end, said="403"))
    assert found == "the model says 'generation +1', the API server '403'"


def test_of_a_hasty_question_only_the_end_counts() -> None:
    model = [*seen("before"), *seen("before", "after")]
    assert differences(HASTY, model, [*seen("before", "odd"), *seen("odd", "odder", "after")]) == []
    assert differences(HASTY, model, [*seen("before"), *seen("before")]) != []


def test_what_was_recorded_is_read_as_it_was(tmp_path: Path) -> None:
    for name, interview in INTERVIEWS.items():
        write(tmp_path / name, interview)
        assert read(tmp_path / name) == interview
