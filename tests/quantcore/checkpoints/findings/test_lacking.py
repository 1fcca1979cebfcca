"""What a layer lacks beside its siblings: the edges of every rule, from headers made for it."""

from grid import for_each

from quantcore.checkpoints.findings.structure import of_structure, shares_keys
from quantcore.checkpoints.protocol.release import Release

ATTENTION = tuple(f"self_attn.{n}_proj" for n in "qkvo")
MLP = tuple(f"mlp.{n}_proj" for n in ("gate", "up", "down"))
SHARING = {"num_kv_shared_layers": 2}


class Piece:
    """The header of a stored tensor."""

    def __init__(self, shape=(8, 8), dtype="BF16", file="model.safetensors"):
        self.shape, self.dtype = shape, dtype
        self.source = type("Source", (), {"name": file})


def layers(parts, of=range(6), **more):
    return {f"model.layers.{i}.{part}.weight": Piece(**more) for i in of for part in parts}


def found_in(stored, config=None):
    """Severity, layer and module of what is missing, with the number of layers that have it."""
    found = list(of_structure(Release(stored, config or {})))
    assert {f.kind for f in found} <= {"missing_tensor"}
    keys = [(f.severity, f.tensors[0].removeprefix("model.layers.").removesuffix(".weight")) for f in found]
    assert len(keys) == len(set(keys))
    return dict(zip(keys, [f.facts["layers"] for f in found], strict=True))


def without(stored, layer, *parts):
    gone = {f"model.layers.{layer}.{part}.weight" for part in parts}
    assert gone <= stored.keys()
    return {name: piece for name, piece in stored.items() if name not in gone}


FULL = layers((*ATTENTION, *MLP))
# what a layer, or two, lack; the config -> the errors
SETS = {
    "k": ([(2, "k")], {}, ["2 k"]),
    "k, though layers share": ([(2, "k")], SHARING, ["2 k"]),
    "k of two layers": ([(2, "k"), (4, "k")], {}, ["2 k", "4 k"]),
    "v, though layers share": ([(2, "v")], SHARING, ["2 v"]),
    "v of two layers equals k": ([(2, "v"), (4, "v")], {}, []),
    "k and v": ([(2, "kv")], {}, ["2 k", "2 v"]),
    "k and v that are shared": ([(2, "kv")], SHARING, []),
    "k and v of two layers": ([(2, "kv"), (3, "kv")], {}, []),
    "q and o, though layers share": ([(2, "qo")], SHARING, ["2 q", "2 o"]),
    "q and k": ([(2, "qk"), (4, "qk")], SHARING, ["2 q", "2 k", "4 q", "4 k"]),
}  # fmt: skip


@for_each("what", SETS)
def test_parts_of_an_attention(what):
    gone, config, wanted = SETS[what]
    stored = FULL
    for layer, names in gone:
        stored = without(stored, layer, *(f"self_attn.{n}_proj" for n in names))
    whole = 6 - len(gone)
    expected = {("error", f"{w[0]}.self_attn.{w[2]}_proj"): whole for w in wanted}
    found = found_in(stored, config)
    assert {key: n for key, n in found.items() if key[0] == "error"} == expected
    assert len(found) == len(expected) or not expected


@for_each(("complete", "error"), [(2, False), (3, True), (5, True)])
def test_keys_and_values_of_one_layer_of_few(complete, error):
    """Three layers that have them are needed."""
    stored = without(
        layers((*ATTENTION, *MLP), range(complete + 1)), 1, "self_attn.k_proj", "self_attn.v_proj"
    )
    assert (("error", "1.self_attn.k_proj") in found_in(stored)) is error


@for_each("other", ["qkv_proj", "query_key_value", "kv_b_proj", "gate"])
def test_a_layer_that_computes_something_else(other):
    """It has a module that complete layers do not have."""
    own = {f"model.layers.2.self_attn.{n}.weight": Piece() for n in (other, "o_proj", "q_proj")}
    stored = {name: p for name, p in FULL.items() if ".2.self_attn." not in name} | own
    assert not any(severity == "error" for severity, _ in found_in(stored))
    del own[f"model.layers.2.self_attn.{other}.weight"], own["model.layers.2.self_attn.q_proj.weight"]
    lost = {name: p for name, p in FULL.items() if ".2.self_attn." not in name} | own
    assert {("error", f"2.self_attn.{n}_proj") for n in "qkv"} == found_in(lost).keys()


def test_a_layer_without_any_of_a_set():
    """Not by that set; with a norm of its own the attention is there, but has none of its matrices."""
    names = (*ATTENTION, "self_attn.q_norm", *MLP)
    stored = without(layers(names), 2, *ATTENTION)
    assert {severity for severity, _ in found_in(stored)} == {"note"}


def test_what_two_sets_have_in_common_is_said_once():
    """gate, up and down are a set, and so are up and down."""
    found = found_in(without(FULL, 3, "mlp.gate_proj", "mlp.up_proj"))
    assert found == {("error", "3.mlp.gate_proj"): 5, ("error", "3.mlp.up_proj"): 5}


@for_each(("shape", "found"), [((8, 8), 1), ((4, 8), 0)])
def test_values_of_a_layer_with_other_shapes(shape, found):
    """Attention of another size may have no v of its own."""
    stored = without(FULL, 2, "self_attn.v_proj") | layers(("self_attn.k_proj",), [2], shape=shape)
    assert sum(severity == "error" for severity, _ in found_in(stored)) == found


def test_how_many_layers_a_sentence_names():
    (finding,) = of_structure(Release(without(FULL, 2, "mlp.up_proj")))
    assert "in 5 other layers" in finding.sentence
    two = without(layers((*ATTENTION, *MLP), range(2)), 1, "mlp.up_proj")
    (finding,) = of_structure(Release(two))
    assert finding.facts["layers"] == 1
    assert "another layer has it" in finding.sentence


@for_each(
    ("lacking", "have", "found"),
    [(1, 2, True), (2, 4, True), (2, 3, False), (3, 5, False), (3, 6, True), (1, 1, False)],
)
def test_at_least_twice_as_many_layers_have_it(lacking, have, found):
    """A gate that stands alone in its module."""
    stored = layers(("mixer.a", "mixer.b"), range(lacking + have))
    for layer in range(lacking):
        stored = without(stored, layer, "mixer.b")
    wanted = {("error", f"{layer}.mixer.b"): have for layer in range(lacking)}
    assert found_in(stored) == (wanted if found else {})


@for_each(
    ("lost", "shape", "severity"),
    [(("mixer.b",), (8, 8), "error"), (("mixer.b",), (8,), "note"), (("mixer.b",), (1, 8), "note"), (("mixer.b", "mixer.c"), (8, 8), "note"),
     (("mixer.v_proj",), (8, 8), "note")],
)  # fmt: skip
def test_one_matrix_is_an_error(lost, shape, severity):
    """A norm, several modules, or values that may equal the keys are only worth a note, without an advice."""
    stored = without(layers(("mixer.a", *lost), shape=shape), 2, *lost)
    found = list(of_structure(Release(stored)))
    assert {f.severity for f in found} == {severity}
    assert [f.tensors[0] for f in found] == sorted(f"model.layers.2.{part}.weight" for part in lost)
    assert all(("download" in f.sentence) is (severity == "error") for f in found)
    assert all(f.facts == {"layers": 5, "lacking": f.tensors[0][15:-7]} for f in found)


@for_each(
    ("lost", "severity"),
    [(("1.a", "1.b"), "error"), (("3.a", "3.b"), "note"), (("2.a", "2.b", "3.a", "3.b"), "note"), (("0.a", "0.b", "3.a"), "error"),
     (("0.a", "0.b", "3.a", "3.b"), "note"), (("0.a", "0.b", "1.a", "1.b", "2.a", "2.b", "3.a", "3.b"), "note")],
)  # fmt: skip
def test_experts_that_a_layer_lacks(lost, severity):
    """Fewer experts are whole ones at the end; those up to the last that it has are lost."""
    names = ("router", *(f"mlp.experts.{e}.{n}" for e in range(4) for n in "ab"))
    found = found_in(without(layers(names), 2, *(f"mlp.experts.{name}" for name in lost)))
    assert found == {(severity, f"2.mlp.experts.{name}"): 5 for name in lost}


def test_a_norm_of_a_layer_with_experts():
    names = ("input_layernorm", *(f"mlp.experts.{e}.{n}" for e in range(3) for n in "ab"))
    stored = without(layers(names), 2, "input_layernorm")
    assert set(found_in(stored)) == {("error", "2.input_layernorm")}
    narrow = {name: Piece((8,)) if "norm" in name else piece for name, piece in stored.items()}
    assert set(found_in(narrow)) == {("note", "2.input_layernorm")}


@for_each(
    ("shards", "complete"), [((1, 2), True), ((1,), False), ((2,), False), ((1, 2, 3), True)]
)
def test_all_shards_are_needed(shards, complete):
    """What is not in the open shards may be in another."""
    stored = without(FULL, 2, "mlp.up_proj")
    total = max(2, len(shards))
    for number, name in enumerate(sorted(stored)):
        shard = shards[number % len(shards)]
        stored[name] = Piece(file=f"model-{shard:05}-of-{total:05}.safetensors")
    assert (found_in(stored) != {}) is complete


@for_each(
    ("config", "shares"),
    [({"num_kv_shared_layers": 1}, True), ({"text_config": {"USE_CLA": True}}, True), ({"text_config": "use_cla"}, False),
     ({"num_key_value_heads": 8}, False), ({}, False), ({"vision": {"use_cla": 1}}, False)],
)  # fmt: skip
def test_configs_of_layers_that_share_keys(config, shares):
    assert shares_keys(config) is shares


@for_each(("lacking", "have", "found"), [(1, 2, True), (2, 4, True), (2, 3, False)])
def test_stored_tensors_that_a_module_lacks(lacking, have, found):
    """Those of modules that are stored in the same way; scales of activations are optional."""
    stored = {
        f"model.layers.{i}.q.{last}": Piece(dtype="I32")
        for i in range(lacking + have)
        for last in ("qweight", "scales", "input_scale")
        if not (i < lacking and last != "qweight")
    }
    wanted = [(f"model.layers.{i}.q.scales", {"layers": have, "lacking": "scales"}) for i in range(lacking)]
    assert [(f.tensors[0], f.facts) for f in of_structure(Release(stored))] == (wanted if found else [])
    assert list(of_structure(Release(stored), {f"model.layers.{i}.q" for i in range(lacking)})) == []
