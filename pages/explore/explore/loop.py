"""The maps from 8 to 2 bits as a short loop, for a slide: a GIF with scheme and link in small print."""

import io
import re
import textwrap
from dataclasses import replace
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

import quantcore as qc
from pages.shared.computing import cache
from pages.shared.state.selection import PageTensor
from quantcore import figures
from quantcore.analysis import MapData, View

BITS = range(8, 1, -1)
STEP, LAST = 800, 2000  # ms of a frame, and of the last one
WIDE, GAP, TITLE = 460, 24, 24  # px of a map, between two, and above one
LOWEST, HIGHEST = 60, 264  # px of a map's height
STRETCH = 1.7  # maximum width of a cell over its height
NUMBERS = 144  # cells of a map: more have no numbers
SMALL = 13  # px of the smallest type: a smaller one runs its words together
TEXT, LINE, LINES = 15, 18, 10  # px of type and of a line of small print; most lines
TITLES = {"x": "Original", "codes": "Codes", "dequantized": "Dequantized", "error": "Error"}
_PAPER = {"light": ("#ffffff", "#31333f"), "dark": ("#1a1a18", "#fafafa")}  # with the ink


def gif(tensor: PageTensor, scheme: qc.Scheme, view: View, address: str, theme: str) -> bytes:
    """Return the loop over all widths that the library has.

    Args:
        address: the link of the page.

    Raises:
        QuantError: the library has none of the widths, or the view does not fit the tensor.
    """
    assert isinstance(scheme.format, qc.IntFormat)
    frames = []
    for bits in BITS:
        own = replace(scheme, format=replace(scheme.format, bits=bits))
        if not qc.unsupported_reason(own, tensor.shape):
            frames.append(_frame(tensor, own, view, address, theme))
    if not frames:
        raise qc.QuantError(f"{scheme.convention.name} has none of the widths from 8 to 2 bits.")
    file = io.BytesIO()
    times = [STEP] * (len(frames) - 1) + [LAST]
    frames[0].save(file, "GIF", save_all=True, append_images=frames[1:], duration=times, loop=0, disposal=1)
    return file.getvalue()


def _frame(tensor: PageTensor, scheme: qc.Scheme, view: View, address: str, theme: str) -> Image.Image:
    result, data = cache.result(tensor, scheme), cache.drawn(tensor, scheme, view)
    paper, ink = _PAPER[theme]
    rows, columns = data.map("codes").shape
    high = int(np.clip(WIDE * rows / columns / STRETCH, LOWEST, HIGHEST))
    printed = _small_print(tensor, address)
    foot = 2 * GAP + TITLE + 2 * (high + TITLE + GAP)
    image = Image.new("RGB", (2 * WIDE + 3 * GAP, foot + len(printed) * LINE + GAP // 2), paper)
    pen = ImageDraw.Draw(image)
    sqnr = qc.decibels(cache.report(tensor, scheme).sqnr_db, 2)
    pen.text((GAP, GAP), f"{result.scheme.format} · SQNR {sqnr}", ink, ImageFont.load_default(TEXT + 5))
    scales = figures.scales_of_maps(data, scheme.format, theme, grey=tensor.is_image)
    for n, (name, title) in enumerate(TITLES.items()):
        left, top = GAP + n % 2 * (WIDE + GAP), 2 * GAP + TITLE + n // 2 * (high + TITLE + GAP)
        pen.text((left, top), title, ink, ImageFont.load_default(TEXT))
        _map(image, data, name, scales[name], (left, top + TITLE, WIDE, high))
    for n, line in enumerate([str(result.scheme), *printed[1:]]):
        pen.text((GAP, foot + n * LINE), line, ink, ImageFont.load_default(SMALL))
    return image


def _small_print(tensor: PageTensor, address: str) -> list[str]:
    """Return its lines; the first is for the scheme."""
    shape = "x".join(map(str, tensor.shape))
    lines = textwrap.wrap(address, (2 * WIDE) // 9, break_on_hyphens=False)
    if len(lines) > LINES:
        lines = ["The link is too long to print."]
    return ["", f"{tensor.name} {shape}", *lines]


def _map(
    image: Image.Image, data: MapData, name: str, scale: dict[str, Any], box: tuple[int, int, int, int]
) -> None:
    values = np.asarray(data.map(name), np.float64)
    colors = _colors(values, scale)
    left, top, wide, high = box
    cells = Image.fromarray(colors).resize((wide, high), Image.Resampling.NEAREST)
    seen = Image.fromarray(np.isfinite(values)).resize((wide, high), Image.Resampling.NEAREST)
    image.paste(cells, (left, top), seen)
    if values.size > NUMBERS:
        return
    rows, columns = values.shape
    pen, font = ImageDraw.Draw(image), ImageFont.load_default(min(SMALL, 0.7 * high / rows))
    for (row, column), value in np.ndenumerate(values):
        text = f"{value:.0f}" if name == "codes" else f"{value:.2f}"
        dark = colors[row, column] @ (0.299, 0.587, 0.114) < 140
        at = left + (column + 0.5) * wide / columns, top + (row + 0.5) * high / rows
        if font.getlength(text) < wide / columns:
            pen.text(at, text, "#ffffff" if dark else "#1a1a1a", font, anchor="mm")


def _colors(values: np.ndarray, scale: dict[str, Any]) -> np.ndarray:
    """Return red, green and blue of each value; those beyond the scale have the color of its end."""
    stops = [(at, [float(n) for n in re.findall(r"[\d.]+", text)]) for at, text in scale["colorscale"]]
    low, high = float(scale["zmin"]), float(scale["zmax"])
    at = np.nan_to_num((values - low) / (high - low))
    parts = [np.interp(at, [place for place, _ in stops], [rgb[n] for _, rgb in stops]) for n in range(3)]
    return np.stack(parts, -1).round().astype(np.uint8)
