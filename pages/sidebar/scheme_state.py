"""State of the scheme controls: their defaults, and how to set them to a given scheme."""

from typing import Any

import streamlit as st

import quantcore as qc
from pages.shared import mirrored

# Widget keys are the parameters of the link, and the link omits a parameter at its default. So no default may depend
# on the tensor: where the usual value does, the default is empty and stands for that value.
DEFAULTS: dict[str, Any] = {
    "format": "integers",
    "fit_size": 16,
    "fit_method": "kmeans",
    "library": "textbook",
    "bits": 4,
    "codes": "signed",
    "narrow": False,
    "mode": "symmetric",
    "per": "tensor",
    "axis": 0,
    "group_axis": None,
    "group": None,
    "block": "",
    "range": "min-max",
    "p": 99.0,
    "candidates": 100,
    "bins": 2048,
    "k": 3.0,
    "low": -1.0,
    "high": 1.0,
    "scale": "0.1",
    "zero_point": "0",
    "overflow": "saturate",
    "rounding": "the library's own",
    "rounding_seed": 0,
    "scales": "",
}
MIN_PERCENTILE = 50.001  # of the control; quantcore takes any above 50
RANK = "_rank"  # of the tensor for which the controls were last drawn
PRESET = "_preset"
TEXT, TEXT_ERROR = "_scheme_text", "_scheme_text_error"


def reset() -> None:
    """Set every option back to its default (a callback)."""
    st.session_state.update(DEFAULTS)


def apply_scheme(scheme: qc.Scheme) -> None:
    """Set the controls to a scheme (for callbacks).

    Raises:
        QuantError: the tensor has no such axis, or a control can't represent a value.
    """
    fmt, chosen, convention = scheme.format, dict(DEFAULTS), scheme.convention
    changed = sorted(convention.changes().keys() - {"overflow", "rounding"})
    if changed:
        raise qc.QuantError(
            f"{changed[0]} of {convention.name} can't be set here; leave it out, or use quantcore in a notebook."
        )
    if isinstance(fmt, qc.IntFormat):
        chosen |= {"bits": fmt.bits, "codes": "signed" if fmt.signed else "unsigned", "narrow": fmt.narrow}
    else:
        chosen |= {"format": str(fmt)}
    chosen |= {
        "mode": "symmetric" if scheme.symmetric else "asymmetric",
        "overflow": convention.coding.overflow,
        "scales": "" if scheme.scales is None else str(scheme.scales),
        "library": convention.name,
    }
    rounding, _, seed = convention.changes().get("rounding", DEFAULTS["rounding"]).partition("stochastic_")
    chosen |= {"rounding": rounding or "stochastic", "rounding_seed": int(seed or 0)}
    match scheme.granularity:
        case qc.PerChannel(axis):
            chosen |= {"per": "channel", "axis": _from_start(axis)}
        case qc.PerGroup(size, axis):
            chosen |= {"per": "group", "group": size, "group_axis": _from_start(axis)}
        case qc.PerFlatGroup(size):
            chosen |= {"per": "flat group", "group": size}
        case qc.PerBlock(lengths):
            chosen |= {"per": "block", "block": "x".join(map(str, lengths))}
    chosen |= range_choices(scheme.range_setting)
    st.session_state.update(chosen)


def range_choices(setting: qc.RangeSetting) -> dict[str, Any]:
    """The values of the range controls for a range setting.

    Raises:
        QuantError: a control can't represent a value.
    """
    match setting:
        case qc.Percentile(p):
            if p < MIN_PERCENTILE:
                raise qc.QuantError(f"The percentile here must be at least {MIN_PERCENTILE}, not {p}.")
            return {"range": "percentile", "p": p}
        case qc.MinMse(candidates):
            return {"range": "min MSE", "candidates": candidates}
        case qc.Entropy(bins, quantized):
            if quantized != qc.Entropy().num_quantized_bins:
                raise qc.QuantError("num_quantized_bins can't be set here; leave it out.")
            return {"range": "entropy", "bins": bins}
        case qc.MeanStd(k):
            return {"range": "mean ± k·std", "k": k}
        case qc.AbsMean():
            return {"range": "mean |x|"}
        case qc.HalfQuadratic():
            if setting != qc.HalfQuadratic():
                raise qc.QuantError("The arguments of half_quadratic can't be set here; leave them out.")
            return {"range": "half-quadratic"}
        case qc.Fixed(low, high):
            return {"range": "fixed", "low": low, "high": high}
        case qc.Given(scale, zero_point):
            return {"range": "by hand", "scale": _typed(scale), "zero_point": _typed(zero_point)}
    return {"range": "min-max"}


def apply_text(key: str) -> None:
    """Set the controls to the scheme typed as text (a callback)."""
    if not mirrored.typed(TEXT, key):
        return
    try:
        apply_scheme(qc.Scheme.parse(st.session_state[key]))
    except qc.QuantError as error:
        st.session_state[TEXT_ERROR] = str(error)


def load_preset() -> None:
    """Set the controls to the chosen preset, and clear the choice (a callback)."""
    name = st.session_state[PRESET]
    st.session_state[PRESET] = None
    if name is None:
        return
    try:
        apply_scheme(qc.PRESETS[name])
    except qc.QuantError as error:
        st.session_state[TEXT_ERROR] = str(error)


def _typed(value: Any) -> str:
    return str(value).replace("(", "[").replace(",)", "]").replace(")", "]")


def _from_start(axis: int) -> int:
    """The axis counted from the first; a scheme may count from the last.

    Raises:
        QuantError: the tensor has no such axis.
    """
    rank = max(1, int(st.session_state.get(RANK, 1)))
    if not -rank <= axis < rank:
        raise qc.QuantError(f"The tensor has no axis {axis}: its axes are 0..{rank - 1}.")
    return axis % rank
