"""`doctor`: whether everything is there that the program needs, and what to do where it is not. Never writes."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import redirect_stdout
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from autoscaler.cli.options import common, given

if TYPE_CHECKING:
    from autoscaler.cli.wiring import Wiring
    from autoscaler.diagnosis.findings import Check, Finding
    from autoscaler.settings import Settings


@click.command(
    epilog="Exit status: 0 nothing is broken; 1 at least one ERROR: the program cannot run, or pods that a policy "
    "selects cannot be sized as it says. Warnings (it works, but for less than it could) count only with --strict; "
    "notes and what is unknown never do. 130 interrupted, after what was found so far."
)
@common
@click.option("--output", "-o", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Format.")
@click.option("--strict", is_flag=True, help="Exit with 1 for warnings as well.")
@click.option("--schema", is_flag=True, help="Print the JSON Schema of the JSON document and exit.")
@click.pass_obj
def doctor(wiring: Wiring | None, /, output: str, strict: bool, schema: bool, **flags: Any) -> int:
    """Check everything that the program needs, one line each, with the remedy where something is wrong.

    \b
    Looks at credentials, the API server, policies, permissions (rbac/), the pods
    that policies select, a resize of one of them to the size that it has
    (dryRun=All: nothing is stored), nodes, Prometheus, clocks, and each series
    that is read. Each check takes 10 s at most. Needs no permission but those
    that it looks at: what is missing is a finding.

    \b
    Examples:
      bridge-autoscaler doctor --prometheus-url http://localhost:9090 --policies policies/
      bridge-autoscaler doctor --policies policies/ -o json | jq '.findings[] | select(.status == "Error")'
    """
    from autoscaler.adapters.telemetry import logs
    from autoscaler.cli.wiring import RealWiring, explained

    if schema:
        return _print_schema()
    with explained():
        settings = (wiring or RealWiring()).settings(given(flags))
    logs.configure(settings.log_format, sys.stderr, debug=flags["debug"])
    return _examine(settings, output, strict=strict)


def _examine(settings: Settings, output: str, *, strict: bool) -> int:
    from autoscaler.cli import INTERRUPTED
    from autoscaler.cli.checks_kubernetes import KubernetesChecks
    from autoscaler.cli.checks_prometheus import PrometheusChecks
    from autoscaler.cli.checkup import Checkup, Known
    from autoscaler.cli.findings import document, line, render_json, summary
    from autoscaler.cli.output import terminal
    from autoscaler.diagnosis.findings import Status, skipped

    out, began_at, found, interrupted = sys.stdout, datetime.now(UTC), list["Finding"](), False
    width, is_terminal = terminal()
    color = is_terminal and not os.environ.get("NO_COLOR")
    known = Known(settings)
    steps = (*KubernetesChecks(known).steps(), *PrometheusChecks(known).steps())
    checkup = Checkup(known, steps, _say_slow)

    def take(finding: Finding) -> None:
        found.append(finding)
        if output == "text":
            click.echo(line(finding, width=width, color=color), file=out, color=color)

    async def examine() -> None:
        async for finding in checkup.findings():
            take(finding)

    try:
        with redirect_stdout(sys.stderr):  # plug-ins may print
            asyncio.run(examine())
    except KeyboardInterrupt:
        interrupted = True
        for check in checkup.left:
            take(skipped(check, "it was interrupted"))
    if output == "json":
        click.echo(render_json(document(found, began_at, interrupted=interrupted)), nl=False)
    click.echo(summary(found), err=output == "json")
    if (cost := known.traffic.counts()).queries:
        click.echo(cost.words, err=True)
    if interrupted:
        return INTERRUPTED
    bad = {Status.ERROR, Status.WARNING} if strict else {Status.ERROR}
    return int(any(finding.status in bad for finding in found))


def _say_slow(check: Check) -> None:
    click.echo(f"waiting for {check}, 10 s at most …", err=True)


def _print_schema() -> int:
    import msgspec

    from autoscaler.cli.findings import json_schema

    click.echo(msgspec.json.format(msgspec.json.encode(json_schema())).decode())
    return 0
