"""What writes each kind of result: functions by the names of classes, each of which stands for one thing."""

from collections.abc import Callable
from typing import Any, TypeVar

Write = TypeVar("Write", bound=Callable[[Any], str])


class Writers(dict[str, Callable[[Any], str]]):
    """Functions by the name of the class that they write."""

    def of(self, name: str) -> Callable[[Write], Write]:
        """Decorate the function that writes a class and those derived from it."""

        def keep(write: Write) -> Write:
            self[name] = write
            return write

        return keep

    def write(self, result: Any) -> str:
        """Write a result; "" if nothing writes its class, or what does fails."""
        for kind in type(result).__mro__:
            if kind.__name__ in self:
                try:
                    return self[kind.__name__](result)
                except Exception:  # a result that can't be shown must not hide what its user looks for
                    return ""
        return ""
