"""Scripts of tensors in half precision: run by torch and by the libraries, they assert what quantcore computed."""

import warnings

import half_cases as half
import pytest
import torch
from script_run import run

import quantcore as qc
from quantcore.snippets import library_script, quantcore_script, torch_script
from quantcore.tensors import literal


def accepted():
    """(case, kind, scheme) of every recorded case in half precision that its library accepts."""
    for case in half.cases():
        scheme = half.scheme_of(case)
        if scheme is not None and case["dtype"] != "float64" and "raises" not in case:
            yield case, (case["library"], case["variant"], case["dtype"]), scheme


def quantized(x, scheme):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return qc.apply(x, scheme)


def each(write, kept):
    """Run the scripts of these cases; return which kinds of case have run, and the errors."""
    ran, wrong, seen = set(), {}, {}
    for case, kind, scheme in accepted():
        seen[kind] = seen.get(kind, -1) + 1
        if not kept(seen[kind]):
            continue
        name, x = case["id"], half.x_of(case)
        try:
            result = quantized(x, scheme)
            script = write(x, result)
        except qc.QuantError:
            continue
        try:
            check(run(script), x, result)
            ran.add(kind)
        except Exception as error:
            wrong[name] = f"{error!r}\n{script[-800:]}"
    assert not wrong, f"{len(wrong)} fail: {dict(list(wrong.items())[:3])}"
    return ran


def check(names, x, result):
    if isinstance(names["x"], torch.Tensor) and "x_hat" not in names:
        assert names["x"].dtype == x.dtype
    if "x_hat" in names and isinstance(names.get("codes"), torch.Tensor):
        assert torch.equal(names["codes"], result.codes)
        assert names["x_hat"].dtype == result.value_dtype
        assert torch.equal(names["x_hat"].float().nan_to_num(7), result.dequantized.nan_to_num(7))


def by_torch(x, result):
    return torch_script(literal(x), result)


def by_quantcore(x, result):
    return quantcore_script(literal(x), result)


TORCH = {"torchao", "compressed-tensors", "optimum-quanto", "brevitas", "onnx", "torch", "hqq"}


def test_with_torch_alone():
    assert {library for library, _, _ in each(by_torch, lambda place: place == 0)} >= TORCH


@pytest.mark.slow
def test_with_torch_alone_all_recorded_cases():
    each(by_torch, lambda place: True)


@pytest.mark.slow  # by default, scripts of four libraries are run in test_snippets.py
def test_with_quantcore():
    assert len(each(by_quantcore, lambda place: place == 1)) > 25


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_with_the_libraries():
    """Every library but AIMET, which has no recorded cases."""
    for module in ("torchao", "compressed_tensors", "optimum.quanto", "brevitas", "onnxruntime", "bitsandbytes", "hqq", "gguf"):
        pytest.importorskip(module)
    libraries = {library for library, _, _ in each(lambda _, result: library_script(result), lambda place: place % 3 == 0)}
    assert libraries >= TORCH | {"onnxruntime", "bitsandbytes", "gguf"}


@pytest.mark.slow  # by default, scripts with torch alone are run in every dtype
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("library", ["torchao", "compressed_tensors"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_with_a_library(library, dtype):
    pytest.importorskip(library)
    x = torch.randn((20, 24), generator=torch.Generator().manual_seed(0)).to(dtype)
    result = qc.apply(x, qc.Scheme.parse(f"int8 asymmetric per_channel(0) {library}"))
    names = run(library_script(result))
    assert names["x"].dtype == dtype
    assert torch.equal(names["codes"], result.codes)
