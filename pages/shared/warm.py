"""What every first visitor would otherwise wait for."""

import gc

import streamlit as st


def warm_up() -> None:
    """Import the heavy modules and run the whole chain once."""
    import pandas  # noqa: F401
    import plotly.graph_objects  # noqa: F401
    import torch

    import quantcore as qc
    from quantcore import figures

    # Visitors run side by side; threads of one operation that wait for each other cost far more than they
    # bring: with another process on two cores, a map of 4096×4096 took 1.8 s instead of 0.2 s.
    torch.set_num_threads(1)
    result = qc.apply(torch.eye(8), qc.Scheme())
    qc.report(result)
    figures.maps(result).to_json()


@st.cache_resource
def warm_once() -> bool:
    """Do it in a script run, where the app was started without its entry.

    Streamlit collects garbage after every run: with torch imported that takes some 100 ms, unless what
    is there to stay is frozen first.
    """
    if not gc.get_freeze_count():
        warm_up()
        gc.collect()
        gc.freeze()
    return True
