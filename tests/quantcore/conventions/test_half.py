"""x of bfloat16, float16 and float64: the numbers of each library in that dtype, as recorded."""

import half_cases as half
import pytest

# not yet as recorded: (library, variant, dtype)
OPEN = {("bitsandbytes", "4bit", "bfloat16"), ("onnxruntime", "tool", "float64")}


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
