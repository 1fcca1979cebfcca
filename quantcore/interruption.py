"""How a command ends early: by Ctrl+C in one line with exit code 130, and silently when its reader has gone.

`quantcore` imports this before anything else, since most of the time of a short command passes in imports.
"""

import os
import signal
import sys
import threading
from pathlib import Path
from types import FrameType

INTERRUPTED = 130  # the exit code, as shells report it: 128 + SIGINT
_WIDTH = 40  # covers a line of progress, and ^C


def is_command() -> bool:
    """Return whether this process was started as ``python -m quantcore`` or as ``quantscope``."""
    if not sys.argv:
        return False
    if sys.argv[0] != "-m":
        return Path(sys.argv[0]).name in ("quantscope", "quantscope.exe")
    # Python looks for the module that it is to run, which imports its package: ours, or one that imports ours
    given = sys.orig_argv
    return "-m" in given and given[given.index("-m") + 1] in ("quantcore", "quantcore.__main__")


def end_quietly() -> None:
    """From now on, end this process as a command ends.

    It ends at once, without waiting for threads that are still measuring. Where Ctrl+C is ignored, as in
    the background of a script, it stays so.
    """
    if threading.current_thread() is not threading.main_thread():
        return  # only the main thread may say what a signal does
    if hasattr(signal, "SIGPIPE"):  # not on Windows
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupted)


def _interrupted(number: int, frame: FrameType | None) -> None:
    said = "Interrupted."
    line = f"\r{said:<{_WIDTH}}\n" if os.isatty(2) else f"{said}\n"
    os.write(2, line.encode())  # sys.stderr may be in the middle of a write
    os._exit(INTERRUPTED)


if is_command():
    end_quietly()
