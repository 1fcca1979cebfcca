"""Helpers for browser tests: open a lesson and wait until it is drawn."""

from typing import Any

from page_rest import at_rest

from pages.shared import curriculum

# How much of a step is beyond the window, in px
SCROLLS = "(() => { const main = document.querySelector('[data-testid=stMain]'); return main.scrollHeight - main.clientHeight; })()"


def stands(app: Any, name: str, step: str | None = None) -> None:
    """Wait until a lesson is drawn and, if given, one of its steps is in the link."""
    at_rest(app.page, f"· {curriculum.LESSONS[name].title}:")
    app.wait(f"document.querySelector('.st-key-{curriculum.step_key(name)}')")
    if step is not None:
        app.expect_parameter(curriculum.step_key(name), step)


def opened(app: Any, name: str, **parameters: str) -> Any:
    """Open a lesson by its link."""
    query = "&".join(f"{key}={value}" for key, value in parameters.items())
    app.page.goto(f"{app.address}/learn-{name.replace('_', '-')}?{query}")
    stands(app, name)
    return app


def beside(app: Any, name: str, step: str | None = None) -> Any:
    """Open the same link as another visitor; errors there fail this test too."""
    other = app.another()
    other.page.goto(app.page.url)
    stands(other, name, step)
    return other


def to_lesson(app: Any, number: int) -> None:
    app.page.get_by_role("link", name=f"Lesson {number}").click()
