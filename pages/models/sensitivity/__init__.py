"""Sensitivity: how much each weight of a model loses under several schemes, and which fits a size."""

from pages.models import keys
from pages.models.sensitivity import controls
from pages.shared.page import Page

PAGE = Page(
    script="models/sensitivity/page.py",
    title="Sensitivity",
    icon="grid_on",
    url_path="sensitivity",
    section="Models",
    order=90,
    keys=controls.KEYS | keys.IMATRIX_KEYS,
    required=controls.REQUIRED,
    free_text=controls.FREE_TEXT | keys.IMATRIX_KEYS,
)
