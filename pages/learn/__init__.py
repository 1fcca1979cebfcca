"""Learn: the lessons of one module each, and the overview of all."""

from pages.learn.lesson_pages import PAGES

__all__ = ["PAGES"]
