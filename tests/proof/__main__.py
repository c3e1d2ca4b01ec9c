"""`python -m tests.proof [SEED ...]`: the proof against the real scheduler, in 500 cases or in those of the seeds."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.proof.generator import generate
from tests.proof.judge import Judged, judge
from tests.proof.stage import Stage
from tests.proof.table import Tally
from tests.rig.control_plane import ControlPlane

_CASES = 500
_TELLS_EVERY = 50


async def judge_all(control_plane: ControlPlane, seeds: Sequence[int]) -> list[Judged]:
    """All cases, one after the other."""
    judged = []
    async with Stage.open(control_plane) as stage:
        for number, seed in enumerate(seeds, 1):
            judged.append(await judge(stage, generate(seed)))
            if number % _TELLS_EVERY == 0:
                print(f"{number} of {len(seeds)} cases", file=sys.stderr)
    return judged


def main(arguments: Sequence[str]) -> int:
    """Judge, and print the counts; or for seeds that are named, what came of each."""
    seeds = [int(one) for one in arguments] or list(range(_CASES))
    with tempfile.TemporaryDirectory() as folder:
        control_plane = ControlPlane(Path(folder))
        try:
            judged = asyncio.run(judge_all(control_plane, seeds))
        finally:
            control_plane.stop()
    if arguments:
        for case in judged:
            print(case, case.exception or "", sep="\n")
        return int(any(case.exception for case in judged))
    tally = Tally(judged)
    print(tally.markdown())
    for case in judged:
        if case.wrong_no:
            print(f"seed {case.seed}: wrong no, {case.kind}", file=sys.stderr)
    for shortcoming in tally.shortcomings():
        print(shortcoming, file=sys.stderr)
    return int(bool(tally.shortcomings()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
