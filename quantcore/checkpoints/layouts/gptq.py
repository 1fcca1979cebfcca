"""GPTQ releases: AutoGPTQ, GPTQModel, GPTQ-for-LLaMa.

Per module: ``qweight`` int32 [in*bits/32, out], codes along the input axis; ``qzeros`` int32 [groups, out*bits/32],
along the output axis; ``scales`` [groups, out]; ``g_idx`` int32 [in], the group of each input, in any order if
``desc_act``. w = scales * (code - zero), in float32.

Source: GPTQModel f4c327a1, nn_modules/qlinear/__init__.py, utils/model_dequant.py and utils/planar_packing.py.

The zero point: ``checkpoint_format`` "gptq", or none (v1), stores it minus 1; "gptq_v2" stores it. A v1 zero of 0 is
stored as 2^bits - 1, so readers add 1 modulo 2^bits. A symmetric release has zeros of 2^(bits-1) everywhere: if its
stored zeros contradict the version in its config, the zeros are believed.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch

from quantcore.checkpoints.containers.stored import StoredTensor
from quantcore.checkpoints.layouts.awq import has_its_shape
from quantcore.checkpoints.packing import Order, dense, planar, unpack
from quantcore.checkpoints.problem import named
from quantcore.checkpoints.protocol.config import flag, group_size, integer, section, text
from quantcore.checkpoints.protocol.fields import Field, Numbers
from quantcore.checkpoints.protocol.layout import CODES, GROUP_INDEX, SCALE, ZERO_POINT, Layout, words
from quantcore.checkpoints.protocol.packed import Packed
from quantcore.checkpoints.protocol.patterns import Patterns
from quantcore.checkpoints.protocol.release import Release, attempt
from quantcore.checkpoints.statement import Facts, Statement
from quantcore.errors import QuantError
from quantcore.formats import Format, IntFormat
from quantcore.granularity import Granularity, PerGroup
from quantcore.tensors import short

BITS = range(2, 9)
PLANAR = (5, 6, 7)  # only GPTQModel writes these widths, whatever version the config says


def find(release: Release) -> Iterator[Layout]:
    """Yield the weights of a GPTQ release."""
    patterns = Patterns()
    for module, pieces in release.modules_with("qweight", "qzeros", "scales"):
        own = {k: pieces[k] for k in ("qweight", "qzeros", "scales", "g_idx") if k in pieces}
        if not release.method and has_its_shape(own):  # this is AWQ
            continue
        yield attempt(
            f"{module}.weight", own, partial(_with_overrides, module, own, release.quantization, patterns)
        )


def _with_overrides(
    module: str, pieces: Mapping[str, StoredTensor], config: Mapping[str, Any], patterns: Patterns
) -> "Gptq":
    """Return the layout with the overrides that ``dynamic`` in the config gives for the first pattern that matches.

    Source: GPTQModel, quantization/config.py, dynamic_get. A pattern after ``-:`` names modules left unquantized.
    """
    for key, overrides in section(config, "dynamic").items():
        if key.startswith("-:") or not isinstance(overrides, dict):
            continue
        if patterns.matches(key.removeprefix("+:"), module):
            config = {**config, **overrides}
            break
    return layout_of(module, pieces, config)


def layout_of(module: str, pieces: Mapping[str, StoredTensor], config: Mapping[str, Any]) -> "Gptq":
    """Return the layout of one module.

    Raises:
        QuantError: the config names an unsupported version, or contradicts the shapes.
    """
    qweight, scales = pieces["qweight"], pieces["scales"]
    for name, piece in pieces.items():
        if len(piece.shape) != (1 if name == "g_idx" else 2):
            raise QuantError(
                f"{named(piece.name)} has shape {piece.shape}; GPTQ stores g_idx as a vector, and all else "
                "as matrices."
            )
    groups, rows = scales.shape
    columns = pieces["g_idx"].shape[0] if "g_idx" in pieces else None
    bits = integer(config, "bits", BITS)
    if bits is None and columns:
        bits = qweight.shape[0] * 32 // columns
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
    return Gptq(
        f"{module}.weight", (rows, columns), torch.float32, pieces,
        bits=bits, group_size=size, version=version, config_symmetric=flag(config, "sym") is True,
        desc_act=flag(config, "desc_act") is True,
        remarks=remarks,
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Gptq(Layout):
    """A weight of a GPTQ release; ``version``: its checkpoint_format."""

    bits: int
    group_size: int
    version: str
    config_symmetric: bool
    desc_act: bool

    @property
    def storage(self) -> str:
        """``gptq int4 per_group(128) asymmetric``."""
        symmetry = "symmetric" if self.config_symmetric else "asymmetric"
        return words(
            "gptq", f"int{self.bits}", f"per_group({self.group_size})", symmetry, "desc_act" * self.desc_act
        )

    @property
    def element(self) -> Format:
        """Unsigned integers."""
        return IntFormat(self.bits, signed=False)

    @property
    def symmetric(self) -> bool:
        """As the config says."""
        return self.config_symmetric

    @property
    def granularity(self) -> Granularity:
        """Groups along the input axis."""
        return PerGroup(self.group_size)

    @property
    def order(self) -> Order:
        """Codes packed densely in 32-bit words, or planar."""
        if self.version == "gptq_p" or self.bits in PLANAR:
            return planar(self.bits)
        return dense(self.bits, 32)

    @cached_property
    def fields(self) -> Mapping[str, Field]:
        """Codes, scales, zero points, and the group of each column."""
        groups, rows = self.pieces["scales"].shape
        found: dict[str, Field] = {
            CODES: Packed(self.pieces["qweight"], self.order, self.shape, axis=1, transposed=True),
            SCALE: Numbers(self.pieces["scales"], transposed=True),
            ZERO_POINT: self._zeros((rows, groups)),
        }
        if "g_idx" in self.pieces:
            if self.pieces["g_idx"].dtype != "I32":
                raise QuantError(
                    f"{named(self.pieces['g_idx'].name)} does not hold one int32 per input."
                )
            found[GROUP_INDEX] = Numbers(self.pieces["g_idx"])
        return found

    def _zeros(self, shape: tuple[int, int]) -> Packed:
        return Packed(
            self.pieces["qzeros"], self.order, shape, axis=0, transposed=True, offset=self.zero_offset
        )

    @property
    def _offset_by_config(self) -> int:
        return -1 if self.version == "gptq" and self.bits not in PLANAR else 0

    def zero_offset(self) -> int:
        """Return what the file adds to zero points: -1 in v1, 0 in v2; reads the first one if symmetric."""
        by_config = self._offset_by_config
        if not self.config_symmetric:
            return by_config
        middle, first = 1 << (self.bits - 1), self._first_stored_zero()
        return first - middle if first - middle in (-1, 0) else by_config

    def _first_stored_zero(self) -> int:
        piece = self.pieces["qzeros"]
        row = piece.bits((slice(0, 1), slice(0, self.order.words_of(1))))[0]
        return int(unpack(row, self.order, 1)[0])

    def statements(self) -> tuple[Statement, ...]:
        """Return the remarks, and a statement if the stored zeros contradict the version in the config."""
        by_config = self._offset_by_config
        if self.zero_offset() == by_config:
            return self.remarks
        zero_point = self.fields[ZERO_POINT].read()
        if bool((zero_point != zero_point[0, 0]).any()):  # they are of neither version
            return self.remarks
        said, truth = ("v1", "v2") if by_config else ("v2", "v1")
        facts: Facts = {
            "version": self.version,
            "said": said,
            "truth": truth,
            "bits": self.bits,
            "expected": (1 << self.bits - 1) + by_config,
            "stored": self._first_stored_zero(),
        }
        words = (
            "{is} stored as {version} ({said}) according to the config, in which a symmetric {bits}-bit release has stored "
            "zeros of {expected}, but the first of {its} stored zeros is {stored}, as in {truth}; they are read as "
            "{truth}."
        )
        return (*self.remarks, Statement("gptq_version", "error", words, facts))
