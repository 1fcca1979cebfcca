"""Comparing two checkpoints: metrics against numpy in float64, row orders, stops, threads, corruption."""

import json
import math
import re
import shutil

import numpy as np
import pytest
import torch
from checkpoint_cases import Case, case, sound
from grid import for_each
from parts import in_parts, some
from releases import release
from safetensors.torch import save_file

import quantcore as qc
from quantcore.checkpoints import open_checkpoint
from quantcore.checkpoints.comparison import CheckpointComparison, ComparisonState, boxes, summary
from quantcore.checkpoints.comparison.boxes import WORST
from tests.quantcore.checkpoints.comparison.test_names import gguf_release


def compare(original, other, threads=1, state=None):
    comparison = CheckpointComparison(original, other)
    for step in comparison.steps(state, threads):
        assert 0 <= step.done <= step.total
    assert step.done == step.total
    return comparison, step.state, {r.name: r for r in comparison.results(step.state)}


def reference(x, y):
    """The metrics by their definitions, over elements that are finite in both."""
    a, b = np.asarray(x, np.float64), np.asarray(y, np.float64)
    good = np.isfinite(a) & np.isfinite(b)
    a, b = np.where(good, a, 0.0), np.where(good, b, 0.0)
    error = a - b
    sse = (error**2).sum()
    return {
        "mse": sse / good.sum(),
        "sqnr_db": 10 * np.log10((a**2).sum() / sse) if sse else np.inf,
        "cosine": (a * b).sum() / np.sqrt((a**2).sum() * (b**2).sum()),
        "max_abs_error": np.abs(error).max(),
        "at": tuple(int(i) for i in np.unravel_index(np.abs(error).argmax(), error.shape)),
    }


def check(result, x, y):
    wanted = reference(x, y)
    for name in ("mse", "sqnr_db", "cosine", "max_abs_error"):
        # float64 sums of at most 2^20 squares of float32 err far less
        assert getattr(result, name) == pytest.approx(wanted[name], rel=1e-12), name
    assert result.max_abs_error_index == wanted["at"]
    bits = [np.ascontiguousarray(v, np.float32).view(np.int32) for v in (x, y)]
    assert result.different == int((bits[0] != bits[1]).sum())
    assert result.equal == (result.different == 0)


def noisy(values, seed=5, error=0.05):
    noise = np.random.default_rng(seed).normal(size=values.shape).astype(np.float32)
    return (values + error * values.std() * noise).astype(np.float32)


def original_of(given: Case, folder):
    """The values of a golden checkpoint plus an error, and a plain checkpoint that contains them."""
    values = {n: noisy(given.expected[n].astype(np.float32)) for n in given.record["tensors"]}
    return values, release(folder, {n: torch.tensor(v) for n, v in values.items()})


@for_each("given", some(sound(), 23), ids=str)
def test_metrics_of_every_format(given, tmp_path):
    values, original = original_of(given, tmp_path / "a")
    other = open_checkpoint(given.release)
    comparison, _, results = compare(original, other)
    assert results.keys() == values.keys()
    assert all("is an activation scale" in u.reason for u in comparison.pairing.unpaired)
    for name, result in results.items():
        check(result, values[name], given.expected[name])
        stored = other.tensors[name]
        assert result.bits_per_weight[1] == 8 * stored.num_bytes / math.prod(stored.shape)


def test_worst_blocks(tmp_path):
    """Runs of 256 columns (shorter at the end of a row) with the largest squared errors, and their positions."""
    x = np.random.default_rng(0).normal(size=(40, 600)).astype(np.float32)
    y = noisy(x)
    y[7, 300:310] += 3
    y[39, 590] += 12
    _, _, results = compare(
        release(tmp_path / "a", {"w": torch.tensor(x)}), release(tmp_path / "b", {"w": torch.tensor(y)})
    )
    errors = {}
    for row in range(40):
        for column in (0, 256, 512):
            part = np.s_[row, column : column + 256]
            errors[row, column] = (
                ((x[part].astype(np.float64) - y[part]) ** 2).mean(),
                reference(x[part], y[part]),
            )
    sse = {k: v[0] * min(256, 600 - k[1]) for k, v in errors.items()}
    wanted = sorted(sse, key=lambda k: -sse[k])[:WORST]
    found = results["w"].worst
    assert [block.index for block in found] == wanted
    assert found[0].index == (39, 512)
    assert found[0].columns == 88
    for block in found:
        assert block.mse == pytest.approx(errors[block.index][0], rel=1e-12)
        assert block.sqnr_db == pytest.approx(errors[block.index][1]["sqnr_db"], rel=1e-12)
        assert block.other_index == block.original_index == block.index


SHAPES = [
    (),
    (1,),
    (255,),
    (257,),
    (1 << 20,),
    (3, 1),
    (5, 255),
    (3, 70_001),
    (600, 1000),
    (2, 3, 300),
    (0, 5),
    (5, 0),
    (0,),
    (2, 0, 3),
]


@for_each("shape", [pytest.param(shape, marks=[pytest.mark.slow] * (math.prod(shape) > 500_000)) for shape in SHAPES])
def test_any_shape(shape, tmp_path):
    x = np.asarray(np.random.default_rng(0).normal(size=shape), np.float32)
    y = np.asarray(noisy(x) if x.size > 1 else x + 3, np.float32)
    _, _, results = compare(
        release(tmp_path / "a", {"w": torch.tensor(x)}), release(tmp_path / "b", {"w": torch.tensor(y)})
    )
    if x.size:
        check(results["w"], x, y)
    else:
        assert "no element" in results["w"].undefined["mse"]


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A sharded checkpoint with several boxes per tensor, and a quantized version: GPTQ and plain bfloat16."""
    folder = tmp_path_factory.mktemp("large")
    golden = case("gptq_v1_4bit_g128_sym")
    values, _ = original_of(golden, folder / "golden")
    generator = torch.Generator().manual_seed(1)
    many = {f"a.{i}.weight": torch.randn(60, 4096, generator=generator) for i in range(3)}
    many["a.norm"] = torch.randn(5000, generator=generator)
    rest = {n: torch.tensor(v) for n, v in values.items()}
    original, quantized = folder / "original", folder / "quantized"
    shutil.copytree(golden.release, quantized)
    stored = {n: (v + 0.01 * torch.randn(v.shape, generator=generator)).bfloat16() for n, v in many.items()}
    for path, shards in ((original, (many, rest)), (quantized, (stored, None))):
        path.mkdir(exist_ok=True)
        weight_map = {}
        for i, shard in enumerate(shards):
            name = "model.safetensors" if shard is None else f"part{i}.safetensors"
            if shard is not None:
                save_file(shard, path / name)
            held = open_checkpoint(path / name).release.stored
            weight_map |= dict.fromkeys(held, name)
        (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return original, quantized


@in_parts(23)
def test_a_stop_at_any_step_threads_and_reading_change_nothing(large, part, monkeypatch):
    """Whatever the stops and threads, and through JSON, the record is equal to the last bit."""
    monkeypatch.setattr(boxes, "CHUNK", 1 << 16)
    opened = lambda: [open_checkpoint(path) for path in large]  # noqa: E731
    comparison, state, results = compare(*opened())
    whole, number = state.as_dict(), len(list(CheckpointComparison(*opened()).steps()))
    assert len(results) == 8
    assert number > 12
    assert compare(*opened(), threads=3)[1].as_dict() == whole
    for stop in part(range(number)):
        steps = CheckpointComparison(*opened()).steps(None, 1 + stop // 3 % 3)
        for _ in range(stop + 1):
            step = next(steps)
        steps.close()
        record = json.loads(json.dumps(step.state.as_dict()))
        assert stop == 0 or record != ComparisonState(comparison.identity).as_dict()
        again = ComparisonState.of_dict(record)
        _, state, _ = compare(*opened(), threads=1 + stop % 2, state=again)
        assert state.as_dict() == whole


def test_the_first_step_reads_nothing(large):
    original, other = map(open_checkpoint, large)
    comparison = CheckpointComparison(original, other)
    before = original.counter.total, other.counter.total
    first = next(comparison.steps())
    assert (first.done, first.total) == (0, comparison.total)
    assert (original.counter.total, other.counter.total) == before


def test_only_what_is_needed_is_read_and_once(large, monkeypatch):
    """Only paired tensors are read, and each byte once, except where orders are tried on a tensor's first box."""
    monkeypatch.setattr(boxes, "CHUNK", 1 << 16)
    original, other = map(open_checkpoint, large)
    before = original.counter.total + other.counter.total
    comparison, _, _ = compare(original, other)
    read = original.counter.total + other.counter.total - before
    assert comparison.total <= read < 1.05 * comparison.total


def test_a_record_of_something_else_is_refused(large, tmp_path):
    comparison = CheckpointComparison(*map(open_checkpoint, large))
    with pytest.raises(qc.QuantError, match="other checkpoints"):
        next(comparison.steps(ComparisonState("another")))
    good = ComparisonState(comparison.identity).as_dict()
    for bad in ({}, {"format": 1}, good | {"format": 2}, good | {"finished": [{"sums": {"as stored": [1, 2]}}]}, good | {"finished": 3}, []):  # fmt: skip
        with pytest.raises(qc.QuantError, match="not the record"):
            ComparisonState.of_dict(bad)


def permuted(w, heads):
    """The rows as llama.cpp's converter permutes them."""
    return w.reshape(heads, 2, w.shape[0] // heads // 2, -1).swapaxes(1, 2).reshape(w.shape)


@for_each("rows", some([5, None, 20], 3))
@for_each("gguf_side", ["original", "other"])
def test_rows_of_queries_and_keys(gguf_side, rows, tmp_path, monkeypatch):
    """With GQA, keys have fewer heads; both orders are measured and reported, and the better one is used; in any boxes."""
    if rows:
        monkeypatch.setattr(boxes, "CHUNK", rows * 96)
    names = {n: f"model.layers.0.self_attn.{n}_proj.weight" for n in "qkv"}
    x = {n: torch.randn(64 if n == "q" else 32, 96) for n in "qkv"}
    y = {n: torch.tensor(noisy(v.numpy())) for n, v in x.items()}
    y["k"][5, 17] += 9
    heads = {"q": 8, "k": 4}
    stored = {f"blk.0.attn_{n}.weight": permuted(v, heads[n]) if n in heads else v for n, v in y.items()}
    config = {"num_attention_heads": 8, "num_key_value_heads": 4}
    hugging = release(tmp_path / "a", {names[n]: v for n, v in x.items()}, config)
    file = gguf_release(tmp_path / "m.gguf", stored)
    if gguf_side == "other":
        _, _, results = compare(hugging, file)
        by_name = {n: results[f"blk.0.attn_{n}.weight"] for n in "qkv"}
        for n, result in by_name.items():
            check(result, x[n], y[n])
        row = int((permuted(torch.arange(32.0)[:, None], 4) == 5).nonzero()[0, 0])
        assert by_name["k"].max_abs_error_index == (5, 17)
        assert by_name["k"].other_index == (row, 17)
        assert by_name["k"].worst[0].other_index == (row, 0)
    else:
        _, _, results = compare(file, hugging)
        by_name = {n: results[names[n]] for n in "qkv"}
        for n in heads:
            check(by_name[n], stored[f"blk.0.attn_{n}.weight"], permuted(x[n], heads[n]))
    assert by_name["v"].orders.keys() == {"as stored"}
    for n in heads:
        (sentence,) = by_name[n].sentences()
        shown = [qc.decibels(v) for v in by_name[n].orders.values()]
        assert len(shown) == 2
        assert all(number in sentence for number in shown)
        assert ("halves of each head interleaved" in sentence) is (gguf_side == "other")
        assert "undone" in sentence


def test_a_gguf_file_that_is_not_permuted(tmp_path):
    """Like OLMoE's official file: the order that fits better is used and reported."""
    x = torch.randn(32, 64)
    hugging = release(
        tmp_path / "a", {"model.layers.0.self_attn.q_proj.weight": x}, {"num_attention_heads": 4}
    )
    file = gguf_release(tmp_path / "m.gguf", {"blk.0.attn_q.weight": torch.tensor(noisy(x.numpy()))}, "olmoe")
    (result,) = compare(hugging, file)[2].values()
    assert (result.order, len(result.orders)) == ("as stored", 2)
    assert "in the original's order" in result.sentences()[0]


def test_other_orders_are_tried_where_the_error_is_large(tmp_path):
    """Norms plus 1, and codes without AWQ's interleave."""
    given = case("bad_awq_not_interleaved")
    (name,) = given.record["tensors"]
    original = release(
        tmp_path / "a", {name: torch.tensor(noisy(given.expected[f"{name}|true"], error=0.01))}
    )
    (result,) = compare(original, open_checkpoint(given.release))[2].values()
    assert result.order == "codes 0 4 1 5 2 6 3 7"
    assert result.sqnr_db > 15 > 5 > result.orders["as stored"]
    norm = torch.randn(64) / 8
    plain, shifted = release(tmp_path / "b", {"n": norm}), release(tmp_path / "c", {"n": norm + 1})
    for original, other, order in ((plain, shifted, "plus one"), (shifted, plain, "minus one")):
        (result,) = compare(original, other)[2].values()
        assert result.order == order
        assert result.mse < 1e-12


def test_transposed_values(tmp_path):
    x = torch.randn(700, 900)
    other = release(tmp_path / "b", {"w": torch.tensor(noisy(x.numpy())).T})
    (result,) = compare(release(tmp_path / "a", {"w": x}), other)[2].values()
    check(result, x, other.tensors["w"].read().T)
    index = result.max_abs_error_index
    assert result.other_index == index[::-1]
    assert "transpose" in result.sentences()[0]


def test_experts_fused_ones_and_their_places(tmp_path):
    up = torch.randn(3, 8, 300)
    gate_up = torch.cat([up, torch.randn(3, 8, 300)], 1)
    stacked = release(tmp_path / "a", {"m.experts.gate_up_proj": gate_up, "m.experts.down_proj": up})
    y = {f"m.experts.{e}.{n}_proj": torch.tensor(noisy(gate_up[e, s].numpy(), e)) for e in range(3)
         for n, s in (("gate", slice(0, 8)), ("up", slice(8, 16)))}  # fmt: skip
    y |= {f"m.experts.{e}.down_proj": torch.tensor(noisy(up[e].numpy())) for e in range(3)}
    comparison, _, results = compare(stacked, release(tmp_path / "b", y))
    assert not comparison.pairing.unpaired
    assert len(results) == 9
    for e in range(3):
        check(results[f"m.experts.{e}.up_proj"], gate_up[e, 8:], y[f"m.experts.{e}.up_proj"])
        block = results[f"m.experts.{e}.up_proj"].worst[0]
        assert block.original_index == (e, 8 + block.index[0], block.index[1])


@for_each("kind", some(["gpt_oss", "llama4"], 2))
def test_experts_stored_as_in_out(kind, tmp_path):
    """Against experts apart and stacks of [out, in]; gpt-oss alternates gate and up, and its down_proj is square."""
    draw, alternate = torch.Generator().manual_seed(0), kind == "gpt_oss"
    parts = {f"{n}_proj": torch.randn(3, 64, 64, generator=draw) for n in ("gate", "up", "down")}
    gate_up = torch.stack([parts["gate_proj"], parts["up_proj"]], 2 if alternate else 1).reshape(3, 128, 64)
    stored = {"m.experts.gate_up_proj": gate_up.mT, "m.experts.down_proj": parts["down_proj"].mT}
    original = release(tmp_path / "a", stored, {"model_type": kind})
    y = {n: torch.tensor(noisy(w.numpy())) for n, w in parts.items()}
    apart = {f"m.experts.{e}.{n}.weight": w[e] for e in range(3) for n, w in y.items()}
    together = {f"m.experts.{n}.weight": w for n, w in y.items()}
    for i, other in enumerate((apart, together)):
        comparison, _, results = compare(original, release(tmp_path / f"b{i}", other))
        assert not comparison.pairing.unpaired
        assert len(results) == 9
        for name, result in results.items():
            e, part = int(re.findall(r"\d", name)[0]), re.findall(r"[a-z]+_proj", name)[0]
            # of two whole stacks, the plain one is read by columns
            was, now = ((w[e].T if "transposed" in name else w[e]) for w in (parts[part], y[part]))
            check(result, was, now)
            block = result.worst[0]
            stack = original.tensors[result.original_tensor].read()
            assert stack[block.original_index] == was[block.index]


def biases_of_experts(experts=3, width=8):
    """gate, up and down of all experts: what the names of each library have of them, and how gpt-oss stores them."""
    draw = torch.Generator().manual_seed(0)
    parts = {n: torch.randn(experts, width, generator=draw) for n in ("gate", "up", "down")}
    at = "model.layers.0.mlp.experts."
    both = torch.stack([parts["gate"], parts["up"]], 2).reshape(experts, 2 * width)  # they alternate
    return parts, {
        "transformers": {f"{at}gate_up_proj_bias": both, f"{at}down_proj_bias": parts["down"]},
        "apart": {f"{at}{e}.{n}_proj.bias": b[e] for e in range(experts) for n, b in parts.items()},
        "stacks": {f"{at}{n}_proj.bias": b for n, b in parts.items()},
        "mlx": {f"{at.replace('experts', 'switch_mlp')}{n}_proj.bias": b for n, b in parts.items()},
        "llama.cpp": {f"blk.0.ffn_{n}_exps.bias": b for n, b in parts.items()},
        "square": {f"{at}gate_up_proj_bias": both, f"{at}down_proj_bias": parts["down"]},
    }


@for_each("turned", [False, pytest.param(True, marks=pytest.mark.slow)])
@for_each("other", ["transformers", "apart", "stacks", "mlx", "llama.cpp", "square"])
def test_biases_of_experts(other, turned, tmp_path):
    """gpt-oss stacks them as [experts, out], and gate and up alternate; also where there are as many experts as rows."""
    parts, stored = biases_of_experts(*((8, 8) if other == "square" else ()))
    weights = {"model.layers.0.mlp.experts.down_proj": torch.ones(2, 4, 6)}  # stored as [in, out]
    first = release(tmp_path / "a", stored["transformers"] | weights, {"model_type": "gpt_oss"})
    second = release(tmp_path / "b", stored[other] | {n: w.mT for n, w in weights.items()}, {"model_type": "gpt_oss"})
    comparison, _, results = compare(*((second, first) if turned else (first, second)))
    assert not comparison.pairing.unpaired, comparison.pairing.unpaired
    assert all(result.equal for result in results.values())
    total = sum(math.prod(pair.shape) for pair in comparison.pairing.pairs)
    assert total == sum(b.numel() for b in parts.values()) + weights.popitem()[1].numel()
    wrong = {name: t + (torch.arange(t.numel()).reshape(t.shape) == 5) for name, t in stored[other].items() if "down" in name}
    changed = release(tmp_path / "c", stored[other] | wrong | {n: w.mT for n, w in weights.items()}, {"model_type": "gpt_oss"})
    if not turned and other != "llama.cpp":
        errors = [f for f in changed.findings(first) if f.kind == "plain_differs"]
        assert {name for f in errors for name in f.tensors} == set(wrong)


def test_stacks_of_a_format_that_is_read_whole(tmp_path):
    """gpt-oss: a stack of MXFP4 experts against separate tensors per expert."""
    given = case("gptoss_mxfp4")
    name = "model.layers.0.mlp.experts.down_proj"
    apart = {f"model.layers.0.mlp.experts.{e}.down_proj": torch.tensor(noisy(v)) for e, v in enumerate(given.expected[name])}  # fmt: skip
    _, _, results = compare(release(tmp_path / "a", apart), open_checkpoint(given.release))
    for e, x in enumerate(apart.values()):
        check(results[f"{name}[{e}]"], x, given.expected[name][e])


def test_nonfinite_values_are_counted_and_left_out(tmp_path):
    x, y = np.random.default_rng(0).normal(size=(2, 40, 300)).astype(np.float32)
    x[0, 0], x[3, 4], y[3, 4], y[5, 6:8], y[9, 9] = np.nan, np.inf, np.inf, np.nan, -np.inf
    (result,) = compare(
        release(tmp_path / "a", {"w": torch.tensor(x)}), release(tmp_path / "b", {"w": torch.tensor(y)})
    )[2].values()
    check(result, x, y)
    assert result.nonfinite == {"original_nan": 1, "original_inf": 1, "other_nan": 2, "other_inf": 2}
    assert (
        "1 NaN value in the original, 1 infinite value in the original, 2 NaN values in the other"
        in result.sentences()[-1]
    )


def test_extreme_and_undefined(tmp_path):
    """Numbers whose squares overflow or underflow float32, 0 against 0, and equal NaN."""
    x = {"huge": np.full(300, 3e38, np.float32), "tiny": np.full(300, 1e-40, np.float32)}
    y = {n: v / 2 for n, v in x.items()}
    x["zero"] = y["zero"] = np.zeros(9, np.float32)
    x["equal"] = y["equal"] = np.full(3, np.nan, np.float32)
    x["signs"], y["signs"] = np.zeros(4, np.float32), -np.zeros(4, np.float32)
    a, b = (
        release(tmp_path / n, {k: torch.tensor(v) for k, v in s.items()}) for n, s in (("a", x), ("b", y))
    )
    results = compare(a, b)[2]
    for name in ("huge", "tiny"):
        check(results[name], x[name], y[name])
        assert results[name].sqnr_db == pytest.approx(20 * math.log10(2), abs=1e-3)
    assert math.isnan(results["zero"].sqnr_db)
    assert "zero everywhere" in results["zero"].undefined["sqnr_db"]
    assert results["zero"].equal
    assert results["equal"].equal
    assert "no element is finite" in results["equal"].undefined["mse"]
    assert (results["signs"].equal, results["signs"].different, results["signs"].mse) == (False, 4, 0.0)
    text = json.dumps(results["zero"].as_dict(), allow_nan=False)
    assert json.loads(text)["sqnr_db"] == "nan"


def test_damaged_checkpoints(tmp_path):
    """Tensors of a missing shard and those that can't be read stay unpaired, with the reason."""
    given = case("bad_missing_shard")
    names = ["model.layers.0.mlp.gate_proj.weight", "model.layers.0.mlp.up_proj.weight"]
    original = release(tmp_path / "a", {n: torch.randn(16, 32) for n in names})
    comparison, _, results = compare(original, open_checkpoint(given.release))
    assert results.keys() == {names[0]}
    (unpaired,) = comparison.pairing.unpaired
    assert (unpaired.side, unpaired.name, unpaired.kind) == ("original", names[1], "missing")
    assert "model-00002-of-00002.safetensors" in unpaired.reason
    given = case("bad_missing_weight_scale_2")
    bad = {n: torch.randn(16, 64) for n in open_checkpoint(given.release).tensors if "k_proj" in n}
    found = CheckpointComparison(release(tmp_path / "b", bad), open_checkpoint(given.release)).pairing.unpaired
    assert any(u.kind == "unreadable" and "weight_scale_2" in u.reason for u in found)


@pytest.mark.parametrize("threads", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_a_file_that_ends_while_it_is_read(threads, tmp_path, monkeypatch):
    """Its pairs are not compared, with the reason; the others are."""
    monkeypatch.setattr(boxes, "CHUNK", 1 << 16)
    weights = {f"w{i}": torch.randn(150, 1000) for i in range(8)}
    original = release(tmp_path / "a", weights)
    other = release(tmp_path / "b", weights)
    file = tmp_path / "b" / "model.safetensors"
    comparison = CheckpointComparison(original, other)
    steps = comparison.steps(None, threads)
    next(steps)
    next(steps)
    file.write_bytes(file.read_bytes()[:700_000])
    *_, step = steps
    results = comparison.results(step.state)
    assert len(results) == 8
    assert "changed since it was opened" in results[-1].problem
    assert all(r.problem in ("", results[-1].problem) for r in results)
    assert results[0].equal or results[0].problem
    assert summary(results).endswith(".")


def test_names_of_strangers(tmp_path):
    """Hostile names are quoted, truncated and kept on one line, and very long ones do not slow the comparison."""
    names = [
        "a\nb.weight",
        "<script>x</script>.weight",
        "9." * 50_000 + "weight",
        "`*_[x](y)",
        "experts." * 9 + "1.w",
    ]
    original = release(tmp_path / "a", {n: torch.randn(4) for n in names})
    for other in (release(tmp_path / "b", {n: torch.full((4,), torch.inf) for n in names}),
                  gguf_release(tmp_path / "m.gguf", {"blk.0.attn_q.weight": torch.randn(4, 4)})):  # fmt: skip
        comparison, _, results = compare(original, other)
        said = [s for r in results.values() for s in r.sentences()]
        said += [u.reason for u in comparison.pairing.unpaired]
        assert said
        assert all("\n" not in s and len(s) < 700 for s in said)


def test_rows_that_are_too_long(tmp_path, monkeypatch):
    """Each of them, or the eight that stay in one box."""
    monkeypatch.setattr("quantcore.checkpoints.rows.MOST_ELEMENTS", 1000)
    weights = {"a": torch.randn(2, 2000), "eight": torch.randn(16, 250), "b": torch.randn(2, 20)}
    results = compare(release(tmp_path / "a", weights), release(tmp_path / "b", weights))[2]
    assert "its rows have 2,000 elements, more than the limit" in results["a"].problem
    assert "2,000 elements must be read at once, more than the limit" in results["eight"].problem
    assert results["b"].equal


def test_summary(tmp_path):
    x = {"a": torch.randn(50, 50), "b": torch.ones(3)}
    y = {"a": torch.tensor(noisy(x["a"].numpy())), "b": torch.ones(3)}
    results = compare(release(tmp_path / "a", x), release(tmp_path / "b", y))[2]
    text = summary(list(results.values()))
    assert text.startswith("2 pairs compared, 1 of them bit-equal; overall SQNR ")
    assert text.endswith(f"lowest {qc.decibels(results['a'].sqnr_db)} in 'a'.")
    together = reference(
        torch.cat([v.reshape(-1) for v in x.values()]), torch.cat([v.reshape(-1) for v in y.values()])
    )
    assert qc.decibels(together["sqnr_db"]) in text
