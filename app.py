"""Entry point of `streamlit run app.py`: warm-up, the route for plotly.js, response headers."""

import asyncio
import gc
import logging
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import plotly
import streamlit as st
from starlette.middleware import Middleware
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

from pages.serving import tensor_store
from pages.serving.headers import SecurityHeaders
from pages.serving.page_head import Pages
from pages.serving.settings import SettingError
from pages.serving.warm import warm_up

PLOTLY_JS = Path(plotly.__file__).parent / "package_data"


@asynccontextmanager
async def lifespan(app: st.App) -> AsyncIterator[dict[str, Any]]:
    """Import and draw once before the first visitor; then exempt what stays from garbage collection."""
    warm_up()
    gc.collect()
    gc.freeze()
    tidying = asyncio.create_task(tensor_store.keep_tidy())
    yield {}
    tidying.cancel()


def report_failure(error: Exception) -> bool:
    """Log a bug with its traceback, and tell the visitor in one sentence."""
    logging.getLogger("quantscope").exception("A page failed", exc_info=error)
    st.error(
        f"Quantscope hit a bug of its own here ({type(error).__name__}), and it was logged. "
        "Your input is kept: change a control to continue, or reload the page."
    )
    return True


try:
    tensor_store.current()
except SettingError as error:
    sys.exit(str(error))

app = st.App(
    "pages/main.py",
    lifespan=lifespan,
    routes=[Mount("/vendor", StaticFiles(directory=PLOTLY_JS))],
    middleware=[Middleware(SecurityHeaders), Middleware(Pages)],
    on_script_error=report_failure,
)
