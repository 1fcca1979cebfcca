"""What commands print: tables, JSON, CSV, progress, and the sentence of a refusal."""

import csv
import io
import json
import os
import shutil
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from quantcore.checkpoints import plain
from quantcore.commands.exits import REFUSED
from quantcore.errors import QuantError
from quantcore.wording import megabytes

Measuring = TypeVar("Measuring", bound=Any)  # a step with ``done`` and ``total``, in bytes
SHOWN = 20  # lines of a kind that are printed
_GAP, _LEAST = "  ", 8  # between columns; characters of a column that is cut


def refused(reason: object) -> int:
    """Print why a command can't do what was asked, and return its exit code."""
    print(reason, file=sys.stderr)
    return REFUSED


def print_json(content: Any) -> None:
    """Print as JSON; numbers that are not finite become texts."""
    print(json.dumps(plain(content), indent=2, ensure_ascii=False, allow_nan=False))


def print_table(rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> None:
    """Print rows in columns, on a terminal cut to its width.

    Args:
        rows: the first one names the columns.
        right: the columns that are aligned to the right, such as numbers.
    """
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    print(*table_lines(rows, right, width), sep="\n")


def table_lines(
    rows: Sequence[Sequence[str]], right: Sequence[int] = (), width: int | None = None
) -> list[str]:
    """Return the lines of a table; those of a given width have the middle of their longest cells cut out.

    >>> table_lines([["bits", "tensor"], ["4.5", "model.layers.0.mlp"]], [0], 16)
    ['bits  tensor', ' 4.5  model….mlp']
    """
    widths = [max(map(_columns, column)) for column in zip(*rows, strict=True)]
    gaps = len(_GAP) * (len(widths) - 1)
    while width is not None and sum(widths) + gaps > width and max(widths) > _LEAST:
        widths[widths.index(max(widths))] -= 1
    lines = []
    for row in rows:
        cells = [_cut(cell, room) for cell, room in zip(row, widths, strict=True)]
        placed = []
        for at, (cell, room) in enumerate(zip(cells, widths, strict=True)):
            blank = " " * (room - _columns(cell))
            placed.append(blank + cell if at in right else cell + blank)
        lines.append(_GAP.join(placed).rstrip()[:width])
    return lines


def _columns(text: str) -> int:
    """Return how many columns a text takes: the second character of x̂ takes none."""
    return sum(not unicodedata.combining(character) for character in text)


def _cut(text: str, room: int) -> str:
    if _columns(text) <= room:
        return text
    after = (room - 1) // 2
    return f"{text[: room - 1 - after]}…{text[len(text) - after :]}"


def print_some(lines: Sequence[str], more: str = "more; --json lists all.") -> None:
    """Print the first lines and, if there are others, how many."""
    for line in lines[:SHOWN]:
        print(line)
    print_more(len(lines), more)


def print_more(total: int, more: str) -> None:
    """Print how many of all lines were not printed, if any."""
    if total > SHOWN:
        print(f"{total - SHOWN:,} {more}")


def with_progress(steps: Iterable[Measuring]) -> Iterator[Measuring]:
    """Yield the steps, and say on a terminal how many of their bytes are done, ``done`` of ``total``."""
    shows, shown = sys.stderr.isatty(), -1
    for step in steps:
        percent = 100 * step.done // max(1, step.total)
        if shows and percent > shown:
            print(f"\r{percent} % of {megabytes(step.total)}", end="", file=sys.stderr, flush=True)
            shown = percent
        yield step
    if shows:
        print("\r" + " " * 40, end="\r", file=sys.stderr)


def csv_of(lines: Sequence[Mapping[str, Any]]) -> str:
    """Return lines of a table of tensors as CSV."""
    out = io.StringIO()
    writer = csv.DictWriter(out, list(lines[0]) if lines else ["tensor"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return out.getvalue()


def replace_file(file: str, content: str | bytes) -> None:
    """Write a file so that it is never found half written, and through no link where it is prepared.

    Raises:
        QuantError: it can't be written.
    """
    new, data = Path(f"{file}.new"), content.encode() if isinstance(content, str) else content
    try:
        new.unlink(missing_ok=True)
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb") as out:
            out.write(data)
        os.replace(new, file)
    except OSError as reason:
        raise QuantError(f"{file} can't be written: {reason}") from None
