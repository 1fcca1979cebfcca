"""Accuracy against bits: each method at each bit width, over several seeds."""

import dataclasses
from collections import defaultdict
from collections.abc import Collection, Generator, Iterable, Sequence
from dataclasses import dataclass

from quantcore.errors import QuantError
from quantcore.formats import IntFormat
from quantcore.scheme import Scheme
from quantcore.training.network import Network, accuracy, load_digits
from quantcore.training.quantized import ptq
from quantcore.training.sgd import HIDDEN, TRAINING, TUNING, Training, qat, train

METHODS = ("ptq", "qat", "lsq")
FLOAT = "float"
FLOAT_BITS = 32
WEIGHTS = Scheme()


@dataclass(frozen=True)
class MethodAccuracy:
    """Accuracy on the held-out images, 0 to 1; method "float" is the network before quantization."""

    method: str
    bits: int
    seed: int
    accuracy: float


@dataclass(frozen=True)
class Point:
    """A method and bit width over several seeds: mean, lowest and highest accuracy."""

    method: str
    bits: int
    seeds: int
    mean: float
    lowest: float
    highest: float


def accuracy_curve(
    bits: Sequence[int] = (2, 3, 4, 6, 8),
    seeds: Sequence[int] = (0, 1, 2, 3, 4),
    methods: Sequence[str] = METHODS,
    weights: Scheme = WEIGHTS,
    activations: Scheme | None = None,
    training: Training = TRAINING,
    tuning: Training = TUNING,
    hidden: tuple[int, ...] = HIDDEN,
    known: Collection[MethodAccuracy] = (),
) -> Generator[MethodAccuracy, None, None]:
    """Yield each row once it is known: for each seed the float network, then every bit width and method.

    Args:
        weights, activations: schemes whose integer formats take each bit width in turn.
        methods: "ptq", "qat" (straight-through, scales from the scheme), "lsq" (learned scales).
        known: rows from an earlier call with the same arguments that was stopped; they are skipped.

    Raises:
        QuantError: at once, for an unknown method, an invalid bit width, or a format other than integers;
            while it runs, for whatever `train`, `ptq` or `qat` rejects.
    """
    unknown = [m for m in methods if m not in METHODS]
    if unknown:
        raise QuantError(f"{str(unknown[0])[:40]!r} is not a method; choose among {', '.join(METHODS)}.")
    schemes = {b: (_at(b, weights), activations and _at(b, activations)) for b in bits}
    done = {(row.method, row.bits, row.seed) for row in known}
    wanted = [(FLOAT, FLOAT_BITS), *((method, b) for b in schemes for method in methods)]

    def rows() -> Generator[MethodAccuracy, None, None]:
        for seed in seeds:
            missing = [what for what in wanted if (*what, seed) not in done]
            if missing:
                *_, last = train(training, seed, hidden)
            for method, b in missing:
                if method == FLOAT:
                    yield MethodAccuracy(FLOAT, b, seed, last.accuracy)
                else:
                    found = _accuracy(method, last.network, *schemes[b], tuning, seed)
                    yield MethodAccuracy(method, b, seed, found)

    return rows()


def summary(rows: Iterable[MethodAccuracy]) -> list[Point]:
    """Return one point per method and bit width, in order of appearance."""
    found: dict[tuple[str, int], list[float]] = defaultdict(list)
    for row in rows:
        found[row.method, row.bits].append(row.accuracy)
    return [Point(*key, len(a), sum(a) / len(a), min(a), max(a)) for key, a in found.items()]


def _accuracy(
    method: str, network: Network, weights: Scheme, activations: Scheme | None, tuning: Training, seed: int
) -> float:
    if method == "ptq":
        digits = load_digits()
        return accuracy(ptq(network, weights, activations).logits(digits.test_images), digits.test_labels)
    *_, last = qat(network, weights, activations, tuning, seed, learned_scales=method == "lsq")
    return last.accuracy


def _at(bits: int, scheme: Scheme) -> Scheme:
    if not isinstance(scheme.format, IntFormat):
        raise QuantError(
            f"{scheme.format} does not come in other bit widths; choose an integer format such as int8."
        )
    return dataclasses.replace(scheme, format=dataclasses.replace(scheme.format, bits=bits))
