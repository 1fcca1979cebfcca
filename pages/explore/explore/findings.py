"""What is wrong with a result, in one line above the maps, with cells, fix and lesson; examples of others."""

from functools import partial
from typing import Any, NamedTuple, cast

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

import quantcore as qc
from pages.maps import four_maps
from pages.shared import curriculum, messages
from pages.shared.computing import cache, needs
from pages.shared.state.selection import PageTensor
from pages.sidebar import scheme_state, tensor_controls, uploads
from quantcore.diagnosis import KINDS, MAX_BOXES, Box, in_brief
from quantcore.tensors import Generated

HEIGHT = 32  # px: one line of text, reserved even if there is nothing to say, so that the maps do not move
POPOVERS = _ALL, _EXAMPLES = "_all_findings", "_finding_examples"  # keys; a closed popover draws nothing
_TRIED, _OFFERED = "_finding_tried", ("outlier_channel", "wrapped", "clipped_too_much", "zero_block", "image")
_SHOWN = "_finding_shown"  # (tensor, scheme, sentence, boxes)
_MARKS = {
    "error": ":red[:material/error:]",
    "warning": ":orange[:material/warning:]",
    "note": ":blue[:material/info:]",
}


class Image(NamedTuple):
    """An image whose quantization one sees: a title, one of `tensors.EXAMPLES`, the text of a scheme."""

    title: str
    tensor: str
    scheme: str


IMAGES = {
    "image": Image("An image in FP4 blocks", "still-life-160x160", "e2m1 symmetric per_block([16, 16])"),
    "bands": Image("An image with bands", "landscape-128x192", "uint3 asymmetric"),
}

TITLES = {name: kind.example.title for name, kind in KINDS.items()}
TITLES |= {name: image.title for name, image in IMAGES.items()}


def shown(tensor: PageTensor, scheme: qc.Scheme) -> tuple[Box, ...]:
    """Return the boxes to outline: those of the finding shown for this tensor and scheme."""
    last = st.session_state.get(_SHOWN)
    return cast(tuple[Box, ...], last[3]) if last and last[:2] == (tensor.key, str(scheme)) else ()


def draw(place: DeltaGenerator, tensor: PageTensor, result: qc.Quantized, report: qc.Report) -> None:
    """Draw the first finding, and a popover with all findings."""
    need = needs.of_findings(result.scheme, tensor.shape)
    make = lambda: qc.diagnose(result, report)  # noqa: E731
    try:
        found: list[qc.Finding] = cache.cached(tensor, f"findings {result.scheme}", make, need)
    except qc.QuantError as error:  # too large to be looked through, though not to be shown
        messages.hint(str(error), place)
        return
    with place:
        sentence = st.container(key="finding_line")
        if found:
            sentence.markdown(_sentence(found[0], in_brief(found[0], len(tensor.shape))))
            _buttons(tensor, result.scheme, found[0], 0)
            _all(tensor, result.scheme, found)
        else:
            sentence.markdown(":small[:green[:material/check_circle:] No known problems found.]")


def _all(tensor: PageTensor, scheme: qc.Scheme, found: list[qc.Finding]) -> None:
    """Draw the popover with all findings in full, if it is open; the first's buttons are above the maps."""
    label = f"All {len(found)}" if len(found) > 1 else "More"
    popover = st.popover(label, type="tertiary", key=_ALL, on_change="rerun")
    if not popover.open:
        return
    with popover:
        st.container(width=640).markdown(_sentence(found[0]))
        for number, finding in enumerate(found[1:], 1):
            with st.container(horizontal=True, width=640, gap="small", vertical_alignment="center"):
                st.container(width=420).markdown(_sentence(finding))
                _buttons(tensor, scheme, finding, number)


def _sentence(finding: qc.Finding, words: str = "") -> str:
    return f":small[{_MARKS[finding.severity]} {messages.plain(words or finding.sentence)}]"


def _buttons(tensor: PageTensor, scheme: qc.Scheme, finding: qc.Finding, number: int) -> None:
    """Draw the buttons of a finding."""
    if finding.boxes:
        cells = f"{f'first {MAX_BOXES} ' * (len(finding.boxes) == MAX_BOXES)}affected cells"
        on = st.session_state.get(_SHOWN, ("",) * 3)[:3] == (tensor.key, str(scheme), finding.sentence)
        st.button(
            "Hide" if on else "Show",
            key=f"_finding_show_{number}",
            on_click=partial(_show, tensor, scheme, None if on else finding),
            type="tertiary",
            help=f"Outline the {cells} and show the arithmetic of the first",
        )
    if finding.fix is not None:
        st.button(
            "Fix",
            key=f"_finding_fix_{number}",
            on_click=partial(scheme_state.change_to, finding.fix),
            type="primary",
            help=messages.plain(f"{finding.fix}: {finding.gain}{_cost(finding)}. Back undoes it."),
        )
    name, step = KINDS[finding.kind].lesson
    st.page_link(
        curriculum.script(name),
        label="Lesson",
        query_params={curriculum.step_key(name): step},
        help=f"The lesson that explains this: {curriculum.LESSONS[name].title}",
    )


def _cost(finding: qc.Finding) -> str:
    """Return what the fix takes, where it takes notably more."""
    if "bits_of_fix" not in finding.facts:
        return ""
    now, then = (f"{finding.facts[name]:.4g}" for name in ("bits_now", "bits_of_fix"))
    return f", bits per element {now} → {then}"


def _show(tensor: PageTensor, scheme: qc.Scheme, finding: qc.Finding | None) -> None:
    """Outline the boxes and choose the first element of the first one, or outline none (a callback)."""
    if finding is None:
        st.session_state.pop(_SHOWN, None)
        return
    st.session_state[_SHOWN] = (tensor.key, str(scheme), finding.sentence, finding.boxes)
    first = tuple(start for start, _ in finding.boxes[0])
    four_maps.go_to(first, tensor.shape)


def examples() -> None:
    """Draw a row of examples, and a popover with all of them, which is empty until it is opened."""
    # one element instead of four buttons, since every run draws it
    st.pills("Try", _OFFERED, format_func=lambda kind: TITLES[kind], key=_TRIED, on_change=_try)
    popover = st.popover(f"All {len(TITLES)} examples", type="tertiary", key=_EXAMPLES, on_change="rerun")
    if not popover.open:
        return
    popover.markdown("Each example loads its own tensor and scheme.")
    halves = list(TITLES)[::2], list(TITLES)[1::2]
    for column, kinds in zip(popover.columns(2, width=560), halves, strict=True):
        for kind in kinds:
            column.button(
                TITLES[kind],
                key=f"_finding_example_{kind}",
                on_click=partial(load, kind),
                width="stretch",
            )


def _try() -> None:
    """Load the example that was clicked, and leave none chosen (a callback)."""
    kind = st.session_state[_TRIED]
    st.session_state[_TRIED] = None
    if kind is not None:
        load(kind)


def load(kind: str) -> None:
    """Load the example of a kind of finding, or of an image (a callback)."""
    state: dict[str, Any] = dict.fromkeys(("cell", "rows", "cols", "at"), "")
    if kind in IMAGES:
        _, name, text = IMAGES[kind]
        tensor_controls.choose("example", 2, state | {"ex": name})
        scheme_state.change_to(text)
        return
    example = KINDS[kind].example
    source = "generate" if isinstance(example.tensor, Generated) else "paste"
    if isinstance(example.tensor, Generated):
        spec = example.tensor
        state |= {"dist": spec.distribution, "shape": "x".join(map(str, spec.shape))}
        state |= {"seed": spec.seed, **{f"{spec.distribution}_{n}": v for n, v in spec.values().items()}}
    else:
        state |= {tensor_controls.PASTED: example.tensor}
    tensor_controls.choose(source, example.load().ndim, state | {uploads.DTYPE: example.dtype})
    scheme_state.change_to(qc.Scheme.parse(example.scheme))
