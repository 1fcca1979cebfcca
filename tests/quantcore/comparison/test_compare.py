"""Why two libraries differ: adopting what a reason names turns one library's code into the other's."""

import dataclasses
import functools
import importlib
import itertools
import json
import warnings
from collections import defaultdict
from fractions import Fraction

import golden_cases as golden
import numpy as np
import pytest
import torch
from grid import for_each
from parts import in_parts, some

import quantcore as qc
from quantcore.conventions.record import CHOICES

C = qc.INTEGER_CONVENTIONS
SAMPLES = {c["input"]: c["x"] for c in golden.cases()}
NO_INTEGER = (-(1 << 31), -(1 << 63))  # recorded in place of NaN
f32 = np.float32


def compared(x, text, a, b):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return qc.compare(x, qc.Scheme.parse(text), C[a], C[b])


@functools.cache
def recorded(name, text, a, b):
    """Two libraries on a sample; three tests ask for each pair."""
    return compared(torch.from_numpy(golden.array(SAMPLES[name])), text, a, b)


def recorded_pairs(name):
    """Pairs of recorded cases of two libraries for the same input and scheme."""
    groups = defaultdict(list)
    for case in golden.cases():
        if case["input"] == name and "raises" not in case:
            groups[json.dumps(case["scheme"], sort_keys=True)].append(case)
    for cases in groups.values():
        yield from itertools.pairwise(cases)


def per_element(params, result):
    """Parameters expanded from one per block to one per element, as numpy."""
    wide = params
    for axis, length in enumerate(result.block):
        wide = wide.repeat_interleave(length, axis)
    return wide[tuple(slice(0, n) for n in result.x.shape)].numpy()


def fused(x, inverse, z):
    """fma in exact arithmetic, rounded once to float32."""
    out = []
    for terms in zip(x, inverse, z, strict=True):
        a, b, c = (Fraction(float(t)) for t in terms)
        exact = a * b + c
        near = f32(float(exact))
        options = [np.nextafter(near, f32(-np.inf)), near, np.nextafter(near, f32(np.inf))]
        odd = lambda v: int(v.view(np.uint32)) & 1  # noqa: E731
        out.append(min(options, key=lambda v: (abs(Fraction(float(v)) - exact), odd(v))))
    return np.array(out, f32)


def by_hand(cells, scale_of, zero_point_of, record, fmt):
    """The codes of some elements, from one result's scale and another's zero point, in numpy's float32."""
    x, s, z = (
        t[cells].astype(f32)
        for t in (
            scale_of.x.numpy(),
            per_element(scale_of.scale, scale_of),
            per_element(zero_point_of.zero_point, zero_point_of),
        )
    )
    kept = scale_of.params.inverse
    with np.errstate(all="ignore"):
        inverse = f32(1) / s if kept is None else per_element(kept, scale_of)[cells]
        values = {
            "A": lambda: np.rint(x / s) + z,
            "B": lambda: np.rint(x * inverse) + z,
            "C": lambda: np.rint(x / s + z),
            "D": lambda: np.rint(x * inverse + z),
            "E": lambda: np.rint(fused(x, inverse, z)),
        }[record.coding.kernel]()
    # the formula does not cover what casts make of larger values, and a fractional sum is not a code
    held = (abs(values) < 2.0**31) & ((z == np.rint(z)) | (record.coding.kernel in "CDE"))
    return np.where(held, np.clip(values, fmt.qmin, fmt.qmax), np.nan)


def at(result):
    return result.scheme.rules


@in_parts(6)
@for_each("name", SAMPLES)
def test_reasons_turn_recorded_codes_into_each_other(name, part):
    seen = set()
    for one, other in part(recorded_pairs(name)):
        codes = [golden.array(case["codes"]).astype(np.int64) for case in (one, other)]
        found = recorded(name, str(golden.scheme_of(one)), one["convention"], other["convention"])
        whole = ~np.isin(codes[0], NO_INTEGER) & ~np.isin(codes[1], NO_INTEGER)
        assert np.array_equal(found.differs.numpy()[whole], (codes[0] != codes[1])[whole])
        assert torch.equal(found.behind >= 0, found.differs)
        for place, names in enumerate(found.sets):
            cells = (found.behind == place).numpy() & whole
            if not cells.any() or {"nan", "cast"} & set(names):
                continue
            for taken in ((), names, ("scale", "zero_point", "kernel")):
                cells[cells] = np.isfinite(mixed_by_hand(found, cells, taken))
            if cells.any():
                seen.add(names)
            assert np.array_equal(mixed_by_hand(found, cells, names), codes[1][cells]), (one["id"], names)
            for fewer in itertools.chain.from_iterable(
                itertools.combinations(names, n) for n in range(len(names))
            ):
                assert not (mixed_by_hand(found, cells, fewer) == codes[1][cells]).any(), (one["id"], fewer)
    assert seen


def mixed_by_hand(found, cells, names):
    """The codes of a, computed with those of scale, zero point and kernel in ``names`` taken from b."""
    of = {name: found.b if name in names else found.a for name in ("scale", "zero_point", "kernel")}
    return by_hand(cells, of["scale"], of["zero_point"], at(of["kernel"]), found.a.scheme.format)


@in_parts(37)
@for_each("name", SAMPLES)
def test_reasons_cover_what_differs(name, part):
    for one, other in part(recorded_pairs(name)):
        found = recorded(name, str(golden.scheme_of(one)), one["convention"], other["convention"])
        assert sum(r.count for r in found.reasons) == found.count == int(found.differs.sum())
        assert torch.equal(found.behind >= 0, found.differs)
        for reason in found.reasons:
            assert found.differs[reason.index]
            own = found.reason_at(reason.index)
            assert own.sentence == reason.sentence
            assert own.kind == reason.kind
            assert own.count == 1
            assert found.sets[found.behind[reason.index]] == reason.ingredients
            assert one["convention"] in reason.sentence
            assert other["convention"] in reason.sentence
        for index in (~found.differs).nonzero()[:1].tolist():
            assert found.reason_at(tuple(index)) is None


@in_parts(5)
@for_each("name", some(SAMPLES, 7))
def test_choices_turn_one_parameter_into_the_other(name, part):
    explained = 0
    for one, other in part(recorded_pairs(name)):
        found = recorded(name, str(golden.scheme_of(one)), one["convention"], other["convention"])
        for reason in found.reasons:
            parameters = [p for p in ("scale", "zero_point") if p in reason.ingredients]
            if not parameters:
                assert not reason.choices
                continue
            assert reason.choices, reason.sentence
            explained += 1
            assert all(replayed(found, reason, reason.choices, p) for p in parameters)
            if len(parameters) == 1:
                for left in reason.choices:
                    fewer = [c for c in reason.choices if c != left]
                    assert not replayed(found, reason, fewer, parameters[0])
    assert explained


def replayed(found, reason, choices, parameter):
    """Whether a's convention with these choices of b gives the element's block b's parameter."""
    record = at(found.a).changed(**{c: at(found.b).choices[c] for c in choices})
    scheme = qc.Scheme.parse(str(found.a.scheme))
    limitless = qc.Convention(
        **{f: getattr(record, f) for f in record.__dataclass_fields__ if f not in ("limits", "sources")}
    )
    params = qc.choose_qparams(
        found.a.x, qc.Scheme(scheme.format, scheme.symmetric, scheme.granularity, convention=limitless)
    )
    block = tuple(i // b for i, b in zip(reason.index, found.a.block, strict=True))
    ours, theirs = (getattr(p, parameter)[block] for p in (params, found.b.params))
    return bool(ours == theirs) or bool(ours.isnan() and theirs.isnan())


EXAMPLES = {
    "a tie by one ulp": (
        [2.25], "int8 given(0.3)", "onnxruntime", "torch.fake_quantize", {"tie": 1},
        ["tie: onnxruntime rounds x / s = 7.4999995 to 7, torch.fake_quantize rounds x · (1/s) = 7.5 to 8."],
    ),
    "parity of z": (
        [0.125, 0.375, -0.125], "int8 asymmetric given(0.25, zero_point=1)", "onnxruntime", "compressed_tensors",
        {"tie with an odd zero point": 3},
        ["tie, and z is odd: onnxruntime rounds x / s = 0.5 to 0, + 1 = 1, compressed_tensors rounds x / s + z = 1.5 to 2."],
    ),
    "/127 or /127.5": (
        [[-1.1258, -1.1524, -0.2506, -0.4339], [0.8487, 0.692, -0.316, -2.1152], [0.3223, -1.2633, 0.35, 0.3081],
         [0.1198, 1.2377, 1.1168, -0.2473]], "int8", "onnxruntime", "torchao", {"scale": 3},
        ["scale (what max|x| is divided by)",
         "so -2.1152 becomes -127 against -128."],
    ),
    "a constant row": (
        [-2.5] * 4, "int8", "onnxruntime", "torchao", {"scale and kernel": 4}, ["scale (what max|x| is divided by)", "= -127.5 to -128"],
    ),
    "range must include 0": (
        [10.5, 11, 12, 13, 14], "uint4 asymmetric", "torchao", "hqq", {"scale, zero point and kernel": 3, "zero point and kernel": 1},
        ["scale (whether the range must include 0; how the scale comes from high - low): torchao 0.93333334 against hqq 0.233333"],
    ),
    "the smallest scale": (
        [1e-9, -1e-9, 5e-10], "int8", "torchao", "torch.fake_quantize", {"scale": 3},
        ["the smallest scale", "torch.fake_quantize 1.1920929e-07"],
    ),
    "NaN": (
        [float("nan"), 1.0], "int8 given(0.1)", "torchao", "torch.fake_quantize", {"NaN": 1},
        ["not representable in the integer cast: torchao converts nan to 0, torch.fake_quantize converts nan to -128."],
    ),
    "too large for a cast": (
        [1e30, 1.0], "int8 given(0.001)", "onnxruntime", "onnx", {"cast overflow": 1},
        ["onnxruntime converts 1e+33 to 127", "onnx converts 1e+33 to -128"],
    ),
    "order of rounding and subtraction": (
        [-1.4999999, 0.0, 253.0], "int8 asymmetric fixed(-1.4999999,253.5)", "textbook", "compressed_tensors", {"zero point": 2},
        ["zero point (rounded before or after the subtraction): textbook -127 against compressed_tensors -126;"],
    ),
    "zero point of symmetric unsigned codes": (
        [-1.0, 0.5, 1.0], "uint4", "torchao", "torch.fake_quantize", {"zero point": 3},
        ["zero point (its value for symmetric unsigned codes): torchao 8 against torch.fake_quantize 7;"],
    ),
}  # fmt: skip


@for_each("example", EXAMPLES)
def test_reasons_in_words(example):
    x, text, a, b, kinds, parts = EXAMPLES[example]
    found = compared(x, text, a, b)
    counted = defaultdict(int)
    for reason in found.reasons:
        counted[reason.kind] += reason.count
    assert counted == kinds
    said = " ".join(r.sentence for r in found.reasons)
    for part in parts:
        assert part in said


def test_changed_records():
    x, scheme = [0.5, 1.5, 300.0], qc.Scheme.parse("int8 given(1)")
    textbook = qc.TEXTBOOK
    (reason,) = qc.compare(x, scheme, textbook, textbook.changed(rounding="half_away")).reasons
    assert reason.kind == "rounding rule"
    assert reason.sentence == (
        "rounding rule, half_even against half_away: textbook rounds x / s = 0.5 to 0, "
        "textbook(rounding=half_away) rounds x / s = 0.5 to 1."
    )
    (reason,) = qc.compare(x, scheme, textbook, textbook.changed(overflow="wrap")).reasons
    assert (reason.kind, reason.index) == ("overflow", (2,))
    assert reason.sentence == (
        "out of range: textbook converts 300 to 127, textbook(overflow=wrap) converts 300 to 44."
    )


def test_range_that_each_library_finds_for_itself():
    x = torch.randn(4, 64, generator=torch.Generator().manual_seed(1))
    found = compared(x, "int4 per_channel(0) min_mse", "textbook", "torchao")
    assert found.count
    for reason in found.reasons:
        assert "scale" in reason.ingredients
        assert "scale: " in reason.sentence or "a different range for each library" in reason.sentence


@for_each("shape", [(), (1,), (2, 3, 4)])
def test_any_shape(shape):
    x = torch.full(shape, -2.5)
    found = compared(x, "int8", "onnxruntime", "torchao")
    assert found.count == x.numel()
    assert [r.count for r in found.reasons] == [x.numel()]
    assert found.reason_at((0,) * x.dim()).kind == "scale and kernel"


def test_libraries_that_differ_in_everything():
    """Nine ingredients have 511 sets."""
    scheme = qc.Scheme.parse("uint4 asymmetric per_group(32) percentile(97) scales(fp16 given(1) stored)")
    other = qc.CONVENTIONS["gguf.Q4_0"].changed(rounding="half_away", overflow="wrap", nan="qmax", cast="int32", kernel="D")
    x = torch.randn(4, 64, generator=torch.Generator().manual_seed(3)) + 2
    x[0, 0] = 1e30
    own = C["aimet.Quantize"].changed(nan="zero", min_divisor=0.01, zero_in_range="no")
    found = qc.compare(x, scheme, own, other)
    assert max(map(len, found.sets)) > 7
    assert sum(r.count for r in found.reasons) == found.count > 0


def test_equal_codes_have_no_reason():
    found = compared([1.0, 2.0], "int8", "onnxruntime", "onnx")
    assert (found.count, found.reasons, found.reason_at((0,))) == (0, [], None)


def test_groups_over_the_ends_of_rows():
    x = torch.randn(5, 7, generator=torch.Generator().manual_seed(2))
    found = compared(x, "uint4 asymmetric per_flat_group(5)", "hqq", "hqq.round_zero")
    assert found.count
    for index in found.differs.nonzero().tolist():
        reason = found.reason_at(tuple(index))
        assert reason.ingredients == ("zero_point",)
        assert reason.choices == ("zero_point_form",)


def test_many_differences_are_counted_all_and_told_apart_in_part(monkeypatch):
    x = torch.from_numpy(golden.array(SAMPLES["student64x128"]))
    whole = compared(x, "int8", "onnxruntime", "aimet.Quantize")
    monkeypatch.setattr(importlib.import_module("quantcore.comparison.compared"), "MOST", 10)
    part = compared(x, "int8", "onnxruntime", "aimet.Quantize")
    assert sum(r.count for r in part.reasons) == 10 < part.count == whole.count
    assert part.sets == whole.sets
    assert torch.equal(part.behind, whole.behind)


@for_each("most", [1, 2, 3, 4, 5, 9])
def test_the_first_differences_of_a_large_tensor(most):
    """More elements than are read at once."""
    found, n = compared([[1.0, 2.0]], "int8", "onnxruntime", "onnx"), 1_100_000
    differs = torch.zeros(n, dtype=torch.bool)
    places = [3, 524_287, 524_288, 700_000, n - 1]
    differs[places] = True
    assert dataclasses.replace(found, differs=differs.reshape(1000, -1)).first(most).tolist() == places[:most]


def test_65_536_differences_are_told_apart():
    x = torch.full((70_000,), 0.75)
    found = qc.compare(x, qc.Scheme.parse("int8 given(1)"), qc.TEXTBOOK.changed(rounding="floor"), qc.TEXTBOOK)
    assert [(r.kind, r.count) for r in found.reasons] == [("rounding rule", 65_536)]
    assert found.count == 70_000


def test_every_choice_behind_a_parameter_has_words():
    assert all(choice.at_stake and choice.kind for choice in CHOICES.values())
    # two choices that are the same difference have one sentence
    assert CHOICES["symmetric_scale"].at_stake == CHOICES["narrow_scale_bits"].at_stake


def test_refusal_is_raised():
    with pytest.raises(qc.QuantError, match="unsigned asymmetric codes only"):
        compared([1.0], "int8", "textbook", "hqq")


def test_table_of_libraries():
    x = torch.from_numpy(golden.array(SAMPLES["student64x128"]))
    scheme = qc.Scheme.parse("int8 per_channel(0)")
    frame = qc.library_table(x, scheme, C["onnxruntime"]).set_index("library")
    assert list(frame.index) == list(C)
    base = qc.apply(x, qc.Scheme.parse("int8 per_channel(0) onnxruntime"))
    assert 4 < (frame["refused"] == "").sum() < len(C)
    for name, row in frame.iterrows():
        own = qc.Scheme.parse(f"int8 per_channel(0) {name}")
        if row["refused"]:
            assert row["refused"] == qc.unsupported_reason(own, tuple(x.shape))
            continue
        result = qc.apply(x, own)
        report = qc.report(result)
        assert row["scale"] == result.scale[0, 0]
        assert row["zero_point"] == result.zero_point[0, 0]
        assert (row["sqnr_db"], row["mse"], row["max_abs_error"]) == (
            report.sqnr_db,
            report.mse,
            report.max_abs_error,
        )
        assert row["codes that differ"] == int((result.codes != base.codes).sum())


def test_table_of_another_block_and_of_a_library_that_refuses():
    x = torch.tensor([[1.0, 2.0], [3.0, 8.0]])
    scheme = qc.Scheme.parse("int8 per_channel(0)")
    frame = qc.library_table(x, scheme, C["hqq"], block=(1, 0)).set_index("library")
    assert frame.loc["textbook", "scale"] == np.float32(8) / np.float32(127)
    assert frame["codes that differ"].isna().all()
    assert "unsigned asymmetric" in frame.loc["hqq", "refused"]


@pytest.mark.parametrize("z", [1, 3])
def test_the_fused_kernel_is_told_apart_in_many_elements_at_once(z):
    """With s = 1/4 all products and sums are exact, so only ties differ, as z is odd."""
    x = torch.arange(-8, 9) / 8
    found = compared(x, f"uint8 asymmetric given(0.25, {z})", "torch.quantize_per_tensor", "onnxruntime")
    ratio = x.double().numpy() / 0.25
    expected = np.round(ratio + z).clip(0, 255) != (np.round(ratio) + z).clip(0, 255)
    assert expected.sum() > 2
    assert np.array_equal(found.differs.numpy(), expected)
    assert {r.kind: r.count for r in found.reasons} == {"tie with an odd zero point": expected.sum()}
