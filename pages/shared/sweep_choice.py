"""Which schemes a sweep compares: the widgets, and the list that they stand for."""

import itertools
from typing import Any

import streamlit as st

import quantcore as qc

_BIND: dict[str, Any] = {"bind": "query-params"}
FORMATS = [f"int{bits}" for bits in (2, 3, 4, 5, 6, 8, 16)] + [name for name in qc.FLOATS if name != "e8m0"]
SYMMETRIES = ["symmetric", "asymmetric"]
GRANULARITIES = ["per_tensor", "per_channel(0)", "per_channel(-1)", "per_group(16)", "per_group(32)", "per_group(64)", "per_group(128)"]  # fmt: skip
RANGES = ["min_max", "percentile(99)", "percentile(99.9)"]
DEFAULTS: dict[str, Any] = {
    "sw_set": "all sensible",
    "sw_formats": ["int4", "int8"],
    "sw_symmetry": SYMMETRIES,
    "sw_per": GRANULARITIES[:2],
    "sw_range": ["min_max"],
    "sw_more": "",
    "sw_presets": [],
    "sw_metric": "sqnr_db",
}
KEYS = set(DEFAULTS)
MOST = 2000


def draw(shape: tuple[int, ...]) -> list[qc.Scheme]:
    """Draw the widgets and return the schemes.

    Raises:
        QuantError: a typed scheme is none, or there are too many.
    """
    which = st.segmented_control(
        "Schemes",
        ["all sensible", "chosen"],
        default=DEFAULTS["sw_set"],
        key="sw_set",
        required=True,
        **_BIND,
    )
    schemes = qc.sensible(shape)
    if which == "chosen":
        columns = st.columns([3, 2, 3, 2])
        labels = {"Formats": FORMATS, "Symmetry": SYMMETRIES, "Granularity": GRANULARITIES, "Range": RANGES}
        keys = ("sw_formats", "sw_symmetry", "sw_per", "sw_range")
        chosen = [
            column.multiselect(label, options, DEFAULTS[key], key=key, **_BIND)
            for column, (label, options), key in zip(columns, labels.items(), keys, strict=True)
        ]
        schemes = [qc.Scheme.parse(" ".join(parts)) for parts in itertools.product(*chosen)]
        # a float has no zero_point to be asymmetric with: not worth a row of refusals
        schemes = [s for s in schemes if s.symmetric or isinstance(s.format, qc.IntFormat)]
    more = st.text_input(
        "And these, separated by ;",
        DEFAULTS["sw_more"],
        key="sw_more",
        placeholder="int4 asymmetric per_group(32) torchao; e4m3fn per_channel",
        **_BIND,
        max_chars=2000,
    )
    schemes += [qc.Scheme.parse(text) for text in more.split(";") if text.strip()]
    presets = st.multiselect("And presets", list(qc.PRESETS), key="sw_presets", **_BIND)
    schemes += [qc.PRESETS[name] for name in presets]
    for key, default in DEFAULTS.items():
        st.session_state.setdefault(key, default)
    if len(schemes) > MOST:
        raise qc.QuantError(f"These are {len(schemes):,} schemes; choose at most {MOST:,}.")
    return list(dict.fromkeys(schemes))
