"""The command ``quantscope``: it serves the app, or does what ``python -m quantcore`` does."""

import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path

APP = Path(__file__).parents[2] / "app.py"  # beside the pages, in a checkout and in the package
GROUP = {
    "app": {
        "serve": "serve the app at http://localhost:8501, as without a command; options are those of "
        "streamlit run"
    }
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve the app, which replaces this process, or run a command and return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    asks_for_help = given[:1] in (["-h"], ["--help"])
    if asks_for_help or (given and given[0] != "serve" and not given[0].startswith("-")):
        from quantcore.commands import main as run  # takes seconds, which the app need not wait for

        return run(given, "quantscope", GROUP)
    if importlib.util.find_spec("streamlit") is None:
        print("The app needs more packages: pip install 'quantscope[app]'", file=sys.stderr)
        return 2
    options = given[1:] if given[:1] == ["serve"] else given
    served = [sys.executable, "-m", "streamlit", "run", str(APP), *options]
    os.execv(sys.executable, served)
    return 1  # never: the server has taken the place of this process
