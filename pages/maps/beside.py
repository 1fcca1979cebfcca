"""What of a page follows with its maps while a control is dragged."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import quantcore as qc
from pages.maps.arithmetic import ElementArithmetic
from pages.shared.state.selection import Controls, PageTensor


@dataclass(frozen=True)
class BesideMaps:
    """What of a page follows with its maps, by the keys of its containers.

    ``html``: what they contain; ``resting``: what makes that of containers which take the browser long to lay
    out, so they follow a few times a second, where they are seen; ``fields``: the texts of their fields;
    ``bands``: the ranges marked in their charts; ``controls``: what stands where without a widget, unless it
    was moved; ``late``: containers that wait for the run and are dimmed until then.
    """

    html: Mapping[str, str] = field(default_factory=dict)
    resting: Mapping[str, Callable[[], str]] = field(default_factory=dict)
    fields: Mapping[str, str] = field(default_factory=dict)
    bands: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    late: tuple[str, ...] = ()
    controls: Controls = field(default_factory=dict)

    def content(self) -> dict[str, Any]:
        """Return what the browser is told with each picture: of ``resting``, only where it belongs."""
        return {
            "html": self.html,
            "resting": [*self.resting],
            "fields": self.fields,
            "bands": self.bands,
            "late": self.late,
        }


Beside = Callable[[PageTensor, qc.Scheme, ElementArithmetic], BesideMaps]


def nothing(tensor: PageTensor, scheme: qc.Scheme, shown: ElementArithmetic) -> BesideMaps:
    """Return that only the maps follow."""
    return BesideMaps()
