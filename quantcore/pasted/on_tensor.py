"""Pasted code on the visitor's tensor: each line's values, the codes, and those of the intended scheme."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from quantcore.analysis import errors
from quantcore.errors import QuantError
from quantcore.formats import IntFormat
from quantcore.numerics import as_float32
from quantcore.pasted.bounds import NUMBERS, OverLimitError
from quantcore.pasted.chain import MOST, Chain, Flags, origin
from quantcore.pasted.checks import check_on
from quantcore.pasted.evaluation import CodeInputs
from quantcore.pasted.intended import intended, of_each, right_codes
from quantcore.pasted.kinds import CodeFinding
from quantcore.pasted.own import is_own, start
from quantcore.pasted.quantizer import by_place
from quantcore.pasted.read import CodeReading
from quantcore.pasted.source import parse
from quantcore.pasted.values import OWN, Val
from quantcore.pasted.walk import Walk, evaluate
from quantcore.quantization import Quantized
from quantcore.scheme import Scheme

_FEWEST = 1 << 8  # elements of the smallest block that is tried
_RUN, _RUN_OF_ROWS = 128, 16  # neighbours that are drawn together, along the last axis and along others

# what changes a tensor's shape and leaves its elements in their order
_IN_ORDER = (
    "reshape",
    "view",
    "reshape_as",
    "view_as",
    "flatten",
    "ravel",
    "squeeze",
    "unsqueeze",
    "expand_dims",
)


@dataclass(frozen=True)
class LineValue:
    """What a line assigned: ``shape`` and type; its lowest, its highest and the picked value, if any."""

    line: int
    name: str
    shape: tuple[int, ...]
    dtype: str
    low: float
    high: float
    picked: float | None


@dataclass(frozen=True, eq=False)
class Against:
    """What a code gives, compared with the intended scheme, whose codes are ``right_codes``.

    ``wrong_cells``: a mask of the codes or dequantized values that differ by more than rounding; ``too_far``:
    of the values further from x than half a step of the scheme and than the scheme's x̂; ``outside``: how
    many codes lie outside the scheme's format because no cast wrapped them around; ``sqnr_db``: of the code
    and of the scheme, in dB.
    """

    scheme: Scheme
    right_codes: Tensor
    wrong_cells: Tensor
    too_far: Tensor
    outside: int
    sqnr_db: tuple[float, float]


@dataclass(frozen=True, eq=False)
class Shown:
    """A quantizer on a tensor ``x``, which is the code's own if it is given one.

    ``codes``: float32, as the code stores them, wrapped where they overflow; ``dequantized``: x̂ of the code,
    or (codes - zero point) · scale if it does not dequantize; ``lines``: what each line assigned;
    ``against``: the comparison with the intended scheme, or ``why`` there is no such scheme; ``findings``:
    mistakes that show on this tensor, if it is not the code's own, whose mistakes the reading has.
    """

    x: Tensor
    codes: Tensor
    dequantized: Tensor
    lines: tuple[LineValue, ...]
    against: Against | None
    why: str
    findings: tuple[CodeFinding, ...] = ()


def block_of(x: Tensor, most: int = MOST) -> tuple[Tensor, list[Tensor]]:
    """Return at most ``most`` elements of a tensor, of the same rank, and where they are along each axis.

    They are always the same. Of an axis that is too long, runs of neighbours are drawn, besides the first, so
    that groups stay whole.
    """
    lengths, generator = list(x.shape), torch.Generator().manual_seed(0)
    while math.prod(lengths) > most:
        axis = lengths.index(max(lengths))
        lengths[axis] = max(-(-lengths[axis] // 2), lengths[axis] * most // math.prod(lengths))
    places = []
    for axis, (n, length) in enumerate(zip(x.shape, lengths, strict=True)):
        longest = _RUN if axis == x.ndim - 1 else _RUN_OF_ROWS
        run = n if length == n else 1 << (min(max(length // 2, 1), longest).bit_length() - 1)
        drawn = 1 + torch.randperm(max(n // run, 1) - 1, generator=generator)[: length // run - 1]
        starts = torch.cat([torch.zeros(1, dtype=torch.int64), drawn.sort().values]) * run
        places.append((starts[:, None] + torch.arange(run)).flatten())
        x = x if length == n else x.index_select(axis, places[-1].to(x.device))
    return x, places


def show_code(
    reading: CodeReading,
    place: int,
    x: object,
    element: tuple[int, ...] = (),
    handed: tuple[float, int] | None = None,
) -> Shown:
    """Evaluate the code on a tensor or a block of it; compare the quantizer at ``place`` with its scheme.

    Args:
        element: the index whose value each line shows, if it is in the block.
        handed: scale and zero point for code that computes none; by default those of int8 asymmetric.

    Raises:
        QuantError: the code fails on x, divides by 0, takes too long, or x is empty or not finite.
    """
    x = _finite(x)
    q, shape = reading.quantizers[place], x.shape
    walk, places = _evaluated(reading.text, x, handed, q.flags)
    x = walk.given.x
    chain = by_place(walk.vals).get(q.place)
    if chain is not None and is_own(chain):
        x = start(chain).numbers.float()
        shape, places = x.shape, [torch.arange(n) for n in x.shape]
    chain = _reached(chain, walk, x)
    codes, x_hat = chain.codes[-1].numbers.reshape(x.shape).float(), _x_hat(chain, x.shape)
    element = tuple(i + n if i < 0 else i for i, n in zip(element, shape, strict=False))
    inside = [p.eq(i).nonzero().flatten().tolist() for p, i in zip(places, element, strict=False)]
    lines = tuple(_lines(walk, x, tuple(i for each in inside for i in each), origin(chain.data)))
    against, why = None, ""
    try:
        right = intended(q, chain, tuple(x.shape), walk)
        against = _against(right, x, codes, _compared(chain, x_hat), chain.cast is not None)
    except QuantError as error:
        why = str(error)
    found = () if is_own(chain) else check_on(q, chain, "this tensor")
    source = reading.text.split("\n")
    findings = (replace(f, quantizer=place, source=source[f.line - 1].strip()[:200]) for f in found)
    return Shown(x, codes, x_hat, lines, against, why, tuple(findings))


def _reached(chain: Chain | None, walk: Walk, x: Tensor) -> Chain:
    """Return the quantizer if it gives one finite code per element of ``x``; else say why it does not."""
    if chain is not None and not is_own(chain) and chain.x.numel() < x.numel():
        raise QuantError(
            "The code quantizes the tensor in several parts, so its codes can't be shown as one map."
        )
    if chain is None or chain.codes[-1].numbers.numel() != x.numel():
        unread = (f"Line {n}: on a tensor of shape {tuple(x.shape)}, {why}" for n, why, _ in walk.unread)
        raise QuantError(
            f"{next(unread, 'On this tensor the code does not reach its codes')}; choose another tensor."
        )
    if not bool(chain.codes[-1].numbers.isfinite().all()):
        raise QuantError(
            "On this tensor the code divides by a scale of 0; choose a tensor with different values."
        )
    return chain


def _x_hat(chain: Chain, shape: torch.Size) -> Tensor:
    """Return what the code dequantizes, or (codes - zero point) · scale if it does not do so."""
    x_hat = (chain.values - chain.zero) * chain.factor - chain.shift
    in_order = all(step.name in _IN_ORDER for step in chain.back if step.op == "shape")
    same = chain.end is not None and chain.end.value.shape == chain.codes[-1].value.shape
    if chain.end is not None and (same or (in_order and chain.end.numbers.numel() == shape.numel())):
        x_hat = chain.end.numbers
    return x_hat.reshape(shape).float()


def _compared(chain: Chain, x_hat: Tensor) -> Tensor:
    """Return ``x_hat`` of what the scheme quantizes, before the code shifts it and gives it its signs."""
    compared = x_hat + (torch.zeros_like(chain.values) + chain.shift).reshape(x_hat.shape).float()
    signs_return = any(step.op == "signed" for step in chain.back) and bool((chain.x >= 0).all())
    return compared.abs() if signs_return else compared


def sample(x: object, element: tuple[int, ...]) -> tuple[Tensor, tuple[int, ...]]:
    """Return the block that stands for a tensor in `show_code`, and an index in it; () if it is not there.

    Raises:
        QuantError: x is empty or not finite.
    """
    block, places = block_of(_finite(x))
    within = [p.eq(i).nonzero().flatten().tolist() for p, i in zip(places, element, strict=False)]
    return block.contiguous(), tuple(each[0] for each in within) if all(within) else ()


def _finite(x: object) -> Tensor:
    x = as_float32(x)
    if not x.numel() or not bool(x.isfinite().all()):
        raise QuantError(
            "The tensor contains NaN or infinity, or is empty; choose one whose values are all finite."
        )
    return x


def _against(right: Quantized, x: Tensor, codes: Tensor, x_hat: Tensor, stored: bool) -> Against:
    """Compare; ``x_hat``: of what the scheme quantizes, which is x or what the code makes of it first;
    ``stored``: whether the codes are cast to a type."""
    fmt, outside = right.scheme.format, torch.zeros_like(codes, dtype=torch.bool)
    if isinstance(fmt, IntFormat) and not stored:
        outside = (codes < fmt.qmin) | (codes > fmt.qmax)
    moved = (x_hat - right.dequantized).abs() > 1e-5 * (x.abs() + x.abs().amax())
    # x / s, x̂ and the error are each rounded once to float32
    error, room = (right.x - x_hat).abs(), right.x.abs() * 2.0**-22
    too_far = (error > of_each(right.scale, right).abs() / 2 + room) & (error > right.error.abs() + room)
    sqnr_db = errors(right.x, x_hat).sqnr_db, errors(right.x, right.dequantized).sqnr_db
    expected = right_codes(right)
    wrong = codes.ne(expected.float()) | moved
    return Against(right.scheme, expected, wrong, too_far, int(outside.sum()), sqnr_db)


def _evaluated(
    text: str, x: Tensor, handed: tuple[float, int] | None, flags: Flags, most: int = MOST
) -> tuple[Walk, list[Tensor]]:
    """Evaluate the code on the largest block of the tensor that it can be evaluated on, and where that is."""
    block, places = block_of(x, most)
    try:
        return evaluate(CodeInputs(*parse(text), block.contiguous(), handed, flags)), places
    except OverLimitError:
        if block.numel() <= _FEWEST:
            raise
    return _evaluated(text, x, handed, flags, most // 16)  # for code that loops over elements


def _lines(walk: Walk, x: Tensor, element: tuple[int, ...], start: Val) -> Iterator[LineValue]:
    """Yield what each line assigned, the last time it ran; ``start``: the tensor that is picked from."""
    last = {(line, name): val for line, name, val in walk.assigned}
    for (line, name), val in sorted(last.items(), key=lambda pair: pair[0][0]):
        if not isinstance(val.value, NUMBERS) or not val.numbers.numel():
            continue
        values, dtype = val.numbers, val.dtype or type(val.value).__name__
        other = origin(val).op == OWN and origin(val) is not start and values.ndim > 0  # such as a table
        try:
            same = values.numel() == x.numel()
            one = (values.reshape(x.shape) if same else values.broadcast_to(x.shape))[element]
            picked = None if one.ndim or other else float(one)
        except (RuntimeError, IndexError):  # no value belongs to the element
            picked = None
        low, high = float(values.min()), float(values.max())
        yield LineValue(line, name, tuple(values.shape), dtype, low, high, picked)
