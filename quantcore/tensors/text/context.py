"""Before and after the numbers of a paste: their name, a declaration in C, what is computed with them."""

import math
import re
from dataclasses import replace

from quantcore.errors import QuantError
from quantcore.tensors.text.brackets import Bracketed
from quantcore.wording import count, place, short

_BEFORE = 300  # characters that are searched for a name
_NAME = re.compile(
    r"""(?:([A-Za-z_][\w.]{0,80})(?:\s?:\s?[\w.\[\];, ]{1,40})?\s{0,9}=|["']([\w.\-/ ]{1,80})["']\s{0,9}"""
    r"""[:,]|([A-Za-z_][\w.\-/]{0,80})\s{0,9}:)\s{0,99}(?:Parameter\ containing:\s{0,9})?$"""
)
_ARRAY_OF_C = re.compile(
    r"(\w{1,80})\s{0,9}((?:\[[^\[\]\n]{0,60}\]\s{0,9}){1,8})(?:[A-Za-z_]\w{0,40}(?:\(\(?[^()]{0,40}\)?\)\)?)?\s{0,9}){0,3}"
    r"=\s{0,99}$"
)
_ARRAY_OF_CPP = re.compile(r"\barray\s?<[\w:<>, ]{1,120}>\s{1,9}\w{1,80}\s{0,9}=?\s{0,99}$")
_LENGTHS_OF_CPP = re.compile(r",\s?(\d{1,9})\s?>")
_MACRO_OF_C = re.compile(r"#\s{0,9}define\s{1,9}(\w{1,80})\s{1,99}$")
_INTEGER_OF_C = re.compile(
    r"\b(?P<unsigned>u|unsigned\s)?\s?(?:int(?P<bits>8|16)(?:_t)?|(?:signed\s)?char|(?P<short>short)|q7_t|(?P<q>q15_t))\b"
)
_HEX = re.compile(r"(?<![\w.])0x([0-9a-f]{1,4})(?![\w.])", re.IGNORECASE)
_LENGTHS = re.compile(r"\[([^\]]*)\]")
_COMPUTES = "+-*/%@&|^~<"
_METHOD = re.compile(r"\s{0,99}\.(\w{1,30})(?:\(((?:[^()]|\([^()]{0,100}\)){0,100})\))?(?![\w(])")
_SAME = frozenset(
    ["cpu", "cuda", "numpy", "detach", "clone", "contiguous", "copy", "requires_grad_", "tolist"]
)
_CASTS = {"float": "float32", "half": "float16", "bfloat16": "bfloat16", "double": "float64"}
_FLOATS = re.compile(r"\b(float32|float16|bfloat16|float64|float|half)\b")
_DEVICE = re.compile(r"\s*['\"](?:cpu|cuda|mps)[:\d]{0,3}['\"]\s*|\s*device\s*")


def name_before(text: str, start: int) -> str:
    """Return the name that is assigned, declared or labelled with what begins at ``start``; empty if none.

    >>> name_before("w = [1, 2]", 4), name_before("int8_t w[2] = {1, 2};", 14)
    ('w', 'w')
    """
    before = text[max(0, start - _BEFORE) : start]
    found = _ARRAY_OF_C.search(before) or _MACRO_OF_C.search(before)
    found = found or _NAME.search(before)
    return next(filter(None, found.groups()), "") if found else ""


def integers_of_c(view: str, start: int, end: int) -> str:
    """Return the view with the hexadecimal numbers of a C array of 8 or 16 bits as decimal ones."""
    before = view[max(0, start - _BEFORE) : start]
    declared = list(_INTEGER_OF_C.finditer(before, max(before.rfind(";"), before.rfind("}")) + 1))
    if not declared:
        return view
    kind = declared[-1]
    bits = int(kind["bits"] or (16 if kind["short"] or kind["q"] else 8))

    def decimal(match: re.Match[str]) -> str:
        value = int(match[1], 16)
        if value >= 1 << bits:
            return match[0]
        signed = value - (1 << bits) if value >> (bits - 1) and not kind["unsigned"] else value
        return str(signed).ljust(len(match[0]))

    return view[:start] + _HEX.sub(decimal, view[start:end]) + view[end:]


def in_declared_shape(read: Bracketed, text: str, start: int) -> Bracketed:
    """Return an array of C in the shape of its declaration.

    Raises:
        QuantError: it is declared with another number of elements.
    """
    before = text[max(0, start - _BEFORE) : start]
    of_library = _ARRAY_OF_CPP.search(before)
    if of_library:  # may have one pair of braces more than it has axes
        shape = tuple(int(length) for length in _LENGTHS_OF_CPP.findall(of_library[0])[::-1])
        if math.prod(shape) == read.values.size:
            return replace(read, values=read.values.reshape(shape))
    declared = _ARRAY_OF_C.search(before)
    lengths = _LENGTHS.findall(declared[2]) if declared else []
    if not declared or not all(length.strip().isdecimal() for length in lengths):
        return read
    shape = tuple(int(length) for length in lengths)
    if math.prod(shape) != read.values.size:
        raise QuantError(
            f"{short(declared[1])} is declared with {count(math.prod(shape), 'element')}, but "
            f"{read.values.size} are given; write all of them (C fills the rest with zeros)."
        )
    return Bracketed(read.values.reshape(shape), read.dtype, read.note)


def before_error(text: str, view: str, start: int, inside: bool) -> QuantError | None:
    """Return the error if what stands before the numbers computes with them."""
    before = view[max(0, start - _BEFORE) : start].rstrip()
    line = view[view.rfind("\n", 0, start) + 1 : start].strip()
    last = before[-1:]
    if not last or (not inside and not line and last != "*") or before.endswith(("->", "=>")):
        return None
    bullet = line in ("-", "+", "*") and text[start - 1 : start] == " "
    if last in _COMPUTES and not (bullet and last != "*"):
        return _computed(text, len(before) - 1 + max(0, start - _BEFORE), last, "before")
    return None


def after(text: str, view: str, end: int, read: Bracketed, inside: bool) -> Bracketed:
    """Return the tensor with the methods that follow it applied: shapes and dtypes.

    Raises:
        QuantError: something else is computed with it.
    """
    values, dtype = read.values, read.dtype
    for _ in range(10):
        method = _METHOD.match(view, end)
        if method is None:
            break
        name, arguments = method[1], text[method.start(2) : method.end(2)] if method[2] is not None else ""
        found = _FLOATS.search(arguments)
        try:
            if name in ("reshape", "view") and re.fullmatch(r"[\s\d,()-]{1,80}", arguments):
                values = values.reshape([int(n) for n in re.findall(r"-?\d+", arguments)])
            elif name in ("T", "t") and values.ndim <= 2:
                values = values.T
            elif name in _CASTS:
                dtype = _CASTS[name]
            elif name in ("to", "astype", "type") and found:
                dtype = _CASTS.get(found[1], found[1])
            elif name not in _SAME and not (name == "to" and _DEVICE.fullmatch(arguments)):
                raise _computed(text, method.start(), method[0].strip(), "after")
        except ValueError as error:
            if isinstance(error, QuantError):
                raise
            raise QuantError(
                f"{short(method[0].strip())} at {place(text, method.start())} does not fit {values.size} "
                "numbers; write the shape that they have."
            ) from None
        end = method.end()
    _check_end(text, view, end, inside)
    return Bracketed(values, dtype, read.note)


def _check_end(text: str, view: str, end: int, inside: bool) -> None:
    """Raise if an operator or an index follows the numbers."""
    tail = view[end : end + _BEFORE]
    tail = tail if inside else tail.partition("\n")[0]
    word = tail.lstrip()[:1]
    position = end + len(tail) - len(tail.lstrip())
    if not inside and (more := re.match(r"\s*,\s*([+-]?\.?\d\S*)", tail)):
        where = place(text, end + more.start(1))
        raise QuantError(
            f"{short(more[1])} at {where} follows the numbers; paste one tensor, or write it in its brackets."
        )
    if word and (word in _COMPUTES + "=>" or (word in "[." and re.match(r"\[|\.\w", tail))):
        raise _computed(text, position, tail.strip()[:20], "after")


def _computed(text: str, position: int, what: str, where: str) -> QuantError:
    if what == "*" and where == "before":
        what = f"There is a factor before the numbers ('*' at {place(text, position)})"
    else:
        what = f"{short(what)} at {place(text, position)}, {where} the numbers, computes something from them"
    return QuantError(f"{what}; run the code and paste what it prints.")
