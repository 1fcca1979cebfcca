"""The page registry, and what every page shares: configuration, the tensor and scheme controls."""

import sys
from pathlib import Path

# `streamlit run pages/main.py` and AppTest do not have the root on the path
ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import streamlit as st

from pages.shared import (
    controls,
    format_bits,
    lesson,
    library_choice,
    link,
    maps_view,
    match_inputs,
    pinned,
    range_view,
    scheme_state,
    scripts,
    sweep_choice,
    tabs,
    tensor_controls,
    training_choice,
    warm,
)

KEYS = {
    *scheme_state.DEFAULTS,
    *tensor_controls.DEFAULTS,
    *tensor_controls.PARAMETERS,
    *maps_view.KEYS,
    *pinned.KEYS,
    *tabs.KEYS,
    *library_choice.KEYS,
    *match_inputs.KEYS,
    *format_bits.KEYS,
    *sweep_choice.KEYS,
    *lesson.KEYS,
    *training_choice.KEYS,
    *range_view.KEYS,
}

# Choices of which one always holds, and which a link must not empty
REQUIRED = {
    *("codes", "mode", "overflow", "table", "fmt_axis", "sw_set", "sw_metric", match_inputs.SOURCE),
    *map(lesson.step_key, lesson.LESSONS),
    *(f"learn_granularity_{name}" for name in ("size", "down", "across")),
    *("learn_mistakes_shown", "train_show", "train_layer", "train_maps", "train_scales", "train_as"),
}

st.set_page_config("Quantscope", "🔬", layout="wide")
st.html(ROOT / "pages" / "shared" / "page.css")
warm.warm_once()
page = st.navigation(
    {
        "Explore": [
            st.Page("explore/quantize.py", title="Explore", icon=":material/grid_view:", default=True),
            st.Page("explore/ranges.py", title="Ranges", icon=":material/width:"),
            st.Page("explore/formats.py", title="Formats", icon=":material/straighten:"),
        ],
        "Compare": [
            st.Page("compare/libraries.py", title="Libraries", icon=":material/compare_arrows:"),
            st.Page("compare/schemes.py", title="Schemes", icon=":material/stacked_line_chart:"),
            st.Page("compare/match.py", title="Match", icon=":material/manage_search:"),
        ],
        "Learn": lesson.pages(),
    },
    position="top",
)
if not lesson.is_lesson(page):
    lesson.unfold()
before = link.raw_parameters()
link.drop_unusable(KEYS - {"sw_filter"}, REQUIRED)  # where a word is looked for, "inf" is one
with st.sidebar:
    controls.draw(page)
scripts.run()
notice = st.container()
page.run()
with st.sidebar:
    controls.show_used(page)
link.name_dropped(before, KEYS, notice)
