"""The command ``quantscope``: it serves the app, or does what ``python -m quantcore`` does."""

import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from quantcore.__main__ import main as run

APP = Path(__file__).parents[2] / "app.py"  # beside the pages, in a checkout and in the package
HELP = """usage: quantscope [serve [STREAMLIT OPTIONS]]
       quantscope {check,list,inspect,compare,sensitivity,recipe} ...

Without a command, or with serve, the app is served at http://localhost:8501; options are those of
`streamlit run`, such as --server.port 8600. `quantscope check --help` and the like tell of the others.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve the app, which replaces this process, or run a command and return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] in (["-h"], ["--help"]):
        print(HELP, end="")
        return 0
    if given and given[0] != "serve" and not given[0].startswith("-"):
        return run(given)
    if importlib.util.find_spec("streamlit") is None:
        print("The app needs more packages: pip install 'quantscope[app]'", file=sys.stderr)
        return 2
    options = given[1:] if given[:1] == ["serve"] else given
    served = [sys.executable, "-m", "streamlit", "run", str(APP), *options]
    os.execv(sys.executable, served)
    return 1  # never: the server has taken the place of this process
