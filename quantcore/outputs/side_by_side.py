"""The methods on one layer: the output's error of each at equal bits, on tokens that none was fitted to."""

import math
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from quantcore.analysis import sqnr_of
from quantcore.errors import QuantError
from quantcore.outputs.compensation import Compensated, gptq_steps
from quantcore.outputs.decomposition import Decomposed, llm_int8
from quantcore.outputs.error_parts import layer
from quantcore.outputs.matrices import layer_matrices, linear
from quantcore.outputs.rotation import Rotated, hadamard
from quantcore.outputs.scale_search import ActivationAware, awq_steps
from quantcore.outputs.smoothing import Smoothed, smoothquant
from quantcore.quantization import Quantized, apply_quietly
from quantcore.scheme import Scheme, as_scheme

NEAREST, SMOOTHQUANT, AWQ, GPTQ, HADAMARD, LLM_INT8 = (
    "nearest", "smoothquant", "awq", "gptq", "hadamard", "llm_int8",
)  # fmt: skip
METHODS: Mapping[str, str] = {
    NEAREST: "round to nearest",
    SMOOTHQUANT: "SmoothQuant",
    AWQ: "AWQ",
    GPTQ: "GPTQ",
    HADAMARD: "Hadamard",
    LLM_INT8: "LLM.int8",
}
CALIBRATED = (SMOOTHQUANT, AWQ, GPTQ)  # those that look at activations first
_USED: dict[str, tuple[str, ...]] = {
    SMOOTHQUANT: ("alpha",),
    AWQ: ("clip",),
    GPTQ: ("act_order", "damping"),
    HADAMARD: ("signs",),
    LLM_INT8: ("threshold",),
}
MethodResult = Quantized | Smoothed | ActivationAware | Compensated | Rotated | Decomposed
Work = Generator[float, None, "MethodOutput"]


@dataclass(frozen=True)
class MethodOptions:
    """What the methods leave to choose, one set for all.

    ``alpha``: of SmoothQuant; ``clip``: whether AWQ also searches clipping thresholds; ``act_order``,
    ``damping``: of GPTQ; ``signs``: the seed of Hadamard's random signs, None for none; ``threshold``: of
    LLM.int8's outliers.
    """

    alpha: float = 0.5
    clip: bool = False
    act_order: bool = False
    damping: float = 0.01
    signs: int | None = None
    threshold: float = 6.0

    def of(self, method: str) -> "MethodOptions":
        """Return the options that a method uses, all others at their defaults."""
        return MethodOptions(**{name: getattr(self, name) for name in _USED.get(method, ())})


@dataclass(frozen=True, eq=False)
class LayerData:
    """A layer to try methods on.

    ``w``: weights [out, in]; ``x``: activations for calibration, ``held_out``: those that the error is
    measured on, both [tokens, in]. ``activation_scheme``: of x, with ranges found as the layer runs; None
    keeps x in float.
    """

    w: Any
    x: Any
    held_out: Any
    scheme: Scheme
    activation_scheme: Scheme | None = None

    def __post_init__(self) -> None:
        layer_matrices(self.x, self.w)
        layer_matrices(self.held_out, self.w)

    def first(self, tokens: int) -> "LayerData":
        """Return the layer with only the first tokens for calibration."""
        return LayerData(self.w, self.x[:tokens], self.held_out, self.scheme, self.activation_scheme)


@dataclass(frozen=True, eq=False)
class MethodOutput:
    """What a method makes of a layer's output.

    ``sqnr_db``: of the output on the held-out tokens, nan if ``refused`` says why it can't be computed.
    ``equal_bits``: whether w takes as many bits as the scheme asks for. ``result``: of the method.
    """

    method: str
    sqnr_db: float
    equal_bits: bool = True
    refused: str = ""
    result: MethodResult | None = field(default=None, repr=False)


def method_output(data: LayerData, method: str, options: MethodOptions | None = None) -> Work:
    """Run a method, yielding the fraction done, and return what it makes of the output.

    Raises:
        QuantError: there is no such method. What a method can't do is ``refused`` instead.
    """
    if method not in METHODS:
        raise QuantError(f"There is no method {method!r}; choose one of {', '.join(METHODS)}.")
    try:
        found = yield from _RUN[method](data, options or MethodOptions())
    except QuantError as error:
        return MethodOutput(method, math.nan, refused=str(error))
    return found


def compare(
    w: Any,
    x: Any,
    held_out: Any,
    scheme: Scheme | str,
    activation_scheme: Scheme | str | None = None,
    options: MethodOptions | None = None,
) -> list[MethodOutput]:
    """Return what every method makes of a layer's output, the least error first, refused ones last.

    >>> from quantcore.outputs import HELD_OUT, activations
    >>> x, other = activations(64, 16, seed=3), activations(256, 16, seed=3, sample=HELD_OUT)
    >>> w = activations(8, 16, outliers=0, correlation=0, seed=4)
    >>> for found in compare(w, x, other, "int4 per_channel(0)")[:3]:
    ...     print(found.method, f"{found.sqnr_db:.1f} dB")
    llm_int8 46.6 dB
    awq 32.0 dB
    smoothquant 29.9 dB

    Raises:
        QuantError: w, x and held_out do not fit.
    """
    of_x = None if activation_scheme is None else as_scheme(activation_scheme)
    data = LayerData(w, x, held_out, as_scheme(scheme), of_x)
    return ranked([_finished(method_output(data, method, options)) for method in METHODS])


def ranked(outputs: Sequence[MethodOutput]) -> list[MethodOutput]:
    """Return the least error first, refused methods last; ties keep their order."""
    return sorted(outputs, key=lambda found: math.inf if math.isnan(found.sqnr_db) else -found.sqnr_db)


@dataclass(frozen=True)
class TokensPoint:
    """The output's SQNR of a method calibrated with so many tokens, nan if it can't be."""

    tokens: int
    method: str
    sqnr_db: float


def by_tokens(
    data: LayerData, counts: Sequence[int], options: MethodOptions | None = None
) -> Iterator[TokensPoint]:
    """Yield the SQNR of each method that looks at activations, calibrated with the first tokens of x."""
    for tokens in counts:
        part = data.first(tokens)
        for method in CALIBRATED:
            yield TokensPoint(tokens, method, _finished(method_output(part, method, options)).sqnr_db)


def settled(points: Sequence[TokensPoint], method: str, within: float = 0.5) -> int | None:
    """Return the fewest tokens from which on a method stays within so many dB of what the most tokens give.

    None if only the last count does, or there are none. Two exact outputs are the same.

    >>> points = [TokensPoint(n, "gptq", db) for n, db in ((4, 20.0), (8, 29.8), (16, 30.1), (32, 30.0))]
    >>> settled(points, "gptq")
    8
    """
    own = [point for point in points if point.method == method and not math.isnan(point.sqnr_db)]
    found = None
    for point in reversed(own[:-1]):
        if not (point.sqnr_db == own[-1].sqnr_db or abs(point.sqnr_db - own[-1].sqnr_db) <= within):
            break
        found = point.tokens
    return found


def _finished(work: Work) -> MethodOutput:
    while True:
        try:
            next(work)
        except StopIteration as end:
            found: MethodOutput = end.value
            return found


def _sqnr(data: LayerData, y_hat: Tensor) -> float:
    """Return the SQNR of an output on the held-out tokens."""
    held, w = layer_matrices(data.held_out, data.w)
    y = linear(held, w).double()
    return sqnr_of(float(y.square().sum()), float((y_hat.double() - y).square().sum()))


def _nearest(data: LayerData, options: MethodOptions) -> Work:
    yield 0.0
    quantized = apply_quietly(data.w, data.scheme)
    found = layer(data.held_out, data.w, quantized, data.activation_scheme)
    return MethodOutput(NEAREST, _sqnr(data, found.y_hat), result=quantized)


def _smoothquant(data: LayerData, options: MethodOptions) -> Work:
    yield 0.0
    smooth = smoothquant(data.x, data.w, options.alpha)
    held, _ = layer_matrices(data.held_out, data.w)
    found = layer(held / smooth.scale, smooth.w, data.scheme, data.activation_scheme)
    return MethodOutput(SMOOTHQUANT, _sqnr(data, found.y_hat), result=smooth)


def _awq(data: LayerData, options: MethodOptions) -> Work:
    work = awq_steps(data.w, data.x, data.scheme, clip=options.clip)
    while True:
        try:
            step = next(work)
        except StopIteration as end:
            scaled: ActivationAware = end.value
            break
        yield step.done / step.count
    held, _ = layer_matrices(data.held_out, data.w)
    found = layer(held / scaled.scale, scaled.w, scaled.quantized, data.activation_scheme)
    return MethodOutput(AWQ, _sqnr(data, found.y_hat), result=scaled)


def _gptq(data: LayerData, options: MethodOptions) -> Work:
    work = gptq_steps(
        data.w, data.x, data.scheme, act_order=options.act_order, damping=options.damping,
    )  # fmt: skip
    while True:
        try:
            step = next(work)
        except StopIteration as end:
            coded: Compensated = end.value
            break
        yield (step.index + 1) / step.count
    found = layer(data.held_out, data.w, coded.quantized, data.activation_scheme)
    return MethodOutput(GPTQ, _sqnr(data, found.y_hat), result=coded)


def _hadamard(data: LayerData, options: MethodOptions) -> Work:
    yield 0.0
    rotated = hadamard(data.w, data.x, options.signs)
    held = hadamard(data.w, data.held_out, options.signs).x
    found = layer(held, rotated.w, data.scheme, data.activation_scheme)
    return MethodOutput(HADAMARD, _sqnr(data, found.y_hat), result=rotated)


def _llm_int8(data: LayerData, options: MethodOptions) -> Work:
    yield 0.0
    found = llm_int8(data.held_out, data.w, options.threshold)
    equal = data.scheme.format.bits == found.weight.scheme.format.bits
    return MethodOutput(LLM_INT8, _sqnr(data, found.y_hat), equal, result=found)


_RUN: dict[str, Callable[[LayerData, MethodOptions], Work]] = {
    NEAREST: _nearest,
    SMOOTHQUANT: _smoothquant,
    AWQ: _awq,
    GPTQ: _gptq,
    HADAMARD: _hadamard,
    LLM_INT8: _llm_int8,
}
