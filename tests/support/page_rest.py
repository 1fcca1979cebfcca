"""How browser tests wait for a page; `expect` would check only once a second."""

from typing import Any

# the page is shown, and its script is not running
REST = "html:not(:has(#qs-first-view)) [data-testid=stApp][data-test-script-state=notRunning]"
# The values drawn in a map, row by row; undefined while there is no map
SHOWN = """((map) => { const shown = document.querySelector(".qs-maps")?.shown, values = shown?.values[map];
    return values && Array.from({ length: values.length / shown.width }, (_, row) =>
        Array.from(values.subarray(row * shown.width, (row + 1) * shown.width))); })"""


def at_rest(page: Any, heading: str = "") -> None:
    """Wait until no script is running and a heading of the main part contains these words."""
    page.wait_for_function(
        """([rest, words]) => document.querySelector(rest) && (!words
            || [...document.querySelectorAll("[data-testid=stMain] :is(h1, h2, h3, h4)")]
                .some((e) => e.innerText.includes(words)))""",
        arg=[REST, heading],
        timeout=60_000,  # some pages take long to compute
    )
