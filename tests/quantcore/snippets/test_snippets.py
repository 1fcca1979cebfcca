"""Every script runs, and its assertions hold, which compare with codes that the script did not compute."""

import dataclasses
import runpy
import sys

import numpy as np
import pytest
import torch
from grid import for_each
from parts import some, some_rows
from script_run import run

import quantcore as qc
from quantcore.export import to_npz
from quantcore.range_setting import METHODS
from quantcore.snippets import quantcore_script, torch_script
from quantcore.snippets.snippets import scheme_source
from quantcore.tensors import literal
from quantcore.tensors.text.literals import number_texts

WRITERS = [quantcore_script, torch_script]
SHAPES = [(), (5,), (7, 10), (3, 4, 6), (2, 3, 4, 5)]
SETTINGS = ["min_max", "percentile(90)", "percentile(99.9)", "fixed(-1,2.5)", "given(0.3,5)"]
GRANULARITIES = {
    0: ["per_tensor"],
    1: ["per_tensor", "per_channel(0)", "per_group(2)", "per_group(5)", "per_block([3])"],
    2: [
        "per_tensor",
        "per_channel(axis=1)",
        "per_group(4)",
        "per_group(5)",
        "per_group(3,axis=0)",
        "per_block([2,4])",
    ],
    3: ["per_channel(axis=1)", "per_group(2,axis=1)", "per_block([-1,2,4])", "per_block([2,2,3])"],
    4: ["per_channel(axis=-2)", "per_group(2)", "per_group(3,axis=1)", "per_block([1,2,-1,3])"],
}
FORMATS = ["int4 symmetric", "uint4 asymmetric", "int8n asymmetric", "uint3 symmetric", "uint16 asymmetric"]


def combinations():
    """Every granularity of every rank with every range setting, in alternating formats and overflow modes."""
    found = []
    for shape in SHAPES:
        for granularity in GRANULARITIES[len(shape)]:
            for setting in SETTINGS:
                overflow = "textbook(overflow=wrap)" if len(found) % 3 == 2 else "textbook"
                text = f"{FORMATS[len(found) * 2 // 3 % len(FORMATS)]} {granularity} {setting} {overflow}"
                found.append((shape, text))
    return found


def sample(shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator) * 2 + 0.3


@for_each(("shape", "text"), some_rows(combinations(), 17))
@for_each("write", WRITERS)
def test_script_holds(write, shape, text):
    x = sample(shape)
    result = qc.apply(x, qc.Scheme.parse(text))
    script = write(literal(x.numpy()), result)
    names = run(script)
    assert torch.equal(names["x"], x)
    assert names["x"].shape == x.shape
    if write is torch_script:
        assert "quantcore" not in script
        assert torch.equal(names["codes"], result.codes)
        assert torch.equal(names["x_hat"], result.dequantized)
    else:
        assert names["scheme"] == result.scheme


@for_each("setting", some(METHODS), ids=str)
@for_each("write", WRITERS)
def test_script_of_every_range_setting_holds(write, setting):
    if isinstance(setting, qc.Entropy):  # its usual bins take a hundred times as long
        setting = qc.Entropy(160, setting.num_quantized_bins)
    for text in ("int4", "uint4 asymmetric per_channel(0)", "uint4 asymmetric per_channel(0) hqq"):
        scheme = dataclasses.replace(qc.Scheme.parse(text), range_setting=setting)
        if not qc.unsupported_reason(scheme, (7, 10)):
            result = qc.apply(sample((7, 10)), scheme)
            assert torch.equal(run(write(literal(result.x.numpy()), result))["codes"], result.codes)


@for_each(
    ("values", "text"),
    [
        ([[0.0, 0.0], [1.0, -2.0]], "int4 per_channel"),
        ([0.0, -0.0], "uint8 asymmetric"),
        ([1e-45, 0.0], "int8"),
        ([3e38, -3e38, 1.0], "uint4 asymmetric"),
        ([[3e38, -3e38], [1.0, 2.0]], "int8 asymmetric per_channel"),
        ([[3e38, -3e38, 1.0]], "int4 asymmetric per_group(2) percentile(99)"),
        ([3e38, -3e38, 1.0], "int8 fixed(-1e-30,1e-30) textbook(overflow=wrap)"),
        ([3e38, 7.0, -300.0], "uint8 asymmetric given(1e-20,3) textbook(overflow=wrap)"),
        ([7.038530691851209e-26, 1.1754944e-38, 16777216.0], "int8"),
        ([5.0, -3.0, 2.0], "uint4 given([0.5,1,0.25],[0,70000,-3]) per_channel"),
        ([5.0, -3.0, 2.0], "int4 given([0.5,1],1) per_group(2)"),
        ([5.0, -3.0, 2.0], "int4 given(0.7,[0,2]) per_group(2)"),
    ],
)
@for_each("write", WRITERS)
@pytest.mark.filterwarnings("ignore:The zero_point")
def test_script_of_a_corner_holds(write, values, text):
    x = torch.tensor(values)
    result = qc.apply(x, qc.Scheme.parse(text))
    names = run(write(literal(x.numpy()), result))
    assert torch.equal(names["x"], x)


@for_each("convention", ["textbook", "torchao", "compressed_tensors", "hqq"])
@for_each("scales", ["int4", "uint8 asymmetric per_group(2,axis=0)"])
def test_scripts_hold_for_scales_of_scales(convention, scales):
    """Also where a small scale becomes 0 next to a large one."""
    x = sample((6, 8)) * torch.tensor([1e-3, 1e-3, 1.0, 1.0, 1e3, 1e3])[:, None]
    fmt = "uint4 asymmetric" if convention == "hqq" else "int4 asymmetric"
    result = qc.apply(x, qc.Scheme.parse(f"{fmt} per_group(4) {convention} scales({scales})"))
    if scales == "int4":
        assert (result.scale == 0).any()
    for write in WRITERS:
        names = run(write(literal(x.numpy()), result))
        assert torch.equal(names["x"], x)


@for_each("text", ["int4 per_group(4) gguf.Q8_0", "uint8 per_group(4) gguf.Q4_0"])
def test_scripts_hold_where_a_cast_keeps_the_lowest_bits(text):
    """NaN, infinity and what does not fit into int32 become 0."""
    x = torch.tensor([[torch.inf, torch.nan, 1.0, -2.0], [1e30, -3e30, 2e-9, 0.0], [0.0, 0.0, 0.0, 0.0]])
    result = qc.apply(x, qc.Scheme.parse(text))
    for write in WRITERS:
        run(write(literal(x.numpy()), result))


@for_each("kernel", "ABCDFGH")
@for_each("text", some(["uint4 asymmetric per_group(4)", "int4 per_channel", "uint8 symmetric"], 3))
def test_scripts_hold_for_every_kernel(kernel, text):
    """All but the fused one, which is tested on its library's records."""
    x = sample((6, 8))
    result = qc.apply(x, qc.Scheme.parse(f"{text} textbook(kernel={kernel},rounding=toward_zero)"))
    run(torch_script(literal(x.numpy()), result))


def test_scripts_hold_where_codes_wrap_under_a_scale_of_0():
    x = sample((6, 8)) * torch.tensor([1e-3, 1e-3, 1.0, 1.0, 1e3, 1e3])[:, None]
    scheme = qc.Scheme.parse("int4 per_group(4) textbook(overflow=wrap) scales(int4)")
    result = qc.apply(x, scheme)
    assert (result.scale == 0).any()
    for write in WRITERS:
        run(write(literal(x.numpy()), result))


@for_each(
    "text", ["int4 asymmetric per_group(32)", "uint16 asymmetric per_block([7,9]) percentile(99)"]
)
@for_each("write", WRITERS)
def test_many_elements_are_packed_and_hashed(write, text):
    x = sample((60, 96))
    script = write(literal(x.numpy()), qc.apply(x, qc.Scheme.parse(text)))
    assert "sha256" in script
    assert max(map(len, script.splitlines())) <= 115
    assert torch.equal(run(script)["x"], x)


@for_each("write", WRITERS)
@for_each(("shape", "old"), [((4, 5), "expected = torch.tensor("), ((40, 50), '== (\n    "')])
def test_script_notices_another_tensor(write, shape, old):
    x = sample(shape)
    script = write(literal(x.numpy()), qc.apply(x, qc.Scheme()))
    assert old in script
    with pytest.raises(AssertionError):
        run(write(literal(sample(shape, seed=1).numpy()), qc.apply(x, qc.Scheme())))


def test_scheme_that_is_long_stands_in_lines():
    scheme = qc.Scheme.parse(f"int4 per_channel given({[0.1 + i for i in range(64)]})".replace("], [", "],["))
    source = scheme_source(scheme)
    assert max(map(len, source.splitlines())) <= 100
    assert eval(source, {"qc": qc}) == scheme


def test_scheme_shows_only_what_differs():
    assert scheme_source(qc.Scheme()) == "qc.Scheme()"
    changed = qc.Scheme.parse("int5 asymmetric percentile(99) textbook(overflow=wrap)")
    assert eval(scheme_source(changed), {"qc": qc}) == changed


def test_literal_has_three_forms():
    small, packed, large = (sample(shape).numpy() for shape in ((15, 20), (128, 128), (129, 128)))
    assert literal(small).startswith("x = torch.tensor([\n")
    assert "base64" in literal(packed)
    assert literal(large).startswith('x = torch.from_numpy(np.load("quantscope.npz")["x"])')


@for_each("shape", [(), (1,), (3, 1), (17, 17), (2, 3, 4, 5), (20, 20), (3, 7, 11, 5)])
def test_literal_keeps_every_bit(shape):
    bits = np.random.default_rng(0).integers(0, 2**32, shape, dtype=np.uint32)
    x = np.where(np.isfinite(bits.view(np.float32)), bits.view(np.float32), np.float32(-0.0)).reshape(shape)
    names = {}
    exec(f"import torch, zlib, base64\nimport numpy as np\n{literal(x)}", names)
    assert names["x"].dtype == torch.float32
    assert names["x"].shape == x.shape
    assert names["x"].numpy().tobytes() == x.tobytes()


@for_each("shape", [(), (3,), (20, 20)])
@for_each("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_literal_keeps_every_bit_of_a_dtype(dtype, shape):
    whole = torch.int64 if dtype == torch.float64 else torch.int16
    x = torch.randint(-(2**15), 2**15, shape, dtype=whole, generator=torch.Generator().manual_seed(1)).view(dtype)
    x = x.where(x.isfinite(), -0.0)
    names = {}
    exec(f"import torch, zlib, base64\nimport numpy as np\n{literal(x)}", names)
    assert names["x"].dtype == dtype
    assert torch.equal(names["x"].view(whole), x.view(whole))


def test_a_large_tensor_is_read_in_its_dtype(tmp_path, monkeypatch):
    x = sample((300, 129)).bfloat16()
    result = qc.apply(x, qc.Scheme.parse("int4 per_channel(0) torchao"))
    (tmp_path / "quantscope.npz").write_bytes(to_npz(result))
    monkeypatch.chdir(tmp_path)
    assert run(quantcore_script(literal(x), result))["x"].dtype == torch.bfloat16


@for_each("dtype", [torch.bfloat16, torch.float16])
@for_each("library", ["textbook", "torchao", "compressed_tensors", "hqq"])
def test_quantcore_script_holds_in_a_dtype(library, dtype):
    for shape in ((7, 12), (20, 24)):
        x = sample(shape).to(dtype)
        kind = "uint4" if library == "hqq" else "int8"
        result = qc.apply(x, qc.Scheme.parse(f"{kind} asymmetric per_channel(0) {library}"))
        names = run(quantcore_script(literal(x), result))
        assert names["x"].dtype == dtype
        assert torch.equal(names["codes"], result.codes)


def test_numbers_survive_a_reader_that_goes_through_float64():
    values = np.array([7.038530691851209e-26, 0.1, 3.4028235e38, 1e-45], np.float32)
    assert np.float32(float(str(values[0]))) != values[0]
    assert [np.float32(float(t)) for t in number_texts(values)] == values.tolist()


def test_imports_of_the_tensor_code_stand_first():
    x = torch.arange(4.0)
    code = "import math\nfrom torch import arange\n\nx = arange(math.sqrt(16))"
    script = quantcore_script(code, qc.apply(x, qc.Scheme()))
    assert script.startswith(
        "import math\n\nimport quantcore as qc\nimport torch\nfrom torch import arange\n\nx ="
    )
    run(script)


def test_imports_that_are_not_used_are_left_out():
    x = torch.arange(4.0)
    code = "import os.path\nfrom math import pi, sqrt\n\nx = torch.arange(sqrt(16))"
    script = quantcore_script(code, qc.apply(x, qc.Scheme()))
    assert script.startswith(
        "import os.path\nfrom math import sqrt\n\nimport quantcore as qc\nimport torch\n\nx ="
    )
    run(script)


def test_scripts_run_by_themselves(tmp_path, capsys, monkeypatch):
    """As `__main__`, and those that need only torch where there is no quantcore."""
    scripts = [
        (torch_script, (3, 10), "uint4 asymmetric per_group(4) percentile(95)"),
        (torch_script, (40, 50), "int4 per_block([16,16])"),
        (quantcore_script, (40, 50), "int8 per_channel"),
    ]
    for number, (write, shape, text) in enumerate(scripts):
        x = sample(shape)
        script = write(literal(x.numpy()), qc.apply(x, qc.Scheme.parse(text)))
        (tmp_path / f"script{number}.py").write_text(script)
        with monkeypatch.context() as patch:
            if write is torch_script:
                for name in [name for name in sys.modules if name.partition(".")[0] == "quantcore"]:
                    patch.setitem(sys.modules, name, None)  # whose import is an ImportError
            runpy.run_path(str(tmp_path / f"script{number}.py"), run_name="__main__")
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("OK")]
    by_torch = f"codes equal those of Quantscope (torch {torch.__version__})."
    assert lines == [
        *(f"OK: 30 {by_torch}", f"OK: 2,000 {by_torch}"),
        "OK: 2,000 codes equal those of Quantscope.",
    ]


def test_script_of_a_large_tensor_reads_the_export(tmp_path, monkeypatch):
    x = sample((200, 200))
    np.savez(tmp_path / "quantscope.npz", x=x.numpy())
    monkeypatch.chdir(tmp_path)
    run(torch_script(literal(x.numpy()), qc.apply(x, qc.Scheme.parse("int4 per_group(32)"))))


@for_each("name", some(qc.PRESETS, 11))
def test_scripts_of_presets(name):
    result = qc.apply(sample((4, 256) if name != "torchao.nf4" else (64, 256)), qc.PRESETS[name])
    run(quantcore_script(literal(result.x), result))
    of_numbers = name.startswith(("microxcaling.mxint", "torchao.int", "gptq_like.int", "onnxruntime.uint4"))
    if of_numbers or name in ("gguf.Q3_K", "gguf.Q6_K", "quanto.qint4_g128.zeropoint", "hqq.linear_4bit", "torch.quantized_decomposed.int8"):
        run(torch_script(literal(result.x), result))
    else:
        with pytest.raises(qc.QuantError, match=r"^[^.]+.*; .*use the quantcore script\.$"):
            torch_script(literal(result.x), result)


@for_each("name", qc.PRESETS)
def test_source_of_a_scheme_beside_a_preset(name):
    """A changed preset has no name, so the long form is written."""
    scheme = dataclasses.replace(qc.PRESETS[name], range_setting=qc.Percentile(99.0))
    source = scheme_source(scheme)
    assert eval(source, {"qc": qc}) == scheme
    assert "PRESETS" not in source
    assert scheme_source(qc.PRESETS[name]) == f'qc.PRESETS["{name}"]'
