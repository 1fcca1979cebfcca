"""What a format says of a weight: its fields, what a code means, and its value as an expression.

The expression is of its level and its parameters, with the library's roundings.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, lru_cache
from typing import Any, Literal, Self

import torch
from torch import Tensor

from quantcore.checkpoints.containers.stored import Pieces, StoredTensor
from quantcore.checkpoints.protocol.fields import Field, Rows
from quantcore.checkpoints.protocol.kinds import FieldView
from quantcore.checkpoints.protocol.reading import Reading
from quantcore.checkpoints.statement import Statement
from quantcore.errors import QuantError
from quantcore.expressions import Expression, Let, Name, to
from quantcore.formats import FloatFormat, Format, small_float
from quantcore.granularity import Blocks, Granularity, Shape

# roles of fields, as golden checkpoints name them; a format may add its own
CODES, SCALE, ZERO_POINT, MIN, GROUP_INDEX = "codes", "scale", "zero_point", "min", "g_idx"
Q, S, Z, M = (Name(role) for role in (CODES, SCALE, ZERO_POINT, MIN))
DOUBLE_SCALE = "double_scale"  # a scale of float64, of which the effective scale is the nearest float32
VALUE = "w"  # the name of the value in formulas
PLAIN: Expression = Let(VALUE, Q)  # the value of a weight whose stored numbers are its values
# the names of roles in formulas; a layout may have others
SYMBOLS = {
    CODES: "q", SCALE: "s", ZERO_POINT: "z", GROUP_INDEX: "g", "scale_code": "sc", "global_scale": "s_global",
    "quant_map": "v", "nested_absmax": "outer", "nested_quant_map": "inner", "min_code": "mc",
    "grid_index": "i", "sign_index": "signs", "shift_sign": "shift",
    DOUBLE_SCALE: "s64",
}  # fmt: skip


@lru_cache(maxsize=1024)  # one object for all weights of a format: how it is computed is planned once
def value_of(
    level: Expression,
    decoding: str,
    shifted: bool,
    added: str,
    sign: int,
    most: float,
    dtype: torch.dtype | None,
    each: bool,
) -> Expression:
    """Return (level - z) · s, or what the library computes instead.

    Args:
        decoding: "" without a scale, else how it is used.
        shifted: whether a zero point is subtracted.
        added: the role that is added after the multiplication, or subtracted if ``sign`` is -1; "" if there
            is none.
        most: the element's largest value.
        dtype: to round to, after each operation or once; None for float32.
    """

    def step(found: Expression, name: str) -> Expression:
        if each and dtype is not None:
            return Let(name, to(dtype)(found), "rounded after each operation")
        return Let(name, found) if name == VALUE else found

    if not decoding:
        value = step(level, VALUE)
    elif added:
        product, other = step(level * S, "product"), Z if added == ZERO_POINT else M
        value = step(product + other if sign > 0 else product - other, VALUE)
    else:
        found = step(level - Z, "difference") if shifted else level
        if decoding == "in_double":
            return Let(VALUE, to(torch.float32)(to(torch.float64)(found) * Name(DOUBLE_SCALE)))
        scaled = found / S if decoding == "divided" else found * S
        value = step(scaled * float(torch.tensor(1.0) / most) if decoding == "of_largest" else scaled, VALUE)
    return value if each else rounded_to(value, dtype)


def rounded_to(value: Expression, dtype: torch.dtype | None) -> Expression:
    """Return a value rounded once; None for float32."""
    return value if dtype is None else Let(VALUE, to(dtype)(value), "the library's output dtype")


@cache
def float_level(element: FloatFormat) -> Expression:
    """Return the value of the bits of a small float."""
    return Let("v", small_float(element)(Q))


@dataclass(frozen=True)
class GroupOrder:
    """What a config says of the order in which columns were quantized, and so of an unsorted group index.

    ``option``: as the config says it; ``unsorted``: what an unsorted index means if the config says so,
    ``unsaid``: if it does not; ``said``: whether it does.
    """

    option: str
    unsorted: str
    unsaid: str
    said: bool = False


class _WithProperties:
    """Gives a record with slots a dictionary, for cached properties: most records never make it."""


@dataclass(frozen=True, eq=False, slots=True)
class Record(_WithProperties):
    """How one weight is stored, as its format says it; `layout.Layout` adds what follows.

    ``name``: of the weight, such as ``model.layers.0.self_attn.q_proj.weight``;
    ``shape``: logical, [out, in] for a linear layer;
    ``dtype``: the library's output dtype, to which values are rounded;
    ``pieces``: the stored tensors by their names within the module (``qweight``);
    ``fields``: of each role, "codes" is one of them;
    ``format_name``: ``gptq``;
    ``storage``: how it is stored, in words: ``gptq int4 per_group(128) asymmetric``;
    ``coded``: what a code is, or why there are none, or a function that reads it;
    ``granularity``: which elements share a scale, with a group index as if a group's columns were adjacent;
    ``is_symmetric``: whether the zero point is the middle of the codes, or there is none; None: whether there
        is neither a zero point nor a min.

    The value of an element:
    ``decoding``: its level times the scale ("scaled"), or divided by it; "in_double": the product in float64,
        rounded once to float32; "of_largest": times the scale, which is then the largest magnitude, times 1 /
        the element's max;
    ``added``: a role that is added (or with -1 subtracted) after the multiplication; without it, a zero point
        is subtracted before;
    ``level``: what a code stands for;
    ``level_at``: of one element, if it differs;
    ``derived``: parameters that are computed from several stored numbers;
    ``divides_by``: the role of the one that divides;
    ``rounds_each``: whether the library rounds to its output dtype after each operation, not only at the end;
    ``own_value``: the value, if it is none of these.

    ``columns``: the number of groups whose elements take turns in the flat weight;
    ``row_per_group``: whether parameters are stored with a row per group;
    ``in_codes``: roles that codes are made of;
    ``symbols``: names in formulas;
    ``block_type``: of ggml;
    ``remarks``: what was decided against the config, or because no file says it;
    ``more``: what else, if it must be read;
    ``checks``: what the format's own parameters say;
    ``group_order``: of the columns, if the format has a group index;
    ``rivals``: yields other readings of the same bytes;
    ``narrowed``: the dtype that readers round to, although the format defines float32;
    ``of_part``: the layout of a part of its stored tensor, where rows are ranges of bytes.

    Faster or other ways, equal bit for bit:
    ``computed``: parameters by role, (rows of blocks) -> numbers; a changed layout has another's here;
    ``fast``: (layout, rows, out) -> values before rounding;
    ``write``: numbers by role -> bytes by name;
    ``kept``: what `stored` returns.
    """

    name: str
    shape: Shape
    dtype: torch.dtype
    pieces: Pieces
    fields: Mapping[str, Field]
    format_name: str
    storage: str
    coded: Format | str | Callable[[], Format | str]
    granularity: Granularity
    is_symmetric: bool | None = None
    decoding: Literal["scaled", "divided", "in_double", "of_largest"] = "scaled"
    added: tuple[str, Literal[1, -1]] | None = None
    level: Expression = Q
    divides_by: str = ""
    level_at: Callable[[tuple[int, ...]], Expression] | None = None
    derived: Mapping[str, Expression] = field(default_factory=dict)
    rounds_each: bool = False
    own_value: Expression | None = None
    columns: int = 0
    row_per_group: bool = False
    in_codes: frozenset[str] = frozenset((CODES,))
    symbols: Mapping[str, str] = field(default_factory=dict)
    remarks: tuple[Statement, ...] = ()
    more: Callable[[Any], tuple[Statement, ...]] | None = None
    checks: Callable[[Any], Iterator[Statement]] | None = None
    group_order: GroupOrder | None = None
    rivals: Callable[[Any], Iterator[Reading]] | None = None
    narrowed: torch.dtype | None = None
    block_type: str = ""
    of_part: Callable[[StoredTensor], Any] | None = None
    computed: Mapping[str, Callable[[Rows], Tensor]] = field(default_factory=dict)
    fast: Callable[[Any, Rows, Tensor | None], Tensor] | None = None
    write: Callable[[Mapping[str, Tensor]], dict[str, bytes]] | None = None
    kept: Callable[[Any], dict[str, Tensor]] | None = None

    def changed(self, **changes: Any) -> Self:
        """Return the record with other values."""
        return replace(self, **changes)

    def with_field(self, role: str, **changes: Any) -> Self:
        """Return the record with a field that reads its bytes in another way."""
        return replace(self, fields={**self.fields, role: changed_field(self.fields[role], changes)})

    def without(self, role: str) -> Self:
        """Return the record without one of its fields."""
        return replace(self, fields={key: kept for key, kept in self.fields.items() if key != role})

    @cached_property
    def element(self) -> Format:
        """What a code is: an integer, the bits of a small float, or an index into a codebook.

        Raises:
            QuantError: there are no codes.
        """
        coded = self.coded() if callable(self.coded) else self.coded
        if isinstance(coded, str):
            raise QuantError(coded)
        return coded

    @property
    def is_plain(self) -> bool:
        """Whether the stored numbers are the values."""
        return self.own_value is PLAIN

    @property
    def holds_values(self) -> bool:
        """Whether the file holds values, or what they are computed from, but no codes."""
        return self.own_value is not None

    @property
    def symmetric(self) -> bool:
        """Whether the zero point is the middle of the codes, or there is none."""
        if self.is_symmetric is not None:
            return self.is_symmetric
        return ZERO_POINT not in self.fields and MIN not in self.fields

    @property
    def num_bytes(self) -> int:
        """Bytes that its stored tensors take."""
        return sum(piece.num_bytes for piece in self.pieces.values())

    @cached_property
    def blocks(self) -> Blocks:
        """The layout of the weight in blocks."""
        return Blocks.of(self.granularity, self.shape)

    def symbol(self, role: str) -> str:
        """Return the name of one of its numbers in formulas."""
        if role == SCALE and self.decoding == "of_largest":
            return "amax"
        return self.symbols.get(role) or SYMBOLS.get(role, role)

    def expression(self, rounded: bool = True, level: Expression | None = None) -> Expression:
        """Return the value of an element: from its level, its parameters and the roundings of the library.

        Args:
            rounded: round to the output dtype; otherwise the same expression stays in float32.
            level: of an element, if not that of all.
        """
        dtype = None if self.is_plain or self.dtype == torch.float32 or not rounded else self.dtype
        if self.own_value is not None:
            return rounded_to(self.own_value, dtype)
        role, sign = self.added or ("", 1)
        most = self.element.symmetric_max if self.decoding == "of_largest" else 1.0
        scaled = SCALE in self.fields or SCALE in self.derived
        shifted = ZERO_POINT in self.fields and not role
        decoding, level = self.decoding if scaled else "", level or self.level
        return value_of(level, decoding, shifted, role, sign, most, dtype, self.rounds_each)


def changed_field(field: Field, changes: Mapping[str, Any]) -> Field:
    """Return a field with other attributes; those of a view are the attributes of what it views."""
    if isinstance(field, FieldView):
        return replace(field, field=changed_field(field.field, changes))
    return replace(field, **changes)  # type: ignore[type-var]


def words(format_name: str, *parts: Any) -> str:
    """Join the words of `Layout.storage`; empty ones are left out."""
    return " ".join(str(part) for part in (format_name, *parts) if part)
