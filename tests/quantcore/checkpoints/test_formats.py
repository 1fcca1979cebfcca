"""Formats beyond the golden checkpoints: other names and versions, places of parameters, unsupported formats."""

import json
import math
import struct

import numpy as np
import pytest
import releases
import torch
from bounded import in_seconds
from checkpoint_cases import case, changed, flipped
from grid import for_each
from safetensors import safe_open
from safetensors.torch import load_file

from quantcore import QuantError, trace
from quantcore.checkpoints import encode, open_checkpoint

RNG = np.random.default_rng(11)
Q = "model.layers.0.self_attn.q_proj.weight"
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)


def release(folder, tensors, config=None, metadata=None):
    """A release with these stored tensors and ``config`` as its quantization_config."""
    return releases.release(folder, tensors, None if config is None else {"quantization_config": config}, metadata)


def stored(name):
    """The stored tensors of a golden checkpoint, and the metadata of its header."""
    file = case(name).release / "model.safetensors"
    with safe_open(file, "pt") as opened:
        return load_file(file), opened.metadata()


def bytes_of(*shape):
    return torch.from_numpy(RNG.integers(0, 256, shape, dtype=np.uint8))


def nibbles(x):
    """The two 4-bit codes of each byte, low bits first."""
    x = x.numpy()
    return np.stack([x & 15, x >> 4], -1).reshape(*x.shape[:-1], -1)


def assert_read(checkpoint, name, wanted):
    tensor = checkpoint.tensors[name]
    assert np.array_equal(tensor.read().numpy(), wanted)
    assert np.array_equal(tensor.read(slice(1, 3)).numpy(), wanted[1:3])
    for piece, data in encode(tensor).items():
        assert bytes(checkpoint.release.stored[piece].bytes()) == data


AUTO_ROUND = {
    "gptq_v1_4bit_g32_asym_desc_act": ("auto-round", "auto_round:auto_gptq"),
    "gptq_v1_3bit_g128": ("intel/auto-round", None),
    "gptq_v2_4bit_g128_sym": ("auto_round", "auto_round:gptqmodel"),
    "awq_gemm_g128": ("auto-round", "auto_round:auto_awq"),
}


@for_each("name", AUTO_ROUND)
def test_auto_round(name, tmp_path):
    """Other libraries' packings under AutoRound's config, which has no checkpoint_format."""
    method, packing = AUTO_ROUND[name]

    def change(config):
        kept = {k: config[k] for k in ("bits", "group_size", "sym") if k in config}
        return kept | {"quant_method": method} | ({"packing_format": packing} if packing else {})

    checkpoint, given = changed(name, tmp_path, {}, change), case(name)
    for weight in given.record["tensors"]:
        assert np.array_equal(checkpoint.tensors[weight].read().numpy(), given.expected[weight])
    assert checkpoint.problems == ()


def test_auto_round_keeps_zero_points(tmp_path):
    """auto_round packing stores zero points unchanged; read as GPTQ v1 they would be one higher."""
    name = "gptq_v1_2bit_g32_asym"
    config = {"quant_method": "auto-round", "packing_format": "auto_round", "bits": 2, "sym": False}
    checkpoint = changed(name, tmp_path, {}, lambda _: config)
    zeros = checkpoint.tensors[Q].zero_point().numpy()
    assert np.array_equal(zeros, (case(name).expected[f"{Q}|zero_point"] - 1) & 3)


@for_each("key", [Q.removesuffix(".weight"), r".*self_attn\.q_proj"])
def test_auto_round_exceptions(key, tmp_path):
    """One module, given by name or pattern, has other bits than the rest."""
    given = case("gptq_v1_8bit_channel")
    config = {"quant_method": "auto-round", "bits": 4, "group_size": 128, "sym": False}
    config["extra_config"] = {key: {"bits": 8, "group_size": -1}}
    checkpoint = changed("gptq_v1_8bit_channel", tmp_path, {}, lambda _: config)
    assert np.array_equal(checkpoint.tensors[Q].read().numpy(), given.expected[Q])


def test_auto_round_as_compressed_tensors(tmp_path):
    given = case("ct_mxfp4")
    config = {"quant_method": "auto-round", "packing_format": "auto_round:llm_compressor", "bits": 4}
    config |= {"data_type": "mx_fp", "group_size": 32, "sym": True}
    checkpoint = changed("ct_mxfp4", tmp_path, {}, lambda _: config)
    for weight in given.record["tensors"]:
        assert np.array_equal(checkpoint.tensors[weight].read().numpy(), given.expected[weight])


def test_mlx_5_bits(tmp_path):
    """Each row is one stream of bits, unpacked here as one big integer."""
    words = RNG.integers(0, 2**32, (6, 10), dtype=np.uint32)
    scales, biases = (torch.from_numpy(RNG.standard_normal((6, 2)).astype(np.float32)) for _ in range(2))
    tensors = {
        "m.weight": torch.from_numpy(words.view(np.int32)).view(torch.uint32),
        "m.scales": scales,
        "m.biases": biases,
    }
    checkpoint = release(tmp_path, tensors, {"bits": 5, "group_size": 32})
    rows = [int.from_bytes(row.tobytes(), "little") for row in words]
    codes = np.array([[row >> 5 * i & 31 for i in range(64)] for row in rows], np.float32)
    wanted = codes.reshape(6, 2, 32) * scales.numpy()[..., None] + biases.numpy()[..., None]
    assert_read(checkpoint, "m.weight", wanted.reshape(6, 64))
    assert checkpoint.format == "mlx"


def test_modelopt_int4(tmp_path):
    """Two rows per byte, two's complement; only hf_quant_config.json names the format."""
    packed, scale = bytes_of(4, 64), torch.from_numpy(RNG.random((8, 2)).astype(np.float16))
    (tmp_path / "hf_quant_config.json").write_text(
        json.dumps({"quantization": {"quant_algo": "W4A16_AWQ", "group_size": 32}})
    )
    checkpoint = release(
        tmp_path, {"m.weight": packed, "m.weight_scale": scale, "m.pre_quant_scale": torch.ones(64)}
    )
    codes = np.stack([packed.numpy() & 15, packed.numpy() >> 4], 1).reshape(8, 64).astype(np.float32)
    codes[codes > 7] -= 16
    assert_read(checkpoint, "m.weight", codes * scale.float().numpy().repeat(32, 1))
    assert checkpoint.tensors["m.weight"].storage == "modelopt int4 per_group(32) symmetric"
    assert checkpoint.tensors["m.pre_quant_scale"].storage == "plain float32"


def test_fp8_with_scales_of_one_byte(tmp_path):
    """DeepSeek-V3.1 and V4: E8M0 scales, and experts with two FP4 codes per byte."""
    weight, scale = (
        bytes_of(130, 256) & 0x77,
        torch.from_numpy(RNG.integers(100, 150, (2, 2), dtype=np.uint8)),
    )
    experts, of_experts = bytes_of(8, 64), torch.from_numpy(RNG.integers(100, 150, (8, 4), dtype=np.uint8))
    tensors = {
        "a.weight": weight.view(torch.float8_e4m3fn), "a.scale": scale.view(torch.float8_e8m0fnu),
        "b.weight": experts.view(torch.int8), "b.scale": of_experts.view(torch.float8_e8m0fnu),
    }  # fmt: skip
    checkpoint = release(tmp_path, tensors, {"quant_method": "fp8", "weight_block_size": [128, 128]})
    blocks = np.exp2(scale.numpy().astype(np.float32) - 127).repeat(128, 0).repeat(128, 1)[:130, :256]
    assert_read(checkpoint, "a.weight", weight.view(torch.float8_e4m3fn).float().numpy() * blocks)
    groups = np.exp2(of_experts.numpy().astype(np.float32) - 127).repeat(32, 1)
    assert_read(checkpoint, "b.weight", E2M1[nibbles(experts)] * groups)


def test_fp8_blocks_are_not_derived_from_the_grid(tmp_path):
    tensors = {
        "a.weight": torch.zeros(192, 128).to(torch.float8_e4m3fn),
        "a.weight_scale_inv": torch.ones(3, 1),
    }
    checkpoint = release(tmp_path, tensors, {"quant_method": "fp8", "weight_block_size": [128, 128]})
    (problem,) = checkpoint.problems
    assert all(
        word in problem.sentence
        for word in ("a.weight_scale_inv", "(3, 1)", "(2, 1)", "per_block([128,128])")
    )


def test_gpt_oss_under_its_own_names(tmp_path):
    tensors, _ = stored("gptoss_mxfp4")
    own = {k.replace("_blocks", ".blocks").replace("_scales", ".scales"): v for k, v in tensors.items()}
    checkpoint, given = release(tmp_path, own), case("gptoss_mxfp4")
    name = "model.layers.0.mlp.experts.down_proj"
    assert np.array_equal(checkpoint.tensors[name].read().numpy(), given.expected[name])


def test_bitnet_that_multiplies(tmp_path):
    """Under autobitlinear the same bytes mean other values."""
    checkpoint = changed("bitnet_offline", tmp_path, {}, {"linear_class": "autobitlinear"})
    given = case("bitnet_offline")
    wanted = given.expected[f"{Q}|codes"].astype(np.float32) * given.expected[f"{Q}|scale"]
    assert_read(checkpoint, Q, wanted)
    with pytest.raises(QuantError, match="linear_class"):
        changed("bitnet_offline", tmp_path, {}, {"linear_class": "other"}).tensors[Q].read()


# case -> (role of a parameter, an element, and which rows and columns share its parameter)
SHARED = {
    "torchao_int4": ("zero_point", (5, 200), lambda r, c: (r == 5) & (c // 128 == 1)),
    "hqq_4bit_axis0": ("scale", (3, 17), lambda r, c: (256 * r + c) % 192 == (3 * 256 + 17) % 192),
    "hqq_4bit_axis1": ("zero_point", (3, 200), lambda r, c: (r == 3) & (c // 64 == 3)),
    "quanto_qint4": ("zero_point", (3, 200), lambda r, c: (r == 3) & (c // 128 == 1)),
    "bnb_nf4": ("scale", (3, 100), lambda r, c: (r == 3) & (c // 64 == 1)),
    "bnb_nf4_nested": ("nested_absmax", (70, 0), lambda r, c: (256 * r + c) // (64 * 256) == 1),
    "bnb_int8": ("scale", (7, 9), lambda r, c: r == 7),
    "modelopt_nvfp4": ("scale_code", (3, 40), lambda r, c: (r == 3) & (c // 16 == 2)),
    "bitnet_offline": ("scale", (9, 9), lambda r, c: r >= 0),
    "mlx_affine_4bit": ("scale", (9, 70), lambda r, c: (r == 9) & (c // 64 == 1)),
    "deepseek_fp8": ("scale", (299, 149), lambda r, c: (r >= 256) & (c >= 128)),
}  # fmt: skip


@for_each("name", SHARED)
def test_places_of_parameters(name, tmp_path):
    """Flipping a bit of a parameter changes only the values of elements that use it."""
    role, index, shared = SHARED[name]
    given = case(name)
    tensor = open_checkpoint(given.release).tensors[Q]
    place = tensor.locate(index).parameters[role]
    other = flipped(given, place, len(place.bits) - 3, tmp_path).tensors[Q]
    changed = tensor.read(rounded=False).numpy() != other.read(rounded=False).numpy()
    own = shared(*np.indices(tensor.shape))
    assert not changed[~own].any()
    assert changed[own].mean() > 0.3  # elements with code 0 stay 0
    assert changed[index] or tensor.read()[index] == 0


def test_the_table_of_codes_has_a_place(tmp_path):
    """bitsandbytes stores its table: changing an entry changes every element with that code."""
    given = case("bnb_fp4")
    tensor = open_checkpoint(given.release).tensors[Q]
    codes = tensor.codes().numpy()
    index = tuple(int(i) for i in np.argwhere(codes == 5)[0])
    other = flipped(given, tensor.locate(index).parameters["quant_map"], 20, tmp_path).tensors[Q]
    assert ((tensor.read() != other.read()).numpy() == (codes == 5)).all()
    assert "codebook(" in str(other.quantized().scheme)


def test_what_half_precision_does_is_said():
    """HQQ rounds each operation to float16; the trace and the scheme say so."""
    result = open_checkpoint(case("hqq_4bit_axis1").release).tensors[Q].quantized()
    step = trace(result, (0, 0)).steps()[-2]
    assert " in float16" in step.formula
    assert "decoding_dtype=float16" in str(result.scheme)


@for_each(
    "name", ["hqq_4bit_axis1", "mlx_affine_4bit", "quanto_qint4", "torchao_int4", "bnb_int8"]
)
def test_rounding_a_value_gives_its_code(name):
    """With float zero points, biases and shifts, the trace of a weight's own values ends in the stored codes."""
    result = open_checkpoint(case(name).release).tensors[Q].quantized()
    for index in RNG.integers(0, result.x.shape, (20, 2)).tolist():
        assert trace(result, index).overflow is None


def test_hqq_texts_are_not_evaluated(tmp_path):
    """Its own loader calls eval on compute_dtype."""
    tensors, _ = stored("hqq_4bit_axis1")
    mark = tmp_path / "executed"
    for text in (f"open({str(mark)!r}, 'w')", "torch.float64", "torch.float16.__class__", ""):
        tensors[f"{Q.removesuffix('.weight')}.compute_dtype"] = torch.tensor(
            list(text.encode()), dtype=torch.uint8
        )
        tensor = release(tmp_path, tensors).tensors[Q]
        with pytest.raises(QuantError, match="compute_dtype"):
            tensor.read()
    assert not mark.exists()


HQQ_DAMAGE = {
    "nbits": torch.tensor(7), "axis": torch.tensor(2), "group_size": torch.tensor(-3), "shape": torch.tensor([0, 5]),
    "packing": torch.tensor(list(b"5bit_u8"), dtype=torch.uint8), "scale": torch.zeros(3, 1),
}  # fmt: skip


@for_each("part", HQQ_DAMAGE)
def test_damaged_hqq(part, tmp_path):
    tensors, _ = stored("hqq_4bit_axis1")
    tensors[f"{Q.removesuffix('.weight')}.{part}"] = HQQ_DAMAGE[part]
    checkpoint = release(tmp_path, tensors)
    with pytest.raises(QuantError, match=part):
        checkpoint.tensors[Q].read()
    assert checkpoint.tensors["model.embed_tokens.weight"].read().shape == (16, 256)


STATES = {
    "not JSON": (b"{", "not JSON"),
    "a list": (b"[1]", "JSON object"),
    "no text": (b"\xff\xfe", "JSON object"),
    "another shape": (b'{"shape": [1048576, 1048576], "dtype": "bfloat16", "blocksize": 64}', "takes? "),
    "a shape of 2^96": (
        b'{"shape": [281474976710655, 281474976710655], "dtype": "bfloat16", "blocksize": 64}',
        "take",
    ),
    "blocks of 0": (b'{"shape": [48, 256], "dtype": "bfloat16", "blocksize": 0}', "blocksize"),
    "a dtype of its own": (b'{"shape": [48, 256], "dtype": "load", "blocksize": 64}', "dtype"),
}


@for_each("what", STATES)
def test_damaged_bitsandbytes(what, tmp_path):
    text, words = STATES[what]
    tensors, _ = stored("bnb_nf4")
    tensors[f"{Q}.quant_state.bitsandbytes__nf4"] = torch.tensor(list(text), dtype=torch.uint8)
    tensor = release(tmp_path, tensors).tensors[Q]
    with pytest.raises(QuantError, match=words):
        tensor.read()


def test_bitsandbytes_without_scales(tmp_path):
    tensors, _ = stored("bnb_nf4")
    del tensors[f"{Q}.absmax"]
    (problem,) = release(tmp_path, tensors).problems
    assert "The absmax of" in problem.sentence
    assert Q in problem.sentence


def test_int8_in_the_order_of_tensor_cores(tmp_path):
    tensors, _ = stored("bnb_int8")
    tensors[f"{Q}_format"] = torch.tensor(2, dtype=torch.uint8)
    with pytest.raises(QuantError, match="tensor cores"):
        release(tmp_path, tensors).tensors[Q].read()


TORCHAO = {
    "Int4TilePackedTo4dTensor": ("torchao_int4", '"Int4Tensor"', '"Int4TilePackedTo4dTensor"', "tile-packed"),
    "tiles": ("torchao_nvfp4", '"is_swizzled_scales": false', '"is_swizzled_scales": true', "whole tiles of 128 × 4"),
    "no word on tiles": ("torchao_nvfp4", '"is_swizzled_scales"', '"is_other"', "is_swizzled_scales"),
    "unknown": ("torchao_int8", '"Int8Tensor"', '"FrobTensor"', "FrobTensor"),
    "a dtype": ("torchao_float8", '"bfloat16"', '"frob16"', "frob16"),
}


@for_each("what", TORCHAO)
def test_torchao_without_a_reader(what, tmp_path):
    name, old, new, words = TORCHAO[what]
    tensors, metadata = stored(name)
    metadata[Q] = metadata[Q].replace(old, new)
    checkpoint = release(tmp_path, tensors, metadata=metadata)
    (problem,) = checkpoint.problems
    assert words in problem.sentence
    assert Q.removesuffix("weight") in problem.sentence
    with pytest.raises(QuantError, match=words):
        checkpoint.tensors[Q].read()
    others = [w for w in case(name).record["tensors"] if w != Q]
    for weight in others:
        assert np.array_equal(checkpoint.tensors[weight].read().numpy(), case(name).expected[weight])


UNREADABLE = {
    "EXL3": ({"m.trellis": torch.zeros(2, 2, 16, dtype=torch.int16), "m.suh": torch.ones(32)}, None),
    "EXL2": (
        {"m.q_weight": torch.zeros(4, 4, dtype=torch.int32), "m.q_groups": torch.zeros(2, dtype=torch.int16)},
        None,
    ),
    "Marlin": ({"m.B": torch.zeros(4, 4, dtype=torch.int32), "m.s": torch.ones(2, 4)}, "gptq"),
    "AQLM": (
        {
            "m.codes": torch.zeros(4, 4, 1, dtype=torch.int8),
            "m.codebooks": torch.ones(4),
            "m.scales": torch.ones(4),
        },
        "aqlm",
    ),
    "VPTQ": ({"m.indices": torch.zeros(4, 4, dtype=torch.int32)}, "vptq"),
    "frobnicate": (
        {"m.w_froz": torch.zeros(4, 4, dtype=torch.int32), "m.scales": torch.ones(4)},
        "frobnicate",
    ),
}


@for_each("what", UNREADABLE)
def test_what_has_no_reader_is_named(what, tmp_path):
    """One sentence names what is not supported; the other tensors in the file are read."""
    tensors, method = UNREADABLE[what]
    plain = {"m.bias": torch.arange(4.0), "norm.weight": torch.arange(3.0)}
    checkpoint = release(tmp_path, tensors | plain, {"quant_method": method} if method else None)
    (problem,) = checkpoint.problems
    assert what in problem.sentence
    assert problem.severity == "error"
    assert sorted(checkpoint.tensors) == ["m.bias", "m.weight", "norm.weight"]
    assert checkpoint.tensors["norm.weight"].read().tolist() == [0, 1, 2]
    with pytest.raises(QuantError, match=what):
        checkpoint.tensors["m.weight"].read()


def test_an_unknown_method():
    checkpoint = open_checkpoint(case("bad_unknown_quant_method").release)
    (problem,) = checkpoint.problems
    assert "frobnicate" in problem.sentence
    assert list(checkpoint.tensors) == [Q]
    with pytest.raises(QuantError, match="frobnicate"):
        checkpoint.tensors[Q].read()


def test_a_missing_scale_of_the_tensor():
    given = case("bad_missing_weight_scale_2")
    checkpoint = open_checkpoint(given.release)
    assert np.array_equal(checkpoint.tensors[Q].read().numpy(), given.expected[Q])
    (problem,) = checkpoint.problems
    assert all(word in problem.sentence for word in ("weight_scale_2", "missing", "self_attn.k_proj"))


def test_a_shape_that_no_file_holds_is_said(tmp_path):
    """In quanto's packed weights, groups of 128 may be rows or parts of rows; only the hidden size tells."""
    tensors, _ = stored("quanto_qint4")
    checkpoint = release(tmp_path, tensors)
    tensor = checkpoint.tensors[Q]
    assert tensor.shape == (64, 128)
    assert "a shape that no file of the release holds" in tensor.notes()[0]
    assert open_checkpoint(case("quanto_qint4").release).tensors[Q].notes() == ()


def test_shapes_of_many_groups_are_found_at_once(tmp_path):
    """A header may claim 2^27 groups, and each divisor of that is a possible shape; the file's data is sparse."""
    groups = 1 << 27
    shapes = {
        "_data._data": ("U8", [groups // 2, 128]),
        "_scale": ("BF16", [groups, 1]),
        "_shift": ("BF16", [groups, 1]),
    }
    header, end = {}, 0
    for last, (dtype, shape) in shapes.items():
        start, end = end, end + math.prod(shape) * (1 if dtype == "U8" else 2)
        header[f"m.weight.{last}"] = {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    with open(tmp_path / "model.safetensors", "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        out.truncate(8 + len(text) + end)
    with in_seconds(5):
        assert open_checkpoint(tmp_path).tensors["m.weight"].shape == (groups, 128)


@for_each("each", [1, 2, 4, 6, 9, 36])
def test_every_number_of_groups_in_a_row_that_divides_theirs(each, tmp_path):
    """The hidden size tells how many of the 36 groups make up a row."""
    tensors = {
        "q_proj.weight._data._data": torch.zeros(18, 128, dtype=torch.uint8),
        "q_proj.weight._scale": torch.ones(36, 1).bfloat16(),
        "q_proj.weight._shift": torch.ones(36, 1).bfloat16(),
    }
    (tmp_path / "config.json").write_text(json.dumps({"hidden_size": 128 * each}))
    tensor = release(tmp_path, tensors).tensors["q_proj.weight"]
    assert tensor.shape == (36 // each, 128 * each)
    assert not tensor.notes()


def test_listing_reads_headers_alone():
    """Even where shapes and dtypes are stored next to the weights; these are read on demand."""
    for name in (
        "bnb_nf4_nested",
        "hqq_2bit",
        "torchao_mx",
        "quanto_qint4",
        "mlx_mxfp4",
        "gptoss_mxfp4",
        "bnb_int8",
    ):
        checkpoint = open_checkpoint(case(name).release)
        file = case(name).release / "model.safetensors"
        header = int.from_bytes(file.read_bytes()[:8], "little") + 8
        others = sum(f.stat().st_size for f in file.parent.iterdir() if f.suffix == ".json")
        assert checkpoint.counter.total <= header + others + 16, name
        before = checkpoint.counter.total
        checkpoint.tensors["model.embed_tokens.weight"].read(slice(3, 4))
        assert checkpoint.counter.total - before == 512


def test_rows_are_read_alone(tmp_path):
    """Reading one row reads only the bytes with its codes, and the scale."""
    packed, rows, columns = bytes_of(512, 2048), 2048, 2048
    tensors = {"m.weight": packed, "m.weight_scale": torch.ones(1)}
    checkpoint = release(tmp_path, tensors, {"quant_method": "bitnet", "linear_class": "autobitlinear"})
    before = checkpoint.counter.total
    row = checkpoint.tensors["m.weight"].read(slice(1500, 1501))
    assert checkpoint.counter.total - before == columns + 4
    expected = (packed[1500 - 1024].numpy() >> 4 & 3).astype(np.float32) - 1
    assert np.array_equal(row[0].numpy(), expected)
    assert checkpoint.tensors["m.weight"].shape == (rows, columns)


@for_each(
    ("dtype", "method", "storage"),
    [(torch.uint8, "bitnet", "bitnet ternary"), (torch.uint8, None, "plain uint8"), (torch.float32, "bitnet", "plain float32"), (torch.float32, None, "plain float32")],
)
def test_which_weights_are_bitnets(dtype, method, storage, tmp_path):
    """Bytes with a scale, in a release that says it is quantized."""
    given = {"m.weight": torch.arange(32).reshape(4, 8).to(dtype), "m.weight_scale": torch.ones(1)}
    tensors = release(tmp_path, given, {"quant_method": method} if method else None).tensors
    assert tensors["m.weight"].storage.startswith(storage)
