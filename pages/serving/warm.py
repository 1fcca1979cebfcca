"""Work done at startup so that the first visitor need not wait for it."""

import gc

import streamlit as st


def warm_up() -> None:
    """Import the heavy modules and run the whole pipeline once."""
    import pandas  # noqa: F401
    import plotly.graph_objects  # noqa: F401
    import torch

    import quantcore as qc
    from quantcore import figures

    # Visitors run in parallel, and threads of one operation that wait for each other cost more than they gain:
    # with another process on two cores, a map of 4096×4096 took 1.8 s instead of 0.2 s.
    torch.set_num_threads(1)
    result = qc.apply(torch.eye(8), qc.Scheme())
    qc.report(result)
    figures.maps(result).to_json()


@st.cache_resource
def warm_once() -> bool:
    """Warm up in a script run, if the app was started without app.py.

    Streamlit collects garbage after every run. With torch imported this takes about 100 ms, unless long-lived objects
    are frozen first.
    """
    if not gc.get_freeze_count():
        warm_up()
        gc.collect()
        gc.freeze()
    return True
