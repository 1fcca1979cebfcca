"""Scripts that run a method on a layer: with quantcore, or with the library that has it, where one runs."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from quantcore.conventions import CONVENTIONS
from quantcore.errors import QuantError
from quantcore.formats import IntFormat
from quantcore.granularity import PerChannel, PerGroup
from quantcore.outputs import (
    AWQ,
    GPTQ,
    HADAMARD,
    LLM_INT8,
    METHODS,
    NEAREST,
    SMOOTHQUANT,
    MethodOptions,
)
from quantcore.scheme import Scheme
from quantcore.snippets.script import assemble, render

_WITHOUT = {
    GPTQ: "GPTQModel can't be installed beside the other libraries. qc.outputs.gptq with lazy_ranges=True "
    "gives the codes that GPTQModel 7.7.0 gave on recorded layers.",
    NEAREST: f"{METHODS[NEAREST].capitalize()} is what the scheme's library does; Explore has its script.",
}
TOLERANCE_DB = 0.01  # what another order of float32 sums may change

_QUANTCORE = """
w = torch.as_tensor(x)  # [out, in]
x = {{ source.x }}
held_out = {{ source.held_out }}
scheme = "{{ source.scheme }}"
{% if source.activation_scheme %}
activation_scheme = "{{ source.activation_scheme }}"
{% else %}
activation_scheme = None  # kept in float
{% endif %}

{{ body }}
print(f"{output.sqnr_db:.2f} dB")
{% if finite %}
assert abs(output.sqnr_db - {{ sqnr_db }}) < {{ tolerance }}  # dB; sums in another order
{% else %}
assert output.sqnr_db == float("{{ sqnr_db }}")
{% endif %}
print("OK: the SQNR of the output is that of Quantscope.")
"""
_LIBRARY = """
{{ imports }}

w = torch.as_tensor(x).float()  # [out, in]
x = {{ source.x }}

{{ body }}
print("OK: {{ what }} equal those of quantcore.")
"""
_CACHE = """
q, k, v = {{ head }}
found = qc.outputs.kv_granularities(q, k, v, "{{ scheme }}")
print(found)
{% for name, pair in sqnr.items() %}
for value, expected in zip(found["{{ name }}"], {{ pair }}):
    assert abs(value - expected) < {{ tolerance }}  # dB; sums in another order
{% endfor %}
print("OK: the SQNR of the output is that of Quantscope.")
"""


@dataclass(frozen=True)
class MethodSource:
    """Where a layer's numbers come from, as source code.

    ``w``: binds ``x`` to the weights, which have so many ``inputs``; ``x``, ``held_out``: expressions of
    activations.
    """

    w: str
    inputs: int
    x: str
    held_out: str
    scheme: Scheme
    activation_scheme: Scheme | None = None


def method_script(source: MethodSource, method: str, options: MethodOptions, sqnr_db: float) -> str:
    """Return a script that runs a method with quantcore and asserts the output's SQNR on held-out tokens.

    >>> source = MethodSource("x = torch.eye(4)", 4, "torch.eye(4)", "torch.eye(4)", Scheme.parse("int4"))
    >>> script = method_script(source, "gptq", MethodOptions(), 30.0)
    >>> [line for line in script.splitlines() if line.startswith("found")]
    ['found = qc.outputs.gptq(w, x, scheme, damping=0.01, act_order=False)']
    """
    body = render(
        _QUANTCORE,
        source=source,
        body=_OWN[method](options),
        sqnr_db=sqnr_db,
        finite=math.isfinite(sqnr_db),
        tolerance=TOLERANCE_DB,
    )
    return assemble(source.w, body)


def cache_script(head: str, scheme: Scheme, sqnr: Mapping[str, tuple[float, float]]) -> str:
    """Return a script that measures a quantized cache per token and per channel, and asserts the SQNR.

    Args:
        head: an expression of queries, keys and values.

    >>> sqnr = {"per token": (4.0, 4.1)}
    >>> script = cache_script("qc.outputs.attention_head(8, 4)", Scheme.parse("int8"), sqnr)
    >>> [line for line in script.splitlines() if line.startswith("q, k")]
    ['q, k, v = qc.outputs.attention_head(8, 4)']
    """
    body = render(_CACHE, head=head, scheme=scheme, sqnr=sqnr, tolerance=TOLERANCE_DB)
    return assemble("", body)


def method_library_script(source: MethodSource, method: str, options: MethodOptions) -> tuple[str, str]:
    """Return the library that has a method, and a script that asserts that quantcore's numbers are its own.

    >>> source = MethodSource("x = torch.eye(4)", 4, "torch.eye(4)", "torch.eye(4)", Scheme.parse("int4"))
    >>> method_library_script(source, "smoothquant", MethodOptions())[0]
    'torchao 0.18.0'

    Raises:
        QuantError: no library runs it on a CPU, or not with this scheme.
    """
    if method not in _THEIRS:
        raise QuantError(_WITHOUT[method])
    library, what, write = _THEIRS[method]
    imports, _, body = write(source, options).partition("\n\n")
    return library, assemble(source.w, render(_LIBRARY, source=source, imports=imports, body=body, what=what))


def _own_smoothquant(options: MethodOptions) -> str:
    return f"""\
found = qc.outputs.smoothquant(x, w, alpha={options.alpha:g})
output = qc.outputs.layer(held_out / found.scale, found.w, scheme, activation_scheme)"""


def _own_awq(options: MethodOptions) -> str:
    return f"""\
found = qc.outputs.awq(w, x, scheme, clip={options.clip})
output = qc.outputs.layer(held_out / found.scale, found.w, found.quantized, activation_scheme)"""


def _own_gptq(options: MethodOptions) -> str:
    return f"""\
found = qc.outputs.gptq(w, x, scheme, damping={options.damping:g}, act_order={options.act_order})
output = qc.outputs.layer(held_out, w, found.quantized, activation_scheme)"""


def _own_hadamard(options: MethodOptions) -> str:
    return f"""\
found = qc.outputs.hadamard(w, held_out, seed={options.signs})
output = qc.outputs.layer(found.x, found.w, scheme, activation_scheme)"""


def _own_llm_int8(options: MethodOptions) -> str:
    return f"output = qc.outputs.llm_int8(held_out, w, threshold={options.threshold:g})"


def _own_nearest(options: MethodOptions) -> str:
    return "output = qc.outputs.layer(held_out, w, scheme, activation_scheme)"


def _their_smoothquant(source: MethodSource, options: MethodOptions) -> str:
    return f"""\
from torchao.prototype.smoothquant.core import SmoothQuantObserver

observer = SmoothQuantObserver(w, {options.alpha:g})
observer(x)
scale = observer.calculate_qparams()[0]
print(scale)
found = qc.outputs.smoothquant(x, w, alpha={options.alpha:g})
assert torch.equal(scale, found.scale)"""


def _their_awq(source: MethodSource, options: MethodOptions) -> str:
    fmt, granularity = source.scheme.format, source.scheme.granularity
    last = isinstance(granularity, PerGroup) and granularity.axis in (-1, 1)
    rows = isinstance(granularity, PerChannel) and granularity.axis in (0, -2)
    if not (isinstance(fmt, IntFormat) and fmt.signed and fmt.bits <= 8 and source.scheme.symmetric):
        raise QuantError(
            f"torchao's AWQ quantizes in signed symmetric integers of up to 8 bits, not {source.scheme}; "
            "choose such a scheme."
        )
    if not (last or rows):
        raise QuantError("torchao's AWQ has a scale per row or per group of a row; choose one of these.")
    own = replace(Scheme(fmt, True, granularity), convention=CONVENTIONS["torchao"])
    per = f"PerGroup({granularity.size})" if isinstance(granularity, PerGroup) else "PerAxis(0)"
    return f"""\
from torchao.prototype.awq.core import AWQObserver
from torchao.quantization import IntxWeightOnlyConfig, PerAxis, PerGroup

# it quantizes as torchao does
observer = AWQObserver(w, None, IntxWeightOnlyConfig(torch.int{fmt.bits}, {per}))
observer(x, None)
scale = observer.calculate_qparams()
print(scale)
found = qc.outputs.awq(w, x, "{own}")
assert torch.equal(scale, found.scale)"""


def _their_hadamard(source: MethodSource, options: MethodOptions) -> str:
    if options.signs is not None:
        raise QuantError(
            "compressed-tensors draws random signs from another generator; choose none to compare."
        )
    if source.inputs & (source.inputs - 1):
        raise QuantError(
            f"compressed-tensors has deterministic Hadamard matrices of powers of two, and w has "
            f"{source.inputs:,} columns; choose a power of two."
        )
    return """\
from compressed_tensors.transform.utils.hadamard import deterministic_hadamard_matrix

h = deterministic_hadamard_matrix(w.shape[1], torch.float64)  # sizes are powers of two
rotated = (w.double() @ h.T / w.shape[1] ** 0.5).float()
print(rotated)
found = qc.outputs.hadamard(w, x)
torch.testing.assert_close(rotated, found.w, rtol=0, atol=1e-6 * float(rotated.abs().max()))"""


def _their_llm_int8(source: MethodSource, options: MethodOptions) -> str:
    return f"""\
import bitsandbytes.functional as bnb

x = {source.held_out}
codes, largest, columns = bnb.int8_vectorwise_quant(x.clone(), {options.threshold:g})
print(columns)
found = qc.outputs.llm_int8(x, w, threshold={options.threshold:g})
assert found.outliers.tolist() == ([] if columns is None else columns.tolist())
assert torch.equal(found.x_codes, codes)"""


_OWN: dict[str, Callable[[MethodOptions], str]] = {
    NEAREST: _own_nearest,
    SMOOTHQUANT: _own_smoothquant,
    AWQ: _own_awq,
    GPTQ: _own_gptq,
    HADAMARD: _own_hadamard,
    LLM_INT8: _own_llm_int8,
}
_THEIRS: dict[str, tuple[str, str, Callable[[MethodSource, MethodOptions], str]]] = {
    SMOOTHQUANT: ("torchao 0.18.0", "the scales", _their_smoothquant),
    AWQ: ("torchao 0.18.0", "the scales", _their_awq),
    HADAMARD: ("compressed-tensors 0.20.0", "the rotated weights", _their_hadamard),
    LLM_INT8: ("bitsandbytes 0.50.2", "codes and outlier columns", _their_llm_int8),
}
