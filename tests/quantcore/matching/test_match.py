"""Match: each library is found from its recorded integers, and every corruption of them is named."""

import math
import warnings

import golden_cases as golden
import numpy as np
import pytest
import torch
from grid import for_each
from parts import in_parts, some
from places import GOLDEN

import quantcore as qc
from quantcore.matching import (
    Corruption,
    Reinterpreted,
    Transposed,
    answer,
    match,
    match_steps,
    nearest,
    reproduce,
    search,
)
from quantcore.matching.candidates import Evaluator
from quantcore.matching.hypotheses.sample import by_range
from quantcore.matching.hypotheses.scoring import SearchTask, score
from quantcore.matching.hypotheses.search_space import granularities
from quantcore.matching.search import _Search
from quantcore.range_setting import HalfQuadratic

NO_INTEGER = (-(1 << 31), -(1 << 63))  # recorded in place of NaN
PER_LIBRARY = 8


@pytest.fixture(autouse=True)
def _quiet():
    """Warnings about NaN and zero points are expected here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.fixture
def one_dtype(monkeypatch):
    """Codes that no rules make are looked for in one dtype, not in three."""
    monkeypatch.setattr(search, "DTYPES", (torch.float32,))


def recorded(name):
    """A library's cases without NaN, spread evenly over its records."""
    whole = [
        c
        for c in golden.cases(name)
        if "raises" not in c and not np.isin(golden.array(c["codes"]), NO_INTEGER).any()
    ]
    return whole[:: max(1, len(whole) // PER_LIBRARY)][:PER_LIBRARY]


CASES = [case for name in qc.INTEGER_CONVENTIONS for case in recorded(name)]


def is_recorded(scheme, case, shape):
    """Whether a scheme is that of the record; granularities with the same blocks are equal."""
    wanted = golden.scheme_of(case)
    same = (scheme.convention.name, scheme.format, scheme.symmetric) == (
        wanted.convention.name,
        wanted.format,
        wanted.symmetric,
    )
    blocks = [qc.block_shape(s.granularity, shape) for s in (scheme, wanted)]
    return same and blocks[0] == blocks[1]


@for_each("case", some(CASES, 1000), ids=[case["id"] for case in CASES])
def test_library_is_found_again(case):
    x, codes = golden.array(case["x"]), golden.array(case["codes"])
    found = match(x, codes)
    schemes = [s for c in found.exact if not c.corruption for s in c.schemes]
    assert any(is_recorded(s, case, x.shape) for s in schemes), [str(c.scheme) for c in found.candidates]
    for candidate in found.exact:
        for scheme in candidate.schemes:
            np.testing.assert_array_equal(reproduce(x, scheme, candidate.corruption).numpy(), codes)


@for_each("name", some(("relu16x64.4", "relu16x64.2")))
def test_a_zero_point_that_hqq_moved_is_found_again(name):
    with np.load(GOLDEN / "ranges.npz", allow_pickle=False) as recorded_ranges:
        x, codes = recorded_ranges[f"x.{name[:-2]}"], recorded_ranges[f"hqq.{name}.codes"]
    best = match(x, codes).candidates[0]
    assert (best.differing, bool(best.corruption)) == (0, False)
    assert isinstance(best.scheme.range_setting, HalfQuadratic)
    bits = name[-1]
    assert answer(best, x.size, 2) == (
        f"All 1,024 integers are uint{bits} asymmetric, one scale per 32 elements along axis 1, "
        "range setting half_quadratic."
    )


def from_end(blocks):
    """MatMulNBits' 4-bit codes of blocks, (blocks, rows, columns): the end of largest magnitude gets code 0."""
    largest = np.abs(blocks).argmax(1, keepdims=True)
    scale = np.take_along_axis(blocks, largest, 1) / np.float32(-8)
    inverse = np.float32(1) / scale
    return np.clip(np.floor(blocks * inverse + np.float32(8.5)), 0, 15)


@for_each("name", some(["quanto.affine", "onnxruntime.MatMulNBits"]))
def test_calls_of_presets_are_found_in_other_groups_than_theirs(name):
    """optimum-quanto's float shift, and MatMulNBits, whose end of the largest magnitude gets the lowest code."""
    x = np.random.default_rng(5).normal(1, 1, (32, 16)).astype(np.float32)
    few, tall = x[:3], x[:, :2]
    groups = few.reshape(3, 2, 8)
    low, high = groups.min(-1, keepdims=True), groups.max(-1, keepdims=True)
    shifted = np.round((groups - low) / ((high - low) / np.float32(15))).reshape(few.shape)
    of_columns = from_end(tall.reshape(2, 16, 2)).reshape(tall.shape)
    x, codes, granularity = {
        "quanto.affine": (few, shifted, qc.PerGroup(8)),
        "onnxruntime.MatMulNBits": (tall, of_columns, qc.PerGroup(16, 0)),
    }[name]
    exact = match(x, codes.astype(int)).exact
    every = {(s.convention.name, s.granularity) for found in exact for s in found.schemes}
    assert (name, granularity) in every, every


def test_a_group_longer_than_its_axis_is_found():
    """MatMulNBits has no group shorter than 16, also where the weight has only 4 rows."""
    x = np.random.default_rng(4).normal(1, 1, (4, 2)).astype(np.float32)
    (found,) = match(x, from_end(x[None])[0].astype(int)).exact
    assert str(found.scheme) == "uint4 symmetric per_group(16, axis=0) min_max onnxruntime.MatMulNBits"


def test_every_library_has_cases():
    assert {golden.scheme_of(case).convention.name for case in CASES} == set(qc.INTEGER_CONVENTIONS) - {
        "textbook",
        "aimet.2024.Quantize",
    }


# Four libraries, per channel, per group and per tensor; enough codes that no corruption occurs by chance
def sample(columns=11):
    return torch.randn(7, 16, generator=torch.Generator().manual_seed(3))[:, :columns]


def sample_for(text):
    """Rows of two groups for schemes in groups; other shapes have fewer schemes to search."""
    return sample(16 if "per_group" in text else 11)


SCHEMES = [
    "int8 asymmetric per_channel(0) aimet.Quantize",
    "int4 symmetric per_group(8) torchao",
    "uint8 asymmetric per_tensor onnxruntime",
    "int8 symmetric per_channel(0) compressed_tensors",
]


def found_with(found, scheme, says):
    """The first exact candidate has this scheme, and its corruption contains these words."""
    assert found.exact, found.candidates
    assert says in str(found.exact[0].corruption)
    assert scheme in found.exact[0].schemes, [str(s) for s in found.exact[0].schemes]


def given(scheme, scale, zero_point):
    """Whether the scheme carries these parameters."""
    found = scheme.range_setting.parameters(tuple(scale.shape), scale.device)
    return torch.equal(found[0], scale) and torch.equal(found[1], zero_point.to(torch.int32))


@pytest.mark.parametrize("text", some(SCHEMES))
def test_transposed(text):
    scheme = qc.Scheme.parse(text)
    found = match(sample_for(text), qc.apply(sample_for(text), scheme).codes.T)
    found_with(found, scheme, "transposed")
    assert found.exact[0].corruption.stored == (Transposed((1, 0)),)
    assert {(c.dtype, c.converted) for c in found.exact} == {(torch.float32, None)}


@pytest.mark.slow  # by default, transposed codes are found
def test_axes_of_rank_3():
    x = torch.randn(4, 6, 8, generator=torch.Generator().manual_seed(1))
    scheme = qc.Scheme.parse("int8 symmetric per_channel(0) torchao")
    found = match(x, qc.apply(x, scheme).codes.permute(2, 0, 1))
    found_with(found, scheme, "axes permuted to (2, 0, 1)")


@pytest.mark.parametrize("text", some([SCHEMES[0], SCHEMES[1], SCHEMES[3]]))
def test_signed_read_as_unsigned(text):
    scheme = qc.Scheme.parse(text)
    read = qc.apply(sample_for(text), scheme).codes.view(torch.uint8)
    found = match(sample_for(text), read)
    found_with(found, scheme, "signed 8-bit codes read as unsigned")
    assert found.exact[0].corruption.stored == (Reinterpreted(8, signed=False),)


@pytest.mark.slow  # the readings of unsigned codes are asked for without a search
@pytest.mark.parametrize("text", [SCHEMES[2], "uint8 asymmetric per_channel(1) torch.quantize_per_channel"])
def test_unsigned_read_as_signed(text):
    scheme = qc.Scheme.parse(text)
    found = match(sample(), qc.apply(sample(), scheme).codes.view(torch.int8))
    found_with(found, scheme, "unsigned 8-bit codes read as signed")


@pytest.mark.slow
def test_transposed_and_read_as_unsigned():
    scheme = qc.Scheme.parse(SCHEMES[0])
    found = match(sample(), qc.apply(sample(), scheme).codes.view(torch.uint8).T)
    found_with(found, scheme, "transposed, signed 8-bit codes read as unsigned")


@pytest.mark.parametrize(
    "text",
    some(["int8 symmetric per_tensor compressed_tensors", SCHEMES[3], SCHEMES[1], "uint8 asymmetric per_channel(0) textbook"], 4),
)
def test_wrapped(text):
    """As from a numpy cast without a clamp: with s = max|x| / 127.5, the largest gives 128, which wraps to -128."""
    scheme = qc.Scheme.parse(text)
    x = sample()[:1] if "per_tensor" in text else sample_for(text)
    result = qc.apply(x, scheme)
    bits, s = scheme.format.bits, result.scale.numpy()
    if scheme.symmetric:
        spread = np.repeat(s, x.shape[1] // s.shape[1], axis=1)
        whole = np.round(
            x.numpy() * np.reciprocal(spread) if "torchao" in text else x.numpy() / spread
        )
        low = -(1 << (bits - 1))
    else:  # a slightly too small scale, as from a clipped range
        whole, low = np.round(x.numpy() / s) + result.zero_point.numpy() + 9, 0
    codes = (whole.astype(np.int64) - low) % (1 << bits) + low
    if scheme.symmetric:
        assert (codes != result.codes.numpy()).any()
        found = match(x, codes)
        assert "wrapped around" in str(found.exact[0].corruption)
        names = [(each.convention.name, each.convention.coding.overflow) for each in found.exact[0].schemes]
        assert (scheme.convention.name, "wrap") in names
    else:
        shifted = result.zero_point + 9
        found = match(x, codes, scale=result.scale, zero_point=shifted)
        assert "wrapped around" in str(found.exact[0].corruption)
        assert given(found.exact[0].scheme, result.scale, shifted)


@pytest.mark.parametrize("text", some([SCHEMES[0], "uint4 asymmetric per_group(8) torchao"]))
def test_zero_point_with_the_other_sign(text):
    x, scheme = sample_for(text), qc.Scheme.parse(text)
    r = qc.apply(x, scheme)
    z = np.repeat(r.zero_point.numpy(), x.shape[1] // r.zero_point.shape[1], axis=1)
    s = np.repeat(r.scale.numpy(), x.shape[1] // r.scale.shape[1], axis=1)
    codes = np.round(x.numpy() / s) - z
    found = match(x, codes.clip(scheme.format.qmin, scheme.format.qmax))
    found_with(found, scheme, "zero_point with the opposite sign")


ROUNDINGS = {
    "ties rounded away from zero": lambda v: (
        np.trunc(v) + np.where(abs(v - np.trunc(v)) >= 0.5, np.sign(v), 0)
    ),
    "ties rounded up": lambda v: np.floor(v) + (v - np.floor(v) >= 0.5),
    "rounded toward zero": np.trunc,
    "rounded down": np.floor,
}
NAMES = dict(zip(ROUNDINGS, ("half_away", "half_up", "toward_zero", "floor"), strict=True))


def tied():
    """A tensor with x/s = k/8 exactly: one element in eight is a tie, and more in the first rows."""
    x = np.random.default_rng(0).integers(-1016, 1017, (7, 11)).astype(np.float32) / 1024
    x[:4] = np.random.default_rng(1).integers(-254, 255, (4, 11)) / 256
    x[0, 0] = 1016 / 1024  # so that the scale is 8/1024
    return x


@pytest.mark.parametrize("says", some(ROUNDINGS))
def test_another_rounding(says):
    x = tied()
    codes = ROUNDINGS[says](x / np.float32(2 / 256)).clip(-128, 127)
    found = match(x, codes)
    name = NAMES[says]
    found_with(found, qc.Scheme.parse(f"int8 symmetric per_tensor textbook(rounding={name})"), says)


@pytest.mark.slow
def test_some_ties_off_by_one():
    """No rule gives these codes; the nearest scheme is named, and each cell that differs is explained as a tie."""
    x = tied()
    codes = np.round(x / np.float32(2 / 256)).astype(int)
    ties = np.argwhere(x * 128 % 1 == 0.5)
    for i, (row, column) in enumerate(ties[5:12]):
        up = np.floor(x[row, column] * 128) + 1 == codes[row, column]
        codes[row, column] += -1 if up else 1
        assert i < 7
    found = match(x, codes)
    nearest = found.candidates[0]
    assert (found.exact, nearest.differing, nearest.reasons) == ((), 7, (("tie", 7),))
    assert qc.Scheme.parse("int8 symmetric per_tensor textbook") in nearest.schemes
    assert [c.index for c in nearest.cells] == [tuple(t) for t in ties[5:12].tolist()]
    assert all("half to even" in c.reason for c in nearest.cells)


@pytest.mark.slow  # its codes and its words are asked for without a search, which quick tests have of other mistakes
def test_clamped_to_the_narrow_range():
    """onnxruntime's int4 scale is max|x| / 7.5 and its lowest code -8, which is clamped to -7 here."""
    scheme = qc.Scheme.parse("int4 symmetric per_channel(0) onnxruntime")
    codes = qc.apply(sample(), scheme).codes
    assert (codes == -8).any()
    found = match(sample(), codes.clamp(min=-7))
    assert any(scheme in c.schemes and "narrow range" in str(c.corruption) for c in found.exact)


def test_narrow_format_is_found():
    scheme = qc.Scheme.parse("int8n symmetric per_channel(0) brevitas")
    found = match(sample(), qc.apply(sample(), scheme).codes)
    assert scheme in [s for c in found.exact for s in c.schemes]


def test_scales_along_the_other_axis():
    x = sample()[:, :7]
    s = x.abs().amax(1) / 127.5  # one per row, but applied along the columns
    codes = torch.round(x * (1 / s)).clamp(-128, 127)
    found = match(x, codes)
    found_with(found, qc.Scheme.parse("int8 per_channel(0) torchao"), "applied along the wrong axis")


def test_wrong_axis_against_what_was_expected():
    expected, made = (qc.Scheme.parse(f"int8 symmetric per_channel({axis}) torchao") for axis in (0, 1))
    found = match(sample(), qc.apply(sample(), made).codes)
    assert made in found.exact[0].schemes
    assert nearest(found.exact[0], expected, 2) == nearest(found.exact[0], made, 2) == made


def test_scale_bit_for_bit():
    """Several libraries give these integers; the scale tells which one."""
    x = sample(16)
    r = qc.apply(x, qc.Scheme.parse("uint8 asymmetric per_channel(0) onnxruntime"))
    assert (r.scale != qc.apply(x, qc.Scheme.parse("uint8 asymmetric per_channel(0) textbook")).scale).any()
    found = match(x, r.codes, scale=r.scale.flatten().tolist(), zero_point=r.zero_point.flatten().tolist())
    assert {s.convention.name for s in found.exact[0].schemes} == {"onnxruntime", "onnx"}
    assert found.exact[0].notes == ()
    assert all("the given scale differs" in c.notes[0] for c in found.exact[1:])


@pytest.mark.slow  # quick tests search once
def test_a_scale_is_a_tensor_or_a_list_and_the_last_step_has_what_match_finds():
    x = sample(16)
    r = qc.apply(x, qc.Scheme.parse("uint8 asymmetric per_channel(0) onnxruntime"))
    found = match(x, r.codes, scale=r.scale, zero_point=r.zero_point)
    lists = {"scale": r.scale.flatten().tolist(), "zero_point": r.zero_point.flatten().tolist()}
    assert match(x, r.codes, **lists).exact == found.exact
    *_, last = match_steps(x, r.codes, **lists)
    assert last.matches == match(x, r.codes, **lists)


def test_scale_of_another_granularity():
    r = qc.apply(sample(), qc.Scheme.parse("int8 symmetric per_channel(0) textbook"))
    found = match(sample(), r.codes, scale=r.scale.max())
    assert r.scheme in found.exact[0].schemes
    assert found.exact[0].notes == ("the given scale has another granularity: 1 value for 7 blocks",)


def test_aimet_s_offset():
    x = sample()[0]
    r = qc.apply(x, qc.Scheme.parse("uint8 asymmetric per_tensor aimet.Quantize"))
    offset = qc.encoding(r)["offset"]
    found = match(x, r.codes, scale=float(r.scale), zero_point=float(offset))
    assert r.scheme in found.exact[0].schemes
    assert found.exact[0].notes == ("the given zero_point has the opposite sign, like AIMET's offset",)


def test_inverse_scale():
    x = sample()[0]
    r = qc.apply(x, qc.Scheme.parse("int8 per_tensor textbook"))
    found = match(x, r.codes, scale=torch.reciprocal(r.scale))
    assert found.exact[0].notes == ("the given scale is the inverse, 1/s",)


@pytest.mark.parametrize("kernel", some(["textbook", "torchao", "compressed_tensors"]))
@in_parts(3)
def test_scale_from_elsewhere(kernel, part):
    """No range setting gives this scale; the match still names the kernels that give these codes with it."""
    x = sample()
    scheme = qc.Scheme.parse(f"int8 asymmetric per_channel(0) {kernel}")
    scale = torch.linspace(0.01, 0.02, 7)[:, None]
    zero_point = torch.arange(-3, 4)[:, None]
    codes = qc.quantize(x, scale, zero_point, scheme)
    for z in part((zero_point, -zero_point, None)):  # also with the opposite sign, or unknown
        best = match(x, codes, scale=scale, zero_point=z).exact[0]
        assert given(best.scheme, scale, zero_point)
        assert kernel in {s.convention.name for s in best.schemes}


@pytest.mark.slow  # the page's test finds one, and each reason is asked for without a search
def test_damaged_cells_are_named(one_dtype):
    scheme = qc.Scheme.parse("int8 symmetric per_channel(0) textbook")
    x = sample()
    codes = qc.apply(x, scheme).codes.to(torch.int64)
    row, column = divmod(int(x.abs().argmin()), 11)  # far from the ends of its row
    expected = int(codes[row, column])
    codes[row, column] += 5
    codes[5, 8] = 300  # does not fit 8 bits
    found = match(x, codes)
    nearest = found.candidates[0]
    assert nearest.scheme == scheme or scheme in nearest.same
    assert [(c.index, c.got) for c in sorted(nearest.cells, key=lambda c: c.got)] == [
        ((row, column), expected + 5), ((5, 8), 300),
    ]  # fmt: skip
    words = {c.got: c.reason for c in nearest.cells}
    assert "300 is not an int8 code (-128 to 127)" in words[300]
    assert "scale" in words[expected + 5]
    assert dict(nearest.reasons)["outside the format"] == 1


@pytest.mark.slow  # so does the search whose progress is told
def test_nothing_fits_noise(one_dtype):
    noise = torch.randint(-8, 8, (7, 11), generator=torch.Generator().manual_seed(0))
    found = match(sample(), noise)
    assert not found.exact
    assert found.candidates
    assert found.candidates[0].differing > 60


@pytest.mark.slow  # by default, the steps of a search that finds nothing are looked at
def test_steps_tell_progress():
    codes = qc.apply(sample(), qc.Scheme.parse("int4 per_channel(0) torchao")).codes
    steps = list(match_steps(sample(), codes))
    fractions = [s.fraction for s in steps]
    assert fractions == sorted(fractions)
    assert (fractions[0], fractions[-1]) == (0, 1)
    assert len({s.what for s in steps}) > 5


def test_steps_can_be_left():
    codes = qc.apply(sample(), qc.Scheme.parse("int4 per_channel(0) torchao")).codes
    begun = match_steps(sample(), codes)
    next(begun)
    begun.close()


@pytest.mark.slow  # by default, tensors of one and two axes are searched
@for_each("shape", some([(), (2, 2, 3, 2), (1,), (2, 3, 4), (5,), (3, 4)], 3))
def test_every_rank(shape):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(5))
    result = qc.apply(x, qc.Scheme.parse("int8 asymmetric per_tensor torchao"))
    found = match(x, result.codes)
    assert result.scheme in [s for c in found.exact for s in c.schemes]


def test_nan_is_what_the_library_makes_of_it():
    x = sample()
    x[3, 4] = float("inf")
    x[5, 6] = float("nan")
    scheme = qc.Scheme.parse("int8 symmetric per_channel(0) torchao")
    found = match(x, qc.apply(x, scheme).codes)
    assert scheme in [s for c in found.exact for s in c.schemes]


BAD = [
    ([[1, 2], [3]], "rows of different lengths"),
    ([["a", "b"]], "not numbers"),
    ([], "no codes"),
    ([[1, 2, 3], [4, 5, 6]], "2 too few.*shape (2, 4) has 8 elements"),
    ([[1, 2, 3, 4, 5], [4, 5, 6, 7, 8]], "2 too many"),
    ([1, 2, 3, 4, 5, 6, 7, 8], "have shape (8,), the original (2, 4)"),
    ([[1, 2, 3, 4], [5, 6, 7.5, 8]], "code 7.5 at index (1, 2) is not an integer"),
    ([[1, 2, 3, 4], [5, 6, float("nan"), 8]], "not an integer"),
    ([[1, 2, 3, 4], [5, 6, 70000, 8]], "code 70000 at index (1, 2) does not fit 16 bits"),
    ([[1, 2, 3, 4], [-5, 6, 40000, 8]], "run from -5 to 40000"),
    ([[True, False, True, True]] * 2, "not numbers"),
]


@for_each(("codes", "words"), BAD)
def test_bad_codes(codes, words):
    first, _, second = words.partition(".*")
    with pytest.raises(qc.QuantError) as raised:
        match_steps(torch.ones(2, 4), codes)
    sentence = str(raised.value)
    assert first in sentence
    assert second in sentence
    assert sentence.endswith(".")


@for_each(
    ("scale", "zero_point", "words"),
    [
        (
            [1.0, 2.0, 3.0],
            None,
            "scale has 3 values, which matches no granularity of a tensor of shape (2, 4)",
        ),
        (0.1, [1, 2, 3], "zero_point has 3 values"),
        (0.0, None, "scale must be a positive and finite"),
        ([0.1, -0.2], None, "scale at index (1,) must be"),
        (1e-60, None, "must be a positive and finite"),
        (0.1, float("inf"), "zero_point must be a finite"),
        ("a", None, "not numbers"),
        ([], None, "is empty"),
        ([[1.0], [2.0, 3.0]], None, "rows of different lengths"),
    ],
)
def test_bad_parameters(scale, zero_point, words):
    with pytest.raises(qc.QuantError) as raised:
        match_steps(torch.ones(2, 4), torch.ones(2, 4), scale, zero_point)
    assert words in str(raised.value)
    assert str(raised.value).endswith(".")


def preset_evaluator(x, codes, scale=None):
    return Evaluator(x, codes.to(torch.int32), scale, None, [qc.PerTensor()])


@for_each(
    ("shape", "name"),
    [((256,), "gguf.Q4_K"), ((3, 512), "gguf.Q4_0"), ((2, 2, 256), "gguf.Q6_K"), ((70, 256), "gguf.Q8_0")],
)
def test_a_preset_with_several_scales_counts_if_it_gives_every_code(shape, name):
    """The last shape has more rows than are compared first."""
    x, scheme = torch.randn(shape, generator=torch.Generator().manual_seed(1)), qc.PRESETS[name]
    result = qc.apply(x, scheme)
    for scale in (None, result.scale, result.scale * 2):
        evaluator = preset_evaluator(x, result.codes, scale)
        evaluator.evaluate_preset(scheme)
        (found,) = evaluator.candidates(explained=True)
        assert (found.scheme, found.differing, found.corruption) == (scheme, 0, Corruption())
        assert [c.scheme for c in evaluator.candidates()] == [scheme]
        agrees = scale is not None and torch.equal(scale, result.scale)
        assert evaluator.explains() == (scale is None or agrees)
        assert len(found.notes) == (scale is not None and not agrees)
        assert evaluator.searched == [qc.PerTensor(), scheme.granularity]
        assert evaluator.evaluations[0].doubt == 0
    for place in (0, -1):
        wrong = result.codes.to(torch.int32)
        wrong.reshape(-1)[place] += 1
        evaluator = preset_evaluator(x, wrong)
        evaluator.evaluate_preset(scheme)
        assert not evaluator.evaluations


@pytest.mark.slow  # by default, the evaluation of presets is tested above
def test_gguf_s_formats_are_found():
    x, scheme = torch.randn(1, 256, generator=torch.Generator().manual_seed(1)), qc.PRESETS["gguf.Q4_K"]
    found = match(x, qc.apply(x, scheme).codes)
    assert scheme in [s for c in found.exact for s in c.schemes]


@pytest.mark.slow  # by default, a given scale of an unusual group is looked for
def test_a_given_scale_is_looked_for_although_the_codes_have_a_scheme():
    """Both the scale of min-max and the given one, 0.01 % larger, give these codes."""
    x = torch.tensor([1.0, -0.4, 0.2])
    result = qc.apply(x, qc.Scheme.parse("int8"))
    other = result.scale * np.float32(1.0001)
    found = match(x, result.codes, scale=other)
    assert given(found.exact[0].scheme, other, torch.zeros_like(other))
    assert found.exact[0].notes == ()
    assert result.scheme in [s for c in found.exact for s in c.schemes]


@pytest.mark.slow  # by default, a scheme that fits is counted with every match
def test_every_scheme_of_every_format_is_counted_once():
    x = torch.randn(2, 3, generator=torch.Generator().manual_seed(0))
    searched = granularities((2, 3))
    search = _Search(Evaluator(x, qc.apply(x, qc.Scheme.parse("int4")).codes.int(), None, None, searched))
    ranged, tried = by_range(x, searched), []
    for fmt in SearchTask(ranged, search.readings).formats():
        alone = SearchTask(ranged, search.readings)
        list(score(alone, fmt, (2, 3), 2.0))
        tried.append(alone.tried)
    for step, _ in search._steps_of(SearchTask(ranged, search.readings)):
        list(step(2.0))
    assert len(tried) > 1
    assert search.tried == sum(tried)


@for_each("most", [3, 15, 200])
def test_every_preset_of_gguf_that_has_the_codes_is_tried_once(most):
    x, codes = torch.linspace(-1, 1, 512).reshape(2, 256), torch.arange(512).reshape(2, 256) % (most + 1)
    search = _Search(Evaluator(x, codes.to(torch.int32), None, None, [qc.PerTensor()]))
    assert list(search._evaluate_presets(2.0)) == []
    assert search.tried == sum(
        name.startswith("gguf.") and p.format.qmin <= 0 and p.format.qmax >= most
        for name, p in qc.PRESETS.items()
    )


@for_each(
    ("x", "codes"), [(3.0, 5), ([[0.1, 0.7, -0.3]], [[3], [-5], [7]]), ([math.nan, 1.0], [9, 5])]
)
def test_presets_are_not_tried_on_what_they_do_not_suit(x, codes):
    """One number, codes in another shape, and NaN."""
    search = _Search(
        Evaluator(torch.tensor(x), torch.tensor(codes, dtype=torch.int32), None, None, [qc.PerTensor()])
    )
    assert list(search._evaluate_presets(2.0)) == []
    assert (search.tried, search.evaluator.evaluations) == (0, [])
