"""The scripts of methods run: their assertions hold, and fail where a number is another."""

import contextlib
import io

import pytest
from grid import for_each
from parts import some_rows

import quantcore as qc
from quantcore import outputs
from quantcore.outputs import MethodOptions
from quantcore.snippets import MethodSource, cache_script, method_library_script, method_script

X = "qc.outputs.activations(64, 8, outliers=1, factor=20.0, correlation=0.5, seed=0)"
HELD = "qc.outputs.activations(256, 8, outliers=1, factor=20.0, correlation=0.5, seed=0, sample=1)"
W = "x = qc.tensors.generate(qc.tensors.Generated())"
OPTIONS = MethodOptions(alpha=0.6, act_order=True, damping=0.02, threshold=3.0)


def source(scheme="int4 per_channel(0)", activations="int8 per_channel(0)", w=W, inputs=8):
    of_x = activations and qc.Scheme.parse(activations)
    return MethodSource(w, inputs, X, HELD, qc.Scheme.parse(scheme), of_x)


def last_line(script):
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(script, "script", "exec"), {})
    return printed.getvalue().splitlines()[-1]


@for_each(
    ("scheme", "of_x"), some_rows([("int4 per_channel(0)", "int8 per_channel(0)"), ("e2m1 per_tensor", None)], 2)
)
def test_each_method_gives_the_same_output_by_its_script(scheme, of_x):
    w, made = qc.tensors.generate(qc.tensors.Generated()), source(scheme, of_x)
    x, held = outputs.activations(64, 8), outputs.activations(256, 8, sample=outputs.HELD_OUT)
    for found in outputs.compare(w, x, held, scheme, of_x, OPTIONS):
        assert not found.refused
        script = method_script(made, found.method, OPTIONS, found.sqnr_db)
        assert last_line(script) == "OK: the SQNR of the output is that of Quantscope.", found.method
        with pytest.raises(AssertionError):
            last_line(method_script(made, found.method, OPTIONS, found.sqnr_db + 0.02))


@for_each(
    ("method", "scheme"),
    [
        ("smoothquant", "int4"),
        ("awq", "int4 per_channel(0)"),
        ("awq", "int3 per_group(4)"),
        pytest.param("hadamard", "int4", marks=pytest.mark.slow),  # compressed-tensors takes seconds to import
        ("llm_int8", "int8"),
    ],
)
def test_libraries_give_quantcores_numbers(method, scheme):
    library, script = method_library_script(source(scheme), method, OPTIONS)
    assert last_line(script).startswith("OK: ")
    assert library.split()[0].replace("-", "_") in script
    assert script.index("import") < script.index("w = torch")
    name, version = library.split()
    from importlib.metadata import version as installed

    assert installed(name) == version


@for_each(
    ("method", "more", "said"),
    [
        ("gptq", {}, "GPTQModel can't be installed"),
        ("nearest", {}, "Explore has its script"),
        ("awq", {"scheme": "int4"}, "a scale per row or per group of a row"),
        ("awq", {"scheme": "nf4 per_channel(0)"}, "signed symmetric integers of up to 8 bits, not nf4"),
        ("hadamard", {"inputs": 12}, "powers of two, and w has 12 columns"),
    ],
)
def test_what_no_library_runs_is_said(method, more, said):
    with pytest.raises(qc.QuantError, match=said):
        method_library_script(source(**more), method, MethodOptions())


def test_random_signs_are_not_those_of_the_library():
    with pytest.raises(qc.QuantError, match="another generator"):
        method_library_script(source(), "hadamard", MethodOptions(signs=0))


def test_the_script_of_a_cache():
    q, k, v = outputs.attention_head(32, 16, seed=2)
    found = outputs.kv_granularities(q, k, v, "int4")
    head = "qc.outputs.attention_head(32, 16, seed=2)"
    assert last_line(cache_script(head, qc.Scheme.parse("int4"), found)).startswith("OK")
    wrong = {"per token": (found["per token"][0] + 0.1, found["per token"][1])}
    with pytest.raises(AssertionError):
        last_line(cache_script(head, qc.Scheme.parse("int4"), wrong))


def test_an_exact_output_is_asserted_as_such():
    made = source("int8 given(1)", None, "x = torch.eye(8)")
    assert last_line(method_script(made, "nearest", MethodOptions(), float("inf"))).startswith("OK")
