"""Progress of measuring, once it takes longer than a moment: a bar on a terminal, now and then a line elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

_SILENT_S = 2.0
_BETWEEN_LINES_S = 5.0


class MeasuringLog:
    """The same for a controller: calls `log` now and then while one cycle of measuring takes long."""

    def __init__(self, log: Callable[[int, int, int], None], monotonic: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._monotonic = monotonic
        self._done = 0
        self._next_s = float("inf")

    def __call__(self, done: int, total: int, samples: int) -> None:
        now_s = self._monotonic()
        if done <= self._done or self._next_s == float("inf"):  # another cycle
            self._next_s = now_s + _BETWEEN_LINES_S
        self._done = done
        if now_s >= self._next_s:
            self._log(done, total, samples)
            self._next_s = now_s + _BETWEEN_LINES_S


class MeasuringProgress:
    """Called with the requests done, those in all, and the samples that these may be answered with (0: not said); all
    may grow. `doing` and `what`: other words for other work."""

    def __init__(
        self,
        stream: IO[str],
        monotonic: Callable[[], float] = time.monotonic,
        *,
        doing: str = "measuring",
        what: str = "requests",
    ) -> None:
        self._doing, self._what = doing, what
        self._stream = stream
        self._monotonic = monotonic
        self._next_s = monotonic() + _SILENT_S
        self._bar: Progress | None = None

    def __call__(self, done: int, total: int, samples: int = 0) -> None:
        now_s = self._monotonic()
        if now_s < self._next_s:
            return
        if self._stream.isatty():
            self._draw(done, total)
        else:
            more = f", {samples:,} samples at most" if samples else ""
            print(f"{self._doing}: {done} of {total} {self._what}{more}", file=self._stream, flush=True)
            self._next_s = now_s + _BETWEEN_LINES_S

    def __enter__(self) -> MeasuringProgress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def _draw(self, done: int, total: int) -> None:
        if self._bar is None:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (TextColumn(self._doing), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
            self._bar = Progress(*columns, console=Console(file=self._stream), transient=True)
            self._bar.add_task(self._doing)
            self._bar.start()
        self._bar.update(self._bar.task_ids[0], completed=done, total=total)
