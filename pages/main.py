"""The page registry, and what every page shares: configuration, the tensor and scheme controls."""

import sys
from pathlib import Path

# `streamlit run pages/main.py` and AppTest do not have the root on the path
ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import streamlit as st

from pages.browser import scripts
from pages.compare.libraries import controls as library_choice
from pages.compare.match import controls as match_inputs
from pages.compare.schemes import controls as sweep_choice
from pages.explore.formats import views as format_bits
from pages.explore.quantize import tabs
from pages.explore.ranges import views as range_view
from pages.learn import frame
from pages.learn.ptq_or_qat import controls as training_choice
from pages.maps import four_maps
from pages.shared import lesson_plan, link, pinned, warm
from pages.sidebar import scheme_state, sidebar, tensor_controls

KEYS = {
    *scheme_state.DEFAULTS,
    *tensor_controls.DEFAULTS,
    *tensor_controls.PARAMETERS,
    *four_maps.KEYS,
    *pinned.KEYS,
    *tabs.KEYS,
    *library_choice.KEYS,
    *match_inputs.KEYS,
    *format_bits.KEYS,
    *sweep_choice.KEYS,
    *frame.KEYS,
    *training_choice.KEYS,
    *range_view.KEYS,
}

# Choices of which one always holds, and which a link must not empty
REQUIRED = {
    *("codes", "mode", "overflow", "table", "fmt_axis", "sw_set", "sw_metric", match_inputs.SOURCE),
    *map(lesson_plan.step_key, lesson_plan.LESSONS),
    *(f"learn_granularity_{name}" for name in ("size", "down", "across")),
    *("learn_mistakes_shown", "train_show", "train_layer", "train_maps", "train_scales", "train_as"),
}

st.set_page_config("Quantscope", "🔬", layout="wide")
st.html(ROOT / "pages" / "browser" / "page.css")
warm.warm_once()
page = st.navigation(
    {
        "Explore": [
            st.Page("explore/quantize/page.py", title="Explore", icon=":material/grid_view:", default=True),
            st.Page("explore/ranges/page.py", title="Ranges", icon=":material/width:", url_path="ranges"),
            st.Page(
                "explore/formats/page.py", title="Formats", icon=":material/straighten:", url_path="formats"
            ),
        ],
        "Compare": [
            st.Page(
                "compare/libraries/page.py",
                title="Libraries",
                icon=":material/compare_arrows:",
                url_path="libraries",
            ),
            st.Page(
                "compare/schemes/page.py",
                title="Schemes",
                icon=":material/stacked_line_chart:",
                url_path="schemes",
            ),
            st.Page(
                "compare/match/page.py", title="Match", icon=":material/manage_search:", url_path="match"
            ),
        ],
        "Learn": frame.pages(),
    },
    position="top",
)
if not frame.is_lesson(page):
    frame.unfold()
before = link.raw_parameters()
link.drop_unusable(KEYS - {"sw_filter"}, REQUIRED)  # where a word is looked for, "inf" is one
with st.sidebar:
    sidebar.draw(page)
scripts.run()
notice = st.container()
page.run()
with st.sidebar:
    sidebar.show_used(page)
link.name_dropped(before, KEYS, notice)
