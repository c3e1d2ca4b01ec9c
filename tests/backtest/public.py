"""The public traces: those that ship, and those that may only be read where they lie."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from autoscaler.traces.reading import read_trace
from autoscaler.traces.trace import Trace

SHIPPED = Path(__file__).parents[2] / "autoscaler" / "simulator" / "traces"
DAY_SAMPLES = 1440
WARMUP = 60

BITBRAINS = tuple(f"bitbrains_{name}" for name in ("batch_vm43", "bursty_vm233", "dailyjob_vm304", "diurnal_vm413"))
GENTD = ("gentd26_burst_9ba6962f", "gentd26_cold_3ed83727", "gentd26_leak_c26bb102")
NEZHA = ("nezha_tt_basic_0129", "nezha_tt_gateway_0129")
CPU = ("alibaba18_c12104", *BITBRAINS, *NEZHA)
MEMORY = (*BITBRAINS, *GENTD, *NEZHA)


def trace(name: str, shared: Path | None = None) -> Trace:
    """A trace that ships, or one of `shared`."""
    return read_trace((SHIPPED if shared is None else shared / "traces") / f"{name}.csv")


def scored(found: Trace, column: str) -> NDArray[np.float64]:
    """A column by the minute, without the first hour."""
    values = found.columns[next(each for each in found.columns if each == column)]
    return np.repeat(values, found.step_s // 60)[WARMUP:]
