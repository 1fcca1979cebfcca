"""What people pass: texts and names where a scheme is needed, and sentences about everything else."""

import copy
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import quantcore as qc

X = torch.randn(2, 64, generator=torch.Generator().manual_seed(0))
SCHEME = qc.Scheme(qc.INT4, granularity=qc.PerGroup(32))
RESULT = qc.apply(X, SCHEME)
MODEL = torch.nn.Linear(4, 2)


def test_a_text_is_a_scheme_everywhere() -> None:
    text = "int4 per_group(32)"
    assert qc.apply(X, text).scheme == SCHEME
    assert qc.bits_per_element(text, X.shape) == qc.bits_per_element(SCHEME, X.shape) == 5
    assert qc.storage(text, (2, 64)) == qc.storage(SCHEME, (2, 64))
    assert qc.compression_ratio(text, (2, 64)) == 6.4
    assert qc.nearest_supported(text, (2, 64)) == SCHEME
    assert qc.unsupported_reason("int8 per_tensor gguf.Q8_0", (2, 64))
    assert qc.errors_of(X, text) == qc.errors_of(X, SCHEME)
    assert qc.report(X, text) == qc.report(RESULT)
    assert torch.equal(qc.choose_qparams(X, text).scale, RESULT.scale)
    assert torch.equal(qc.quantize(X, RESULT.scale, 0, text), RESULT.codes)
    assert torch.equal(qc.dequantize(RESULT.codes, RESULT.scale, 0, text), RESULT.dequantized)
    assert torch.equal(qc.dequantize(RESULT), RESULT.dequantized)
    assert qc.fit_scheme(X, text, 8) == qc.fit_scheme(X, SCHEME, 8)
    assert str(qc.program(text)) == str(qc.program(SCHEME))
    few = (qc.MinMax(), qc.MinMse())
    assert qc.range_marks(X, text, settings=few) == qc.range_marks(X, SCHEME, settings=few)
    assert qc.differences("int8 torchao") == qc.differences(qc.Scheme.parse("int8 torchao"))
    found = qc.compare(X, text, "textbook", "torchao")
    assert torch.equal(found.a.codes, RESULT.codes)
    assert found.b.scheme.convention == qc.CONVENTIONS["torchao"]
    assert len(qc.library_table(X, text, "textbook")) == len(qc.INTEGER_CONVENTIONS)
    table = qc.sweep(X, [text, "torchao.mxfp4", SCHEME])
    assert table["scheme"].tolist() == [str(SCHEME), str(qc.PRESETS["torchao.mxfp4"]), str(SCHEME)]


def test_every_preset_is_read_by_its_name() -> None:
    for name, scheme in qc.PRESETS.items():
        assert qc.Scheme.parse(name) == qc.Scheme.parse(name.upper()) == scheme, name
        assert qc.Scheme.parse(str(scheme)) == scheme, name


MEANT = {
    "w4a16": "int4 per_group(128) compressed_tensors",
    "W4A16": "int4 per_group(128) compressed_tensors",
    "w4a16_asym": "int4 asymmetric per_group(128) compressed_tensors",
    "w8a8": "int8 per_channel(0) compressed_tensors",
    "q4_k_m": "gguf.Q4_K",
    "Q8_0": "gguf.Q8_0",
    "gguf.q5_k_s": "gguf.Q5_K",
    "int8_vectorwise": "bitsandbytes.int8_vectorwise",
    "fp8": "e4m3fn",
    "fp8 per_channel(0)": "e4m3fn per_channel(0)",
    "float8_e5m2": "e5m2",
    "Int4": "int4",
    "INT8 Asymmetric Per_Channel(0)": "int8 asymmetric per_channel(0)",
    "bfloat16": "bf16",
    "NF4": "nf4",
    "qint8": "int8",
    "quint8": "uint8",
}
SEVERAL = {
    "mxfp4": "torchao.mxfp4",
    "nvfp4": "compressed_tensors.nvfp4",
    "int4_g128": "torchao.int4_g128",
    "fp4": "bitsandbytes.fp4",
    "gptq": "gptq_like.int4_g128",
    "AWQ": "int4 asymmetric",
    "torcha.mxfp4": "torchao.mxfp4",
    "int4 pertensor": "per_tensor",
    "int4 symetric": "symmetric",
    "int4 torchoa": "torchao",
    "bitsandbytes.nf": "bitsandbytes.nf4",
}


def test_names_that_people_type_lead_to_what_they_mean() -> None:
    for typed, text in MEANT.items():
        assert qc.Scheme.parse(typed) == qc.Scheme.parse(text), typed
    for typed, near in SEVERAL.items():
        with pytest.raises(qc.QuantError) as caught:
            qc.Scheme.parse(typed)
        assert near in str(caught.value), typed


@pytest.mark.slow
def test_the_weights_of_compressed_tensors_presets_are_those_of_the_library() -> None:
    presets = pytest.importorskip("compressed_tensors.quantization.quant_scheme").PRESET_SCHEMES
    for name in ("W4A16", "W4A16_ASYM", "W8A8", "W8A16", "W3A16", "W4A8"):
        weights, scheme = presets[name]["weights"], qc.Scheme.parse(name)
        assert (scheme.format, scheme.symmetric) == (qc.IntFormat(weights.num_bits), weights.symmetric), name
        size = weights.group_size
        assert scheme.granularity == (qc.PerGroup(size) if size else qc.PerChannel(0)), name


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "a number": (lambda: qc.apply(X, 4), "scheme is the number 4"),
    "nothing": (lambda: qc.apply(X, None), "scheme is None"),
    "a format": (lambda: qc.apply(X, qc.INT4), "scheme is an IntFormat"),
    "the class": (lambda: qc.apply(X, qc.Scheme), "the class Scheme, not an instance"),
    "swapped": (lambda: qc.apply(SCHEME, X), "a Tensor of shape (2, 64); give a Scheme"),
    "swapped text": (lambda: qc.apply("int4", X), "x comes first"),
    "one text": (lambda: qc.sweep(X, "int4"), "schemes is the text 'int4'; give a list"),
    "a list of numbers": (lambda: qc.sweep(X, [4]), "scheme is the number 4"),
    "parse": (lambda: qc.Scheme.parse(4), "not the number 4"),
    "Scheme(4)": (lambda: qc.Scheme(4), "format is the number 4; give for example qc.INT4"),
    "format": (lambda: qc.Scheme("int4"), "give qc.parse_format('int4')"),
    "granularity text": (lambda: qc.Scheme(granularity="per_group(32)"), "give qc.PerGroup(size=32, axis=-1)"),
    "granularity": (lambda: qc.Scheme(granularity=32), "granularity is the number 32"),
    "granularity class": (lambda: qc.Scheme(granularity=qc.PerTensor), "the class PerTensor, not an instance"),
    "range setting": (lambda: qc.Scheme(range_setting="min_mse"), "give qc.MinMse("),
    "convention": (lambda: qc.Scheme(convention="torchao"), "give qc.CONVENTIONS['torchao']"),
    "symmetric": (lambda: qc.Scheme(symmetric="no"), "give for example True or False"),
    "symmetric number": (lambda: qc.Scheme(symmetric=1), "symmetric is the number 1"),
    "scales": (lambda: qc.Scheme(scales="int8"), "scales is the text 'int8'"),
    "x nothing": (lambda: qc.apply(None, SCHEME), "x is None"),
    "module": (lambda: qc.apply(MODEL, SCHEME), "x is a module, Linear"),
    "state_dict": (lambda: qc.apply(MODEL.state_dict(), SCHEME), "such as x['weight']"),
    "parameters": (lambda: qc.apply(MODEL.parameters(), SCHEME), "x is a generator"),
    "meta": (lambda: qc.apply(torch.empty(2, 2, device="meta"), SCHEME), "meta device"),
    "masked": (lambda: qc.apply(np.ma.masked_array([1.0, 2.0], [0, 1]), "int4"), "filled(0)"),
    "x text": (lambda: qc.apply("1 2", "int4"), "qc.tensors.parse"),
    "result": (lambda: qc.apply(RESULT, "int4"), "x is a Quantized"),
    "set": (lambda: qc.apply({1.0}, "int4"), "object"),
    "quantize": (lambda: qc.quantize(X, "int4"), "quantize needs a scale, a zero point and a scheme; call qc.apply(x, scheme)"),
    "report": (lambda: qc.report(X), "report needs the result of qc.apply(x, scheme), not a Tensor"),
    "trace": (lambda: qc.trace(X, (0, 0)), "trace needs"),
    "diagnose": (lambda: qc.diagnose(X), "diagnose needs"),
    "block_errors": (lambda: qc.block_errors(X), "block_errors needs"),
    "encoding": (lambda: qc.encoding(X), "encoding needs"),
    "out": (lambda: qc.apply(X, SCHEME, out=X), "out needs"),
    "maps": (lambda: qc.figures.maps(X), "maps needs"),
    "export": (lambda: qc.export.to_npz(X), "export needs"),
    "shape": (lambda: qc.bits_per_element("int4", X), "shape is a Tensor"),
    "shape text": (lambda: qc.default_schemes("8x64"), "shape is the text '8x64'"),
    "block_shape": (lambda: qc.block_shape("per_group(32)", (2, 64)), "granularity is the text"),
    "program": (lambda: qc.program(4), "scheme is the number 4"),
    "parse_format": (lambda: qc.parse_format(4), "not the number 4"),
    "codes": (lambda: qc.dequantize([1, 2], 0.1, 0, "int8"), "codes is a list"),
    "no scale": (lambda: qc.dequantize(RESULT.codes), "scale is missing"),
    "PRESETS": (lambda: qc.PRESETS["gguf.q4_K"], "did you mean 'gguf.Q4_K'?"),
    "CONVENTIONS": (lambda: qc.CONVENTIONS["torchoa"], "did you mean 'torchao'?"),
    "FLOATS": (lambda: qc.FLOATS["e4m3"], "did you mean 'e4m3fn'?"),
    "compare": (lambda: qc.compare(X, "int4", "torchoa", "textbook"), "did you mean 'torchao'?"),
}  # fmt: skip


def test_another_argument_is_one_sentence_about_what_was_passed() -> None:
    for name, (call, words) in REFUSED.items():
        with pytest.raises(qc.QuantError) as caught:
            call()
        message = str(caught.value)
        assert words in message, (name, message)
        assert "\n" not in message
        assert len(message) < 300, name
    with pytest.raises(KeyError):
        qc.PRESETS["q"]
    assert qc.PRESETS.get("q") is None
    assert copy.deepcopy(qc.FORMATS) == qc.FORMATS


def test_dir_lists_what_there_is() -> None:
    assert set(dir(qc)) >= {*qc.__all__, "checkpoints", "tensors", "figures", "views", "sensitivity", "bit_budget", "collect"}
    assert all(hasattr(qc, name) for name in dir(qc))


def test_a_result_does_not_change_with_its_input() -> None:
    """A copy, or an error: of every source, at every size and dtype."""
    for size in (8, 520):
        plain = torch.randn(size, size)
        sources: list[Any] = [plain, plain.numpy().copy(), plain.bfloat16(), plain.double(), plain[::2], plain.T]
        for x in sources:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                result = qc.apply(x, "int4")
            before = result.x.clone(), qc.report(result), result.error
            x[0, 0] = 100.0
            shared = isinstance(x, torch.Tensor) and x.numel() > 1 << 18 and x.dtype != torch.float64
            if shared:
                for ask in (lambda r=result: r.x, lambda r=result: qc.report(r), lambda r=result: r.error):
                    with pytest.raises(qc.QuantError, match="changed in place"):
                        ask()
            else:
                assert torch.equal(result.x, before[0])
                assert qc.report(result) == before[1]
                assert torch.equal(result.error, before[2])
    weights = torch.ones(256)
    result = qc.apply(X.repeat(1, 4), "gguf.Q4_K", importance=weights)
    weights += 1
    assert result.importance is not None
    assert bool((result.importance == 1).all())
