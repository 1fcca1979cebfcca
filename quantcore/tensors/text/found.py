"""The tensors in a paste: one record for each, whatever stands around it."""

import itertools
import re
from dataclasses import dataclass

import numpy as np

from quantcore.errors import QuantError
from quantcore.tensors.text import context
from quantcore.tensors.text.brackets import parse_brackets
from quantcore.tensors.text.groups import NumberGroup, groups
from quantcore.tensors.text.numbers import Float32Array
from quantcore.tensors.text.rows import NUMBER, parse_rows
from quantcore.tensors.text.tables import labelled_rows
from quantcore.tensors.text.view import code_view, inside_view, numbers_view

MOST = 200  # tensors of one text, of which one is chosen
_RUNS = 20  # of lines with numbers, among other lines
_FEW = 4  # numbers in a list that may be a shape or other arguments
_ARGUMENT = re.compile(
    r"(?:\w*_)?(?:shape|sizes?|dims?|ax[ei]s|strides?|padding|kernel_size|figsize|bits)", re.IGNORECASE
)
_LOOP = re.compile(r"\bfor\s[^\n]{1,80}\bin\s*$|[=!]=\s*$")
_CODE = re.compile(
    r"[=(){}\[\]<>]|^\s*(?:import|from|def|class|return|print|for|if|with|while|assert)\b|:\s*$|^\s*[\\$#]"
)
_LABEL = re.compile(r"^\s*[A-Za-z_][\w .\-/]{0,60}[:=][ \t]*(?=[-+.\w]*\d|[-+]?(?:nan|inf))")
_NAMED = re.compile(r"[^\S\n]*([A-Za-z_][\w.]{0,60})\s?[:=]")
_WORD = re.compile(r"[^\s,;]+")
_FOOTER = re.compile(r"\s*(?:dtype|Name|Length|Freq)\s?:")


@dataclass(frozen=True, eq=False)
class PastedTensor:
    """A tensor that a text contains.

    Attributes:
        values: float32.
        name: what it is called in the text; empty if it has no name.
        line: where it begins, from 1.
        dtype: as the text names it, such as "bfloat16" or "int8"; empty if it does not.
        note: a sentence on what is not, or not quite, its values; empty if there is nothing to say.
        question: what decides whether this reading is meant, if the text has several.
        error: why it can't be read; ``values`` is then empty.
    """

    values: Float32Array
    name: str = ""
    line: int = 1
    dtype: str = ""
    note: str = ""
    question: str = ""
    error: str = ""

    @property
    def title(self) -> str:
        """What to choose it by: ``w (line 3), shape (2, 3)``."""
        name = f"{self.name} (line {self.line})" if self.name else f"line {self.line}"
        return f"{name}, " + ("can't be read" if self.error else f"shape {self.values.shape}")


def tensors_in(text: str) -> list[PastedTensor]:
    """Return the tensors of a text of any kind, the likely ones; an empty list if there is none.

    Numbers in comments and strings are read only if there are none elsewhere.
    """
    view = code_view(text)
    found = _tensors_of(text, view)
    if found == [] and (inside := inside_view(text)) != view:
        found = _tensors_of(text, inside)
    return found or []


def _tensors_of(text: str, view: str) -> list[PastedTensor] | None:
    """Return the tensors of a view; None if it can't be told where they begin and end."""
    split = groups(view)
    if split is None:
        return None
    bracketed, rest = split
    alone = bool(bracketed) and not any(group.inside for group in bracketed) and not rest.strip(" \n\t,;")
    between = "".join(text[a.end : b.start] for a, b in itertools.pairwise(bracketed)) if alone else ""
    if (
        alone and not between.strip(" \n\t,;") and any(group.kind != "call" for group in bracketed)
    ):  # nothing but brackets: rows, of which none may be left out
        whole = parse_brackets(text, numbers_view(view))
        return [PastedTensor(whole.values, dtype=whole.dtype, note=whole.note)]
    if len(bracketed) > MOST:
        raise QuantError(f"The text contains more than {MOST} lists and tensors; paste one of them.")
    numbers = numbers_view(view)
    read = [(g, tensor) for group in bracketed for g, tensor in _in_group(text, view, numbers, group)]
    lines = _rows(text, rest)
    if lines is None:
        return None
    strong = [tensor for group, tensor in read if alone or not _is_argument(view, group, tensor)]
    strong += [tensor for tensor in lines if tensor.values.size > 1]
    weak = [tensor for group, tensor in read if not group.inside or tensor.name] + lines
    likely = strong or [tensor for tensor in weak if tensor.values.size > 1] or weak
    return _different(sorted(likely, key=lambda tensor: tensor.line))


def _in_group(
    text: str, view: str, numbers: str, group: NumberGroup
) -> list[tuple[NumberGroup, PastedTensor]]:
    """Return the tensor of a group, or those of its parts: a list of tensors of different shapes."""
    line, name = text.count("\n", 0, group.start) + 1, context.name_before(text, group.start)
    try:
        problem = context.before_error(text, view, group.start, group.inside)
        if problem:
            raise problem
        source = (
            context.integers_of_c(numbers, group.start, group.end) if text[group.start] == "{" else numbers
        )
        read = parse_brackets(text, source, group.start, group.end)
        if text[group.start] == "{":
            read = context.in_declared_shape(read, text, group.start)
        read = context.after(text, view, group.end, read, group.inside)
    except QuantError as error:
        if group.kind != "call" and group.parts and all(part.kind == "call" for part in group.parts):
            return [found for part in group.parts for found in _in_group(text, view, numbers, part)]
        return [(group, PastedTensor(np.empty(0, np.float32), name, line, error=str(error)))]
    return [(group, PastedTensor(read.values, name, line, read.dtype, read.note))]


def _is_argument(view: str, group: NumberGroup, tensor: PastedTensor) -> bool:
    """Tell whether it is rather a shape, a few settings or a scale than the tensor that a text is about."""
    if tensor.error:
        return group.kind == "tuple"
    if _ARGUMENT.fullmatch(tensor.name) or _LOOP.search(view[max(0, group.start - 100) : group.start]):
        return True
    few = tensor.values.size <= (_FEW if group.kind != "call" else 1) and tensor.values.ndim < 2
    return few and (group.kind != "list" or (not tensor.name and bool((tensor.values % 1 == 0).all())))


def _different(found: list[PastedTensor]) -> list[PastedTensor]:
    """Return the tensors without those that repeat another: what a prompt prints of a tensor typed before."""
    kept: list[PastedTensor] = []
    for tensor in found:
        if not any(_repeats(tensor, other) for other in kept[-20:]):
            kept = [other for other in kept if not _repeats(other, tensor)] if len(kept) < _RUNS else kept
            kept.append(tensor)
    return kept


def _repeats(tensor: PastedTensor, other: PastedTensor) -> bool:
    """Tell whether a tensor is another one, rounded to the digits of a print."""
    a, b = tensor.values, other.values
    if tensor.error or other.error or a.shape != b.shape:
        return False
    if np.array_equal(a, b, equal_nan=True):
        return True
    rounded = [np.round(b.astype(np.float64), digits).astype(np.float32) for digits in (4, 8)]
    return bool(a.any()) and any(np.array_equal(a, r, equal_nan=True) for r in rounded)


def _rows(text: str, rest: str) -> list[PastedTensor] | None:
    """Return the tensors in lines of numbers outside brackets; None if a line among them can't be read."""
    whole = _table(text, rest)
    if whole is not None:
        return [whole]
    runs: list[list[tuple[int, str]]] = [[]]
    start, below = 0, False
    for line in rest.split("\n"):
        label = _LABEL.match(line)
        shown = " " * label.end() + line[label.end() :] if label else line
        words = _WORD.findall(shown)
        if words and all(NUMBER.fullmatch(word) for word in words):
            if label and runs[-1] and len(words) != len(_WORD.findall(runs[-1][-1][1])):
                runs.append([])
            runs[-1].append((start, shown))
        elif line.strip():
            if _mixes(line, words) or (below and _is_damaged(line, words)):
                return None
            if runs[-1]:
                runs.append([])
        below = bool(runs[-1]) and bool(line.strip())
        start += len(line) + 1
    found = [run for run in runs if run]
    if len(found) > _RUNS:
        return None
    return [tensor for run in found if (tensor := _run(text, run)) is not None]


def _mixes(line: str, words: list[str]) -> bool:
    """Tell whether a line mixes numbers with other words as no code, label or prose does."""
    numeric = sum(NUMBER.fullmatch(word) is not None for word in words)
    prose = sum(word.isalpha() for word in words) >= 3
    if "..." in words or "…" in words:
        return True
    return bool(numeric) and not prose and not _CODE.search(line) and not _FOOTER.match(line)


def _is_damaged(line: str, words: list[str]) -> bool:
    """Tell whether a line right below numbers may be one that is damaged."""
    return len(words) < 3 and any(character.isdigit() for character in line) and not _CODE.search(line)


def _run(text: str, run: list[tuple[int, str]]) -> PastedTensor | None:
    """Return the tensor in a run of lines of numbers."""
    masked, at = "", 0
    for start, shown in run:
        masked, at = masked + "\n" * text.count("\n", at, start) + shown, start
    line = text.count("\n", 0, run[0][0]) + 1
    begins = run[0][0]
    label = _NAMED.match(text, begins) or _NAMED.match(text[:begins].rstrip().rpartition("\n")[2])
    name = label[1] if label else ""
    try:
        return PastedTensor(parse_rows(masked), name, line)
    except QuantError as error:
        return PastedTensor(np.empty(0, np.float32), name, line, error=str(error))


def _table(text: str, rest: str) -> PastedTensor | None:
    """Return the one table among lines of code and labels, if its rows have a header or an index."""
    lines = rest.split("\n")
    kept = [line if not _CODE.search(line) or _FOOTER.match(line) else " " * len(line) for line in lines]
    for k in reversed(range(len(kept))):  # what follows the table
        if any(character.isdigit() for character in kept[k]):
            break
        kept[k] = kept[k] if _FOOTER.match(kept[k]) else " " * len(kept[k])
    for k, line in enumerate(kept[:-1]):  # what is above it
        if any(NUMBER.fullmatch(word) for word in _WORD.findall(line)):
            break
        kept[k] = line if kept[k + 1].strip() else " " * len(line)
    table = labelled_rows(text, "\n".join(kept))
    if table is None:
        return None
    return PastedTensor(table.values, "", table.line, table.dtype, table.note)
