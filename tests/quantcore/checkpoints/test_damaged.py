"""Corrupt files give one sentence on what is wrong and where, in little time and memory; intact parts are read.

Corrupt GGUF and imatrix files give a QuantError or a result.
"""

import json
import os
import random
import struct
import tracemalloc

import checkpoint_cases
import pytest
import torch
from bounded import in_seconds
from checkpoint_cases import case
from checkpoint_damage import damage, exercise
from gguf_bytes import all_types
from grid import for_each
from releases import compressed, release
from safetensors.torch import save_file

from quantcore import QuantError
from quantcore.checkpoints import open_checkpoint
from quantcore.checkpoints.containers import safetensors

UP, GATE, Q = (f"model.layers.0.{m}.weight" for m in ("mlp.up_proj", "mlp.gate_proj", "self_attn.q_proj"))
REFUSED = {
    "bad_duplicate_name": ["duplicate", "'model.layers.0.mlp.gate_proj.weight'"],
    "bad_header_100mb": ["header length", "100,000,000"],
    "bad_header_longer_than_file": ["header length", "5,000,000", "file size", "4,296"],
    "bad_overlapping_offsets": ["overlap", GATE, UP],
    "bad_shape_bytes": ["shape", "2,112 bytes", "2,048 bytes"],
    "bad_truncated": ["truncated", "3,396", "4,096"],
    "bad_weight_map_cycle": ["index", "'other.safetensors.index.json'", "not a safetensors file"],
}
# releases that open in part: words of the problem, and the tensor that can be read
IN_PART = {
    "bad_index_outside_folder": (["'../x.safetensors'", "outside the folder", UP], GATE),
    "bad_missing_shard": (["'model-00002-of-00002.safetensors'", "missing", UP], GATE),
}


def refusal(address, memory=20e6, seconds=10):
    """The message of the error that opening raises, which must take little time and memory."""
    with in_seconds(seconds):
        tracemalloc.start()
        try:
            with pytest.raises(QuantError) as caught:
                open_checkpoint(address)
            assert tracemalloc.get_traced_memory()[1] < memory
        finally:
            tracemalloc.stop()
    return str(caught.value)


@for_each("name", REFUSED)
def test_is_refused(name):
    sentence = refusal(case(name).release)
    assert [word for word in REFUSED[name] if word not in sentence] == [], sentence


@for_each("name", IN_PART)
def test_what_is_sound_is_read(name):
    words, sound = IN_PART[name]
    given = case(name)
    checkpoint = open_checkpoint(given.release)
    (problem,) = checkpoint.problems
    assert [word for word in words if word not in problem.sentence] == [], problem
    assert problem.severity == "error"
    assert list(checkpoint.tensors) == [sound]
    assert (checkpoint.tensors[sound].read().numpy() == given.expected[sound]).all()


def test_scales_of_other_groups_than_the_config_says():
    given = case("bad_group_size_config")
    tensor = open_checkpoint(given.release).tensors[Q]
    assert (tensor.read(rounded=False).numpy() == given.expected[Q]).all()
    (note,) = tensor.notes()
    assert [
        word for word in ("group_size 128", "groups of 32", "weight_scale shape (16, 8)") if word not in note
    ] == []


def header(folder, content, data=b"", name="model.safetensors"):
    text = content if isinstance(content, bytes) else json.dumps(content).encode()
    (folder / name).write_bytes(struct.pack("<Q", len(text)) + text + data)
    return folder


def record(dtype="F32", shape=(1,), offsets=(0, 4)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


HEADERS = {
    "a product of 2^64": ({"w": record(shape=(2**32, 2**32), offsets=(0, 0))}, "shape of 'w'"),
    "negative offsets": ({"w": record(offsets=(-4, 0))}, "record of 'w'"),
    "a negative length": ({"w": record(shape=(-1,))}, "record of 'w'"),
    "an unknown dtype": ({"w": record(dtype="F7")}, "unknown dtype 'F7'"),
    "a hundred axes": ({"w": record(shape=[1] * 100)}, "100 axes"),
    "no JSON": (b"{not json", "not JSON"),
    "a list": (b"[1, 2]", "does not begin"),
    "metadata of numbers": ({"__metadata__": {"a": 1}, "w": record()}, "metadata"),
    "nested too deep": (b'{"a":' * 20_000, "too deep"),
}


@for_each("what", HEADERS)
def test_headers(what, tmp_path):
    content, words = HEADERS[what]
    assert words in refusal(header(tmp_path, content, b"\0" * 4))


@for_each("many", [2_000, pytest.param(20_000, marks=pytest.mark.slow)])
def test_a_header_of_many_names(many, tmp_path):
    """It is read in seconds, and a duplicate name is found just as fast."""
    records = {f"t{i}": record(shape=(0,), offsets=(0, 0)) for i in range(many)}
    with in_seconds(many / 2_000):
        assert len(open_checkpoint(header(tmp_path, records)).tensors) == many
    text = json.dumps(records).encode()
    assert f"the duplicate key 't{many - 1}'" in refusal(
        header(tmp_path, text[:-1] + f', "t{many - 1}": 1}}'.encode()), memory=many * 10_000, seconds=many / 2_000
    )


@for_each(("many", "fits"), [(4_000 - 4, True), (4_000 + 1, False)])
def test_a_config_of_many_values(many, fits, tmp_path, monkeypatch):
    """Of a model's config they are few; each is checked again in the server."""
    monkeypatch.setattr(safetensors, "MAX_VALUES", 4_000)
    header(tmp_path, {"w": record()}, bytes(4))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "a", "b": [1] * many}))
    if fits:
        assert open_checkpoint(tmp_path).config["model_type"] == "a"
    else:
        assert "more than 4,000 values" in refusal(tmp_path)


def index(folder, weight_map):
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return folder


@for_each(
    "name", ["/etc/passwd", "../x.safetensors", "a/../../x.safetensors", "..\\x", "C:\\x", "a\nb"]
)
def test_names_outside_the_folder(name, tmp_path):
    header(tmp_path, {"w": record()}, b"\0" * 4, "x.safetensors")
    (tmp_path / "release").mkdir()
    assert "outside the folder" in refusal(index(tmp_path / "release", {"w": name}))


def test_symbolic_links(tmp_path):
    """Links out of the folder are refused; Hugging Face's cache, whose files are links to blobs, is read."""
    header(tmp_path, {"w": record()}, b"\0" * 4, "x.safetensors")
    release = tmp_path / "release"
    release.mkdir()
    (release / "model.safetensors").symlink_to(tmp_path / "x.safetensors")
    assert "outside the folder" in refusal(release)
    assert "outside the folder" in refusal(release / "model.safetensors")
    blobs, snapshot = tmp_path / "models--a--b" / "blobs", tmp_path / "models--a--b" / "snapshots" / "1"
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    header(blobs, {"w": record()}, b"\0" * 4, "abc")
    (snapshot / "model.safetensors").symlink_to("../../blobs/abc")
    assert open_checkpoint(snapshot).tensors["w"].read().tolist() == [0.0]


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "model.safetensors")
    assert "not a regular file" in refusal(tmp_path / "model.safetensors")


def test_a_file_that_changes(tmp_path):
    save_file({"w": torch.rand(8)}, tmp_path / "model.safetensors")
    tensor = open_checkpoint(tmp_path).tensors["w"]
    os.truncate(tmp_path / "model.safetensors", 80)
    with pytest.raises(QuantError, match="has changed"):
        tensor.read()


def test_nothing_to_read(tmp_path):
    assert "no file that can be read" in refusal(tmp_path)
    assert "no file or folder" in refusal(tmp_path / "missing")
    (tmp_path / "a.txt").write_text("hello")
    assert "not a file of tensors" in refusal(tmp_path / "a.txt")
    assert "no weight_map" in refusal(index(tmp_path, 3))


def test_an_index_of_too_many_files(tmp_path):
    files = {f"w{i}": f"{i}.safetensors" for i in range(5001)}
    assert "names 5,001 tensors in 5,001 files; at most 250,000 in 5,000" in refusal(index(tmp_path, files))


def gptq(folder, config=None, **pieces):
    given = {
        "qweight": torch.zeros(8, 32, dtype=torch.int32),
        "qzeros": torch.zeros(2, 4, dtype=torch.int32),
        "scales": torch.ones(2, 32, dtype=torch.float16),
        "g_idx": torch.arange(64, dtype=torch.int32) // 32,
    }
    given |= pieces
    settings = {"quant_method": "gptq", "bits": 4, "group_size": 32} | (config or {})
    return release(folder, {f"m.{k}": v for k, v in given.items() if v is not None}, {"quantization_config": settings})


GPTQ = {
    "another number of bits": ({"bits": 3}, {}, ["m.qweight", "(8, 32)", "3-bit", "does not fit"]),
    "bits of a text": ({"bits": "4"}, {}, ["bits '4'"]),
    "nine bits": ({"bits": 9}, {}, ["bits '9'"]),
    "a number of symmetries": ({"sym": 2}, {}, ["sym '2'", "not true or false"]),
    "a symmetry in words": ({"sym": "yes"}, {}, ["sym 'yes'", "not true or false"]),
    "an unknown version": ({"checkpoint_format": "marlin"}, {}, ["'marlin'", "gptq_v2"]),
    "groups that are none": ({}, {"scales": torch.ones(3, 32)}, ["group_size 32", "(3, 32)"]),
    "zero points of others": (
        {},
        {"qzeros": torch.zeros(2, 3, dtype=torch.int32)},
        ["m.qzeros", "(2, 3)", "(2, 4)"],
    ),
    "a cube": ({}, {"qweight": torch.zeros(8, 32, 1, dtype=torch.int32)}, ["m.qweight", "matrices"]),
    "codes of 64 bits": (
        {},
        {"qweight": torch.zeros(8, 32, dtype=torch.int64)},
        ["m.qweight", "I64", "32 bits"],
    ),
    "a group index of others": ({}, {"g_idx": torch.zeros(64, dtype=torch.int64)}, ["m.g_idx", "int32"]),
}


@for_each("what", GPTQ)
def test_a_damaged_weight_is_listed_with_the_reason(what, tmp_path):
    config, pieces, words = GPTQ[what]
    checkpoint = gptq(tmp_path, config, **pieces)
    (problem,) = checkpoint.problems
    assert [word for word in words if word not in problem.sentence] == [], problem
    assert problem.tensors == ("m.weight",)
    tensor = checkpoint.tensors["m.weight"]
    assert tensor.storage == "can't be read"
    for access in (tensor.read, tensor.codes, tensor.scale, tensor.quantized, lambda: tensor.locate((0, 0))):
        with pytest.raises(QuantError) as caught:
            access()
        assert str(caught.value) == problem.sentence


def test_a_group_index_beyond_the_groups(tmp_path):
    tensor = gptq(tmp_path, g_idx=torch.full((64,), 2, dtype=torch.int32)).tensors["m.weight"]
    with pytest.raises(QuantError, match="names the groups 2 to 2, but there are scales for 2 groups"):
        tensor.read()


def test_awq_versions_are_named(tmp_path):
    pieces = {"qweight": torch.zeros(64, 4, dtype=torch.int32), "g_idx": None}
    for version, words in (("gemv_fast", "AWQ's version 'gemv_fast'"), ("gemv", "take (64, 32) in AWQ's version gemv")):
        checkpoint = gptq(tmp_path, {"quant_method": "awq", "version": version}, **pieces)
        assert words in checkpoint.problems[0].sentence


def test_shapes_that_lie(tmp_path):
    """weight_shape is stored data, so it is checked against the shape of the packed codes."""
    weights = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "channel"}
    for shape in ([4, 2**40], [2**40, 16], [4, 0], [4, -8], [4, 17]):
        pieces = {
            "m.weight_packed": torch.zeros(4, 2, dtype=torch.int32),
            "m.weight_scale": torch.ones(4, 1),
            "m.weight_shape": torch.tensor(shape),
        }
        tensor = compressed(tmp_path, pieces, **weights).tensors["m.weight"]
        with pytest.raises(QuantError, match=r"m\.weight_"):
            tensor.read()


def test_patterns_of_a_config_can_not_take_forever(tmp_path):
    """Targets are regular expressions from a file; those that could take exponential time are refused."""
    weights = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "channel"}
    groups = {
        "a": {"targets": ["re:(a+)+$"], "weights": weights},
        "b": {"targets": ["Linear"], "weights": weights | {"strategy": "tensor"}},
    }
    config = {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": groups}
    name = "a" * 60 + "b"
    pieces = {
        f"{name}.weight_packed": torch.zeros(4, 2, dtype=torch.int32),
        f"{name}.weight_scale": torch.ones(4, 1),
        f"{name}.weight_shape": torch.tensor([4, 16]),
    }
    with in_seconds(5):
        (problem,) = release(tmp_path, pieces, {"quantization_config": config}).problems
        assert "pattern '(a+)+$'" in problem.sentence


def test_odd_parameters_are_held_as_they_are(tmp_path):
    """Zero, negative, NaN and infinite scales are read, reported and traced as they are, not replaced."""
    import quantcore as qc

    scales = torch.ones(2, 32, dtype=torch.float16)
    scales[0, :5] = torch.tensor([0, -0.5, float("nan"), float("inf"), 6e-8])
    codes = torch.full((8, 32), 0x76543210, dtype=torch.int32)
    tensor = gptq(tmp_path, scales=scales, qweight=codes).tensors["m.weight"]
    values, result = tensor.read(), tensor.quantized()
    expected = (tensor.codes().float() - 1) * scales.float().T.repeat_interleave(32, 1)
    assert torch.equal(values.nan_to_num(7), expected.nan_to_num(7))
    assert qc.report(result).codes_used == 8
    for row in range(6):
        trace = qc.trace(result, (row, 3))
        assert trace.scale == pytest.approx(scales[0, row].item(), nan_ok=True)
        assert trace.steps()


IMATRIX = checkpoint_cases.case("imatrix").release
SOURCES = {
    **{
        str(case): case.release
        for case in checkpoint_cases.cases("gguf_", "bad_gguf", "bad_q5k")
        if case.record["path"]
    },
    "imatrix.gguf": IMATRIX / "imatrix.gguf",
    "imatrix.dat": IMATRIX / "imatrix.dat",
}
MOST_SECONDS, MOST_BYTES = 10, 64 * 2**20


def run(count, seed, folder):
    generator = random.Random(seed)
    contents = {name: path.read_bytes() for name, path in SOURCES.items()}
    contents["all types"] = all_types(seed=3, rows=1, blocks=1)[0]
    tracemalloc.start()
    try:
        for number in range(count):
            name = generator.choice(list(contents))
            content = contents[name]
            path = folder / f"{number}{'.dat' if name.endswith('.dat') else '.gguf'}"
            path.write_bytes(damage(content, generator, min(len(content), 1300)))
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            with in_seconds(MOST_SECONDS, (number, seed, name)):
                try:
                    sentences = exercise(path)
                except Exception as error:
                    raise AssertionError(f"case {number} of seed {seed} ({name})") from error
            assert tracemalloc.get_traced_memory()[1] - before < MOST_BYTES, (number, seed, name)
            assert all("\n" not in said and len(said) < 600 for said in sentences), (number, seed, name)
            path.unlink()
    finally:
        tracemalloc.stop()


def test_damaged_files_get_an_answer(tmp_path):
    run(5, 1, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 12))
def test_many_damaged_files_get_an_answer(seed, tmp_path):
    run(1000, seed, tmp_path)
