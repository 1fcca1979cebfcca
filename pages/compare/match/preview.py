"""What previews of a link to a shared verdict say: the link carries it as numbers, never as text.

``2-56-74`` stands for two mistakes, in lines 56 and 74.
"""

import re
from collections.abc import Mapping

import quantcore as qc
from quantcore.wording import count, joined

KEY = "match_v"
_NUMBERS = re.compile(r"\d{1,3}(-\d{1,4}){0,8}")
_MOST = 8  # lines that are listed


def written(reading: qc.CodeReading) -> str | None:
    """Return the verdict as a link carries it; None where no quantizer is recognized."""
    if not reading.mistakes:
        return "0" if reading.lines_of_quantizers else None
    lines = sorted({finding.line for finding in reading.mistakes})
    return "-".join(map(str, (len(reading.mistakes), *(lines if len(lines) <= _MOST else ()))))


def of(query: Mapping[str, list[str]]) -> str:
    """Return the verdict in the parameters of a link, in words; empty without one.

    >>> of({"match_v": ["2-56-74"]}), of({"match_v": ["0"]}), of({"match_v": ["free money"]})
    ('2 mistakes, lines 56 and 74', 'No known mistake found', '')
    """
    text = query.get(KEY, [""])[-1]
    if not _NUMBERS.fullmatch(text):
        return ""
    mistakes, *lines = map(int, text.split("-"))
    if not mistakes:
        return "No known mistake found"
    where = f", line{'s' * (len(lines) > 1)} {joined([str(line) for line in lines])}" if lines else ""
    return f"{count(mistakes, 'mistake')}{where}"
