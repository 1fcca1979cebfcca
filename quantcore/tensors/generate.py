"""Tensors made from a distribution, a shape that a user types and a seed, small enough for a link.

The distributions are records, from which a page builds its controls.

Random numbers come from NumPy's ``Generator(PCG64(seed))`` and, wherever NumPy has them, from its
float32 methods, which use tables, additions and multiplications and so give the same bits on every
machine. Functions whose last bit differs between processors (exp) are computed in float64 and rounded,
so a difference would have to survive 29 more bits. In principle a new NumPy may change a method's stream
(NEP 19); tests pin the values of each distribution.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Integral, Real

import numpy as np
import numpy.typing as npt

from quantcore.errors import QuantError
from quantcore.tensors.limits import MAX_ELEMENTS
from quantcore.wording import shape_text, short

Float32Array = npt.NDArray[np.float32]
Values = Mapping[str, float]
MAX_GENERATED_RANK = 6
_WRAPPED = re.compile(r"(?:torch\.Size\()?[\[(](.*?),?\s*[\])]\)?", re.DOTALL)
_BETWEEN = re.compile(r"\s*[x×X*,;]\s*|\s+")


@dataclass(frozen=True)
class Parameter:
    """One number that a distribution takes, from ``low`` to ``high`` inclusive."""

    name: str
    default: float
    low: float
    high: float
    help: str


@dataclass(frozen=True)
class Distribution:
    """One kind of tensor.

    ``name``: in a list; ``label``: as a title. ``draw(rng, n, values)`` returns the next n elements;
    ``finish(rng, x, values)``, if given, then changes the whole tensor in place, as to add an outlier.
    """

    name: str
    label: str
    help: str
    parameters: tuple[Parameter, ...]
    draw: Callable[[np.random.Generator, int, Values], Float32Array]
    finish: Callable[[np.random.Generator, Float32Array, Values], None] | None = None


def _standard_normal(rng: np.random.Generator, n: int, values: Values) -> Float32Array:
    return rng.standard_normal(n, dtype=np.float32)


def _normal(rng: np.random.Generator, n: int, values: Values) -> Float32Array:
    x = rng.standard_normal(n, dtype=np.float32)
    x *= np.float32(values["std"])
    x += np.float32(values["mean"])
    return x


def _uniform(rng: np.random.Generator, n: int, values: Values) -> Float32Array:
    low, high = values["low"], values["high"]
    if not low < high:
        raise QuantError(
            f"uniform needs low < high, but low is {low:g} and high is {high:g}; change one of them."
        )
    x = rng.random(n, dtype=np.float32)
    x *= np.float32(high - low)
    x += np.float32(low)
    return x


def _laplace(rng: np.random.Generator, n: int, values: Values) -> Float32Array:
    # the difference of two exponential variables is Laplace: no logarithm needed
    x = rng.standard_exponential(n, dtype=np.float32)
    x -= rng.standard_exponential(n, dtype=np.float32)
    x *= np.float32(values["scale"])
    return x


def _student_t(rng: np.random.Generator, n: int, values: Values) -> Float32Array:
    # t = normal / sqrt(chi² / df), and chi² = 2 · gamma(df / 2)
    half = values["df"] / 2
    x = rng.standard_normal(n, dtype=np.float32)
    chi = rng.standard_gamma(half, n, dtype=np.float32)
    chi /= np.float32(half)
    np.maximum(chi, np.finfo(np.float32).tiny, out=chi)  # gamma can round to 0
    np.sqrt(chi, out=chi)
    x /= chi
    return x


def _log_normal(rng: np.random.Generator, n: int, values: Values) -> Float32Array:
    x = rng.standard_normal(n, dtype=np.float32)
    return np.exp(x.astype(np.float64) * values["sigma"]).astype(np.float32)


def _bimodal(rng: np.random.Generator, n: int, values: Values) -> Float32Array:
    x = rng.standard_normal(n, dtype=np.float32)
    half = np.float32(values["separation"] / 2)
    x += np.where(rng.random(n, dtype=np.float32) < 0.5, -half, half)
    return x


def _relu(rng: np.random.Generator, n: int, values: Values) -> Float32Array:
    x = rng.standard_normal(n, dtype=np.float32)
    return np.maximum(x, np.float32(0), out=x)


def _sparse(rng: np.random.Generator, n: int, values: Values) -> Float32Array:
    x = rng.standard_normal(n, dtype=np.float32)
    x[rng.random(n, dtype=np.float32) >= values["density"]] = 0
    return x


def _one_element(rng: np.random.Generator, x: Float32Array, values: Values) -> None:
    # set, not multiplied: an element near 0 would not become an outlier
    x.reshape(-1)[rng.integers(x.size)] = values["factor"]


def _one_column(rng: np.random.Generator, x: Float32Array, values: Values) -> None:
    columns = x.reshape(-1, x.shape[-1] if x.ndim else 1)
    columns[:, rng.integers(columns.shape[1])] *= np.float32(values["factor"])


DISTRIBUTIONS: dict[str, Distribution] = {
    "outlier_channel": Distribution(
        "outlier channel",
        "Normal with an outlier column",
        "A standard normal in which one column (index of the last axis), drawn from the seed, is multiplied "
        "by a factor: activations of large language models look like this.",
        (Parameter("factor", 12, 1, 10_000, "How many times larger the column is."),),
        _standard_normal,
        _one_column,
    ),
    "outlier_element": Distribution(
        "outlier element",
        "Normal with an outlier element",
        "A standard normal in which one element, drawn from the seed, is set to a large value.",
        (Parameter("factor", 50, 1, 10_000, "The element's value, in standard deviations of the others."),),
        _standard_normal,
        _one_element,
    ),
    "normal": Distribution(
        "normal",
        "Normal",
        "The bell curve; most trained weights are close to it.",
        (
            Parameter("mean", 0, -1000, 1000, "The mean."),
            Parameter("std", 1, 0.001, 1000, "The standard deviation."),
        ),
        _normal,
    ),
    "uniform": Distribution(
        "uniform",
        "Uniform",
        "Every value in the range is equally likely: the best case for an integer format.",
        (
            Parameter("low", -1, -1000, 1000, "The lower end of the range."),
            Parameter("high", 1, -1000, 1000, "The upper end of the range, not included."),
        ),
        _uniform,
    ),
    "laplace": Distribution(
        "Laplace",
        "Laplace",
        "A sharper peak and heavier tails than the normal.",
        (Parameter("scale", 1, 0.001, 1000, "The mean distance from 0."),),
        _laplace,
    ),
    "student_t": Distribution(
        "Student's t",
        "Student's t",
        "Heavy tails: fewer degrees of freedom give more and larger outliers.",
        (Parameter("df", 4, 2, 100, "Degrees of freedom; the more, the closer to the normal."),),
        _student_t,
    ),
    "log_normal": Distribution(
        "log-normal",
        "Log-normal",
        "All positive, spread over several orders of magnitude: exp(sigma · normal).",
        (Parameter("sigma", 1, 0.01, 4, "The standard deviation of the logarithm."),),
        _log_normal,
    ),
    "bimodal": Distribution(
        "bimodal",
        "Bimodal",
        "A mixture of two normals with standard deviation 1.",
        (Parameter("separation", 6, 0, 1000, "The distance between the two means."),),
        _bimodal,
    ),
    "relu": Distribution(
        "after a ReLU",
        "After a ReLU",
        "max(normal, 0): half the elements are 0 and none is negative, like activations after a ReLU.",
        (),
        _relu,
    ),
    "sparse": Distribution(
        "sparse",
        "Sparse",
        "A standard normal with most elements set to 0, like a pruned layer.",
        (Parameter("density", 0.1, 0, 1, "The fraction of elements that are not 0."),),
        _sparse,
    ),
}

# Elements drawn at a time. If a distribution draws twice per element, the tensor of a seed depends on this
# value: changing it would change the tensors of existing links.
BLOCK = 2**20


@dataclass(frozen=True)
class Generated:
    """A recipe for a tensor: ``Generated("normal", (8, 8), seed=3, parameters=(("std", 2.0),))``.

    Flat and hashable, so that it fits into a link and can be the key of a cache. Parameters that are not
    given take their defaults from `DISTRIBUTIONS`.

    Raises:
        QuantError: there is no such distribution or parameter, or a value is out of range.
    """

    distribution: str = "outlier_channel"
    shape: tuple[int, ...] = (8, 8)
    seed: int = 0
    parameters: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        kind = _kind(self.distribution)
        check_shape(self.shape)
        if isinstance(self.seed, bool) or not isinstance(self.seed, Integral) or not 0 <= self.seed < 2**63:
            raise QuantError(f"The seed is {short(str(self.seed))}; give an integer from 0 to 2^63 - 1.")
        known = {p.name: p for p in kind.parameters}
        for name, value in self.parameters:
            if name not in known:
                names = ", ".join(known) or "none"
                raise QuantError(
                    f"{self.distribution} has no parameter {short(str(name))}; its parameters: {names}."
                )
            low, high = known[name].low, known[name].high
            is_number = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
            if not is_number or not low <= value <= high:
                raise QuantError(
                    f"{name} of {self.distribution} is {short(str(value))}; "
                    f"give a number from {low:g} to {high:g}."
                )

    def values(self) -> dict[str, float]:
        """Return the value of every parameter, given or default."""
        defaults = {p.name: p.default for p in _kind(self.distribution).parameters}
        return {**defaults, **{name: float(value) for name, value in self.parameters}}


def generate(spec: Generated) -> Float32Array:
    """Return the tensor of ``spec``: float32, C order, the same on every machine.

    Memory: the tensor and a few blocks of 4 MB, never a float64 copy.

    >>> import quantcore as qc
    >>> qc.tensors.generate(qc.tensors.Generated("normal", (2, 3), seed=0))
    array([[ 1.117622  , -1.3871249 , -0.4265716 ],
           [-0.80358726,  0.60142773, -0.07499325]], dtype=float32)

    Raises:
        QuantError: the parameters contradict each other (uniform with low ≥ high).
    """
    kind, values = _kind(spec.distribution), spec.values()
    rng = np.random.Generator(np.random.PCG64(int(spec.seed)))
    x = np.empty(spec.shape, dtype=np.float32)
    flat = x.reshape(-1)
    for start in range(0, flat.size, BLOCK):
        stop = min(start + BLOCK, flat.size)
        flat[start:stop] = kind.draw(rng, stop - start, values)
    if kind.finish:
        kind.finish(rng, x, values)
    return x


def _kind(name: str) -> Distribution:
    if not isinstance(name, str) or name not in DISTRIBUTIONS:
        raise QuantError(
            f"There is no distribution {short(str(name))}; choose one of {', '.join(DISTRIBUTIONS)}."
        )
    return DISTRIBUTIONS[name]


def parse_shape(text: str) -> tuple[int, ...]:
    """Read ``64x128``, ``64, 128``, ``64 128``, ``(64,128)`` or ``64×128`` as (64, 128); ``()`` is a scalar.

    >>> parse_shape("64x128"), parse_shape("(64, 128)"), parse_shape("()")
    ((64, 128), (64, 128), ())

    Raises:
        QuantError: a size is missing or not an integer, or the shape fails `check_shape`.
    """
    text = text.strip()
    if not text:
        raise QuantError("The shape is empty; write sizes such as 64x128.")
    if len(text) > 200:
        raise QuantError(f"{short(text)} is too long for a shape; write sizes such as 64x128.")
    if wrapped := _WRAPPED.fullmatch(text):
        text = wrapped.group(1).strip()
    words = _BETWEEN.split(text) if text else []
    for word in words:
        if not word:
            raise QuantError(f"A size is missing in the shape {short(text)}; write sizes such as 64x128.")
        if not re.fullmatch(r"-?[0-9]+", word):
            raise QuantError(f"{short(word)} in the shape is not an integer; write sizes such as 64x128.")
    return check_shape(tuple(int(word) for word in words))


def check_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return ``shape`` as plain ints, if a tensor can have it.

    Raises:
        QuantError: a size is not an integer of at least 1, or there are too many axes or elements.
    """
    if len(shape) > MAX_GENERATED_RANK:
        raise QuantError(f"The shape has {len(shape)} axes; give at most {MAX_GENERATED_RANK}.")
    for axis, size in enumerate(shape):
        if isinstance(size, bool) or not isinstance(size, Integral):
            raise QuantError(f"Axis {axis} of the shape is {short(str(size))}; give an integer.")
        if size < 1:
            raise QuantError(
                f"Axis {axis} of the shape {shape_text(shape)} has size {size}; give at least 1."
            )
    shape = tuple(int(size) for size in shape)
    if math.prod(shape) > MAX_ELEMENTS:
        raise QuantError(
            f"The shape {shape_text(shape)} has more than {MAX_ELEMENTS:,} elements (4096×14336); "
            "make it smaller."
        )
    return shape
