"""A layer's product as integer hardware computes it: int32 sums of codes, corrected for zero points."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quantcore import notation
from quantcore.errors import QuantError
from quantcore.formats import IntFormat
from quantcore.outputs.matrices import MethodStep, bias_of
from quantcore.outputs.requantization import FLOAT, Requantized, requantize
from quantcore.qparams import choose_qparams
from quantcore.quantization import Quantized, check_result
from quantcore.scheme import Scheme, as_scheme
from quantcore.wording import passed

_EXACT = 1 << 53  # float64 sums of integers are exact up to here


@dataclass(frozen=True, eq=False)
class IntegerProduct:
    """The sums of an integer product, all [tokens, out] and exact in int64 unless said otherwise.

    Σ (q_x − z_x)·(q_w − z_w) is ``products`` − z_w·Σq_x − z_x·Σq_w + K·z_x·z_w, the four ``terms`` by name;
    ``exact`` is their sum and the bias; ``accumulator``: what is left of it in ``bits`` bits, which wrap
    around; ``overflows``: where that differs.
    """

    products: Tensor
    terms: dict[str, Tensor]
    bias: Tensor | None
    exact: Tensor
    accumulator: Tensor
    bits: int

    @property
    def overflows(self) -> Tensor:
        """Where the accumulator has overflowed, bool."""
        return self.exact != self.accumulator

    @property
    def steps(self) -> tuple[MethodStep, ...]:
        """The terms, the bias and their sum, in order."""
        found = [MethodStep(name, name, value) for name, value in self.terms.items()]
        if self.bias is not None:
            found.append(MethodStep("bias", "round(b / (s_x·s_w))", self.bias))
        return (*found, MethodStep("accumulator", f"their sum in int{self.bits}", self.accumulator))


PRODUCTS, X_SUMS, W_SUMS, CONSTANT = "Σ q_x·q_w", "−z_w·Σ q_x", "−z_x·Σ q_w", "K·z_x·z_w"


def integer_product(
    x_codes: Any,
    w_codes: Any,
    x_zero_point: Any = 0,
    w_zero_point: Any = 0,
    bias: Any = None,
    accumulator_bits: int = 32,
) -> IntegerProduct:
    """Return Σ (q_x − z_x)·(q_w − z_w) + bias of codes, as an accumulator of so many bits has it.

    Args:
        x_codes: [tokens, in], integers; there may be 0 tokens.
        w_codes: [out, in], integers.
        x_zero_point: one integer, or one per token.
        w_zero_point: one integer, or one per output.
        bias: integers [out], in units of s_x·s_w.

    >>> found = integer_product([[200, 3]], [[-128, 127]], x_zero_point=128)
    >>> {name: term.item() for name, term in found.terms.items()}
    {'Σ q_x·q_w': -25219, '−z_w·Σ q_x': 0, '−z_x·Σ q_w': 128, 'K·z_x·z_w': 0}
    >>> narrow = integer_product([[200, 3]], [[-128, 127]], x_zero_point=128, accumulator_bits=8)
    >>> found.accumulator.item(), narrow.accumulator.item()
    (-25091, -3)

    Raises:
        QuantError: the codes are no matrices of integers, their shapes differ, or K is so large that int64
            sums would not be exact.
    """
    x, w = _codes(x_codes, "x_codes"), _codes(w_codes, "w_codes")
    bits = notation.integer(accumulator_bits, "accumulator_bits")
    if not 2 <= bits <= 32:
        raise QuantError(f"accumulator_bits must be from 2 to 32, not {bits}; hardware has 16, 24 or 32.")
    if x.shape[1] != w.shape[1]:
        raise QuantError(f"x_codes has {x.shape[1]:,} columns, but w_codes has {w.shape[1]:,}.")
    z_x = _parameter(x_zero_point, "x_zero_point", len(x))[:, None]
    z_w = _parameter(w_zero_point, "w_zero_point", len(w))
    largest = [int(codes.abs().max()) if codes.numel() else 0 for codes in (x, w)]
    if largest[0] * largest[1] * x.shape[1] >= _EXACT:
        raise QuantError(f"Sums of {x.shape[1]:,} products of these codes may exceed 2^53; split the inputs.")
    products = (x.double() @ w.double().T).to(torch.int64)
    terms = {
        PRODUCTS: products,
        X_SUMS: -z_w * x.sum(1, keepdim=True),
        W_SUMS: -z_x * w.sum(1),
        CONSTANT: x.shape[1] * z_x * z_w + torch.zeros_like(products),
    }
    exact = torch.stack(list(terms.values())).sum(0)
    added = None if bias is None else _parameter(bias, "bias", len(w))
    exact = exact if added is None else exact + added
    half = 1 << (bits - 1)
    wrapped = torch.remainder(exact + half, 1 << bits) - half
    return IntegerProduct(products, terms, added, exact, wrapped, bits)


def _codes(value: Any, what: str) -> Tensor:
    """Return codes as int64.

    Raises:
        QuantError: they are no matrix of integers.
    """
    try:
        found = value if isinstance(value, Tensor) else torch.as_tensor(np.asarray(value))
    except (TypeError, ValueError, RuntimeError):
        raise QuantError(f"{what} is {passed(value)}; give a matrix of integers.") from None
    if found.dtype.is_floating_point and not found.numel():
        found = found.to(torch.int64)  # an empty list has no dtype
    if found.dim() != 2 or found.dtype.is_floating_point or found.dtype == torch.bool:
        raise QuantError(
            f"{what} has shape {tuple(found.shape)} and {found.dtype}; give a matrix of integers."
        )
    return found.to(torch.int64)


def _parameter(value: Any, what: str, count: int) -> Tensor:
    """Return one integer, or one per row, as int64 [count]."""
    found = torch.as_tensor(value).reshape(-1).to(torch.int64)
    if found.numel() not in (1, count):
        raise QuantError(f"{what} has {found.numel():,} numbers; give one, or {count:,}.")
    return found.expand(count)


@dataclass(frozen=True, eq=False)
class IntegerLayer:
    """A quantized layer by integers alone.

    ``product``: the int32 sums; ``scale``: s_x·s_w, float32, [1 or tokens, 1 or out]; ``y``:
    scale·accumulator in float32, which needs no requantization; ``output``: the codes of the output,
    ``output_scale`` and ``output_zero_point``: theirs, None without an output scheme. ``exact_scale``:
    s_x·s_w in float64, of which a multiplier and shift are made.
    """

    product: IntegerProduct
    scale: Tensor
    exact_scale: Tensor
    y: Tensor
    output: Requantized | None = None
    output_scale: float | None = None
    output_zero_point: int | None = None
    output_format: IntFormat | None = None

    def requantized(self, how: str) -> "IntegerLayer":
        """Return the same layer with its output rounded as another runtime does: one of `REQUANTIZATIONS`.

        Raises:
            QuantError: there is no output scheme, or a multiplier can't be represented.
        """
        s_y, z_y, fmt = self.output_scale, self.output_zero_point, self.output_format
        if s_y is None or z_y is None or fmt is None:
            raise QuantError("The layer has no codes of its output; give integer_layer an output_scheme.")
        # as onnxruntime multiplies in float32; with a multiplier and shift, TFLite does so in float64
        multiplier = self.scale / torch.tensor(s_y) if how == FLOAT else self.exact_scale / s_y
        return replace(self, output=requantize(self.product.accumulator, multiplier, z_y, fmt, how))

    def lines(self, token: int, channel: int) -> list[str]:
        """Return the arithmetic of one output, line by line."""
        found = self.sum_lines(token, channel)
        if self.output is not None and self.output_zero_point is not None:
            found += self.output.lines(token, channel, self.output_zero_point)
        return found

    def sum_lines(self, token: int, channel: int) -> list[str]:
        """Return the lines up to the accumulator and its scale, which no requantization changes."""
        at = (token, channel)
        found = [f"{name} = {int(term[at])}" for name, term in self.product.terms.items()]
        if self.product.bias is not None:
            found.append(f"bias = {int(self.product.bias[channel])}")
        exact, kept = int(self.product.exact[at]), int(self.product.accumulator[at])
        overflow = "" if exact == kept else f", which overflows int{self.product.bits} to {kept}"
        found.append(f"accumulator = {exact}{overflow}")
        scale = float(self.scale.expand(self.y.shape)[at])
        found.append(f"y = s_x·s_w·{kept} = {scale:.6g}·{kept} = {float(self.y[at]):.6g}")
        return found


def integer_layer(
    x: Quantized,
    w: Quantized,
    bias: Any = None,
    output_scheme: Scheme | str | None = None,
    how: str = FLOAT,
    accumulator_bits: int = 32,
) -> IntegerLayer:
    """Return a layer's output from the codes of its activations and weights.

    The bias becomes int32 with scale s_x·s_w. With an output scheme, the accumulator is requantized to its
    scale: onnxruntime's QLinearMatMul and QGemm give these codes for ``how="float"``.

    Args:
        x: quantized activations, ``per_tensor`` or ``per_channel(0)`` (per token).
        w: quantized weights, ``per_tensor`` or ``per_channel(0)``.
        bias: one number per output; its codes need one scale for all tokens.
        output_scheme: an integer scheme ``per_tensor``; its range is that of y, or given.
        how: one of `REQUANTIZATIONS`.

    >>> import quantcore as qc
    >>> x, w = qc.apply([[1.0, -0.5]], "uint8 asymmetric"), qc.apply([[0.5, 1.0]], "int8 per_channel(0)")
    >>> found = integer_layer(x, w, output_scheme="uint8 asymmetric given(0.01, 100)")
    >>> for line in found.lines(0, 0):
    ...     print(line)
    Σ q_x·q_w = 16320
    −z_w·Σ q_x = 0
    −z_x·Σ q_w = -16235
    K·z_x·z_w = 0
    accumulator = 85
    y = s_x·s_w·85 = 4.63177e-05·85 = 0.00393701
    s_x·s_w / s_y = 0.00463177
    round(0.00463177·85 = 0.393700838) + 100 = 100, clamped to 100

    Raises:
        QuantError: formats are not integers, groups share no accumulator, or the bias does not fit in 32
            bits.
    """
    (s_x, z_x), (s_w, z_w) = _parameters(x, "x"), _parameters(w, "w")
    scale = torch.outer(s_x, s_w)
    whole = None if bias is None else _bias_codes(bias, scale, len(w.codes))
    product = integer_product(x.codes, w.codes, z_x, z_w, whole, accumulator_bits)
    y = product.accumulator.to(torch.float32) * scale
    found = IntegerLayer(product, scale, torch.outer(s_x.double(), s_w.double()), y)
    if output_scheme is None:
        return found
    scheme = as_scheme(output_scheme)
    params = choose_qparams(y, scheme)
    if params.scale.numel() != 1 or not isinstance(scheme.format, IntFormat):
        raise QuantError(f"The output needs one scale and integers, not {scheme}; choose int8 per_tensor.")
    s_y, z_y = float(params.scale), int(params.zero_point)
    of_output = replace(found, output_scale=s_y, output_zero_point=z_y, output_format=scheme.format)
    return of_output.requantized(how)


def _parameters(result: Quantized, what: str) -> tuple[Tensor, Tensor]:
    """Return the scales and zero points of a matrix's rows, or the one of all."""
    check_result(result, "integer_layer")
    scheme = result.scheme
    if not isinstance(scheme.format, IntFormat) or not result.computed.rules.zero_point.is_integer:
        raise QuantError(
            f"{what} is quantized to {scheme}; the integer path needs integer codes and zero points."
        )
    if result.scale.dim() != 2 or result.scale.shape[1] != 1:
        raise QuantError(
            f"{what} has several scales along its inputs, so its sums can't share an accumulator; choose "
            "per_tensor or per_channel(0)."
        )
    return result.scale[:, 0].float(), result.params.zero_point[:, 0]


def _bias_codes(bias: Any, scale: Tensor, outputs: int) -> Tensor:
    """Return round(b / (s_x·s_w)), int64 [out]."""
    numbers = bias_of(bias, outputs)
    assert numbers is not None
    if len(scale) > 1:
        raise QuantError(
            "A bias in int32 needs one scale of x for all tokens; choose per_tensor for x, or add the bias "
            "to y."
        )
    codes = (numbers / scale[0]).round().double()
    if float(codes.abs().max()) >= 1 << 31:
        raise QuantError("The bias does not fit in 32 bits at scale s_x·s_w; it is too large beside x·wᵀ.")
    return codes.to(torch.int64)
