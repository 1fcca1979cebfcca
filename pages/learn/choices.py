"""Choices on a step that change the scheme of the sidebar: in large mode the sidebar is folded away."""

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import streamlit as st

import quantcore as qc
from pages.shared.state import mirrored, selection
from pages.sidebar import scheme_state
from pages.sidebar.granularities import default_group_size

BITS = (2, 3, 4, 8)
Change = Callable[[qc.Scheme], qc.Scheme]


def choose(
    label: str,
    name: str,
    changes: Mapping[Any, Change],
    scheme: qc.Scheme | None = None,
    take: Callable[[qc.Scheme], None] = scheme_state.change_to,
) -> None:
    """Draw a choice between changes of a scheme, if there is one; the one that changes nothing is marked.

    Args:
        name: of the control.
        scheme: by default the sidebar's.
        take: called with the changed scheme; by default it changes the sidebar's.
    """
    scheme = scheme or selection.get().scheme
    if scheme is None:
        return
    now = next((option for option, change in changes.items() if change(scheme) == scheme), None)
    key = mirrored.key_at(f"_learn_choice_{name}", now)

    def chosen() -> None:
        option = st.session_state[key]
        if option is not None and mirrored.typed(f"_learn_choice_{name}", key):
            take(changes[option](scheme))

    with st.container(key="learn_choice"):
        st.segmented_control(label, list(changes), key=key, on_change=chosen)


def bits() -> dict[Any, Change]:
    """Return integers of so many bits, signed or not as before."""

    def to(scheme: qc.Scheme, n: int) -> qc.Scheme:
        before = scheme.format if isinstance(scheme.format, qc.IntFormat) else qc.INT4
        return dataclasses.replace(scheme, format=dataclasses.replace(before, bits=n))

    return {n: partial(to, n=n) for n in BITS}


def symmetry() -> dict[Any, Change]:
    """Return symmetric and asymmetric."""
    return {name: _with(symmetric=name == "symmetric") for name in ("symmetric", "asymmetric")}


def granularities(shape: tuple[int, ...]) -> dict[Any, Change]:
    """Return the granularities of a tensor, by what shares a scale."""
    last = max(0, len(shape) - 1)
    kinds: dict[str, qc.Granularity] = {"tensor": qc.PerTensor()}
    if len(shape) == 2:
        kinds |= {"row": qc.PerChannel(0), "column": qc.PerChannel(1)}
    else:
        kinds["channel"] = qc.PerChannel(0)
    size = default_group_size(shape[last] if shape else 1)
    kinds[f"group of {size}"] = qc.PerGroup(size, last)
    return {name: _with(granularity=kind) for name, kind in kinds.items()}


def ranges() -> dict[Any, Change]:
    """Return range settings that clip nothing, a little, and as much as is best."""
    return {
        "min-max": _with(range_setting=qc.MinMax()),
        "percentile 99": _with(range_setting=qc.Percentile(99)),
        "least MSE": _with(range_setting=qc.MinMse()),
    }


def _with(**values: Any) -> Change:
    return lambda scheme: dataclasses.replace(scheme, **values)
