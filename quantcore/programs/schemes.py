"""The program of a scheme: from the range of a block to its scale and zero point, to a code and its value.

ŝ and ẑ are the scale and the zero point as stored, where that changes them. What is found for all blocks
together, such as scales that are quantized as a tensor themselves, is a line that one block can't compute.
"""

from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from quantcore.conventions import X
from quantcore.errors import QuantError
from quantcore.expressions import EQUAL, Expression, Name, Operation, Where, placed, without
from quantcore.formats import IntFormat
from quantcore.notation import write_call
from quantcore.numerics import rounding
from quantcore.programs.elements import DTYPE, before_code, cast, constants_of, decoding_of, to_code, to_value
from quantcore.programs.encoding import rounded_to
from quantcore.programs.parameters import range_program
from quantcore.programs.record import HALF, Program, ProgramLine
from quantcore.scheme import Scheme, as_scheme, in_dtype

_Q, _S, _Z = (Name(name) for name in "qsz")


def program(scheme: Scheme | str, dtype: torch.dtype = torch.float32) -> Program:
    """Return what a scheme's library computes for an element, from the range of its block to its value.

    It starts from ``x``, and from ``low`` and ``high``, the range of its block; from ``s`` and ``z`` if they
    are given, or from ``raw``, the scale that a search finds. ``q`` is the code, of a float or a codebook the
    value of the code, and ``x̂`` what it is dequantized to. `Program.run` computes them, from other numbers
    too, and `Program.changed` says what if a line were different. Some libraries compute a shorter last block
    differently.

    Args:
        dtype: of x.

    >>> print(program(Scheme.parse("uint4 asymmetric")))
    low = min(low, 0)  # the range includes 0
    high = max(high, 0)  # the range includes 0
    raw = (high - low) / N
    raw = high / N - low / N if raw is infinite else raw  # high - low may overflow
    replaced = |raw| < 1e-45  # the scale is too small
    s = 1 if replaced else raw
    z = qmin - round(low / s)
    z = clamp(z, 0, 15)  # it is a code
    z = -2147483648 if z is NaN else z  # NaN has no code
    u = x / s
    v = round(u)
    v = v + z
    q = clamp(v, 0, 15)
    x̂ = (q - z) · s
    >>> start = {"low": torch.tensor([0.0]), "high": torch.tensor([7.5]), "x": torch.tensor([3.1])}
    >>> program(Scheme.parse("uint4 asymmetric")).run(("q", "x̂"), start)
    [tensor([6.]), tensor([3.])]

    Raises:
        QuantError: the scheme's library refuses the dtype.
    """
    scheme = as_scheme(scheme)
    own = in_dtype(scheme, dtype)
    found: Program | None = own.kept.get("program")
    if found is None:
        starts, lines = _parameters(own)
        known = frozenset((*starts, *(line.name for line in lines)))
        constants = range_program(own).constants | constants_of(own.format, own.rules)
        if not own.format.has_zero_point:
            constants["z"] = 0.0
        given = (*starts, "x", *(["mean"] if own.rules.scale.center == "mean" else []))
        lines += _element(own, known)
        whole = Program(filter(_changes, lines), given, constants)
        wanted = ("low", "high", "s", "q", "x̂", *(["z"] if own.format.has_zero_point else []))
        found = own.kept["program"] = Program(whole.needed(wanted), given, constants)
    return found


def _changes(line: ProgramLine) -> bool:
    """Whether a line does something in this scheme: not where a range is left as it is."""
    return bool(line.why) or not (isinstance(line.of, Name) and line.of.name == line.name)


def _parameters(scheme: Scheme) -> tuple[tuple[str, ...], list[ProgramLine]]:
    """Return what the scale and the zero point are computed from, and their lines."""
    setting, lines = scheme.range_setting, range_program(scheme)
    if setting.gives_parameters:
        return ("s", "z") if scheme.format.has_zero_point else ("s",), []
    if not setting.searches_codes:
        moved = _of_tensor("z", "moved", _Z, f"by {write_call(setting)}")
        return ("low", "high"), [*lines.lines, *([moved] if setting.moves_zero_point else [])]
    if scheme.symmetric:
        return ("raw",), lines.needed(("s", "z"), known=("raw",))
    return ("raw", "z"), lines.needed(("s",), known=("raw",))


def _element(scheme: Scheme, known: frozenset[str]) -> Iterator[ProgramLine]:
    """Compute what is stored, the code and its value; ``known``: what is known of the block."""
    fmt, c, storage = scheme.format, scheme.rules, scheme.rules.storage
    searches = scheme.range_setting.searches_codes
    stored = yield from _stored(scheme)
    coded = stored
    if scheme.scales is not None and storage.quantize_with == "raw":
        coded = {} if known & {"low", "raw"} else {name: of for name, of in stored.items() if name == "z"}
    elif scheme.scales is not None and storage.quantize_with == "levels":
        why = "the scale's code times the scale of the scales before it is stored"
        yield _of_tensor("level", "level", _S, why)
        coded = stored | {"s": Name("level")}
    has_inverse = "1/s" in known if scheme.scales is None else _divides_levels(scheme)
    if searches and storage.quantize_with == "searched":
        yield _of_tensor("q", "searched", X, "the search has chosen it")
    else:
        yield from _placed(_code(scheme, has_inverse), coded)
    if searches and storage.zero_scale == "searched":
        why = "where the scale is stored as 0, the search has chosen it"
        line = _of_tensor("q", "searched", X, why)
        yield replace(line, of=Where(EQUAL(stored.get("s", _S), 0.0), 1, line.of, _Q))
    zero_dtype = DTYPE[c.zero_point.zero_point_dtype]
    if zero_dtype != torch.float32 and "low" in known and not scheme.symmetric:
        yield ProgramLine("ẑ", _Z, zero_dtype, "it is stored once the codes are computed")
        stored = {"z": Name("ẑ")} | stored
    decoding = decoding_of(c)
    if not {"divided": has_inverse, "of_largest": "high" in known}.get(decoding, True):
        decoding = "scaled"
    absent = [*([] if c.scale.center == "mean" else ["mean"]), *([] if fmt.has_zero_point else ["z"])]
    for line in _placed(to_value(c, decoding), stored):
        yield replace(line, of=without(line.of, *absent))


def _stored(scheme: Scheme) -> Generator[ProgramLine, None, dict[str, Expression]]:
    """Compute the scale and the minimum as they are stored; returns what stands for them."""
    if scheme.scales is None:
        return {}
    how = f"as a tensor: {scheme.scales}"
    found: dict[str, Expression] = {"s": Name("ŝ")}
    yield _of_tensor("ŝ", "quantized", _S, how)
    if _divides_levels(scheme):
        why = "(1 / the scale of the scales) / the value of the scale's code"
        yield _of_tensor("1/s", "inverse", _S, why)
    if scheme.rules.zero_point.is_value:
        yield _of_tensor("ẑ", "quantized", _Z, how)
        found["z"] = Name("ẑ")
    return found


def _divides_levels(scheme: Scheme) -> bool:
    """Whether 1/s is computed from the codes of the scales."""
    levels = scheme.scales is not None and not isinstance(scheme.scales.format, IntFormat)
    return levels and scheme.rules.scale.inverse == "of_levels"


def _code(scheme: Scheme, has_inverse: bool) -> Iterator[ProgramLine]:
    fmt, c = scheme.format, scheme.rules
    round_, stored = rounding(c.coding.rounding), scheme.scales is not None and not has_inverse
    yield from before_code(fmt, c, stored=stored, round_=round_, has_inverse=has_inverse)
    if not c.refuses_nonfinite:
        yield from cast(fmt, c)
    if isinstance(fmt, IntFormat):
        yield from to_code(fmt, c)
    else:
        yield ProgramLine("q", rounded_to(fmt, c, round_)(Name("u")), torch.float32, "the value of its code")


def _placed(lines: Iterable[ProgramLine], instead: Mapping[str, Expression]) -> Iterator[ProgramLine]:
    """Yield the lines with other names in place of some; an operation in half precision takes s as it is."""
    for line in lines:
        is_mixed = line.dtype in HALF and not isinstance(line.of, Name)
        yield replace(line, of=placed(line.of, instead), is_mixed=is_mixed)


def _of_tensor(name: str, call: str, of: Expression, why: str) -> ProgramLine:
    """Return the line of a name that is computed for the whole tensor."""

    def refuse(*operands: Any, out: Tensor | None = None) -> Tensor:
        raise QuantError(f"{name} is computed for the whole tensor, not for a block; give it to the program.")

    text = f"{call}({{0}})"
    return ProgramLine(name, Operation(text, text, text, refuse, refuse)(of), None, why)
