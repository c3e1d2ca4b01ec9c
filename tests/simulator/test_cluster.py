"""What the simulated kubelet and API server answer, by value, in virtual time."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from autoscaler.core.actions import ContainerResize, OutcomeKind, Resize
from autoscaler.core.model import Ask, ContainerKind, Pod, PodRef, QoSClass, Resource, Resources
from autoscaler.core.resize import IN_PROGRESS, PENDING, Phase, phase_of
from tests.simulator.builders import START, after, ask, both, cluster, container, demand, get, node, pod, sizes


async def test_an_accepted_resize_is_set_aside_first_and_in_force_half_a_second_later() -> None:
    sim = cluster(pod("a", container(both("500m", "256Mi"))))

    assert ask(sim, "a", both("1", "512Mi"), manager="bridge-autoscaler").kind is OutcomeKind.ACCEPTED
    asked = await get(sim, "a")
    after(sim, 0.2)
    accepted = await get(sim, "a")
    after(sim, 0.5)
    applied = await get(sim, "a")

    assert (asked.generation, asked.observed_generation, phase_of(asked).phase) == (2, 1, Phase.PROPOSED)
    assert asked.asks == (Ask("bridge-autoscaler", START),)
    assert phase_of(accepted).phase is Phase.IN_PROGRESS
    assert accepted.containers[0].allocated == both("1", "512Mi").requests
    assert accepted.containers[0].actual == both("500m", "256Mi")
    assert phase_of(applied).phase is Phase.SETTLED
    assert applied.containers[0].actual == both("1", "512Mi")
    assert (applied.containers[0].restart_count, applied.uid, applied.conditions) == (0, "a#1", ())
    assert asked.resource_version != accepted.resource_version != applied.resource_version


async def test_a_snapshot_never_changes_after_it_was_handed_out() -> None:
    sim = cluster(pod("a", container(both("500m", "256Mi"))))
    before = await sim.observe()
    first = before.pods[PodRef("sim", "a")]

    ask(sim, "a", both("1", "512Mi"))
    after(sim, 5)

    assert before.pods == {PodRef("sim", "a"): first}
    assert before.taken_at == START
    assert first.generation == 1


async def test_asking_for_the_same_size_is_no_ask() -> None:
    sim = cluster(pod("a", container(both("500m", "256Mi"))))
    before = await get(sim, "a")

    assert ask(sim, "a", both("500m", None)).kind is OutcomeKind.ACCEPTED

    assert await get(sim, "a") == before


async def test_deferred_in_the_kubelets_words_until_a_neighbour_leaves() -> None:
    sim = cluster(pod("a", container(both("1", "256Mi"))), pod("b", container(both("2500m", "256Mi"))))
    ask(sim, "a", both("2", None))
    after(sim, 1)
    deferred = await get(sim, "a")
    after(sim, 600)
    still = await get(sim, "a")
    sim.delete_pod(PodRef("sim", "b"))
    after(sim, 4)
    applied = await get(sim, "a")

    assert phase_of(deferred).phase is Phase.DEFERRED
    assert phase_of(deferred).detail == (
        "Node didn't have enough resource: cpu, requested: 2000, used: 2500, capacity: 4000"
    )
    assert deferred.containers[0].allocated == both("1", "256Mi").requests
    assert still == deferred
    assert (phase_of(applied).phase, applied.containers[0].actual) == (Phase.SETTLED, both("2", "256Mi"))


async def test_deferred_until_a_neighbour_shrinks() -> None:
    sim = cluster(pod("a", container(both("1", "256Mi"))), pod("b", container(both("2500m", "256Mi"))))
    ask(sim, "a", both("2", None))
    after(sim, 60)
    ask(sim, "b", both("1", None))
    after(sim, 2)

    assert phase_of(await get(sim, "a")).phase is Phase.SETTLED


async def test_a_deferred_resize_is_tried_again_by_timer_when_nothing_says_that_room_appeared() -> None:
    sim = cluster(pod("a", container(both("1", "256Mi"))), pod("b", container(both("2500m", "256Mi"))))
    ask(sim, "a", both("2", None))
    after(sim, 31)
    sim.add_node(node(cpu="8"))
    after(sim, 170)
    waiting = await get(sim, "a")
    after(sim, 20)

    assert phase_of(waiting).phase is Phase.DEFERRED
    assert phase_of(await get(sim, "a")).phase is Phase.SETTLED


async def test_deferred_resizes_get_room_in_the_kubelets_order() -> None:
    sim = cluster(
        pod("burstable", container(sizes("1", "256Mi", "3", "512Mi"))),
        pod("guaranteed", container(both("1", "256Mi"))),
        pod("neighbour", container(both("2", "256Mi"))),
    )
    ask(sim, "burstable", sizes("2", None))
    after(sim, 10)
    ask(sim, "guaranteed", both("2", None))
    after(sim, 10)
    ask(sim, "neighbour", both("1", None))
    after(sim, 5)

    assert phase_of(await get(sim, "guaranteed")).phase is Phase.SETTLED
    assert phase_of(await get(sim, "burstable")).phase is Phase.DEFERRED


async def test_a_deferred_resize_that_is_changed_keeps_its_place() -> None:
    sim = cluster(*(pod(name, container(both("1", "256Mi"))) for name in ("first", "second", "neighbour")))
    ask(sim, "neighbour", both("2", None))
    after(sim, 5)
    for name, cpu in (("first", "3"), ("second", "1500m"), ("first", "1500m")):
        ask(sim, name, both(cpu, None))
        after(sim, 5)
    ask(sim, "neighbour", both("1500m", None))
    after(sim, 5)

    assert phase_of(await get(sim, "first")).phase is Phase.SETTLED
    assert phase_of(await get(sim, "second")).phase is Phase.DEFERRED


async def test_nothing_is_said_of_the_size_of_a_container_that_has_not_run_yet() -> None:
    sim = cluster(pod("a", container(both("1", "256Mi")), workload="StatefulSet/a"))
    sim.delete_pod(PodRef("sim", "a"))
    after(sim, 3)
    ask(sim, "a", both("500m", None))
    after(sim, 0.5)
    starting = (await get(sim, "a")).containers[0]
    after(sim, 10)

    assert (starting.running, starting.allocated, starting.actual) == (False, None, None)
    assert (await get(sim, "a")).containers[0].actual == both("500m", "256Mi")


async def test_nothing_comes_of_an_ask_for_a_pod_that_has_finished() -> None:
    sim = cluster(pod("a", container(both("1", "256Mi"))))
    sim.state.put(replace(await get(sim, "a"), phase="Succeeded"))
    ask(sim, "a", both("500m", None))
    after(sim, 60)

    done = await get(sim, "a")
    assert (done.generation, done.observed_generation, done.conditions) == (2, 1, ())
    assert done.containers[0].allocated == both("1", "256Mi").requests


async def test_giving_up_a_deferred_ask_clears_the_condition() -> None:
    sim = cluster(pod("a", container(both("1", "256Mi"))), pod("b", container(both("2500m", "256Mi"))))
    ask(sim, "a", both("2", None))
    after(sim, 1)
    ask(sim, "a", both("1", None))
    after(sim, 1)
    reverted = await get(sim, "a")

    assert (phase_of(reverted).phase, reverted.generation, reverted.conditions) == (Phase.SETTLED, 3, ())


async def test_an_older_grant_goes_on_while_the_newer_ask_is_deferred() -> None:
    sim = cluster(pod("a", container(both("1", "256Mi"))), pod("b", container(both("1500m", "256Mi"))))
    ask(sim, "a", both("2", None))
    after(sim, 0.3)
    ask(sim, "a", both("3", None))
    after(sim, 0.2)
    between = await get(sim, "a")
    after(sim, 1)
    settled = await get(sim, "a")

    assert between.condition(PENDING) is not None
    assert (progress := between.condition(IN_PROGRESS)) is not None
    assert (progress.observed_generation, between.generation) == (2, 3)
    assert settled.containers[0].actual == both("2", "256Mi")
    assert phase_of(settled).phase is Phase.DEFERRED


async def test_of_asks_in_quick_succession_the_last_wins_and_takes_its_own_time() -> None:
    sim = cluster(pod("a", container(both("1", "256Mi"))))
    for cpu in ("1500m", "2", "2500m"):
        ask(sim, "a", both(cpu, None))
        after(sim, 0.3)
    early = await get(sim, "a")
    after(sim, 0.4)
    last = await get(sim, "a")

    # the first grant's turn has come by now, but a later one has replaced it
    assert early.containers[0].actual == both("1", "256Mi")
    assert (last.generation, last.containers[0].actual) == (4, both("2500m", "256Mi"))
    assert phase_of(last).phase is Phase.SETTLED


async def test_more_than_the_node_can_ever_give_is_refused_by_the_api_server() -> None:
    sim = cluster(pod("a", container(both("1", "256Mi"))))
    before = await get(sim, "a")

    outcome = ask(sim, "a", both("6100m", None))

    assert (outcome.kind, outcome.cause) == (OutcomeKind.REFUSED, "NodeCapacity")
    assert outcome.detail == "node didn't have enough allocatable resources: cpu, requested: 6100, allocatable: 4000"
    assert await get(sim, "a") == before


async def test_static_cpu_manager_makes_a_guaranteed_cpu_change_infeasible_and_nothing_else() -> None:
    sim = cluster(
        pod("guaranteed", container(both("1", "256Mi"))),
        pod("burstable", container(sizes("500m", "256Mi", "1", "1Gi"))),
    )
    sim.add_node(node(), static_cpu=True)
    ask(sim, "guaranteed", both("1500m", None))
    ask(sim, "burstable", sizes("800m", None))
    after(sim, 400)
    infeasible = await get(sim, "guaranteed")
    ask(sim, "guaranteed", both("1", "512Mi"))
    after(sim, 1)

    assert phase_of(infeasible).phase is Phase.INFEASIBLE
    assert phase_of(infeasible).detail == (
        'Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"'
    )
    assert phase_of(await get(sim, "burstable")).phase is Phase.SETTLED
    assert (await get(sim, "guaranteed")).containers[0].actual == both("1", "512Mi")


async def test_with_swap_no_memory_request_changes_and_everything_else_does() -> None:
    sim = cluster(pod("a", container(sizes("1", "1Gi"))))
    sim.add_node(node(), swap=True)
    ask(sim, "a", sizes("1", "2Gi"))
    after(sim, 1)
    refused = await get(sim, "a")
    ask(sim, "a", sizes("2", "1Gi"))
    after(sim, 1)
    assert phase_of(refused).phase is Phase.INFEASIBLE
    assert "swap" in phase_of(refused).detail
    assert phase_of(await get(sim, "a")).phase is Phase.SETTLED


async def test_a_silent_kubelet_answers_when_it_is_back() -> None:
    sim = cluster(pod("a", container(both("500m", "256Mi"))))
    sim.silence("n1", START + timedelta(seconds=60))
    ask(sim, "a", both("1", "512Mi"))
    after(sim, 59)
    assert phase_of(await get(sim, "a")).phase is Phase.PROPOSED
    after(sim, 2)
    assert phase_of(await get(sim, "a")).phase is Phase.SETTLED


async def test_what_is_granted_is_never_pending_however_small_the_node_has_become() -> None:
    sim = cluster(pod("a", container(both("2", "256Mi"))), pod("b", container(both("1", "256Mi"))))
    sim.add_node(node(cpu="2500m"))
    ask(sim, "a", both("2200m", None))
    after(sim, 1)
    assert phase_of(await get(sim, "a")).phase is Phase.DEFERRED
    ask(sim, "a", both("2", None))
    after(sim, 1)
    assert phase_of(await get(sim, "a")).phase is Phase.SETTLED


async def test_memory_below_usage_is_an_error_that_ends_when_usage_falls() -> None:
    usage = demand(memory=["300Mi"] * 2 + ["100Mi"] * 8)
    sim = cluster(pod("a", container(both("500m", "512Mi"))), usage=usage)
    ask(sim, "a", both("400m", "256Mi"))
    after(sim, 12)
    trying = await get(sim, "a")
    after(sim, 2)
    failed = await get(sim, "a")
    after(sim, 130)
    applied = await get(sim, "a")

    assert phase_of(trying).phase is Phase.IN_PROGRESS
    assert phase_of(failed).phase is Phase.ERROR
    assert phase_of(failed).detail == (
        "cannot decrease memory limits: [attempting to set pod memory limit (268435456) below current usage"
        ' (314572800), attempting to set container "app" memory limit (268435456) below current usage (314572800)]'
    )
    assert failed.containers[0].allocated == both("400m", "256Mi").requests
    assert failed.containers[0].actual == both("500m", "512Mi")
    assert phase_of(applied).phase is Phase.SETTLED
    assert applied.containers[0].actual == both("400m", "256Mi")


async def test_restart_by_resize_policy_only_for_its_resource() -> None:
    restarting = container(both("500m", "256Mi"), restart_on=frozenset({Resource.MEMORY}))
    sim = cluster(pod("a", restarting))
    ask(sim, "a", both("1", None))
    after(sim, 5)
    by_cpu = (await get(sim, "a")).containers[0]
    ask(sim, "a", both(None, "512Mi"))
    after(sim, 1)
    stopped = (await get(sim, "a")).containers[0]
    after(sim, 5)
    by_memory = (await get(sim, "a")).containers[0]

    assert (by_cpu.restart_count, by_cpu.actual) == (0, both("1", "256Mi"))
    assert (stopped.running, stopped.restart_count) == (False, 0)
    assert (by_memory.running, by_memory.restart_count, by_memory.actual) == (True, 1, both("1", "512Mi"))
    assert by_memory.last_terminated is not None
    assert by_memory.last_terminated.reason == "Completed"


async def test_memory_above_the_limit_in_force_is_an_oom_kill_and_a_restart() -> None:
    sim = cluster(pod("a", container(both("500m", "256Mi"))), usage=demand(memory=["200Mi", "300Mi", "200Mi"]))
    after(sim, 59)
    before = (await get(sim, "a")).containers[0]
    changed = after(sim, 2)
    killed = (await get(sim, "a")).containers[0]
    after(sim, 3)
    back = (await get(sim, "a")).containers[0]

    assert (before.restart_count, before.last_terminated) == (0, None)
    assert changed == {PodRef("sim", "a")}
    assert not killed.running
    assert killed.last_terminated is not None
    assert (killed.last_terminated.reason, killed.last_terminated.exit_code) == ("OOMKilled", 137)
    assert killed.last_terminated.finished_at == START + timedelta(minutes=1)
    assert (back.running, back.restart_count, back.actual) == (True, 1, both("500m", "256Mi"))


async def test_raising_the_limit_before_usage_rises_prevents_the_kill() -> None:
    sim = cluster(pod("a", container(both("500m", "256Mi"))), usage=demand(memory=["200Mi", "300Mi", "200Mi"]))
    after(sim, 30)
    ask(sim, "a", both(None, "512Mi"))
    after(sim, 100)

    assert (await get(sim, "a")).containers[0].restart_count == 0


async def test_a_deleted_pod_of_a_statefulset_comes_back_from_its_template_with_another_uid() -> None:
    sim = cluster(
        pod("a", container(both("500m", "256Mi")), workload="StatefulSet/a"), pod("bare", container(both("1", "1Gi")))
    )
    ask(sim, "a", both("1", "512Mi"))
    after(sim, 5)
    sim.delete_pod(PodRef("sim", "a"))
    sim.delete_pod(PodRef("sim", "bare"))
    deleting = await get(sim, "a")
    after(sim, 3)
    starting = await get(sim, "a")
    after(sim, 10)
    again = await get(sim, "a")

    assert deleting.deleting
    assert (starting.uid, starting.containers[0].running) == ("a#2", False)
    assert (again.phase, again.node, again.containers[0].actual) == ("Running", "n1", both("500m", "256Mi"))
    assert (again.generation, again.asks) == (1, ())
    assert (await sim.observe()).pods.keys() == {PodRef("sim", "a")}


async def test_a_replacement_without_room_stays_pending_until_there_is_some() -> None:
    sim = cluster(
        pod("a", container(both("500m", "256Mi")), workload="StatefulSet/a"), pod("b", container(both("3", "1Gi")))
    )
    sim.delete_pod(PodRef("sim", "a"))
    ask(sim, "b", both("4", None))  # reserved from the ask on, though it is deferred
    after(sim, 60)
    pending = await get(sim, "a")
    sim.add_node(node("n2"))
    after(sim, 20)
    placed = await get(sim, "a")

    assert (pending.phase, pending.node) == ("Pending", None)
    assert (placed.phase, placed.node) == ("Running", "n2")


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (
            sizes("3", None),
            'spec.containers[0].resources.requests: Invalid value: "3": must be less than or equal to cpu limit of 1',
        ),
        (
            sizes("500m", None),
            'spec: Invalid value: "Guaranteed": Pod QOS Class may not change as a result of resizing',
        ),
        (
            sizes("3", "1Gi"),
            '[spec.containers[0].resources.requests: Invalid value: "3": must be less than or equal to cpu limit of 1,'
            ' spec.containers[0].resources.requests: Invalid value: "1Gi": must be less than or equal to memory limit'
            " of 256Mi]",
        ),
    ],
)
async def test_validation_refuses_what_the_api_server_refuses(target: Resources, message: str) -> None:
    sim = cluster(pod("a", container(both("1", "256Mi"))))
    before = await get(sim, "a")

    outcome = ask(sim, "a", target)

    assert (outcome.kind, outcome.detail) == (OutcomeKind.REFUSED, message)
    assert await get(sim, "a") == before


async def test_validation_counts_init_containers_by_themselves() -> None:
    sidecar = container(sizes("1", "256Mi", "2", None), "proxy", ContainerKind.SIDECAR)
    sim = cluster(pod("a", sidecar, container(sizes("1", "256Mi", "2", None))))

    for name, field in (("proxy", "initContainers[0]"), ("app", "containers[0]")):
        assert ask(sim, "a", sizes("3", None), name).detail.startswith(f"spec.{field}.resources.requests:")


async def test_static_pods_and_other_systems_than_linux_are_refused() -> None:
    static = replace(pod("static", container(both("1", "256Mi"))), static=True)
    windows = replace(node("w"), os="windows")
    sim = cluster(static, pod("b", container(both("1", "256Mi")), node="w"), nodes=(node(), windows))

    assert ask(sim, "static", both("2", None)).detail == "spec: Forbidden: static pods cannot be resized"
    assert ask(sim, "b", both("2", None)).cause == "UnsupportedPlatform"


async def test_best_effort_pods_gain_nothing_and_unknown_containers_are_refused() -> None:
    sim = cluster(pod("a", container(sizes(None, None))))

    assert (await get(sim, "a")).qos_class is QoSClass.BEST_EFFORT
    assert ask(sim, "a", sizes("1", None)).kind is OutcomeKind.REFUSED
    assert ask(sim, "a", both("1", "1Gi"), container="other").kind is OutcomeKind.REFUSED


def _action(of: Pod, generation: int | None = None, uid: str | None = None) -> Resize:
    change = ContainerResize("app", ContainerKind.CONTAINER, both("1", None))
    return Resize(of.ref, uid or of.uid, generation or of.generation, (change,))


async def test_an_action_for_another_pod_or_another_spec_is_not_done() -> None:
    sim = cluster(pod("a", container(both("500m", "256Mi"))))
    seen = await get(sim, "a")
    gone = Resize(PodRef("sim", "nobody"), "x", 1, ())

    assert (await sim.perform(_action(seen, uid="a#0"))).kind is OutcomeKind.GONE
    assert (await sim.perform(gone)).kind is OutcomeKind.GONE
    assert (await sim.perform(_action(seen))).kind is OutcomeKind.ACCEPTED
    assert (await sim.perform(_action(seen))).kind is OutcomeKind.SUPERSEDED
    assert [asked.manager for asked in (await get(sim, "a")).asks] == ["bridge-autoscaler"]
