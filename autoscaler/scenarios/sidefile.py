"""What a trace was made of, as a document beside it: parameters, events, and the places that a test asks for."""

from __future__ import annotations

from typing import Any

from autoscaler.scenarios.draws import VERSION
from autoscaler.scenarios.generator import Demand
from autoscaler.scenarios.ranges import OCCASIONS
from autoscaler.scenarios.scenario import Scenario


def side_document(scenario: Scenario, demand: Demand) -> dict[str, Any]:
    """The document, of plain numbers and texts. Instants are seconds of the trace, spans [begin, end)."""
    trace, draws, seconds = demand.trace, demand.draws, len(demand.trace)
    return {
        "scenario": scenario.name,
        "seed": draws.seed,
        "seconds": seconds,
        "generatorVersion": VERSION,
        "purpose": scenario.purpose,
        "expect": scenario.expect,
        "parameters": {name: draws.nth(name) for name in sorted(draws.ranges) if name not in OCCASIONS},
        "mostUsers": demand.most,
        "baseBytes": demand.base_bytes,
        "scenes": [
            {"memoryBytes": memory, "gpuMemoryBytes": gpu_memory, "work": work}
            for memory, gpu_memory, work in zip(*(column.tolist() for column in demand.scenes), strict=True)
        ],
        "events": [{"atS": event.row, "event": event.kind.value} for event in trace.events],
        "starts": [
            {"boot": [run.starts_s, run.compiles_s], "compile": [run.compiles_s, run.ready_s]} for run in demand.runs
        ],
        "transitions": [
            {
                "load": [change.loads_s, change.ready_s],
                "overlap": [change.ready_s, change.drops_s],
                "drop": [change.drops_s, change.done_s],
                "old": change.old,
                "new": change.new,
                "bytes": {"before": change.before, "peak": change.peak, "after": change.after},
                "loadCores": change.cores,
            }
            for change in demand.transitions
        ],
        "stalls": [list(stall) for stall in demand.stalls],
        "collections": list(demand.collections_s),
        "cuts": [
            {"span": [cut.at_s, cut.back_s], "event": "restart" if cut.restarts else "storm"} for cut in demand.cuts
        ],
        "gaps": [[begin_s, begin_s + length_s] for begin_s, length_s in scenario.gaps_s if begin_s < seconds],
    }
