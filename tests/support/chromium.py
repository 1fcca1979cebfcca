"""The Chromium that tests, measurements and recordings run in."""

import os
import shutil

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


class NoChromium(SystemExit):
    """There is no Chromium to run; the message says what to do."""


def find() -> str:
    """Return the path of the Chromium to run: that of ``CHROMIUM`` if set, else the first of ``NAMES``.

    The first of them opens no windows at all: a sixth of the processor time less.

    Raises:
        NoChromium: there is none.
    """
    named = os.environ.get("CHROMIUM")
    path = shutil.which(named) if named else next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        raise NoChromium(
            f"There is no Chromium{f' at {named}' if named else ''}: install chromium-headless-shell, or set "
            "CHROMIUM to its path."
        )
    return path
