"""One module per library, with the same name as its scripts in `quantcore.snippets.libraries`.

A module has ``RECORDS``, its conventions, and ``PLACE``, its position among the libraries; it is found
automatically.
"""

import importlib
import pkgutil
from collections.abc import Iterator

from quantcore.conventions.record import Convention


def records() -> Iterator[Convention]:
    """Yield the conventions of all libraries, in their order."""
    found = (importlib.import_module(f"{__name__}.{each.name}") for each in pkgutil.iter_modules(__path__))
    for library in sorted(found, key=lambda module: module.PLACE):
        yield from library.RECORDS
