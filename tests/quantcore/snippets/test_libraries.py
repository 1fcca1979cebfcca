"""Each library's script runs with the library, and its assertions hold for quantcore's codes.

AIMET installs a torchvision that cannot be imported with the CPU build of torch, so its scripts run only where
aimet_torch can be imported.
"""

import importlib.metadata
import importlib.util
import itertools
import re
import warnings

import golden_cases
import numpy as np
import pytest
import torch
from grid import for_each
from parts import in_parts, some
from script_run import run

import quantcore as qc
from quantcore.snippets import library_script, torch_script
from quantcore.snippets.libraries import RECIPES
from quantcore.tensors import literal

SHAPES = {
    (): ["per_tensor"],
    (6,): ["per_tensor", "per_channel(0)", "per_group(3)"],
    (1, 5): ["per_channel(0)", "per_channel(1)"],
    (6, 8): [
        "per_tensor",
        "per_channel(0)",
        "per_channel(-1)",
        "per_group(4)",
        "per_group(5)",
        "per_group(3,axis=0)",
        "per_block([2,4])",
        "per_block([4,-1])",
        "per_flat_group(12)",
    ],
    (3, 4, 6): ["per_tensor", "per_channel(0)", "per_channel(1)", "per_group(3)", "per_block([1,2,3])"],
    (20, 24): ["per_channel(0)", "per_group(2)", "per_flat_group(16)"],
}
SETTINGS = ["min_max", "percentile(95)", "fixed(-1,2.5)", "given(0.3,0)", "given(0.3,5)", "scales(int8)"]
WIDTHS = ["int4", "uint4", "int8", "uint8", "int8n", "int3", "uint6", "int16", "uint16", "int2", "int5n"]
SYMMETRIES = ["symmetric", "asymmetric"]
AIMET = importlib.util.find_spec("aimet_torch") is not None
TODAY = [name for name in RECIPES if AIMET or not name.startswith("aimet")]
# whose import takes seconds: by default, their scripts are written, and their numbers compared with recorded ones
SLOW = ("brevitas", "compressed_tensors", "hqq", "quanto")
each_today = for_each("name", [pytest.param(name, marks=[pytest.mark.slow] * name.startswith(SLOW)) for name in TODAY])


def sample(shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 2 + 0.3


@pytest.fixture(autouse=True)
def _quiet():
    """Even likely mistakes have a script, and libraries issue their own warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def result_of(text, shape):
    """None if the library does not support it."""
    try:
        return qc.apply(sample(shape), qc.Scheme.parse(text))
    except qc.QuantError:
        return None


def results(name, each):
    """Every granularity with every range setting, in ``each`` of the library's bit widths and symmetries in turn."""
    kinds = [
        f"{fmt} {symmetry}"
        for fmt, symmetry in itertools.product(WIDTHS, SYMMETRIES)
        if any(result_of(f"{fmt} {symmetry} {granularity} {name}", (6, 8)) for granularity in SHAPES[(6, 8)][:2])
    ]
    turns = itertools.cycle(kinds)
    for shape, granularities in SHAPES.items():
        for granularity, setting in itertools.product(granularities, SETTINGS):
            for kind in itertools.islice(turns, each):
                text = f"{kind} {granularity} {setting} {name}"
                if result := result_of(text, shape):
                    yield text, result


@in_parts(4)
@for_each("name", some(TODAY[::-1], 12))
def test_scripts_hold(name, part):
    """They do, and they cover each symmetry and granularity that the library has."""
    ran, every = set(), list(results(name, len(part(range(3)))))
    chosen = {text for text, _ in part(every)}
    for text, result in every:
        try:
            script = library_script(result)
        except qc.QuantError:
            continue  # the messages are tested below
        try:
            if text in chosen:
                run(script)
        except Exception as error:
            pytest.fail(f"{text}, shape {tuple(result.x.shape)}: {error!r}\n{script}")
        ran.add((result.scheme.symmetric, type(result.scheme.granularity).__name__))
    kinds = {limit.of: limit.allowed for limit in qc.CONVENTIONS[name].limits}
    symmetries = {kind.split()[1] for kind in kinds.get("kind", ("any symmetric", "any asymmetric"))}
    assert {symmetry == "symmetric" for symmetry in symmetries} == {symmetric for symmetric, _ in ran}
    granularities = kinds.get("granularity", ("per_tensor", "per_channel", "per_group", "per_block"))
    assert {g.title().replace("_", "") for g in granularities} == {granularity for _, granularity in ran}


@in_parts(47)
@each_today
def test_scripts_hold_on_recorded_inputs(name, part):
    """The records include ties, tiny, huge and one-sided rows, NaN and infinity."""
    count = 0
    for case in part(golden_cases.cases(name)):
        try:
            script = library_script(qc.apply(golden_cases.array(case["x"]), golden_cases.scheme_of(case)))
        except qc.QuantError:
            continue
        try:
            run(script)
        except Exception as error:
            pytest.fail(f"{case['id']}: {error!r}\n{script}")
        count += 1
    assert count >= len(part(range(14)))


@in_parts(97)
@for_each("name", RECIPES)
def test_torch_by_hand_holds_on_recorded_inputs(name, part):
    for case in part(golden_cases.cases(name)):
        try:
            result = qc.apply(golden_cases.array(case["x"]), golden_cases.scheme_of(case))
        except qc.QuantError:
            continue  # so does the library
        script = torch_script(literal(result.x.numpy()), result)
        # scale and zero point are computed, not written as numbers
        assert "# parameters" not in script, script
        try:
            names = run(script)
        except Exception as error:
            pytest.fail(f"{case['id']}: {error!r}\n{script}")
        np.testing.assert_array_equal(names["x_hat"].numpy(), result.dequantized.numpy())


SCHEMES = {
    "torch.quantize_per_channel": "int8 per_channel",
    "brevitas": "int8n",
    "hqq": "uint4 asymmetric",
    "hqq.round_zero": "uint4 asymmetric",
}


def plain(name, seed=0, setting="min_max", shape=(4, 6)):
    text = f"{SCHEMES.get(name, 'int8')} {setting} {name}"
    return qc.apply(sample(shape, seed), qc.Scheme.parse(text))


@each_today
@for_each("part", ["x = ", "expected = ", "expected_scale = "])
def test_script_notices_other_numbers(name, part):
    """Each of its assertions can fail."""
    script, other = (library_script(plain(name, seed)) for seed in (0, 1))
    whole = re.compile(rf"^{part}.*?\)$", re.MULTILINE | re.DOTALL)
    assert whole.search(script)
    with pytest.raises(AssertionError):
        run(whole.sub(lambda _: whole.search(other)[0], script, count=1))


@for_each("name", RECIPES)
def test_script_is_short_and_names_its_versions(name):
    script = library_script(plain(name))
    assert max(map(len, script.splitlines())) <= 115
    code = script[script.index("\n\n", script.index("\nx = ")) : script.index("\nexpected = ")]
    assert len(code.strip().splitlines()) <= 25
    convention = qc.CONVENTIONS[name]
    pins = re.search(r"^# pip install (.*)$", script, re.MULTILINE)[1].split()
    assert f"{convention.library}=={convention.version}" in pins
    for pin in pins:
        if not pin.startswith("aimet") or AIMET:
            distribution, version = pin.split("==")
            assert importlib.metadata.version(distribution).split("+")[0] == version


def test_many_elements_are_packed_and_hashed():
    for name in ("torchao", "onnxruntime", "onnx"):
        x = sample((60, 96))
        script = library_script(qc.apply(x, qc.Scheme.parse(f"int4 per_group(4) {name}")))
        assert script.count("sha256(data)") == 2
        run(script)


@for_each("name", ["torchao", "onnxruntime"])
def test_script_of_a_large_tensor_reads_the_export(name, tmp_path, monkeypatch):
    x = sample((200, 200))
    np.savez(tmp_path / "quantscope.npz", x=x.numpy())
    monkeypatch.chdir(tmp_path)
    run(library_script(qc.apply(x, qc.Scheme.parse(f"int4 per_group(40) {name}"))))


@for_each(
    ("text", "words"),
    [
        ("int8", "textbook does not describe a current library"),
        ("int8 aimet.2024.Quantize", "aimet.2024.Quantize does not describe a current library"),
        ("int8 onnxruntime(overflow=wrap)", "onnxruntime(overflow=wrap) differs from what onnxruntime does"),
        ("int4 given(0.3,9) torchao", "torchao accepts only zero points within the codes -8..7 of int4"),
        ("uint4 asymmetric fixed(-1,1) hqq", "computes scale and codes in one call; choose min-max"),
        (
            "int8 per_channel(0) torchao scales(uint2 given(0.5))",
            "A scale is 0, and torchao would divide by it",
        ),
        ("uint4 asymmetric hqq scales(int8)", "and scales that are not quantized"),
        ("int8 given(0.3,5) quanto", "has no zero_point; choose 0"),
    ],
)
def test_what_no_script_can_give(text, words):
    with pytest.raises(qc.QuantError, match=re.escape(words)):
        library_script(qc.apply(sample((4, 6)), qc.Scheme.parse(text)))


def test_fake_quantize_can_not_be_read_back_under_an_infinite_scale():
    x = torch.tensor([3e38, -3e38, 1.0])
    with pytest.raises(qc.QuantError, match="codes can't be recovered"):
        library_script(qc.apply(x, qc.Scheme.parse("int8 asymmetric torch.fake_quantize")))


@pytest.mark.slow  # by default, the two messages are tested above
def test_what_torch_ao_refuses_is_so():
    """What two messages say about quanto and torchao is true of the installed libraries."""
    from optimum.quanto import AbsmaxOptimizer  # noqa: F401  registers the operator
    from torchao.quantization.quant_primitives import MappingType, choose_qparams_affine

    x = torch.tensor([[10.0, -10.0], [1.0, 0.0]])
    assert torch.ops.quanto.quantize_symmetric(x, torch.int8, None, torch.tensor(1.0)).max() == 10
    scale, _ = choose_qparams_affine(x, MappingType.SYMMETRIC, (1, 1), torch.int8, -128, 127)
    assert scale.numel() == 1


def test_every_library_has_a_recipe():
    assert set(qc.INTEGER_CONVENTIONS) - set(RECIPES) == {"textbook", "aimet.2024.Quantize"}
