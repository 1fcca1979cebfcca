"""A minimal page: one slider and one text, in a server as warm as the app's."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import streamlit as st

from pages.serving.warm import one_thread

one_thread()
bits = st.slider("Bits", 2, 16, 4, key="bits", bind="query-params")
st.markdown(f"painted-{bits}")
