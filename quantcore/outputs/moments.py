"""The expected error of a layer's output without activations: e·H·eᵀ of a second moment H of its inputs."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from quantcore.analysis import sqnr_of
from quantcore.errors import QuantError
from quantcore.numerics import as_floats, refuse_nonfinite
from quantcore.outputs.matrices import matrix, quantized, ratio_db
from quantcore.quantization import Quantized
from quantcore.scheme import Scheme
from quantcore.wording import shape_text

_SLACK = 2.0**-40  # of rounding in float64, relative to the largest entry


@dataclass(frozen=True, eq=False)
class MomentOutput:
    """What quantizing a weight does to the output, by the second moment of the inputs.

    ``weight``: the quantized weight. ``energy``: e·H·eᵀ of every output channel with e = ŵ − w, and
    ``power``: w·H·wᵀ, both float64 [out]; sums over tokens or means, as H is.
    """

    w: Tensor
    weight: Quantized
    energy: Tensor
    power: Tensor

    @property
    def sqnr_db(self) -> float:
        """10·log10(Σ power / Σ energy) in dB."""
        return sqnr_of(float(self.power.sum()), float(self.energy.sum()))

    @property
    def channel_sqnr_db(self) -> Tensor:
        """SQNR of every output channel in dB, float64 [out]."""
        return ratio_db(self.power, self.energy)


def second_moment(x: Any) -> Tensor:
    """Return H = xᵀ·x of activations [tokens, in], float64 [in, in].

    >>> second_moment([[1.0, 2.0], [0.0, 1.0]]).tolist()
    [[1.0, 2.0], [2.0, 5.0]]

    Raises:
        QuantError: x is no matrix of finite numbers.
    """
    wide = matrix(x, "x").double()
    return wide.T @ wide


def from_moment(w: Any, weight_scheme: Scheme | str | Quantized, moment: Any) -> MomentOutput:
    """Return the error of a layer's output, by channel, from the second moment of its inputs.

    Args:
        w: weights [out, in].
        moment: H = xᵀ·x [in, in], or its diagonal [in], such as the mean squared inputs of llama.cpp's
            imatrix, which leaves out how inputs are correlated.

    >>> from_moment([[1.0, 0.25]], "int2", [4.0, 1.0]).energy.tolist()
    [0.0625]

    Raises:
        QuantError: the moment does not fit w, or is not one: not symmetric, or with negative squares.
    """
    numbers = matrix(w, "w")
    h = checked_moment(moment, numbers.shape[1])
    result = quantized(w, weight_scheme, numbers, "w")
    error = result.dequantized.double() - numbers.double()
    return MomentOutput(numbers, result, squared_errors(error, h), squared_errors(numbers.double(), h))


def checked_moment(moment: Any, inputs: int) -> Tensor:
    """Return a second moment as float64, [in, in] or its diagonal [in].

    Raises:
        QuantError: it is not one for so many inputs.
    """
    h = as_floats(moment).double()
    if tuple(h.shape) not in ((inputs,), (inputs, inputs)):
        raise QuantError(
            f"The second moment has shape {shape_text(tuple(h.shape))}, but w has {inputs:,} columns; give "
            f"xᵀ·x, {inputs:,} × {inputs:,}, or its diagonal."
        )
    refuse_nonfinite(h, "a layer", "The second moment")
    diagonal, slack = h if h.dim() == 1 else h.diagonal(), _SLACK * float(h.abs().max())
    if float(diagonal.min()) < 0:
        raise QuantError(
            f"The second moment has {float(diagonal.min()):g} where the mean of a square is expected; "
            "compute it as xᵀ·x."
        )
    if h.dim() == 2 and float((h - h.T).abs().max()) > max(slack, 2.0**-20 * float(h.abs().max())):
        raise QuantError("The second moment is not symmetric; compute it as xᵀ·x.")
    return h


def squared_errors(rows: Tensor, h: Tensor) -> Tensor:
    """Return r·H·rᵀ of every row, at least 0."""
    found = (rows.square() @ h) if h.dim() == 1 else ((rows @ h) * rows).sum(1)
    least = _SLACK * float(h.abs().max()) * float(rows.square().sum(1).max()) * rows.shape[1]
    if float(found.min()) < -least:
        raise QuantError(
            f"The second moment gives a negative squared error, {float(found.min()):g}, so it is not xᵀ·x of "
            "any x; compute it from activations."
        )
    return found.clamp(min=0)
