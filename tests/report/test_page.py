"""The page as a document."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from autoscaler import cli
from autoscaler.backtest.demand import Replayed
from autoscaler.cli.rendering.report.page import as_page
from tests.report.made import results

VOID = {"meta", "link"}


class Tree(HTMLParser):
    """What is opened is closed again; ids, links and tables."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def values(self, tag: str, key: str) -> list[str | None]:
        return [given[key] for name, given in self.seen if name == tag and key in given]


@pytest.mark.parametrize("replayed", Replayed)
def test_all_that_was_found_is_there(replayed: Replayed) -> None:
    found = results(replayed, "bridge", "percentile:cpu.margin=5%")
    page = as_page(found)
    tree = Tree(page)
    assert sum(name == "svg" and given.get("class") == "plot timeline" for name, given in tree.seen) == 4
    assert sum(name == "svg" and given.get("class") == "plot front" for name, given in tree.seen) == 1
    anchors = [target for target in tree.values("a", "href") if target is not None]
    ids = [given["id"] for _, given in tree.seen if "id" in given]
    assert sorted(target.removeprefix("#") for target in anchors) == sorted(str(each) for each in ids)
    for each in found:
        assert f"{each.mean.slack_percent:.1f}%" in page
        for one in each.outcomes:
            assert f"{one.scores.slack_percent:.1f}%" in page
            assert f"{one.today.reserved_change_percent:+.0f}% reserved" in page
            assert f"{one.oracle_slack_percent:.1f}%" in page


def test_it_is_small_and_loads_and_runs_nothing() -> None:
    page = as_page(results(Replayed.MEMORY, "bridge", "histogram", "window", "forecast", "percentile"))
    assert len(page.encode()) < 1_500_000
    assert not re.search(r"https?:|<script|\son\w+=|url\(|@import", page)
    assert Tree(page).values("link", "href") == ["data:,"]


def test_names_are_escaped() -> None:
    evil = '</title><script>alert("x")</script>&'
    page = as_page(results(Replayed.CPU, evil, traces=(evil,)))
    assert "<script" not in page
    assert evil in Tree(page).text


def test_it_is_written_beside_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    usage, page = tmp_path / "usage.csv", tmp_path / "page.html"
    usage.write_text("timestamp_s,cpu_cores\n" + "".join(f"{60 * minute},{1 + minute % 3}\n" for minute in range(120)))
    arguments = ["backtest", "--trace", str(usage), "--resource", "cpu", "--recommender", "percentile", "--jobs=1"]
    assert cli.main([*arguments, "--html", str(page)]) == 0
    assert capsys.readouterr().out.startswith("percentile\n")
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert cli.main([*arguments, "--html", "/proc/page.html"]) == 1
    out = capsys.readouterr()
    assert out.out == ""
    assert "--html /proc/page.html: cannot be written: " in out.err
