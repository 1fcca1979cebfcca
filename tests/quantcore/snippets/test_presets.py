"""Each preset's script runs with the library, and fails for other numbers."""

import dataclasses
import importlib.util
import re
import warnings

import pytest
import torch
from grid import for_each
from parts import some, some_rows
from script_run import run

import quantcore as qc
from quantcore.snippets import library_script
from quantcore.snippets.libraries import CALLS

# distribution -> module, where they differ
MODULES = {"compressed-tensors": "compressed_tensors", "ggml": "gguf"}
SCRIPTED = [name for name, preset in qc.PRESETS.items() if preset.convention.name in CALLS]
# by default, of libraries that do not take seconds to import
FEW = ("torchao.fp8_e4m3fn", "torchao.mxfp4.RCEIL", "torchao.tinygemm_g128", "bitsandbytes.blockwise", "gguf.Q8_0", "gguf.Q6_K")


@pytest.fixture(autouse=True)
def _quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def needs(name):
    library = qc.PRESETS[name].convention.library
    module = MODULES.get(library, library)
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{library} is not installed")


def rows(name, seed, long=False):
    """Rows of many magnitudes, one of zeros and one with ties; short enough for literals unless ``long``."""
    wide = name.startswith(("gguf.TQ", "torchao.nf4")) or name.endswith(("_K", "IQ4_XS")) or "_g128" in name
    shape = ((256, 64) if name == "torchao.nf4" else (6, 256)) if long else (1, 256) if wide else (4, 64)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    x *= torch.logspace(-3, 2, len(x))[:, None] * 8**seed
    x[1:2] = 0 if name != "quanto.qfloat8_e4m3fn" else 1  # it divides 0 by 0
    x[2:3] = torch.arange(shape[1]) % 13 / 4 - 1.5
    return x


def result_of(name, x):
    return qc.apply(x, qc.PRESETS[name])


def runs(name, result):
    needs(name)
    script = library_script(result)
    try:
        run(script)
    except Exception as error:
        pytest.fail(f"{error!r}\n{script}")


@for_each(("name", "long"), [*((name, False) for name in FEW), *some_rows(((name, True) for name in FEW), 5), *(pytest.param(name, long, marks=pytest.mark.slow) for name in SCRIPTED for long in (False, True))])
def test_script_holds(name, long):
    runs(name, result_of(name, rows(name, 0, long)))


@for_each("name", [*FEW[::4], *(pytest.param(name, marks=pytest.mark.slow) for name in SCRIPTED)])
def test_script_notices_other_numbers(name):
    """Each of its assertions can fail: with the tensor, the codes or the scales of another script."""
    needs(name)
    script, other = (library_script(result_of(name, rows(name, seed))) for seed in (0, 1))
    parts = ["x = ", *re.findall("^expected.* = ", script, re.MULTILINE)]
    assert len(parts) >= 2
    for part in parts:
        whole = re.compile(rf"^{part}.*?\)$", re.MULTILINE | re.DOTALL)
        broken = whole.sub(lambda _, whole=whole: whole.search(other)[0], script, count=1)
        assert broken != script, part
        with pytest.raises(AssertionError):
            run(broken)


@for_each("name", some(SCRIPTED, 2))
def test_script_is_short_and_names_its_versions(name):
    """Codes are asserted, except for compressed-tensors' 6-bit format, TQ1_0 and ggml's searches, where x̂ is."""
    script = library_script(result_of(name, rows(name, 0)))
    code = script[script.index("\n\n", script.index("\nx = ")) : script.index("\nexpected = ")]
    assert max(map(len, code.splitlines())) <= 115
    assert len(code.strip().splitlines()) <= 20
    convention = qc.PRESETS[name].convention
    reader = "gguf==0.19.0" if convention.library == "ggml" else f"{convention.library}=={convention.version}"
    assert reader in script.split("# pip install ")[1].split("\n")[0].split()
    values = name in ("compressed_tensors.mxfp6_e2m3", "gguf.TQ1_0") or convention.library == "ggml"
    assert f"print({'dequantized' if values else 'codes'})" in script


OTHERS = [
    ("torchao.fp8_e4m3fn", {"granularity": qc.PerChannel(0)}, (4, 6)),
    ("torchao.fp8_e5m2", {"granularity": qc.PerBlock((2, 4))}, (4, 8)),
    ("torchao.fp8_e4m3fn", {"granularity": qc.PerGroup(4), "range_setting": qc.Percentile(95)}, (3, 4, 8)),
    ("torchao.mxfp4", {"granularity": qc.PerGroup(16)}, (64,)),
    ("torchao.nvfp4", {}, (32,)),
    ("torchao.nvfp4.1level", {}, (2, 2, 2, 32)),
    ("torchao.nf4", {"granularity": qc.PerFlatGroup(32)}, (4, 64)),
    ("compressed_tensors.fp8_e4m3fn", {"granularity": qc.PerGroup(4)}, (12,)),
    ("compressed_tensors.fp8_e4m3fn", {"granularity": qc.PerBlock((2, 4))}, (5, 7)),
    ("compressed_tensors.fp8_e4m3fn", {"granularity": qc.PerChannel(0), "range_setting": qc.Fixed(-1, 2)}, (4, 6)),
    ("compressed_tensors.mxfp8_e4m3", {}, (2, 3, 32)),
    ("compressed_tensors.nvfp4", {}, (16,)),
    ("bitsandbytes.nf4", {"granularity": qc.PerFlatGroup(32)}, (7, 11)),
    ("bitsandbytes.fp4", {"granularity": qc.PerFlatGroup(4096)}, (3, 1)),
    ("bitsandbytes.blockwise", {"granularity": qc.PerFlatGroup(64)}, (7, 11)),
    ("gguf.Q5_1", {}, (2, 3, 32)),
]  # fmt: skip


@for_each(("name", "changes", "shape"), some_rows(OTHERS, 6), ids=str)
def test_what_a_call_takes_as_an_argument_may_differ(name, changes, shape):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(2)) * 2
    runs(name, qc.apply(x, dataclasses.replace(qc.PRESETS[name], **changes)))


@for_each(
    ("name", "changes", "words"),
    [
        ("torchao.mxfp4", {"range_setting": qc.Percentile(99)}, "the range setting percentile(99); choose min_max"),
        ("torchao.mxfp4", {"format": qc.FLOATS["e3m4"]}, "does not support the format e3m4; choose "),
        ("torchao.mxfp4", {"scales": None}, "does not support float32 scales; choose quantized scales"),
        ("torchao.nvfp4", {"granularity": qc.PerGroup(32)}, "supports groups of 16 elements, not 32; choose another group size"),
        ("torchao.fp8_e4m3fn", {"granularity": qc.PerGroup(5)}, "supports only blocks that divide the tensor"),
        ("torchao.fp8_e4m3fn", {"granularity": qc.PerGroup(1)}, "does not support blocks of one element"),
        ("torchao.fp8_e4m3fn", {"granularity": qc.PerFlatGroup(8)}, "does not support flat groups"),
        ("bitsandbytes.nf4", {"granularity": qc.PerFlatGroup(48)}, "32, 64, 128, 256, 512, 1024, 2048 or 4096"),
        ("gguf.Q4_0", {"granularity": qc.PerGroup(16)}, "supports groups of 32 elements, not 16"),
        ("gguf.Q4_0", {"format": qc.UINT8}, "does not support the format uint8; choose uint4"),
        ("microxcaling.mxfp4", {}, "microxcaling is not on any package index"),
        ("microxcaling.mxint8.nearest", {}, "use the quantcore script"),
    ],
)  # fmt: skip
def test_what_no_script_can_give(name, changes, words):
    scheme = dataclasses.replace(qc.PRESETS[name], **changes)
    with pytest.raises(qc.QuantError, match=re.escape(words)):
        library_script(qc.apply(rows(name, 0), scheme))


@for_each(
    ("name", "granularity", "shape"),
    [("torchao.mxfp4", qc.PerGroup(7), (3, 7)), ("torchao.nf4", qc.PerFlatGroup(3), (3, 7))],
)
def test_two_codes_a_byte_need_an_even_number(name, granularity, shape):
    scheme = dataclasses.replace(qc.PRESETS[name], granularity=granularity)
    with pytest.raises(qc.QuantError, match="packs two codes"):
        library_script(qc.apply(torch.randn(shape), scheme))


def test_codes_of_no_number_are_left_to_chance():
    x = rows("torchao.mxfp4", 0)
    x[0, 0] = torch.nan
    with pytest.raises(qc.QuantError, match="does not define the codes of NaN and infinity"):
        library_script(result_of("torchao.mxfp4", x))


def test_conventions_of_scales_are_no_calls():
    x = torch.ones(4, 8)
    for name in ("stored", "torchao.nf4.scales"):
        scheme = qc.Scheme.parse(f"{'int8' if 'nf4' in name else 'e4m3fn'} {name}")
        with pytest.raises(qc.QuantError, match=f"{name} only says how scales are stored"):
            library_script(qc.apply(x, scheme))


def test_a_changed_convention_is_not_the_library():
    preset = qc.PRESETS["gguf.Q8_0"]
    changed = dataclasses.replace(preset, convention=preset.convention.changed(rounding="floor"))
    with pytest.raises(qc.QuantError, match="differs from what gguf does"):
        library_script(qc.apply(rows("gguf.Q8_0", 0), changed))


def test_every_preset_has_a_script_or_a_reason():
    left = {name for name in qc.PRESETS if name not in SCRIPTED}
    # microxcaling is not on any package index, gptq_like is only GPTQ's grid, and torchao.int4 has its
    # convention's script
    assert {name.partition(".")[0] for name in left} == {"microxcaling", "gptq_like", "torchao"}
    assert {name for name in left if name.startswith("torchao")} == {
        f"torchao.int4_g{n}" for n in (32, 64, 128)
    }
    for size in (32, 64, 128):
        scheme = qc.PRESETS[f"torchao.int4_g{size}"]
        assert "choose_qparams_affine" in library_script(qc.apply(torch.ones(2, 128), scheme))
