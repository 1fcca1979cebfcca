"""Parts of tensors read by rows, put together and compared with what numpy cuts out of the whole."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from checkpoint_cases import case
from grid import for_each
from releases import release
from safetensors.torch import save_file

from quantcore.checkpoints import open_checkpoint
from quantcore.checkpoints.comparison import CheckpointComparison, boxes
from quantcore.checkpoints.comparison.boxes import PairRecord, PairSums, pair_sums
from quantcore.checkpoints.comparison.orders import Heads, Orders, described, row_order
from quantcore.checkpoints.comparison.pairing import Pair
from quantcore.checkpoints.comparison.parts import Part, rows_of
from quantcore.checkpoints.findings import steps
from quantcore.checkpoints.findings.walk import Assembled
from quantcore.checkpoints.rows import TooLong
from quantcore.errors import QuantError
from tests.quantcore.checkpoints.comparison.test_names import gguf_release

SHAPE = (4, 6, 10)
PARTS = {
    "whole": Part("w"),
    "w[2]": Part("w", 2),
    "w rows 1–4": Part("w", None, (1, 3, 1)),
    "w[3] rows 2–4": Part("w", 3, (2, 5, 1)),
    "w[1] rows 1–5, every 2nd": Part("w", 1, (1, 6, 2)),
    "w[1] rows 0–5, every 3rd": Part("w", 1, (0, 6, 3)),
    "w[0] rows 1–5, every 4th": Part("w", 0, (1, 6, 4)),
    "w transposed": Part("w", transposed=True),
    "w[2] transposed": Part("w", 2, transposed=True),
    "w[1] columns 1–4 transposed": Part("w", 1, (1, 5, 1), True),
    "w[0] columns 0–4, every 2nd transposed": Part("w", 0, (0, 5, 2), True),
}


def cut(whole, part):
    """What a part is, by its words: an expert, then its last two axes swapped, then some rows, which are stored columns."""
    found = whole if part.index is None else whole[part.index]
    found = found.swapaxes(-1, -2) if part.transposed else found
    return found if part.rows is None else found[slice(*part.rows)]


@for_each("name", PARTS)
def test_a_part_is_what_its_words_say(name):
    part, whole = PARTS[name], np.arange(math.prod(SHAPE)).reshape(SHAPE)
    mine = cut(whole, part)
    if part.rows is None or part.index is not None:
        assert str(part) == name.replace("whole", "w")
    assert part.shape_of(SHAPE) == mine.shape
    assert part.is_whole is (name == "whole")
    for index in np.ndindex(mine.shape):
        assert whole[part.whole_index(index)] == mine[index]


def assert_rows(layout, part, whole):
    """All rows, and some of them, are those of the part."""
    rows, wanted = rows_of(layout, part), cut(whole, part)
    assert rows.count * rows.width == wanted.size
    wanted = wanted.reshape(rows.count, rows.width)
    for start, stop in ((0, rows.count), (rows.count // 3, rows.count // 2 + 1), (rows.count - 1, rows.count)):
        out = torch.full((stop - start, rows.width), torch.nan)
        rows.read(start, stop, out)
        assert np.array_equal(out.numpy(), wanted[start:stop]), (str(part), start, stop)


@for_each("name", PARTS)
def test_rows_of_a_plain_tensor(name, tmp_path):
    whole = np.random.default_rng(1).normal(size=SHAPE).astype(np.float32)
    part = PARTS[name]
    if part.transposed and part.index is None:  # of a matrix
        whole = whole[0].copy()
    opened = release(tmp_path, {"w": torch.tensor(whole)})
    if part.rows is not None and part.index is None:
        part = replace(part, rows=(1, 3, 1))
    assert_rows(opened.tensors["w"].layout, part, whole)


WHOLE = [Part("w"), Part("w", rows=(3, 8, 1)), Part("w", rows=(1, 8, 2)), Part("w", rows=(0, 7, 3)), Part("w", transposed=True)]


@for_each("name", ["gguf_legacy", "gptq_v2_4bit_g128_sym", "hqq_4bit_axis1", "ct_nvfp4", "bnb_nf4"])
@for_each("part", WHOLE, ids=str)
def test_rows_of_quantized_matrices(part, name):
    given = case(name)
    opened = open_checkpoint(given.release)
    weight = next(n for n, t in opened.tensors.items() if t.is_quantized and len(t.shape) == 2 and t.shape[0] >= 8)
    assert_rows(opened.tensors[weight].layout, replace(part, name=weight), given.expected[weight].astype(np.float32))


def test_rows_of_a_stack_of_codes():
    """gpt-oss: an expert, its rows, and its transpose."""
    given, name = case("gptoss_mxfp4"), "model.layers.0.mlp.experts.down_proj"
    layout, whole = open_checkpoint(given.release).tensors[name].layout, given.expected[name]
    for part in (Part(name), Part(name, 1), Part(name, 1, (1, 9, 2)), Part(name, 0, None, True), Part(name, 1, (0, 6, 1), True)):
        assert_rows(layout, part, whole)


def test_scalars_vectors_and_what_is_too_large(tmp_path, monkeypatch):
    weights = {"scalar": torch.tensor(3.5), "vector": torch.arange(5.0), "w": torch.arange(24.0).reshape(2, 3, 4)}
    tensors = release(tmp_path, weights).tensors
    assert_rows(tensors["scalar"].layout, Part("scalar"), np.array([3.5]))
    assert_rows(tensors["vector"].layout, Part("vector"), np.arange(5.0).reshape(5, 1))
    given = case("gptoss_mxfp4")
    name = "model.layers.0.mlp.experts.down_proj"
    layout = open_checkpoint(given.release).tensors[name].layout
    expert = math.prod(layout.shape[1:])
    for limit, part, is_too_long in (
        (expert, Part(name, 0), False), (expert - 1, Part(name, 0), True), (expert, Part(name), False),
        (expert - 1, Part(name), True), (expert, Part(name, 0, (0, 1, 1)), False),
    ):  # fmt: skip
        monkeypatch.setattr("quantcore.checkpoints.rows.MOST_ELEMENTS", limit)
        if is_too_long:
            with pytest.raises(TooLong, match=f"{expert:,}"):
                rows_of(layout, part)
        else:
            rows_of(layout, part)


@for_each(("start", "stop"), [(0, 12), (0, 1), (3, 9), (5, 6), (11, 12), (7, 12)])
def test_parts_that_are_put_together(start, stop, tmp_path):
    """Any rows of a fused weight: gate and up one after the other, or by turns, from experts, transposed or not."""
    generator = np.random.default_rng(2)
    gate, up = (generator.normal(size=(6, 8)).astype(np.float32) for _ in range(2))
    opened = release(tmp_path, {"gate": torch.tensor(gate), "up": torch.tensor(up), "t": torch.tensor(up.T.copy())})
    layouts = {name: t.layout for name, t in opened.tensors.items()}
    turns = np.empty((12, 8), np.float32)
    turns[::2], turns[1::2] = gate, up
    for whole, own in (
        (np.concatenate([gate, up]), [Part("f", None, (0, 6, 1)), Part("f", None, (6, 12, 1))]),
        (np.concatenate([up, gate]), [Part("f", None, (6, 12, 1)), Part("f", None, (0, 6, 1))]),
        (turns, [Part("f", None, (0, 12, 2)), Part("f", None, (1, 12, 2))]),
    ):
        for second in (Part("up"), Part("t", transposed=True)):
            pairs = tuple(Pair(a, b, (6, 8)) for a, b in zip((Part("gate"), second), own, strict=True))
            assembled = Assembled(opened.tensors["gate"], (12, 8), None, pairs, layouts)
            assert np.array_equal(assembled.read(slice(start, stop)).numpy(), whole[start:stop])
            assert assembled.name == "gate and 1 more"
    stack = np.stack([np.concatenate([gate, up])] * 12)
    stack[3:] += np.arange(9, dtype=np.float32)[:, None, None]
    experts = {f"e{i}": torch.tensor(stack[i]) for i in range(12)}
    opened = release(tmp_path / "stack", experts)
    layouts = {name: t.layout for name, t in opened.tensors.items()}
    pairs = tuple(Pair(Part(f"e{i}", None, r), Part("f", i, r), (6, 8)) for i in range(12) for r in ((0, 6, 1), (6, 12, 1)))
    assembled = Assembled(opened.tensors["e0"], stack.shape, None, pairs, layouts)
    assert np.array_equal(assembled.read(slice(start, stop)).numpy(), stack[start:stop])
    assert replace(assembled, pairs=pairs[:1]).name == "e0 rows 0–5"


def test_an_expert_that_the_stack_does_not_have(tmp_path):
    """Experts 0 and 1 belong to a stack of two, expert 2 does not."""
    stack = torch.randn(2, 8, 16, generator=torch.Generator().manual_seed(1))
    apart = {f"m.experts.{e}.down_proj": stack[e % 2].clone() for e in range(3)}
    for a, b in (({"m.experts.down_proj": stack}, apart), (apart, {"m.experts.down_proj": stack})):
        comparison = CheckpointComparison(release(tmp_path / f"x{len(a)}", a), release(tmp_path / f"y{len(b)}", b))
        parts_ = [p for pair in comparison.pairing.pairs for p in (pair.original, pair.other) if p.index is not None]
        assert sorted(p.index for p in parts_) == [0, 1]
        assert [u.name for u in comparison.pairing.unpaired] == ["m.experts.2.down_proj"]


def test_bits_of_both_sides(tmp_path):
    x = {"w": torch.randn(4, 10)}
    comparison = CheckpointComparison(release(tmp_path / "a", x), release(tmp_path / "b", {"w": x["w"].half()}))
    last = list(comparison.steps())[-1]
    (result,) = comparison.results(last.state)
    assert (result.bits_per_weight, result.num_bytes) == ((32, 16), (160, 80))
    assert (result.as_row()["bits_per_weight"], result.as_row()["original_bits_per_weight"]) == (16, 32)


def test_progress_of_a_comparison(tmp_path, monkeypatch):
    """In proportion to the boxes of a pair; each pair ends with its bytes."""
    monkeypatch.setattr(boxes, "CHUNK", 10)
    x = {"a": torch.randn(4, 10), "b": torch.randn(3, 10)}
    comparison = CheckpointComparison(release(tmp_path / "x", x), release(tmp_path / "y", x))
    size = 2 * 4 * 10  # bytes of a row on both sides
    assert [s.done for s in comparison.steps()] == [size * n for n in range(8)]
    assert comparison.total == 7 * size
    found = steps(release(tmp_path / "z", x), release(tmp_path / "x", x))
    done = [s.done for s in found]
    assert done[-1] == 7 * 40
    assert done == sorted(done)


def test_rows_of_heads():
    """Numbers of heads per layer, of one layer for all, and of names that have none."""
    heads = Heads((8, 16), (2, 4))
    wanted = {
        "model.layers.1.self_attn.q_proj.weight": 16, "model.layers.0.self_attn.k_proj.weight": 2,
        "model.layers.2.self_attn.q_proj.weight": 0, "blk.1.attn_k.weight": 4, "blk.0.attn_q.bias": 8,
        "model.layers.0.self_attn.v_proj.weight": 0, "blk.0.attn_output.weight": 0,
    }  # fmt: skip
    assert {name: heads.of_weight(name) for name in wanted} == wanted
    assert Heads((8,), (2,)).of_weight("blk.40.attn_k.weight") == 2
    assert Heads().of_weight("blk.0.attn_k.weight") == 0

    class Of:
        def __init__(self, **config):
            self.config = {k.replace("__", "."): v for k, v in config.items()}

    for releases, queries, keys in (
        ([Of(num_attention_heads=8)], (8,), (8,)),
        ([Of(num_attention_heads=8, num_key_value_heads=2)], (8,), (2,)),
        ([Of(text_config={"num_attention_heads": 4, "num_key_value_heads": 1})], (4,), (1,)),
        ([Of(text_config=3), Of(num_attention_heads=6)], (6,), (6,)),
        ([Of(num_attention_heads=0), Of(num_attention_heads=6)], (6,), (6,)),
        ([Of(num_attention_heads=True)], (), ()),
        ([Of(num_attention_heads=2**20)], (), ()),
        ([Of(num_attention_heads=2**20 - 1)], (2**20 - 1,), (2**20 - 1,)),
        ([Of(general__architecture="llama", llama__attention__head_count=[8, 4], llama__attention__head_count_kv=[2, 1])], (8, 4), (2, 1)),
        ([Of(general__architecture="llama", llama__attention__head_count=8)], (8,), (8,)),
        ([Of()], (), ()),
    ):  # fmt: skip
        found = Heads.of(*releases)
        assert (found.queries, found.keys) == (queries, keys)


def test_orders_that_may_be():
    for shape, heads, has_eights, has_heads, multiple in (
        ((16, 4), 2, True, True, 8), ((24, 4), 2, True, True, 24), ((12, 4), 2, False, True, 6), ((12, 4), 4, False, False, 1),
        ((16,), 2, False, True, 8), ((16, 2, 4), 2, False, False, 1), ((16, 4), 0, True, False, 8), ((8, 4), 4, True, True, 8),
        ((10, 4), 1, False, True, 10),
    ):  # fmt: skip
        orders = Orders(shape, heads)
        assert (orders.has_heads, orders.multiple) == (has_heads, multiple), shape
        ones = ("plus one", "minus one") if len(shape) == 1 else ()
        eights = ("rows 0 4 1 5 2 6 3 7", "rows 0 2 4 6 1 3 5 7") if has_eights else ()
        assert tuple(orders.by_name) == ("as stored", *ones, *eights, *(("halves", "pairs") if has_heads else ()))
    x = torch.arange(24.0)[:, None]
    awq = [0, 4, 1, 5, 2, 6, 3, 7]
    pairs = np.arange(24).reshape(2, 2, 6).swapaxes(1, 2).reshape(-1)  # llama.cpp's order of two heads
    orders = {**Orders((24, 1), 2).by_name, **Orders((24,)).by_name}
    for name, file in (
        ("pairs", pairs), ("halves", pairs.argsort()), ("rows 0 4 1 5 2 6 3 7", [8 * g + i for g in range(3) for i in awq]),
        ("rows 0 2 4 6 1 3 5 7", [8 * g + awq.index(i) for g in range(3) for i in range(8)]),
    ):  # fmt: skip
        file = torch.tensor(np.asarray(file))
        assert torch.equal(orders[name].undo(x[file], slice(0, 24)), x)
        for row in range(24):
            assert int(file[orders[name].source(row)]) == row
    assert orders["as stored"].source(5) == orders["plus one"].source(5) == 5
    assert torch.equal(orders["plus one"].undo(x + 1, slice(0, 24)), x)
    assert torch.equal(orders["minus one"].undo(x - 1, slice(0, 24)), x)
    assert described("plus one") == "plus 1"
    assert "codes and zero points" in described("codes 0 4 1 5 2 6 3 7")
    assert "codes" not in described("rows 0 4 1 5 2 6 3 7")


def test_single_rows_of_heads(tmp_path):
    """From one head, which row of the original each is; nothing where they are as stored, without an error or with one, or of another weight."""
    name, x = "model.layers.0.self_attn.q_proj.weight", torch.randn(24, 16, generator=torch.Generator().manual_seed(2))
    file = np.arange(24).reshape(2, 2, 6).swapaxes(1, 2).reshape(-1)
    original = release(tmp_path / "a", {name: x}, {"num_attention_heads": 2})
    noise = 0.1 * torch.randn(24, 16, generator=torch.Generator().manual_seed(3))
    for order, rows in (("pairs", file), ("halves", file.argsort())):
        other = gguf_release(tmp_path / f"{order}.gguf", {"blk.0.attn_q.weight": (x + noise)[torch.tensor(rows)]})
        found = row_order(original, other, name, "blk.0.attn_q.weight")
        assert found.name == order
        assert [found.original(row) for row in range(24)] == rows.tolist()
        for start, stop in ((0, 24), (5, 14), (12, 13), (11, 12)):
            (low, high), inside = found.originals(start, stop)
            assert (low, high) == (start // 12 * 12, -(-stop // 12) * 12)
            assert (low + inside).tolist() == rows[start:stop].tolist()
    for stored in (x + noise, x, torch.randn(24, 16, generator=torch.Generator().manual_seed(9))):
        other = gguf_release(tmp_path / "none.gguf", {"blk.0.attn_q.weight": stored})
        assert row_order(original, other, name, "blk.0.attn_q.weight") is None


def test_the_order_of_a_record():
    """The one with the smallest error; as stored if none is better."""
    def sums(error):
        return PairSums(ee=error)

    assert PairRecord({"pairs": sums(1.0), "as stored": sums(1.0)}).order == "as stored"
    assert PairRecord({"as stored": sums(2.0), "pairs": sums(1.0)}).order == "pairs"
    assert PairRecord({}).order == "as stored"


@for_each("shape", [(1, 256), (1, 257), (1, 700), (3, 256), (3, 300), (300, 300), (2, 70_000)])
def test_sums_of_blocks(shape):
    """Blocks of 256 columns of a line, of a vector as of a matrix; the flat index counts from the start given."""
    generator = np.random.default_rng(4)
    x = generator.normal(size=shape).astype(np.float32)
    y = (x + 0.1 * generator.normal(size=shape)).astype(np.float32)
    found = pair_sums(torch.tensor(x), torch.tensor(y), 1000)
    e = x.astype(np.float64) - y
    assert (found.count, found.different) == (x.size, int((x != y).sum()))
    for got, wanted in ((found.xx, x.astype(float) ** 2), (found.yy, y.astype(float) ** 2), (found.xy, x.astype(float) * y), (found.ee, e**2)):
        assert got == pytest.approx(wanted.sum(), rel=1e-12)
    assert (found.worst, found.worst_at) == (np.abs(e).max(), 1000 + int(np.abs(e).argmax()))
    blocks = [
        ((e[r, c : c + 256] ** 2).sum(), (x[r, c : c + 256].astype(float) ** 2).sum(), 1000 + r * shape[1] + c, min(256, shape[1] - c))
        for r in range(shape[0]) for c in range(0, shape[1], 256)
    ]  # fmt: skip
    blocks.sort(key=lambda b: -b[0])
    assert len(found.blocks) == min(5, len(blocks))
    for got, wanted in zip(found.blocks, blocks, strict=False):
        assert got == pytest.approx(wanted, rel=1e-12)
    assert found.relative == pytest.approx(np.sqrt((e**2).sum() / (x.astype(float) ** 2).sum()))
    assert PairSums.of_list(found.as_list()) == found


def test_ties_go_to_the_first_block():
    x = torch.zeros(8, 256)
    found = pair_sums(x, x + 1, 512)
    assert [block[2] for block in found.blocks] == [512 + 256 * i for i in range(5)]
    later = pair_sums(x, x + 1, 0)
    found.merge(later)
    assert [block[2] for block in found.blocks] == [0, 256, 512, 512, 768]


def test_relative_errors_of_nothing():
    assert PairSums().relative == 0
    assert PairSums(ee=1.0).relative == math.inf


def test_an_error_that_can_not_be_read_is_said_once(tmp_path):
    """On several threads too: of a pair whose bytes are gone, one result."""
    x = {f"w{i}": torch.randn(40, 10) for i in range(3)}
    original, other = release(tmp_path / "a", x), release(tmp_path / "b", x)
    file = tmp_path / "b" / "model.safetensors"
    for threads in (1, 3):
        comparison = CheckpointComparison(original, other)
        iterator = comparison.steps(None, threads)
        next(iterator)
        file.write_bytes(file.read_bytes()[:-200])
        try:
            last = list(iterator)[-1]
        except QuantError:
            continue
        assert len(last.state.finished) == 3
        save_file(x, file)


def test_threads_are_those_asked_for(tmp_path, monkeypatch):
    monkeypatch.setattr(boxes, "CHUNK", 10)
    x = {"a": torch.randn(30, 10)}
    comparison = CheckpointComparison(release(tmp_path / "x", x), release(tmp_path / "y", x))
    records = [list(comparison.steps(None, threads))[-1].state.as_dict() for threads in (0, 1, 2, 5)]
    assert all(record == records[0] for record in records)
