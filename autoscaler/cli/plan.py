"""`plan`: what would be changed, and why. Never writes anything."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

import click

from autoscaler.cli.options import common, given

if TYPE_CHECKING:
    from autoscaler.cli.document import Document
    from autoscaler.cli.survey import Filter
    from autoscaler.cli.wiring import Parts, Wiring

CHANGES = 2


@click.command(
    epilog="Exit status: 0, or with --detailed-exitcode 2 if there are changes (proposals of policies that only "
    "recommend included); 1 if something is missing or wrong, even if the rest is printed."
)
@common
@click.option(
    "--output",
    "-o",
    type=click.Choice(["table", "json", "yaml", "markdown", "patch"]),
    default="table",
    show_default=True,
    help="What to print. patch: lines of kubectl for bash that run as they are.",
)
@click.option("--detailed-exitcode", is_flag=True, help="Exit with 2 if there are changes, 0 if there are none.")
@click.option("--server-dry-run", is_flag=True, help="Also send each change with dryRun=All and show the answer.")
@click.option("--pod", "pods", multiple=True, metavar="[NAMESPACE/]POD", help="Only these; wildcards. Repeatable.")
@click.option("--policy", "chosen", multiple=True, metavar="NAME", help="Only pods of this policy. Repeatable.")
@click.option("--schema", is_flag=True, help="Print the JSON Schema of the JSON document and exit.")
@click.pass_obj
def plan(
    wiring: Wiring | None,
    /,
    output: str,
    detailed_exitcode: bool,
    server_dry_run: bool,
    pods: tuple[str, ...],
    chosen: tuple[str, ...],
    schema: bool,
    **flags: Any,
) -> int:
    """Print what would be changed, and why.

    \b
    Examples:
      bridge-autoscaler plan --prometheus-url http://localhost:9090 --policies policies/
      bridge-autoscaler plan --policies policies/ --namespace sim --pod 'bridge-*' -o json
      bridge-autoscaler plan --policies policies/ --server-dry-run --detailed-exitcode
      bridge-autoscaler plan --policies policies/ -o patch | bash -x
    """
    from autoscaler.cli.output import print_document, print_errors
    from autoscaler.cli.survey import Filter

    if schema:
        return _print_schema()
    document = look(wiring, given(flags), Filter(pods, chosen), debug=flags["debug"], ask_server=server_dry_run)
    print_document(document, output)
    if print_errors(document):
        return 1
    return CHANGES if detailed_exitcode and any(item.changes for item in document.items) else 0


def look(
    wiring: Wiring | None, flags: dict[str, Any], chosen: Filter, *, debug: bool, ask_server: bool = False
) -> Document:
    """The document of one survey. Raises `click.ClickException` where the cluster or the policies cannot be read."""
    from autoscaler.adapters.telemetry import logs
    from autoscaler.cli.progress import MeasuringProgress
    from autoscaler.cli.survey import survey
    from autoscaler.cli.wiring import RealWiring, explained

    wiring = wiring or RealWiring()

    async def gather() -> Document:
        # never acting: whatever is performed here is sent with dryRun=All
        async with wiring.open(settings, watching=ask_server, acting=False) as parts:
            _check_names(chosen, parts)
            for warning in parts.warnings():
                click.echo(f"Warning: {warning}", err=True)
            found = await survey(parts, chosen, MeasuringProgress(sys.stderr), ask_server=ask_server)
            if (cost := parts.traffic.counts()).queries:
                click.echo(cost.words, err=True)
            return found.document()

    with explained():
        settings = wiring.settings(flags)
        logs.configure(settings.log_format, sys.stderr, debug=debug)
        return asyncio.run(gather())


def _check_names(chosen: Filter, parts: Parts) -> None:
    known = [policy.name for policy in parts.config().policies]
    if unknown := [name for name in chosen.policies if name not in known]:
        raise click.BadParameter(f"no such policy; there are: {', '.join(known)}", param_hint=f"--policy {unknown[0]}")


def _print_schema() -> int:
    import msgspec

    from autoscaler.cli.document import json_schema

    click.echo(msgspec.json.format(msgspec.json.encode(json_schema())).decode())
    return 0
