"""x of bfloat16, float16 and float64: the numbers of each library in that dtype, as recorded."""

import half_cases as half
import pytest

# not yet as recorded: (library, variant, dtype)
OPEN = {
    ("bitsandbytes", "4bit", "bfloat16"),
    ("bitsandbytes", "4bit", "float16"),
    ("bitsandbytes", "4bit", "float64"),
    ("brevitas", "weight", "bfloat16"),
    ("brevitas", "weight", "float16"),
    ("brevitas", "weight", "float64"),
    ("compressed-tensors", "fp8", "bfloat16"),
    ("compressed-tensors", "fp8", "float16"),
    ("compressed-tensors", "fp8", "float64"),
    ("compressed-tensors", "int", "bfloat16"),
    ("compressed-tensors", "int", "float16"),
    ("compressed-tensors", "int", "float64"),
    ("hqq", "noopt", "float64"),
    ("onnx", "reference", "bfloat16"),
    ("onnx", "reference", "float16"),
    ("onnxruntime", "tool+kernel", "bfloat16"),
    ("onnxruntime", "tool+kernel", "float16"),
    ("onnxruntime", "tool+kernel", "float64"),
    ("optimum-quanto", "symmetric", "bfloat16"),
    ("optimum-quanto", "symmetric", "float16"),
    ("optimum-quanto", "symmetric", "float64"),
    ("torch", "fake_quantize", "bfloat16"),
    ("torch", "fake_quantize", "float16"),
    ("torch", "fake_quantize", "float64"),
    ("torch", "quantize", "bfloat16"),
    ("torch", "quantize", "float16"),
    ("torch", "quantize", "float64"),
    ("torchao", "Float8WeightOnlyConfig", "bfloat16"),
    ("torchao", "Float8WeightOnlyConfig", "float16"),
    ("torchao", "Int8WeightOnlyConfig", "bfloat16"),
    ("torchao", "Int8WeightOnlyConfig", "float16"),
    ("torchao", "IntxWeightOnlyConfig", "bfloat16"),
    ("torchao", "IntxWeightOnlyConfig", "float16"),
    ("torchao", "affine", "bfloat16"),
    ("torchao", "affine", "float16"),
    ("torchao", "affine", "float64"),
    ("torchao", "float8", "bfloat16"),
    ("torchao", "float8", "float16"),
    ("torchao", "mx", "bfloat16"),
    ("torchao", "mx", "float16"),
    ("torchao", "nvfp4", "bfloat16"),
    ("torchao", "nvfp4", "float16"),
}


def kind_of(case):
    return case["library"], case["variant"], case["dtype"]


@pytest.fixture(scope="module")
def outcomes():
    """The names of results that differ, with words, by case; for the cases whose calls have a name."""
    schemes = ((case, half.scheme_of(case)) for case in half.cases())
    return [(case, half.outcome(case, scheme)) for case, scheme in schemes if scheme is not None]


def test_numbers_in_the_dtype_of_x(outcomes):
    wrong = {
        f"{case['id']} {name}": words
        for case, found in outcomes
        for name, words in found.items()
        if words and kind_of(case) not in OPEN
    }
    assert not wrong, f"{len(wrong)} differ: {dict(list(wrong.items())[:10])}"
    assert len(outcomes) > 1500


def test_what_is_open_is_still_open(outcomes):
    equal = {kind_of(case) for case, _ in outcomes}
    equal -= {kind_of(case) for case, found in outcomes if any(found.values())}
    assert not equal & OPEN
