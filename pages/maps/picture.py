"""What the four maps show, as data for the component."""

import base64
import hashlib
import json
from dataclasses import dataclass
from typing import Any

import numpy as np

import quantcore as qc
from pages.maps.arithmetic import PLACE, ElementArithmetic
from quantcore import figures
from quantcore.analysis import Cells, MapData, View, element, place
from quantcore.diagnosis import Box
from quantcore.quantization import Quantized


@dataclass(frozen=True)
class Picture:
    """What the maps show and how.

    ``identity``: key of the tensor. ``element``: the chosen element, outlined together with its block.
    ``found``: further boxes of the tensor to outline. ``arithmetic``: that of the element, shown beside
    the maps, after a click where they have no room for it and the page's copy is out of sight; None if a
    click shows nothing. ``pointed``: the token for that of the element under the pointer; empty if there
    is none. ``against``: the scheme that the error map is compared with, if any. ``result``: the result
    that is shown; None for values without codes. ``beneath``: px of the window to leave below the maps.
    ``whole``: the shape of the tensor, if only the part in ``data`` was read. ``grey``: whether the
    tensor is an image, whose values are drawn as grey levels in square cells. ``stacked``: whether its maps
    stand one below the other, beside other maps.
    """

    result: Quantized | None
    data: MapData
    view: View
    identity: str
    element: tuple[int, ...]
    borders: bool
    numbers: bool
    theme: str
    found: tuple[Box, ...] = ()
    arithmetic: ElementArithmetic | None = None
    pointed: str = ""
    against: str = ""
    whole: tuple[int, ...] | None = None
    beneath: int = 0
    grey: bool = False
    stacked: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the tensor."""
        if self.whole is not None:
            return self.whole
        assert self.result is not None
        return tuple(self.result.x.shape)

    @property
    def scheme(self) -> str:
        """The scheme as text; empty if there are no codes."""
        return str(self.result.scheme) if self.result else ""

    @property
    def format(self) -> qc.Format | None:
        """The format of the codes; None if there are no codes."""
        return self.result.scheme.format if self.result else None


def marks(picture: Picture) -> dict[str, Any]:
    """Return everything except the values, such as outlines and borders."""
    data, view, element = picture.data, picture.view, picture.element
    return {
        "uirevision": f"{picture.shape} {view} {picture.grey}",
        "painted": f" {picture.scheme} ",
        "numbers": picture.numbers,
        "beneath": picture.beneath,
        "borders": [list(lines) for lines in data.borders] if picture.borders else None,
        "selected": _inside(place(view, element), data),
        "block": _block(picture, element),
        "arithmetic": picture.arithmetic and {**picture.arithmetic.content(), "elsewhere": PLACE},
        "found": [bounds for box in picture.found if (bounds := _in_plane(box, view, data))],
    }


def cells(picture: Picture) -> dict[str, Any]:
    """Return the values of the maps for the component, which computes x̂ and the error itself.

    ``x_key`` names the elements of the original, ``arrays_key`` all arrays.

    A reduced map sends the elements that three maps show and, as ``worst_…``, those of the error map. Scales
    and zero points are sent per block if there are fewer blocks than cells.
    """
    result, data, view = picture.result, picture.data, picture.view
    height, width = data.largest.x.shape
    by_block = 0 < data.scales.size <= height * width
    arrays = _elements(result, data, data.largest, by_block)
    if data.worst is not data.largest:
        own = _elements(result, data, data.worst, by_block)
        arrays |= {f"worst_{name}": packed for name, packed in own.items()}
    for name in ("other", "rms"):
        if (values := getattr(data, name)) is not None:
            arrays[name] = _narrow(values)
    if by_block:
        parameters = {"scale": data.scales, "zero_point": data.zero_points}
        arrays |= {name: _narrow(_shrunk(values)) for name, values in parameters.items()}
    rms = "" if data.rms is None else "rms"
    first, of_scales = data.scales_at or (0, data.block)
    return {
        "arrays": arrays,
        "x_key": _digest(f"{picture.identity} {view}"),
        "arrays_key": f"{picture.identity} {picture.scheme} {view} {picture.against} {rms}",
        "blocks": [*of_scales, data.scales.shape[1], first] if by_block else None,
        "colours": figures.scales_of_maps(data, picture.format, picture.theme, grey=picture.grey),
        "square": picture.grey,
        "stacked": picture.stacked,
        "maps": list(data.names),
        "titles": figures.titles_of_maps(data),
        "symbols": data.symbols,
        "after": data.after,
        "height": height,
        "width": width,
        "rows": data.rows,
        "columns": data.columns,
        "step": data.step,
        "index": element(view, picture.shape, "row", "column"),
        "alt": alternative(data),
    }


def number(sent: dict[str, Any]) -> str:
    """Return a digest of what the component is sent, by which one outside knows the latest run's picture.

    The routes with a visitor's own tokens are not part of the picture; the arrays are those that
    ``arrays_key`` names.
    """
    seen = sorted(sent.keys() - {"arrays", "pointed", "live"})
    return _digest(json.dumps({key: sent[key] for key in seen}, default=str))


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def as_json(sent: dict[str, Any]) -> dict[str, Any]:
    """Return what the component is sent with its arrays as text, in base64."""
    arrays = {
        name: {"dtype": _dtype(values), "bdata": base64.b64encode(values.tobytes()).decode()}
        for name, values in sent["arrays"].items()
    }
    return {**sent, "arrays": arrays}


def as_bytes(sent: dict[str, Any], held: str = "") -> bytes:
    """Return the same with its arrays as bytes: the length of a JSON text (uint32), the text, and the arrays.

    Text and arrays begin at multiples of 4 bytes; ``at`` of an array counts from the end of the text.

    Args:
        held: the ``x_key`` of the original that the receiver has, which is then left out.
    """
    listed, parts, at = {}, [], 0
    for name, values in sent["arrays"].items():
        if held != sent["x_key"] or name not in ("x", "inside"):
            listed[name] = {"dtype": _dtype(values), "at": at, "count": values.size}
            parts.append(values.tobytes() + bytes(-values.nbytes % 4))
            at += len(parts[-1])
    text = json.dumps({**sent, "arrays": listed}, allow_nan=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 4)
    return b"".join([len(text).to_bytes(4, "little"), text, *parts])


def _elements(result: Quantized | None, data: MapData, shown: Cells, by_block: bool) -> dict[str, np.ndarray]:
    """Return the arrays that the component needs for the elements shown, one per cell."""
    has_codes = result is not None or "codes" in data.names  # also where no map shows them
    names: list[str] = [
        name for name in ("x", "codes") if name in data.names or (name == "codes" and has_codes)
    ]
    if result is None:
        names.append("dequantized")
    else:
        if not isinstance(result.scheme.format, qc.IntFormat):
            names.append("values")
        if not result.dequantizer.is_product:
            names.append("dequantized")  # the component's formula does not apply
    arrays = {name: _narrow(getattr(shown, name)) for name in names}
    if result is not None and not by_block:
        arrays |= {name: _narrow(_shrunk(getattr(shown, name))) for name in ("scale", "zero_point")}
    if data.step != (1, 1):
        down = (shown.row - data.rows[0]) % data.step[0]
        across = (shown.column - data.columns[0]) % data.step[1]
        arrays["inside"] = _narrow(down * data.step[1] + across)
    return arrays


def alternative(data: MapData) -> str:
    """Describe the maps for screen readers."""
    shape = " by ".join(str(n) for n in data.largest.x.shape)
    ranges = [
        f"{title} from {data.map(name).min():.4g} to {data.map(name).max():.4g}"
        for name, title in figures.titles_of_maps(data).items()
    ]
    keys = "Arrow keys move from cell to cell, Enter shows a cell's arithmetic."
    if data.legend:
        keys += f" Keys 1 to {len(ranges)} choose the map."
    how_many = ("One map", "Two maps", "Three maps", "Four maps")[len(ranges) - 1]
    return f"{how_many} of {shape} cells. {'; '.join(ranges)}. {data.legend} {keys}"


def _narrow(values: np.ndarray) -> np.ndarray:
    """Return integers in the narrowest type that holds them all."""
    if values.dtype.kind != "i":
        return values
    low, high = values.min(), values.max()
    fits = (d for d in ("i1", "u1", "i2") if np.iinfo(d).min <= low and high <= np.iinfo(d).max)
    return values.astype(next(fits, "i4"))


def _dtype(values: np.ndarray) -> str:
    return f"{values.dtype.kind}{values.dtype.itemsize}"


def _shrunk(values: np.ndarray) -> np.ndarray:
    """Keep only one number if all are equal."""
    flat = values.reshape(-1)
    return flat[:1] if (flat == flat[0]).all() else flat


def _inside(at: tuple[int, int] | None, data: MapData) -> list[int] | None:
    if at is None or not (
        data.rows[0] <= at[0] < data.rows[1] and data.columns[0] <= at[1] < data.columns[1]
    ):
        return None
    return list(at)


def _in_plane(box: Box, view: View, data: MapData) -> list[int] | None:
    """Return the bounds of a box in the plane, as in `_block`; None if no part of it is shown."""
    rank = len(box)
    down, across = (view.axes or (rank - 2, rank - 1)) if rank > 1 else (-1, rank - 1)
    here = element(view, (0,) * rank, 0, 0)
    if any(not box[i][0] <= here[i] < box[i][1] for i in range(rank) if i not in (down, across)):
        return None
    rows, columns = (box[i] if i >= 0 else (0, 1) for i in (down, across))
    shown = ((rows, data.rows), (columns, data.columns))
    return [*rows, *columns] if all(a < d and c < b for (a, b), (c, d) in shown) else None


def _block(picture: Picture, element: tuple[int, ...]) -> list[int] | None:
    """Return the element's block: [first row, row after the last, first column, column after the last]."""
    data, shape = picture.data, picture.shape
    at = place(picture.view, element)
    if at is None or _inside(at, data) is None:
        return None
    axes = picture.view.axes or (len(element) - 2, len(element) - 1)
    bounds = []
    for axis, i, block in zip(axes, at, data.block, strict=True):
        first = i // block * block
        bounds += [first, min(first + block, shape[axis] if axis >= 0 else 1)]
    return bounds
