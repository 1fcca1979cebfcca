"""Tables of pandas, Markdown, LaTeX and box drawings; header and index are never read as data.

A table is first cut into rows of cells, each with its place in the text. Then the header and the index are
recognised: a row above a ruled line, names, or the numbers of columns and rows as pandas writes them.
"""

import re
from array import array
from dataclasses import dataclass

import numpy as np

from quantcore.errors import QuantError
from quantcore.tensors.text.numbers import Float32Array, not_a_number, to_float32
from quantcore.tensors.text.rows import NUMBER
from quantcore.wording import count, joined, place, short

Cell = tuple[int, str]  # place in the text, and the word there
_LINE = re.compile(r"[^\n]+")
_WORD = re.compile(r"\S+")
_RULE = re.compile(r"(?=[^\n]{0,200}[-=\u2500-\u257f]{2})[\s|+:\-=\u2500-\u257f]+")
_DOUBLE_RULE = re.compile(r"[=\u2550-\u256c]")
_PIPE = re.compile(r"[|\u2502\u2506\u2551]")
_TABLE_OF_LATEX = re.compile(
    r"\\begin\{(tabular\*?|array|longtable|[pbvBV]?(?:small)?matrix)\*?\}"
    r"((?:[ \t]*[\[{][^\[\]{}\n]{0,99}[\]}])*)"
)
_RULE_OF_LATEX = re.compile(
    r"\\(?:toprule|midrule|bottomrule|hline|cline\{[^{}\n]{0,20}\}|endhead|endfoot|endlastfoot)"
)
_DECORATION = re.compile(r"\$|\\(?:textbf|mathbf|num|text)\b|\{,\}|[{}]|\*\*|\\,|`")
_NAME = re.compile(r"[^\W\d]|['\"#%]")
_INTEGER = re.compile(r"[0-9]{1,9}")
_FOOTER = re.compile(
    r"\s*(?:\[\d+ rows x \d+ columns\]|(?:Name|Length|Freq): .{0,200}|dtype: (?P<dtype>\w{1,20}))\s*"
)
# a matrix: [,1] [,2] above [1,]; a vector: [1] before numbers
_BEGUN_BY_R = re.compile(
    r"\s{0,99}(?:>[^\n]{0,200}\n\s{0,99})?"
    r"(?:(?P<matrix>\[,1\](?:[ \t]+\[,\d{1,9}\])*[ \t]*\n[ \t]*\[1,\])|\[1\][ \t]+[-+.\d])"
)
_LABELS_OF_R = re.compile(
    r"\A\s{0,99}>[^\n]{0,200}|^[ \t]*(?:\[,\d{1,9}\][ \t]*)+$|^[ \t]*\[\d{1,9},?\](?=[ \t])", re.MULTILINE
)
_DTYPE = re.compile(r"\bdtype: (\w{1,20})\s*$", re.MULTILINE)


@dataclass(frozen=True)
class NumberTable:
    """The numbers of a table, and a sentence on what is not a number; ``line``: of the first row of data."""

    values: Float32Array
    note: str
    line: int
    dtype: str = ""


def ruled_table(text: str) -> NumberTable | None:
    """Return the only table in Markdown, LaTeX or a box drawing; None if the text contains none.

    Raises:
        QuantError: there are several, or a cell is not a number.
    """
    begun = list(_TABLE_OF_LATEX.finditer(text))
    if len(begun) > 1:
        raise QuantError(f"The text contains {len(begun)} LaTeX tables; paste one of them.")
    if begun:
        return _latex(text, begun[0])
    lines = [line for line in _LINE.finditer(text) if _PIPE.search(line[0]) or _RULE.fullmatch(line[0])]
    piped = [line for line in lines if _PIPE.search(line[0]) and not _RULE.fullmatch(line[0])]
    edged = [line for line in piped if _PIPE.match(line[0].strip()) and _PIPE.match(line[0].strip()[-1])]
    if not piped or len(piped[0][0].strip()) < 2 or (len(lines) == len(piped) and len(edged) < len(piped)):
        return None
    rows: list[list[Cell]] = []
    header = 0
    below = lines[lines.index(piped[0]) :]
    double = any(_DOUBLE_RULE.search(line[0]) for line in below if _RULE.fullmatch(line[0]))
    for line in below:
        if not _RULE.fullmatch(line[0]):
            rows += filter(None, [_piped_cells(line, line in edged)])
        elif rows and not header and line is not lines[-1] and (not double or _DOUBLE_RULE.search(line[0])):
            header = len(rows)
    return _numbers(text, rows, header)


def _piped_cells(line: re.Match[str], edged: bool) -> list[Cell]:
    cells, start = [], line.start()
    for part in _PIPE.split(line[0]):
        cells.append(_plain(start, part))
        start += len(part) + 1
    return cells[1:-1] if edged else cells


def _plain(start: int, part: str) -> Cell:
    """Return a cell without spaces and decoration."""
    word = _DECORATION.sub(lambda found: " " * len(found[0]), part)
    return start + len(word) - len(word.lstrip()), word.strip()


def _latex(text: str, begun: re.Match[str]) -> NumberTable:
    end = text.find("\\end{" + begun[1], begun.end())
    if end < 0:
        where = place(text, begun.start())
        raise QuantError(f"The {short(begun[0])} at {where} has no \\end; paste the whole table.")
    rows: list[list[Cell]] = []
    header, start = 0, begun.end()
    for line in text[start:end].split("\\\\"):
        rules = list(_RULE_OF_LATEX.finditer(line))
        if rules and rows and not header:
            header = len(rows)
        cut = _RULE_OF_LATEX.sub(lambda found: " " * len(found[0]), line)
        if cut.strip():
            place_of, cells = start, []
            for part in cut.split("&"):
                cells.append(_plain(place_of, part))
                place_of += len(part) + 1
            rows.append(cells)
        start += len(line) + 2
    # a rule may also lie between rows of numbers: names stand above one, or the numbers of columns
    names = any(not NUMBER.fullmatch(word) for row in rows[:header] for _, word in row)
    counted = [word for _, word in rows[0]] == [str(n) for n in range(len(rows[0]))] if header else False
    return _numbers(text, rows, header if header < len(rows) and (names or counted) else 0)


def labelled_rows(text: str, view: str) -> NumberTable | None:
    """Return rows without brackets that have a header or an index: of pandas, or of a CSV file.

    None if this is no such table, or a number in it is not one.
    """
    found = _DTYPE.search(view)
    lines = [line for line in _LINE.finditer(view) if line[0].strip() and not _FOOTER.fullmatch(line[0])]
    separator = next((sep for sep in ("\t", ";", ",") if all(sep in line[0] for line in lines)), "")
    if not lines:
        return None
    blocks = _wrapped(lines) if not separator else [lines]
    tables = []
    for block in blocks:
        rows = [_cells(text, line, separator) for line in block]
        table = _labelled(text, rows, separator, found is not None)
        if table is None:
            return None
        tables.append(table)
    values = tables[0].values if len(tables) == 1 else np.concatenate([t.values for t in tables], axis=1)
    return NumberTable(values, tables[0].note, tables[0].line, found[1] if found else "")


def without_labels_of_r(text: str) -> str:
    """Return the text with spaces in place of the labels of a matrix or vector of R, such as ``[2,]``.

    A vector goes on in the next line.
    """
    begun = _BEGUN_BY_R.match(text)
    if begun is None:
        return text
    cut = _LABELS_OF_R.sub(lambda found: " " * len(found[0]), text)
    return cut if begun["matrix"] else cut.replace("\n", " ")


def _wrapped(lines: list[re.Match[str]]) -> list[list[re.Match[str]]]:
    r"""Return the parts in which pandas prints a wide table; the header of all but the last ends in ``\``."""
    blocks = sum(line[0].rstrip().endswith("\\") for line in lines) + 1
    size, rest = divmod(len(lines), blocks)
    return [lines] if rest else [lines[k * size : (k + 1) * size] for k in range(blocks)]


def _cells(text: str, line: re.Match[str], separator: str) -> list[Cell]:
    shown = text[line.start() : line.end()].rstrip().removesuffix("\\")
    if not separator:
        return [(line.start() + m.start(), m[0]) for m in _WORD.finditer(shown)]
    cells, start = [], line.start()
    for part in (
        shown.split(separator) if separator != "\t" else text[line.start() : line.end()].split(separator)
    ):
        cells.append((start + len(part) - len(part.lstrip()), part.strip()))
        start += len(part) + 1
    return cells


def _labelled(text: str, rows: list[list[Cell]], separator: str, is_series: bool) -> NumberTable | None:
    width = len(rows[-1])
    header = len(rows)
    while header and _is_data(rows[header - 1], width, width > 1):
        header -= 1
    if (
        separator
        and header > 1
        and _is_header(rows[0], width)
        and any(_is_data(row, width, True) for row in rows)
    ):
        header = 1  # one of the numbers is not one
    if header == len(rows) or header > 1 + (width > 1):
        return None
    names = [name for _, name in rows[0]] if header else []
    if header == 2 and not (
        len(rows[1]) in (1, width) and rows[1][0][1] and not any(c for _, c in rows[1][1:])
    ):
        return None
    if not all(not name or _NAME.match(name) or _INTEGER.fullmatch(name) for name in names):
        return None
    data = rows[header:]
    short_by_one = header == 1 and len(names) == width - 1
    if short_by_one and (separator or not _above(text, rows[0], data[0][1:])):
        return None
    if header and not short_by_one and len(names) != width:
        return None
    labels = any(not NUMBER.fullmatch(row[0][1]) for row in data)
    if labels and not (
        width > 1 and all(_NAME.match(row[0][1]) for row in data) and (header or len(data) > 1)
    ):
        return None
    corner = (bool(names) and not names[0]) or header == 2
    if not header and not labels and not (is_series and width == 2):
        return None
    return _without(text, rows, header, labels or corner or short_by_one or (is_series and width == 2))


def _is_header(row: list[Cell], width: int) -> bool:
    return len(row) == width and all(_NAME.match(name) and not NUMBER.fullmatch(name) for _, name in row)


def _is_data(row: list[Cell], width: int, labelled: bool) -> bool:
    return len(row) == width and bool(row[0][1]) and all(NUMBER.fullmatch(word) for _, word in row[labelled:])


def _above(text: str, names: list[Cell], data: list[Cell]) -> bool:
    """Tell whether names are those of columns: pandas ends them where numbers end, or a place before.

    Names that are numbers count up.
    """
    ends = []
    for row in (names, data):
        begins = text.rfind("\n", 0, row[0][0])
        ends.append([start + len(word) - begins for start, word in row])
    count_up = [word for _, word in names]
    if all(map(_INTEGER.fullmatch, count_up)):
        first = int(count_up[0])
        if count_up != [str(first + k) for k in range(len(count_up))]:
            return False
    return {there - here for here, there in zip(*ends, strict=True)} <= {0, 1}


def _numbers(text: str, rows: list[list[Cell]], header: int) -> NumberTable:
    """Return the numbers of a table whose header is known: it has this many rows."""
    corner = header > 0 and not rows[0][0][1] and any(word for _, word in rows[0])
    labels = all(_NAME.match(row[0][1]) and not NUMBER.fullmatch(row[0][1]) for row in rows[header:] if row)
    header = header or int(bool(rows) and _is_header(rows[0], len(rows[0])))
    return _without(text, rows, header, (corner or labels) and len(rows[-1]) > 1)


def _without(text: str, rows: list[list[Cell]], header: int, index: bool) -> NumberTable:
    """Return the numbers of a table without its header rows and, if it is an ``index``, its first column."""
    whole = rows[header:]
    if not whole:
        raise QuantError("The table has a header but no numbers; paste its rows too.")
    for row in whole:
        if len(row) != len(whole[0]):
            raise QuantError(
                f"The row at {place(text, row[0][0])} has {count(len(row), 'cell')}, but the first has "
                f"{len(whole[0])}; make all rows the same length."
            )
    data = [row[index:] for row in whole]
    values: array[float] = array("d")
    for row in data:
        for position, word in row:
            if not word:
                raise QuantError(f"A value is missing at {place(text, position)}; write a number there.")
            if not NUMBER.fullmatch(word):
                raise not_a_number(text, position, word)
            values.append(float(word))
    flat = to_float32(values, (cell for row in data for cell in row), text)
    first = data[0][0][0]
    line = text.count("\n", 0, first) + 1
    parts = []
    if header:
        above = text.count("\n", 0, rows[0][0][0]) + 1
        words = ", ".join(word for _, word in rows[0] if word)
        parts.append(f"line {above} ({words[:40]}{'…' * (len(words) > 40)}) is the header")
    if index:
        parts.append("the first column is the index")
    note = f"Not read as values: {joined(parts)}." if parts else ""
    return NumberTable(flat.reshape(len(data), -1) if len(data[0]) > 1 else flat, note, line)
