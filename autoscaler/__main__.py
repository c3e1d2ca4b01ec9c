"""The program `bridge-autoscaler`."""

from __future__ import annotations

import sys

from autoscaler import cli


def main() -> None:
    """Run the command that the arguments name, and exit with its status."""
    sys.exit(cli.main(sys.argv[1:]))


if __name__ == "__main__":
    main()
