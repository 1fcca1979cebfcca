"""Code pasted into Match, evaluated by our own interpreter: its mistakes by line, and what they do."""

import math
from functools import partial

import numpy as np
import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

import quantcore as qc
from pages.compare.match import guarded, run, share, source, views
from pages.compare.match.controls import Inputs
from pages.serving import settings
from pages.shared import cards, charts, curriculum, messages
from pages.shared.charts import theme
from pages.shared.computing import cache, needs
from pages.shared.state.selection import PageTensor, of_values
from pages.sidebar.match_fields import CODE
from quantcore import figures, pasted
from quantcore.formats import CODEBOOKS, CodebookFormat
from quantcore.mistakes import CASES, MISTAKES, compare, lines
from quantcore.pasted import MOST, lines_of
from quantcore.wording import count

_EXAMPLE = "match_code_example"
# examples with cards, and what one sees in them
_SHOWN = {
    "truncated": "A cast to int drops the fraction",
    "cast-without-clamp": "Codes out of range wrap around",
    "zero-point-left-at-zero": "An asymmetric scale without its zero point",
}


def draw(tensor: PageTensor | None, scheme: qc.Scheme | None) -> None:
    """Draw the code, the mistakes found in it, and what they do to the tensor.

    Args:
        scheme: the visitor's, whose scale and zero point stand for those that the code does not compute.

    Raises:
        QuantError: the text can't be evaluated.
    """
    if settings.current().code == settings.OFF:
        messages.hint("On this server, code is not evaluated (QUANTSCOPE_CODE is off).")
        return
    top = st.empty()
    left, right = st.columns(2)
    with left:
        text = st.text_area(
            "Code",
            key=CODE,
            height=210,
            persist_state="session",
            label_visibility="collapsed",
            placeholder="scale = x.abs().max() / 127\n"
            "q = torch.round(x / scale).clamp(-128, 127).to(torch.int8)",
            help="A quantizer in torch or numpy, or a whole notebook: its file (.ipynb) or its cells with "
            "prompts and outputs. It is evaluated by an interpreter of our own, with no import, no file and "
            "no attribute outside a fixed list. The link carries it once you share it. Press Ctrl+Enter when "
            "done.",
        )
        _examples()
        source.upload(CODE)
    if not text or not text.strip():
        share.nothing()
        if tensor is not None:  # else there are cards with tensors above
            cards.draw(_cards())
        return
    if tensor is None:
        reading = guarded.read_code(text)
    else:  # once it is this run's turn
        make = partial(guarded.read_code, text, _shape(tensor))
        reading = cache.cached_small(tensor, f"code {text}", make, needs.USUAL, long=True)
    marks, verdict = right.empty(), st.empty()
    _verdict(reading, top, marks, verdict)
    more = _on_tensor(text, reading, tensor, scheme)
    if more:  # what shows on this tensor belongs to the one verdict
        reading = reading.with_findings(more)
        _verdict(reading, top, marks, verdict)
    share.draw(text, reading)


def _verdict(
    reading: qc.CodeReading, top: DeltaGenerator, marks: DeltaGenerator, verdict: DeltaGenerator
) -> None:
    """Draw what was found, in a sentence at the top, in the marked lines, and each by itself."""
    if reading.findings:
        with marks:
            source.draw(reading)
    with top.container():
        _summary(reading)
    with verdict.container():
        for finding in reading.mistakes:
            _finding(finding)
        if reading.notes:
            notes = len(reading.notes)
            matters = "whether it matters depends" if notes == 1 else "whether they matter depends"
            with st.expander(f"{count(notes, 'note')}, {lines_of(reading.notes)}: {matters} on the tensor"):
                for finding in reading.notes:
                    _finding(finding)


def _cards() -> list[cards.Card]:
    """Return some examples; the picture is what their codes are off by."""
    return [
        cards.Card(
            f"_match_code_card_{name}", CASES[name].title, line, _picture(name, theme()), _load, (name,)
        )
        for name, line in _SHOWN.items()
    ]


@st.cache_resource(show_spinner=False, max_entries=2 * len(_SHOWN))
def _picture(name: str, theme: str) -> np.ndarray:
    found = compare(CASES[name])
    off = np.atleast_2d((found.wrong.codes.double() - found.right.codes.double()).numpy())
    bound = float(np.abs(off).max()) or 1.0
    return figures.thumbnail(off, "error", (-bound, bound), theme)


def _examples() -> None:
    st.selectbox(
        "Example of code",
        list(CASES),
        index=None,
        key=_EXAMPLE,
        format_func=lambda name: CASES[name].title,
        placeholder="Open an example",
        on_change=_load,
        label_visibility="collapsed",
    )


def _load(name: str | None = None) -> None:
    name = name or st.session_state[_EXAMPLE]
    st.session_state[_EXAMPLE] = None
    if name is not None:
        st.session_state[CODE] = "\n".join(line.text for line in lines(CASES[name])[0])


def _summary(reading: qc.CodeReading) -> None:
    found, _, checked = reading.summary.partition(" Checked: ")
    if reading.mistakes or not reading.lines_of_quantizers:
        messages.warning(found)
        if checked:
            st.caption(messages.plain(f"Checked: {checked}"))
    else:
        st.info(messages.plain(reading.summary), icon=":material/rule:")
    for sentence in reading.unread:
        st.caption(messages.plain(sentence))
    if reading.skipped:
        n = len(reading.skipped)
        st.caption(f"{count(n, 'line')} {'is' if n == 1 else 'are'} not Python, and passed over.")


def _finding(finding: qc.CodeFinding) -> None:
    """Draw a finding: the line, what is wrong, how to fix it, and the lesson that explains it."""
    kind = MISTAKES[finding.mistake].in_source
    assert kind is not None  # it was found in source
    lesson, step = finding.lesson
    mark = ":orange[:material/error:]" if finding.certain else ":blue[:material/info:]"
    words, link = st.columns([6, 1.4], vertical_alignment="center")
    title, what, fix = (messages.plain(text) for text in (kind.title, finding.what, finding.fix))
    words.markdown(f"{mark} **Line {finding.line}: {title}.** {what} {fix}")
    plan = curriculum.LESSONS[lesson]
    link.page_link(
        curriculum.script(lesson),
        label=f"Lesson: {plan.title}" + (f", case {CASES[step].number}" if step in CASES else ""),
        icon=":material/school:",
        help=CASES[step].title if step in CASES else plan.steps[step].headline if step else None,
        query_params={curriculum.step_key(lesson): step} if step else None,
    )


def _shape(tensor: PageTensor) -> tuple[int, ...] | None:
    """Return the shape on which the code is tried too, if it is small enough."""
    return tuple(tensor.shape) if tensor.elements <= MOST else None


def _on_tensor(
    text: str, reading: qc.CodeReading, given: PageTensor | None, scheme: qc.Scheme | None
) -> tuple[qc.CodeFinding, ...]:
    """Draw each line's values, and the errors and codes of the code and of the scheme that it intends.

    Returns:
        what goes wrong on this tensor, besides what the reading has.

    Args:
        given: the visitor's tensor, for quantizers that are not given one of the code's own.
    """
    if not reading.lines_of_quantizers:
        return ()
    heading = st.empty()
    left, right = st.columns(2)
    with right:
        place = _chosen(reading)
    own = reading.own_tensors[place]
    if own is not None:
        title, shape = _named(own), own.shape
    elif given is not None:
        title, shape = f"the tensor {given.title}", given.shape
    else:
        return ()
    heading.markdown(f"##### On {messages.plain(title)}")
    if own is None and given is not None and given.dtype != "float32":
        st.caption(
            f"The code gets x as float32 numbers of the same value; on a {given.dtype} tensor, torch also "
            "rounds each result to that dtype."
        )
    with left:
        element = _element(len(shape))
    try:
        shown = _shown(text, reading, given, scheme, place, element, math.prod(shape))
    except qc.QuantError as error:
        messages.hint(str(error))
        return ()
    tensor = given if own is None and given is not None else of_values(shown.x.numpy(), title)
    if shown.codes.numel() < tensor.elements:
        used = " × ".join(map(str, shown.codes.shape))
        st.caption(
            f"This tensor is large: only {used} of its elements are used, even for the scale. They are the "
            "first ones along each axis, and runs of others drawn over all of it."
        )
    if shown.against is None:
        st.caption(messages.plain(shown.why))
    else:
        _compared(shown, shown.against)
    _values(shown, element)
    _matched(shown, tensor)
    return shown.findings


def _shown(
    text: str,
    reading: qc.CodeReading,
    given: PageTensor | None,
    scheme: qc.Scheme | None,
    place: int,
    element: tuple[int, ...],
    size: int,
) -> pasted.Shown:
    """Run the code on a tensor of ``size`` elements, once; ``place``: of which quantizer.

    Raises:
        QuantError: the code can't be run on it.
    """
    return cache.cached(
        given or cache.CacheKey(f"code {reading.text}", size),
        f"code on tensor {place} {element} {scheme} {reading.text}",
        lambda: guarded.show_code(
            text,
            None if given is None else _shape(given),
            place,
            np.zeros(1, np.float32) if given is None else cache.values(given).float().numpy(),
            element,
            None if given is None else _handed(given, scheme),
        ),
        needs.USUAL,
        long=True,
    )


def _named(own: pasted.OwnTensor) -> str:
    """Return the name of a tensor that the code makes itself."""
    name = f" {own.name}" if own.name else ""
    drawn = ", drawn here at random" if own.random else ""
    return f"the code's own tensor{name} (line {own.line}){drawn}"


def _compared(shown: pasted.Shown, against: pasted.Against) -> None:
    """Draw the errors and the codes beside those of the intended scheme."""
    differing = int(shown.codes.ne(against.right_codes.float()).sum())
    size = against.right_codes.numel()
    code_db, right_db = against.sqnr_db
    columns = {
        "": ["Your code", _written(against.scheme)],
        "Codes that differ": [f"{differing:,} of {size:,}", ""],
        "Values made worse": [f"{int(against.too_far.sum()):,} of {size:,}", ""],
        "SQNR (dB)": [f"{code_db:.2f}", f"{right_db:.2f}"],
    }
    worse = st.column_config.TextColumn(help="Off by more than half a step, and by more than with the scheme")
    config = {"Values made worse": worse}
    st.dataframe(pd.DataFrame(columns), hide_index=True, column_config=config, width="stretch")
    st.caption(messages.plain(_sentence(against, differing)))
    if bool((shown.codes == shown.codes.round()).all()):
        bounds = int(against.right_codes.min()), int(against.right_codes.max())
        codes, right = shown.codes.numpy().astype(np.int32), against.right_codes.numpy().astype(np.int32)
        figure = figures.pair(codes, right, ("Your codes", "Intended"), bounds=bounds, theme=theme())
        charts.draw(figure, "Codes of both, and their differences", key="match_code_maps")


def _handed(tensor: PageTensor, scheme: qc.Scheme | None) -> tuple[float, int] | None:
    """Return the page's scale and zero point, for code that computes none; None if there are several."""
    if scheme is None:
        return None
    result = cache.result(tensor, scheme)
    if result.scale.numel() != 1:
        return None
    zero = result.zero_point
    return float(result.scale), 0 if zero is None else int(zero)


def _chosen(reading: qc.CodeReading) -> int:
    """Draw the choice of a quantizer if the code has several; return its index, first that with a mistake."""
    place = next((f.quantizer for f in reading.findings if f.quantizer is not None and f.certain), None) or 0
    lines = reading.lines_of_quantizers
    several = len(lines)
    if several == 1:
        return 0
    return int(
        st.selectbox(
            "Quantizer",
            range(several),
            index=place,
            key=f"match_code_chosen_{several}_{place}",
            format_func=lambda i: f"Quantizer {i + 1}, line {lines[i]}: {_judged(reading, i)}",
            width=360,
        )
    )


def _judged(reading: qc.CodeReading, place: int) -> str:
    """Say how many mistakes were found in a quantizer."""
    mistakes = sum(finding.quantizer == place for finding in reading.mistakes)
    return count(mistakes, "mistake") if mistakes else "no known mistake"


def _element(rank: int) -> tuple[int, ...]:
    """Draw the field for the element whose value each line shows; the first one if it can't be read."""
    first = (0,) * rank
    text = st.text_input("Element", ", ".join(map(str, first)), key=f"match_code_element_{rank}", width=260)
    try:
        found = tuple(int(part) for part in text.strip("[]() ").split(",") if part.strip())
    except ValueError:
        found = ()
    if len(found) != rank:
        messages.hint(f"An element is written as {rank} indices: {', '.join(map(str, first))}")
        return first
    return found


def _values(shown: pasted.Shown, element: tuple[int, ...]) -> None:
    """Draw what each line assigned."""
    at = f"At [{', '.join(map(str, element))}]"
    rows = [
        {
            "Line": v.line,
            "Name": v.name,
            "Shape": " × ".join(map(str, v.shape)) or "a number",
            "Type": v.dtype,
            "Min": f"{v.low:.6g}",
            "Max": f"{v.high:.6g}",
            at: "" if v.picked is None else f"{v.picked:.7g}",
        }
        for v in shown.lines
    ]
    if rows:
        st.dataframe(pd.DataFrame(rows), hide_index=True, width="stretch", key="match_code_lines")


def _written(scheme: qc.Scheme) -> str:
    """Return a scheme as text, in which a table without a name is not written out."""
    fmt = scheme.format
    if not isinstance(fmt, CodebookFormat) or fmt.name in CODEBOOKS:
        return str(scheme)
    return str(scheme).replace(str(fmt), f"table of {len(fmt.values)} values,")


def _sentence(against: pasted.Against, differing: int) -> str:
    """Say how the pasted code's result differs from the scheme's."""
    scheme, fmt = _written(against.scheme), against.scheme.format
    size, wrong = against.right_codes.numel(), int(against.wrong_cells.sum())
    if against.outside:
        verb = "is not a code" if against.outside == 1 else "are not codes"
        return f"{against.outside:,} of {size:,} values {verb} of {fmt} and can't be stored."
    if not wrong:
        return f"On this tensor all {size:,} codes equal those of {scheme}."
    if not differing:
        return f"The codes are equal; {wrong:,} of {size:,} dequantized values differ."
    code_db, right_db = against.sqnr_db
    change = code_db - right_db
    effect = f"SQNR {change:+.2f} dB against {scheme}" if np.isfinite(change) else "see both SQNRs above"
    return f"{differing:,} of {size:,} codes differ: {effect}."


def _matched(shown: pasted.Shown, tensor: PageTensor) -> None:
    """Draw which library or known mistake gives these codes."""
    codes, against = shown.codes.numpy(), shown.against
    if against is not None and not isinstance(against.scheme.format, qc.IntFormat):
        return  # places in a table are no integers that a scheme for integers explains
    if codes.size < tensor.elements or not (codes == codes.round()).all() or np.abs(codes).max() > 2**15:
        return
    st.markdown("##### Who makes these codes")
    inputs = Inputs(codes.astype(np.int32), None, None, f"code {hash(codes.tobytes())}")
    found = run.search(tensor, inputs, st.container())
    if found is not None:
        views.summary(found.matches, tensor, found.fraction)
