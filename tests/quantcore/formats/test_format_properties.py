"""Properties of every small float and codebook for any tensor: x̂ is on the grid, nearest to x, and stable.

The tensors include sizes that groups do not divide, zeros, constants, denormals and the ends of float32.
"""

import itertools
import warnings

import numpy as np
import torch
from grid import for_each
from parts import some_rows

import quantcore as qc

FORMATS = {**{n: f for n, f in qc.FLOATS.items() if n != "e8m0"}, **qc.CODEBOOKS}
FORMATS["dynamic8"] = qc.parse_format("dynamic8(tie=lower)")  # its own rule does not take the nearest
FORMATS["float(3,2)"] = qc.parse_format("float(3,2)")
FORMATS["unsorted"] = qc.CodebookFormat((0.5, -1.0, 0.0, 0.5, 2.0))
RNG = np.random.default_rng(11)
TENSORS = {
    "normal": RNG.normal(size=(5, 37)),
    "outlier": np.where(RNG.random((3, 40)) < 0.02, 1e4, RNG.normal(size=(3, 40))),
    "one": np.array(0.7),
    "odd": RNG.normal(size=(1, 3, 7)),
    "zeros": np.zeros((4, 9)),
    "constant": np.full((4, 9), -2.75),
    "zero row": np.vstack([np.zeros(9), RNG.normal(size=9)]),
    "denormals": RNG.integers(-9, 9, (4, 9)) * 1e-44,
    "ends": np.where(RNG.random((4, 9)) < 0.5, 3e38, -3e38),
}
GRANULARITIES = ["per_tensor", "per_channel", "per_group(4)", "per_flat_group(5)"]


def values_of(fmt):
    """The finite values that the format's decoder gives, ascending, float64."""
    table = fmt.decode(torch.arange(fmt.available)).double()
    return torch.unique(table[table.isfinite()])


@for_each(
    ("name", "tensor", "granularity"), some_rows(itertools.product(FORMATS, TENSORS, GRANULARITIES), 37)
)
def test_on_the_grid_nearest_and_stable(name, tensor, granularity):
    fmt = FORMATS[name]
    x = torch.tensor(TENSORS[tensor], dtype=torch.float32)
    scheme = qc.Scheme(
        fmt, granularity=qc.Scheme.parse(granularity).granularity if x.dim() else qc.PerTensor()
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = qc.apply(x, scheme)
        again = qc.quantize(result.dequantized, result.scale, result.zero_point or 0, scheme)
    scale = spread(result)
    held = fmt.decode(result.codes.reshape(-1)).double()
    x_hat = result.dequantized.reshape(-1)
    # on the grid: a value of the format times the block's scale, rounded once
    assert torch.equal(x_hat, (held * scale).float())
    # nearest: no other value of the format is nearer to x / s, up to the rounding of that quotient
    y = x.reshape(-1).double() / scale
    table = values_of(fmt)
    nearest = (y[:, None] - table).abs().amin(1)
    step = torch.tensor(np.spacing(y.abs().float().numpy())).double()
    assert bool(((y - held).abs() <= nearest + step).all())
    # stable: quantizing x̂ again gives the same values, unless the product was rounded
    same = fmt.decode(again.reshape(-1)).double() == held
    exact = (held * scale).float().double() == held * scale
    assert bool((same | ~exact).all())


def spread(result):
    """The scale of every element, flattened, float64."""
    scale = result.scale.double()
    shape = result.blocked_shape
    for axis, (blocks, size) in enumerate(zip(scale.shape, result.block, strict=True)):
        index = torch.arange(shape[axis]) // size
        assert int(index[-1]) < blocks
        scale = scale.index_select(axis, index)
    return scale.reshape(-1)


@for_each("name", FORMATS)
def test_error_bound_from_the_format_s_own_spacing(name):
    """Within the format's range, no error exceeds half of the wider gap next to the chosen value."""
    fmt = FORMATS[name]
    table = values_of(fmt)
    gaps = torch.diff(table)
    beside = torch.maximum(torch.cat([gaps[:1], gaps]), torch.cat([gaps, gaps[-1:]]))
    x = torch.tensor(RNG.normal(size=(64, 64)), dtype=torch.float32)
    result = qc.apply(x, qc.Scheme(fmt, granularity=qc.PerGroup(32)))
    y = x.reshape(-1).double() / spread(result)
    inside = (y >= table[0]) & (y <= table[-1])
    taken = torch.searchsorted(table, fmt.decode(result.codes.reshape(-1)).double())
    error = (y - table[taken]).abs()
    slack = torch.tensor(np.spacing(y.abs().float().numpy())).double()
    assert bool((error <= beside[taken] / 2 + slack)[inside].all())
    assert inside.float().mean() > 0.5


@for_each("name", FORMATS)
def test_every_code_comes_back(name):
    """Decoding and encoding gives the same code, or one with the same value."""
    fmt = FORMATS[name]
    codes = torch.arange(fmt.available)
    values = fmt.decode(codes)
    finite = values.isfinite()
    again = fmt.encode(values[finite])
    assert torch.equal(fmt.decode(again), values[finite])
