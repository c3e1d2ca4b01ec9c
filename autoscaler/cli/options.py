"""Flags that several commands share. Each has an environment twin, which autoscaler/settings.py reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

ENV_PREFIX = "BRIDGE_AUTOSCALER_"


def flag(*names: str, help: str, **more: Any) -> Callable[[Command], Command]:  # noqa: A002: click's own word
    """An option whose help names its environment twin."""
    env = ENV_PREFIX + names[0].removeprefix("--").upper().replace("-", "_")
    return click.option(*names, help=f"{help} [env: {env}]", **more)


_COMMON = (
    flag("--kubeconfig", type=click.Path(path_type=Path), help="Kubeconfig; without one: in-cluster, then ~/.kube."),
    flag("--context", help="Context of the kubeconfig."),
    flag("--prometheus-url", metavar="URL", help="Where Prometheus, or what speaks its API, answers."),
    flag(
        "--policies",
        metavar="FILE|DIR",
        multiple=True,
        type=click.Path(path_type=Path),
        help="Policies: a file or a folder of YAML files. Repeatable.",
    ),
    flag("--config", metavar="FILE", type=click.Path(path_type=Path), help="Settings file of kind BridgeConfig."),
    flag("--namespace", "-n", multiple=True, help="Look only at this namespace. Repeatable."),
    flag("--log-format", type=click.Choice(["json", "console"]), help="Log lines; JSON unless on a terminal."),
    click.option("--debug", is_flag=True, help="Show tracebacks of unexpected errors, and more log lines."),
)


def common(command: Command) -> Command:
    """Add the common flags to a command."""
    for option in reversed(_COMMON):
        command = option(command)
    return command


def given(flags: Mapping[str, Any]) -> dict[str, Any]:
    """The flags that were given: what was not must not hide the environment or the settings file."""
    return {name: value for name, value in flags.items() if value is not None and value != ()}
