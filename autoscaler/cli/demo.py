"""`bridge-autoscaler demo`: the main job on the embedded cluster, without Kubernetes or Prometheus."""

from __future__ import annotations

import asyncio
import signal
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import click
import numpy as np
from rich.console import Console

from autoscaler.cli import INTERRUPTED
from autoscaler.cli.demo_story import Story
from autoscaler.cli.demo_table import LiveTable
from autoscaler.core.history import ContainerRef
from autoscaler.core.model import Pod
from autoscaler.core.policy import Config
from autoscaler.loop import Loop
from autoscaler.plugins import discover
from autoscaler.policyfile import read_policy
from autoscaler.ports import Journal, Turn
from autoscaler.simulator.clock import VirtualClock
from autoscaler.simulator.cluster import SimulatedCluster
from autoscaler.simulator.demo import LASTS, POLICY_FILE, policy_document, world
from autoscaler.simulator.metrics import SimulatedMetrics
from autoscaler.strictyaml import load_documents

_INTERVAL = timedelta(seconds=60)
_NAMES = 13  # columns of the summary before its text


@click.command()
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, max=3600),
    default=30,
    show_default=True,
    help="How long it takes; 0: as fast as it can.",
)
def demo(seconds: float) -> int:
    """Show the main job on an embedded cluster.

    Three simulated nodes with their kubelets and nine bridges replay six hours of recorded usage of real workloads,
    scaled, in virtual time. The loop, the decisions, the recommender and the reading of policies are those of `run`.
    Shows a table on a terminal and a line for each event elsewhere; at the end a summary. Ctrl-C ends it early.
    """
    return asyncio.run(_demo(seconds))


async def _demo(seconds: float) -> int:
    catalog = discover()
    documents = load_documents(policy_document(), POLICY_FILE)
    config = Config(tuple(read_policy(document, catalog).policy for document in documents))
    cluster, story, console = world(), Story(), Console()
    hours = f"{LASTS.total_seconds() / 3600:g} hours"
    click.echo(f"Replaying {hours} of recorded usage on a simulated cluster. Ctrl-C ends it.", err=True)
    pace = LASTS.total_seconds() / seconds if seconds else None
    clock = VirtualClock(cluster, _INTERVAL, cluster.now + LASTS + _INTERVAL / 2, pace)
    with _journal(story, console, cluster) as journal, _interruptible(clock) as interrupted:
        await Loop(cluster, SimulatedMetrics(cluster), clock, journal, lambda: config).run()
    for line in story.summary():
        click.echo(_fitted(line, console))
    return INTERRUPTED if interrupted.is_set() else 0


def _fitted(line: str, console: Console) -> str:
    """A line of the summary, folded under its text on a terminal; elsewhere as it is."""
    if not console.is_terminal:
        return line
    indent = " " * _NAMES if line.startswith(" ") else ""
    return textwrap.fill(line, console.width, subsequent_indent=indent, break_on_hyphens=False)


@dataclass(frozen=True, slots=True)
class _Lines:
    """`ports.Journal` for anything but a terminal: a line for each event, as it happens."""

    story: Story

    def record(self, turn: Turn) -> None:
        for line in self.story.tell(turn):
            click.echo(line)


@contextmanager
def _journal(story: Story, console: Console, cluster: SimulatedCluster) -> Iterator[Journal]:
    if not console.is_terminal or console.is_dumb_terminal:
        yield _Lines(story)
        return

    def usage_of(pod: Pod) -> tuple[float, float]:
        return _usage(cluster, pod)

    with LiveTable(story, console, usage_of) as table:
        yield table


def _usage(cluster: SimulatedCluster, pod: Pod) -> tuple[float, float]:
    """Cores and bytes that a pod uses now."""
    now = np.asarray([int(cluster.now.timestamp())])
    records = (cluster.usage_of(ContainerRef(*pod.ref, container.name)) for container in pod.containers)
    used = [record.at(now) for record in records if record is not None]
    return float(np.nansum([cpu for cpu, _ in used])), float(np.nansum([memory for _, memory in used]))


@contextmanager
def _interruptible(clock: VirtualClock) -> Iterator[asyncio.Event]:
    """Ctrl-C and SIGTERM end the demo after the turn in hand; the event says that one of them came."""
    interrupted = asyncio.Event()

    def stop() -> None:
        interrupted.set()
        clock.stop()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    try:
        yield interrupted
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
