"""What is found out about an endpoint, and when it is asked for."""

from collections.abc import Callable, Mapping

import numpy as np
import pytest

from autoscaler.adapters.prometheus.answers import MetricsError, Series
from autoscaler.adapters.prometheus.copies import disputes_in
from autoscaler.adapters.prometheus.layout import ANY, VARIANTS
from autoscaler.adapters.prometheus.survey import VALID_S, Survey
from autoscaler.core.history import ContainerRef
from autoscaler.core.model import PodRef
from autoscaler.core.problems import Trouble
from autoscaler.core.reasons import Reason

SIM = PodRef("sim", "sim-0")
MIB = 2.0**20


def one(value: float = 1, **labels: str) -> Series:
    return Series(labels, np.asarray([0.0]), np.asarray([value]))


class Endpoint:
    """Answers the question for clusters with these series, and notes what it is asked."""

    def __init__(self, *series: Series) -> None:
        self.series = list(series)
        self.asked: list[str] = []
        self.scraped_at = [15.0 * sample for sample in range(7)]
        self.answers: dict[str, list[Series]] = {}
        self.fails: Callable[[str], bool] = lambda query: False

    async def __call__(self, query: str) -> list[Series]:
        self.asked.append(query)
        if self.fails(query):
            raise MetricsError(422, "execution", "query processing would load too many samples into memory")
        for word, answer in self.answers.items():
            if word in query:
                return answer
        if query.endswith("s]"):
            at = np.asarray(self.scraped_at)
            return [Series(self.series[0].labels, at, np.ones_like(at))]
        if query.startswith("topk(1"):
            return self.series[:1]
        return self.series if query.startswith("count by") else []


def sim(**labels: str) -> Series:
    return one(1, namespace="sim", pod="sim-0", **labels)


async def test_it_is_asked_for_every_ten_minutes() -> None:
    endpoint, survey = Endpoint(sim()), Survey(ANY)
    await survey.renew(endpoint, {SIM}, 0)
    first = len(endpoint.asked)
    assert first == 8
    await survey.renew(endpoint, {SIM}, VALID_S - 1)
    assert len(endpoint.asked) == first
    await survey.renew(endpoint, {SIM}, VALID_S)
    assert len(endpoint.asked) == 2 * first


@pytest.mark.parametrize("room", [-3, 1, 3])
async def test_questions_take_turns_where_there_is_room_for_few(room: int) -> None:
    endpoint, survey = Endpoint(sim()), Survey(ANY)
    await survey.renew(endpoint, {SIM}, 0, gpus=True, room=room)
    every = sorted(endpoint.asked)
    assert len(every) == 11  # there is no bound before the cluster is known
    endpoint.asked.clear()
    for turn in range(11):
        before = len(endpoint.asked)
        await survey.renew(endpoint, {SIM}, VALID_S + turn, gpus=True, room=room)
        assert len(endpoint.asked) - before <= max(1, room)
    assert sorted(endpoint.asked) == every


@pytest.mark.parametrize("room", [-3, 1, 3])
async def test_series_that_vanish_cost_no_more_and_keep_no_other_question_from_being_put(room: int) -> None:
    endpoint, survey = Endpoint(sim()), Survey(ANY)
    await survey.renew(endpoint, {SIM}, 0)
    every = {query for query in endpoint.asked if not query.endswith("s]")}
    endpoint.series = []
    endpoint.asked.clear()
    for turn in range(20):
        before = len(endpoint.asked)
        await survey.renew(endpoint, {SIM}, VALID_S + 60 * turn, room=room)
        assert len(endpoint.asked) - before <= max(1, room)
    assert every <= set(endpoint.asked)
    assert len({query for query in endpoint.asked if query.startswith("count by (cluster")}) == len(VARIANTS)
    endpoint.series = [one(exported_namespace="sim", exported_pod="sim-0")]
    for turn in range(20, 40):
        await survey.renew(endpoint, {SIM}, VALID_S + 60 * turn, room=room)
    assert survey.layout.names.pod == "exported_pod"


async def test_a_question_that_fails_does_not_keep_the_others_from_being_put() -> None:
    endpoint, survey = Endpoint(sim()), Survey(ANY)
    await survey.renew(endpoint, {SIM}, 0)
    endpoint.fails = lambda query: "avg_over_time" in query
    endpoint.asked.clear()
    for turn in range(2):
        with pytest.raises(MetricsError):
            await survey.renew(endpoint, {SIM}, VALID_S + turn)
    assert len(endpoint.asked) == 9  # all eight, and the one that fails again


async def test_the_way_of_labelling_that_was_found_is_asked_for_first() -> None:
    endpoint = Endpoint(one(exported_namespace="sim", exported_pod="sim-0"))
    survey = Survey(ANY)
    await survey.renew(endpoint, {SIM}, 0)
    endpoint.asked.clear()
    await survey.renew(endpoint, {SIM}, VALID_S)
    assert sum(query.startswith("count by (cluster") for query in endpoint.asked) == 1
    endpoint.series = [sim()]
    await survey.renew(endpoint, {SIM}, 2 * VALID_S)
    assert survey.layout.names.pod == "pod"


async def test_copies_and_numbers_for_none_are_said_with_their_number() -> None:
    endpoint, survey = Endpoint(sim()), Survey(ANY)
    endpoint.answers = {
        "label_replace(count": [one(3, of="sources"), one(5, of="series")],
        "2147483632": [one(40)],
    }
    await survey.renew(endpoint, {SIM}, 0, gpus=True)
    said = {note.reason: note.detail for note in survey.notes}
    assert said[Trouble.AMBIGUOUS_SOURCE].startswith("3 containers are scraped by several of job and metrics_path")
    assert said[Trouble.DUPLICATE_SERIES].startswith("2 containers are there several times")
    assert said[Trouble.SENTINEL_SAMPLES].startswith("40 samples of GPUs in 10 minutes")
    assert (survey.take_blanks(), survey.take_blanks()) == (40, 0)
    endpoint.answers = {}
    await survey.renew(endpoint, {SIM}, VALID_S, gpus=True)
    assert {note.reason for note in survey.notes} == {Trouble.HISTORY_LIMITED_TO_LIVE_PODS}


async def test_a_server_that_refuses_to_count_owners_is_asked_for_the_rest() -> None:
    endpoint, survey = Endpoint(sim()), Survey(ANY)
    endpoint.fails = lambda query: "kube_pod_owner" in query
    await survey.renew(endpoint, {SIM}, 0)
    assert survey.usable
    assert survey.notes == ()
    await survey.renew(endpoint, {SIM}, VALID_S - 1)
    assert len(endpoint.asked) == 8


async def test_a_server_that_refuses_to_count_copies_is_asked_for_the_rest() -> None:
    """For half of the pods each first."""
    pods = {PodRef("sim", f"p{i}") for i in range(4)}
    endpoint, survey = Endpoint(*(one(namespace="sim", pod=pod.name) for pod in pods)), Survey(ANY)
    endpoint.answers = {"label_replace(count": [one(2, of="series")]}
    endpoint.fails = lambda query: "label_replace(count" in query and query.count("|") > 2
    await survey.renew(endpoint, pods, 0)
    (note,) = [note for note in survey.notes if note.reason is Trouble.DUPLICATE_SERIES]
    assert note.detail.startswith("4 containers are there several times")
    endpoint.fails = lambda query: "label_replace(count" in query
    await survey.renew(endpoint, pods, VALID_S)
    (note,) = [note for note in survey.notes if note.reason is Trouble.DUPLICATE_SERIES]
    assert note.detail.startswith("whether containers are there several times is not known: the server query proc")


async def test_a_server_that_refuses_questions_about_gpus_is_asked_for_the_rest() -> None:
    endpoint, survey = Endpoint(sim()), Survey(ANY)
    endpoint.fails = lambda query: "DCGM" in query
    await survey.renew(endpoint, {SIM}, 0, gpus=True)
    assert survey.usable
    assert survey.interval_known
    (note,) = [note for note in survey.notes if note.reason is Trouble.SIGNAL_UNAVAILABLE]
    assert note.detail.startswith("of which pods GPUs are is not known: the server query processing would load")


async def test_how_often_it_is_scraped_is_asked_for_again_until_it_is_known() -> None:
    """The first sample of a first bridge tells of no interval; to take it for a minute would delay all for long."""
    endpoint, survey = Endpoint(sim()), Survey(ANY)
    endpoint.scraped_at = [0.0]
    await survey.renew(endpoint, {SIM}, 0)
    assert not survey.interval_known
    endpoint.scraped_at = [0.0, 20.0]  # of a busy machine
    await survey.renew(endpoint, {SIM}, 10)
    assert survey.scrape_interval_s == 20
    endpoint.scraped_at += [20.0 + 5 * more for more in range(1, 6)]
    await survey.renew(endpoint, {SIM}, 20)
    assert survey.scrape_interval_s == 5
    asked = len(endpoint.asked)
    await survey.renew(endpoint, {SIM}, 30)
    assert len(endpoint.asked) == asked


async def test_two_samples_that_are_minutes_apart_tell_how_often_it_is_scraped() -> None:
    endpoint, survey = Endpoint(sim()), Survey(ANY)
    endpoint.scraped_at = [0.0, 300.0]
    await survey.renew(endpoint, {SIM}, 0)
    asked = len(endpoint.asked)
    await survey.renew(endpoint, {SIM}, 10)
    assert (survey.scrape_interval_s, len(endpoint.asked)) == (300, asked)


async def test_until_pods_have_series_it_is_asked_again_and_nothing_is_known() -> None:
    endpoint, survey = Endpoint(one(namespace="sim", pod="other", cluster="us")), Survey(ANY)
    await survey.renew(endpoint, {SIM}, 0)
    assert not survey.usable
    assert survey.ambiguous is None
    assert len(endpoint.asked) == len(VARIANTS)
    await survey.renew(endpoint, {SIM}, 1)
    assert len(endpoint.asked) == 2 * len(VARIANTS)


async def test_without_pods_nothing_is_asked() -> None:
    endpoint = Endpoint()
    await Survey(ANY).renew(endpoint, set(), 0)
    assert endpoint.asked == []


@pytest.mark.parametrize(
    ("then", "ambiguous"),
    [
        ({"cluster": "eu"}, False),
        ({}, False),
        ({"cluster": "us"}, True),
        ({"cluster": "eu", "k8s_cluster": "x"}, False),
    ],
)
async def test_a_cluster_that_becomes_another_is_ambiguous(then: Mapping[str, str], ambiguous: bool) -> None:
    """Renamed, or no longer scraped while another one is: nobody can tell."""
    endpoint, survey = Endpoint(sim(cluster="eu"), sim()), Survey(ANY)
    await survey.renew(endpoint, {SIM}, 0)
    assert 'cluster=~"|eu"' in survey.layout.cluster
    assert 'k8s_cluster=""' in survey.layout.cluster
    endpoint.series = [sim(**then)]
    await survey.renew(endpoint, {SIM}, VALID_S)
    assert (survey.ambiguous is not None) == ambiguous
    assert 'cluster=~"|eu"' in survey.layout.cluster
    endpoint.series = [sim(cluster="eu")]
    await survey.renew(endpoint, {SIM}, 2 * VALID_S)
    assert survey.ambiguous is None


async def test_more_than_two_clusters_are_counted() -> None:
    endpoint, survey = Endpoint(*(sim(cluster=f"c{i}") for i in range(4))), Survey(ANY)
    await survey.renew(endpoint, {SIM}, 0)
    assert survey.ambiguous is not None
    assert survey.ambiguous.reason is Reason.CLUSTER_AMBIGUOUS
    assert 'cluster="c0" and cluster="c1" and 2 more' in survey.ambiguous.detail
    assert not survey.usable


async def test_what_is_too_much_to_compare_at_once_is_compared_in_halves() -> None:
    pods = {PodRef("sim", f"p{i}") for i in range(8)}
    endpoint, survey = Endpoint(*(one(namespace="sim", pod=pod.name) for pod in pods)), Survey(ANY)
    endpoint.fails = lambda query: " and on (" in query and "p7" in query and "p6" in query
    await survey.renew(endpoint, pods, 0)
    answered = [query for query in endpoint.asked if "avg_over_time" in query and not endpoint.fails(query)]
    assert all(sum(f"p{i}" in query for query in answered) == 1 for i in range(8))


async def test_what_cannot_be_compared_is_an_error() -> None:
    endpoint, survey = Endpoint(sim()), Survey(ANY)
    endpoint.fails = lambda query: " and on (" in query
    with pytest.raises(MetricsError):
        await survey.renew(endpoint, {SIM}, 0)
    assert survey.usable


def copy(pod: str, mib: float, **labels: str) -> Series:
    return one(mib * MIB, namespace="sim", pod=pod, container="app", **labels)


def shown(value: float) -> str:
    return f"{value / MIB:g}"


def test_the_source_to_choose_is_the_one_that_most_have() -> None:
    answer = [copy("a", 1, job="b"), copy("a", 2, job="c"), copy("d", 3, job="a"), copy("d", 4, job="c")]
    found = disputes_in(answer, ANY, shown)
    assert list(found) == [ContainerRef("sim", "a", "app"), ContainerRef("sim", "d", "app")]
    assert {gap.reason for gap in found.values()} == {Reason.AMBIGUOUS_SOURCE}
    assert all("like matchers: 'job=\"c\"'" in gap.detail for gap in found.values())
    assert 'job="c" says 2 and job="b" says 1' in found[ContainerRef("sim", "a", "app")].detail
    assert disputes_in(answer[::-1], ANY, shown) == found


def test_copies_of_one_job_are_duplicates() -> None:
    answer = [copy("a", 1, job="b", zone="x", node="n"), copy("a", 2, job="b", zone="y", node="n")]
    (gap,) = disputes_in(answer, ANY, shown).values()
    assert gap.reason is Reason.DUPLICATE_SERIES
    assert 'zone="x" says 1 and zone="y" says 2' in gap.detail
