"""Templates for scripts, which read like the scripts themselves.

The syntax is Jinja's: ``{{ value }}`` and ``{% if … %}``; a line with only a tag leaves no line in the
script.
"""

from functools import cache

import jinja2

_ENVIRONMENT = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined)


def render(template: str, **values: object) -> str:
    """Return the script of a template, without blank lines around it."""
    return _compiled(template).render(values).strip("\n")


@cache
def _compiled(template: str) -> jinja2.Template:
    return _ENVIRONMENT.from_string(template)
