"""Explore: what quantization does to a tensor, in four maps."""

from pages.explore.explore import tabs
from pages.shared.page import ALWAYS, SCHEME, TENSOR, Page, While

PAGE = Page(
    script="explore/explore/page.py",
    title="Explore",
    icon="grid_view",
    url_path="",
    section="Tensors",
    order=10,
    uses={TENSOR: ALWAYS, SCHEME: ALWAYS},
    keys=tabs.KEYS,
    required={"table"},
    maps=True,
    charts=While("tab", {"distribution", "scales"}),
    heading="What does quantization do to this tensor?",
)
