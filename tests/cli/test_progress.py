"""Progress on stderr: silent at first, then lines, or a bar that leaves nothing behind."""

from __future__ import annotations

import io

import pytest

from autoscaler.cli.progress import MeasuringLog, MeasuringProgress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Seconds:
    """A monotonic clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def shown(stream: io.StringIO, *moments: float) -> str:
    clock = Seconds()
    with MeasuringProgress(stream, clock) as progress:
        for done, moment in enumerate(moments):
            clock.now = 100.0 + moment
            progress(done, 10, 5_000)
    return stream.getvalue()


def test_what_is_quick_is_silent() -> None:
    assert shown(io.StringIO(), 0.1, 1.9) == ""
    assert shown(Terminal(), 0.1, 1.9) == ""


def test_elsewhere_than_on_a_terminal_a_line_now_and_then() -> None:
    text = shown(io.StringIO(), 1, 3, 4, 7, 9)
    assert text == "".join(f"measuring: {done} of 10 requests, 5,000 samples at most\n" for done in (1, 4))


def test_on_a_terminal_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    assert "measuring" in shown(Terminal(), 1, 3, 4)


def test_a_controller_logs_long_cycles_now_and_then() -> None:
    clock, logged = Seconds(), list[tuple[int, int, int]]()
    log = MeasuringLog(lambda *told: logged.append(told), clock)
    for done, moment in enumerate((0, 4.9, 5.1, 6, 9, 10.2), 1):
        clock.now = 100.0 + moment
        log(done, 8, 500)
    assert logged == [(3, 8, 500), (6, 8, 500)]
    for moment in (60, 120, 180):  # short cycles
        clock.now = 100.0 + moment
        log(1, 2, 3)
        log(2, 2, 3)
    assert len(logged) == 2
