"""Match: codes that libraries computed in half precision name the library and the dtype."""

import functools

import half_cases as half
import numpy as np
import pytest
import torch

import quantcore as qc
from quantcore.matching import Candidate, answer, explain_candidate, match, match_steps, reproduce, search
from quantcore.matching.candidates import Evaluator

LIBRARIES = ("torchao", "compressed-tensors", "optimum-quanto", "brevitas", "onnxruntime", "hqq")
HALF = ("bfloat16", "float16")


def _is_searched(case):
    scheme = half.scheme_of(case)
    if case["library"] not in LIBRARIES or case["dtype"] not in HALF or scheme is None or "raises" in case:
        return False
    if not isinstance(scheme.format, qc.IntFormat) or scheme.range_setting != qc.MinMax():
        return False
    return "codes" in case["arrays"] and not np.isin(half.recorded(case, "codes"), half.NO_INTEGER).any()


@functools.cache
def recorded():
    """For each call and dtype a case, whose codes are not those of float32 if any is; and whether they are."""
    found = {}
    for case in filter(_is_searched, half.cases()):
        key = case["library"], case["variant"], case["dtype"]
        if key not in found or found[key][1]:
            codes = qc.apply(half.x_of(case).float(), half.scheme_of(case)).codes
            same = np.array_equal(codes.numpy(), half.recorded(case, "codes"))
            if key not in found or not same:
                found[key] = case, same
    return found


def _problem(case, x):
    """In words, what is wrong with the best match of recorded codes to x; empty if nothing is.

    Of libraries that give all these codes in a dtype, such as torchao's tinygemm and optimum-quanto's affine
    codes in bfloat16, which differ in x̂ alone, either may come first.
    """
    own, wanted, codes = half.x_of(case), half.scheme_of(case), half.recorded(case, "codes")

    def rules(scheme):
        block = qc.block_shape(scheme.granularity, tuple(own.shape))
        return scheme.convention.name, scheme.format, scheme.symmetric, block

    found = match(x, codes)
    same = [each for each in found.exact if rules(wanted) in map(rules, each.schemes)]
    best = same[0] if same else found.candidates[0]
    told = answer(best, own.numel(), own.dim())
    if best.differing or best.corruption or best.dtype != own.dtype:
        return told
    if rules(wanted) not in map(rules, best.schemes):
        return f"{wanted} is not in {[str(s) for s in best.schemes]}"
    if not np.array_equal(reproduce(best.given(x), wanted, best.corruption).numpy(), codes):
        return f"{wanted} does not reproduce the codes"
    named = best.scheme.format != wanted.format or case["library"] in told
    dtype = "float32" if case["library"] == "hqq" else case["dtype"]
    told_dtype = (
        case["library"] == "onnxruntime" or f"computed in {dtype}" in told or f"codes in {dtype}" in told
    )
    return "" if named and told_dtype else told


@pytest.mark.filterwarnings("ignore")
@pytest.mark.slow  # quick tests search for single ones
@pytest.mark.parametrize("pasted", [False, True])
def test_library_and_dtype_are_found_again(pasted):
    """``pasted``: x has its numbers as float32; where float32 gives the codes too, nothing tells the dtype."""
    cases = [case for case, same in recorded().values() if not (pasted and same)]
    if not pasted:
        assert {case["library"] for case in cases} == set(LIBRARIES)
    problems = {
        case["id"]: _problem(case, half.x_of(case).float() if pasted else half.x_of(case))
        for case in cases
    }
    assert not {name: problem for name, problem in problems.items() if problem}


def _sample():
    return torch.randn(16, 32, generator=torch.Generator().manual_seed(4))


@pytest.mark.slow
def test_x_is_rounded_where_nothing_else_gives_the_codes():
    x, scheme = _sample(), qc.Scheme.parse("int8 per_channel(0) compressed_tensors")
    codes = qc.apply(x.bfloat16(), scheme).codes
    best = match(x, codes).candidates[0]
    changed = int((x.bfloat16().float() != x).sum())
    assert (best.dtype, best.converted, best.differing) == (torch.bfloat16, changed, 0)
    assert answer(best, 512, 2) == (
        "All 512 integers are compressed-tensors int8 symmetric, one scale per row (axis 0), computed in bfloat16, "
        f"after {changed} values of x were rounded to bfloat16."
    )


def test_how_many_values_were_rounded_is_told():
    for changed, words in ((1, "1 value of x was"), (509, "509 values of x were")):
        rounded = Candidate(qc.Scheme.parse("int8"), 0, dtype=torch.bfloat16, converted=changed)
        assert answer(rounded, 512, 2).endswith(f", after {words} rounded to bfloat16.")


def test_libraries_that_compute_in_float32_are_told_of_a_tensor_in_half_precision():
    x, scheme = _sample()[:7, :11].to(torch.float16), qc.Scheme.parse("int8 per_channel(0) torch.fake_quantize")
    best = match(x, qc.apply(x, scheme).codes).candidates[0]
    assert (best.dtype, best.converted, best.differing) == (torch.float16, None, 0)
    assert scheme in best.schemes
    assert answer(best, 77, 2).endswith("one scale per row (axis 0), computed in float32.")


def test_a_tensor_in_half_precision_may_have_been_converted_to_the_other():
    x = _sample()[:7, :11].bfloat16()
    codes = qc.apply(x.half(), qc.Scheme.parse("int8 per_channel(0) compressed_tensors")).codes
    best = _searched(x, codes, lambda one: one._converted(lossless=True))[0]  # nothing is found before
    assert (best.dtype, best.differing) == (torch.float16, 0)
    assert best.converted == int((x.half().float() != x.float()).sum())
    assert "computed in float16" in answer(best, 512, 2)


def test_codes_that_differ_are_compared_with_those_of_the_dtype():
    x, scheme = _sample()[:7, :11].bfloat16(), qc.Scheme.parse("int8 per_channel(0) torchao")
    codes = qc.apply(x, scheme).codes.clone()
    assert (codes != qc.apply(x.float(), scheme).codes).any()  # float32 has others
    codes[3, 5] += 9
    (cell,) = explain_candidate(x, codes, Candidate(scheme, 1, dtype=torch.bfloat16)).cells
    assert (cell.index, cell.got, cell.expected) == ((3, 5), int(codes[3, 5]), int(codes[3, 5]) - 9)


@pytest.mark.slow
def test_the_nearest_to_codes_that_differ_has_the_dtype(monkeypatch):
    monkeypatch.setattr(search, "DTYPES", (torch.bfloat16,))
    x, scheme = _sample()[:7, :11].bfloat16(), qc.Scheme.parse("int8 per_channel(0) torchao")
    codes = qc.apply(x, scheme).codes.clone()
    codes[3, 5] += 9
    best = match(x, codes).candidates[0]
    assert (best.dtype, best.differing) == (torch.bfloat16, 1)


def _searched(x, codes, parts, nearest=3):
    """The candidates of one round of the search alone: those that fit, and some of the nearest."""
    shape = tuple(x.shape)
    one = search._Search(
        Evaluator(x, search.read_codes(codes, shape), None, None, search.granularities(shape))
    )
    steps = one.steps()
    next(steps), next(steps)  # samples, and those of the first round
    one.near, one.corruptions = [], one.corruptions[:1]  # with the codes as they are
    for _ in one._round(parts(one)):
        pass
    for _ in one._evaluate(one._nearest()[:nearest]):
        pass
    return one.evaluator.candidates()


@pytest.mark.slow  # by default, codes that differ are compared with those of the dtype
def test_the_nearest_to_a_pasted_tensor_has_the_dtype_of_its_numbers(monkeypatch):
    """No rule of float32 is as near, and one code is wrong."""
    monkeypatch.setattr(search, "DTYPES", (torch.float32, torch.bfloat16))
    x, scheme = _sample()[:4, :8].bfloat16(), qc.Scheme.parse("int8 per_channel(0) torchao")
    codes = qc.apply(x, scheme).codes.clone()
    codes[3, 5] += 9
    best = _searched(x.float(), codes, lambda one: one._converted(lossless=True))[0]
    assert (best.dtype, best.differing, best.converted) == (torch.bfloat16, 1, 0)
    assert scheme in best.schemes


def test_scales_rounded_to_float16_are_no_percentiles():
    x = 1e-4 * _sample()[0, :31]
    scale = (x.abs().amax() / 127).half().float()  # of which float16 has few digits
    codes = (x / scale).round().clamp(-128, 127).to(torch.int8)
    assert all(each.differing for each in _searched(x, codes, lambda one: one._tried(search.percentiles)))

    def rounded(one):
        return [search.float16(task.source, task.readings) for task in one.space.tasks(one.readings)]

    best = _searched(x, codes, rounded, nearest=0)[0]
    assert (best.differing, str(best.corruption)) == (0, "scale rounded to float16")


@pytest.mark.slow  # by default, transposed codes are found as those of float32
def test_other_dtypes_are_tried_only_where_float32_fails():
    x = _sample()[:7, :11]
    codes = qc.apply(x, qc.Scheme.parse("int8 per_channel(0) compressed_tensors")).codes
    *steps, last = match_steps(x, codes.T)
    assert last.matches.exact
    assert not any("other dtypes" in step.what for step in steps)
    assert {(c.dtype, c.converted) for c in last.matches.candidates} == {(torch.float32, None)}
