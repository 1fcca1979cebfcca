"""Which activations, and what the methods leave to choose."""

from dataclasses import dataclass
from typing import Any

from streamlit.delta_generator import DeltaGenerator
from torch import Tensor

import quantcore as qc
from pages.shared.computing import cache
from pages.shared.state import choice, link
from pages.shared.state.selection import NoTensorYet
from pages.sidebar import activations
from pages.sidebar.activations import GivenActivations
from quantcore import outputs, tensors

KV_CACHE = "kv_cache"
# option of the activations' scheme -> its text (empty: kept in float), and what is shown
ACTIVATIONS = {
    "float": ("", "float"),
    "token": ("int8 per_channel(0)", "int8 per token"),
    "tensor": ("int8 per_tensor", "int8 per tensor"),
    "token4": ("int4 per_channel(0)", "int4 per token"),
}
SIGNS = {"none": "none", "random": "random"}
_PICTURES = {name: label for name, label in outputs.METHODS.items() if name != outputs.NEAREST}
PICTURES = _PICTURES | {KV_CACHE: "KV cache"}
DEFAULTS: dict[str, Any] = {
    "om_tokens": 64,
    "om_outliers": 1,
    "om_factor": 20.0,
    "om_correlation": 0.5,
    "om_seed": 0,
    "om_activations": "token",
    "om_method": outputs.GPTQ,
    "om_alpha": 0.5,
    "om_clip": False,
    "om_order": False,
    "om_damping": 0.01,
    "om_signs": "none",
    "om_threshold": 6.0,
    "om_column": 0,
}
KEYS = {*DEFAULTS, activations.SOURCE, activations.VALUES}
REQUIRED = {"om_activations", "om_method", "om_signs", activations.SOURCE}
HELD_OUT_TOKENS = 256
_GENERATED = ("tokens", "outliers", "factor", "correlation", "seed")
CODED = 1 << 14  # activations that a script has room for
_HELP = {
    "tokens": "Rows of x that SmoothQuant, AWQ and GPTQ look at. Errors are measured on "
    f"{HELD_OUT_TOKENS} other tokens.",
    "outliers": "Input channels of x that are much larger than the others for every token, as in large "
    "language models.",
    "factor": "How many times larger an outlier channel is.",
    "correlation": "Of neighboring input channels. GPTQ makes up for the error of one by those that go along "
    "with it.",
    "seed": "Change it for new numbers.",
    "activations": "How x is quantized while the layer runs; the same for every method except LLM.int8, "
    "which always uses int8 per token.",
}


@dataclass(frozen=True)
class ActivationSource:
    """Where activations come from; the fields are the arguments of `quantcore.outputs.activations`."""

    tokens: int
    outliers: int
    factor: float
    correlation: float
    seed: int

    def calibration(self, inputs: int, tokens: int | None = None) -> Tensor:
        """Return the activations that methods look at, as many tokens as chosen or given.

        Raises:
            QuantError: a number is out of range.
        """
        return self._sample(tokens or self.tokens, inputs, outputs.CALIBRATION)

    def held_out(self, inputs: int) -> Tensor:
        """Return the activations that errors are measured on.

        Raises:
            QuantError: a number is out of range.
        """
        return self._sample(HELD_OUT_TOKENS, inputs, outputs.HELD_OUT)

    @property
    def held_tokens(self) -> int:
        """How many tokens errors are measured on."""
        return HELD_OUT_TOKENS

    @property
    def head(self) -> "ActivationSource":
        """By what an attention head is generated."""
        return self

    def codes(self, inputs: int) -> tuple[str, str]:
        """Return expressions of both samples."""
        call = f"qc.outputs.activations({{}}, {inputs}, {self.arguments}{{}})"
        return call.format(self.tokens, ""), call.format(HELD_OUT_TOKENS, ", sample=qc.outputs.HELD_OUT")

    @property
    def arguments(self) -> str:
        """The arguments besides tokens and inputs, as code."""
        return (
            f"outliers={self.outliers}, factor={self.factor!r}, correlation={self.correlation!r}, "
            f"seed={self.seed}"
        )

    def _sample(self, tokens: int, inputs: int, sample: int) -> Tensor:
        return outputs.activations(
            tokens, inputs, outliers=self.outliers, factor=self.factor, correlation=self.correlation,
            seed=self.seed, sample=sample,
        )  # fmt: skip


@dataclass(frozen=True)
class BroughtSource:
    """Activations that were pasted or uploaded: the first half is for calibration, the others for errors."""

    given: GivenActivations

    def __str__(self) -> str:
        return self.given.x.key

    @property
    def tokens(self) -> int:
        """How many tokens methods look at."""
        return -(-self.given.x.shape[0] // 2)

    @property
    def held_tokens(self) -> int:
        """How many tokens errors are measured on: a single one is that as well."""
        return self.given.x.shape[0] - self.tokens or 1

    @property
    def head(self) -> ActivationSource:
        """By what an attention head is generated, since x is no head."""
        return ActivationSource(**{name: DEFAULTS[f"om_{name}"] for name in _GENERATED})

    def calibration(self, inputs: int, tokens: int | None = None) -> Tensor:
        """Return the activations that methods look at, as many tokens as there are or as given.

        Raises:
            QuantError: x has other columns.
        """
        return self._values(inputs)[: tokens or self.tokens]

    def held_out(self, inputs: int) -> Tensor:
        """Return the activations that errors are measured on.

        Raises:
            QuantError: x has other columns.
        """
        return self._values(inputs)[-self.held_tokens :]

    def codes(self, inputs: int) -> tuple[str, str]:
        """Return expressions of both samples.

        Raises:
            QuantError: they are too many for a script.
        """
        if self.given.x.elements > CODED:
            raise qc.QuantError(
                f"x has {self.given.x.elements:,} elements, too many for a script; give fewer tokens."
            )
        both = self.calibration(inputs), self.held_out(inputs)
        first, second = (tensors.array_source(each.numpy()) for each in both)
        return first, second

    def _values(self, inputs: int) -> Tensor:
        values = cache.values(self.given.x)
        if values.shape[1] != inputs:
            raise qc.QuantError(
                f"x has {values.shape[1]:,} columns, but w has {inputs:,}; give x, [tokens, in], with "
                f"{inputs:,} columns under “Activations x”, or another w."
            )
        return values


Source = ActivationSource | BroughtSource


def draw(row: DeltaGenerator, inputs: int) -> tuple[Source, qc.Scheme | None]:
    """Draw the choice of activations; return it, and how they are quantized: None keeps them in float.

    Args:
        inputs: of the layer.

    Raises:
        NoTensorYet: nothing was pasted or uploaded so far.
        QuantError: what was is not a matrix.
    """
    try:
        with row.popover("Activations x", icon=":material/input:", help="Where they come from"):
            given = activations.brought(inputs)
    except (NoTensorYet, qc.QuantError):
        link.keep(set(DEFAULTS))  # which this run does not draw
        raise
    if given is None:
        return _generated(row), _scheme(row)
    link.keep({f"om_{name}" for name in _GENERATED})
    return BroughtSource(given), _scheme(row)


def _generated(row: DeltaGenerator) -> ActivationSource:
    bound: dict[str, Any] = {"bind": "query-params", "width": 116}
    values = {key: DEFAULTS[key] for key in ("om_tokens", "om_outliers", "om_factor", "om_correlation")}
    tokens = row.number_input(
        "Tokens", 1, 4096, values["om_tokens"], key="om_tokens", help=_HELP["tokens"], **bound
    )
    outliers = row.number_input(
        "Outlier channels", 0, 4096, values["om_outliers"], key="om_outliers", help=_HELP["outliers"], **bound
    )
    factor = row.number_input(
        "Outlier factor", 1.0, 1000.0, values["om_factor"], 5.0, "%g", key="om_factor",
        help=_HELP["factor"], **bound,
    )  # fmt: skip
    correlation = row.number_input(
        "Correlation", -0.99, 0.99, values["om_correlation"], 0.1, "%g", key="om_correlation",
        help=_HELP["correlation"], **bound,
    )  # fmt: skip
    seed = row.number_input(
        "Seed of x", 0, 2**31, DEFAULTS["om_seed"], key="om_seed", help=_HELP["seed"], **bound
    )
    return ActivationSource(int(tokens), int(outliers), float(factor), float(correlation), int(seed))


def _scheme(row: DeltaGenerator) -> qc.Scheme | None:
    names = {name: label for name, (_, label) in ACTIVATIONS.items()}
    how = choice.selectbox(
        "Activations", "om_activations", names, row, index=list(names).index("token"), width=160,
        help=_HELP["activations"],
    )  # fmt: skip
    text = ACTIVATIONS[how][0]
    return qc.Scheme.parse(text) if text else None


def method(place: DeltaGenerator) -> str:
    """Draw the choice of the method whose steps are shown."""
    usual = DEFAULTS["om_method"]
    return choice.segmented("Steps of", "om_method", PICTURES, place, default=usual, width="content")


def options(method: str, place: DeltaGenerator) -> outputs.MethodOptions:
    """Draw what the methods leave to choose, those of the chosen one visible: all of them are in the link."""
    rows = {
        name: place.container(
            key=f"om_{'shown' if name == method else 'hidden'}_{name}",
            horizontal=True, vertical_alignment="bottom", width="content",
        )
        for name in (outputs.SMOOTHQUANT, outputs.AWQ, outputs.GPTQ, outputs.HADAMARD, outputs.LLM_INT8)
    }  # fmt: skip
    alpha = rows[outputs.SMOOTHQUANT].slider(
        "α", 0.0, 1.0, DEFAULTS["om_alpha"], 0.05, key="om_alpha", bind="query-params", width=300,
        help="s = max|x|^α / max|w|^(1−α): 0 leaves all of the outliers to x, 1 moves all to w.",
    )  # fmt: skip
    clip = rows[outputs.AWQ].toggle(
        "Search clipping thresholds too", key="om_clip", bind="query-params",
        help="Of every row and group, from 100 % down to 55 % of its largest weight, as AutoAWQ does.",
    )  # fmt: skip
    signs = choice.segmented(
        "Signs", "om_signs", SIGNS, rows[outputs.HADAMARD], width="content",
        help="random multiplies every channel by ±1 first, as QuaRot does.",
    )  # fmt: skip
    threshold = rows[outputs.LLM_INT8].number_input(
        "Threshold", 0.1, 1000.0, DEFAULTS["om_threshold"], 0.5, "%g", key="om_threshold", width=130,
        bind="query-params", help="A column of x with a magnitude of this or more is kept in 16 bits.",
    )  # fmt: skip
    damping, act_order = _of_gptq(rows[outputs.GPTQ])
    seed = 0 if signs == "random" else None
    return outputs.MethodOptions(float(alpha), bool(clip), act_order, damping, seed, float(threshold))


def _of_gptq(row: DeltaGenerator) -> tuple[float, bool]:
    damping = row.number_input(
        "Damping", 0.0, 1.0, DEFAULTS["om_damping"], 0.01, "%g", key="om_damping", width=130,
        bind="query-params",
        help="Added to the diagonal of H, in multiples of its mean: without it, H can't be inverted where "
        "tokens are fewer than inputs.",
    )  # fmt: skip
    act_order = row.toggle(
        "act-order", key="om_order", bind="query-params",
        help="Codes the columns with the largest inputs first, while many are left to make up for them.",
    )  # fmt: skip
    return float(damping), bool(act_order)
