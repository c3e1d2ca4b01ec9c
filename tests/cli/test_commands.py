"""What commands print where, and their exit status."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from autoscaler import __version__, cli
from autoscaler.adapters.kubernetes.errors import PermissionMissing
from autoscaler.core.actions import Outcome, OutcomeKind
from autoscaler.core.model import Problem
from autoscaler.core.problems import NOTES, Trouble
from autoscaler.core.reasons import Reason
from autoscaler.core.units import parse_cpu
from autoscaler.settings import Settings
from tests.cli.conftest import write_policy
from tests.cli.fakes import FakeCluster, FakeMetrics, FakeWiring
from tests.cli.plans import POD

Out = pytest.CaptureFixture[str]
OTHER = replace(POD, name="bridge-1", uid="22222222-bbbb")


def plan(wiring: FakeWiring, policies: Path, *arguments: str) -> int:
    return cli.main(["plan", f"--policies={policies}", *arguments], wiring)


def printed(capsys: Out) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_plan_prints_the_document_alone_on_stdout(policies: Path, capsys: Out) -> None:
    wiring = FakeWiring()
    assert plan(wiring, policies, "-o", "json") == 0
    out = capsys.readouterr()
    (item,) = json.loads(out.out)["items"]
    assert (item["action"], item["reason"], item["mode"]) == ("Resize", "Rebalance", "Resize")
    request = item["containers"][1]["cpu"]["request"]
    assert (request["spec"], request["actual"]) == ("1", "1")
    assert 1800 < parse_cpu(request["proposed"]) <= 1850
    assert out.err == "1 to resize\n"
    assert wiring.cluster.performed == []
    assert wiring.opened == [{"watching": False, "acting": False}]


def test_what_a_plugin_prints_goes_to_stderr(policies: Path, capsys: Out) -> None:
    assert plan(FakeWiring(FakeCluster(observing=lambda: print("noise"))), policies, "-o", "json") == 0
    out = capsys.readouterr()
    assert json.loads(out.out)["items"]
    assert "noise\n" in out.err


@pytest.mark.parametrize("output", ["table", "json", "yaml", "markdown", "patch"])
def test_every_format_names_the_pod(policies: Path, capsys: Out, output: str) -> None:
    assert plan(FakeWiring(), policies, "-o", output) == 0
    assert "bridge-0" in capsys.readouterr().out


def test_the_table_ends_with_the_summary_and_leaves_stderr_alone(policies: Path, capsys: Out) -> None:
    assert plan(FakeWiring(), policies) == 0
    out = capsys.readouterr()
    assert out.out.endswith("\n1 to resize\n")
    assert out.err == ""


def test_queries_that_do_not_say_of_which_cluster_are_named_where_there_are_several(
    policies: Path, capsys: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_policy(policies)
    drain = """fallback: {drain: {query: 'sessions{pod=~"$pod"}'}}"""
    signals = """signals: {a: {query: 'a{pod=~"$pod"}'}, b: {query: 'b{pod=~"$pod",$cluster}'}}"""
    path.write_text(path.read_text().replace("14d}", f"14d, {signals}}}\n  {drain}"))
    assert plan(FakeWiring(), policies) == 0
    before = capsys.readouterr().err
    monkeypatch.setenv("BRIDGE_AUTOSCALER_PROMETHEUS_LAYOUT_CLUSTER_MATCHER", 'cluster="eu"')
    assert plan(FakeWiring(), policies) == 0
    more = [line for line in capsys.readouterr().err.splitlines() if line not in before.splitlines()]
    assert [line.partition(": it does not say of which cluster")[0] for line in more] == [
        f"Warning: {path}:1: spec.metrics.signals.a.query",
        f"Warning: {path}:1: spec.fallback.drain.query",
    ]


@pytest.mark.parametrize("verb", [("plan",), ("explain", "sim/bridge-0")])
def test_what_prometheus_was_asked_is_said_on_stderr(policies: Path, capsys: Out, verb: tuple[str, ...]) -> None:
    wiring = FakeWiring()
    for _ in range(1200):
        wiring.traffic.sent()
    cli.main([*verb, f"--policies={policies}"], wiring)
    out = capsys.readouterr()
    assert out.err == "Prometheus: 1,200 queries, 0 samples in the answers\n"
    assert "1,200" not in out.out


@pytest.mark.parametrize(
    ("mode", "cpu", "status"), [("Resize", 1.5, 2), ("Recommend", 1.5, 2), ("Off", 1.5, 0)], ids=str
)
def test_detailed_exitcode(tmp_path: Path, mode: str, cpu: float, status: int) -> None:
    path = write_policy(tmp_path, mode=mode)
    wiring = FakeWiring(metrics=FakeMetrics(cpu=cpu))
    assert plan(wiring, path, "--detailed-exitcode") == status
    assert plan(FakeWiring(), path) == 0


def test_server_dry_run_shows_the_answer_also_to_what_is_only_recommended(tmp_path: Path, capsys: Out) -> None:
    refused = Outcome(OutcomeKind.REFUSED, "exceeded quota", "ResourceQuota")
    wiring = FakeWiring(cluster=FakeCluster(outcome=refused))
    assert plan(wiring, write_policy(tmp_path, mode="Recommend"), "--server-dry-run", "-o", "json") == 0
    (item,) = printed(capsys)["items"]
    assert (item["action"], item["reason"]) == ("None", "RecommendOnly")
    assert item["server"] == {"outcome": "Refused", "detail": "exceeded quota", "cause": "ResourceQuota"}
    (action,) = wiring.cluster.performed
    proposed = item["containers"][1]["cpu"]["request"]["proposed"]
    assert action.containers[-1].change.requests.cpu == parse_cpu(proposed)
    assert wiring.opened == [{"watching": True, "acting": False}]


def test_filters(policies: Path, capsys: Out) -> None:
    write_policy(policies, "elsewhere", namespace="elsewhere")
    elsewhere = replace(POD, namespace="elsewhere", uid="33333333-cccc")

    def pods(*arguments: str) -> list[str]:
        wiring = FakeWiring(cluster=FakeCluster((POD, OTHER, elsewhere)))
        assert plan(wiring, policies, "-o", "json", *arguments) == 0
        items = printed(capsys)["items"]
        found = [f"{item['namespace']}/{item['pod']}" for item in items]
        assert {str(ref.pod_ref) for ref in wiring.metrics.wanted} == set(found)
        return found

    assert pods() == ["elsewhere/bridge-0", "sim/bridge-0", "sim/bridge-1"]
    assert pods("--pod", "bridge-0") == ["elsewhere/bridge-0", "sim/bridge-0"]
    assert pods("--pod", "sim/bridge-*") == ["sim/bridge-0", "sim/bridge-1"]
    assert pods("--policy", "elsewhere") == ["elsewhere/bridge-0"]
    assert pods("--namespace", "sim", "--pod", "bridge-1") == ["sim/bridge-1"]


def test_a_policy_filter_that_names_no_policy_is_refused(policies: Path, capsys: Out) -> None:
    assert plan(FakeWiring(), policies, "--policy", "typo") == 1
    assert "--policy typo: no such policy; there are: bridges" in capsys.readouterr().err


def test_metrics_that_cannot_be_had_hold_every_pod_and_are_an_error(policies: Path, capsys: Out) -> None:
    problem = Problem("prometheus", Reason.METRICS_UNAVAILABLE, "http://p:9090 cannot be reached")
    wiring = FakeWiring(metrics=FakeMetrics(problem=problem))
    assert plan(wiring, policies, "-o", "json", "--detailed-exitcode") == 1
    out = capsys.readouterr()
    document = json.loads(out.out)
    assert [(item["action"], item["reason"]) for item in document["items"]] == [("None", "MetricsUnavailable")]
    assert document["problems"] == [
        {"source": "prometheus", "reason": "MetricsUnavailable", "detail": "http://p:9090 cannot be reached"}
    ]
    assert "Error: prometheus: MetricsUnavailable: http://p:9090 cannot be reached" in out.err


@pytest.mark.parametrize("trouble", Trouble)
def test_a_note_holds_nothing_and_is_no_error(policies: Path, capsys: Out, trouble: Trouble) -> None:
    """What a node or a card does not count is not missing in a plan."""
    wiring = FakeWiring(metrics=FakeMetrics(problem=Problem("Prometheus", trouble, "of sim/bridge-0")))
    incomplete = trouble not in NOTES
    assert plan(wiring, policies) == int(incomplete)
    out = capsys.readouterr()
    assert f"{'Problem    ' if incomplete else 'Note       '}Prometheus: {trouble}: of sim/bridge-0" in out.out
    assert ("Error: " in out.err) == incomplete


def test_a_policy_that_selects_nothing_is_named_and_no_error(policies: Path, capsys: Out) -> None:
    assert plan(FakeWiring(cluster=FakeCluster(())), policies, "--detailed-exitcode") == 0
    out = capsys.readouterr()
    assert "NothingSelected" in out.out
    assert "bridges" in out.out
    assert out.out.endswith("no pod is selected, 1 note\n")


def test_two_policies_for_one_pod_are_both_named(policies: Path, capsys: Out) -> None:
    write_policy(policies, "second")
    assert plan(FakeWiring(), policies, "-o", "json", "--detailed-exitcode") == 0
    (item,) = printed(capsys)["items"]
    assert item["reason"] == "AmbiguousPolicy"
    assert "bridges" in item["detail"]
    assert "second" in item["detail"]


@pytest.mark.parametrize("command", ["plan", "run"])
def test_a_missing_permission_ends_with_its_name(policies: Path, capsys: Out, command: str) -> None:
    wiring = FakeWiring(failure=PermissionMissing("list pods: lacks the rule {pods, list}; see rbac/base"))
    more = ["--metrics-address=127.0.0.1:0"] if command == "run" else []
    assert cli.main([command, f"--policies={policies}", *more], wiring) == 1
    out = capsys.readouterr()
    assert out.out == ""
    assert out.err == "Error: list pods: lacks the rule {pods, list}; see rbac/base\n"


def test_a_cluster_that_cannot_be_observed_is_an_error(policies: Path, capsys: Out) -> None:
    assert plan(FakeWiring(cluster=FakeCluster(unavailable="the watch of pods is down")), policies) == 1
    assert capsys.readouterr().err == "Error: the watch of pods is down\n"


def test_bad_settings_are_named(policies: Path, capsys: Out) -> None:
    assert plan(FakeWiring(), policies, "--prometheus-url", "nonsense") == 1
    assert "--prometheus-url" in capsys.readouterr().err


def test_only_flags_that_were_given_are_passed_on(policies: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRIDGE_AUTOSCALER_CONTEXT", "from-the-environment")
    wiring = FakeWiring()
    plan(wiring, policies, "-n", "sim")
    assert wiring.flags == {"policies": (policies,), "namespaces": ("sim",)}


def test_an_unexpected_error_is_one_line_and_has_its_traceback_on_demand(policies: Path, capsys: Out) -> None:
    wiring = FakeWiring(failure=ZeroDivisionError("by\nzero"))
    assert plan(wiring, policies) == 1
    assert capsys.readouterr().err == "Error: unexpected ZeroDivisionError: by zero\nAdd --debug for the traceback.\n"
    with pytest.raises(ZeroDivisionError):
        plan(wiring, policies, "--debug")


def test_an_interrupt_says_nothing(policies: Path, capsys: Out) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    assert plan(FakeWiring(cluster=FakeCluster(observing=interrupt)), policies) == 130
    assert "Traceback" not in capsys.readouterr().err


def test_explain_prints_one_pod_in_full(policies: Path, capsys: Out) -> None:
    wiring = FakeWiring(cluster=FakeCluster((POD, OTHER)))
    assert cli.main(["explain", "sim/bridge-1", f"--policies={policies}"], wiring) == 0
    text = capsys.readouterr().out
    assert text.startswith("sim/bridge-1 ")
    assert "1. cpu: usage highest of" in text
    assert f"Meaning    {Reason.REBALANCE.meaning}" in text
    assert cli.main(["explain", "sim/bridge-1", f"--policies={policies}", "-o", "json"], wiring) == 0
    assert [item["pod"] for item in printed(capsys)["items"]] == ["bridge-1"]


@pytest.mark.parametrize(
    ("pod", "words"),
    [
        ("bridge-0", "write NAMESPACE/POD"),
        ("sim/*", "write NAMESPACE/POD"),
        ("sim/none", "no such pod among those that the policies select; `plan` lists them"),
    ],
)
def test_explain_refuses_what_is_not_there(policies: Path, capsys: Out, pod: str, words: str) -> None:
    assert cli.main(["explain", pod, f"--policies={policies}"], FakeWiring()) == 1
    assert words in capsys.readouterr().err


def test_the_schema_needs_nothing_else(capsys: Out) -> None:
    assert cli.main(["plan", "--schema"]) == 0
    jsonschema.Draft202012Validator.check_schema(printed(capsys))


@pytest.mark.parametrize("arguments", [["nonsense"], ["plan", "--nonsense"], ["plan", "-o", "nonsense"], []])
def test_a_wrong_call_never_looks_like_changes(arguments: list[str], capsys: Out) -> None:
    assert cli.main(arguments) == 1
    assert capsys.readouterr().err.startswith("Usage: bridge-autoscaler")


@pytest.mark.parametrize("command", ["plan", "explain", "run"])
def test_help_has_examples(command: str, capsys: Out) -> None:
    assert cli.main([command, "--help"]) == 0
    assert "Examples:\n    bridge-autoscaler " in capsys.readouterr().out


def test_help_of_run_names_the_defaults_that_hold(capsys: Out) -> None:
    assert cli.main(["run", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    settings = Settings()
    assert f"Default: {settings.interval.seconds}s." in text
    assert f"Default: {settings.metrics_address}." in text


def test_the_version_comes_without_heavy_imports() -> None:
    code = (
        "import sys\nfrom autoscaler import cli\ncli.main(['--version'])\ncli.main(['--help'])\n"
        "heavy = ('numpy', 'pydantic', 'kubernetes_asyncio', 'rich', 'aiohttp', 'prometheus_api_client', 'structlog')\n"
        "sys.exit(str([name for name in heavy if name in sys.modules] or ''))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr.strip() == ""
    assert done.stdout.startswith(f"bridge-autoscaler {__version__}\n")
