"""The value of a name: what it is bound to, or a guess from the name."""

import dataclasses

from quantcore.code_reading.values.python import UNKNOWN, Many, Module, Num, Param, Seq, Value
from quantcore.code_reading.values.quantities import Data
from quantcore.code_reading.values.steps import placed

Names = dict[str, Value]
_KNOWN_NAMES = {"torch": "torch", "np": "numpy", "numpy": "numpy", "F": "torch.nn.functional", "math": "math"}
_SCALES = {
    "s",
    "sc",
    "scale",
    "scales",
    "delta",
    "step",
    "step_size",
    "scaling_factor",
    "scale_factor",
    "x_scale",
}
_ZERO_POINTS = {"z", "zp", "zero_point", "zeropoint", "zero_points", "offset", "zero", "zero_offset", "x_zp"}
_CODES = {"q", "qx", "xq", "x_q", "q_x", "codes", "code", "quantized", "quant", "x_int", "xint", "qtensor", "q_tensor",
          "quantized_tensor", "x_quant", "x_quantized", "tensor_q", "w_q", "wq", "q_weight", "qweight", "int_x"}  # fmt: skip
_PLAIN = {"bits", "num_bits", "n_bits", "nbits", "bit", "b", "bitwidth", "bit_width", "dtype", "dim", "axis", "qmin",
          "qmax", "q_min", "q_max", "quant_min", "quant_max", "symmetric", "signed", "eps", "percentile", "p", "q_p",
          "group_size", "block_size", "groupsize", "n", "k", "self", "axes", "ch_axis", "channel", "device", "kwargs",
          "args", "verbose", "mode", "min_val", "max_val", "low", "high", "lo", "hi", "rmin", "rmax", "x_min", "x_max",
          "xmin", "xmax", "alpha", "beta", "levels", "n_levels", "num_levels"}  # fmt: skip


def guess(name: str, first: bool = False) -> Value:
    """Guess the value of an argument or unbound name from its name; the first argument is the tensor."""
    lower = name.lower()
    if lower in _SCALES:
        return Param(name, "scale")
    if lower in _ZERO_POINTS:
        return Param(name, "zero_point")
    if lower in _CODES or lower in _PLAIN:
        return UNKNOWN
    tensors = (
        "x",
        "w",
        "a",
        "t",
        "tensor",
        "weight",
        "weights",
        "data",
        "input",
        "inputs",
        "activation",
        "activations",
        "arr",
    )
    if first or lower in tensors or lower.endswith(("tensor", "_x", "weight", "weights")):
        return Data(name)
    return UNKNOWN


def name_of(name: str, names: Names) -> Value:
    """Return the value of a name, or a guess if it is unbound."""
    if name in names:
        return names[name]
    if name in _KNOWN_NAMES:
        return Module(_KNOWN_NAMES[name])
    if name in ("True", "False"):
        return Num(name == "True")
    found = guess(name)
    if isinstance(found, Data):
        found = names[name] = dataclasses.replace(found, caller=True)
    return found


def item_of(value: Value) -> Value:
    """Return the item that a loop over the value binds."""
    if isinstance(value, Many):
        return value.item
    if isinstance(value, Seq) and value.items:
        first = value.items[0]
        return first if all(i == first for i in value.items) else UNKNOWN
    if isinstance(value, Data):
        return placed(value, "row")
    return UNKNOWN
