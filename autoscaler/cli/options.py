"""Flags that several commands share. Each has an environment twin, which autoscaler/settings.py reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

ENV_PREFIX = "BRIDGE_AUTOSCALER_"


def flag(*names: str, text: str, env: str = "", **more: Any) -> Callable[[Command], Command]:
    """An option whose help text names its environment twin."""
    env = ENV_PREFIX + (env or names[0].removeprefix("--").upper().replace("-", "_"))
    return click.option(*names, help=f"{text} [env: {env}]", **more)


_COMMON = (
    flag(
        "--kubeconfig",
        type=click.Path(path_type=Path),
        text="Kubeconfig; without one: in-cluster, KUBECONFIG, ~/.kube/config.",
    ),
    flag("--context", text="Context of the kubeconfig."),
    flag("--prometheus-url", metavar="URL", text="Where Prometheus, or what speaks its API, answers."),
    flag(
        "--policies",
        metavar="FILE|DIR",
        multiple=True,
        type=click.Path(path_type=Path),
        text="Policies: a file or a folder of YAML files. Repeatable.",
    ),
    flag(
        "--config",
        metavar="FILE",
        type=click.Path(path_type=Path),
        text="Settings file of kind BridgeConfig; see docs/settings.md.",
    ),
    flag(
        "--namespace",
        "-n",
        "namespaces",
        multiple=True,
        env="NAMESPACES",
        text="Look only at this namespace. Repeatable.",
    ),
    flag(
        "--budgets",
        metavar="KEY=N,…",
        text="How much may be going on at once, like maxInFlightPerNode=2; see docs/settings.md.",
    ),
    flag("--log-format", type=click.Choice(["json", "console"]), text="Log lines; JSON unless on a terminal."),
    click.option("--debug", is_flag=True, help="Show tracebacks of unexpected errors, and more log lines."),
)


def common(command: Command) -> Command:
    """Add the common flags to a command."""
    for option in reversed(_COMMON):
        command = option(command)
    return command


def given(flags: Mapping[str, Any]) -> dict[str, Any]:
    """The flags that were given: what was not must not hide the environment or the settings file."""
    return {name: value for name, value in flags.items() if name != "debug" and value is not None and value != ()}
