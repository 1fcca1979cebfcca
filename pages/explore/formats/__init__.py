"""Formats: which numbers a format can hold."""

from pages.explore.formats import views
from pages.shared.page import TENSOR, Page, While

PAGE = Page(
    script="explore/formats/page.py",
    title="Formats",
    icon="straighten",
    url_path="formats",
    section="Tensors",
    order=30,
    uses={TENSOR: While("fmt_shown", {views.FITTED})},
    keys=views.KEYS,
    required={"fmt_axis"},
)
