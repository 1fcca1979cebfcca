"""A result as a Python script that rebuilds it and asserts its codes: with quantcore, or torch alone."""

import ast
import dataclasses
import hashlib
import itertools
import sys
import textwrap
from typing import Any

from quantcore.formats import FORMATS, IntFormat
from quantcore.literals import READABLE, WIDTH, array_source, literal, little_endian
from quantcore.quantize import Quantized
from quantcore.scheme import Scheme
from quantcore.snippets_torch import arithmetic

__all__ = ["literal", "quantcore_script", "torch_script"]

# what a script may use without importing it
_IMPORTS = {
    "base64": "import base64",
    "hashlib": "import hashlib",
    "itertools": "import itertools",
    "zlib": "import zlib",
    "np": "import numpy as np",
    "qc": "import quantcore as qc",
    "torch": "import torch",
}


def quantcore_script(tensor_code: str, result: Quantized) -> str:
    """Return a script that quantizes x with quantcore and asserts the codes of ``result``.

    ``tensor_code`` is source that binds ``x``. It may begin with imports; np, torch, qc, base64 and zlib
    need none.
    """
    body = [
        f"scheme = {scheme_source(result.scheme)}",
        "result = qc.apply(x, scheme)",
        "print(result.scale)",
        "print(result.codes)",
        "print(result.error.abs().max())",
        "",
        *_check("result.codes", result),
    ]
    return _script(tensor_code, body)


def torch_script(tensor_code: str, result: Quantized) -> str:
    """Return a script that does the arithmetic by hand, in torch, and asserts the codes of ``result``.

    ``tensor_code`` is source that binds ``x`` to a float32 torch tensor, as `literal` writes it.
    """
    body = [f"# {_comment(result.scheme)}", *arithmetic(result), "", *_check("codes", result)]
    return _script(tensor_code, body)


def scheme_source(scheme: Scheme) -> str:
    """Return the constructor of a scheme, with what differs from the defaults.

    >>> scheme_source(Scheme.parse("int4 per_group(32)"))
    'qc.Scheme(format=qc.INT4, granularity=qc.PerGroup(size=32))'
    """
    line = _constructor(scheme)
    if len("scheme = ") + len(line) <= WIDTH:
        return line
    # one argument a line; parameters by hand can be longer than one
    lines = [
        textwrap.wrap(f"    {a},", WIDTH, subsequent_indent=" " * 8, break_on_hyphens=False)
        for a in _arguments(scheme)
    ]
    return "\n".join(["qc.Scheme(", *itertools.chain(*lines), ")"])


def _constructor(choice: Any) -> str:
    if isinstance(choice, IntFormat) and choice in FORMATS.values():
        return f"qc.{str(choice).upper()}"
    return f"qc.{type(choice).__name__}({', '.join(_arguments(choice))})"


def _arguments(choice: Any) -> list[str]:
    """``name=value`` for every field that is not at its default."""
    found = []
    for field in dataclasses.fields(choice):
        value = getattr(choice, field.name)
        if field.default is dataclasses.MISSING or value != field.default:
            text = _constructor(value) if dataclasses.is_dataclass(value) else repr(value)
            found.append(f"{field.name}={text}")
    return found


def _comment(scheme: Scheme) -> str:
    text = str(scheme)
    return text if len(text) <= WIDTH else text[: WIDTH - 1] + "…"


def _check(name: str, result: Quantized) -> list[str]:
    """Lines that assert the codes: one by one, or by a hash where they are many."""
    codes = result.codes.cpu().numpy()
    if codes.size <= READABLE:
        return [f"expected = {array_source(codes)}", f"assert torch.equal({name}, expected)"]
    codes = little_endian(codes)
    digest = hashlib.sha256(codes.data).hexdigest()
    dtype = codes.dtype.newbyteorder("<").str
    return [
        f'data = {name}.numpy().astype("{dtype}").tobytes()  # row by row, little-endian',
        f'assert hashlib.sha256(data).hexdigest() == (\n    "{digest}"\n)',
        f"assert tuple({name}.shape) == {codes.shape}",
    ]


def _script(tensor_code: str, body: list[str]) -> str:
    """Put together the imports, of which ``tensor_code`` may bring its own, the tensor and the body."""
    tree = ast.parse(tensor_code)
    own = list(itertools.takewhile(lambda node: isinstance(node, ast.Import | ast.ImportFrom), tree.body))
    lines = tensor_code.strip().split("\n")
    below = own[-1].end_lineno or 0 if own else 0
    code = "\n".join([*lines[below:], "", *body]).strip()
    used = {node.id for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)}
    imports = {ast.unparse(node) for node in own} | {_IMPORTS[name] for name in used & _IMPORTS.keys()}
    standard = {line for line in imports if line.split()[1].split(".")[0] in sys.stdlib_module_names}
    blocks = ["\n".join(sorted(lines, key=_import_order)) for lines in (standard, imports - standard)]
    return "\n\n".join([*filter(None, blocks), code]) + "\n"


def _import_order(line: str) -> tuple[bool, str]:
    return line.startswith("from"), line
