"""Stores what the cells of docs/notebooks show: tests/generators/make_notebook_outputs.py

Run it after a change of a cell, or of what a result shows.
"""

import json
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[1] / "support")]

from notebooks import NOTEBOOKS, read, run


def main() -> None:
    """Run every notebook and write its outputs; nothing else in it changes."""
    for path in NOTEBOOKS:
        notebook = read(path)
        codes = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
        for number, (cell, outputs) in enumerate(zip(codes, run(notebook), strict=True), 1):
            cell |= {"execution_count": number, "outputs": outputs}
        path.write_text(json.dumps(notebook, ensure_ascii=False, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
