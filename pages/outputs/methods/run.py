"""The methods run on the page's layer; each is kept with its options, so a changed option runs only one."""

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import streamlit as st
import torch
from torch import Tensor

import quantcore as qc
from pages.outputs.methods.controls import ActivationSource, Source
from pages.shared.computing import cache
from pages.shared.computing.long_work import LongWork, WorkStep
from pages.shared.state.selection import PageTensor
from quantcore import figures, outputs
from quantcore.outputs import MethodOptions, MethodOutput

AT_ONCE = 30_000_000  # products to compute without asking: a second or two
READABLE = 1 << 14  # weights of which GPTQ's columns are shown
# float32 numbers that a run of GPTQ, the largest, holds for each weight, pair of inputs, and activation
_OF_WEIGHTS, _OF_PAIRS, _OF_ACTIVATIONS = 12, 14, 6
HEAD = 16  # channels of the attention head
Key = tuple[str, MethodOptions]


@dataclass(frozen=True)
class PageLayer:
    """The layer of the page: w is the tensor of the sidebar, quantized by the scheme there."""

    tensor: PageTensor
    scheme: qc.Scheme
    source: Source
    activation_scheme: qc.Scheme | None

    @property
    def inputs(self) -> int:
        """Columns of w."""
        return self.tensor.shape[-1]

    @property
    def content(self) -> cache.CacheKey:
        """What results are kept for, and the memory that the largest method needs."""
        rows, columns = self.tensor.shape
        tokens = self.source.tokens + self.source.held_tokens
        numbers = (
            _OF_WEIGHTS * rows * columns
            + _OF_PAIRS * columns**2
            + _OF_ACTIVATIONS * tokens * (rows + columns)
        )
        return cache.CacheKey(
            f"layer {self.tensor.key} {self.scheme} {self.source} {self.activation_scheme}", numbers
        )

    @property
    def products(self) -> int:
        """Multiplications of the layer, which say how long the methods take."""
        rows, columns = self.tensor.shape
        return rows * columns * (self.source.tokens + self.source.held_tokens + columns)

    def data(self, tokens: int | None = None) -> outputs.LayerData:
        """Return the layer's numbers; ``tokens``: for calibration, those of the source by default.

        Raises:
            QuantError: w is no matrix of finite numbers, or x can't be made.
        """
        x, held = self.source.calibration(self.inputs, tokens), self.source.held_out(self.inputs)
        return outputs.LayerData(cache.values(self.tensor), x, held, self.scheme, self.activation_scheme)


@dataclass(frozen=True, eq=False)
class Ran:
    """A method's output without its large parts, and what its picture shows.

    ``maxima``, ``histograms``: before and after, of x and w; ``trials``: of AWQ; ``columns``: of GPTQ, only
    of a small layer; ``objective``: the mean squared error of the output on the calibration tokens, of GPTQ
    and of rounding to nearest; ``kept``: the outlier columns of LLM.int8.
    """

    output: MethodOutput
    maxima: dict[str, dict[str, np.ndarray]] | None = None
    histograms: dict[str, dict[str, tuple[np.ndarray, np.ndarray]]] | None = None
    trials: tuple[outputs.AwqStep, ...] = ()
    columns: outputs.Compensated | None = None
    objective: tuple[float, float] | None = None
    kept: tuple[int, ...] = ()


Record = dict[Key, Ran]


def check(tensor: PageTensor) -> None:
    """Raise if the tensor is no layer's weight.

    Raises:
        QuantError: it is not a matrix, or has no elements.
    """
    if len(tensor.shape) != 2 or not tensor.elements:
        raise qc.QuantError(
            f"A layer's weight is a matrix, [out, in], but this tensor has shape {tensor.shape}; choose one "
            "with two axes in the sidebar."
        )


def wanted(options: MethodOptions) -> list[Key]:
    """Return the methods to run, each with the options that it uses."""
    found = [(method, options.of(method)) for method in outputs.METHODS]
    if options.clip:  # to say what clipping gains
        found.append((outputs.AWQ, MethodOptions()))
    return found


def record(layer: PageLayer) -> Record:
    """Return what any visitor has run on this layer; runs add to it."""
    return cache.shared_record(layer.content, "methods", dict)


def run(layer: PageLayer, options: MethodOptions, draw: Callable[[], None]) -> None:
    """Run the missing methods, if that is quick or the visitor asked for it.

    Args:
        draw: draws the results so far.

    Raises:
        QuantError: x and w make no layer.
    """
    found = record(layer)

    def missing() -> list[Key]:
        return [key for key in wanted(options) if key not in found]

    if not missing():
        return
    refused = cache.too_much(layer.content, 1.0)
    if refused:
        raise qc.QuantError(refused)
    place = st.empty()
    work = LongWork("om", f"methods {layer.content.key}", layer.products <= AT_ONCE)
    if work.starts(place, "Run the methods"):
        work.run(
            place,
            lambda: _run(layer, found, missing()),
            layer.content,
            short=True,
            useless=lambda: not missing(),
            draw=draw,
        )


def _run(layer: PageLayer, found: Record, missing: Sequence[Key]) -> Generator[WorkStep, None, None]:
    data = layer.data()
    for done, (method, options) in enumerate(missing):
        name = outputs.METHODS[method]
        work = outputs.method_output(data, method, options)
        while True:
            try:
                part = next(work)
            except StopIteration as end:
                found[method, options] = _without_large_parts(data, end.value)
                break
            yield WorkStep((done + part) / len(missing), f"{name}…", done)
    yield WorkStep(1.0, "", len(missing))


def _bins(elements: int) -> int:
    """Return how many bins a histogram has: fewer for few elements, of which most would be empty."""
    return min(max(round(3 * math.cbrt(elements)), 12), 120)


def _without_large_parts(data: outputs.LayerData, output: MethodOutput) -> Ran:
    """Return what a page shows of a result."""
    result, slim = output.result, replace(output, result=None)
    w, x = (torch.as_tensor(value, dtype=torch.float32) for value in (data.w, data.x))
    if isinstance(result, outputs.Smoothed | outputs.Rotated):
        of_x, of_w = (x, result.x), (w, result.w)
        maxima = {"max|x|": of_x, "max|w|": of_w}
        both = {"elements of x": of_x, "elements of w": of_w}
        return Ran(
            slim,
            {name: _named(*(_largest(each) for each in pair)) for name, pair in maxima.items()},
            {
                name: _named(*(figures.histogram(each, _bins(each.numel())) for each in pair))
                for name, pair in both.items()
            },
        )
    if isinstance(result, outputs.ActivationAware):
        return Ran(slim, trials=tuple(_summed(step) for step in result.steps))
    if isinstance(result, outputs.Compensated):
        small = result if result.w.numel() <= READABLE else None
        count = len(x) * len(w)
        means = (result.objective / count, result.nearest_objective / count)
        return Ran(slim, columns=small, objective=means)
    if isinstance(result, outputs.Decomposed):
        held = torch.as_tensor(data.held_out)
        largest = {"max|x| of every channel": {figures.BEFORE: _largest(held)}}
        return Ran(slim, largest, kept=tuple(result.outliers.tolist()))
    return Ran(slim)


def _named(before: object, after: object) -> dict:  # type: ignore[type-arg]
    return {figures.BEFORE: before, figures.AFTER: after}


def _largest(values: Tensor) -> np.ndarray:
    found: np.ndarray = values.abs().amax(0).numpy()
    return found


def _summed(step: outputs.AwqStep) -> outputs.AwqStep:
    """Return a trial with the losses of each row's groups summed."""
    return step if step.losses is None else replace(step, losses=step.losses.sum(1, keepdim=True))


def counts(tokens: int, inputs: int) -> list[int]:
    """Return the numbers of calibration tokens to compare: powers of two, and the chosen one."""
    most = max(tokens, min(max(8 * inputs, 512), 2048))
    powers = [1 << power for power in range(2, 13) if 1 << power <= most]
    return sorted({*powers, tokens})


def by_tokens(
    layer: PageLayer, options: MethodOptions, draw: Callable[[list[outputs.TokensPoint]], None]
) -> list[outputs.TokensPoint]:
    """Return the SQNR by calibration tokens, as far as it is computed; compute it if quick or asked for."""
    source = layer.source
    grid = counts(source.tokens, layer.inputs)
    if not isinstance(source, ActivationSource):  # there are no more
        grid = [tokens for tokens in grid if tokens <= source.tokens]
    used = replace(options, signs=None, threshold=6.0)
    points: list[outputs.TokensPoint] = cache.shared_record(layer.content, f"by tokens {used}", list)
    total = len(grid) * len(outputs.CALIBRATED)
    if len(points) >= total:
        return points[:total]
    place = st.empty()
    quick = layer.products * len(grid) <= AT_ONCE
    work = LongWork("om_curve", f"by tokens {layer.content.key} {used}", quick)
    if work.starts(place, f"Calibrate with {grid[0]:,} to {grid[-1]:,} tokens"):
        more = layer
        if isinstance(source, ActivationSource):
            more = replace(layer, source=replace(source, tokens=grid[-1]))
        work.run(
            place,
            lambda: _by_tokens(layer, grid, points, used),
            more.content,
            short=True,
            useless=lambda: len(points) >= total,
            draw=lambda: draw(list(points)),
        )
    return list(points)


def _by_tokens(
    layer: PageLayer, grid: list[int], points: list[outputs.TokensPoint], options: MethodOptions
) -> Generator[WorkStep, None, None]:
    data, total = layer.data(grid[-1]), len(grid) * len(outputs.CALIBRATED)
    done = {(point.tokens, point.method) for point in points}
    left = [tokens for tokens in grid if any((tokens, name) not in done for name in outputs.CALIBRATED)]
    for point in outputs.by_tokens(data, left, options):
        if (point.tokens, point.method) not in done:
            points.append(point)
        yield WorkStep(len(points) / total, f"{point.tokens:,} tokens", len(points))


@dataclass(frozen=True, eq=False)
class Head:
    """An attention head with a quantized cache.

    ``keys``: [tokens, channels]; ``sqnr``: per token and per channel, of keys and of values.
    """

    keys: np.ndarray
    sqnr: dict[str, tuple[float, float]]


def head(source: ActivationSource, scheme: qc.Scheme) -> Head:
    """Return what quantizing keys and values by a scheme does to a head's output.

    Raises:
        QuantError: the scheme does not fit them.
    """

    def make() -> Head:
        q, k, v = outputs.attention_head(
            source.tokens, HEAD, outliers=source.outliers, factor=source.factor,
            correlation=source.correlation, seed=source.seed,
        )  # fmt: skip
        return Head(k.numpy(), outputs.kv_granularities(q, k, v, scheme))

    return cache.cached(cache.CacheKey(f"head {source} {scheme}", 8 * HEAD * source.tokens), "head", make)
