"""Every preset gives its library's results, as recorded in golden/presets.*; see golden/README.md."""

import dataclasses
import hashlib
import json
import warnings
from functools import cache

import numpy as np
import pytest
import torch
from grid import for_each
from parts import in_parts
from places import GOLDEN

import quantcore as qc

HERE = GOLDEN
# recorded as bytes in golden_checkpoints/gguf_quantizer; see test_ggml_bytes.py
AS_BYTES = {f"gguf.{name}" for name in ("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS")}
RECORDED = (
    *("per_tensor_scale", "global_scale", "quantization_factor", "scaler_mean", "scale", "scale_values"),
    *("scale_codes", "min", "amax", "codes", "values", "dequantized"),
)


@cache
def recorded():
    with np.load(HERE / "presets.npz", allow_pickle=False) as arrays:
        return json.loads((HERE / "presets.json").read_text())["cases"], {n: arrays[n] for n in arrays}


def array(reference):
    dtype, start, shape = reference
    return recorded()[1][dtype][start : start + int(np.prod(shape))].reshape(shape)


def cases(preset):
    return [case for case in recorded()[0] if case["preset"] == preset]


def scheme_of(case):
    """The preset of the case, with the case's granularity if it has one."""
    scheme = qc.PRESETS[case["preset"]]
    if "scales_granularity" in case:
        scheme = dataclasses.replace(scheme, scales=_with(scheme.scales, case["scales_granularity"]))
    return _with(scheme, case["granularity"]) if "granularity" in case else scheme


def _with(scheme, granularity):
    return dataclasses.replace(scheme, granularity=qc.Scheme.parse(granularity).granularity)


def found(case, scheme):
    """Our results under the names that the records use."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = qc.apply(array(case["x"]), scheme)
    codes = result.codes.numpy()
    ours = {"dequantized": result.dequantized.numpy(), "codes": codes, "scale": result.scale.numpy()}
    if result.params.high is not None:
        ours["amax"] = result.params.high.numpy()
    if not isinstance(scheme.format, qc.IntFormat):
        ours["values"] = scheme.format.decode(result.codes).numpy()
    if result.zero_point is not None:
        ours["min"] = result.zero_point.numpy()
    if result.scales is not None:
        ours |= of_scales(result.scales)
    return ours


def of_scales(scales):
    """Our results for quantized scales, and for what they are quantized with."""
    ours = {"scale_codes": scales.codes.numpy(), "per_tensor_scale": scales.scale.numpy()}
    if not isinstance(scales.scheme.format, qc.IntFormat):
        ours["scale_values"] = scales.scheme.format.decode(scales.codes).numpy()
    if scales.params.inverse is not None:
        ours["global_scale"] = ours["quantization_factor"] = scales.params.inverse.numpy()
    if scales.params.center is not None:
        ours["scaler_mean"] = scales.params.center.numpy()
    return ours


def no_number(name, values, scheme):
    if name == "codes" and isinstance(scheme.format, qc.FloatFormat):
        values = scheme.format.decode(values.astype(np.int32)).numpy()
    return np.isnan(values)


def differences(case, scheme):
    """What differs from the record, in words; empty if nothing does.

    The sign of zero and the bit pattern of NaN do not count.
    """
    ours, words = found(case, scheme), []
    for name in RECORDED:
        if name not in case:
            continue
        theirs = array(case[name])
        if name not in ours:
            words.append(f"{case['id']}: {name}: there is none")
            continue
        mine = ours[name].reshape(theirs.shape)
        wrong = (mine != theirs) & ~(no_number(name, mine, scheme) & no_number(name, theirs, scheme))
        if wrong.any():
            at = tuple(int(i) for i in np.argwhere(wrong)[0])
            words.append(
                f"{case['id']}: {name}: {wrong.sum()} of {wrong.size} differ, "
                f"first at {at}: {mine[at]!r}, recorded {theirs[at]!r}"
            )
    return words


# compared with the library itself or its formula in test_presets_live.py
NOT_RECORDED = AS_BYTES | {
    "torchao.int4_g32",
    "torchao.int4_g64",
    "torchao.int4_g128",
    "torchao.int8",
    "torchao.tinygemm_g128",  # in test_half_live.py
    "bitsandbytes.blockwise",  # in test_half_live.py
    "gptq_like.int4_g128",
    "hqq.linear_4bit",
    "torch.quantized_decomposed.int8",
    "quanto.qint4_g128",
    "quanto.qint2_g128",
    "quanto.qint4_g128.zeropoint",
    "quanto.qfloat8_e4m3fn",
    "onnxruntime.uint4_g32",  # in test_half_live.py
    "onnxruntime.uint4_g32.symmetric",
}


@in_parts(18)
@for_each("preset", [name for name in qc.PRESETS if name not in NOT_RECORDED])
def test_exact(preset, part):
    assert cases(preset), f"nothing is recorded for {preset}"
    words = [line for case in part(cases(preset)) for line in differences(case, scheme_of(case))]
    assert not words, "\n".join(words)


@for_each("preset", qc.PRESETS)
def test_text_round_trips(preset):
    scheme = qc.PRESETS[preset]
    assert qc.Scheme.parse(str(scheme)) == scheme


# a preset, a choice, and a wrong value that a recorded case must reveal
CHANGES = [
    ("torchao.fp8_e4m3fn", "kernel", "B"),
    ("torchao.mxfp8_e4m3", "symmetric_scale", "power_even"),
    ("torchao.mxfp8_e4m3.EVEN", "symmetric_scale", "power_ceil"),
    ("torchao.mxfp8_e4m3.CEIL", "symmetric_scale", "power_log2_ceil"),
    ("torchao.mxfp8_e4m3.RCEIL", "symmetric_scale", "power_floor"),
    ("torchao.mxfp8_e4m3", "e8m0_min_as", 0.0),
    ("torchao.mxfp8_e4m3.RCEIL", "e8m0_min_as", 2.0**-126),
    ("compressed_tensors.fp8_e4m3fn", "kernel", "A"),
    ("torchao.nvfp4", "kernel", "A"),
    ("torchao.nvfp4", "inverse", "of_scale"),
    ("torchao.nvfp4", "nan_replacement", 0.0),
    ("torchao.nvfp4.1level", "symmetric_scale", "amax_over_qmax"),
    ("torchao.nf4", "kernel", "B"),
    ("torchao.nf4", "quantize_with", "stored"),
    ("torchao.nf4", "zero_scale", "zero_codes"),
    ("compressed_tensors.nvfp4", "kernel", "B"),
    ("compressed_tensors.mxfp4", "symmetric_scale", "power_even"),
    ("compressed_tensors.mxfp8_e4m3", "symmetric_scale", "power_rounded"),
    ("microxcaling.mxint8", "symmetric_scale", "power_ceil"),
    ("microxcaling.mxfp4", "rounding", "half_away_of_sum"),
    ("microxcaling.mxfp4.nearest", "rounding", "half_even_of_sum"),
    ("bitsandbytes.nf4", "kernel", "A"),
    ("bitsandbytes.nf4", "min_divisor", 0.0),
    ("bitsandbytes.nf4", "short_block", "as_others"),
    ("bitsandbytes.int8_vectorwise", "inverse", "of_scale"),
    ("bitsandbytes.int8_vectorwise", "decoding", "scaled"),
    ("bitsandbytes.int8_vectorwise", "cast", "none"),
    ("gguf.Q8_0", "quantize_with", "stored"),
    ("gguf.Q8_0", "rounding", "half_even"),
    ("gguf.Q8_0", "cast", "none"),
    ("gguf.Q4_0", "symmetric_scale", "amax_over_qmax"),
    ("gguf.Q4_0", "kernel", "D"),
    ("gguf.Q4_0", "rounding", "half_even"),
    ("gguf.Q4_0", "cast", "none"),
    ("gguf.Q4_1", "kernel", "F"),
    ("gguf.Q4_1", "zero_in_range", "both"),
    ("gguf.Q4_1", "quantize_with", "stored"),
    ("gguf.Q4_1", "zero_point_form", "integer"),
    ("gguf.Q5_1", "range_overflow", "split"),
    ("gguf.MXFP4", "symmetric_scale", "power_log2_floor"),
    ("gguf.TQ2_0", "quantize_with", "stored"),
    ("gguf.TQ2_0", "cast", "none"),
]


# the same for conventions of scales
CHANGES_OF_SCALES = [
    ("torchao.nvfp4", "kernel", "B"),
    ("torchao.nvfp4", "divisor", 1.0),
    ("torchao.nvfp4", "clamp_min", 0.0),
    ("torchao.nvfp4.1level", "divisor", 1.0),
    ("torchao.nvfp4.1level", "clamp_min", 0.0),
    ("torchao.nf4", "center", "none"),
    ("torchao.nf4", "inverse", "of_scale"),
    ("torchao.nf4", "symmetric_scale", "amax_over_half_range"),
    ("torchao.nf4", "decoding", "scaled"),
    ("compressed_tensors.nvfp4", "kernel", "A"),
    ("compressed_tensors.nvfp4", "divisor", 1.0),
    ("compressed_tensors.nvfp4", "zero_replacement", 0.0),
    ("compressed_tensors.nvfp4", "bad_inverse", "kept"),
    ("compressed_tensors.nvfp4", "decoding", "scaled"),
]


def changed(scheme, choice, value):
    return dataclasses.replace(scheme, convention=scheme.convention.changed(**{choice: value}))


@for_each(
    ("preset", "choice", "value"),
    [  # each choice once; the others are slow
        pytest.param(*change, marks=[pytest.mark.slow] * (change[1] in [choice for _, choice, _ in CHANGES[:i]]))
        for i, change in enumerate(CHANGES)
    ],
)
def test_choice_is_read(preset, choice, value):
    """A preset with this choice changed fails on a recorded case."""
    told = any(differences(case, changed(scheme_of(case), choice, value)) for case in cases(preset))
    assert told, f"no recorded case tells {choice}={value} from {qc.PRESETS[preset].convention}"


@for_each(("preset", "choice", "value"), CHANGES_OF_SCALES)
def test_choice_of_scales_is_read(preset, choice, value):
    told = any(
        differences(case, dataclasses.replace(scheme, scales=changed(scheme.scales, choice, value)))
        for case in cases(preset)
        for scheme in [scheme_of(case)]
    )
    assert told, f"no recorded case tells {choice}={value} from {qc.PRESETS[preset].scales.convention}"


# of the codes that the libraries gave; the slow run compares many more with the libraries, whose import takes seconds
DIGESTS = {
    "hqq.linear_4bit": "9db24d51f40438e4",
    "quanto.qint4_g128": "98dec6d7e95f97e2",
    "quanto.qint2_g128": "a3fa22fda55f22fa",
    "quanto.qint4_g128.zeropoint": "482215dad7fd032c",
    "quanto.qfloat8_e4m3fn": "2fa79dc4be679bda",
}


@for_each("preset", DIGESTS)
def test_codes_have_the_recorded_digest(preset):
    x = torch.randn(4, 256, generator=torch.Generator().manual_seed(8))
    codes = qc.apply(x, qc.PRESETS[preset]).codes.numpy().astype(np.int64)
    assert hashlib.sha256(codes.tobytes()).hexdigest()[:16] == DIGESTS[preset]
