"""The link that opens a result in the app."""

import os
from html import escape
from urllib.parse import urlencode

from quantcore.notebook.lines import preset_of
from quantcore.quantization import Quantized
from quantcore.scheme import Scheme
from quantcore.tensors import encode, fits_link

APP = "QUANTSCOPE_APP"  # the environment variable with the address of the app
HERE = "http://localhost:8501"


def address(scheme: Scheme, result: Quantized | None = None) -> str:
    """Return the address of the app with this scheme, and with x if it is small enough for a link."""
    parameters = {"scheme": preset_of(scheme) or str(scheme)}
    if result is not None:
        x = result.x.cpu().numpy()
        if fits_link(x):
            parameters |= {"src": "paste", "t": encode(x), "dtype": str(result.dtype).removeprefix("torch.")}
    return f"{os.environ.get(APP, HERE).rstrip('/')}/?{urlencode(parameters)}"


def link(scheme: Scheme, result: Quantized | None = None) -> str:
    """Return the link as HTML."""
    to = address(scheme, result)
    whole = result is None or "&t=" in to
    said = "Open in Quantscope" if whole else "Open this scheme in Quantscope (x is too large for a link)"
    return f'<p><a href="{escape(to)}" style="text-decoration:underline">{said}</a></p>'
