"""Lesson: quantizing a network after training, or during it."""

from pages.learn.lesson_pages import lesson_page
from pages.learn.ptq_or_qat import controls
from pages.shared.curriculum import step_key
from pages.shared.page import SCHEME, While

PAGE = lesson_page(
    "ptq_or_qat",
    keys={"learn_ptq_or_qat_cell", *controls.KEYS},
    uses={SCHEME: While(step_key("ptq_or_qat"), {"ptq", "qat", "curve", "choose"})},
    required=controls.REQUIRED,
)
