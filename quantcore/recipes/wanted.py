"""What a tensor is to become: a scheme or a type of ggml, and what of it a tool is told."""

import re
from dataclasses import dataclass
from functools import lru_cache

from quantcore.checkpoints.ggml import BLOCK_TYPES
from quantcore.errors import QuantError
from quantcore.formats import CodebookFormat, FloatFormat, IntFormat
from quantcore.granularity import Granularity, PerFlatGroup, PerGroup
from quantcore.layerwise import AS_STORED
from quantcore.range_setting import MinMax
from quantcore.recipes.ftypes import BLOCKS, FLOATS
from quantcore.scheme import PRESETS, Scheme, as_scheme, bits_per_element

_SHAPE = (256, 1024)  # by which bits per element are compared


@dataclass(frozen=True)
class StorageKind:
    """What tools are told of a scheme: rounding and the formula of the scale are their own.

    ``format``: such as "int4" or "e4m3fn"; ``scales``: the format of quantized scales, "" if they are floats.
    """

    format: str
    symmetric: bool
    granularity: Granularity
    scales: str = ""

    @property
    def bits(self) -> int:
        """Bits of an integer; 0 for other formats."""
        return int(self.format[3:]) if re.fullmatch(r"int\d+", self.format) else 0

    @property
    def group_size(self) -> int:
        """Elements of a group along the last axis; 0 for other granularities."""
        is_group = isinstance(self.granularity, PerGroup) and self.granularity.axis == -1
        return self.granularity.size if is_group else 0  # type: ignore[union-attr]


@dataclass(frozen=True)
class Wanted:
    """What a tensor is to become: ``text`` as it was given.

    ``scheme``: None for types of ggml that are no preset; ``ggml``: the type of ggml, "" if it is none;
    ``kind``: None if a tool can't be told of it.
    """

    text: str
    scheme: Scheme | None
    ggml: str
    kind: StorageKind | None

    @property
    def code_bits(self) -> float:
        """Bits of a code."""
        if self.scheme is not None:
            return self.scheme.format.bits
        found = re.search(r"\d", self.ggml)
        return int(found[0]) if found else 16

    @property
    def bits(self) -> float:
        """Bits per element of a large matrix, with scales and zero points."""
        if self.ggml:
            size, elements = BLOCKS[self.ggml]
            return 8 * size / elements
        assert self.scheme is not None
        return bits_per_element(self.scheme, _SHAPE)


def wanted(value: Scheme | str) -> Wanted | None:
    """Read a scheme, its text, the name of a preset, or a type of ggml; None for what stays as it is stored.

    Raises:
        QuantError: it is none of these.
    """
    return _wanted(value) if isinstance(value, str | Scheme) else _wanted(as_scheme(value))


@lru_cache(1 << 10)  # hundreds of tensors take few schemes
def _wanted(value: Scheme | str) -> Wanted | None:
    if isinstance(value, str):
        name = value.strip()
        if name == AS_STORED:
            return None
        if name.upper() in (*BLOCK_TYPES, *FLOATS):
            scheme = PRESETS.get(f"gguf.{name.upper()}")
            return Wanted(name.upper(), scheme, name.upper(), None)
    scheme = as_scheme(value)
    preset = next((name for name, own in PRESETS.items() if own == scheme), "")
    ggml = preset.removeprefix("gguf.") if preset.startswith("gguf.") else ""
    return Wanted(preset or str(scheme), scheme, ggml, None if ggml else _kind_of(scheme))


def _kind_of(scheme: Scheme) -> StorageKind | None:
    """Return what tools are told; None for what they have no word for, such as a searched range."""
    fmt, inner = scheme.format, scheme.scales
    if not isinstance(scheme.range_setting, MinMax) or isinstance(scheme.granularity, PerFlatGroup):
        return None
    if isinstance(fmt, CodebookFormat) or getattr(fmt, "narrow", False):
        return None
    name = str(fmt) if isinstance(fmt, FloatFormat) else f"int{fmt.bits}"
    scales = ""
    if inner is not None:
        scales = "e8m0" if inner.format.bits == 8 and getattr(inner.format, "mantissa", 3) == 0 else ""
        scales = scales or str(inner.format)
    return StorageKind(name, scheme.symmetric, scheme.granularity, scales)


def nearest_of(given: Wanted, menu: tuple[str, ...]) -> str:
    """Return the scheme of a menu with the nearest bits of a code, then of the same kind and bits in all."""

    def traits(one: Wanted) -> tuple[object, ...]:
        if one.scheme is None:
            return IntFormat, PerGroup, True
        return type(one.scheme.format), type(one.scheme.granularity), one.scheme.symmetric

    def distance(text: str) -> tuple[float, ...]:
        other = wanted(text)
        assert other is not None
        changes = [own != its for own, its in zip(traits(given), traits(other), strict=True)]
        return abs(given.code_bits - other.code_bits), *changes, abs(given.bits - other.bits)

    return min(menu, key=distance)


def check_width(name: str, shape: tuple[int, ...] | None, size: int, tool: str) -> None:
    """Check that groups divide the rows of a tensor, if its shape is known.

    Raises:
        QuantError: they do not.
    """
    if shape and size and shape[-1] % size:
        raise QuantError(
            f"{name} has rows of {shape[-1]:,}, which groups of {size} do not divide, as {tool} needs; "
            "choose another group size for it, or leave it as stored."
        )
