"""Two libraries compared: a table of all libraries, maps of both results, the reason for every difference."""

import dataclasses
from functools import partial
from typing import Any

import numpy as np
import streamlit as st

import quantcore as qc
from pages.maps import arithmetic
from pages.shared import charts, messages, tables
from pages.shared.charts import theme
from pages.shared.computing import cache, needs
from pages.shared.state.selection import PageTensor
from pages.sidebar import unsupported
from quantcore import figures, tensors
from quantcore.comparison import Reason
from quantcore.wording import count

MOST_CELLS = 200
_WORDS = {"coding_dtype": "the precision of codes"}


def comparison(tensor: PageTensor, scheme: qc.Scheme, a: qc.Convention, b: qc.Convention) -> qc.Comparison:
    """Return the cached result of `quantcore.compare`.

    Raises:
        QuantError: one of the libraries does not support the scheme.
    """
    make = lambda: qc.compare(cache.values(tensor), scheme, a, b)  # noqa: E731
    found: qc.Comparison = cache.cached(tensor, f"compare {scheme} {a} {b}", make, needs.LIBRARIES)
    return found


def table(tensor: PageTensor, scheme: qc.Scheme, a: qc.Convention) -> None:
    """Draw the table of all libraries, each compared with A; a selected row can become B."""
    make = lambda: qc.library_table(cache.values(tensor), scheme, a)  # noqa: E731
    frame = cache.cached(tensor, f"libraries {scheme} {a}", make, needs.LIBRARIES, long=True)
    taken = frame[frame["refused"] == ""].drop(columns="refused")
    taken, sqnr = tables.sqnr_column(taken, "sqnr_db", tables.label("sqnr_db"))
    event: Any = st.dataframe(
        taken,
        hide_index=True,
        key="lib_table",
        on_select="rerun",
        selection_mode="single-row",
        column_config={
            **tables.columns(taken, heads={"codes that differ": f"Codes that differ from {a.name}"}),
            **tables.columns(taken[["scale"]], 9, heads={"scale": "Scale of the first block"}),
            "sqnr_db": sqnr,
        },
    )
    chosen = event["selection"]["rows"]
    if chosen:
        name = str(taken["library"].iloc[chosen[0]])
        choose = partial(st.session_state.update, lib_b=name)
        st.button(f"Compare {a.name} with {name}", on_click=choose, key="lib_beside")
    others = frame[frame["refused"] != ""]
    if len(others):
        support = "library does" if len(others) == 1 else "libraries do"
        with st.expander(f"{len(others)} {support} not support this scheme"):
            for sentence in others["refused"]:
                st.caption(messages.plain(sentence))


def side_by_side(tensor: PageTensor, found: qc.Comparison) -> None:
    """Draw the summary, the maps and the reasons."""
    a, b = (r.scheme.convention.name for r in (found.a, found.b))
    differ, total = found.count, found.differs.numel()
    reasons = found.reasons
    if not differ:
        every = f"all {total:,} elements" if total > 1 else "the one element"
        same = messages.plain(f"{a} and {b} give the same codes for {every}.")
        st.success(same, icon=":material/check_circle:")
    else:
        causes = ", ".join(_cause(r) + (f" ({r.count:,})" if len(reasons) > 1 else "") for r in reasons)
        messages.warning(f"{a} and {b} differ in {differ:,} of {total:,} codes because of {causes}.")
    fmt = found.a.scheme.format
    both = found.a.codes.cpu().numpy(), found.b.codes.cpu().numpy()
    figure, legend = cache.cached(
        tensor,
        f"pair {found.a.scheme} {found.b.scheme} {theme()}",
        lambda: (
            figures.pair(*both, (a, b), bounds=(fmt.qmin, fmt.qmax), theme=theme()),
            figures.pair_data(*both).legend,
        ),
        needs.LIBRARIES,
    )
    charts.draw(figure, f"Codes of {a} and {b}, and their differences", key="lib_maps")
    if legend:
        st.caption(messages.plain(legend))
    for reason in reasons:
        where = f"element ({', '.join(map(str, reason.index))})"
        codes = f"**{count(reason.count, 'code')}**"
        st.markdown(f"- {codes}, first at {where}: {messages.plain(reason.sentence)}")


def _cause(reason: Reason) -> str:
    return " and ".join(_WORDS.get(name, name.replace("_", " ")) for name in reason.ingredients)


def follow(found: qc.Comparison) -> None:
    """Draw the arithmetic of an element that differs, under both libraries; mark the first step that does."""
    if not found.count:
        return
    shape = tuple(found.differs.shape)
    places = np.stack(np.unravel_index(found.first(MOST_CELLS).numpy(), shape), 1).tolist() if shape else [[]]
    options = [", ".join(map(str, place)) or "the only element" for place in places]
    text = st.selectbox(
        "Follow an element that differs",
        options,
        index=None,
        placeholder=options[0],
        key="lib_follow",
        help=f"The first {MOST_CELLS:,} elements that differ" if len(options) == MOST_CELLS else None,
    )
    index = tuple(places[options.index(text)] if text else places[0])
    reason = found.reason_at(index)
    if reason and len(found.reasons) > 1:  # the sentences stand above
        st.caption(messages.plain(f"It differs because of {_cause(reason)}."))
    steps = [qc.trace(result, index).steps() for result in (found.a, found.b)]
    first_difference = next(
        (i for i, (s, t) in enumerate(zip(*steps, strict=False)) if (s.name, s.value) != (t.name, t.value)),
        None,
    )
    for column, result, own in zip(st.columns(2), (found.a, found.b), steps, strict=True):
        column.markdown(f"**{result.scheme.convention.name}**")
        lines = [f"{'>' if i == first_difference else ' '} {arithmetic.line(s)}" for i, s in enumerate(own)]
        with column:
            messages.lines(lines, hang=arithmetic.HANG + 2)


def refusals(tensor: PageTensor, scheme: qc.Scheme, a: qc.Convention, b: qc.Convention) -> bool:
    """Show why A or B does not support the scheme, and what would help; return whether that is so."""
    for convention in (a, b):
        own = dataclasses.replace(scheme, convention=convention)
        sentence = qc.unsupported_reason(own, tensor.shape, tensors.DTYPES[tensor.dtype])
        if sentence:
            unsupported.show(qc.QuantError(sentence), tensor, own, keep=scheme.convention)
            return True
    return False
