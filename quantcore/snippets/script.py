"""The parts of every script: templates, imports, the tensor, assertions, the last line of output.

A template reads like the script itself. Its syntax is Jinja's: ``{{ value }}`` and ``{% if … %}``; a line
with only a tag leaves no line in the script.
"""

import ast
import hashlib
import sys
from dataclasses import dataclass
from functools import cache

import jinja2
import numpy as np

from quantcore import syntax
from quantcore.tensors import READABLE, Array, array_source, little_endian

_ENVIRONMENT = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined)
# name -> the import that is added if a script uses it
_IMPORTS = {
    "base64": "import base64",
    "hashlib": "import hashlib",
    "itertools": "import itertools",
    "version": "from importlib.metadata import version",
    "zlib": "import zlib",
    "np": "import numpy as np",
    "qc": "import quantcore as qc",
    "torch": "import torch",
}


def render(template: str, **values: object) -> str:
    """Return the script of a template, without blank lines around it."""
    return _compiled(template).render(values).strip("\n")


@cache
def _compiled(template: str) -> jinja2.Template:
    return _ENVIRONMENT.from_string(template)


def assemble(tensor_code: str, body: str, heading: str = "") -> str:
    """Return a script of a heading, imports, the tensor and the body.

    ``tensor_code`` and ``body`` can begin with imports. Those in `_IMPORTS` are added where needed, and names
    that are imported but not used are dropped.
    """
    (own, names, tensor), (needed, more_names, rest) = _parted(tensor_code), _parted(body)
    code, used = f"{tensor}\n\n{rest}".strip(), names | more_names
    found = {_IMPORTS[name] for name in used & _IMPORTS.keys()}
    found |= {line for node in own + needed if (line := _import_line(node, used))}
    standard = {line for line in found if line.split()[1].split(".")[0] in sys.stdlib_module_names}
    order = lambda line: (line.startswith("from"), line)  # noqa: E731
    blocks = ["\n".join(sorted(lines, key=order)) for lines in (standard, found - standard)]
    top = "\n\n".join([*filter(None, blocks), code]) + "\n"
    return f"{heading}\n{top}" if heading else top


def _parted(source: str) -> tuple[list[ast.Import | ast.ImportFrom], set[str], str]:
    """Return the imports at the start of the source, the names that the rest uses, and the rest."""
    statements, imports = syntax.module(source).body, []
    for node in statements:
        if not isinstance(node, ast.Import | ast.ImportFrom):
            break
        imports.append(node)
    below = imports[-1].end_lineno or 0 if imports else 0
    inner = (node for statement in statements[len(imports) :] for node in ast.walk(statement))
    names = {node.id for node in inner if isinstance(node, ast.Name)}
    return imports, names, "\n".join(source.split("\n")[below:]).strip("\n")


def _import_line(node: ast.Import | ast.ImportFrom, used: set[str]) -> str:
    """Return the import without unused names; ``import a.b`` stays, for its side effects."""
    if isinstance(node, ast.ImportFrom):
        node.names = [alias for alias in node.names if (alias.asname or alias.name) in used]
    return ast.unparse(node) if node.names else ""


@dataclass(frozen=True)
class Language:
    """How assertions and literals are written, with torch or with NumPy."""

    module: str
    equal: str
    equal_with_nan: str
    flatten: str
    to_bytes: str
    to_float32: str
    count: str


TORCH = Language(
    "torch",
    "assert torch.equal({name}, {expected})",
    "torch.testing.assert_close({name}, {expected}, rtol=0, atol=0, equal_nan=True)",
    "{name}.flatten()",
    '{name}.numpy().astype("{dtype}").tobytes()',
    "{name}.float() + 0.0",
    "{name}.numel()",
)
NUMPY = Language(
    "np",
    "assert np.array_equal({name}, {expected})",
    "np.testing.assert_array_equal({name}, {expected})",
    "np.ravel({name})",
    '{name}.astype("{dtype}").tobytes()',
    "np.asarray({name}, np.float32) + np.float32(0)",
    "np.size({name})",
)


def check(name: str, codes: Array, language: Language = TORCH) -> str:
    """Return lines that assert the codes under ``name``: directly, or by a hash if there are many."""
    if codes.size <= READABLE:
        expected = array_source(codes, language.module)
        return f"expected = {expected}\n{language.equal.format(name=name, expected='expected')}"
    return f"{_check_hash(name, codes, language)}\nassert tuple({name}.shape) == {codes.shape}"


def _check_hash(name: str, values: Array, language: Language) -> str:
    values = little_endian(values)
    digest = hashlib.sha256(values.data).hexdigest()
    data = language.to_bytes.format(name=name, dtype=values.dtype.newbyteorder("<").str)
    return f"""\
data = {data}  # row by row, little-endian
assert hashlib.sha256(data).hexdigest() == (
    "{digest}"
)"""


def check_parameters(name: str, values: Array, language: Language) -> str:
    """Return lines that assert scale or zero_point, ignoring axes of length 1."""
    flat = values.reshape(-1)
    has_nan = bool(np.isnan(flat).any())
    if _is_one_integer(flat):
        return f"assert ({name} == {flat[0]}).all()"
    if flat.size > READABLE and not has_nan:
        return _check_hash(name, flat, language)
    dtype = {"i": "int32", "f": "float32"}[values.dtype.kind]
    found = language.flatten.format(name=name)
    if values.dtype.kind == "i":
        found += f".{'to' if language is TORCH else 'astype'}({language.module}.{dtype})"
    assertion = language.equal_with_nan if has_nan else language.equal
    return (
        f"expected_{name} = {array_source(flat, language.module)}\n"
        f"{assertion.format(name=found, expected=f'expected_{name}')}"
    )


def checked(name: str, values: Array, language: Language = TORCH) -> str:
    """Return what `check` or `check_parameters` asserted, as text for an f-string of the script.

    The script counts what it compared; zero points that are all the same integer are given as that integer.
    """
    noun = {"dequantized": "dequantized value", "zero_point": "zero point"}.get(name, name.removesuffix("s"))
    plural = "s" * (values.size != 1)
    if name == "zero_point" and _is_one_integer(values.reshape(-1)):
        return f"the zero point {values.reshape(-1)[0]}"  # a library can use one for all scales
    return f"{{{language.count.format(name=name)}:,}} {noun}{plural}"


def ending(parts: list[str], who: str = "") -> str:
    """Return the last lines of the script, which print what was checked.

    ``who``: library and version, as text for an f-string.
    """
    *most, last = parts
    listed = f"{', '.join(most)} and {last}" if most else last
    verb = "equals that" if not most and last.startswith("{") and not last.endswith("s") else "equal those"
    ran = f" ({who})" if who else ""
    return f"""\
checked = f"{listed}"
print(f"OK: {{checked}} {verb} of Quantscope{ran}.")"""


def _is_one_integer(flat: Array) -> bool:
    return flat.dtype.kind == "i" and bool((flat == flat[0]).all())
