"""Entry point of `streamlit run app.py`: puts the server together."""
# ruff: noqa: E402

import asyncio
import gc
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

# What imports leave is kept, so a collection meanwhile finds nothing; `open_first_page` turns it on again
gc.disable()

import plotly
import streamlit as st
from starlette.middleware import Middleware
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

# Its texts become environment variables, which some hosts can't set and modules read as they are imported
st.secrets.load_if_toml_exists()

from pages.maps import arithmetic, drawing_script, live
from pages.serving import (
    classroom,
    guard,
    in_order,
    log,
    metrics,
    models_folder,
    own_value,
    remote,
    settings,
    tensor_store,
    warm,
)
from pages.serving.middleware import origins
from pages.serving.middleware.affinity import Affinity
from pages.serving.middleware.headers import SecurityHeaders
from pages.serving.middleware.limits import Limits, UploadLimits
from pages.serving.middleware.page_head import PICTURE_NAME, Opening, Pages, picture
from pages.serving.middleware.patience import Patience
from pages.serving.middleware.requests import Requests
from pages.shared.computing import cache, turn

PLOTLY_JS = Path(plotly.__file__).parent / "package_data"
BELOW = f"/{st.get_option('server.baseUrlPath').strip('/')}".rstrip("/")  # where Streamlit's own routes are

try:
    options = settings.current()
    tensor_store.current()
    models_folder.chosen_by(options)
    origins.check_settings()
    remote.allowed()
    metrics.serve(options.metrics, options.metrics_token)
except settings.SettingError as error:
    sys.exit(f"Quantscope can't start: {error}")
uploads = UploadLimits(options.session_upload_mb, options.upload_mb)
metrics.gauge("uploaded_bytes", "Bytes of the files that open pages hold", uploads.held)
metrics.gauge("queue_length", "Runs that wait for memory", lambda: turn.GATE.queue_length)
metrics.gauge("work_bytes", "Bytes that the admitted work may take", lambda: turn.GATE.bytes_in_work)
metrics.gauge("cached_bytes", "Bytes of cached tensors and results", cache.bytes_cached)


def opens(url_path: str, query: dict[str, list[str]]) -> Opening:
    """Do as `registry.opens`; the pages are imported once the server runs, since they have caches."""
    from pages import registry

    return registry.opens(url_path, query)


async def keep_tidy() -> None:
    """Delete old tensors and ended classes at once and then every hour, even if nobody uses any."""
    while True:
        await asyncio.gather(*map(asyncio.to_thread, (tensor_store.tidy, classroom.tidy)))
        await asyncio.sleep(3600)


@asynccontextmanager
async def lifespan(app: st.App) -> AsyncIterator[dict[str, Any]]:
    """Open the first page before the server answers; do everything else behind it, giving way to visitors."""
    log.configure()
    in_order.keep_runs_in_order()
    own_value.look_up_single_values()
    first = await warm.open_first_page()
    log.announce()
    behind = [keep_tidy()]
    if options.warm_up == "all":
        behind.append(warm.open_other_pages(first))
        guard.start()
    tasks = [asyncio.create_task(work) for work in behind]
    yield {}
    for task in tasks:
        task.cancel()


app = st.App(
    "pages/main.py",
    lifespan=lifespan,
    routes=[
        Mount(f"{BELOW}/vendor", StaticFiles(directory=PLOTLY_JS)),
        drawing_script.route(BELOW),
        arithmetic.route(BELOW),
        live.route(BELOW),
        *classroom.routes(BELOW),
        Route(f"{BELOW}/{PICTURE_NAME}", picture),
    ],
    middleware=[
        Middleware(Patience),
        Middleware(SecurityHeaders),
        Middleware(Requests),
        Middleware(origins.Origins),
        Middleware(Limits, uploads=uploads, address_sessions=options.address_sessions),
        Middleware(metrics.Metrics),
        Middleware(Pages, opens=opens, drawing=drawing_script.NAME),
        Middleware(Affinity, options.replica),
    ],
    on_script_error=log.report_failure,
)
