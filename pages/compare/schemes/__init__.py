"""Schemes: which one to use, by error and size."""

from pages.compare.schemes import controls
from pages.shared.page import ALWAYS, SCHEME, TENSOR, Page
from pages.sidebar import activations

PAGE = Page(
    script="compare/schemes/page.py",
    title="Schemes",
    icon="stacked_line_chart",
    url_path="schemes",
    section="Compare",
    order=50,
    uses={TENSOR: ALWAYS, SCHEME: ALWAYS},
    keys=controls.KEYS,
    required={"sw_set", "sw_metric", activations.SOURCE},
    free_text={"sw_filter", activations.VALUES},
)
