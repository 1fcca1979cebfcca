"""One scale and two families of type, which figures and pages share. Nothing is shown smaller than SMALL."""

FAMILY = '"Source Sans", sans-serif'
MONO = '"Source Code Pro", monospace'

# px; a page multiplies all sizes by one number to be read from afar
TEXT = 14.0  # running text

_TIMES = {"small": 0.875, "text": 1.0, "large": 1.25, "title": 1.5, "display": 2.5}
SCALE = {name: times * TEXT for name, times in _TIMES.items()}
SMALL = SCALE["small"]  # labels, tables, code, and all text of a figure but its titles
LARGER = 1.92  # times as large for the back row of a room, as pages are in a window 1920 px wide

_DIGIT = 0.56  # of the size: the width of a digit


def fits(texts: list[str], width: float) -> bool:
    """Whether each of these numbers, in SMALL, fits into a cell ``width`` px wide.

    >>> fits(["-8", "7"], 20), fits(["-0.125"], 20)
    (True, False)
    """
    return (max(map(len, texts), default=0) * _DIGIT + 0.3) * SMALL <= width
