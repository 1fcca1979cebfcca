"""Class: students predict codes, scales and zero points on phones; the projector shows what they answered."""

from pages.learn.classroom import controls
from pages.learn.lesson_pages import ORDER
from pages.shared.page import SCHEME, TENSOR, Page, While

PAGE = Page(
    script="learn/classroom/page.py",
    title="Class",
    icon="groups",
    url_path="learn-class",
    section="Learn",
    order=ORDER + 20,
    uses=dict.fromkeys((TENSOR, SCHEME), While(controls.MINE, {"true"})),
    keys=controls.KEYS,
    required={controls.ASKED},
    free_text=controls.FREE_TEXT,
)
