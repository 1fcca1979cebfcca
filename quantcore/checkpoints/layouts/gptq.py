"""GPTQ releases: AutoGPTQ, GPTQModel, GPTQ-for-LLaMa.

Per module: ``qweight`` int32 [in*bits/32, out], codes along the input axis; ``qzeros`` int32 [groups,
out*bits/32], along the output axis; ``scales`` [groups, out]; ``g_idx`` int32 [in], the group of each input,
in any order if ``desc_act``. w = scales * (code - zero), in float32.

Source: GPTQModel f4c327a1, nn_modules/qlinear/__init__.py, utils/model_dequant.py and
utils/planar_packing.py.

The zero point: ``checkpoint_format`` "gptq", or none (v1), stores it minus 1; "gptq_v2" stores it. A v1 zero
of 0 is stored as 2^bits - 1, so readers add 1 modulo 2^bits. A symmetric release has zeros of 2^(bits-1)
everywhere: if its stored zeros contradict the version in its config, the zeros are believed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from quantcore.checkpoints.containers.stored import Pieces, StoredTensor
from quantcore.checkpoints.layouts.awq import NAMES, has_its_shape
from quantcore.checkpoints.packing import PackingOrder, dense, planar, unpack
from quantcore.checkpoints.protocol.config import Config, Patterns, flag, group_size, integer, section, text
from quantcore.checkpoints.protocol.fields import Field, Numbers, Place
from quantcore.checkpoints.protocol.kinds import Packed
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.checkpoints.protocol.reading import Reading, in_order, instead
from quantcore.checkpoints.protocol.record import CODES, GROUP_INDEX, SCALE, ZERO_POINT, GroupOrder, words
from quantcore.checkpoints.protocol.release import Release, attempt
from quantcore.checkpoints.statement import Facts, Statement, named
from quantcore.errors import QuantError
from quantcore.expressions import Expression, Let
from quantcore.formats import IntFormat
from quantcore.granularity import PerGroup
from quantcore.wording import short

BITS = range(2, 9)
ORDER = GroupOrder(
    "desc_act true",
    "(desc_act); readers that ignore g_idx get wrong values.",
    ", but the config says that desc_act is false; readers that trust it take the columns in order.",
)
_NO_CONFIG = ", and no config says desc_act; readers that take the columns in order get wrong values."
PLANAR = (5, 6, 7)  # only GPTQModel writes these widths, whatever version the config says
_V1_MISREAD = (
    "readers that expect gptq_v2 or don't know v1 (vllm#26092)", "Takes the stored zero point as it is",
)  # fmt: skip
_V2_MISREAD = (
    "readers that assume v1, as for a config that names no version (vllm#38966)",
    "Adds 1 to the stored zero point",
)  # fmt: skip


def find(release: Release) -> Iterator[Layout]:
    """Yield the weights of a GPTQ release."""
    patterns = Patterns()
    for module, pieces in release.modules_with(*NAMES, keep=(*NAMES, "g_idx")):
        if release.method or not has_its_shape(pieces):  # otherwise this is AWQ
            config = release.quantization
            yield attempt(f"{module}.weight", pieces, _with_overrides, module, pieces, config, patterns)


def _with_overrides(module: str, pieces: Pieces, config: Config, patterns: Patterns) -> Layout:
    """Return the layout with the overrides of the first pattern in the config's ``dynamic`` that matches.

    Source: GPTQModel, quantization/config.py, dynamic_get. A pattern after ``-:`` names modules left
    unquantized.
    """
    for key, overrides in section(config, "dynamic").items():
        if key.startswith("-:") or not isinstance(overrides, dict):
            continue
        if patterns.matches(key.removeprefix("+:"), module):
            config = {**config, **overrides}
            break
    return layout_of(module, pieces, config)


def layout_of(module: str, pieces: Pieces, config: Config) -> Layout:
    """Return the layout of one module.

    Raises:
        QuantError: the config names an unsupported version, or contradicts the shapes.
    """
    qweight, scales = pieces["qweight"], pieces["scales"]
    for name, piece in pieces.items():
        if len(piece.shape) != (1 if name == "g_idx" else 2):
            raise QuantError(
                f"{named(piece.name)} has shape {piece.shape}; GPTQ stores g_idx as a vector, "
                "and all else as matrices."
            )
    groups, rows = scales.shape
    columns = pieces["g_idx"].shape[0] if "g_idx" in pieces else None
    bits = integer(config, "bits", BITS)
    if bits is None:
        packed, codes = (qweight.shape[0], columns) if columns else (pieces["qzeros"].shape[1], rows)
        bits = packed * 32 // codes
    if bits is None or bits not in BITS:
        raise QuantError(
            f"Neither the config nor the shapes give the bits of {named(module)}; "
            "put config.json or quantize_config.json next to the file."
        )
    columns = columns or qweight.shape[0] * 32 // bits
    version = text(config, "checkpoint_format") or "gptq"
    if version not in ("gptq", "gptq_v2", "gptq_p"):
        raise QuantError(
            f"The checkpoint_format is {short(version)}; only gptq, gptq_v2 and gptq_p are supported."
        )
    size, remarks = group_size(config, ("group_size",), columns, groups, scales)
    symmetric, desc_act = flag(config, "sym") is True, flag(config, "desc_act") is True
    zeros = _Zeros(pieces["qzeros"], bits, version, symmetric, not config)
    symmetry = "symmetric" if symmetric else "asymmetric"
    storage = words("gptq", f"int{bits}", f"per_group({size})", symmetry, "desc_act" * desc_act)
    shape = (rows, columns)
    return Layout(
        f"{module}.weight", shape, torch.float32, pieces, _fields(shape, groups, pieces, zeros),
        "gptq", storage,
        IntFormat(bits, signed=False), PerGroup(size), symmetric,
        remarks=remarks, more=zeros.statements, checks=zeros.checks,
        group_order=replace(ORDER, said=desc_act, unsaid=ORDER.unsaid if config else _NO_CONFIG),
        rivals=zeros.rivals, narrowed=torch.float16,
    )  # fmt: skip


def _fields(shape: tuple[int, int], groups: int, pieces: Pieces, zeros: "_Zeros") -> dict[str, Field]:
    """Return codes, scales, zero points, and the group of each column."""
    found: dict[str, Field] = {
        CODES: Packed(pieces["qweight"], zeros.order, shape, axis=1, transposed=True),
        SCALE: Numbers(pieces["scales"], transposed=True),
        ZERO_POINT: Packed(
            pieces["qzeros"], zeros.order, (shape[0], groups), axis=0, transposed=True, offset=zeros.offset
        ),
    }
    if "g_idx" in pieces:
        if pieces["g_idx"].dtype != "I32":
            raise QuantError(f"{named(pieces['g_idx'].name)} does not hold one int32 per input.")
        found[GROUP_INDEX] = Numbers(pieces["g_idx"])
    return found


@dataclass(frozen=True)
class _Zeros:
    """The zero points of a weight; ``version``: its checkpoint_format; ``symmetric``: as the config says.

    ``unsaid``: whether there is no config: zeros that are all the middle of the codes are then those of v2.
    """

    piece: StoredTensor
    bits: int
    version: str
    symmetric: bool
    unsaid: bool = False

    @property
    def order(self) -> PackingOrder:
        """Codes packed densely in 32-bit words, or planar."""
        if self.version == "gptq_p" or self.bits in PLANAR:
            return planar(self.bits)
        return dense(self.bits, 32)

    @property
    def by_config(self) -> int:
        """What the file adds to zero points according to the config: -1 in v1, 0 in v2."""
        if self.unsaid and self._are_middle:
            return 0
        return -1 if self.version == "gptq" and self.bits not in PLANAR else 0

    def offset(self) -> int:
        """Return what the file adds to zero points; reads the first one if symmetric."""
        if not self.symmetric:
            return self.by_config
        away = self.first - self.middle
        return away if away in (-1, 0) else self.by_config

    @cached_property
    def _are_middle(self) -> bool:
        """Whether all stored zeros are the middle of the codes."""
        words = np.unique(self.piece.bits(()))
        return len(words) == 1 and bool((unpack(words, self.order, self.order.count) == self.middle).all())

    @property
    def middle(self) -> int:
        """The middle of the codes."""
        return 1 << (self.bits - 1)

    @property
    def first(self) -> int:
        """The first zero point, as stored."""
        row = self.piece.bits((slice(0, 1), slice(0, self.order.words_of(1))))[0]
        return int(unpack(row, self.order, 1)[0])

    def statements(self, layout: Layout) -> tuple[Statement, ...]:
        """Return a statement if the stored zeros contradict the version in the config."""
        if self.offset() == self.by_config:
            return ()
        zero_point = layout.fields[ZERO_POINT].read()
        if bool((zero_point != zero_point[0, 0]).any()):  # they are of neither version
            return ()
        said, truth = ("v1", "v2") if self.by_config else ("v2", "v1")
        facts: Facts = {
            "version": self.version,
            "said": said,
            "truth": truth,
            "bits": self.bits,
            "expected": self.middle + self.by_config,
            "stored": self.first,
        }
        words = (
            "{is} stored as {version} ({said}) according to the config, in which a symmetric {bits}-bit "
            "release has stored zeros of {expected}, but the first of {its} stored zeros is {stored}, as in "
            "{truth}; they are read as {truth}."
        )
        return (Statement("gptq_version", "error", words, facts),)

    def checks(self, layout: Layout) -> Iterator[Statement]:
        """Yield what zero points say on which readers disagree."""
        zero_point = layout.fields[ZERO_POINT].read()
        if not zero_point.numel():
            return
        middle, is_v1 = self.middle, self.by_config == -1
        if self.symmetric:
            others = zero_point != middle
            if bool(others.any()):
                words = (
                    "{is} symmetric according to the config, so every zero point should be {middle}, but "
                    "{zeros} ({share:%}) of {its} zero points have other values, such as {example}; kernels "
                    "for symmetric weights ignore all of them."
                )
                facts: Facts = {"middle": middle, "example": int(zero_point[others][0]), **_share(others)}
                yield Statement("zero_points_differ", "error", words, facts)
            return
        if is_v1 and bool((zero_point == middle + 1).all()):
            words = (
                "{stores} zeros of {middle} everywhere, the middle of the codes as v2 stores it, but the "
                "config says v1, so {its} zero points are {zero_point}; if the weights are wrong, set "
                "checkpoint_format to gptq_v2."
            )
            yield Statement("gptq_version", "warning", words, {"middle": middle, "zero_point": middle + 1})
        elif bool((zero_point == middle).all()):
            words = (
                "{is} asymmetric according to the config (sym is false), but every zero point is {middle}, "
                "so {it} {is} symmetric; the values are the same."
            )
            yield Statement("config_unused", "note", words, {"middle": middle, "says": "sym false"})
        wrapped = zero_point == 0
        if is_v1 and bool(wrapped.any()):
            words = (
                "{stores} {stored}, which is 0 in v1, for {zeros} ({share:%}) of {its} zero points; some "
                "readers add 1 without wrapping and get {unwrapped}, others carry into the next zero point. "
                "Store {it} as gptq_v2."
            )
            largest = (1 << self.bits) - 1
            facts = {"stored": largest, "unwrapped": largest + 1, **_share(wrapped)}
            # the zero point of weights that are all positive: what AutoGPTQ and GPTQModel write
            yield Statement("zero_point_wraps", "note", words, facts)

    def rivals(self, layout: Layout) -> Iterator[Reading]:
        """Yield the other readings: version of the zero points, how a stored 15 wraps, the group index."""
        if self.bits not in PLANAR and self.version != "gptq_p":
            v1 = self.offset() == -1
            reader, what = _V1_MISREAD if v1 else _V2_MISREAD
            other = layout.with_field(ZERO_POINT, offset=0 if v1 else -1)
            name = f"as GPTQ {'v2' if v1 else 'v1'}"
            yield Reading("gptq_version", name, reader, other, instead("z", what))
            if v1 and self.bits in (2, 4, 8):
                yield from self._carried(layout)
        if layout.group_index() is not None:
            reader = "readers that ignore g_idx, or trust a desc_act of false"
            yield in_order(layout.without(GROUP_INDEX), reader)

    def _carried(self, layout: Layout) -> Iterator[Reading]:
        own, largest = vars(layout.fields[ZERO_POINT]), (1 << self.bits) - 1
        own = {name: own[name] for name in ("piece", "order", "shape", "axis", "transposed")}
        for key, name, reader, kind, what in (
            ("zero_point_unwrapped", "1 added without wrapping",
             "AutoGPTQ's qlinear_cuda, llama.cpp's converter",
             Unwrapped, f"Reads a stored {largest} as {largest + 1}, not 0"),
            ("zero_point_carried", "1 added to the whole word", "GPTQModel's kernels",
             Carried, f"Lets a stored {largest} carry into the next zero point of its word"),
        ):  # fmt: skip
            other = layout.changed(fields={**layout.fields, ZERO_POINT: kind(**own)})
            yield Reading(key, name, reader, other, instead("z", what))


def _share(mask: Tensor) -> Facts:
    n = int(mask.sum())
    return {"zeros": n, "share": n / mask.numel()}


@dataclass(frozen=True)
class Unwrapped(Packed):
    """Zero points of v1 with 1 added without wrapping: a stored 15 becomes 16."""

    def _decode(self, codes: npt.NDArray[Any]) -> Tensor:
        return torch.from_numpy(codes.astype(np.int16) + np.int16(1))

    def meaning(self, bits: Expression, width: int, name: str) -> Expression:
        """Return the stored number plus 1."""
        return Let(name, bits + 1, "stored with 1 subtracted; 1 is added without wrapping")


@dataclass(frozen=True)
class Carried(Packed):
    """Zero points of v1 with 1 added to each by one addition to the word: a stored 15 carries over."""

    @property
    def addend(self) -> int:
        """The word with a 1 in the lowest bit of each code."""
        return int(sum(1 << shift for shift in range(0, self.order.word_bits, self.order.bits)))

    def _words(self, box: tuple[slice, ...]) -> npt.NDArray[Any]:
        found = super()._words(box)
        moved: npt.NDArray[Any] = found + found.dtype.type(self.addend)
        return moved

    def place(self, index: Sequence[int]) -> Place:
        """Return where a code and all lower ones in its word lie, since they may carry into it."""
        own, size = super().place(index), self.piece.itemsize
        start = self.piece.offset + (own.offset - self.piece.offset) // size * size
        top = max((byte - start) * 8 + bit for byte, bit in own.bits)
        return replace(own, bits=tuple((start + at // 8, at % 8) for at in range(top + 1)))

    def meaning(self, bits: Expression, width: int, name: str) -> Expression:
        """Return the bits of one code in the sum."""
        shift = width - self.order.bits
        summed = bits + (self.addend & (1 << width) - 1)
        note = "1 is added to all codes of the word at once"
        return Let(name, (summed >> shift if shift else summed) % (1 << self.order.bits), note)
