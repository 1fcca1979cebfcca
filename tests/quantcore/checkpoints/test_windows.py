"""Windows: some rows of a weight as a result, bit for bit equal to the weight's, read from these rows' bytes only."""

import numpy as np
import pytest
import torch
from checkpoint_cases import case, cases, sound
from grid import for_each
from parts import in_parts, some
from releases import release

import quantcore as qc
from quantcore.analysis import View, in_tensor, joined, map_data, step_of, value_data
from quantcore.checkpoints import Totals, facts, listing, open_checkpoint, plane_shape
from quantcore.checkpoints.quantized import has_codes
from tests.quantcore.checkpoints.test_lazy import _packed

Q = "model.layers.0.self_attn.q_proj.weight"


def equal(a, b):
    return torch.equal(torch.nan_to_num(a.float(), nan=7.0), torch.nan_to_num(b.float(), nan=7.0))


def odd_spans(height):
    return [(height // 3, height // 2 + 1), (0, 1), (height - 1, height), (0, height)]


def planes(shape):
    """The indices of the first and last plane of a stack."""
    return {tuple(0 for _ in shape[:-2]), tuple(n - 1 for n in shape[:-2])}


@in_parts(2)
@for_each("given", some(sound(), 9), ids=str)
def test_windows_are_those_of_the_whole(given, part):
    for tensor in open_checkpoint(given.release).tensors.values():
        height, width = plane_shape(tensor.shape)
        whole = tensor.quantized() if has_codes(tensor.layout) else None
        values = (tensor.read() if whole is None else whole.x).reshape(*tensor.shape[:-2], height, width)
        for at in planes(tensor.shape):
            for start, stop in part(odd_spans(height)):
                window = tensor.window((start, stop), at)
                assert equal(window.values, values[at][start:stop]), (tensor, at, start, stop)
                assert window.row == start
                if whole is None:
                    assert window.result is None
                    continue
                codes = whole.codes.reshape(values.shape)[at][start:stop]
                assert torch.equal(window.result.codes, codes), (tensor, at, start, stop)
                assert equal(window.result.dequantized, window.values), (tensor, at, start, stop)


def test_every_kind_of_blocks_is_among_them():
    """The golden cases include boxes, runs across row ends, groups by an index, stacks, and tensors without codes."""
    seen = set()
    for given in sound():
        for tensor in open_checkpoint(given.release).tensors.values():
            index = tensor.layout.group_index() if has_codes(tensor.layout) else None
            seen.add(
                "index" if index is not None and index.dim() == 1 else "elements" if index is not None else ""
            )
            seen.add("stack" if len(tensor.shape) > 2 else "matrix")
            if has_codes(tensor.layout):
                blocks = tensor.layout.blocks
                seen.add("runs" if blocks.blocked_shape != blocks.shape else f"boxes {blocks.block[0] > 1}")
            else:
                seen.add("values")
    assert seen >= {"index", "elements", "stack", "matrix", "runs", "boxes True", "boxes False", "values"}


def test_only_the_rows_are_read(tmp_path):
    checkpoint = _packed(4096, 256, tmp_path)
    tensor = checkpoint.tensors["m.weight"]
    _ = tensor.shape
    before = checkpoint.counter.total
    tensor.window((1001, 1009))
    assert checkpoint.counter.total - before <= 8 * (256 // 2 + 2 * 4)


def test_a_stack_of_plain_values_is_read_by_rows(tmp_path):
    checkpoint = release(tmp_path, {"experts": torch.arange(6 * 64 * 32, dtype=torch.float32).reshape(6, 64, 32)})
    before = checkpoint.counter.total
    window = checkpoint.tensors["experts"].window((10, 12), (4,))
    assert torch.equal(
        window.values, torch.arange((4 * 64 + 10) * 32, (4 * 64 + 12) * 32).reshape(2, 32).float()
    )
    assert checkpoint.counter.total - before == 2 * 32 * 4


@for_each("rows", [(5, 5), (-1, 3), (0, 33), (7, 2)])
def test_rows_that_are_not_there_are_refused(rows):
    tensor = open_checkpoint(case("gptq_v1_4bit_g32_asym_desc_act").release).tensors[Q]
    with pytest.raises(qc.QuantError, match="not within 0:32"):
        tensor.window(rows)


def test_a_plane_that_is_not_there_is_refused():
    stack = open_checkpoint(case("gptoss_mxfp4").release).tensors["model.layers.0.mlp.experts.down_proj"]
    for at in ((), (2,), (-1,), (0, 0)):
        with pytest.raises(qc.QuantError, match="no plane"):
            stack.window((0, 1), at)


def test_an_original_of_another_shape_is_refused():
    one, other = (open_checkpoint(case(name).release).tensors for name in ("ct_int8_w8a8", "gptoss_mxfp4"))
    with pytest.raises(qc.QuantError, match="give the weight that it was quantized from"):
        next(iter(one.values())).window((0, 1), (), next(iter(other.values())))


def _maps_by_parts(tensor, x, view, rows_at_once):
    """The maps of consecutive windows, joined, with ``x`` as the original."""
    height, width = plane_shape(tensor.shape)
    step = step_of((0, height), view.columns or (0, width))
    parts = []
    for start in range(0, height, rows_at_once * step[0]):
        stop = min(start + rows_at_once * step[0], height)
        window = tensor.window((start, stop))
        result = qc.Quantized(x[start:stop], window.result.scheme, window.result.codes, window.result.params)
        parts.append(
            in_tensor(map_data(result, View(columns=view.columns), step=step), start, window.block, True)
        )
    return joined(parts)


@for_each(
    "name", ["ct_fp8_block", "bnb_nf4", "gptq_v1_4bit_g32_asym_desc_act", "gguf_k", "hqq_4bit_axis0"]
)
def test_joined_maps_are_those_of_the_whole(name, monkeypatch):
    monkeypatch.setattr("quantcore.analysis.views.MAX_CELLS", 7)
    tensors = open_checkpoint(case(name).release).tensors.values()
    tensor = next(t for t in tensors if has_codes(t.layout) and len(t.shape) == 2 and t.shape[0] > 7)
    x = tensor.quantized().x + torch.linspace(-0.3, 0.3, tensor.shape[1])
    for view in (View(), View(columns=(3, 17))):
        whole, parts = map_data(tensor.quantized(x), view), _maps_by_parts(tensor, x, view, 5)
        assert (parts.rows, parts.columns, parts.step) == (whole.rows, whole.columns, whole.step)
        for cells in ("largest", "worst"):
            for array in ("x", "codes", "dequantized", "error", "scale", "zero_point", "row", "column"):
                got, wanted = (getattr(getattr(data, cells), array) for data in (parts, whole))
                assert np.array_equal(got, wanted), (cells, array)


def test_values_have_one_map_and_with_an_original_three():
    values = torch.linspace(-1, 1, 40).reshape(4, 10)
    alone = value_data(values, None, row=100, columns=(2, 5))
    assert alone.names == ("dequantized",)
    assert (alone.rows, alone.columns) == ((100, 104), (2, 5))
    assert np.array_equal(alone.map("dequantized"), values[:, 2:5].numpy())
    assert alone.largest.row[0, 0] == 100
    both = value_data(values, values + 0.5)
    assert both.names == ("x", "dequantized", "error")
    assert np.allclose(both.map("error"), 0.5)


def test_reduced_values_show_the_largest_and_the_worst():
    values, original = torch.zeros(512, 4), torch.zeros(512, 4)
    values[101, 2], original[100, 3] = -3.0, 0.25
    values[100, 3] = 0.25
    original[101, 2] = -2.5
    data = value_data(values, original)
    assert data.step == (2, 1)
    assert data.map("error").max() == 0.5
    assert data.map("x").min() == -2.5
    alone = value_data(values, None)
    assert alone.map("dequantized").min() == -3.0
    assert "largest |value|" in alone.legend


@for_each("given", cases(""), ids=str)
def test_every_checkpoint_that_opens_is_listed(given):
    try:
        checkpoint = open_checkpoint(given.release)
    except qc.QuantError:
        return
    entries = listing(checkpoint.tensors)
    assert [e.name for e in entries] == list(checkpoint.tensors)
    totals = Totals.of(entries)
    known = [t for e, t in zip(entries, checkpoint.tensors.values(), strict=True) if not e.problem]
    assert totals.num_bytes == sum(t.num_bytes for t in known)
    assert all((e.bits != e.bits) == bool(e.problem or not e.elements) for e in entries)


def test_facts_of_a_config_and_of_gguf_metadata():
    config = {"architectures": ["X<b>\n"], "num_hidden_layers": 32, "hidden_size": "wide", "vocab_size": True}
    assert facts(config) == ["X<b>\ufffd", "32 layers"]
    gguf = {"general.architecture": "llama", "llama.block_count": 2, "llama.embedding_length": 4096}
    assert facts(gguf) == ["llama", "2 layers", "hidden size 4,096"]
    assert facts({"architectures": [], "text_config": {"num_hidden_layers": 7}}) == ["7 layers"]
    assert facts({"num_hidden_layers": 3, "text_config": [1]}) == ["3 layers"]
