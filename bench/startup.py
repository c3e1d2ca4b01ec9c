"""How long `bridge-autoscaler --version` takes as a process: `python -m bench.startup`."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

_ROUNDS = 11


def main() -> None:
    """Print the median wall time."""
    took = []
    for _ in range(_ROUNDS):
        started = time.perf_counter()
        subprocess.run([sys.executable, "-m", "autoscaler", "--version"], check=True, stdout=subprocess.DEVNULL)
        took.append(time.perf_counter() - started)
    print(f"bridge-autoscaler --version: median {statistics.median(took):.2f} s of {_ROUNDS} starts")


if __name__ == "__main__":
    main()
