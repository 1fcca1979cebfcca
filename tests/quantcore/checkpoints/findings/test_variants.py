"""Variants of layouts that no golden checkpoint has, written here with known codes; what parameters show, in numbers."""

import numpy as np
import pytest
import releases
import torch
from checkpoint_cases import case, changed
from gguf_bytes import IDS, STRING, gguf, info
from grid import for_each
from releases import compressed, release
from safetensors.torch import load_file
from suspects import GROUP, M, W, awq_of, weight

from quantcore.checkpoints import open_checkpoint
from quantcore.checkpoints.containers.onnx import Node, OnnxGraph, OnnxType
from quantcore.checkpoints.containers.stored import StoredTensor
from quantcore.checkpoints.findings import of_parameters
from quantcore.checkpoints.findings.stored import FEW, scale_boxes
from quantcore.checkpoints.layouts import onnx
from quantcore.checkpoints.layouts.compressed_tensors import choose, read_groups
from quantcore.checkpoints.layouts.onnx import Use
from quantcore.checkpoints.layouts.quanto import _columns, _divisors, _group_size
from quantcore.checkpoints.protocol.config import Patterns
from quantcore.errors import QuantError
from quantcore.granularity import PerBlock, PerChannel, PerGroup, PerTensor
from tests.quantcore.checkpoints.findings.test_findings import members

Q = "model.layers.0.self_attn.q_proj"


def text(word):
    return torch.tensor(list(word.encode()), dtype=torch.uint8)


def hqq(folder, codes, scales, zeros, **changes):
    """An HQQ weight of 8 bits without groups, unless changed; numbers and words as HQQ writes them."""
    found = {
        "W_q": codes, "scale": scales, "zero": zeros, "shape": torch.tensor(codes.shape), "nbits": torch.tensor(8, dtype=torch.int32),
        "axis": torch.tensor(0, dtype=torch.int32), "packing": text("8bit_u8"), "compute_dtype": text("torch.float32"),
    } | changes  # fmt: skip
    tensors = {f"m.{k}": v for k, v in found.items() if v is not None}
    return release(folder, tensors, {"quantization_config": {"quant_method": "hqq"}}).tensors["m.weight"]


def test_hqq_without_groups(tmp_path):
    """A scale per column (axis 0), per row (axis 1), or one for all."""
    generator = np.random.default_rng(1)
    codes = generator.integers(0, 256, (6, 8), dtype=np.uint8)
    for axis, shape, storage in (
        (0, (1, 8), "per_channel(1)"),
        (1, (6, 1), "per_channel(0)"),
        (0, (1, 1), "per_tensor"),
        (1, (1, 1), "per_tensor"),
    ):
        scale, zero = (
            generator.normal(size=shape).astype(np.float32),
            generator.integers(1, 255, shape).astype(np.float32),
        )
        tensor = hqq(
            tmp_path / f"{axis}{shape}",
            torch.tensor(codes),
            torch.tensor(scale),
            torch.tensor(zero),
            axis=torch.tensor(axis, dtype=torch.int32),
        )
        wanted = (codes - zero) * scale
        assert np.array_equal(tensor.read().numpy(), wanted)
        assert np.array_equal(tensor.read(slice(2, 5)).numpy(), wanted[2:5])
        assert (
            f"{tensor.layout.granularity}".lower()
            .replace("axis=", "")
            .startswith(storage.replace("_", "")[:9])
        )
        assert storage in tensor.storage
        assert tensor.layout.granularity == (
            PerChannel(1 - axis) if "channel" in storage else tensor.layout.granularity
        )
        index = (4, 5)
        place = tensor.locate(index).parameters["scale"]
        at = np.unravel_index((place.bits[0][0] - tensor.layout.pieces["scale"].offset) // 4, shape)
        assert scale[at] == np.broadcast_to(scale, (6, 8))[index]


@for_each(
    ("rows", "columns", "size"), [(6, 8, 4), (6, 8, 16), (3, 16, 8), (5, 12, 20), (4, 6, 3)]
)  # fmt: skip
def test_hqq_groups_along_columns(rows, columns, size, tmp_path):
    """Flat element i is in group i mod the number of groups; also where groups and rows don't fit each other."""
    generator = np.random.default_rng(2)
    groups = rows * columns // size
    codes = generator.integers(0, 256, (size, groups), dtype=np.uint8)
    scale, zero = (generator.normal(size=(1, groups)).astype(np.float32) for _ in range(2))
    tensor = hqq(
        tmp_path, torch.tensor(codes), torch.tensor(scale), torch.tensor(zero), group_size=torch.tensor(size, dtype=torch.int32),
        shape=torch.tensor([rows, columns]),
    )  # fmt: skip
    wanted = ((codes - zero) * scale).reshape(rows, columns)
    assert np.array_equal(tensor.read().numpy(), wanted)
    for start, stop in ((0, 1), (1, 3), (rows - 1, rows), (2, rows)):
        assert np.array_equal(tensor.read(slice(start, stop)).numpy(), wanted[start:stop])
    if groups > 1:
        assert tensor.layout.granularity == PerBlock((1, 1))
        assert (
            tensor.layout.group_index().tolist()
            == (np.arange(rows * columns) % groups).reshape(rows, columns).tolist()
        )
    for index in ((0, 0), (rows - 1, columns - 1), (2, 5)):
        place = tensor.locate(index).parameters["zero_point"]
        flat = (place.bits[0][0] - tensor.layout.pieces["zero"].offset) // 4
        assert flat == (index[0] * columns + index[1]) % groups


def test_hqq_codes_viewed_as_floats(tmp_path):
    """The bytes of the codes, which another dtype names."""
    codes = torch.from_numpy(np.random.default_rng(6).integers(0, 256, (6, 8), dtype=np.uint8))
    for dtype in (torch.float16, torch.float32):
        given = {"shape": torch.tensor([6, 8]), "view_as_float": torch.tensor(1, dtype=torch.uint8)}
        tensor = hqq(
            tmp_path / str(dtype),
            codes.view(dtype),
            torch.full((1, 8), 0.5),
            torch.full((1, 8), 3.0),
            **given,
        )
        assert torch.equal(tensor.read(), (codes.float() - 3) * 0.5)


BAD_HQQ = {
    "nbits": {"nbits": torch.tensor(7)}, "packing": {"nbits": torch.tensor(4)}, "axis": {"axis": torch.tensor(2)},
    "group_size": {"group_size": torch.tensor(2.5)}, "shape": {"shape": torch.tensor([6, 0])},
    "nbits of 4 in bytes": {"nbits": torch.tensor(4), "packing": text("8bit_u8")}, "two numbers": {"nbits": torch.tensor([8, 8])},
    "a word that is long": {"packing": text("8" * 65)}, "another word": {"packing": text("9bit_u8")},
    "a word of numbers": {"packing": torch.tensor(3)}, "integer scales": {"scale": torch.ones(1, 8, dtype=torch.int32)},
    "integer zeros": {"zero": torch.ones(1, 8, dtype=torch.int32)}, "one axis": {"shape": torch.tensor([48])},
    "int32 shape": {"shape": torch.tensor([6, 8], dtype=torch.int32)}, "another number of scales": {"scale": torch.ones(1, 7)},
    "another number of zeros": {"zero": torch.ones(1, 4)}, "a group size that does not divide": {"group_size": torch.tensor(5)},
    "no axis": {"axis": None}, "no zero": {"zero": None},
}  # fmt: skip


@for_each("what", BAD_HQQ)
def test_what_hqq_does_not_write(what, tmp_path):
    with pytest.raises(QuantError):
        hqq(
            tmp_path,
            torch.zeros(6, 8, dtype=torch.uint8),
            torch.ones(1, 8),
            torch.ones(1, 8),
            **BAD_HQQ[what],
        ).read()


@pytest.mark.parametrize("bits", [4, 6])
def test_microscaling_of_compressed_tensors(bits, tmp_path):
    """MXFP4 and MXFP6 (E2M3, six bits each, the first in the lowest bits): OCP Microscaling Formats 1.0."""
    codes = np.random.default_rng(3).integers(0, 1 << bits, (4, 64))
    ones = ((codes[..., None] >> np.arange(bits)) & 1).reshape(4, -1, 8)
    packed = (ones << np.arange(8)).sum(-1).astype(np.uint8)
    scale = np.random.default_rng(4).integers(120, 130, (4, 2), dtype=np.uint8)
    mantissa = 1 if bits == 4 else 3
    sign, exponent, rest = codes >> (bits - 1), codes >> mantissa & 3, codes & ((1 << mantissa) - 1)
    value = np.where(exponent == 0, rest / 2**mantissa, (1 + rest / 2**mantissa) * 2.0 ** (exponent - 1)) * (
        1 - 2 * sign
    )
    weights = {"num_bits": bits, "type": "float", "strategy": "group", "group_size": 32}
    stored = {"m.weight_packed": torch.tensor(packed), "m.weight_scale": torch.tensor(scale)}
    tensors = compressed(tmp_path, stored, f"mxfp{bits}-pack-quantized", **weights).tensors
    wanted = value * np.repeat(2.0 ** (scale.astype(float) - 127), 32, 1)
    if bits == 6 and not tensors:
        pytest.skip("not among the formats of the library")
    assert np.array_equal(tensors["m.weight"].read().numpy(), wanted)


def test_gguf_scales_of_outputs(tmp_path):
    """NVFP4 has a tensor beside it by which llama.cpp multiplies products; other types have none."""
    given = case("gguf_ternary_fp4")
    data = given.release.read_bytes()
    infos, body = [], b""
    for name, kind, record in (
        ("a.weight", "NVFP4", "blk.0.attn_output.weight"),
        ("b.weight", "MXFP4", "blk.0.attn_v.weight"),
    ):
        r = given.record["tensors"][record]
        infos.append(info(name, r["shape"][::-1], IDS[kind], len(body)))
        body += data[r["data_offset"] : r["data_offset"] + r["nbytes"]]
        body += bytes(-len(body) % 32)
    for name in ("a.scale", "b.scale"):
        infos.append(info(name, [1], IDS["F32"], len(body)))
        body += np.float32(0.5).tobytes() + bytes(28)
    file = tmp_path / "m.gguf"
    file.write_bytes(gguf(infos, body, [("general.architecture", STRING, "llama")]))
    tensors = open_checkpoint(file).tensors
    scales = {
        name: [s.facts["scale"] for s in t.layout.remarks] for name, t in tensors.items() if t.is_quantized
    }
    assert scales["a.weight"] == ["'a.scale'"]
    assert scales["b.weight"] == []
    assert np.array_equal(tensors["a.weight"].read().numpy(), given.expected["blk.0.attn_output.weight"])


# quanto


def test_sizes_of_quanto():
    """Its groups are 128, or less by 32 until they divide the columns; rows of at most 128 have none."""
    assert {n: _group_size(n) for n in (32, 128, 129, 160, 192, 256, 320)} == {
        32: None, 128: None, 129: None, 160: 32, 192: 96, 256: 128, 320: 64
    }  # fmt: skip
    for n in (1, 2, 12, 16, 36, 97, 360):
        assert _divisors(n) == [d for d in range(1, n + 1) if n % d == 0]


@for_each(
    ("name", "groups", "bias", "hidden", "columns", "assumed"),
    [
        ("a.q_proj.weight", 8, None, None, 128, True),  # rows of 128, 256, 512 or 1,024
        ("a.q_proj.weight", 8, 4, None, 256, False), ("a.q_proj.weight", 8, 2, None, 512, False),
        ("a.q_proj.weight", 8, None, 256, 256, False), ("a.down_proj.weight", 8, None, 4, 256, False),
        ("a.down_proj.weight", 8, None, 3, 128, True), ("a.other.weight", 8, None, 256, 128, True),
        ("a.q_proj.weight", 8, 3, 512, 512, False), ("a.q_proj.weight", 1, None, None, 128, False),
        ("a.q_proj.weight", 8, 1, None, 1024, False), ("a.q_proj.weight", 8, 0, 256, 256, False),
    ],
)  # fmt: skip
def test_columns_of_quanto(name, groups, bias, hidden, columns, assumed):
    """What determines the length of a row: a bias, the hidden size; else it is assumed, and said."""
    piece = None if bias is None else type("Bias", (), {"shape": (bias,)})()
    found, remarks = _columns(name, groups, 128, piece, hidden, frozenset())
    assert (found, bool(remarks)) == (columns, assumed)
    if assumed:
        assert remarks[0].facts == {"size": 128, "groups": groups}


# Configs


def test_groups_of_a_config():
    """Defaults, limits and what is refused."""

    def one(**weights):
        return read_groups({"config_groups": {"g": {"targets": ["Linear", 3], "weights": weights}}})[0]

    plain = one(num_bits=4)
    assert (plain.targets, plain.bits, plain.kind, plain.symmetric, plain.strategy, plain.group_size) == (
        ("Linear",), 4, "int", True, "tensor", None
    )  # fmt: skip
    assert one(num_bits=4, group_size=32).strategy == "group"
    assert one(num_bits=4, group_size=-1).strategy == "tensor"
    assert one(num_bits=4, group_size=0).strategy == "tensor"
    assert one(num_bits=4, group_size=1).strategy == "group"
    assert one(symmetric=False).symmetric is False
    assert one(type="float").bits == 8
    for value, block in (
        ("128x64", (128, 64)),
        ([2, 3], (2, 3)),
        (None, None),
        ([1, 1], (1, 1)),
        ([2**31 - 1, 1], (2**31 - 1, 1)),
    ):
        assert one(num_bits=8, block_structure=value).block == block
    for bad in ([0, 3], [2], [2, 3, 4], "axb", "2x3x4", [True, 3], [2**31, 1], 5):
        with pytest.raises(QuantError):
            one(num_bits=8, block_structure=bad)
    for bad in ({"num_bits": 0}, {"num_bits": 17}, {"group_size": -2}, {"group_size": 2**31}):
        with pytest.raises(QuantError):
            one(**({"num_bits": 4} | bad))
    assert one(num_bits=16).bits == 16
    assert one(num_bits=1).bits == 1
    assert read_groups({"config_groups": {"g": {"targets": ["Linear"], "weights": None}, "h": 3}}) == ()


def test_which_group_a_module_is_of():
    """Exact names, then patterns, then the first; where all are read alike, any."""

    def group(bits, *targets):
        return read_groups(
            {"config_groups": {"g": {"targets": list(targets), "weights": {"num_bits": bits}}}}
        )[0]

    groups = (group(8, "Linear"), group(4, "re:.*q_proj"), group(2, "model.q_proj"))
    assert [choose(m, groups, Patterns()).bits for m in ("model.q_proj", "other.q_proj", "model.k_proj")] == [
        2,
        4,
        8,
    ]
    assert choose("model.q_proj", groups[:1], Patterns()).bits == 8


# Parameters


def facts_of(name, folder, change, kind, config=None):
    found = [f for f in members(changed(name, folder, change, config).findings()) if f.kind == kind]
    return [f.facts for f in found if f.tensors == (f"{Q}.weight",)]


def test_zero_points_of_gptq(tmp_path):
    """How many differ from the middle, how many wrap, and their shares."""
    name, key = "gptq_v2_4bit_g128_sym", f"{Q}.qzeros"
    stored = load_file(case(name).release / "model.safetensors")[key]
    total = 8 * stored.numel()

    def put(words):
        def change(tensor):
            tensor = torch.full_like(tensor, -0x77777778)  # 8 everywhere
            tensor.view(-1)[: len(words)] = torch.tensor(words, dtype=torch.int64).to(torch.int32)
            return tensor

        return change

    assert facts_of(name, tmp_path / "a", {key: put([0x33333335, 0x33333333])}, "zero_points_differ") == [
        {"middle": 8, "example": 5, "zeros": 16, "share": 16 / total}
    ]
    assert facts_of(name, tmp_path / "b", {key: put([])}, "zero_points_differ") == []
    every = {"middle": 8, "says": "sym false"}
    assert facts_of(name, tmp_path / "c", {key: put([])}, "config_unused", {"sym": False}) == [every]
    assert facts_of(name, tmp_path / "d", {key: put([0x33333333])}, "config_unused", {"sym": False}) == []
    name = "gptq_v1_4bit_g128_sym"
    total = 8 * load_file(case(name).release / "model.safetensors")[key].numel()
    wraps = facts_of(
        name, tmp_path / "e", {key: put([0x77777777, 0x7FF7777F])}, "zero_point_wraps", {"sym": False}
    )
    assert wraps == [{"stored": 15, "unwrapped": 16, "zeros": 3, "share": 3 / total}]


@for_each(("name", "piece", "wrong", "right"), [
    ("modelopt_nvfp4", "weight_scale_2", 1.001, 1.0), ("ct_nvfp4", "weight_global_scale", 0.999, 1.0),
    ("ct_nvfp4", "weight_global_scale", 0.0, 2.0), ("modelopt_nvfp4", "weight_scale_2", 5.0, 0.001),
])  # fmt: skip
def test_global_scales_of_the_other_kind(name, piece, wrong, right, tmp_path):
    """Above 1 where it multiplies, below 1 where it divides."""
    key = f"{Q}.{piece}"
    for value, count in ((wrong, 1), (right, 0)):
        found = facts_of(
            name, tmp_path / f"{value}", {key: lambda t, v=value: torch.full_like(t, v)}, "global_scale"
        )
        assert found == [{"piece": piece, "value": pytest.approx(value)}] * count


def test_scales_that_stand_out(tmp_path):
    """How many, the share, and the first on the grid of blocks, counted row by row."""
    key, name = f"{Q}.scales", "gptq_v2_4bit_g128_sym"
    total = load_file(case(name).release / "model.safetensors")[key].numel()

    def put(*places, value):
        def change(tensor):
            tensor = tensor.clone()
            for group, row in places:
                tensor[group, row] = value
            return tensor

        return {key: change}

    found = facts_of(name, tmp_path / "a", put((1, 9), (0, 20), (1, 20), value=-0.25), "scale_negative")
    assert found == [{"scales": 3, "share": 3 / total, "first": (9, 1)}]
    found = facts_of(name, tmp_path / "b", put((1, 20), (0, 21), value=float("nan")), "scale_nonfinite")
    assert found == [{"scales": 2, "first": (20, 1)}]


def test_scales_that_are_powers_of_two(tmp_path):
    """All of at least `FEW` float32 scales, but not if all are 1; zeros don't count."""
    key = f"{M}.weight_scale"
    x = weight()
    stored = releases.fp8(M, x)
    power = stored[key].log2().round().exp2()
    zeros = power.clone()
    zeros[:5] = 0
    other = power.clone()
    other[7] *= 1.5
    few, enough = ({k: v[:n] for k, v in (stored | {key: power}).items()} for n in (FEW - 1, FEW))
    for given, count in (
        (stored | {key: power}, len(power)), (stored | {key: zeros}, len(power) - 5), (stored | {key: other}, None),
        (stored | {key: torch.ones_like(power)}, None), (few, None), (enough, FEW), (stored | {key: power * 0}, None),
    ):  # fmt: skip
        path = releases.save(tmp_path, given, releases.WRITERS["fp8"][1])
        found = [
            f.facts
            for f in of_parameters(open_checkpoint(path).tensors[W].layout)
            if f.kind == "scales_powers_of_two"
        ]
        assert found == ([{"scales": count}] if count else [])


@for_each("name", ["gptq_v2_4bit_g128_sym", "deepseek_fp8", "ct_fp8_tensor", "bnb_nf4", "ct_int8_w8a8"])
def test_boxes_of_scales(name, monkeypatch):
    """Every scale once, with the row it begins at, however small the boxes."""
    from quantcore.checkpoints import rows

    layouts = [t.layout for t in open_checkpoint(case(name).release).tensors.values() if t.is_quantized]
    whole = [layout.scale() for layout in layouts]
    monkeypatch.setattr(rows, "ELEMENTS", 700)
    for layout, scale in zip(layouts, whole, strict=True):
        found = list(scale_boxes(layout))
        assert torch.equal(torch.cat([s.reshape(-1) for _, s in found]), scale.reshape(-1))
        done = 0
        for start, s in found:
            assert start == done
            done += len(s)


def test_an_activation_order_that_is_not_in_groups(tmp_path):
    """g_idx with other counts per group, or another number of groups."""
    name, key = "gptq_v1_4bit_g32_asym_desc_act", f"{Q}.g_idx"
    sound = load_file(case(name).release / "model.safetensors")[key]
    for what, change in (
        ("order", lambda t: t.flip(0)),
        ("count", lambda t: torch.where(t == 1, 0, t)),
        ("sound", lambda t: t),
    ):
        checkpoint = changed(name, tmp_path / what, {key: change})
        tensor = checkpoint.tensors[f"{Q}.weight"]
        index = change(sound).long()
        codes, scale, zero = (t.float() for t in (tensor.codes(), tensor.scale(), tensor.zero_point()))
        wanted = (codes - zero[:, index]) * scale[:, index]
        assert torch.allclose(tensor.read().float(), wanted, rtol=1e-2, atol=1e-6)


def test_awq_is_what_was_written(tmp_path):
    """Of any rows, codes, zero points and scales."""
    x = weight()
    q, z, s = awq_of(x)
    path = releases.save(tmp_path, releases.awq(M, x), releases.WRITERS["awq"][1])
    tensor = open_checkpoint(path).tensors[W]
    pick = slice(None, None, GROUP)
    for rows in (slice(0, 48), slice(3, 4), slice(5, 21)):
        assert torch.equal(tensor.layout.codes(rows).float(), q[rows])
        assert torch.equal(tensor.layout.zero_point(rows).float(), z[rows, pick])
        assert torch.equal(tensor.layout.scale(rows).float(), s[rows, pick])


def test_names_of_readers_that_are_missing(tmp_path):
    """A config.json that names an unknown method hides no plain weight."""
    checkpoint = changed("ct_int8_w8a8", tmp_path, {}, {"quant_method": "unknown_method"})
    with pytest.raises(QuantError, match="unknown_method"):
        checkpoint.tensors[f"{Q}.weight"].read()


# compressed-tensors' packed integers


def ct_packed(folder, bits, shape, words, scale, version="0.20.0", stored_shape=None, **weights):
    """An int release of zeros in ``words`` 32-bit words per row."""
    given = {"num_bits": bits, "type": "int", "symmetric": True, "strategy": "channel"} | weights
    stored = {"m.weight_packed": torch.zeros(shape[0], words, dtype=torch.int32), "m.weight_scale": scale}
    stored["m.weight_shape"] = torch.tensor(shape) if stored_shape is None else stored_shape
    return compressed(folder, stored, version=version, **given).tensors["m.weight"]


def test_one_scale_for_packed_codes(tmp_path):
    """Of the whole weight, or of each of two rows."""
    one = ct_packed(tmp_path / "1", 4, (2, 16), 2, torch.full((1,), 0.5))
    assert "per_tensor" in one.storage
    assert one.read().tolist() == [[-4.0] * 16] * 2
    two = ct_packed(tmp_path / "2", 4, (2, 16), 2, torch.tensor([[0.5], [0.25]]))
    assert "per_channel" in two.storage
    assert two.read().tolist() == [[-4.0] * 16, [-2.0] * 16]
    one = ct_packed(tmp_path / "group", 4, (1, 16), 2, torch.tensor([[0.5]]), strategy="group", group_size=16)
    assert "per_group(16)" in one.storage


@for_each(
    ("shape", "words", "is_read"),
    [((2, 16), 2, True), ((2, 17), 2, False), ((2, 9), 2, True), ((2, 8), 2, False), ((3, 16), 2, False), ((2, 65), 2, False),
     ((2, 0), 2, False), ((2, 16, 1), 2, False)],
)  # fmt: skip
def test_shapes_of_packed_codes(shape, words, is_read, tmp_path):
    """As many words as the codes of a row need."""
    stored = torch.tensor(shape)
    tensor = ct_packed(tmp_path, 4, (2, 16), words, torch.ones(2, 1), stored_shape=stored)
    if is_read:
        assert tensor.read().tolist() == [[-8.0] * shape[1]] * 2
    else:
        is_said = shape[0] == 3 or (len(shape) == 2 and not 0 < shape[1] <= 64)  # else the words are counted
        with pytest.raises(QuantError, match=r"says \(" if is_said else None):
            tensor.read()


def test_a_row_of_packed_codes_can_be_as_long_as_its_bits(tmp_path):
    """64 one-bit codes fill two words, 65 do not: said of the shape."""
    tensor = ct_packed(tmp_path / "64", 1, (2, 64), 2, torch.ones(2, 1))
    assert tensor.read().tolist() == [[-1.0] * 64] * 2
    assert str(tensor.layout.element) == "int2"
    with pytest.raises(QuantError, match=r"says \(2, 65\)"):
        ct_packed(tmp_path / "65", 1, (2, 65), 2, torch.ones(2, 1)).read()


@for_each(
    ("version", "name"), [("0.0.1", "padded"), ("99.0.0", "dense"), ("nothing", "dense"), ("", "dense")]
)
def test_versions_that_pack_otherwise(version, name, tmp_path):
    """40 codes of 3 bits take 4 words either way: the version tells; 64 codes take 6 or 7, which tells by itself."""
    tensor = ct_packed(tmp_path / "40", 3, (2, 40), 4, torch.ones(2, 1), version)
    at = tensor.locate((0, 10)).code.bits
    first = 8 * (at[0][0] - tensor.layout.pieces["weight_packed"].offset) + at[0][1]
    assert first == (32 if name == "padded" else 30)
    for words, wanted in ((6, 30), (7, 32)):
        tensor = ct_packed(tmp_path / f"{words}", 3, (2, 64), words, torch.ones(2, 1), version)
        at = tensor.locate((0, 10)).code.bits
        assert 8 * (at[0][0] - tensor.layout.pieces["weight_packed"].offset) + at[0][1] == wanted


# ONNX


@for_each(
    ("output", "dtype"),
    [
        (0, torch.float16),
        (1, torch.float32),
        (10, torch.float16),
        (16, torch.bfloat16),
        (11, None),
        (2, None),
        (17, None),
    ],
)
def test_what_onnx_dequantizes_to(output, dtype):
    """TensorProto: 1 float32, 10 float16, 16 bfloat16; 0, as the scales."""
    piece, codes = StoredTensor("s", "F16", (), None, 0, 2), StoredTensor("x", "I8", (2, 3), None, 0, 6)
    node = Node("DequantizeLinear", "", "", ("x", "s"), ("y",), {"output_dtype": output})
    types = {"x": (OnnxType("int8", "I8", 8), (2, 3)), "s": (OnnxType("float16", "F16", 16), ())}
    graph, use = OnnxGraph(types, (node,), {}), Use(node, "x", "s", "", 1)
    if dtype is None:
        with pytest.raises(QuantError, match=f"data type {output}"):
            onnx._used("x", use, graph, {"x": codes, "scale": piece})
    else:
        assert onnx._used("x", use, graph, {"x": codes, "scale": piece}).dtype == dtype


@for_each(
    ("shape", "scales", "axis", "size", "wanted"),
    [((4, 6), (), 1, 0, PerTensor()), ((4, 6), (1,), 1, 0, PerTensor()), ((4, 6), (4,), 0, 0, PerChannel(0)), ((4, 6), (6,), -1, 0, PerChannel(1)),
     ((4, 6), (6,), -2, 0, PerChannel(0)), ((4, 6), (4, 3), 1, 2, PerGroup(2, 1)), ((4, 1), (1, 1), 0, 4, PerGroup(4, 0)),
     ((4, 6), (4,), 2, 0, None), ((4, 6), (4,), -3, 0, None), ((4, 6), (4, 3), 1, -1, None)],
)  # fmt: skip
def test_blocks_of_onnx(shape, scales, axis, size, wanted):
    """One scale, one of each index of an axis, or one of a run along it: DequantizeLinear, opset 21."""
    use = Use(Node("DequantizeLinear", "", "", ("x", "s"), ("y",), {"block_size": size}), "x", "s", "", axis)
    piece = type("Scale", (), {"shape": scales})()
    if wanted is None:
        with pytest.raises(QuantError):
            onnx._granularity("x", use, shape, piece)
    else:
        assert onnx._granularity("x", use, shape, piece) == wanted
