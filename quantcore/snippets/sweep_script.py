"""A script that compares schemes with quantcore, and asserts the error of each."""

import math
from collections.abc import Mapping

from quantcore.snippets.layer_script import TOLERANCE_DB
from quantcore.snippets.script import assemble, render

_RELATIVE = 1e-5  # what another order of sums may change in an error
_SCRIPT = """
import math

{% if x %}
w = torch.as_tensor(x)  # [out, in]
{{ x }}
output = qc.outputs.output_measure(x, w)
{% endif %}

expected = {
{% for scheme, value in expected.items() %}
    "{{ scheme }}": {{ value }},
{% endfor %}
}
frame = qc.sweep({{ "w, expected, output=output" if x else "x, expected" }})
print(frame[["scheme", "bits_per_element", "{{ metric }}"]].to_string(index=False))

for found, value in zip(frame["{{ metric }}"], expected.values()):
    assert math.isclose(found, value, {{ tolerance }})  # sums in another order
print("OK: the errors are those of Quantscope.")
"""


def sweep_script(tensor_code: str, metric: str, expected: Mapping[str, float], activations: str = "") -> str:
    """Return a script that sweeps schemes over a tensor and asserts a metric of each.

    Args:
        tensor_code: binds ``x``, the tensor.
        metric: a column of `quantcore.sweep`.
        expected: the text of each scheme -> what the script asserts.
        activations: binds ``x``, the activations of the layer whose weight the tensor is; for
            ``output_sqnr_db``.

    >>> script = sweep_script("x = torch.eye(4)", "sqnr_db", {"int4": 20.0})
    >>> [line for line in script.splitlines() if "qc." in line]
    ['frame = qc.sweep(x, expected)']
    """
    tolerance = f"abs_tol={TOLERANCE_DB}" if metric.endswith("_db") else f"rel_tol={_RELATIVE}"
    infinite = {math.inf: "math.inf"}
    written = {scheme: infinite.get(value, repr(value)) for scheme, value in expected.items()}
    body = render(_SCRIPT, x=activations, expected=written, metric=metric, tolerance=tolerance)
    return assemble(tensor_code, body)
