"""The program `bridge-autoscaler`."""

from __future__ import annotations

import os
import sys

from autoscaler import cli


def main() -> None:
    """Run the command that the arguments name, and exit with its status."""
    _open_what_is_closed()
    sys.exit(cli.main(sys.argv[1:]))


def _open_what_is_closed() -> None:
    """Streams that were closed by whoever started this lead nowhere; else the next connection would be one of them."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
            setattr(sys, name, os.fdopen(number, mode))


if __name__ == "__main__":
    main()
