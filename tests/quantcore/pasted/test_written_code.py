"""Code is followed however it is written: what is found in it, and the codes that it gives when Python runs it."""

import inspect
import re

import numpy as np
import pytest
import torch
from grid import for_each
from parts import some
from torch import nn

import quantcore as qc
from quantcore.pasted import show_code
from quantcore.pasted.evaluation import CodeInputs
from quantcore.pasted.source import read_source
from quantcore.pasted.walk import evaluate
from tests.support import written_code

OTHERS = re.compile(
    "torchao|bitsandbytes|onnxruntime|decomposed|hqq|quanto|tensorflow|jax|nn.Lin|model"
)  # whose import takes too long
MARK = re.compile(r"  #! (\S+)")
WRITTEN = {
    f"{kind.lower()}: {name}": text
    for kind, group in inspect.getmembers(written_code, lambda value: isinstance(value, dict))
    if kind.isupper()
    for name, text in group.items()
}
# the first of each kind, and some
FIRST = {name.partition(":")[0]: name for name in reversed(WRITTEN)}
FEW = dict.fromkeys([*FIRST.values(), *list(WRITTEN)[::100]])
pytestmark = [pytest.mark.usefixtures("no_hurry"), pytest.mark.filterwarnings("ignore")]


@for_each("name", FEW)
def test_code_is_followed_to_its_mistakes_and_codes(name):
    follow(name)


@pytest.mark.slow
@for_each("name", [name for name in WRITTEN if name not in FEW])
def test_further_code_is_followed(name):
    follow(name)


def follow(name):
    marks = [(i, kind) for i, line in enumerate(WRITTEN[name].split("\n"), 1) for kind in MARK.findall(line)]
    text = MARK.sub("", WRITTEN[name])
    reading = qc.read_code(text)
    assert sorted((f.line, f.mistake) for f in reading.mistakes) == sorted(marks)
    assert not reading.unread
    assert reading.quantizers
    refused = "wrong range" in name  # by torch itself: the zero point lies outside its range
    codes, x_hat = (None, None) if OTHERS.search(text) or refused else ran(text)
    if codes is not None or x_hat is not None:
        x = tensor(text)
        last = len(reading.quantizers) - 1
        own = codes is not None and codes.numel() != x.numel()  # the code has a tensor of its own
        shown = None if own else show_code(reading, last, x)
        found = shown.codes if shown else reading.quantizers[-1].on["own"].codes[-1].numbers
        if codes is not None:
            assert torch.equal(found.reshape(codes.shape).double(), codes.double()), (found, codes)
        if x_hat is not None and shown and x_hat.numel() == x.numel():
            np.testing.assert_allclose(shown.dequantized, x_hat.reshape(x.shape).float(), rtol=2e-6, atol=2e-6, strict=True, equal_nan=False)


def tensor(text):
    x = torch.randn(8, 8, generator=torch.Generator().manual_seed(3)) * 3 - 0.4
    return x.reshape(2, 4, 2, 4) if "img" in text else x.flatten() if "(values" in text else x


def ran(text):
    """Codes and x̂ when the test runs the code, as a student would; None if it only defines functions."""
    scope = scope_of(text)
    return numbers(scope.get("q")), numbers(scope.get("y"))


def scope_of(text):
    """The names of a snippet that the test runs."""
    x = tensor(text)
    x = x.numpy() if re.search(r"\bnp\b|\bround\(", text) and "torch." not in text else x
    scope = {"torch": torch, "np": np, "nn": nn, "F": nn.functional, "x": x, "w": x, "data": x, "img": x}
    exec(text, scope)
    return scope


RUN = [name for name, text in WRITTEN.items() if not (OTHERS.search(text) or re.search("wrong range|uniform", name))]


@for_each("name", RUN[::6])
def test_each_name_has_the_values_that_python_gives_it(name):
    text = MARK.sub("", WRITTEN[name])
    scope, source = scope_of(text), read_source(text)
    walk = evaluate(CodeInputs(source.text, source.tree, tensor(text)))
    assert not walk.unread
    for one, found in walk.spaces[0].maps[0].items():
        value = scope[one]
        if isinstance(value, (bool, int, float, np.ndarray, np.generic, torch.Tensor)):
            right = numbers(value)
            codes = getattr(value, "is_quantized", False)
            ours = found.value.names["codes"].value if codes else found.value
            assert tuple(np.shape(ours)) == tuple(right.shape), one
            np.testing.assert_allclose(numbers(ours).double(), right.double(), rtol=1e-6, atol=0, strict=True, equal_nan=True)


def numbers(value):
    if value is None or callable(value):
        return None
    value = value.int_repr() if getattr(value, "is_quantized", False) else value
    return (
        value.detach()
        if isinstance(value, torch.Tensor)
        else torch.from_numpy(np.array(value, dtype=np.float64))
    )


FLOATS = {
    "x.abs().max() / 448": [],
    "x.abs().max() / 1000": [(3, "wrapped")],
    "x.abs().amax(dim=1, keepdim=True) / 448": [],
    "x.abs().mean() / (6 * 448)": [(3, "wrapped")],
}


@for_each("scale", some(FLOATS, 2))
@for_each(("kind", "most"), [("float8_e4m3fn", 448.0), ("float8_e5m2", 57344.0)])
def test_a_cast_to_a_small_float_needs_a_clamp(scale, kind, most):
    scale_in = scale.replace("448", f"{most}").replace("1000", f"{2.2 * most}")
    text = f"import torch\ns = {scale_in}\nq = (x / s).to(torch.{kind})"
    reading = qc.read_code(text)
    assert [(f.line, f.mistake) for f in reading.mistakes] == FLOATS[scale]
    assert not reading.unread
    x = tensor(text)
    s = eval(scale_in, {"x": x})
    assert bool(((x / s).abs() > 1.08 * most).any()) == bool(FLOATS[scale])
    clamped = text.replace("(x / s)", f"(x / s).clamp({-most}, {most})")
    lossy = "1000" in scale  # the clamp clips what the cast would lose
    assert [(f.line, f.mistake) for f in qc.read_code(clamped).mistakes] == [(2, "divisor")] * lossy


BLOCKS = {
    "bitsandbytes.nf4": "F.quantize_4bit(x, quant_type='nf4')",
    "bitsandbytes.fp4": "F.quantize_4bit(x)",
    "nf4 symmetric per_flat_group(16) min_max bitsandbytes.4bit": "F.quantize_nf4(x, blocksize=16)",
}


@for_each("preset", some(BLOCKS, 3))
def test_codes_in_blocks_come_back_as_the_library_s_preset_says(preset):
    text = (
        f"import bitsandbytes.functional as F\nq, state = {BLOCKS[preset]}\ny = F.dequantize_4bit(q, state)"
    )
    x = tensor(text).repeat(4, 2)
    shown = show_code(qc.read_code(text), 0, x)
    right = qc.apply(x, preset)
    assert torch.equal(shown.dequantized, right.dequantized)
    assert torch.equal(shown.codes, right.codes.float())
    (packed,) = [line for line in shown.lines if line.name == "q"]
    codes = right.codes.flatten().int()
    assert packed.shape == (codes.numel() // 2, 1)
    assert packed.high == int((codes[::2] * 16 + codes[1::2]).max())


@pytest.mark.slow
def test_8_bit_codes_in_blocks_are_the_library_s():
    functional = pytest.importorskip("bitsandbytes.functional")
    text = "import bitsandbytes.functional as F\nq, state = F.quantize_blockwise(x)\ny = F.dequantize_blockwise(q, state)"
    x = tensor(text)
    shown = show_code(qc.read_code(text), 0, x)
    codes, state = functional.quantize_blockwise(x)
    assert torch.equal(shown.codes, codes.float())
    np.testing.assert_allclose(shown.dequantized, functional.dequantize_blockwise(codes, state), rtol=1e-6, atol=0, strict=True, equal_nan=False)


PRESETS = {
    "hqq.linear_4bit": """
from hqq.core.quantize import Quantizer
q, meta = Quantizer.quantize(x, nbits=4, group_size=64, round_zero=True, axis=1, device='cpu')
y = Quantizer.dequantize(q, meta)
""",
    "quanto.qint4_g128": """
from optimum.quanto import MaxOptimizer, qint4, quantize_weight
s, shift = MaxOptimizer()(x, qtype=qint4, axis=0, group_size=128)
y = quantize_weight(x, qtype=qint4, axis=0, scale=s, shift=shift, group_size=128).dequantize()
""",
    "torchao.int8": """
import torch
from torchao.quantization import Int8WeightOnlyConfig, quantize_
layer = torch.nn.Linear(128, 64, bias=False)
layer.weight = torch.nn.Parameter(x)
quantize_(layer, Int8WeightOnlyConfig())
y = layer.weight.dequantize()
""",
    "bitsandbytes.blockwise": """
import bitsandbytes.functional as F
q, state = F.quantize_blockwise(x)
y = F.dequantize_blockwise(q, state)
""",
}


@for_each("preset", some(PRESETS))
def test_calls_on_layers_give_what_the_library_s_preset_gives(preset):
    x = torch.randn(64, 128, generator=torch.Generator().manual_seed(5)) / 20
    reading = qc.read_code(PRESETS[preset])
    assert (reading.mistakes, reading.unread) == ((), ())
    shown = show_code(reading, 0, x)
    right = qc.apply(x, preset)
    assert torch.equal(shown.dequantized, right.dequantized)
    assert torch.equal(shown.codes.long(), right.codes.reshape(x.shape).long())


def test_a_nested_scale_is_what_bitsandbytes_makes_of_the_maxima():
    x = torch.randn(20, 96, generator=torch.Generator().manual_seed(6))
    text = (
        "import bitsandbytes.functional as F\n"
        "q, state = F.quantize_4bit(x, compress_statistics=True, quant_type='nf4')\n"
        "y = F.dequantize_4bit(q, state)"
    )
    shown = show_code(qc.read_code(text), 0, x)
    blocks = x.reshape(-1, 64)
    absmax = blocks.abs().amax(1)
    rest = (absmax - absmax.mean()).reshape(1, -1)  # fewer than 256: one block of 8-bit codes
    scale = qc.apply(rest, "bitsandbytes.blockwise").dequantized.reshape(-1, 1) + absmax.mean()
    table = torch.tensor(qc.CODEBOOKS["nf4"].values)
    assert torch.equal(
        shown.dequantized, (table[shown.codes.reshape(-1, 64).long()] * scale).reshape(x.shape)
    )
    assert not torch.equal(scale.reshape(-1), absmax)


TENSORFLOW = {  # of -1..1: the scale is 2 / 255, and in float32 the zero point 127.49999, so 127
    "tf.quantization.fake_quant_with_min_max_vars(x, min=-1.0, max=1.0)": [-127, 0, 1, 64, 128],
    "tf.quantization.fake_quant_with_min_max_args(x, min=-1.0, max=1.0)": [-127, 0, 1, 64, 128],
    "tf.quantization.quantize(x, -1.0, 1.0, tf.qint8)[0]": [-128, -1, 0, 64, 127],
}


@for_each("call", TENSORFLOW)
def test_tensorflow_s_calls_give_its_codes(call):
    x = torch.tensor([-3.0, 0.0, 1 / 255, 0.502, 1.0])
    reading = qc.read_code(f"import tensorflow as tf\ny = {call}")
    assert not reading.unread
    source = read_source(reading.text)
    walk = evaluate(CodeInputs(source.text, source.tree, x))
    found = torch.as_tensor(walk.spaces[0]["y"].value).double()
    steps = found if "tf.qint8" in call else found * 127.5
    np.testing.assert_allclose(steps, torch.tensor(TENSORFLOW[call]).double(), rtol=1e-5, atol=1e-5, strict=True, equal_nan=False)


LEFT = {  # calls that are not followed: the line, what the sentence says to do
    "import torch\nfrom torchao.quantization import Int4WeightOnlyConfig\nc = Int4WeightOnlyConfig()": (
        3,
        "int4_g128",
    ),
    "import bitsandbytes as bnb\nlayer = bnb.nn.Linear4bit(64, 64, quant_type='nf4')": (
        2,
        "bitsandbytes.nf4",
    ),
    "from onnxruntime.quantization import quantize_dynamic\nquantize_dynamic('a.onnx', 'b.onnx')": (
        2,
        "Checkpoint",
    ),
    "from torch.ao.quantization import HistogramObserver\nobs = HistogramObserver()": (2, "histogram"),
    "from torch import nn\nlayer = nn.Linear(8, 8, dtype=torch.bfloat16)": (2, "float32"),
}


@for_each("text", LEFT)
def test_a_call_that_is_not_followed_has_one_sentence_with_its_line(text):
    line, word = LEFT[text]
    reading = qc.read_code(text)
    assert [why.startswith(f"Line {line}: ") and word in why for why in reading.unread] == [True]
    assert not reading.quantizers
