"""Policies for tests: a document that is valid, and what reading one says."""

from __future__ import annotations

from textwrap import dedent, indent

from autoscaler.plugins import Catalog
from autoscaler.policyfile import Loaded, read_policy
from autoscaler.recommenders.bridge import Bridge
from autoscaler.recommenders.percentile import Percentile
from autoscaler.strictyaml import Refused, load_documents

CATALOG = Catalog({"bridge": Bridge, "percentile": Percentile}, {})


def policy_text(spec: str = "selector: {namespaces: [sim]}", name: str = "bridges") -> str:
    """A policy whose spec begins in line 5."""
    head = f"apiVersion: bridge-autoscaler.dev/v1alpha1\nkind: BridgePolicy\nmetadata: {{name: {name}}}\nspec:\n"
    return head + indent(dedent(spec).strip(), "  ") + "\n"


def read(spec: str, catalog: Catalog = CATALOG) -> Loaded:
    (document,) = load_documents(policy_text(spec).encode(), "p.yaml")
    return read_policy(document, catalog)


def faults(spec: str, catalog: Catalog = CATALOG) -> list[str]:
    """What is said about a spec; nothing if it is accepted."""
    try:
        read(spec, catalog)
    except Refused as refused:
        return [str(fault) for fault in refused.faults]
    return []
