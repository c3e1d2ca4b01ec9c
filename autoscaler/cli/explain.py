"""`explain`: the whole trail of one pod."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from autoscaler.cli.options import common, given

if TYPE_CHECKING:
    from autoscaler.cli.wiring import Wiring


@click.command(epilog="Exit status: 0; 1 if the pod is not selected by any policy, or something is missing or wrong.")
@common
@click.option(
    "--output", "-o", type=click.Choice(["text", "json", "yaml"]), default="text", show_default=True, help="Format."
)
@click.argument("pod", metavar="NAMESPACE/POD")
@click.pass_obj
def explain(wiring: Wiring | None, /, output: str, pod: str, **flags: Any) -> int:
    """Print everything that leads to the decision about one pod.

    \b
    Examples:
      bridge-autoscaler explain sim/bridge-0 --policies policies/
      bridge-autoscaler explain sim/bridge-0 --policies policies/ -o json
    """
    from autoscaler.cli.output import print_document, print_errors, terminal
    from autoscaler.cli.plan import look
    from autoscaler.cli.rendering.table import render_explanation
    from autoscaler.cli.survey import Filter

    if not re.fullmatch(r"[a-z0-9-]+/[a-z0-9.-]+", pod):
        raise click.BadParameter(f"{pod!r}: write NAMESPACE/POD", param_hint="NAMESPACE/POD")
    document = look(wiring, given(flags), Filter(pods=(pod,)), debug=flags["debug"])
    if not document.items:
        raise click.ClickException(
            f"{pod}: there is no such pod among those that the policies select; `plan` lists them"
        )
    if output == "text":
        width, color = terminal()
        click.echo(render_explanation(document.items[0], width=width, color=color), nl=False, color=color)
    else:
        print_document(document, output)
    return 1 if print_errors(document) else 0
