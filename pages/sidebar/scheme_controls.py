"""Controls for the scheme: one widget per option, each bound to one parameter of the link."""

import math
from typing import Any

import streamlit as st

import quantcore as qc
from pages.shared import messages
from pages.shared.computing import cache
from pages.shared.state import choice, link
from pages.shared.state.selection import PageTensor
from pages.sidebar import granularities
from pages.sidebar.granularities import PER, allowed, default_group_size
from pages.sidebar.scheme_state import (
    CODES,
    DEFAULTS,
    PRESET,
    RANGES,
    RANK,
    SYMMETRY,
    TEXT_ERROR,
    load_preset,
)  # fmt: skip
from quantcore.conventions import CONVENTIONS
from quantcore.formats import MAX_BITS, MAX_VALUES, METHODS, MIN_BITS
from quantcore.numerics import MAX_SEED, WORDS
from quantcore.range_setting import Control
from quantcore.scheme import KINDS
from quantcore.wording import joined

INTEGERS, FITTED = DEFAULTS["format"], "fitted codebook"
UNFITTED = qc.CODEBOOKS["ternary"]  # placeholder until there is a tensor to fit
_WRAP_HELP = (
    "What happens to a code out of range: saturate clamps it to the nearest code, wrap keeps its lowest "
    "bits, as a cast without a clamp does."
)
_ABOUT = list(dict.fromkeys(kind.about for kind in RANGES.values()))
_RANGE_HELP = f"How to find the range that the codes span: {', '.join(_ABOUT[:-1])}, or {_ABOUT[-1]}."
_NARROW_HELP = "Leave out the lowest code, so that signed codes are symmetric: -127 to 127 for 8 bits."


def draw(shape: tuple[int, ...], tensor: PageTensor | None = None) -> qc.Scheme:
    """Draw the controls for a tensor of ``shape`` and return the scheme.

    Args:
        tensor: the tensor that a codebook is fitted to.

    Raises:
        QuantError: the input is not a valid scheme, or no codebook can be fitted.
    """
    _heading()
    name = _format()
    size, method = _fit() if name == FITTED else (0, "")
    convention = _library(_kind(name))
    bits, signed, symmetric, narrow = 0, True, True, False
    if name == INTEGERS:
        bits = st.slider("Bits", MIN_BITS, MAX_BITS, DEFAULTS["bits"], key="bits", bind="query-params")
        signed = _either("Codes", "codes", *CODES, label_visibility="collapsed")
        symmetric = _either("Symmetry", "mode", *SYMMETRY, label_visibility="collapsed")
        if symmetric and not signed:
            _say_zero_points(qc.IntFormat(bits, signed=False), convention)
    try:
        granularity = _granularity(shape, convention)
        range_setting = _range()
    finally:  # an error above must not hide the remaining controls
        saturate = name != INTEGERS or _either("Overflow", "overflow", "saturate", "wrap", help=_WRAP_HELP)
        rounding, scales = _rounding(), _scales()
        if name == INTEGERS:
            narrow = st.checkbox(
                "Narrow range", DEFAULTS["narrow"], key="narrow", bind="query-params", help=_NARROW_HELP
            )
    if not saturate:
        convention = convention.changed(overflow="wrap")
    if rounding != DEFAULTS["rounding"]:
        convention = convention.changed(rounding=rounding)
    integers = qc.IntFormat(bits, signed, narrow) if name == INTEGERS else None
    fmt = integers or (UNFITTED if name == FITTED else qc.parse_format(name))
    scheme = qc.Scheme(
        fmt, symmetric, granularity, range_setting, convention, qc.Scheme.parse(scales) if scales else None
    )
    return scheme if name != FITTED or tensor is None else cache.fitted(tensor, scheme, size, method)


def _say_zero_points(fmt: qc.IntFormat, convention: qc.Convention) -> None:
    """Draw which zero point unsigned symmetric codes have here, and one library per other zero point."""
    here, others = convention.zero_point.middle(fmt), dict[int, str]()
    for other in qc.INTEGER_CONVENTIONS.values():
        kinds, place = allowed(other, "kind"), other.zero_point.middle(fmt)
        if place != here and (kinds is None or "unsigned symmetric" in kinds):
            others.setdefault(place, other.name)
    if others:
        elsewhere = joined([f"{place} in {name}" for place, name in others.items()])
        st.caption(messages.plain(f"Zero point {here}; {elsewhere}."))


def _heading() -> None:
    """Draw the heading with the Reset button, and the choice of a preset."""
    row = st.container(horizontal=True, horizontal_alignment="distribute", vertical_alignment="center")
    row.subheader("Scheme", width="content")
    help_ = "Set every option of the scheme back to its default"
    row.button("Reset", on_click=link.put, args=(DEFAULTS,), type="tertiary", help=help_)
    if TEXT_ERROR not in st.session_state:  # a text that is no scheme stays for correction
        st.session_state[PRESET] = None
    st.selectbox(
        "Preset",
        list(qc.PRESETS),
        index=None,
        placeholder="Preset or scheme…",
        accept_new_options=True,
        key=PRESET,
        on_change=load_preset,
        label_visibility="collapsed",
        help="A scheme by the name that its library gives it, or as text, such as "
        "int4 asymmetric per_group(32); sets every option below.",
    )


def _format() -> str:
    """Draw the format control; return the format as chosen or typed."""
    return str(
        st.selectbox(
            "Format",
            [INTEGERS, *qc.FLOATS, *qc.CODEBOOKS, FITTED],
            key="format",
            accept_new_options=True,
            bind="query-params",
            help="Integers, small floats, codebooks, or a codebook fitted to the tensor. Or type another: "
            "float(3, 2, bias=3, infinities=True, nan=ieee) with 3 exponent and 2 mantissa bits, "
            "e5m2(saturate=False), log2_5, codebook([-1, 0, 2]), nf4(tie=upper).",
        )
    ).strip()


def _kind(chosen: str) -> str:
    """Return a format's kind, chosen or typed, as conventions name it: "int", "float" or "codebook"."""
    if chosen in (INTEGERS, FITTED):
        return "int" if chosen == INTEGERS else "codebook"
    try:
        return KINDS[type(qc.parse_format(chosen))]
    except qc.QuantError:  # reported where the scheme is built
        return "float"


def _fit() -> tuple[int, str]:
    """Draw size and method of the fitted codebook; return them."""
    left, right = st.columns(2)
    size = left.number_input(
        "Values", 2, MAX_VALUES, DEFAULTS["fit_size"], key="fit_size", bind="query-params"
    )
    method = choice.selectbox(
        "Method",
        "fit_method",
        METHODS,
        right,
        index=list(METHODS).index(DEFAULTS["fit_method"]),
        help="How the codebook is fitted. Lloyd-Max moves each value to the mean of the elements nearest to "
        "it, starting from quantiles (Lloyd 1982, Max 1960). k-means also tries the best start, found by "
        "dynamic programming (Wang and Song 2011). Both are implemented in quantcore with torch.",
    )
    return int(size), method


def _scales() -> str:
    """Draw the scheme that quantizes the scales; return its text, empty if nothing does."""
    return str(
        st.text_input(
            "Scales stored as",
            DEFAULTS["scales"],
            placeholder="as computed",
            key="scales",
            bind="query-params",
            max_chars=300,
            help="A scheme that quantizes the scales themselves, such as uint8 asymmetric, or e8m0 given(1) "
            "for powers of two. Its granularity applies to the tensor of scales.",
        )
    ).strip()


def _rounding() -> str:
    """Draw the rounding control; return the name of the rounding rule, as conventions use it."""
    rule = choice.selectbox(
        "Rounding",
        "rounding",
        {DEFAULTS["rounding"]: "the library's own"} | WORDS,
        accept_new_options=True,
        help="How x/s becomes an integer, or a value of a small float. Most libraries round half to even; "
        "stochastic rounds up with a probability equal to the fraction. Codebooks always use the nearest "
        "value.",
    )
    if rule != "stochastic":
        return rule
    seed = int(st.number_input("Rounding seed", 0, MAX_SEED, 0, key="rounding_seed", bind="query-params"))
    return f"{rule}_{seed}" if seed else rule


def _range() -> qc.RangeSetting:
    """Draw the range setting and its arguments, which range settings describe themselves; return it.

    Raises:
        QuantError: the input is not a valid range setting.
    """
    names = {option: kind.label or option for option, kind in RANGES.items()}
    kind = RANGES[choice.selectbox("Range", "range", names, help=_RANGE_HELP)]
    places = st.columns(len(kind.controls)) if len(kind.controls) > 1 else [st]
    arguments = zip(places, kind.controls, strict=False)
    return kind.chosen({control.key: _argument(place, control) for place, control in arguments})


def _argument(place: Any, control: Control) -> Any:
    common: dict[str, Any] = {"key": control.key, "help": control.help, "bind": "query-params"}
    if isinstance(control.default, str):
        return place.text_input(control.label, control.default, **common)
    bounds = control.low, control.high
    return place.number_input(
        control.label, *bounds, control.default, step=control.step, format=control.format, **common
    )


def _library(kind: str) -> qc.Convention:
    """Draw the choice of the convention; ``kind`` is "int", "float" or "codebook"."""
    current = (st.session_state.get("library"), st.query_params.get("library"))
    name = st.selectbox(
        "Library",
        [c.name for c in CONVENTIONS.values() if kind in c.formats or c.name in current],
        key="library",
        bind="query-params",
        help="Whose integers are shown, bit for bit. Under the same scheme, libraries differ in the scale, "
        "in the order of operations and in edge cases; textbook uses the formulas that courses teach.",
    )
    return CONVENTIONS[name]


def _either(label: str, key: str, first: str, other: str, **more: Any) -> bool:
    """Draw a choice between two options; return whether the first, the default, is chosen."""
    return choice.segmented(label, key, {first: first, other: other}, width="stretch", **more) == first


def _granularity(shape: tuple[int, ...], convention: qc.Convention) -> qc.Granularity:
    st.session_state[RANK] = len(shape)
    supported = allowed(convention, "granularity")
    # an unsupported value already chosen, or in the link, stays: the page reports it
    current = (st.session_state.get("per"), st.query_params.get("per"))
    per = choice.selectbox(
        "One scale per",
        "per",
        {
            option: name
            for option, name in PER.items()
            if supported is None or f"per_{option}" in supported or {option, name} & {*current}
        },
        help="The elements that share one scale: the whole tensor, a channel (one index along an axis), a "
        "group (a run along an axis; of one row, or of all rows together), a flat group (a run in memory "
        "order, across the ends of rows) or a block (a box of elements).",
    )
    match per:
        case "channel":
            axes = list(range(max(1, len(shape))))
            label = "Axis (0: rows, 1: columns)" if len(shape) == 2 else "Axis"
            return qc.PerChannel(
                st.selectbox(label, axes, key="axis", bind="query-params", help=_axes_help(shape))
            )
        case "group":
            divides = granularities.group_divides(convention)
            return _group(shape, divides, blocks=supported is None or "per_block" in supported)
        case "flat_group":
            return qc.PerFlatGroup(_size(math.prod(shape), allowed(convention, "divides")))
        case "block":
            return _block(shape)
    return qc.PerTensor()


def _group(
    shape: tuple[int, ...], must_divide: tuple[Any, ...] | None, blocks: bool
) -> qc.PerGroup | qc.PerBlock:
    """Draw the choices of a group; ``blocks``: whether one may span the other axes."""
    axes = list(range(max(1, len(shape))))
    left, right = st.columns(2)  # the size is shown first but drawn second: it depends on the axis
    axis = right.selectbox(
        "Along axis",
        axes,
        index=None,
        placeholder=f"{axes[-1]} (last)",
        key="group_axis",
        bind="query-params",
        help=_axes_help(shape),
    )
    axis = axes[-1] if axis is None else axis
    length = shape[axis] if shape else 1
    with left:
        size = _size(length, must_divide, f"Axis {axis}")
    if len(shape) < 2 or not (blocks or choice.before_drawn("group_all")):
        return qc.PerGroup(size, axis)
    own, others = (f"indices of axis {axis}", "other axes")
    if len(shape) == 2:
        own, others = (("rows", "columns"), ("columns", "rows"))[axis]
    if st.checkbox(
        f"Shared by all {others}",
        DEFAULTS["group_all"],
        key="group_all",
        bind="query-params",
        help=f"One scale for {size} {own} over all {others}; otherwise each of the {others} has its own.",
    ):
        return qc.PerBlock(tuple(size if i == axis else n for i, n in enumerate(shape)))
    return qc.PerGroup(size, axis)


def _size(length: int, must_divide: tuple[Any, ...] | None, whose: str = "The tensor") -> int:
    """Draw the choice of the group size along ``length`` elements."""
    sizes = [n for n in _group_sizes(length) if not must_divide or length % n == 0]
    default = default_group_size(length, bool(must_divide))
    typed = st.selectbox(
        "Group size",
        sizes,
        index=None,
        placeholder=str(default),
        key="group",
        accept_new_options=True,
        bind="query-params",
        help=f"Elements that share a scale. {whose} has {length:,} elements; "
        + ("the size must divide that." if must_divide else "the last group may be shorter."),
    )
    return default if typed is None else _number(typed, "The group size")


def _block(shape: tuple[int, ...]) -> qc.PerBlock:
    default = granularities.block_lengths(shape)
    typed = st.text_input(
        "Block shape",
        DEFAULTS["block"],
        placeholder="x".join(map(str, default)),
        key="block",
        bind="query-params",
        max_chars=60,
        help="One length per axis, such as 2x2; -1 means the whole axis.",
    )
    if not typed.strip():
        return qc.PerBlock(default)
    lengths = typed.lower().replace("×", "x").replace(",", "x").split("x")
    return qc.PerBlock(tuple(_number(length, "A block length") for length in lengths))


def _group_sizes(length: int) -> list[int]:
    """Return group sizes to offer: divisors of the length and powers of two, only the latter beyond 24."""
    sizes = [n for n in range(1, min(length, 1024) + 1) if length % n == 0 or n & (n - 1) == 0]
    powers = [n for n in sizes if n & (n - 1) == 0]
    return sizes if len(sizes) <= 24 else powers


def _axes_help(shape: tuple[int, ...]) -> str:
    """Name the axes and their lengths, such as "8 rows (axis 0)"."""
    names = ["rows", "columns"] if len(shape) == 2 else []
    lengths = [
        f"{n:,} {names[i]} (axis {i})" if names else f"axis {i} has length {n:,}" for i, n in enumerate(shape)
    ]
    return f"The tensor's axes: {', '.join(lengths) or 'none'}."


def _number(typed: object, what: str) -> int:
    try:
        return int(str(typed).strip())
    except ValueError:
        raise qc.QuantError(f"{what} must be an integer, not {str(typed)[:40]!r}.") from None
