"""Rows and columns of one number, layers that are not there, and a head that is not: held against plain loops and real names."""

import numpy as np
from grid import for_each

from quantcore.checkpoints.containers.stored import StoredTensor
from quantcore.checkpoints.files.sources import MemorySource
from quantcore.checkpoints.findings.shared import of_flat
from quantcore.checkpoints.findings.stored import Flat, FlatLines
from quantcore.checkpoints.findings.structure import of_layers
from quantcore.checkpoints.findings.walk import Box
from quantcore.checkpoints.layouts.plain import plain
from quantcore.checkpoints.protocol.release import Release


def stored(name, shape, dtype="F32", data=b""):
    return StoredTensor(name, dtype, shape, MemorySource("w.bin", data), 0, len(data))


def found_in(values, at_once=7):
    """What is flat in a weight whose rows arrive a few at a time."""
    layout = plain(stored("w", values.shape, data=values.tobytes())).layout()
    lines = FlatLines(layout)
    for start in range(0, len(values), at_once):
        lines.add(Box(layout, slice(start, min(start + at_once, len(values)))))
    return {flat.axis: flat for flat in lines.found()}


def longest_run(places):
    """The first place and the length of the longest run, the first of them if several are as long."""
    runs = np.split(places, np.flatnonzero(np.diff(places) != 1) + 1)
    best = max(runs, key=len)
    return int(best[0]), len(best)


@for_each("seed", range(6))
def test_flat_rows_and_columns_are_those_of_a_loop(seed):
    draw = np.random.default_rng(seed)
    values = draw.normal(size=(int(draw.integers(32, 80)), int(draw.integers(32, 80)))).astype(np.float32)
    for _ in range(4):
        start, count = int(draw.integers(0, 28)), int(draw.integers(1, 12))
        number = draw.choice([0.0, 0.5])
        if draw.integers(2):
            values[start : start + count] = number
        else:
            values[:, start : start + count] = number
    got = found_in(values, int(draw.integers(1, 40)))
    for axis, lines in (("row", values), ("column", values.T)):
        flat = np.array([i for i, line in enumerate(lines) if len(set(line.tolist())) == 1])
        assert (axis in got) == bool(len(flat))
        if len(flat):
            first, longest = longest_run(flat)
            one = got[axis]
            assert (one.total, one.of, one.first, one.longest) == (len(flat), len(lines), first, longest)


def test_what_is_flat_is_0_or_another_number():
    values = np.random.default_rng(0).normal(size=(40, 40)).astype(np.float32)
    values[3] = 0
    assert found_in(values)["row"] == Flat("row", 1, 40, 1, 3, True, "value")
    values[4] = 0
    assert found_in(values)["row"] == Flat("row", 2, 40, 2, 3, True, "value")
    values[3:5] = -2
    assert found_in(values)["row"] == Flat("row", 2, 40, 2, 3, False, "value")
    values[3, 39] = -1
    assert found_in(values)["row"].total == 1
    for number in (0, -2):
        values = np.random.default_rng(0).normal(size=(40, 40)).astype(np.float32)
        values[:, 7:10] = number
        assert found_in(values) == {"column": Flat("column", 3, 40, 3, 7, not number, "value")}


@for_each("shape", [(40,), (40, 31), (31, 40), (32, 32), (0, 40)])
def test_short_lines_say_nothing(shape):
    got = found_in(np.zeros(shape, np.float32))
    assert ("row" in got) == (shape in ((31, 40), (32, 32)))
    assert ("column" in got) == (shape in ((40, 31), (32, 32)))


ROWS_OF_0 = Flat("row", 8, 64, 8, 56, True, "code")


@for_each(
    ("flat", "others", "kind"),
    [
        (ROWS_OF_0, 4, "flat_rows"),
        (ROWS_OF_0, 3, None),  # too few siblings
        (Flat("row", 20, 64, 7, 0, True, "code"), 4, None),  # pruned: not side by side
        (Flat("column", 1, 64, 1, 5, False, "code"), 4, "flat_columns"),
    ],
)
def test_siblings_decide(flat, others, kind):
    of_role = {"a.0.w": (flat,)} | {f"a.{i}.w": () for i in range(1, others + 1)}
    assert [f.kind for f in of_flat(of_role)] == ([kind] if kind else [])
    alike = dict.fromkeys(of_role, (flat,))  # structured pruning: every layer
    assert list(of_flat(alike)) == []


PARTS = ("self_attn.q_proj.weight", "mlp.up_proj.weight", "input_layernorm.weight")


def model(layers, outside=("embed_tokens", "lm_head"), prefix="model.layers.", parts=PARTS, **config):
    names = [f"{prefix}{layer}.{part}" for layer in layers for part in parts]
    shapes = dict.fromkeys(names, (8, 8)) | {
        f"{name}.weight": (8,) if "norm" in name else (32, 8) for name in outside
    }
    pieces = {name: stored(name, shape) for name, shape in shapes.items()}
    return {f.tensors[0]: f.kind for f in of_layers(Release(pieces, config))}


def test_a_layer_between_others_is_missing():
    assert model([0, 1, 3, 4, 5]) == {"model.layers.2": "missing_layer"}
    assert model([0, 1, 3, 4], parts=PARTS[:2]) == {"model.layers.2": "missing_layer"}
    assert model([2, 3, 4, 5, 6]) == {}  # a part of a model
    # more than one of four
    assert model([0, 1, 3, 5, 6, 7, 8]) == {}
    assert model([0, 1, 3, 5, 6, 7, 8, 9]).keys() == {"model.layers.2", "model.layers.4"}
    assert model([0, 2, 3]) == {}  # too few layers
    # activations of a Sequential, which store nothing
    assert model([0, 2, 4, 6, 8], prefix="features.", parts=("weight", "bias")) == {}
    assert model([0, 1, 2, 4, 5], prefix="features.", parts=("weight",)) == {}


def test_the_config_says_how_many_layers_there_are():
    of = {"num_hidden_layers": 6}
    assert model(range(6), **of) == {}
    assert model(range(4), **of) == {"model.layers.4": "missing_layer", "model.layers.5": "missing_layer"}
    assert model(range(4), text_config=of).keys() == {"model.layers.4", "model.layers.5"}
    assert model(range(4), num_hidden_layers=9) == {}  # a few layers of a model, taken on purpose
    assert model(range(7), **of) == {}  # with one that predicts several tokens
    gguf = {"general.architecture": "llama", "llama.block_count": 6}
    assert model(range(5), prefix="blk.", **gguf) == {"blk.5": "missing_layer"}
    assert model(range(5), prefix="blk.", **gguf | {"llama.nextn_predict_layers": 1}) == {}
    for odd in (True, "6", None, 6.0):
        assert model(range(4), num_hidden_layers=odd) == {}


def test_a_head_of_its_own_is_missing():
    causal = {"architectures": ["LlamaForCausalLM"], "tie_word_embeddings": False}
    assert model(range(4), **causal) == {}
    assert model(range(4), ("model.embed_tokens",), **causal) == {"lm_head.weight": "missing_head"}
    assert model(range(4), ("model.embed_tokens",), architectures=["LlamaForCausalLM"]) == {}
    assert model(range(4), ("model.embed_tokens",), **causal | {"tie_word_embeddings": True}) == {}
    assert model(range(4), ("model.embed_tokens",), **causal | {"architectures": ["LlamaModel"]}) == {}
    for outside, lost in (
        (("transformer.wte", "ln_f.norm"), True),
        (("transformer.wpe",), False),
        (("wte.vectors",), False),
        (("embed", "wpe"), False),
    ):
        assert bool(model(range(4), outside, **causal)) is lost
