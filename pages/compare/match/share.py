"""A card with the verdict on pasted code, and its link, which has the code once it is shared."""

import html

import streamlit as st

import quantcore as qc
from pages.compare.match import controls, preview
from pages.shared import messages
from pages.shared.state import link, sharing
from quantcore.mistakes import MISTAKES
from quantcore.pasted import lines_of
from quantcore.wording import count

_NOT_CARRIED = "The link does not carry the code: press “Share this verdict”, or send it along."


def nothing() -> None:
    """Let the link carry no code, where there is none."""
    controls.carry_code(None)


def draw(text: str, reading: qc.CodeReading) -> None:
    """Draw the button that shares the code, or the card with its verdict and its link."""
    try:
        carried = controls.carry_code(text, preview.written(reading))
    except qc.QuantError as error:
        messages.hint(str(error))
        sharing.note("The code is too long for a link: send it along.")
        return
    if not carried:
        st.button(
            "Share this verdict",
            icon=":material/share:",
            help="Puts the code into the link of this page, which anyone who has the link can then read",
            on_click=controls.share_code,
            args=(text,),
        )
        sharing.note(_NOT_CARRIED)
        return
    address = link.address()
    with st.container(border=True):
        words, picture = st.columns([4, 1], vertical_alignment="center")
        words.html(_card(reading))
        words.code(address, language=None, wrap_lines=True)
        if len(address.encode()) <= sharing.MAX_QR:
            picture.html(sharing.qr(address))


def verdict(reading: qc.CodeReading) -> str:
    """Return the verdict in a few words: ``2 mistakes, lines 56 and 74``."""
    if reading.mistakes:
        return f"{count(len(reading.mistakes), 'mistake')}, {lines_of(reading.mistakes)}"
    return "No known mistake found" if reading.lines_of_quantizers else "No quantizer is recognized"


def _card(reading: qc.CodeReading) -> str:
    """Return HTML of the verdict, and of each mistake with its line of the code."""
    rows = [f"<h4 style='margin:0 0 .4rem;padding:0'>{html.escape(verdict(reading))}</h4>"]
    for finding in reading.mistakes:
        kind = MISTAKES[finding.mistake].in_source
        assert kind is not None  # it was found in source
        title, source = html.escape(kind.title), html.escape(finding.source)
        rows.append(f"<div>Line {finding.line}: {title}<br><code>{source}</code></div>")
    return "".join(rows)
