"""What can go wrong between a library and the reader of its codes, and mistakes in computing them.

A `Corruption` says how codes differ from those of a scheme: mistakes in the arithmetic, then what was done to
the stored integers. The latter is undone before anything is compared, so codes always have the axes of the
original.
"""

import dataclasses
import itertools
import warnings
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from quantcore.conventions import KERNELS, Convention, Kernel, middle_of
from quantcore.formats import INT8, MAX_BITS, Format, IntFormat
from quantcore.granularity import block_shape, cells_of
from quantcore.matching.hypotheses.search_space import signed_bits
from quantcore.matching.inputs import read_original
from quantcore.mistakes import IN_CODES, MISTAKES, Kinds, Stage, codes_of_values, program_of
from quantcore.programs import DTYPE, Program, factor_of
from quantcore.qparams import QParams, choose_qparams
from quantcore.quantization import apply
from quantcore.scheme import Scheme
from quantcore.wording import sentence


@dataclass(frozen=True)
class Transposed:
    """Axis i of the codes is axis ``order[i]`` of the original."""

    order: tuple[int, ...]

    def undo(self, codes: Tensor) -> Tensor:
        """Return the codes on the axes of the original."""
        return codes.permute([self.order.index(i) for i in range(len(self.order))])

    @property
    def told(self) -> str:
        """The beginning of an answer."""
        if len(self.order) == 2:
            return f"The codes are {self}"
        return f"The axes of the codes are {self}".replace("axes permuted", "permuted")

    def __str__(self) -> str:
        return "transposed" if len(self.order) == 2 else f"axes permuted to {self.order}"


@dataclass(frozen=True)
class Reinterpreted:
    """Unsigned codes of ``bits`` bits read as signed (``signed``), or the reverse."""

    bits: int
    signed: bool

    def undo(self, codes: Tensor) -> Tensor:
        """Return the codes as they were stored."""
        count = 1 << self.bits
        if self.signed:
            return torch.where(codes < 0, codes + count, codes)
        return torch.where(codes >= count // 2, codes - count, codes)

    @property
    def told(self) -> str:
        """The beginning of an answer."""
        return sentence(str(self).replace(" read as ", " are read as "))

    def __str__(self) -> str:
        read, meant = ("signed", "unsigned") if self.signed else ("unsigned", "signed")
        return f"{meant} {self.bits}-bit codes read as {read}"


@dataclass(frozen=True)
class Lowered:
    """``by`` was subtracted from the codes, as 128 is from unsigned ones that int8 is to hold."""

    by: int

    def undo(self, codes: Tensor) -> Tensor:
        """Return the codes before the subtraction."""
        return codes + self.by

    @property
    def told(self) -> str:
        """The beginning of an answer."""
        return sentence(str(self))

    def __str__(self) -> str:
        return f"{self.by} is subtracted from the codes"


Stored = Transposed | Reinterpreted | Lowered

# Those that are choices of a convention
CHOICES = [kind for kind, mistake in IN_CODES.items() if mistake.choices]
ROUNDINGS = {kind for kind in CHOICES if "rounding" in IN_CODES[kind].choices}


def _of(stage: Stage, *searches: str) -> list[str]:
    """Return the mistakes of a stage, the likeliest first; ``searches``: those that are looked for so."""
    every = (kind for kind in IN_CODES if MISTAKES[kind].stage == stage)
    return [kind for kind in every if not searches or IN_CODES[kind].search in searches]


# Those after the arithmetic, with the zero_point, and in the range, which are part of the scheme's range
# setting
OVERFLOWS, ZERO_POINTS, RANGES = (frozenset(_of(stage)) for stage in ("overflow", "zero point", "range"))
# What a cast does: rules that differ only in ties change too few codes to be told apart from another mistake
_CASTS = [kind for kind in _of("rounding") if not IN_CODES[kind].choices["rounding"].startswith("half")]
# With scales computed as libraries do: single ones, and likely combinations
SINGLE: tuple[Kinds, ...] = tuple((kind,) for kind, mistake in IN_CODES.items() if mistake.search == "early")
COMBINED: tuple[Kinds, ...] = (
    *itertools.product(_of("zero point"), _of("overflow")),
    *itertools.product(_of("zero point"), _CASTS),
    *itertools.product(_CASTS, _of("overflow", "early")),
    *(("zero_point_left_out", cast, "wrapped") for cast in _CASTS),
    *((kind,) for kind, mistake in IN_CODES.items() if mistake.search == "late"),
)


@dataclass(frozen=True)
class Corruption:
    """``computed``: keys of `IN_CODES`; ``stored``: in the order in which they are undone."""

    computed: Kinds = ()
    stored: tuple[Stored, ...] = ()

    def undo(self, codes: Tensor) -> Tensor:
        """Return given codes as the scheme would store them, on the axes of the original."""
        for step in self.stored:
            codes = step.undo(codes)
        return codes

    def __str__(self) -> str:
        return ", ".join([*(IN_CODES[kind].title for kind in self.computed), *map(str, self.stored)])

    @property
    def told(self) -> tuple[str, ...]:
        """What went wrong, one sentence without a full stop for each mistake."""
        return (*(IN_CODES[kind].sentence for kind in self.computed), *(step.told for step in self.stored))

    def __bool__(self) -> bool:
        return bool(self.computed or self.stored)


NONE = Corruption()


def changed(scheme: Scheme, kinds: Kinds) -> Scheme:
    """Return the scheme with the mistakes that are choices of its convention."""
    choices = {name: value for kind in kinds for name, value in IN_CODES[kind].choices.items()}
    if not choices:
        return scheme
    return dataclasses.replace(scheme, convention=scheme.convention.changed(**choices))


def of_blocks(program: Program, params: QParams) -> dict[str, Tensor]:
    """Return what a program takes of each block, in block form: s or, if it multiplies, 1/s; and z."""
    factor, number = factor_of(program), params.scale
    if factor == "1/s":
        number = program.write("1/s", {"s": number}) if params.inverse is None else params.inverse
    return {factor: number, "z": params.zero_point.to(torch.float32)}


def subtracted_by_kernels(params: QParams, fmt: Format, c: Convention) -> QParams:
    """Return the parameters with the value of code 0 where the zero point is that of the middle code."""
    if not c.zero_point.is_middle:
        return params
    dtype = DTYPE[c.coding.coding_dtype]
    scale, zero_point = params.scale.to(dtype), params.zero_point.to(dtype)
    return replace(params, zero_point=(zero_point - scale * middle_of(fmt)).to(torch.float32))


def stored_corruptions(codes: Tensor, shape: tuple[int, ...]) -> list[Corruption]:
    """Return every possible corruption of the stored codes that can be undone, starting with none."""
    orders = [(), *_orders(tuple(codes.shape), shape)]
    if tuple(codes.shape) != shape:
        orders = orders[1:]
    turned: list[tuple[Stored, ...]] = [(Transposed(o),) if o else () for o in orders]
    reinterpreted: list[tuple[Stored, ...]] = [(), *((r,) for r in _reinterpretations(codes))]
    pairs = [Corruption((), a + b) for a, b in itertools.product(turned, reinterpreted)]
    return sorted(pairs, key=lambda d: len(d.stored))


def _orders(given: tuple[int, ...], shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return permutations of the axes that give the codes' shape; beyond 3 axes, only swaps of two."""
    rank = len(shape)
    if len(given) != rank:
        return []
    plain = tuple(range(rank))
    swaps = (tuple({a: b, b: a}.get(i, i) for i in plain) for a, b in itertools.combinations(plain, 2))
    every = itertools.permutations(plain) if rank <= 3 else swaps
    return [o for o in every if o != plain and tuple(shape[i] for i in o) == given]


def _reinterpretations(codes: Tensor) -> list[Reinterpreted]:
    low, high = int(codes.min()), int(codes.max())
    if low >= 0:
        bits = high.bit_length()  # fewer bits can't hold the codes, more would change none
        return [Reinterpreted(bits, signed=False)] if 2 <= bits <= MAX_BITS else []
    needed = max(2, signed_bits(low), signed_bits(high))
    return [Reinterpreted(b, signed=True) for b in sorted({needed, 8, 16}) if needed <= b <= MAX_BITS]


@dataclass(frozen=True, eq=False)
class ElementInputs:
    """The program of a scheme with mistakes, and what it starts from: one number per element.

    A fused kernel takes one scale and one zero_point.
    """

    program: Program
    kernel: Kernel
    numbers: dict[str, Tensor]

    def at(self, places: Tensor) -> "ElementInputs":
        """Return the elements at flat places."""

        def picked(number: Tensor) -> Tensor:
            one = self.kernel.fused and number.numel() == 1
            return number.reshape(1) if one else number.reshape(-1)[places]

        return ElementInputs(
            self.program, self.kernel, {name: picked(number) for name, number in self.numbers.items()}
        )

    def of(self, name: str) -> Tensor:
        """Return a result: s, z as they are used; u, which is rounded; v, the code before the clamp."""
        found: Tensor = self.program.write(name, self.numbers, torch.empty_like(self.numbers["x"]))
        return found


def reproduce(x: Any, scheme: Scheme, corruption: Corruption = NONE) -> Tensor:
    """Return the codes of a scheme with the corruption's mistakes in the arithmetic, on the original's axes.

    They are computed as the library does for x of its dtype.

    Raises:
        QuantError: the scheme does not fit x.
    """
    x = read_original(x)
    kinds = corruption.computed
    if not set(kinds) - {*CHOICES} - RANGES:  # the scheme has these mistakes itself
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return apply(x, scheme).codes
    fmt = scheme.format
    assert isinstance(fmt, IntFormat)
    values = element_inputs(x, scheme, choose_qparams(x, scheme), corruption).of("v")
    codes = codes_of_values(values, scheme.in_dtype(x.dtype).rules.coding, kinds, fmt)
    return codes.nan_to_num(0).to(torch.int32 if "unclamped" in kinds else fmt.dtype)


def element_inputs(
    x: Tensor, scheme: Scheme, params: QParams, corruption: Corruption = NONE
) -> ElementInputs:
    """Spread parameters over the elements; along the wrong axis, if that is the corruption."""
    rules, kinds = scheme.in_dtype(x.dtype).rules, corruption.computed
    kernel, program = KERNELS[rules.coding.kernel], program_of(rules.coding, kinds)
    params = subtracted_by_kernels(params, scheme.format, rules)
    numbers = {"s": params.scale, **of_blocks(program, params)}
    if not kernel.fused:
        shape = tuple(x.shape)
        block = block_shape(scheme.granularity, shape)
        if "quantized_twice" in kinds:
            numbers["s8"] = choose_qparams(x, Scheme(INT8, True, scheme.granularity)).scale
        if "other_axis" in kinds:
            numbers, block = {name: number.T for name, number in numbers.items()}, block[::-1]
        numbers = {name: cells_of(number, shape, block) for name, number in numbers.items()}
    return ElementInputs(program, kernel, {"x": x.float(), **numbers})
