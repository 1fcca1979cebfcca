"""Python scripts that reproduce a result and assert its codes: with quantcore, or with torch alone."""

import dataclasses
import itertools
import re
import textwrap
from typing import Any

from quantcore.conventions import Convention
from quantcore.formats import FORMATS, CodebookFormat, FloatFormat, IntFormat
from quantcore.quantization import Quantized
from quantcore.scheme import PRESETS, Scheme
from quantcore.snippets.script import assemble, check, checked, ending, render
from quantcore.snippets.torch_script import arithmetic
from quantcore.tensors import WIDTH, array_source

_QUANTCORE = """
scheme = {{ scheme }}
{% if importance %}
importance = {{ importance }}
result = qc.apply(x, scheme, importance=importance)
{% else %}
result = qc.apply(x, scheme)
{% endif %}
print(result.scale)
print(result.codes)
print(result.error.abs().max())

codes = result.codes
{{ check }}

{{ ending }}
"""
_TORCH = """
# {{ comment }}
{{ arithmetic }}

{{ check }}

{{ ending }}
"""


def quantcore_script(tensor_code: str, result: Quantized) -> str:
    """Return a script that quantizes x with quantcore and asserts the codes of ``result``.

    The last line of its output says what was checked. ``tensor_code`` is source code that binds ``x``; it can
    begin with imports, but needs none for np, torch, qc, base64 and zlib.

    >>> import quantcore as qc
    >>> x = "x = torch.tensor([0.5, -1.0, 2.0])"
    >>> lines = quantcore_script(x, qc.apply([0.5, -1.0, 2.0], qc.Scheme(qc.INT4))).splitlines()
    >>> [line for line in lines if "qc." in line]
    ['scheme = qc.Scheme(format=qc.INT4)', 'result = qc.apply(x, scheme)']
    """
    codes = result.codes.cpu().numpy()
    body = render(
        _QUANTCORE,
        scheme=scheme_source(result.scheme),
        importance=None if result.importance is None else array_source(result.importance.cpu().numpy()),
        check=check("codes", codes),
        ending=ending([checked("codes", codes)]),
    )
    return assemble(tensor_code, body)


def torch_script(tensor_code: str, result: Quantized) -> str:
    """Return a script that does the arithmetic step by step in torch and asserts the codes of ``result``.

    ``tensor_code`` is source code that binds ``x`` to a float32 torch tensor, as written by `literal`.

    >>> import quantcore as qc
    >>> result = qc.apply([0.5, -1.0, 2.0], qc.Scheme(qc.INT4))
    >>> lines = torch_script("x = torch.tensor([0.5, -1.0, 2.0])", result).splitlines()
    >>> [line for line in lines if line.startswith(("scale", "codes"))]
    ['scale = largest / 7', 'codes = torch.round(x / scale).clamp(qmin, qmax).to(torch.int8)']
    """
    codes, text = result.codes.cpu().numpy(), str(result.scheme)
    body = render(
        _TORCH,
        comment=text if len(text) <= WIDTH else text[: WIDTH - 1] + "…",
        arithmetic=arithmetic(result),
        check=check("codes", codes),
        ending=ending([checked("codes", codes)], "torch {torch.__version__}"),
    )
    return assemble(tensor_code, body)


def scheme_source(scheme: Scheme) -> str:
    """Return the constructor call for a scheme, with the arguments that differ from the defaults.

    >>> scheme_source(Scheme.parse("int4 per_group(32)"))
    'qc.Scheme(format=qc.INT4, granularity=qc.PerGroup(size=32))'
    """
    for name, preset in PRESETS.items():
        if scheme == preset:
            return f'qc.PRESETS["{name}"]'
    line = _constructor(scheme)
    if len("scheme = ") + len(line) <= WIDTH:
        return line
    # one argument per line; manual parameters can take several lines
    lines = itertools.chain(*(_wrapped(f"    {argument},") for argument in _arguments(scheme)))
    return "\n".join(["qc.Scheme(", *lines, ")"])


def _wrapped(line: str) -> list[str]:
    """Break a long line at spaces outside strings."""
    unbroken = re.sub(r'"[^"]*"', lambda string: string[0].replace(" ", "\0"), line)
    parts = textwrap.wrap(
        unbroken, WIDTH, subsequent_indent=" " * 8, break_on_hyphens=False, break_long_words=False
    )
    return [part.replace("\0", " ") for part in parts]


def _constructor(choice: Any) -> str:
    if isinstance(choice, IntFormat) and choice in FORMATS.values():
        return f"qc.{str(choice).upper()}"
    if isinstance(choice, FloatFormat | CodebookFormat):
        return f'qc.parse_format("{choice}")'
    if isinstance(choice, Convention):
        changes = ", ".join(f"{name}={value!r}" for name, value in choice.changes().items())
        return f'qc.CONVENTIONS["{choice.name}"]' + (f".changed({changes})" if changes else "")
    return f"qc.{type(choice).__name__}({', '.join(_arguments(choice))})"


def _arguments(choice: Any) -> list[str]:
    """Return ``name=value`` for every field that is not at its default."""
    found = []
    for field in dataclasses.fields(choice):
        value = getattr(choice, field.name)
        if field.default is dataclasses.MISSING or value != field.default:
            text = _constructor(value) if dataclasses.is_dataclass(value) else repr(value)
            found.append(f"{field.name}={text}")
    return found
