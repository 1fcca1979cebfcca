"""The four maps of a result as small pictures: SVG with an inline PNG each, without a script."""

import base64
import struct
import zlib
from html import escape

import numpy as np
import numpy.typing as npt
import torch

from quantcore.analysis import MapData, View, map_data
from quantcore.figures import colors_at, scales_of_maps, titles_of_maps
from quantcore.notebook.numbers import EXACT, signed
from quantcore.quantization import Quantized, unclamped
from quantcore.wording import count

CELLS = 48  # a side of the part that is drawn of a larger tensor
WIDTH = 148  # px of a map
_MARKS = 60  # cells that are outlined in a map
_CLIPPED, _UNDEFINED = "#d6006c", "#000000"


def pictures(result: Quantized, worst: tuple[int, ...] | None) -> str:
    """Return the maps of a result, or the part of them around the element with the largest error.

    The colors are those of a light page; on a dark one they are readable too, as maps have no empty cells.
    """
    shape = tuple(result.codes.shape)
    part = view(shape, worst)
    data = map_data(result, part)
    clipped, undefined = _clipped(result, part), ~np.isfinite(data.map("error"))
    scales = scales_of_maps(data, result.scheme.format)
    figures = []
    for name, title in titles_of_maps(data).items():
        values, scale = data.map(name), scales[name]
        colors = colors_at(values, scale["zmin"], scale["zmax"], scale["colorscale"])
        marks = _outlines(clipped, _CLIPPED) + _outlines(undefined, _UNDEFINED)
        figures.append(_figure(colors, f"{title}: {_span(values)}", marks))
    return f'<div style="display:flex;flex-wrap:wrap;gap:12px">{"".join(figures)}</div>' + _note(
        shape, data, part, int(clipped.sum()), int(undefined.sum())
    )


def view(shape: tuple[int, ...], worst: tuple[int, ...] | None) -> View:
    """Return the part that is drawn: at most `CELLS` × `CELLS` elements, with the worst one in it."""
    at = worst or (0,) * len(shape)
    spans = []
    for place, length in zip((0, 0, *at)[-2:], (1, 1, *shape)[-2:], strict=True):
        start = max(0, min(place - CELLS // 2, length - CELLS))
        spans.append((start, min(length, start + CELLS)))
    return View(index=tuple(at[:-2]), rows=spans[0], columns=spans[1])


def _clipped(result: Quantized, part: View) -> npt.NDArray[np.bool_]:
    """Return which of the cells are clipped; none of a large tensor, where this is not looked for."""
    assert part.rows is not None
    assert part.columns is not None
    if result.codes.numel() > EXACT:
        return np.zeros([stop - start for start, stop in (part.rows, part.columns)], bool)
    least, most = result.scheme.format.bounds
    outside = torch.zeros(result.blocked_shape, dtype=torch.bool)
    for region, values in unclamped(result.given, result.params, result.computed):
        own = outside[region.elements]
        own.copy_(((values < least) | (values > most)).reshape(own.shape))
    planes = outside.reshape(result.codes.shape)
    plane = planes[part.index] if part.index else planes.reshape(1, -1) if planes.dim() < 2 else planes
    return plane[slice(*part.rows), slice(*part.columns)].numpy()


def _outlines(cells: npt.NDArray[np.bool_], color: str) -> str:
    rows, columns = (places[:_MARKS].tolist() for places in np.nonzero(cells))
    style = f'width="1" height="1" fill="none" stroke="{color}" stroke-width="0.16"'
    return "".join(f'<rect x="{x}" y="{y}" {style}/>' for y, x in zip(rows, columns, strict=True))


def _figure(colors: npt.NDArray[np.uint8], said: str, marks: str) -> str:
    height, width = colors.shape[:2]
    data = base64.b64encode(png(colors)).decode()
    image = f'<image href="data:image/png;base64,{data}" width="{width}" height="{height}"'
    tall = max(12, min(WIDTH, round(WIDTH * height / width)))
    return (
        f'<figure style="margin:0;width:{WIDTH}px"><svg role="img" aria-label="{escape(said)}" '
        f'viewBox="0 0 {width} {height}" width="{WIDTH}" height="{tall}" preserveAspectRatio="none">{image} '
        f'preserveAspectRatio="none" style="image-rendering:pixelated"/>{marks}</svg>'
        f'<figcaption style="font-size:12px">{escape(said)}</figcaption></figure>'
    )


def _span(values: npt.NDArray[np.float32]) -> str:
    finite = values[np.isfinite(values)]
    if not finite.size:
        return "no finite number"
    return f"{signed(finite.min().item())} to {signed(finite.max().item())}"


def _note(shape: tuple[int, ...], data: MapData, part: View, clipped: int, undefined: int) -> str:
    """Say which part is drawn, and what the outlines mean."""
    said = []
    if data.map("x").size < np.prod(shape):
        index = [str(i) for i in part.index]
        spans = [f"{start}:{stop}" for start, stop in (data.rows, data.columns)][-len(shape) :]
        said.append(f"The part [{', '.join(index + spans)}], around the largest error.")
    if clipped:
        said.append(f"Outlined: {_first(clipped, 'clipped element')}.")
    if undefined:
        said.append(f"Outlined in black: {_first(undefined, 'element')} whose error is not a finite number.")
    return f"<p>{escape(' '.join(said))}</p>" if said else ""


def _first(cells: int, what: str) -> str:
    """Name the cells that are outlined, which are the first of many."""
    return count(cells, what) if cells <= _MARKS else f"{_MARKS} of {count(cells, what)}"


def png(colors: npt.NDArray[np.uint8]) -> bytes:
    """Return an image file of colors, uint8 [rows, columns, 3].

    Source: Portable Network Graphics (PNG) Specification (Third Edition), sections 5 and 11.
    """

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    height, width, _ = colors.shape
    rows = np.insert(np.ascontiguousarray(colors).reshape(height, -1), 0, 0, axis=1)  # each row: no filter
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)  # 8 bits of red, green, blue
    parts = (chunk(b"IHDR", head), chunk(b"IDAT", zlib.compress(rows.tobytes(), 9)), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)
