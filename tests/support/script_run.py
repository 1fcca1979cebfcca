"""Run a script of the Code tab and check what its last line says."""

import contextlib
import functools
import importlib.metadata
import io
import re


def run(script):
    """Run it: its assertions hold, and its last line, the only one with OK, counts what it checked."""
    names, printed = {}, io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(script, "script", "exec"), names)
    lines = printed.getvalue().splitlines()
    assert [line for line in lines if line.startswith("OK")] == lines[-1:]
    _counts(lines[-1], names)
    _versions(lines[-1], script)
    return names


def _counts(line, names):
    """Check each number of codes, scales and zero points against the script's variables."""
    sizes = re.findall(r"([\d,]+) (codes?|dequantized values?|scales?|zero points?)\b", line)
    assert sizes, line
    assert "code" in line or "dequantized value" in line
    for count, noun in sizes:
        name = {"code": "codes", "dequantized value": "dequantized"}.get(noun.rstrip("s"), noun.rstrip("s"))
        values = names[name.replace(" ", "_")]
        size = values.numel() if hasattr(values, "numel") else values.size
        assert int(count.replace(",", "")) == size, line
        assert noun.endswith("s") == (size != 1), line
    for integer in re.findall(r"the zero point (-?\d+)", line):
        assert (names["zero_point"] == int(integer)).all()
    for name in ("scale", "zero_point"):
        assert (f"expected_{name}" in names) <= (name.replace("_", " ") in line), line


def _versions(line, script):
    """Where the script pins a library, the line must name it with the version that ran."""
    pinned = re.search(r"^# pip install", script, re.MULTILINE)
    named = re.search(r"\(([\w.-]+) (\S+)\)\.$", line)
    assert bool(named) or not pinned
    if named:
        assert _installed(named[1]) == named[2]


@functools.cache
def _installed(library):
    return importlib.metadata.version(library)
