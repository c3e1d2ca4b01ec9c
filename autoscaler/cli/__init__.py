"""The commands. Each lives in a module of its own that is imported when it is called, so that start-up stays quick."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

import click

from autoscaler import __version__

if TYPE_CHECKING:
    from autoscaler.cli.wiring import Wiring

INTERRUPTED = 130  # 128 + SIGINT, as shells report it


class _Entry(NamedTuple):
    target: str
    summary: str


_COMMANDS = {
    "doctor": _Entry("autoscaler.cli.doctor:doctor", "Check the surroundings, and say what to mend. Writes nothing."),
    "plan": _Entry("autoscaler.cli.plan:plan", "Print what would be changed, and why. Never writes anything."),
    "explain": _Entry("autoscaler.cli.explain:explain", "Print the whole trail of one pod."),
    "run": _Entry("autoscaler.cli.run:run", "Run the controller."),
    "policy": _Entry("autoscaler.cli.policy:policy", "Validate policy files; print their JSON Schema."),
    "backtest": _Entry("autoscaler.cli.backtest:backtest", "Try recommenders and policies on recorded usage."),
    "leaderboard": _Entry("autoscaler.cli.leaderboard:leaderboard", "Rank all recommenders on all traces there are."),
    "scenario": _Entry("autoscaler.cli.scenario:scenario", "Make up one-second usage of a bridge, as a trace."),
    "demo": _Entry("autoscaler.cli.demo:demo", "Show the main job on an embedded cluster."),
}


class _LazyGroup(click.Group):
    """Imports a command when it is called, and none to list them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if (entry := _COMMANDS.get(cmd_name)) is None:
            return None
        module, _, name = entry.target.partition(":")
        command: click.Command = getattr(import_module(module), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in _COMMANDS.items()])


@click.group(
    cls=_LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit status: 0 done, 1 error, 2 changes (plan --detailed-exitcode), 3 backtest --fail-if, 130 interrupted.",
)
@click.version_option(__version__, prog_name="bridge-autoscaler", message="%(prog)s %(version)s")
def cli() -> None:
    """Keeps stateful simulation bridges on Kubernetes at the right CPU and memory size without restarting them.

    \b
    Examples:
      bridge-autoscaler doctor --prometheus-url http://localhost:9090 --policies policies/
      bridge-autoscaler plan --prometheus-url http://localhost:9090 --policies policies/
      bridge-autoscaler explain sim/bridge-0 --policies policies/
      bridge-autoscaler run --policies /etc/bridge-autoscaler/policies
      bridge-autoscaler policy validate policies/
    """


def main(args: Sequence[str], wiring: Wiring | None = None) -> int:
    """Run a command and give its exit status. `wiring` makes what the command needs from outside."""
    try:
        status = cli.main(list(args), prog_name="bridge-autoscaler", standalone_mode=False, obj=wiring)
    except click.ClickException as error:
        # not error.exit_code: click says 2 for a wrong call, which is what plan says for changes
        error.show()
        return 1
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except Exception as error:
        if "--debug" in args:
            raise
        text = " ".join(f"{type(error).__name__}: {error}".split())
        print(f"Error: unexpected {text}\nAdd --debug for the traceback.", file=sys.stderr)
        return 1
    return status if isinstance(status, int) else 0
