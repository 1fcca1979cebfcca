"""Where the repository and the tests' data lie."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MAIN = ROOT / "pages" / "main.py"
DATA = ROOT / "tests" / "data"
GOLDEN = DATA / "golden"
CHECKPOINTS = DATA / "golden_checkpoints"
