"""Each thing that a layout refuses, alone: headers that are right but for one, and the check that says so."""

import dataclasses
import importlib
import json

import pytest
import releases
import torch
from checkpoint_cases import case, changed
from grid import for_each
from releases import release
from suspects import M, weight

from quantcore.checkpoints import open_checkpoint
from quantcore.checkpoints.containers.stored import StoredTensor
from quantcore.checkpoints.files.sources import MemorySource
from quantcore.checkpoints.findings.against import places
from quantcore.checkpoints.findings.structure import is_matrix
from quantcore.checkpoints.layouts import awq, fp8, gptq, mlx, modelopt, quanto, torchao
from quantcore.checkpoints.layouts import bitsandbytes as bnb
from quantcore.checkpoints.layouts.compressed_tensors import read_groups
from quantcore.checkpoints.layouts.plain import find_unsupported, plain
from quantcore.checkpoints.origin.rivals import readings
from quantcore.checkpoints.protocol.release import Release
from quantcore.errors import QuantError
from quantcore.expressions import Element, Name
from quantcore.expressions import named as named_number
from quantcore.formats import IntFormat
from quantcore.granularity import PER_TENSOR, PerBlock, PerChannel, PerGroup
from tests.quantcore.checkpoints.findings.test_findings import members

ct = importlib.import_module(
    "quantcore.checkpoints.layouts.compressed_tensors"
)  # the package has a function `find`
BYTES = {
    "U8": 1,
    "I8": 1,
    "F8_E4M3": 1,
    "F8_E5M2": 1,
    "F16": 2,
    "BF16": 2,
    "F32": 4,
    "I32": 4,
    "U32": 4,
    "I64": 8,
}


def stored(dtype, *shape, name="m.t"):
    size = BYTES[dtype]
    for n in shape:
        size *= n
    return StoredTensor(name, dtype, shape, None, 0, size)


def named(**pieces):
    return {n: dataclasses.replace(p, name=f"m.{n}") for n, p in pieces.items()}


def group(**weights):
    return read_groups(
        {"format": "pack-quantized", "config_groups": {"g": {"targets": ["Linear"], "weights": weights}}}
    )[0]


GPTQ = named(qweight=stored("I32", 8, 16), qzeros=stored("I32", 2, 2), scales=stored("F16", 2, 16))
AFFINE = named(weight=stored("U32", 16, 8), scales=stored("F16", 16, 2), biases=stored("F16", 16, 2))
NVFP4 = named(
    weight=stored("U8", 16, 32), weight_scale=stored("F8_E4M3", 16, 4), weight_scale_2=stored("F32", 1)
)
INT4 = named(weight=stored("U8", 8, 64), weight_scale=stored("F32", 16, 2))
BITS = named(data=stored("U8", 8, 128), scale=stored("F16", 16, 1), shift=stored("F16", 16, 1))
EIGHT = named(data=stored("I8", 16, 32), scale=stored("F16", 16, 1))
PACKED = named(
    weight_packed=stored("I32", 16, 8), weight_scale=stored("BF16", 16, 2), weight_shape=stored("I64", 2)
)
FP8 = named(weight=stored("F8_E4M3", 16, 32), weight_scale=stored("F32", 1, 1))
MX = named(weight_packed=stored("U8", 16, 32), weight_scale=stored("U8", 16, 2))


def without(pieces, name):
    return {n: p for n, p in pieces.items() if n != name}


def of_gptq(pieces, bits=4, size=32, **config):
    return gptq.layout_of("m", pieces, {"bits": bits, "group_size": size} | config)


def of_mlx(pieces, **config):
    return mlx.layout_of("m", pieces, {"bits": 4, "group_size": 32} | config)


def of_packed(pieces, **weights):
    return ct._packed(
        "m", pieces, group(**({"num_bits": 4, "group_size": 32, "strategy": "group"} | weights)), "0.20.0"
    )


REFUSED = [
    # what is refused, where, and the words of its check
    (lambda: ct._mxfp8("m", named(weight=stored("F8_E4M3"), weight_scale=stored("U8")), group(num_bits=8, type="float")), "is one number"),
    (lambda: of_gptq(GPTQ | named(scales=stored("F16", 2, 16, 1))), "scales' has shape"),
    (lambda: of_gptq(GPTQ | named(g_idx=stored("I32", 64, 1))), "g_idx' has shape"),
    (lambda: of_gptq(GPTQ | named(qzeros=stored("I32", 2, 5)), bits=None), "Neither the config"),
    (lambda: of_gptq(GPTQ | named(g_idx=stored("I32", 13)), bits=None), "Neither the config"),
    (lambda: of_gptq(GPTQ, checkpoint_format="gptq_v3"), "checkpoint_format is"),
    (lambda: of_gptq(GPTQ | named(g_idx=stored("F32", 64))).fields, "one int32 per input"),
    (lambda: awq.layout_of("m", named(qweight=stored("I32", 64, 6), qzeros=stored("I32", 2, 6), scales=stored("F16", 2, 47)), {}), "has 47 columns, but the qweight of 'm' holds 48"),
    (lambda: of_mlx(AFFINE, mode="other"), "mode 'other'"),
    (lambda: of_mlx(AFFINE | named(weight=stored("U32", 16), scales=stored("F16", 16))), "weight' has shape"),
    (lambda: of_mlx(AFFINE | named(scales=stored("F16", 16, 2, 1))), "weight' has shape"),
    (lambda: of_mlx(without(AFFINE, "biases")), "biases of 'm'"), (lambda: of_mlx(AFFINE | named(scales=stored("U8", 16, 2))), "biases of 'm'"),
    (lambda: of_mlx(AFFINE, bits=None, group_size=None), "does not give the bits"),
    (lambda: of_mlx(AFFINE, bits=None, group_size=48), "does not give the bits"),
    (lambda: of_mlx(AFFINE, mode="mxfp4"), "must be bytes"),
    (lambda: modelopt._fp4("m", NVFP4 | named(weight_scale=stored("F8_E4M3", 16, 4, 1)), {}), "takes scales of shape"),
    (lambda: modelopt._fp4("m", without(NVFP4, "weight_scale_2"), {}), "weight_scale_2 of"),
    (lambda: modelopt._int4("m", INT4 | named(weight=stored("U8", 8, 64, 1)), {}), "needs a float per row"),
    (lambda: modelopt._int4("m", INT4 | named(weight_scale=stored("F32", 16, 2, 1)), {}), "needs a float per row"),
    (lambda: modelopt._int4("m", INT4 | named(weight_scale=stored("F32", 8, 2)), {}), "needs a float per row"),
    (lambda: modelopt._int4("m", INT4 | named(weight_scale=stored("U8", 16, 2)), {}), "needs a float per row"),
    (lambda: modelopt._fp8("m", FP8 | named(weight_scale=stored("U8", 16, 1)), {}), "scales must be floats"),
    (lambda: fp8.layout_of("m.weight", FP8 | named(weight_scale=stored("U8", 1)), {}), "at least two axes"),
    (lambda: fp8.layout_of("m.weight", FP8 | named(weight=stored("F8_E4M3", 16)), {}), "at least two axes"),
    (lambda: quanto._whole("m", EIGHT | named(data=stored("I32", 16, 32))), "only int8 and FP8"),
    (lambda: quanto._whole("m", EIGHT | named(scale=stored("F16", 16))), "only int8 and FP8"),
    (lambda: quanto._whole("m", EIGHT | named(scale=stored("I32", 16, 1))), "scales must be floats"),
    (lambda: quanto._bits("m", without(BITS, "shift"), None, None), "_shift of 'm'"),
    (lambda: quanto._bits("m", BITS | named(data=stored("U8", 8, 128, 1)), None, None), "per row of the reshaped"),
    (lambda: quanto._bits("m", BITS | named(scale=stored("F16", 16), shift=stored("F16", 16)), None, None), "per row of the reshaped"),
    (lambda: quanto._bits("m", BITS | named(shift=stored("F16", 8, 1)), None, None), "per row of the reshaped"),
    (lambda: quanto._bits("m", BITS | named(scale=stored("F16", 0, 1), shift=stored("F16", 0, 1)), None, None), "per row of the reshaped"),
    (lambda: quanto._bits("m", BITS | named(data=stored("U8", 9, 128)), None, None), "neither 4 nor 2 bits"),
    (lambda: of_packed(PACKED | named(weight_packed=stored("I32", 16))), "does not fit scales"),
    (lambda: of_packed(PACKED | named(weight_scale=stored("BF16", 16, 2, 1))), "does not fit scales"),
    (lambda: of_packed(PACKED, symmetric=False), "weight_zero_point is missing"),
    (lambda: of_packed(PACKED | named(weight_scale=stored("I32", 16, 2))), "scales must be floats"),
    (lambda: ct._block_floats("m", MX | named(weight_scale=stored("F8_E4M3", 16, 4)), group(num_bits=4, type="float")), "weight_global_scale of"),
    (lambda: ct._block_floats("m", MX, group(num_bits=5, type="float")), "not supported for 5-bit"),
    (lambda: ct._block_floats("m", MX, group(num_bits=7, type="float")), "not supported for 7-bit"),
    (lambda: ct._block_floats("m", MX | named(weight_scale=stored("F16", 16, 2)), group(num_bits=4, type="float")), "not supported for 4-bit"),
    (lambda: ct._whole("m", named(weight=stored("I8", 16, 32), weight_scale=stored("F16", 16, 1)), group(num_bits=8, symmetric=False)), "weight_zero_point of"),
    (lambda: ct._whole("m", named(weight=stored("I8", 16, 32), weight_scale=stored("F16", 16, 2)), group(num_bits=8, strategy="block")), "unknown or can't"),
    (lambda: ct._whole("m", named(weight=stored("I8", 16), weight_scale=stored("F16", 2)), group(num_bits=8, strategy="block", block_structure=[2, 2])), "unknown or can't"),
    (lambda: ct._whole("m", named(weight=stored("I8", 16, 32), weight_scale=stored("F16")), group(num_bits=8, strategy="other")), "unknown or can't"),
    (lambda: ct._whole("m", named(weight=stored("I8"), weight_scale=stored("F16", 2)), group(num_bits=8, strategy="group", group_size=32)), "fit groups of a weight of shape"),
    (lambda: ct._whole("m", named(weight=stored("I8", 16, 32), weight_scale=stored("F16")), group(num_bits=8, strategy="group", group_size=32)), "fit groups of a weight of shape"),
    (lambda: bnb.layout_of("m", "nf4", named(weight=stored("U8", 32, 1), absmax=stored("F32", 1))), "quant_map of"),
    (lambda: bnb.layout_of("m", "nf4", named(absmax=stored("F32", 1), quant_map=stored("F32", 16))), "weight of"),
    (lambda: bnb.layout_of("m", "nf4", named(weight=stored("U8", 32, 1), absmax=stored("U8", 1), quant_map=stored("F32", 16))), "of 'm' is missing"),
    (lambda: bnb.layout_of("m", "nf4", named(weight=stored("U8", 32, 1), absmax=stored("F32", 1), quant_map=stored("F32", 15))), "table of 16"),
    (lambda: bnb.layout_of("m", "nf4", named(weight=stored("U8", 32, 1), absmax=stored("F32", 1), quant_map=stored("U8", 16))), "table of 16"),
    (lambda: bnb.layout_of_int8("m", named(weight=stored("U8", 4, 8), SCB=stored("F32", 4))), "one number per row"),
    (lambda: bnb.layout_of_int8("m", named(weight=stored("I8", 4, 8, 1), SCB=stored("F32", 4))), "one number per row"),
    (lambda: bnb.layout_of_int8("m", named(weight=stored("I8", 4, 8), SCB=stored("F32", 8))), "one number per row"),
    (lambda: bnb._read_state(stored("U8", bnb.MAX_STATE + 1)), "too long"),
]  # fmt: skip


@for_each(("what", "words"), REFUSED, ids=range(len(REFUSED)))
def test_what_is_refused(what, words):
    with pytest.raises(QuantError, match=words):
        what()


STATE = {
    "shape": [16, 4],
    "dtype": "bfloat16",
    "blocksize": 64,
    "nested_offset": 0.5,
    "nested_blocksize": 256,
}


def test_states_of_bitsandbytes():
    """A shape, a float dtype, block sizes and a finite offset."""
    found = bnb._state(STATE, "s")
    assert (found.shape, found.dtype, found.blocksize) == ((16, 4), torch.bfloat16, 64)
    assert dataclasses.astuple(found)[3:] == (256, 0.5)
    plain = bnb._state({k: v for k, v in STATE.items() if "nested" not in k}, "s")
    assert dataclasses.astuple(plain)[3:] == (None, 0.0)
    assert bnb._state(STATE | {"shape": [0, 4], "nested_offset": 1}, "s").shape == (0, 4)
    for bad, words in (
        ({"shape": []}, "no shape"), ({"shape": 3}, "no shape"), ({"shape": [True]}, "no shape"), ({"shape": [-1]}, "no shape"),
        ({"shape": [2**48]}, "no shape"), ({"dtype": "int8"}, "no blocksize"), ({"blocksize": None}, "no blocksize"),
        ({"nested_offset": "x"}, "not a finite"), ({"nested_offset": float("inf")}, "not a finite"), ({"blocksize": 0}, ""),
        ({"nested_blocksize": 0}, ""),
    ):  # fmt: skip
        with pytest.raises(QuantError, match=words or None):
            bnb._state(STATE | bad, "s")


BROKEN = {
    # a stored tensor of a weight, of another shape than its format has
    "gptq": ("scales", lambda t: t[:-1]), "awq": ("scales", lambda t: t[:-1]), "ct_int4": ("weight_scale", lambda t: t[:-1]),
    "nvfp4": ("weight_scale_2", lambda t: None), "mxfp4": ("weight_scale", lambda t: t[:-1]), "nf4": ("weight.quant_map", lambda t: t[:15]),
    "fp8": ("weight_scale", lambda t: t[:7]), "ct_int8": ("weight_scale", lambda t: t[:7]),
}  # fmt: skip


@for_each("form", BROKEN)
def test_what_cannot_be_read_has_its_name(form, tmp_path):
    """Of two weights, the one with a stored tensor that does not fit; the other is read."""
    other = M.replace(".1.", ".2.")
    write, config = releases.WRITERS[form]
    last, change = BROKEN[form]
    pieces = write(M, weight()) | write(other, weight())
    pieces[f"{M}.{last}"] = change(pieces[f"{M}.{last}"])
    release = open_checkpoint(
        releases.save(tmp_path, {n: t for n, t in pieces.items() if t is not None}, config)
    )
    assert release.tensors[f"{other}.weight"].read().shape == weight().shape
    with pytest.raises(QuantError):
        release.tensors[f"{M}.weight"].read()
    found = [f for f in release.findings() if f.severity == "error" and f.kind != "all_zero"]
    assert {name for f in found for name in f.tensors} == {f"{M}.weight"}


NESTED = named(
    weight=stored("U8", 2048, 1), absmax=stored("U8", 64), quant_map=stored("F32", 16), nested_absmax=stored("F32", 4), nested_quant_map=stored("F32", 256),
)  # fmt: skip


@for_each(
    ("state", "pieces", "words"),
    [
        ({}, {}, None), ({"nested_blocksize": None}, {}, "nested_absmax of 'm' does not fit"), ({"nested_blocksize": 21}, {}, None),
        ({"nested_blocksize": 15}, {}, "nested_absmax of 'm' does not fit"), ({}, {"nested_absmax": stored("F32", 3)}, "nested_absmax of 'm' does not fit"),
        ({}, {"nested_absmax": stored("F32", 5)}, "nested_absmax of 'm' does not fit"), ({}, {"nested_quant_map": stored("F32", 255)}, "table of 256"),
        ({}, {"absmax": stored("I32", 64)}, "table of 256"), ({}, {"absmax": stored("U8", 63)}, "take 64 scales"), ({"blocksize": 63}, {}, "take 66 scales"),
        ({"blocksize": 64, "shape": [1, 4095]}, {}, None),
    ],
)  # fmt: skip
def test_scales_of_bitsandbytes_that_are_quantized(state, pieces, words):
    """As many as there are blocks, and blocks of them."""
    text = json.dumps(STATE | {"shape": [64, 64], "nested_blocksize": 16} | state).encode()
    said = {
        "quant_state": StoredTensor(
            "m.quant_state", "U8", (len(text),), MemorySource("m", text), 0, len(text)
        )
    }
    layout = bnb.layout_of("m", "nf4", NESTED | named(**pieces) | said)
    if words is None:
        assert {"scale_code", "nested_absmax", "nested_quant_map"} <= layout.fields.keys()
    else:
        with pytest.raises(QuantError, match=words):
            _ = layout.fields


def test_blocks_that_shapes_tell():
    """One scale, one of a row, or blocks; a scale that ends in _inv belongs to blocks."""
    weight_ = stored("F8_E4M3", 16, 32, name="m.weight")
    for scale, last, wanted in (
        ((), "weight_scale", PER_TENSOR), ((1, 1), "weight_scale", PER_TENSOR), ((16,), "weight_scale", PerChannel(0)),
        ((16, 1), "weight_scale", PerChannel(0)), ((16, 2), "weight_scale", PerBlock((8, 4))), ((2, 8), "weight_scale_inv", PerBlock((8, 4))),
        ((1, 1), "weight_scale_inv", PerBlock((8, 4))), ((16, 1), "weight_scale_inv", PerBlock((8, 4))),
    ):  # fmt: skip
        assert fp8._granularity(weight_, stored("F32", *scale, name=f"m.{last}"), (8, 4)) == wanted
    stack = stored("F8_E4M3", 3, 16, 32, name="m.weight")
    assert fp8._granularity(stack, stored("F32", 3, 1, name="m.weight_scale"), (64, 4)) == PerBlock(
        (1, 16, 4)
    )
    for scale, wanted in (((16,), PerChannel(0)), ((16, 1), PerChannel(0)), ((1,), PER_TENSOR)):
        layout = modelopt._fp8("m", FP8 | named(weight_scale=stored("F32", *scale)), {})
        assert layout.granularity == wanted
    with pytest.raises(QuantError, match="per_tensor with a weight of shape"):
        modelopt._fp8("m", FP8 | named(weight_scale=stored("F32", 16, 2)), {})
    for rows, wanted in ((1, PER_TENSOR), (2, PerChannel(0))):
        one = named(weight=stored("F8_E4M3", rows, 32), weight_scale=stored("F32", rows))
        assert modelopt._fp8("m", one, {}).granularity == wanted
    for strategy, scale, wanted in (
        ("tensor", (1,), PER_TENSOR), ("channel", (16, 1), PerChannel(0)), ("group", (16, 2), PerGroup(16)), ("tensor_group", (16, 2), PerGroup(16)),
        ("block", (2, 8), PerBlock((8, 4))),
    ):  # fmt: skip
        more = (
            {"group_size": 16}
            if "group" in strategy
            else {"block_structure": [8, 4]}
            if strategy == "block"
            else {}
        )
        own = group(num_bits=8, strategy=strategy, **more)
        pieces = named(weight=stored("I8", 16, 32), weight_scale=stored("F16", *scale))
        assert ct._whole("m", pieces, own).granularity == wanted
    stack = named(weight=stored("I8", 3, 16, 32), weight_scale=stored("F16", 3, 16, 1))
    assert ct._whole("m", stack, group(num_bits=8, strategy="channel")).granularity == PerBlock((1, 1, -1))
    stack = named(weight=stored("I8", 3, 16, 32), weight_scale=stored("F16", 3, 1, 8))
    own = group(num_bits=8, strategy="block", block_structure=[64, 4])
    assert ct._whole("m", stack, own).granularity == PerBlock((1, 16, 4))
    for scale, wanted in (((16, 1), PerChannel(0)), ((), PerBlock((16, 32))), ((1, 32), PerBlock((16, 1)))):
        assert quanto._whole("m", EIGHT | named(scale=stored("F16", *scale))).granularity == wanted


@for_each(
    ("columns", "scales", "settled"),
    [(32, 2, True), (32, 1, False), (32, 3, False), (24, 2, True), (24, 1, False), (8, 1, True)],
)
def test_shapes_of_mxfp4_settle_what_it_is(columns, scales, settled):
    """A scale for each 32 codes of a row, two of which are in a byte; a last block may be shorter."""
    pieces = named(weight=stored("U8", 16, columns), weight_scale=stored("U8", 16, scales))
    assert modelopt._is_settled(pieces) is settled
    assert not modelopt._is_settled(pieces | named(weight_scale=stored("U8", 15, scales)))


def test_bits_that_shapes_tell():
    """GPTQ: from qweight and g_idx; MLX: from the group size; quanto: from the rows of bytes."""
    assert of_gptq(GPTQ | named(g_idx=stored("I32", 64)), bits=None).element.bits == 4
    assert (
        of_gptq(
            GPTQ | named(g_idx=stored("I32", 32), qzeros=stored("I32", 2, 4)), bits=None, size=16
        ).element.bits
        == 8
    )
    for bits, words in ((2, 4), (3, 6), (4, 8), (6, 12), (8, 16)):
        assert of_mlx(AFFINE | named(weight=stored("U32", 16, words)), bits=None).element.bits == bits
    for rows, bits in ((8, 4), (4, 2)):
        assert quanto._bits("m", BITS | named(data=stored("U8", rows, 128)), None, None).element.bits == bits


def test_versions_of_gptq_that_the_zeros_tell(tmp_path):
    """What a symmetric release stores in v1 and v2, and what this one does."""
    key = "model.layers.0.self_attn.q_proj.qzeros"
    for name, word, facts in (
        (
            "gptq_v1_4bit_g128_sym",
            -0x77777778,
            {"said": "v1", "truth": "v2", "bits": 4, "expected": 7, "stored": 8},
        ),
        (
            "gptq_v2_4bit_g128_sym",
            0x77777777,
            {"said": "v2", "truth": "v1", "bits": 4, "expected": 8, "stored": 7},
        ),
    ):
        checkpoint = changed(name, tmp_path / name, {key: lambda t, w=word: torch.full_like(t, w)})
        tensor = checkpoint.tensors[key.replace("qzeros", "weight")]
        (said,) = tensor.layout.statements()
        assert {k: v for k, v in said.facts.items() if k != "version"} == facts
        assert bool((tensor.zero_point() == 8).all())
        one = torch.full((1,), word, dtype=torch.int64)

        def change(t, w=int(one)):
            t = torch.full_like(t, w)
            t[0, 1] = 0x33333333
            return t

        checkpoint = changed(name, tmp_path / f"{name}2", {key: change})
        tensor = checkpoint.tensors[key.replace("qzeros", "weight")]
        assert tensor.layout.statements() == tensor.layout.remarks
        assert [
            f.kind
            for f in members(checkpoint.findings())
            if f.severity == "error" and tensor.name in f.tensors
        ]


def test_the_version_where_a_row_has_one_group(tmp_path):
    stored_ = releases.gptq(M, weight())
    columns = weight().shape[1]
    config = {"quantization_config": releases.WRITERS["gptq_desc_act"][1] | {
        "group_size": columns, "sym": True, "desc_act": False, "checkpoint_format": "gptq"
    }}  # fmt: skip
    stored_ = {
        n: t[:1].contiguous() if n.endswith(("scales", "qzeros")) else t
        for n, t in stored_.items()
        if not n.endswith("g_idx")
    }
    stored_[f"{M}.qzeros"] = torch.full_like(stored_[f"{M}.qzeros"], -0x77777778)
    (said,) = release(tmp_path, stored_, config).tensors[f"{M}.weight"].layout.statements()
    assert (said.facts["said"], said.facts["truth"], said.facts["stored"]) == ("v1", "v2", 8)


def test_a_config_that_is_not_of_the_format(tmp_path):
    """Stored as bytes although the config names words."""
    x = weight()
    stored_ = {
        f"{M}.weight": x.mul(100).round().clamp(-127, 127).to(torch.int8),
        f"{M}.weight_scale": torch.full((len(x), 1), 0.01),
    }
    config = {
        "quant_method": "compressed-tensors", "format": "pack-quantized",
        "config_groups": {"g": {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "int", "strategy": "channel"}}},
    }  # fmt: skip
    for form, count in (("pack-quantized", 1), ("int-quantized", 0), ("naive-quantized", 0)):
        checkpoint = release(
            tmp_path / form,
            stored_,
            {"quantization_config": json.loads(json.dumps(config).replace("pack-quantized", form))},
        )
        found = [f for f in checkpoint.findings() if f.kind == "config_contradicted"]
        assert len(found) == count
        if count:
            assert found[0].facts == {"format": form, "piece": "weight", "dtype": "I8"}
        assert torch.equal(
            checkpoint.tensors[f"{M}.weight"].read(), stored_[f"{M}.weight"].float() * torch.tensor(0.01)
        )
    assert open_checkpoint(tmp_path / "int-quantized").tensors


@for_each("part", "abc")
def test_elements_of_ggml_are_as_wide_as_their_codes(part):
    """Random bits have every code: each fits its format, and not one of a bit less."""
    seen = 0
    for tensor in open_checkpoint(case(f"gguf_random_bits_{part}").release).tensors.values():
        element = tensor.layout.element if tensor.is_quantized else None
        if isinstance(element, IntFormat):
            codes = tensor.codes().long()
            low, high = int(codes.min()), int(codes.max())
            lowest, highest = (
                (-(1 << element.bits - 1), (1 << element.bits - 1) - 1)
                if element.signed
                else (0, (1 << element.bits) - 1)
            )
            assert lowest <= low <= high <= highest, tensor.name
            assert high > highest // 2 or low < lowest // 2, (tensor.name, str(element))
            seen += 1
    assert seen


def test_which_modules_are_matrices():
    assert [is_matrix(shape) for shape in ((64, 64), (2, 2), (1, 64), (64, 1), (64,), (1,), (), (3, 1, 4))] == [
        True, True, False, False, False, False, False, True
    ]  # fmt: skip


def test_block_sizes_of_torchao_that_are_not_said():
    """32 of MX, 16 of NVFP4."""
    pieces = {"qdata": stored("F8_E4M3", 4, 64), "scale": stored("U8", 4, 2)}
    data = {
        "elem_dtype": {"_data": "float8_e4m3fn"},
        "orig_dtype": {"_data": "bfloat16"},
        "is_swizzled_scales": False,
    }
    assert torchao._mx("m", pieces, data).blocks.block[-1] == 32
    sixteen = pieces | {"scale": stored("U8", 4, 4)}
    assert torchao._mx("m", sixteen, data | {"block_size": 16}).blocks.block[-1] == 16
    assert torchao._nvfp4("m", sixteen | {"qdata": stored("U8", 4, 32)}, data).blocks.block[-1] == 16


def test_numbers_with_names_in_formulas():
    """Negative integers stand in parentheses."""
    sums = [Element(lambda name, n=n: named_number(name, n)).of(Name("z") + 1) for n in (-3, -1, 0, 1, 12)]
    assert [s.numbers.text for s in sums] == ["(-3) + 1", "(-1) + 1", "0 + 1", "1 + 1", "12 + 1"]
    assert {s.names.text for s in sums} == {"z + 1"}


@for_each(
    ("name", "reader"), [("deepseek_fp8", "transformers"), ("ct_fp8_block", "compressed-tensors")]
)
def test_who_derives_blocks_from_the_grid(name, reader):
    tensors = [t for t in open_checkpoint(case(name).release).tensors.values() if t.is_quantized]
    found = [r for t in tensors for r in readings(t.layout) if r.key == "block_of_grid"]
    assert all(r.reader.startswith(reader) for r in found)
    assert found or reader != "transformers"


@for_each(
    ("outputs", "hidden", "shape"),
    [
        (4, None, (4, 512)),
        (None, None, (16, 128)),
        (None, 512, (4, 512)),
        (8, 512, (8, 256)),
        (5, None, (16, 128)),
    ],
)
def test_what_tells_the_columns_of_quanto(outputs, hidden, shape):
    """A bias has as many elements as rows; else the config's hidden size; else a group is a row."""
    parts = {
        "m.fc1.weight._data._data": stored("U8", 8, 128),
        "m.fc1.weight._scale": stored("F16", 16, 1),
        "m.fc1.weight._shift": stored("F16", 16, 1),
    }
    bias = {} if outputs is None else {"m.fc1.bias": stored("F16", outputs)}
    (layout,) = quanto.find(Release(parts | bias, {"hidden_size": hidden} if hidden else {}))
    assert (layout.name, layout.shape, layout.element.bits) == ("m.fc1.weight", shape, 4)


def test_what_is_not_of_quanto():
    """A tensor beside a scale, or codes without one."""
    for names in (("w", "w._scale"), ("w._data",), ("w._data._data",), ("w._data", "v._scale")):
        assert list(quanto.find(Release({name: stored("I8", 16, 32) for name in names}, {}))) == []


def test_how_much_of_a_method_is_shown():
    """Sixty characters of what the config says."""
    method = "x" * 70
    release = Release({"m.qweight": stored("I32", 4, 4)}, {}, {"quant_method": method})
    (refused,) = find_unsupported(release, "a and b")
    assert f"quant_method '{'x' * 59}…', which" in refused.reason


def test_block_sizes_of_compressed_tensors_that_are_not_said():
    """32 columns of OCP's formats, 16 of NVFP4; else as the config says."""
    for make, code, bits, scale, size in (
        (ct._block_floats, "U8", 4, "U8", 32), (ct._block_floats, "U8", 4, "F8_E4M3", 16), (ct._mxfp8, "F8_E4M3", 8, "U8", 32)
    ):  # fmt: skip
        for said, wanted in ((None, size), (8, 8)):
            pieces = {
                "weight" if bits == 8 else "weight_packed": stored(code, 16, 8 * bits), "weight_scale": stored(scale, 16, 64 // wanted),
                "weight_global_scale": stored("F32", 1),
            }  # fmt: skip
            if bits == 8:
                pieces["weight"] = stored(code, 16, 64)
            own = group(num_bits=4, type="float", **({} if said is None else {"group_size": said}))
            assert make("m", named(**pieces), own).blocks.block[-1] == wanted


def test_which_codes_a_group_may_have():
    """Integers of up to 8 bits in words, small floats in bytes, and whole numbers of the kind that the config says."""
    words, halves = named(weight_packed=stored("I32", 16, 8)), named(weight_packed=stored("U8", 16, 32))
    whole, float8 = named(weight=stored("I8", 16, 32)), named(weight=stored("F8_E4M3", 16, 32))
    wanted = {
        ("int", 4): (True, False, True, False), ("int", 8): (True, False, True, False), ("int", 16): (False, False, True, False),
        ("float", 4): (False, True, False, True), ("float", 8): (False, False, False, True),
    }  # fmt: skip
    for (kind, bits), fits in wanted.items():
        own = dataclasses.replace(group(num_bits=4), kind=kind, bits=bits)
        assert tuple(ct._fits(own, pieces) for pieces in (words, halves, whole, float8)) == fits, (kind, bits)


@for_each(
    ("name", "bits"),
    [
        ("bnb_nf4_nested", 0),
        ("bnb_nf4", 31),
        ("ct_mxfp4", 2),
        ("ct_nvfp4", 6),
        ("gguf_ternary_fp4", 0),
        ("gptq_v1_4bit_g128_sym", 14),
    ],
)
def test_which_bits_of_a_scale_have_a_meaning(name, bits):
    """Those of floats and of E8M0; a code of bitsandbytes is the place of a number in a table."""
    tensor = next(
        t
        for t in open_checkpoint(case(name).release).tensors.values()
        if t.is_quantized and (name[:4] != "gguf" or t.layout.block_type == "MXFP4")
    )
    nothing = torch.zeros(4)
    run = places.Run(tensor.layout, 0, torch.arange(4), nothing, nothing, nothing, False, nothing, nothing)
    found = dict(places._flips(run))
    assert len(found) >= bits
    assert bool(found) is (bits > 0)


@for_each(("bits", "wraps"), [(2, True), (3, False), (4, True), (8, True)])
def test_zero_points_that_wrap_within_a_word(bits, wraps):
    """Of GPTQ's first version, where a word holds whole codes."""
    pieces = named(
        qweight=stored("I32", 2 * bits, 32), qzeros=stored("I32", 2, bits), scales=stored("F16", 2, 32)
    )
    for version, known in (("gptq", wraps), ("gptq_v2", False)):
        found = {r.key for r in readings(of_gptq(pieces, bits=bits, checkpoint_format=version))}
        assert {"zero_point_unwrapped", "zero_point_carried"} & found == (
            {"zero_point_unwrapped", "zero_point_carried"} if known else set()
        )


def test_codes_in_a_byte_have_at_most_8_bits():
    pieces = named(weight=stored("I8", 16, 32), weight_scale=stored("F16", 16, 1))
    for bits, wanted in ((4, 4), (8, 8), (16, 8)):
        assert ct._whole("m", pieces, group(num_bits=bits, strategy="channel")).element == IntFormat(wanted)


@for_each(
    ("dtype", "size", "element"),
    [("I8", 1, IntFormat(8)), ("U8", 1, IntFormat(8, signed=False)), ("I16", 2, IntFormat(16)), ("I32", 4, None), ("I64", 8, None),
     ("BOOL", 1, None), ("F16", 2, None), ("BF16", 2, None), ("F32", 4, None)],
)  # fmt: skip
def test_values_that_are_codes(dtype, size, element):
    """Integers of up to 16 bits."""
    layout = plain(StoredTensor("w", dtype, (3, 4), None, 0, 12 * size)).layout()
    if element is None:
        with pytest.raises(QuantError, match="has no codes"):
            _ = layout.element
    else:
        assert layout.element == element
