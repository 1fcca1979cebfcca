"""State of the scheme controls: their defaults, and how to set them to a given scheme."""

from typing import Any

import streamlit as st

import quantcore as qc
from pages.shared.state import link, mirrored
from quantcore.range_setting import RANGE_SETTINGS

# by option; ggml's searches are one option, and which one is typed
RANGES = {kind.option: kind for kind in RANGE_SETTINGS.values()}
# Widget keys are the parameters of the link, and the link omits a parameter at its default. So no default may
# depend on the tensor: if the usual value does, the default is empty and stands for that value.
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
    "group_all": False,
    "block": "",
    "range": qc.MinMax.option,
    **{control.key: control.default for kind in RANGES.values() for control in kind.controls},
    "overflow": "saturate",
    "rounding": "library",
    "rounding_seed": 0,
    "scales": "",
}
# the two options of a choice, the default first
CODES, SYMMETRY = ("signed", "unsigned"), ("symmetric", "asymmetric")
RANK = "_rank"  # of the tensor for which the controls were last drawn
PRESET = "_preset"
WHOLE = "scheme"  # the parameter of a link with a scheme as text
TEXT, TEXT_ERROR = "_scheme_text", "_scheme_text_error"


def apply_scheme(scheme: qc.Scheme) -> None:
    """Set the controls to a scheme (for callbacks).

    Raises:
        QuantError: the tensor has no such axis, or a control can't represent a value.
    """
    fmt, chosen, convention = scheme.format, dict(DEFAULTS), scheme.convention
    changed = sorted(convention.changes().keys() - {"overflow", "rounding"})
    if changed:
        raise qc.QuantError(
            f"{changed[0]} of {convention.name} can't be set here; leave it out, or use quantcore in a "
            "notebook."
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
            chosen |= {"per": "flat_group", "group": size}
        case qc.PerBlock(lengths):
            chosen |= {"per": "block", "block": "x".join(map(str, lengths))}
    link.put(chosen | range_choices(scheme.range_setting))


def range_choices(setting: qc.RangeSetting) -> dict[str, Any]:
    """Return the values of the range controls for a range setting.

    Raises:
        QuantError: a control can't represent a value.
    """
    return {"range": setting.option, **setting.choices()}


def change_to(scheme: qc.Scheme | str) -> None:
    """Set the controls to a scheme or its text, or show why that is not possible (a callback)."""
    try:
        apply_scheme(qc.Scheme.parse(scheme) if isinstance(scheme, str) else scheme)
    except qc.QuantError as error:
        st.session_state[TEXT_ERROR] = str(error)


def apply_text(key: str) -> None:
    """Set the controls to the scheme typed as text (a callback)."""
    if mirrored.typed(TEXT, key):
        change_to(st.session_state[key])


def load_preset() -> None:
    """Set the controls to the chosen preset, or to the scheme typed in its place (a callback)."""
    name = st.session_state[PRESET]
    if name is not None:
        change_to(qc.PRESETS.get(name) or name)


def forget_mistyped() -> None:
    """Forget why a text is not a scheme, once a run has said so."""
    st.session_state.pop(TEXT_ERROR, None)


def take_linked(rank: int) -> None:
    """Set the controls, before they are drawn, to the scheme that a link has as text, as notebooks write it.

    The link then has the controls' own parameters, or the text stays in the sentence that says why not.
    """
    text = st.query_params.get(WHOLE)
    if text is not None:
        link.understand(WHOLE)
        link.write(WHOLE, None)
        st.session_state.setdefault(RANK, rank)
        change_to(text)


def _from_start(axis: int) -> int:
    """Return the axis counted from the first; a scheme may count from the last.

    Raises:
        QuantError: the tensor has no such axis.
    """
    rank = max(1, int(st.session_state.get(RANK, 1)))
    if not -rank <= axis < rank:
        raise qc.QuantError(f"The tensor has no axis {axis}: its axes are 0..{rank - 1}.")
    return axis % rank
