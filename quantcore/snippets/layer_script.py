"""A script that computes a layer's output error with quantcore, and asserts its codes and its SQNR."""

import math
from dataclasses import dataclass

from torch import Tensor

from quantcore.outputs import LayerOutput
from quantcore.scheme import Scheme
from quantcore.snippets.script import assemble, check, render
from quantcore.tensors import Array, array_source

TOLERANCE_DB = 0.001  # what another order of float32 sums may change
FILE = "layer.npz"  # has w and x where they are too large for a script
_PACKED = 1 << 16  # bytes

_SCRIPT = """
{{ x }}
{% if bias %}
bias = {{ bias }}
{% endif %}
weight_scheme = "{{ weight_scheme }}"
{% if activation_scheme %}
activation_scheme = "{{ activation_scheme }}"
{% endif %}
{% if batches %}

# static scales are found on other tokens, and stay the same
{{ batches }}
calibrated = qc.outputs.calibrate(batches, activation_scheme{{ averaging }})
activation_scheme = calibrated.scheme
{% endif %}

layer = qc.outputs.layer(x, w, weight_scheme{{ arguments }})
print(layer)

{% for assertion in codes %}
{{ assertion }}
{% endfor %}
{% for name, expected in numbers %}
{% if exact[name] %}
assert {{ name }} == float("{{ expected }}")
{% else %}
assert abs({{ name }} - {{ expected }}) < {{ tolerance }}  # dB; sums in another order
{% endif %}
{% endfor %}
print("OK: the codes equal those of Quantscope, and the SQNR of the output is the same.")
"""


@dataclass(frozen=True)
class LayerSource:
    """Where a layer's numbers come from, as source code.

    ``w``, ``x``: bind these names; ``activation_scheme``: before its scales are found; ``batches``: binds
    ``batches``, empty if the scales are those of x itself; ``averaging``: as `quantcore.outputs.calibrate`
    takes it.
    """

    w: str
    x: str
    weight_scheme: Scheme
    activation_scheme: Scheme | None = None
    batches: str = ""
    averaging: float | None = None


def binding(name: str, values: Array | Tensor, file: str = FILE, place: str = "the Export tab") -> str:
    """Return source that binds a name to an array: its numbers, or where they are many, those of a file.

    Args:
        file: an .npz with the array under this name.
        place: where the file is downloaded.

    >>> import torch
    >>> binding("w", torch.tensor([[0.5]])), binding("w", torch.zeros(300, 300))
    ('w = torch.tensor([[0.5]])', 'w = torch.from_numpy(np.load("layer.npz")["w"])  # from the Export tab')
    """
    if values.nbytes > _PACKED:
        return f'{name} = torch.from_numpy(np.load("{file}")["{name}"])  # from {place}'
    return f"{name} = {array_source(values)}"


def layer_script(source: LayerSource, found: LayerOutput) -> str:
    """Return a script that computes a layer's output with quantcore and asserts what it found.

    It asserts the codes exactly, and the SQNR of the output, with weights or activations alone too, up to
    `TOLERANCE_DB`.

    >>> import quantcore as qc
    >>> schemes = qc.Scheme(qc.INT4), qc.Scheme(qc.INT8)
    >>> layer = qc.outputs.layer([[1.0, 2.0]], [[0.6, 0.25]], *schemes)
    >>> source = LayerSource("w = torch.tensor([[0.6, 0.25]])", "x = torch.tensor([[1.0, 2.0]])", *schemes)
    >>> [line for line in layer_script(source, layer).splitlines() if line.startswith("layer =")]
    ['layer = qc.outputs.layer(x, w, weight_scheme, activation_scheme)']
    """
    numbers = {"layer.sqnr_db": found.sqnr_db}
    numbers |= {f'layer.alone_db["{part}"]': value for part, value in found.alone_db.items()}
    results = {"weight_codes": ("weight", found.weight), "activation_codes": ("activation", found.activation)}
    codes = [
        f"{name} = layer.{part}.codes\n{check(name, result.codes.cpu().numpy())}"
        for name, (part, result) in results.items()
        if result is not None
    ]
    arguments = ", activation_scheme" * (source.activation_scheme is not None)
    body = render(
        _SCRIPT,
        x=source.x,
        bias=None if found.bias is None else array_source(found.bias),
        weight_scheme=source.weight_scheme,
        activation_scheme=source.activation_scheme,
        batches=source.batches,
        averaging="" if source.averaging is None else f", averaging={source.averaging}",
        arguments=arguments + ", bias=bias" * (found.bias is not None),
        codes=codes,
        numbers=[(name, value) for name, value in numbers.items() if not math.isnan(value)],
        exact={name: not math.isfinite(value) for name, value in numbers.items()},
        tolerance=TOLERANCE_DB,
    )
    return assemble(source.w, body)
