"""The browser that pages are tried in. `python -m tests.browser.needs` installs one if there is none."""

from __future__ import annotations

import shutil
import sys

from tests.machine.needs import install_debian
from tests.rig.build import BuildError

_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_PACKAGES = ("chromium-headless-shell", "fonts-dejavu-core")


def browser() -> str | None:
    """The path of a browser of the Chromium family."""
    return next(filter(None, map(shutil.which, _NAMES)), None)


def main() -> int:
    """Give an exit status."""
    try:
        install_debian(
            () if browser() else _PACKAGES,
            "a page cannot be tried in a browser here",
            f"or install one of {', '.join(_NAMES)} otherwise",
        )
    except BuildError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
