"""The page records of the lessons: their controls, and the parts of the sidebar that they use."""

from collections.abc import Iterable, Mapping

from pages.shared.curriculum import LESSONS, script, step_key
from pages.shared.page import SCHEME, TENSOR, Page, While

ORDER = 100  # of the overview in the navigation; the lessons follow
OVERVIEW_URL, OVERVIEW = "learn", "learn/overview.py"
LESSON_URLS = {name: f"learn-{name.replace('_', '-')}" for name in LESSONS}


def lesson_page(
    name: str, keys: Iterable[str], uses: Mapping[str, While], required: Iterable[str] = ()
) -> Page:
    """Return the record of a lesson.

    Args:
        name: in `LESSONS`.
        keys: keys of its controls besides its step.
    """
    return Page(
        script=script(name),
        title=LESSONS[name].title,
        icon=LESSONS[name].icon,
        url_path=LESSON_URLS[name],
        section="Learn",
        order=ORDER + 1 + list(LESSONS).index(name),
        uses=uses,
        keys={step_key(name), *keys},
        required={step_key(name), *required},
    )


def _own(name: str, controls: tuple[str, ...]) -> set[str]:
    return {f"learn_{name}_{control}" for control in controls}


def _yours(name: str) -> dict[str, While]:
    """Return the ``uses`` of a lesson whose step "yours" needs the visitor's tensor and scheme."""
    return dict.fromkeys((TENSOR, SCHEME), While(step_key(name), {"yours"}))


_MINE = {name: While(f"learn_{name}_mine", {"true"}) for name in ("mistakes", "predict")}

PAGES = (
    Page(OVERVIEW, "Overview", "school", OVERVIEW_URL, "Learn", ORDER),
    lesson_page("scale", _own("scale", ("bits", "low", "high", "reading", "cell")), _yours("scale")),
    lesson_page("zero_point", _own("zero_point", ("low", "high", "x", "cell")), _yours("zero_point")),
    lesson_page(
        "granularity",
        _own("granularity", ("size", "down", "across", "cell")),
        _yours("granularity"),
        _own("granularity", ("size", "down", "across")),
    ),
    lesson_page("error", _own("error", ("limit", "bits", "cell")), _yours("error")),
    lesson_page(
        "mistakes",
        _own("mistakes", ("shown", "mine")),
        {TENSOR: _MINE["mistakes"]},
        _own("mistakes", ("shown",)),
    ),
    lesson_page(
        "predict",
        _own("predict", ("seed", "mine", "row", "cell")),
        dict.fromkeys((TENSOR, SCHEME), _MINE["predict"]),
    ),
    lesson_page("inside_a_layer", _own("inside_a_layer", ("output", "bits", "how")), {}),
    lesson_page("why_quantize", _own("why_quantize", ("billions",)), {}),
    lesson_page("outliers", _own("outliers", ("alpha",)), {}),
    lesson_page("gptq", _own("gptq", ("column",)), {}),
    lesson_page("rotation", _own("rotation", ("which",)), {}),
    lesson_page("small_floats", _own("small_floats", ("code", "format", "largest")), {}),
)
