"""x of bfloat16, float16 and float64: the numbers of each library in that dtype, as recorded."""

import collections

import half_cases as half
import pytest
import torch
from grid import for_each
from places import ROOT

import quantcore as qc

# recorded where converting to bfloat16 makes subnormal numbers 0 (AVX512-BF16); other CPUs keep them
FLUSHED = ("bitsandbytes", "4bit", "bfloat16")
# codes that the tool alone computes, with a scale that no operator takes: refused in the words of the operator
NO_OPERATOR = ("onnxruntime", "tool", "float64")


def kind_of(case):
    return case["library"], case["variant"], case["dtype"]


@pytest.fixture(
    scope="module", params=[pytest.param(40, id="part"), pytest.param(1, id="all", marks=pytest.mark.slow)]
)
def outcomes(request):
    """The names of results that differ, with words, by case; for the cases whose calls have a name.

    All of them, or of each kind every fortieth; but all where subnormal values may differ.
    """
    kinds = collections.defaultdict(list)
    for case in half.cases():
        if (scheme := half.scheme_of(case)) is not None:
            kinds[kind_of(case), scheme.convention.name].append((case, scheme))
    every = {kind: 1 if kind[0] == FLUSHED else request.param for kind in kinds}
    chosen = [pair for kind, pairs in kinds.items() for pair in pairs[:: every[kind]]]
    return [(case, half.outcome(case, scheme)) for case, scheme in chosen]


def test_numbers_in_the_dtype_of_x(outcomes, request):
    wrong = {
        f"{case['id']} {name}": words
        for case, found in outcomes
        for name, words in found.items()
        if words and kind_of(case) not in (FLUSHED, NO_OPERATOR)
    }
    assert not wrong, f"{len(wrong)} differ: {dict(list(wrong.items())[:10])}"
    assert len(outcomes) > (1500 if "all" in request.node.name else 60)


def test_only_subnormal_values_differ_from_a_cpu_that_makes_them_0(outcomes):
    of_it = [(case, found) for case, found in outcomes if kind_of(case) == FLUSHED]
    assert {name for _, found in of_it for name, words in found.items() if words} == {"dequant"}
    for case, _ in of_it:
        assert not any(half.outcome(case, half.scheme_of(case), flushed=True).values()), case["id"]


def test_no_operator_takes_a_scale_of_float64(outcomes):
    """The codes of onnxruntime's tool would have a scale with which nothing can dequantize them."""
    onnx, ort = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    double, of_codes = onnx.TensorProto.DOUBLE, onnx.TensorProto.INT8
    said = {}
    for operator, given, result in (
        ("QuantizeLinear", double, of_codes),
        ("DequantizeLinear", of_codes, double),
    ):
        info = [
            onnx.helper.make_tensor_value_info(n, t, [])
            for n, t in zip("xsy", (given, double, result), strict=True)
        ]
        graph = onnx.helper.make_graph(
            [onnx.helper.make_node(operator, ["x", "s"], ["y"])], "g", info[:2], info[2:]
        )
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)
        with pytest.raises(
            ort.capi.onnxruntime_pybind11_state.InvalidGraph, match=r"tensor\(double\)"
        ) as refusal:
            ort.InferenceSession(model.SerializeToString())
        said[operator] = str(refusal.value)
    assert "input parameter (s) of operator (DequantizeLinear)" in said["DequantizeLinear"]
    found = [found for case, found in outcomes if kind_of(case) == NO_OPERATOR]
    assert found
    assert all(said["QuantizeLinear"] in one["refused"] for one in found)


HALF_DTYPES = ("bfloat16", "float16", "float64")
HEADING = "| convention | bfloat16 | float16 | float64 |"


def cell(convention, dtype, found):
    """What a convention does with x of a dtype, where that equals the records."""
    if not found:
        return "not recorded"
    if dtype in dict(convention.refused_dtypes):
        return "refused"
    own, names = convention.in_dtype(dtype).at(qc.PerChannel(0)), []
    names += ["scales"] * (dtype in (own.scale.scale_precision, own.scale.scale_dtype))
    names += ["codes"] * (own.coding.coding_dtype == dtype)
    names += ["values"] * (dtype in (own.decoding.decoding_dtype, own.decoding.value_dtype))
    if not names:
        return "computes in float32"
    differs = any(
        wrong for case, all_of_it in found if kind_of(case) == FLUSHED for wrong in all_of_it.values()
    )
    part = "" if len(names) == 3 else f": {' and '.join(names)}"
    return f"exact{part}" + ", but for subnormal values" * differs


def table(outcomes):
    """The table of the README: a line per convention."""
    rows = {}
    for case, found in outcomes:
        scheme = half.scheme_of(case)
        if (case["library"], case["variant"]) != ("onnxruntime", "tool"):  # of the same convention
            rows.setdefault(scheme.convention.name, {}).setdefault(case["dtype"], []).append((case, found))
    lines = {}
    for name in qc.CONVENTIONS:
        if name in rows:
            cells = [cell(qc.CONVENTIONS[name], dtype, rows[name].get(dtype)) for dtype in HALF_DTYPES]
            lines.setdefault(tuple(cells), []).append(f"`{name}`")
    return [f"| {', '.join(names)} | {' | '.join(cells)} |" for cells, names in lines.items()]


def test_the_table_of_the_readme_is_true(outcomes):
    text = (ROOT / "README.md").read_text().partition(HEADING)[2].split("\n\n")[0].splitlines()[2:]
    assert text == table(outcomes), "\n".join(table(outcomes))


@for_each("dtype", [torch.bfloat16, torch.float16])
def test_errors_are_of_the_values_that_the_library_returns(dtype):
    """In the memory of one region: x is not copied to float32 for them."""
    x = (torch.randn(64, 96, generator=torch.Generator().manual_seed(0)) * 0.05).to(dtype)
    for text in (
        "int4 per_channel(0) torchao",
        "uint4 asymmetric per_group(32) quanto.affine",
        "int8 textbook",
    ):
        scheme = qc.Scheme.parse(text)
        result = qc.apply(x, scheme)
        report, quick = qc.report(result), qc.errors_of(x, scheme)
        assert result.given.dtype == dtype
        assert "_numbers" not in vars(result)
        error = (x.double() - result.dequantized.double()).square()
        assert report.mse == pytest.approx(float(error.mean()), rel=1e-6)
        assert quick.mse == pytest.approx(report.mse, rel=1e-6)
        assert report.clipped == quick.clipped
        assert torch.equal(result.dequantized, result.dequantized.to(result.value_dtype).float())
        assert result.value_dtype == (torch.float32 if "textbook" in text else dtype)
        assert torch.equal(result.x, x.float())


@for_each("shape", [(), (3, 7), (600, 1000)])
def test_the_error_of_half_precision_is_that_of_its_numbers(shape):
    """Exact, of one region and of several, and of x that is not contiguous."""
    generator = torch.Generator().manual_seed(1)
    for dtype in (torch.bfloat16, torch.float16):
        x = torch.randn(shape, generator=generator).to(dtype)
        for given in (x, x.mT) if x.dim() > 1 else (x,):
            result = qc.apply(given, "int8 torchao")
            assert torch.equal(result.error, given.float() - result.dequantized)
            assert "_numbers" not in vars(result)


def test_float32_is_as_before():
    """No choice of a dtype applies to float32."""
    for convention in qc.CONVENTIONS.values():
        assert convention.in_dtype("float32").choices == convention.choices
        scheme = qc.Scheme(convention=convention)
        assert scheme.in_dtype(torch.float32) is scheme
