"""A result as a page and as an image, for the options --html and --png."""

import importlib
import io
from html import escape
from typing import Any

import numpy as np

from quantcore.analysis import decibels, map_data, report
from quantcore.errors import QuantError
from quantcore.figures import colors_at, scales_of_maps, titles_of_maps
from quantcore.notebook import card
from quantcore.quantization import Quantized
from quantcore.scheme import bits_per_element

_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; font-family: system-ui, sans-serif; }}
body {{ max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }}
h1 {{ font-size: 1.25rem; overflow-wrap: anywhere; }}
table {{ display: block; overflow-x: auto; white-space: nowrap; }}
a {{ color: LinkText; }}
</style>
<h1>{title}</h1>
{card}
</html>
"""
_SIDE, _LEAST, _NARROW = 320, 96, 180  # px of a map at most, its height at least, of the text below it
_GAP, _HEADING, _CAPTION = 24, 64, 48  # px between maps, above and below them
_WRITTEN = str.maketrans({"×": "x", "−": "-", "\u0302": "^"})  # what Pillow's font does not have, as in x̂
_INK, _PAPER, _SOFT = (20, 24, 31), (255, 255, 255), (92, 99, 112)


def page(result: Quantized, title: str) -> str:
    """Return an HTML page with the numbers of a result and its maps, without scripts."""
    return _PAGE.format(title=escape(title), card=card(result))


def maps_png(result: Quantized, title: str) -> bytes:
    """Return the four maps of a result as an image, with its scheme, its SQNR and the range of each map.

    Raises:
        QuantError: Pillow is not installed.
    """
    image_module, draw_module, font_module = (_pillow(name) for name in ("Image", "ImageDraw", "ImageFont"))
    data = map_data(result)
    scales, titles = scales_of_maps(data, result.scheme.format), titles_of_maps(data)
    across, down = _pixels(data.map("x").shape)
    tall, wide = (n * by for n, by in zip(data.map("x").shape, (down, across), strict=True))
    column = max(wide, _NARROW) + _GAP
    width, top = len(titles) * column + _GAP, _HEADING + _GAP
    image = image_module.new("RGB", (width, top + tall + _CAPTION + _GAP), _PAPER)
    draw, (large, small) = draw_module.Draw(image), map(font_module.load_default, (20, 15))
    draw.text((_GAP, 14), _fitted(title, large, width - 2 * _GAP), _INK, large)
    bits = bits_per_element(result.scheme, tuple(result.codes.shape))
    said = f"{result.scheme}: {bits:.4g} bits per element, SQNR {decibels(report(result).sqnr_db)}"
    draw.text((_GAP, 42), _fitted(said, small, width - 2 * _GAP), _SOFT, small)
    for left, (name, heading) in zip(range(_GAP, width, column), titles.items(), strict=False):
        values, scale = data.map(name), scales[name]
        colors = colors_at(values, scale["zmin"], scale["zmax"], scale["colorscale"])
        cells = np.ascontiguousarray(colors.repeat(down, 0).repeat(across, 1))
        image.paste(image_module.fromarray(cells), (left, top))
        draw.rectangle((left - 1, top - 1, left + wide, top + tall), outline=_SOFT)
        draw.text((left, top + tall + 8), _fitted(heading, small, column - _GAP), _INK, small)
        draw.text((left, top + tall + 28), _span(values), _SOFT, small)
    file = io.BytesIO()
    image.save(file, "PNG", optimize=True)
    return file.getvalue()


def _pixels(shape: tuple[int, ...]) -> tuple[int, int]:
    """Return the width and height of a cell; cells of few rows are taller than wide."""
    rows, columns = shape
    across = max(1, min(_SIDE // columns, _SIDE // rows))
    return across, max(across, _LEAST // rows)


def _pillow(module: str) -> Any:
    try:
        return importlib.import_module(f"PIL.{module}")
    except ImportError:
        raise QuantError("--png needs Pillow, which is not installed; run: pip install pillow") from None


def _span(values: Any) -> str:
    finite = values[np.isfinite(values)]
    return f"{finite.min():.4g} to {finite.max():.4g}" if finite.size else "no finite number"


def _fitted(text: str, font: Any, width: float) -> str:
    """Return as much of a text as fits into a width."""
    text = text.translate(_WRITTEN)
    most = len(text)
    while most > 1 and font.getlength(shown := text if most == len(text) else f"{text[:most]}…") > width:
        most -= 1
    return shown if most > 1 else text[:1]
