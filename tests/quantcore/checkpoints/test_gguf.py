"""GGUF checkpoints: golden files, the exact bytes read of headers, splits, imatrix files, and corrupt headers."""

import itertools
import math
import shutil

import checkpoint_cases
import numpy as np
import pytest
from bounded import in_seconds
from gguf_bytes import ARRAY, IDS, STRING, U16, U32, U64, all_types, gguf, info
from grid import for_each

from quantcore.checkpoints import encode, open_checkpoint
from quantcore.checkpoints.containers.gguf_header import KEPT, LongArray
from quantcore.errors import QuantError

F32, Q4_K = IDS["F32"], IDS["Q4_K"]
CASES = [case for case in checkpoint_cases.sound() if case.record["format"].startswith("gguf")]


@for_each("case", CASES, ids=str)
def test_listing_reads_the_header_and_no_other_byte(case):
    checkpoint = open_checkpoint(case.release)
    assert checkpoint.problems == ()
    assert checkpoint.format == "gguf"
    firsts = {}
    for record in case.record["tensors"].values():
        if "file" in record:
            firsts[record["file"]] = min(record["data_offset"], firsts.get(record["file"], 10**9))
    if firsts:  # padding of less than an alignment lies between the header and the first tensor
        assert sum(firsts.values()) - 32 * len(firsts) < checkpoint.counter.total <= sum(firsts.values())
    assert checkpoint.counter.reads < 20 * max(1, len(firsts))


def test_a_model_of_70_billion_parameters_is_listed_at_once(tmp_path):
    tokens = [f"{i:x}" for i in range(32_064)]
    keys = [
        ("tokenizer.ggml.tokens", ARRAY, (STRING, tokens)),
        ("tokenizer.chat_template", STRING, "x" * 5000),
    ]
    infos, offset = [], 0
    sizes = {"attn_q": (8192, 8192), "attn_k": (8192, 1024), "ffn_up": (8192, 28672), "ffn_gate": (8192, 28672),
             "ffn_down": (28672, 8192), "attn_v": (8192, 1024), "attn_output": (8192, 8192)}  # fmt: skip
    for block, (name, dims) in itertools.product(range(80), sizes.items()):
        infos.append(info(f"blk.{block}.{name}.weight", dims, Q4_K, offset))
        offset += dims[0] * dims[1] // 256 * 144
    file = tmp_path / "model.gguf"
    with file.open("wb") as data:
        data.write(gguf(infos, keys=keys))
        data.truncate(data.tell() + offset)  # sparse, so it takes no space on disk
    with in_seconds(10):
        checkpoint = open_checkpoint(file)
    assert checkpoint.counter.total == len(gguf(infos, keys=keys, alignment=1))
    assert checkpoint.counter.reads < 60
    assert sum(math.prod(t.shape) for t in checkpoint.tensors.values()) > 68 * 10**9
    before = checkpoint.counter.total
    assert not checkpoint.tensors["blk.79.ffn_up.weight"].read(slice(28_671, 28_672)).any()
    assert checkpoint.counter.total - before == 8192 // 256 * 144


def test_rows_are_read_alone():
    checkpoint = open_checkpoint(checkpoint_cases.case("gguf_k").release)
    before = checkpoint.counter.total
    checkpoint.tensors["blk.0.attn_v.weight"].read(slice(3, 5))  # Q4_K, each row one block of 144 bytes
    assert checkpoint.counter.total - before == 2 * 144


def test_config_and_tensors_of_a_file(tmp_path):
    tokens = [f"token {i}" for i in range(3000)]
    keys = [
        ("general.architecture", STRING, "llama"),
        ("llama.block_count", U32, 2),
        ("tokenizer.ggml.tokens", ARRAY, (STRING, tokens)),
        ("tokenizer.ggml.types", ARRAY, (U32, list(range(3000)))),
        ("general.tags", ARRAY, (STRING, ["a", "ü"])),
    ]
    file = tmp_path / "model.gguf"
    infos = [info("a", (4, 2), IDS["F32"], 0)]
    file.write_bytes(gguf(infos, np.arange(8, dtype="<f4").tobytes(), keys))
    checkpoint = open_checkpoint(file)
    assert checkpoint.config["llama.block_count"] == 2
    assert checkpoint.config["general.tags"] == ["a", "ü"]
    assert checkpoint.config["tokenizer.ggml.tokens"] == LongArray(3000, tuple(tokens[:KEPT]))
    assert checkpoint.config["tokenizer.ggml.types"] == LongArray(3000, tuple(range(KEPT)))
    assert checkpoint.counter.total == len(gguf(infos, keys=keys, alignment=1))
    assert checkpoint.counter.reads < 60
    assert checkpoint.tensors["a"].read().tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_a_quantized_result_dequantizes_to_the_values(tmp_path):
    content, names = all_types(seed=1)
    file = tmp_path / "all.gguf"
    file.write_bytes(content)
    checkpoint = open_checkpoint(file)
    for name in names:
        tensor = checkpoint.tensors[name]
        values = tensor.read()
        result = tensor.quantized()
        assert np.array_equal(result.dequantized.numpy(), values.numpy()), name
        assert np.array_equal(result.codes.numpy(), tensor.codes().numpy()), name
        assert not result.error.any()


def test_one_dimensional_blocks_are_cut_within(tmp_path):
    kind = IDS["Q4_0"]
    data = np.random.default_rng(1).integers(0, 60, 18 * 4, dtype=np.uint8).tobytes()
    file = tmp_path / "model.gguf"
    file.write_bytes(gguf([info("a", (128,), kind, 0), info("none", (32, 0), kind, 96)], data + bytes(24)))
    tensor = open_checkpoint(file).tensors["a"]
    whole = tensor.read()
    assert np.array_equal(tensor.read(slice(40, 41)), whole[40:41])
    assert np.array_equal(tensor.read(slice(30, 100)), whole[30:100])
    assert np.array_equal(tensor.codes(slice(30, 100)), tensor.codes()[30:100])
    assert open_checkpoint(file).tensors["none"].read().shape == (0, 32)
    assert open_checkpoint(file).tensors["none"].codes().shape == (0, 32)
    assert encode(open_checkpoint(file).tensors["none"]) == {"none": b""}


@for_each("dims", [(), (0,), (1,), (0, 4), (4, 0)], ids=str)
def test_floats_of_few_elements(dims, tmp_path):
    file = tmp_path / "model.gguf"
    file.write_bytes(gguf([info("a", dims, F32, 0)], bytes(4)))
    tensor = open_checkpoint(file).tensors["a"]
    assert tensor.read().shape == tensor.shape == dims[::-1]
    assert encode(tensor) == {"a": bytes(4 * math.prod(dims))}


def test_a_file_of_a_vocabulary_has_no_tensors(tmp_path):
    file = tmp_path / "vocabulary.gguf"
    file.write_bytes(gguf([], keys=[("general.architecture", STRING, "llama")]))
    checkpoint = open_checkpoint(file)
    assert (checkpoint.format, checkpoint.tensors, checkpoint.problems) == ("gguf", {}, ())


SPLIT = checkpoint_cases.case("gguf_split")


@for_each("part", SPLIT.record["files"])
def test_a_split_model_opens_by_any_part(part):
    checkpoint = open_checkpoint(SPLIT.release.parent / part)
    assert list(checkpoint.tensors) == list(SPLIT.record["tensors"])
    assert checkpoint.config["general.architecture"] == "llama"
    assert checkpoint_cases.differences(SPLIT, checkpoint) == []


def test_a_missing_part_is_named(tmp_path):
    shutil.copytree(SPLIT.release.parent, tmp_path, dirs_exist_ok=True)
    (tmp_path / SPLIT.record["files"][1]).unlink()
    checkpoint = open_checkpoint(tmp_path)
    assert [p.kind for p in checkpoint.problems] == ["missing_shard"]
    assert "'gguf_split-00002-of-00003.gguf' is missing" in checkpoint.problems[0].sentence
    assert list(checkpoint.tensors) == [
        n for n, r in SPLIT.record["tensors"].items() if "00002" not in r["file"]
    ]


def test_parts_that_do_not_belong_together(tmp_path):
    first, second, third = SPLIT.record["files"]
    shutil.copytree(SPLIT.release.parent, tmp_path, dirs_exist_ok=True)
    shutil.copy(tmp_path / third, tmp_path / second)
    assert "is part 3 of 3, but its name does not say so" in open_checkpoint(tmp_path).problems[0].sentence
    (tmp_path / "other-00001-of-00004.gguf").write_bytes((tmp_path / first).read_bytes())
    with pytest.raises(QuantError, match="has 2 GGUF models"):
        open_checkpoint(tmp_path)
    with pytest.raises(QuantError, match="is part 1 of 3, but its name"):
        open_checkpoint(tmp_path / "other-00001-of-00004.gguf")


def test_parts_that_lack_tensors(tmp_path):
    keys = [("split.no", U16, 0), ("split.count", U16, 1), ("split.tensors.count", U32, 7)]
    file = tmp_path / "m-00001-of-00001.gguf"
    file.write_bytes(gguf([info("a", (4,), IDS["F32"], 0)], bytes(16), keys))
    assert "hold 1 tensors, but claim 7" in open_checkpoint(file).problems[0].sentence


IMATRIX = checkpoint_cases.case("imatrix")


def test_imatrix_in_both_forms():
    for name, key in (("imatrix.gguf", "mean_square"), ("imatrix.dat", "mean_square_dat")):
        checkpoint = open_checkpoint(IMATRIX.release / name)
        assert checkpoint.format == "imatrix"
        assert checkpoint.config["imatrix.chunk_count"] == 7
        assert checkpoint.config["imatrix.datasets"] == ["calibration_v3.txt"]
        assert sorted(checkpoint.tensors) == sorted(IMATRIX.record["tensors"])
        for weight, tensor in checkpoint.tensors.items():
            expected = IMATRIX.expected[f"{weight}|{key}"]
            want = expected.reshape(1, -1) if name == "imatrix.dat" else expected  # .dat has no shapes
            assert np.array_equal(tensor.read().numpy(), want)
            assert np.array_equal(tensor.stored()["mean_square"].numpy(), want)
            if name == "imatrix.gguf":
                assert np.array_equal(tensor.stored()["counts"].numpy(), IMATRIX.expected[f"{weight}|counts"])
            with pytest.raises(QuantError, match="has no codes"):
                tensor.codes()


def test_damaged_imatrix_files(tmp_path):
    content = (IMATRIX.release / "imatrix.dat").read_bytes()
    file = tmp_path / "imatrix.dat"
    for damaged, sentence in (
        (b"\xff" * 40, "does not begin like an imatrix file"),
        (content[:4] + b"\xff\xff\xff\x7f" + content[8:], "claims a name of 2,147,483,647 bytes"),
        (content[:4000], "which is not possible in a file of"),
        (content[:31] + b"\xff\xff\xff\x7f" + content[35:], "claims 2,147,483,647 values"),
    ):
        file.write_bytes(damaged)
        with pytest.raises(QuantError, match=sentence):
            open_checkpoint(file)


def test_a_count_of_tensors_that_can_not_be():
    with pytest.raises(QuantError, match="tensor count of 1,152,921,504,606,846,976"):
        open_checkpoint(checkpoint_cases.case("bad_gguf_tensor_count").release)


GOOD = info("a", (4,), F32, 0)
DAMAGED = {
    "not gguf": (b"GGML" + bytes(60), "does not begin like a GGUF file"),
    "empty": (b"", "does not begin like a GGUF file"),
    "version 1": (gguf([GOOD], bytes(16), version=1), "is a GGUF file of version 1, which has no reader here"),
    "version 2": (gguf([GOOD], bytes(16), version=2), "is a GGUF file of version 2, which has no reader here"),
    "version 4": (gguf([GOOD], bytes(16), version=4), "is a GGUF file of version 4, which has no reader here"),
    "big-endian": (gguf([GOOD], bytes(16), version=0x03000000), "big-endian GGUF file"),
    "keys": (gguf([GOOD], bytes(16), num_keys=2**63), "claims a key count of 9,223,372,036,854,775,808"),
    "more tensors": (gguf([GOOD], bytes(16), tensors=3), "is truncated: its header goes on"),
    "long key": (gguf([], b"", [("k" * 9, U32, 1)]).replace(b"\x09\0\0\0\0", b"\x09\0\0\0\x09"), "is truncated: its header"),
    "long text": (gguf([GOOD], keys=[("k", STRING, "x")]).replace(b"\x01\0\0\0\0\0\0\0x", b"\xff" * 8 + b"x"), "header"),
    "long array": (
        gguf([GOOD], keys=[("k", ARRAY, (U32, [1]))]).replace(b"\x04\0\0\0\x01\0\0\0\0\0\0\0", b"\x04\0\0\0" + b"\xff" * 7 + b"\0"),
        "truncated: its header goes on for at least",
    ),
    "array of arrays": (gguf([GOOD], keys=[("k", ARRAY, (ARRAY, []))]), "is an array of type 9"),
    "unknown value": (gguf([GOOD], keys=[("k", U32, 1)]).replace(b"k\x04", b"k\x63"), "has the unknown type 99"),
    "two keys": (gguf([GOOD], bytes(16), [("k", U32, 1), ("k", U32, 1)]), "has the key 'k' twice"),
    "key not utf-8": (gguf([GOOD], bytes(16), [(b"\xff\xfe", U32, 1)]), "A key of .* is not UTF-8"),
    "name not utf-8": (gguf([info(b"\xff", (4,), F32, 0)], bytes(16)), "The name of a tensor of .* is not UTF-8"),
    "five axes": (gguf([info("a", (1,) * 5, F32, 0)], bytes(16)), "claims 5 axes"),
    "many axes": (gguf([info("a", (1,), F32, 0, axes=2**31)], bytes(64)), "claims 2,147,483,648 axes"),
    "2^63 elements": (gguf([info("a", (2**40, 2**40), F32, 0)], bytes(64)), r"claims 2\^48 elements or more"),
    "negative axis": (gguf([info("a", (2**64 - 4,), F32, 0)], bytes(64)), r"claims 2\^48 elements or more"),
    "no elements": (gguf([info("a", (0, 2**61), F32, 0)], bytes(64)), r"claims 2\^48 elements or more"),
    "hidden product": (gguf([info("a", (2**62, 0, 2**62), F32, 0)], bytes(64)), r"claims 2\^48 elements or more"),
    "two tensors": (gguf([GOOD, GOOD], bytes(16)), "duplicate name: two tensors are called 'a'"),
    "overlap": (gguf([info("a", (16,), F32, 0), info("b", (4,), F32, 32)], bytes(64)), "'a' and 'b' overlap"),
    "unaligned": (gguf([info("a", (4,), F32, 4)], bytes(64)), "begins at the offset 4, which is not a multiple"),
    "out of the file": (gguf([info("a", (4,), F32, 2**40)], bytes(16)), "is truncated: the tensor 'a' ends beyond the file"),
    "negative offset": (gguf([info("a", (4,), F32, 2**64 - 32)], bytes(16)), "the tensor 'a' ends beyond the file"),
    "truncated": (gguf([GOOD], bytes(12)), "which has 76 of the expected 80 bytes; download it again"),
    "half a block": (gguf([info("a", (128, 2), Q4_K, 0)], bytes(144)), r"shape \(2, 128\); rows of Q4_K are multiples of 256"),
    "no row": (gguf([info("a", (), Q4_K, 0)], bytes(144)), r"shape \(\); rows of Q4_K are multiples of 256"),
    "alignment 0": (gguf([GOOD], bytes(16), [("general.alignment", U32, 0)]), "general.alignment '0', which is not a power"),
    "alignment text": (gguf([GOOD], bytes(16), [("general.alignment", STRING, "32")]), "general.alignment '32'"),
    "alignment 24": (gguf([GOOD], bytes(16), [("general.alignment", U32, 24)]), "which is not a power of two"),
    "huge alignment": (gguf([GOOD], bytes(16), [("general.alignment", U64, 2**62)]), "which is not a power of two"),
    "split text": (gguf([GOOD], bytes(16), [("split.count", STRING, "2")]), "are not integers"),
    "split alone": (gguf([GOOD], bytes(16), [("split.count", U16, 2)]), "is part 1 of 2, but its name does not say so"),
}  # fmt: skip


@for_each("damage", DAMAGED)
def test_damaged_headers_get_one_sentence(damage, tmp_path):
    content, sentence = DAMAGED[damage]
    file = tmp_path / "model.gguf"
    file.write_bytes(content)
    with pytest.raises(QuantError, match=sentence) as caught:
        open_checkpoint(file)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_types_without_a_reader_are_named_and_the_others_read(tmp_path):
    infos = [
        info("old", (2**40, 32), 31, 0),
        info("new", (32,), 99, 32),
        info("a", (4,), F32, 64),
        info("q8", (32,), 9, 96),
    ]
    file = tmp_path / "model.gguf"
    file.write_bytes(gguf(infos, bytes(200)))
    checkpoint = open_checkpoint(file)
    assert checkpoint.tensors["a"].read().tolist() == [0, 0, 0, 0]
    for name, says in (("old", "Q4_0_4_4"), ("new", "ggml type 99"), ("q8", "Q8_1")):
        with pytest.raises(QuantError, match=f"has the dtype {says}, which is not supported"):
            checkpoint.tensors[name].read()
    assert [problem.tensors for problem in checkpoint.problems] == [("old",), ("new",), ("q8",)]
