"""From a tensor to its quantized form: one path for every scheme."""

import warnings
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quantcore.displayed import Displayed
from quantcore.errors import QuantError
from quantcore.formats import IntFormat
from quantcore.granularity import Blocks
from quantcore.numerics import CHUNK, as_float32, widened
from quantcore.qparams import Dequantizer, QParams, check_stored, dequantizer_of, find_qparams
from quantcore.quantization.codes import codes_with, dequantize, dequantize_with, lowest_codes
from quantcore.quantization.walk import inverse_of_levels
from quantcore.range_setting import MaxScale
from quantcore.scheme import Scheme, accepted, as_scheme, check_supported, with_importance
from quantcore.wording import passed

# elements of x up to which a result keeps a copy: of more, a copy takes as long as the codes
COPIED = 1 << 18


@dataclass(frozen=True, eq=False, repr=False)
class Quantized(Displayed):
    """A tensor, its scheme and the quantized result.

    ``kept``: x, in its own dtype if that is of 16 bits; `x` are its numbers. ``codes``: of x's shape, in the
    smallest dtype of int8, uint8, int16, int32 that holds them; ``params``: in block form. ``scales``: the
    quantized scales, if the scheme quantizes them; `scale` is what they dequantize to. ``mins``: likewise, if
    the convention stores minima. ``importance``: the elements' weights, if the range setting uses them.
    ``warnings``: sentences on likely mistakes.

    ``dtype``: of the x that was given. Numbers of bfloat16 and float16 are shown as float32 numbers of the
    same value, so that everything computes with them as with float32: x, and scale, zero_point and
    dequantized where the library gives them in that dtype (`scale_dtype`, `value_dtype`). Those of float64
    stay float64 where the library computes in it.
    """

    kept: Tensor
    scheme: Scheme
    codes: Tensor
    params: QParams
    warnings: tuple[str, ...] = field(default=())
    scales: "Quantized | None" = None
    mins: "Quantized | None" = None
    importance: Tensor | None = None
    dtype: torch.dtype = torch.float32
    version: int | None = None

    @property
    def given(self) -> Tensor:
        """x in its own dtype if that is of 16 bits, else its numbers.

        Raises:
            QuantError: x was not copied, and was changed in place since.
        """
        if self.version is not None and self.kept._version != self.version:
            raise QuantError(
                f"x was changed in place after it was quantized; a result of more than {COPIED:,} elements "
                "shares its memory. Quantize x.clone(), or quantize x again."
            )
        return self.kept

    @property
    def x(self) -> Tensor:
        """The numbers of x, float32, or float64 if the library computes in it."""
        return self._numbers if self.given.itemsize == 2 else self.given

    @cached_property
    def _numbers(self) -> Tensor:
        return self.kept.float()

    @property
    def computed(self) -> Scheme:
        """The scheme that says what its library does with x of this dtype; see `Scheme.in_dtype`."""
        return self.scheme.in_dtype(self.dtype)

    @property
    def value_dtype(self) -> torch.dtype:
        """The dtype in which the library gives dequantized values."""
        found: torch.dtype = getattr(torch, self.computed.rules.decoding.value_dtype)
        return found

    @property
    def scale_dtype(self) -> torch.dtype:
        """The dtype in which the library gives scales."""
        found: torch.dtype = getattr(torch, self.computed.rules.scale.scale_dtype)
        return found

    @property
    def scale(self) -> Tensor:
        """Scales, float32, block form."""
        return self.params.scale

    @property
    def zero_point(self) -> Tensor | None:
        """Zero points, block form: int32, or float32 if the convention stores floats (hqq).

        None for formats without a zero point: floats and codebooks.
        """
        return self.params.zero_point if self.scheme.format.has_zero_point else None

    @cached_property
    def blocks(self) -> Blocks:
        """The layout of x in blocks."""
        return Blocks.of(self.scheme.granularity, tuple(self.given.shape))

    @property
    def block(self) -> tuple[int, ...]:
        """Extent of one block along each axis of `blocked_shape`."""
        return self.blocks.block

    @property
    def blocked_shape(self) -> tuple[int, ...]:
        """The shape in which the blocks are boxes: x's own, or flat if groups cross row boundaries."""
        return self.blocks.blocked_shape

    @cached_property
    def dequantizer(self) -> Dequantizer:
        """How the library dequantizes, in block form."""
        return dequantizer_of(self.params, self.scheme.format, self.computed.rules)

    @property
    def dequantized(self) -> Tensor:
        """x̂ = (codes - zero_point) * scale, or value * scale for float formats; recomputed at each access.

        Numbers that `value_dtype` can represent, in float32, or in float64 where the library computes in it.
        """
        return dequantize_with(self.codes, self.params, self.computed, self.blocks, self.dequantizer)

    @property
    def error(self) -> Tensor:
        """x - x̂, float32, or float64 where `x` and `dequantized` are; recomputed at each access."""
        x_hat, given = self.dequantized, self.given
        if given.itemsize != 2 or not given.is_contiguous():
            return torch.sub(given, x_hat, out=x_hat)
        # torch would convert all of x to new memory first, which takes longer than the rest
        flat, out = given.view(-1), x_hat.view(-1)
        for start in range(0, flat.numel(), CHUNK):
            own = out[start : start + CHUNK]
            torch.sub(widened(flat[start : start + CHUNK]), own, out=own)
        return x_hat


def apply(x: Any, scheme: Scheme | str, out: Quantized | None = None, importance: Any = None) -> Quantized:
    """Quantize a tensor or array of any rank.

    x of float16, bfloat16 or float64 is quantized as the convention's library does in that dtype; other
    dtypes, lists and numbers are converted to float32. The result does not change with x: it keeps a copy,
    or, of a torch tensor of more than 262,144 elements, shares its memory and raises an error once x was
    changed.

    Args:
        scheme: a `Scheme`, its text, or the name of a preset.
        out: an earlier result of the same shape and format, whose codes are overwritten.
        importance: weight of each element's error, such as the mean squared inputs of llama.cpp's imatrix:
            one number per column, (columns,), per expert and column, (experts, columns), or of x's shape.
            The result's scheme is then the one that ggml uses with an imatrix, which has a different search.

    >>> apply([[0.5, -1.0], [2.0, 0.1]], "int4").codes
    tensor([[ 2, -3],
            [ 7,  0]], dtype=torch.int8)

    Raises:
        QuantError: the scheme does not fit x, its library refuses the dtype of x, x contains NaN or infinity
            and the convention refuses them, or the scheme does not support importance.
    """
    if out is not None:
        check_result(out, "out")
    result = _own(apply_quietly(x, scheme, out, importance), x)
    for note in result.warnings:
        warnings.warn(note, stacklevel=2)
    return result


def _own(result: Quantized, x: Any) -> Quantized:
    """Return the result with a copy of x, or with the version of x's memory, if it shares that."""
    kept, importance = result.kept, result.importance
    if importance is not None and importance.numel() <= COPIED:
        importance = importance.clone()
    if kept.numel() > COPIED and isinstance(x, Tensor):
        return replace(result, importance=importance, version=kept._version)
    shares = kept.data_ptr() == (x.data_ptr() if isinstance(x, Tensor) else np.asarray(x).ctypes.data)
    return replace(result, kept=kept.clone() if shares else kept, importance=importance)


def check_result(value: object, what: str) -> None:
    """Raise if ``value`` is not the result of `apply`; ``what``: the argument or function that needs it.

    Raises:
        QuantError: it is not.
    """
    if not isinstance(value, Quantized):
        raise QuantError(f"{what} needs the result of qc.apply(x, scheme), not {passed(value)}.")


def apply_quietly(
    x: Any,
    scheme: Scheme | str,
    out: Quantized | None = None,
    importance: Any = None,
    dtype: torch.dtype | None = None,
) -> Quantized:
    """`apply`, but warnings are only stored in the result: Python's warning filters are not thread-safe.

    Args:
        dtype: of x, if x holds its numbers as `Quantized.x` does; the result then shares its memory.

    Raises:
        QuantError: as in `apply`.
    """
    scheme = as_scheme(scheme)
    if importance is not None:
        scheme, importance = with_importance(scheme), as_float32(importance)
    x, own, dtype = accepted(x, scheme, dtype)
    blocks, params, scales, mins = parameters_of(x, own, importance)
    codes, of_nan = codes_with(x, params, own, blocks, out=None if out is None else out.codes)
    params = replace(params, searched=None, weights=None)
    notes = [note for note in (_zero_point_outside(params, scheme), of_nan) if note]
    return Quantized(x, scheme, codes, params, tuple(notes), scales, mins, importance, dtype)


def parameters_of(
    x: Tensor, scheme: Scheme, importance: Tensor | None = None
) -> tuple[Blocks, QParams, Quantized | None, Quantized | None]:
    """Return the blocks of x, see `accepted`, their parameters as stored, and the quantized scales and mins.

    Raises:
        QuantError: as in `apply`.
    """
    check_supported(scheme, tuple(x.shape))
    blocks = Blocks.of(scheme.granularity, tuple(x.shape))
    params = find_qparams(x, scheme, blocks, importance)
    scales, mins = None, None
    if scheme.scales is not None:
        weights = params.weights if importance is not None else None
        scales = _inner(params.scale, scheme, weights)
        if scheme.rules.zero_point.is_value:
            # ggml's mins of super-blocks are the amounts below 0
            below = scheme.rules.zero_point.zero_point_form == "below"
            mins = _inner(-params.zero_point if below else params.zero_point, scheme, weights)
        params = _stored(params, scheme, scales, mins)
        check_stored(params, scheme)
    return blocks, params, scales, mins


def _inner(parameters: Tensor, scheme: Scheme, weights: Tensor | None) -> Quantized:
    """Quantize scales or mins; ``weights``: of their blocks' elements, if the search uses them."""
    assert scheme.scales is not None
    record = scheme.scales.rules
    if record.refuses_nonfinite and not bool(parameters.isfinite().all()):
        raise QuantError(
            f"A block's scale or minimum is NaN or infinite, which the {record.name} convention refuses to "
            "store; replace NaN and infinity in x, or scale x down."
        )
    searched = scheme.scales.range_setting.searches_codes
    return apply_quietly(parameters, scheme.scales, importance=weights if searched else None)


def _stored(params: QParams, scheme: Scheme, scales: Quantized, mins: Quantized | None) -> QParams:
    """Return the parameters as stored; ``scales``, ``mins``: the quantized ones."""
    inverse, coded = None, None
    storage = scheme.rules.storage
    if storage.quantize_with == "levels":
        d = scales.params.scale if scales.params.raw is None else scales.params.raw
        coded = dequantize(scales.codes, d, scales.params.zero_point, scales.scheme)
    if scheme.rules.scale.inverse == "of_levels" and not isinstance(scales.scheme.format, IntFormat):
        values = scales.scheme.format.decode(scales.codes)
        inverse = inverse_of_levels(values, scales.params.scale, scales.blocks)
    stored = replace(params, scale=scales.dequantized, raw=params.scale, inverse=inverse, coded=coded)
    of_scales = scales.scheme.range_setting
    if isinstance(of_scales, MaxScale) and of_scales.least:
        lowest_codes(stored, scheme.format.qmin, scales.params, scales.blocks)
    if mins is None:
        return stored
    zero_point = mins.dequantized
    below = scheme.rules.zero_point.zero_point_form == "below"
    return replace(stored, zero_point=zero_point.neg_() if below else zero_point)


def _zero_point_outside(params: QParams, scheme: Scheme) -> str:
    fmt = scheme.format
    # a float zero point or a minimum is not a code, even if given as an integer
    if not scheme.rules.zero_point.is_integer or not isinstance(fmt, IntFormat):
        return ""
    low, high = int(params.zero_point.min()), int(params.zero_point.max())
    if fmt.qmin <= low and high <= fmt.qmax:
        return ""
    bad = low if low < fmt.qmin else high
    return (
        f"The zero_point {bad} lies outside the codes {fmt.qmin}..{fmt.qmax} of {fmt}: "
        "no library can store it, and the value 0 is clipped."
    )


def encoding(result: Quantized) -> dict[str, Tensor]:
    """Return what the convention's library reports beyond scale and zero_point, in block form, float32.

    AIMET: ``offset`` = -zero_point, and the ``min`` and ``max`` of the grid, scale · (offset + qmin) and
    scale · (offset + qmax), as returned by its get_offset(), get_min() and get_max()
    (aimet_torch 2.42.0, quantization/affine/quantizer.py:287-317). Empty for other conventions.

    >>> import quantcore as qc
    >>> result = qc.apply([-1.0, 0.5, 2.0], qc.Scheme.parse("uint8 asymmetric aimet.Quantize"))
    >>> {name: value.tolist() for name, value in qc.encoding(result).items()}
    {'offset': [-85.0], 'min': [-1.0], 'max': [2.0]}
    """
    check_result(result, "encoding")
    fmt, offset = result.scheme.format, -result.params.zero_point.to(torch.float32) + 0.0  # -0.0 becomes 0.0
    ends = {"min": result.scale * (offset + fmt.qmin), "max": result.scale * (offset + fmt.qmax)}
    return {name: ({"offset": offset} | ends)[name] for name in result.scheme.convention.reported_encodings}
