"""What runs on every page: configuration, navigation and the sidebar."""

import sys
from importlib import import_module
from pathlib import Path

# `streamlit run pages/main.py` and AppTest do not put the root on the path
ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import streamlit as st

from pages.browser import scripts
from pages.learn import frame
from pages.maps import live
from pages.registry import FREE_TEXT, KEYS, PAGES, REQUIRED
from pages.serving import warm
from pages.shared import identity, large
from pages.shared.computing import turn
from pages.shared.page import for_navigation
from pages.shared.state import leaving, link, selection, sharing
from pages.sidebar import brought, scheme_state, sidebar

NAVIGATION = "_navigation"

live.give_way()
identity.configure()
warm.one_thread()
# Made once per session: each page looks its script up in the file system
if NAVIGATION not in st.session_state:
    st.session_state[NAVIGATION] = for_navigation(PAGES)
opened = st.navigation(st.session_state[NAVIGATION], position="top", expanded=True)
page = next(page for page in PAGES if page.url_path == opened.url_path)
identity.draw(page, list(st.session_state[NAVIGATION]), large.switch())
if not frame.is_lesson(page):
    frame.unfold()
before = link.raw_parameters()
link.drop_unusable(KEYS - FREE_TEXT, REQUIRED)
if page.url_path or (page.charts and page.charts.holds()):
    # Before any figure: Plotly asks whether pandas has been imported, and fails if another run has only begun
    # to. The first page draws neither figure nor table at first, and comes a third of a second earlier
    # without it.
    import_module("pandas")
notice = st.container(key="qs_notice")
with turn.of_run(notice):
    link_place = sharing.place()
    with st.sidebar:
        sidebar.draw(page)
    brought.draw(page, notice)
    scripts.run(brought.take, brought.delivery())
    leaving.go()
    opened.run()
    sharing.draw(*link_place)
    if page.used() != selection.get().used:
        with st.sidebar:
            sidebar.show_used(page.used())
link.report_dropped(before, KEYS, notice)
scheme_state.forget_mistyped()
