"""Ranges: which range the codes should span."""

from pages.explore.ranges import views
from pages.shared.page import ALWAYS, SCHEME, TENSOR, Page

PAGE = Page(
    script="explore/ranges/page.py",
    title="Ranges",
    icon="width",
    url_path="ranges",
    section="Tensors",
    order=20,
    uses={TENSOR: ALWAYS, SCHEME: ALWAYS},
    keys=views.KEYS,
    maps=True,
    charts=ALWAYS,
)
