"""Groups of the flattened tensor equal PerGroup on it, also across row ends, wherever results are used."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
import torch
from grid import for_each
from parts import some_rows

import quantcore as qc
from quantcore.analysis.views import View, box_of_blocks, map_data
from quantcore.granularity.kinds import as_boxes, cells_of, grid_shape

SHAPES = [(), (7,), (5, 7), (6, 8), (3, 4, 5), (1, 1, 9), (2, 64)]
SIZES = [1, 3, 4, 5, 8, 16, 20, 64, 1000]


def pair(shape, size, text="int4 asymmetric"):
    """The result with flat groups, and that of the flattened tensor in groups."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(size)) * 3
    scheme = dataclasses.replace(qc.Scheme.parse(text), granularity=qc.PerFlatGroup(size))
    flat = dataclasses.replace(scheme, granularity=qc.PerGroup(min(size, x.numel())))
    return qc.apply(x, scheme), qc.apply(x.reshape(-1), flat)


each = for_each(("shape", "size"), some_rows(((shape, size) for shape in SHAPES for size in SIZES), 2))


@each
def test_numbers_are_those_of_the_flattened_tensor(shape, size):
    result, flat = pair(shape, size)
    assert result.codes.shape == shape
    assert torch.equal(result.codes.reshape(-1), flat.codes)
    assert torch.equal(result.scale, flat.scale)
    assert torch.equal(result.zero_point, flat.zero_point)
    assert torch.equal(result.dequantized.reshape(-1), flat.dequantized)
    assert result.scale.shape == (math.ceil(max(1, math.prod(shape)) / size),)
    ours, theirs = qc.report(result), qc.report(flat)
    assert (ours.mse, ours.sqnr_db, ours.clipped) == (theirs.mse, theirs.sqnr_db, theirs.clipped)
    if shape:
        (place,) = theirs.max_abs_error_index
        assert np.ravel_multi_index(ours.max_abs_error_index, shape) == place
    assert torch.equal(qc.block_errors(result), qc.block_errors(flat))
    assert qc.storage(result.scheme, shape) == qc.storage(flat.scheme, (max(1, math.prod(shape)),))


@for_each(("shape", "size"), some_rows(itertools.product(SHAPES, SIZES), 5))
def test_trace_and_maps_find_the_right_scale(shape, size):
    result, flat = pair(shape, size)
    each_scale = cells_of(flat.scale, flat.blocked_shape, flat.block).reshape(shape)
    for index in list(np.ndindex(shape))[:: max(1, math.prod(shape) // 11)]:
        trace = qc.trace(result, index)
        assert trace.scale == each_scale[index]
        assert trace.code == result.codes[index]
        assert trace.error == result.error[index]
    if len(shape) == 2:
        data = map_data(result, View())
        assert np.array_equal(data.largest.scale, each_scale.numpy())
        assert np.array_equal(data.map("error"), result.error.numpy())


def test_runs_that_are_boxes_are_drawn_as_boxes():
    assert box_of_blocks(pair((6, 8), 4)[0]) == (1, 4)
    assert box_of_blocks(pair((6, 8), 16)[0]) == (2, 8)
    assert box_of_blocks(pair((6, 8), 20)[0]) == (1, 1)
    assert box_of_blocks(pair((3, 4, 5), 20)[0]) == (1, 4, 5)


@for_each("shape", [*SHAPES[:-1], (2, 16), pytest.param(SHAPES[-1], marks=pytest.mark.slow), (4, 6), (3, 2, 2), (2, 1, 6), (2, 2, 3, 2)])
def test_runs_are_boxes_wherever_some_box_fits(shape):
    """Compared with all block shapes: a shape is used if some has blocks with the same elements in the same order."""
    n = math.prod(shape)
    for size in range(1, n + 2):
        runs = (torch.arange(n) // size).reshape(shape)
        numbers = torch.arange(-(-n // size))
        parameters, block = as_boxes([numbers, -numbers], size, shape)
        assert torch.equal(cells_of(parameters[0], shape, block), runs)
        assert torch.equal(cells_of(parameters[1], shape, block), -runs)
        boxes = [
            candidate
            for candidate in itertools.product(*(range(1, n + 1) for n in shape))
            if math.prod(grid_shape(shape, candidate)) == len(numbers)
            and torch.equal(cells_of(numbers.reshape(grid_shape(shape, candidate)), shape, candidate), runs)
        ]
        assert (block in boxes) if boxes else block == (1,) * len(shape)


def test_text_and_refusal():
    scheme = qc.Scheme.parse("int4 per_flat_group(64)")
    assert scheme.granularity == qc.PerFlatGroup(64)
    assert str(scheme) == "int4 symmetric per_flat_group(64) min_max textbook"
    with pytest.raises(qc.QuantError, match="group size must be 1 or more"):
        qc.Scheme.parse("int4 per_flat_group(0)")
    for name in (
        "onnxruntime",
        "torch.fake_quantize",
        "quanto",
        "brevitas",
        "torchao",
        "compressed_tensors",
    ):
        assert qc.unsupported_reason(qc.Scheme.parse(f"int8 per_flat_group(3) {name}"), (4, 8))


@for_each("size", [3, 8, 20])
def test_scripts_hold(size):
    result, _ = pair((6, 8), size, "uint4 asymmetric")
    code = "import torch\n\nx = torch.tensor(" + repr(result.x.tolist()) + ")"
    for script in (qc.snippets.quantcore_script, qc.snippets.torch_script):
        exec(script(code, result), {})


def test_figures_take_them():
    result, _ = pair((6, 8), 20)
    assert qc.figures.maps(result).data
    assert qc.figures.scales(result).data
    assert qc.figures.distribution(result, block=(1,)).data


@pytest.mark.slow  # importing hqq takes 3 s
def test_hqq_groups_over_the_ends_of_rows():
    hqq = pytest.importorskip("hqq.core.quantize").Quantizer
    x = torch.randn(6, 10, generator=torch.Generator().manual_seed(2))
    codes, meta = hqq.quantize(x, nbits=4, group_size=4, axis=1, optimize=False, bitpack=False, device="cpu")
    result = qc.apply(x, qc.Scheme.parse("uint4 asymmetric per_flat_group(4) hqq"))
    assert torch.equal(result.codes.reshape(-1, 4).float(), codes)
    assert torch.equal(result.scale, meta["scale"].reshape(-1))
    assert torch.equal(result.zero_point, meta["zero"].reshape(-1))
    with pytest.raises(qc.QuantError, match="divide"):
        qc.apply(x, qc.Scheme.parse("uint4 asymmetric per_flat_group(7) hqq"))


@for_each("text", ["int4 asymmetric", "e4m3fn"])
def test_out_that_cannot_be_seen_flat_is_refused_and_left_alone(text):
    result, _ = pair((6, 8), 5, text)
    scheme, parameters = result.scheme, (result.scale, result.params.zero_point)
    codes = torch.zeros(8, 6, dtype=result.codes.dtype).T
    x_hat = torch.zeros(8, 6).T
    with pytest.raises(qc.QuantError, match="not contiguous"):
        qc.quantize(result.x, *parameters, scheme, out=codes)
    with pytest.raises(qc.QuantError, match="not contiguous"):
        qc.dequantize(result.codes, *parameters, scheme, out=x_hat)
    assert not codes.any()
    assert not x_hat.any()


def test_out_is_written_where_groups_cross_rows_or_not():
    result, _ = pair((6, 8), 5)
    out = torch.zeros(6, 8, dtype=result.codes.dtype)
    assert qc.quantize(result.x, result.scale, result.zero_point, result.scheme, out=out) is out
    assert torch.equal(out, result.codes)
    by_rows = qc.apply(result.x, qc.Scheme.parse("int4 asymmetric per_group(4)"))
    turned = torch.zeros(8, 6, dtype=by_rows.codes.dtype).T  # blocks that are boxes of x are written directly
    qc.quantize(by_rows.x, by_rows.scale, by_rows.zero_point, by_rows.scheme, out=turned)
    assert torch.equal(turned, by_rows.codes)
