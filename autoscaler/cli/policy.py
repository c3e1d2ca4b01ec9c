"""`policy validate` and `policy schema`: what editors and CI need, without a cluster."""

from __future__ import annotations

import json
import sys
from contextlib import redirect_stdout
from pathlib import Path

import click

from autoscaler.plugins import Catalog, discover
from autoscaler.policyschema import policy_schema
from autoscaler.policystore import read_policies
from autoscaler.strictyaml import Refused


@click.group()
def policy() -> None:
    """Check policy files, and print their schema."""


@policy.command(short_help="Check files and folders, as `run` would load them.")
@click.argument("paths", metavar="FILE|DIR…", nargs=-1, required=True, type=click.Path(path_type=Path))
def validate(paths: tuple[Path, ...]) -> None:
    """Check policy files and folders, all together as `run` would load them.

    Exit status 0: all are valid. 1: at least one is not. Every fault is a line on stderr: file, line, key, remedy.
    """
    try:
        with redirect_stdout(sys.stderr):  # plug-ins may print
            catalog = discover()
            _report_plugins(catalog)
            found = read_policies(paths, catalog)
    except Refused as refused:
        for fault in refused.faults:
            click.echo(f"error: {fault}", err=True)
        raise SystemExit(1) from None
    for warning in found.warnings:
        click.echo(f"warning: {warning}", err=True)
    for file in found.files:
        names = [f"{each.name} ({each.mode})" for each in found.policies if each.source.rpartition(":")[0] == file]
        click.echo(f"{file}: valid: {', '.join(names)}", err=True)


@policy.command(short_help="Print the JSON Schema of a policy.")
def schema() -> None:
    """Print the JSON Schema of a policy, with the parameters of every installed recommender."""
    with redirect_stdout(sys.stderr):  # plug-ins may print, and stdout carries the document only
        catalog = discover()
        _report_plugins(catalog)
        document = policy_schema(catalog)
    click.echo(json.dumps(document, indent=2))


def _report_plugins(catalog: Catalog) -> None:
    for problem in catalog.problems:
        click.echo(f"warning: {problem.source}: {problem.detail}", err=True)
