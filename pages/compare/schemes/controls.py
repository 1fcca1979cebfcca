"""Which schemes to compare: the controls, and the list of schemes chosen with them."""

import itertools
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

import quantcore as qc
from pages.shared.state import choice, link
from pages.shared.state.selection import NoTensorYet
from pages.sidebar import activations
from pages.sidebar.activations import GivenActivations
from quantcore.figures import AXES
from quantcore.wording import shape_text

FORMATS = [
    *(f"{sign}int{bits}" for bits in (2, 3, 4, 5, 6, 8, 16) for sign in ("", "u")),
    *(name for name in qc.FLOATS if name != "e8m0"),
    *qc.CODEBOOKS,
]
SYMMETRIES = ["symmetric", "asymmetric"]
GRANULARITIES = [
    "per_tensor",
    "per_channel(0)",
    "per_channel(-1)",
    *(f"per_group({size})" for size in (16, 32, 64, 128, 256)),
    "per_block([32,32])",
    "per_block([128,128])",
    "per_flat_group(64)",
]
RANGES = [
    "min_max",
    "percentile(99)",
    "percentile(99.9)",
    "min_mse",
    "entropy",
    "mean_std(3)",
    "abs_mean",
    "half_quadratic hqq",
]
SETS = {"default": "default", "presets": "presets", "chosen": "custom"}  # option -> what is shown
DEFAULTS: dict[str, Any] = {
    "sw_set": "default",
    "sw_formats": ["int4", "int8"],
    "sw_symmetry": SYMMETRIES,
    "sw_per": GRANULARITIES[:2],
    "sw_range": RANGES[:1],
    "sw_more": "",
    "sw_presets": [],
    "sw_metric": "sqnr_db",
    "sw_limit": 4.5,
    "sw_filter": "",
    "sw_best": False,
    "sw_maps": [],
}
KEYS = {*DEFAULTS, *activations.KEYS}
OUTPUT = "output_sqnr_db"  # the metric that needs activations
_CHOICES = ("sw_formats", "sw_symmetry", "sw_per", "sw_range")
MOST = 2000


def draw(row: DeltaGenerator, shape: tuple[int, ...], own: qc.Scheme | None) -> list[qc.Scheme]:
    """Draw which schemes there are, and return them without duplicates.

    Args:
        row: for the choice of the set.
        own: the scheme in the sidebar, which is always included.

    Raises:
        QuantError: a typed scheme is invalid, or there are too many.
    """
    link.reworded("sw_set", {"all sensible": SETS["default"], "all presets": SETS["presets"]})
    which = choice.segmented(
        "Schemes",
        "sw_set",
        SETS,
        row,
        width="content",
        help="default: common formats, granularities and range settings that fit this tensor, and every "
        "preset. presets: only the presets. custom: every combination of what you choose.",
    )
    schemes = _chosen() if which == "chosen" else list(qc.PRESETS.values())
    if which == "default":
        schemes = qc.default_schemes(shape)
    left, right = st.columns(2)
    presets = left.multiselect("Add presets", list(qc.PRESETS), key="sw_presets", bind="query-params")
    more = right.text_input(
        "Add schemes (separate with ;)",
        DEFAULTS["sw_more"],
        key="sw_more",
        placeholder="int4 asymmetric per_group(32) torchao; e4m3fn per_channel",
        bind="query-params",
        max_chars=2000,
        help="Schemes in text form, as shown at the top of Explore.",
    )
    for key in _CHOICES:  # so that the link keeps them while they are not drawn
        st.session_state.setdefault(key, DEFAULTS[key])
    schemes += [qc.PRESETS[name] for name in presets]
    schemes += [qc.Scheme.parse(text) for text in more.split(";") if text.strip()]
    if schemes and own is not None:
        schemes.append(own)
    if len(schemes) > MOST:
        raise qc.QuantError(f"{len(schemes):,} schemes are too many; choose at most {MOST:,}.")
    return list(dict.fromkeys(schemes))


def metric(row: DeltaGenerator) -> str:
    """Draw the choice of the error metric and return its name in quantcore."""
    labels = {name: label for name, (label, _) in AXES.items()}
    usual = DEFAULTS["sw_metric"]
    return choice.segmented("Error metric", "sw_metric", labels, row, default=usual, width="content")


def given(shape: tuple[int, ...], metric: str, row: DeltaGenerator) -> GivenActivations | None:
    """Draw where the activations come from if the metric needs them; return them, else None.

    Raises:
        NoTensorYet: there are none yet.
        QuantError: they are not valid, or the tensor is no matrix.
    """
    if metric != OUTPUT:
        link.keep(set(activations.DEFAULTS))
        return None
    if len(shape) != 2:
        raise qc.QuantError(
            f"The output x·wᵀ needs a matrix w, [out, in], and this tensor has shape {shape_text(shape)}; "
            "choose one with two axes in the sidebar, or another error metric."
        )
    found = activations.popover(shape[1], row)
    if found.x.shape[1] != shape[1]:
        raise NoTensorYet(
            f"x has {found.x.shape[1]:,} columns, but the tensor in the sidebar has {shape[1]:,}: give x, "
            f"[tokens, in], with {shape[1]:,} columns under “Activations x”."
        )
    return found


def filters(row: DeltaGenerator) -> tuple[str, bool]:
    """Draw which rows of the table are shown; return the words that they contain, and whether only the
    Pareto frontier is.
    """
    typed = row.text_input(
        "Filter the table",
        key="sw_filter",
        bind="query-params",
        placeholder="such as int4 per_group",
        width=190,
        help="Words that a row must contain",
    )
    return str(typed), bool(row.checkbox("Pareto frontier only", key="sw_best", bind="query-params"))


def _chosen() -> list[qc.Scheme]:
    """Draw one list per part of a scheme; return every combination of the choices."""
    columns = st.columns([3, 2, 3, 3])
    labels = {
        "Formats": FORMATS,
        "Symmetry": SYMMETRIES,
        "Granularity": GRANULARITIES,
        "Range setting": RANGES,
    }
    helps = (
        "Or type another, such as int7, uint8n (narrow range), float(3, 2), log2_5, codebook([-1, 0, 2]).",
        "Floats and codebooks have no zero point: with both chosen, they are compared as symmetric only.",
        "Or type another, such as per_group(48), per_channel(1), per_block([2,2]).",
        "Or type another, such as percentile(98), min_mse(20), mean_std(2.5), fixed(-1, 1), given(0.1).",
    )
    chosen = [
        column.multiselect(
            label,
            options,
            DEFAULTS[key],
            key=key,
            help=text,
            accept_new_options=options is not SYMMETRIES,
            bind="query-params",
        )
        for column, (label, options), key, text in zip(columns, labels.items(), _CHOICES, helps, strict=True)
    ]
    found = [qc.Scheme.parse(" ".join(words)) for words in itertools.product(*chosen)]
    one_symmetry = len(chosen[1]) < len(SYMMETRIES)
    return [s for s in found if one_symmetry or s.symmetric or s.format.has_zero_point]
