"""Each convention gives bit for bit the integers, scales and zero points of its library."""

import contextlib
import dataclasses
import itertools
import math
import warnings
from fractions import Fraction

import golden_cases as golden
import numpy as np
import pytest
import torch
from grid import for_each
from parts import in_parts, some, some_rows

import quantcore as qc
from quantcore.conventions import KERNELS
from quantcore.conventions.record import CHOICES
from quantcore.programs import code_program

LIBRARIES = [name for name in qc.INTEGER_CONVENTIONS if golden.cases(name)]
NO_INTEGER = (-(1 << 31), -(1 << 63))  # recorded in place of NaN


OURS = {}  # what several tests look at


def run(case, convention=None):
    """The case quantized by us; warnings about NaN are expected."""
    if convention is None and case["id"] in OURS:
        return OURS[case["id"]]
    scheme = golden.scheme_of(case)
    if convention is not None:
        scheme = dataclasses.replace(scheme, convention=convention)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = qc.apply(golden.array(case["x"]), scheme)
    if convention is None:
        OURS[case["id"]] = result
    return result


def same_bits(ours, theirs):
    """Equal bit for bit, or both NaN."""
    ours = ours.numpy()
    return (ours.view(np.int32) == theirs.view(np.int32)) | (np.isnan(ours) & np.isnan(theirs))


def differences(case, convention=None):
    """What differs from the record, in words; empty if nothing does."""
    try:
        result = run(case, convention)
    except qc.QuantError as error:
        return [] if "raises" in case else [f"refused: {error}"]
    if "raises" in case:
        return [f"not refused, but the library says {case['raises']}"]
    scale, zero_point, codes = (golden.array(case[name]) for name in ("scale", "zero_point", "codes"))
    found = {
        "scale": ~same_bits(result.scale, scale),
        "zero_point": (result.zero_point.numpy() != zero_point) & ~np.isin(zero_point, NO_INTEGER),
        "codes": (result.codes.numpy() != codes) & ~np.isin(codes, NO_INTEGER),
    }
    recorded = {"scale": scale, "zero_point": zero_point, "codes": codes}
    words = []
    for name, wrong in found.items():
        if wrong.any():
            at = tuple(int(i) for i in np.argwhere(wrong)[0])
            ours = getattr(result, name)[at].item()
            words.append(
                f"{name}: {wrong.sum()} differ, first at {at}: {ours!r}, recorded {recorded[name][at]!r}"
            )
    return words


def test_every_library_is_recorded():
    assert set(qc.INTEGER_CONVENTIONS) - set(LIBRARIES) == {"textbook", "aimet.2024.Quantize"}


@in_parts(16)
@for_each("name", LIBRARIES)
def test_integers_of_the_library(name, part):
    """By default those of a part of the cases, and of the first one of each format."""
    each = {(case["scheme"]["bits"], case["scheme"]["signed"]): case for case in golden.cases(name)[::-1]}
    cases = [*each.values(), *part(golden.cases(name))]
    wrong = {case["id"]: words for case in cases if (words := differences(case))}
    assert not wrong, (
        f"{len(wrong)} of {len(golden.cases(name))} cases: {dict(itertools.islice(wrong.items(), 5))}"
    )


def test_hqq_takes_the_bits_that_its_quantizer_supports():
    """`hqq.core.quantize.Quantizer.SUPPORTED_BITS` of 0.2.8 also has 1 and 1.58; the cases above have no 3, 5 and 6."""
    taken = []
    for bits in range(2, 9):
        with contextlib.suppress(qc.QuantError):
            taken.append(qc.apply(torch.ones(4, 8), f"uint{bits} asymmetric per_group(8) hqq").scheme.format.bits)
    assert taken == [2, 3, 4, 5, 6, 8]


def spread(parameters, block, shape):
    """Parameters expanded from one per block to one per element."""
    for axis, length in enumerate(block):
        parameters = np.repeat(parameters, length, axis)
    return parameters[tuple(slice(0, n) for n in shape)]


@in_parts(23)
@for_each("name", LIBRARIES)
def test_dequantized_is_the_library_s(name, part):
    for case in part(golden.cases(name)):
        if case.get("dequant_kind", "").startswith("canonical"):
            result = run(case)
            q, z, s = (golden.array(case[k]) for k in ("codes", "zero_point", "scale"))
            z, s = (spread(p, result.block, q.shape) for p in (z, s))
            with np.errstate(all="ignore"):
                theirs = (q.astype(np.float32) - z.astype(np.float32)) * s
            ours = result.dequantized.numpy()
            assert ((ours == theirs) | (np.isnan(ours) & np.isnan(theirs))).all(), case["id"]


# A recorded kernel's formula -> the letter of our kernel
FAMILIES = {
    "round(x/s)": "A",  # recorded only with z = 0
    "round(x/s)+z": "A",
    "round(x*(1/s))+z": "B",
    "round(x/s+z)": "C",
    "round(x*(1/s)+z)": "D",
    "round(fma(x,1/s,z))": "E",
}


def codes_by(kernel, x, s, z):
    """The codes before clamping in the order of operations of a kernel."""
    lines = code_program(qc.INT8, qc.TEXTBOOK.changed(kernel=kernel))
    return lines.write("v", {"x": x, "s": s, "z": z}, torch.empty_like(x))


@for_each("call", golden.kernels()[1])
def test_kernel(call):
    records, formulas = golden.kernels()
    kernel = FAMILIES[formulas[call]]
    compared = 0
    for record in records:
        if call not in record["codes"]:
            continue
        x = torch.from_numpy(golden.array(record["x"]))
        s, z = torch.tensor([record["s"]]), torch.tensor([float(record["z"])])
        found = codes_by(kernel, x, s, z).clamp_(record["lo"], record["hi"])
        wrong = found.numpy() != golden.array(record["codes"][call])
        assert not wrong.any(), f"s={record['s']!r} z={record['z']}: {wrong.sum()} differ, x={x[wrong][:3]}"
        compared += len(x)
    assert compared >= 300


def test_kernels_are_told_apart():
    """The recorded ties tell all kernels apart, so one under the wrong letter would fail."""
    records, _formulas = golden.kernels()
    apart = set()
    for record in records:
        x, s, z = torch.from_numpy(golden.array(record["x"])), torch.tensor([record["s"]]), record["z"]
        got = {name: codes_by(name, x, s, torch.tensor([float(z)])) for name in KERNELS}
        apart |= {(a, b) for a, b in itertools.permutations(KERNELS, 2) if (got[a] != got[b]).any()}
    assert apart == set(itertools.permutations(KERNELS, 2))


def test_fused_kernel_rounds_once():
    """Compared with exact fractions, at lengths that cover every part of the vector loop."""
    rng = np.random.default_rng(5)
    for n in (1, 3, 8, 15, 16, 17, 31, 200):
        x = rng.normal(size=n).astype(np.float32)
        inverse = np.float32(1) / np.float32(rng.uniform(0.001, 0.1))
        z = float(rng.integers(-128, 128))
        found = torch.add(torch.tensor(z), torch.from_numpy(x), alpha=float(inverse)).numpy()
        for a, b in zip(x, found, strict=True):
            exact = Fraction(float(a)) * Fraction(float(inverse)) + Fraction(z)
            below, above = np.nextafter(b, np.float32(-np.inf)), np.nextafter(b, np.float32(np.inf))
            distance = abs(exact - Fraction(float(b)))
            assert distance <= abs(exact - Fraction(float(below)))
            assert distance <= abs(exact - Fraction(float(above)))


# choice -> (library with a recorded case that depends on it, a wrong value that a case must reveal)
CHANGES = {
    "kernel": [("onnxruntime", "B"), ("torchao", "A"), ("torch.quantize_per_channel", "B"),
               ("torch.quantize_per_tensor", "B"), ("hqq", "B")],
    "rounding": [("torchao", "half_away"), ("onnxruntime", "half_up"), ("hqq", "floor")],
    "overflow": [("torchao", "wrap")],
    "nan": [("torchao", "qmin"), ("torch.quantize_per_channel", "qmin")],
    "cast": [("torchao", "int64"), ("quanto", "int32")],
    "zero_in_range": [("torchao", "no"), ("brevitas", "both"), ("hqq", "both")],
    "range_overflow": [("torchao", "split")],
    "finite_range": [("torchao", True)],
    "widen_to_eps": [("aimet.Quantize", False)],
    "min_range": [("brevitas", 0.0)],
    "symmetric_scale": [("torchao", "amax_over_qmax"), ("torchao.no_clipping_err", "amax_over_half_range"),
                        ("aimet.Quantize", "amax_over_half_range"), ("onnxruntime", "amax_over_half_range"), ("quanto", "amax_over_half_range")],
    "asymmetric_scale": [("hqq", "range"), ("torchao", "range_over_codes")],
    "narrow_scale_bits": [("onnxruntime", ())],
    "scale_precision": [("onnxruntime", "float32")],
    "eps": [("torchao", 2.0**-23), ("quanto", 1e-3)],
    "eps_replacement": [("compressed_tensors", 1.0), ("torch.fake_quantize", 1.0)],
    "bad_scale": [("brevitas", "kept")],
    # only presets use these: see test_presets
    "inverse": [], "bad_inverse": [], "divisor": [], "center": [], "clamp_min": [], "zero_replacement": [],
    "nan_replacement": [], "zero_scale": [], "quantize_with": [], "e8m0_min_as": [], "min_divisor": [], "short_block": [],
    "decoding": [], "code_bits": [],
    "decoding_dtype": [],  # only checkpoints: see test_checkpoints_golden
    # only of x in half precision: see test_half
    "scale_dtype": [], "coding_dtype": [], "value_dtype": [], "width_dtype": [], "zero_point_dtype": [],
    "zero_point_form": [("hqq", "float_rounded")],
    "zero_point_order": [],  # differs only next to ties: see test_conventions_live
    "zero_point_precision": [("onnxruntime", "float32")],
    "zero_point_scale": [("compressed_tensors", "final"), ("onnxruntime", "final")],
    "replaced_zero_point": [("onnxruntime", "computed")],
    "nan_zero_point": [("compressed_tensors", "lowest"), ("torch.fake_quantize", "lowest")],
    "unsigned_symmetric_zero_point": [("torch.fake_quantize", "middle"), ("onnxruntime", "zero")],
}  # fmt: skip


def test_every_choice_is_changed():
    assert set(CHANGES) == set(CHOICES)


@for_each(
    ("choice", "name", "value"),
    [
        each
        for choice, changes in CHANGES.items()
        for each in some_rows([(choice, *change) for change in changes], len(changes))
    ],
)
def test_choice_is_read(choice, name, value):
    """A convention with this choice changed fails on a recorded case, on which the library's own does not."""
    changed = qc.CONVENTIONS[name].changed(**{choice: value})
    cases = golden.cases(name)  # in turns: neighbors are alike
    in_turns = (case for turn in range(14) for case in cases[turn::14])
    revealing = next(case for case in in_turns if differences(case, changed))
    assert differences(revealing) == []


@in_parts(4)
@for_each("name", [n for n in LIBRARIES if n.startswith("aimet")])
def test_aimet_s_own_numbers(name, part):
    compared = 0
    for case in part(golden.cases(name)):
        found = qc.encoding(run(case))
        assert np.array_equal(found["offset"], -golden.array(case["zero_point"]).astype(np.float32))
        for end in ("min", "max"):
            theirs = golden.array(case[f"x_{end}"])
            assert same_bits(found[end] + 0.0, theirs + np.float32(0)).all(), (case["id"], end)
            compared += 1
    assert compared >= len(part(range(100)))
    assert qc.encoding(qc.apply([1.0], qc.Scheme())) == {}


# One tensor's tables in AIMET's four modes as of spring 2024, and as of 2.42.0 where that differs
AIMET_X = [
    [-1.1258, -1.1524, -0.2506, -0.4339],
    [0.8487, 0.6920, -0.3160, -2.1152],
    [0.3223, -1.2633, 0.3500, 0.3081],
    [0.1198, 1.2377, 1.1168, -0.2473],
]


def aimet_sample():
    """The tensor whose rounded digits are printed above."""
    x = torch.randn(4, 4, generator=torch.Generator().manual_seed(0))
    assert (x - torch.tensor(AIMET_X)).abs().max() < 6e-5
    return x


@for_each(
    ("convention", "text", "offset", "ends", "codes"),
    [
        ("aimet.2024.Quantize", "uint8 asymmetric", -161, (-2.1169, 1.2360),
         [[75, 73, 142, 128], [226, 214, 137, 0], [186, 65, 188, 184], [170, 255, 246, 142]]),
        ("aimet.2024.Quantize", "int8 asymmetric", -33, (-2.1169, 1.2360),
         [[-53, -55, 14, 0], [98, 86, 9, -128], [58, -63, 60, 56], [42, 127, 118, 14]]),
        ("aimet.2024.Quantize", "int8 symmetric", 0, (-2.1152, 2.0987),
         [[-68, -70, -15, -26], [51, 42, -19, -128], [20, -76, 21, 19], [7, 75, 68, -15]]),
        ("aimet.2024.Quantize", "uint8 symmetric", 0, (0.0, 4.2139),
         [[0, 0, 0, 0], [51, 42, 0, 0], [20, 0, 21, 19], [7, 75, 68, 0]]),
        ("aimet.Quantize", "uint8 symmetric", -128, (-2.1152, 2.0987),
         [[60, 58, 113, 102], [179, 170, 109, 0], [148, 52, 149, 147], [135, 203, 196, 113]]),
    ],
)  # fmt: skip
def test_printed_tables_of_aimet(convention, text, offset, ends, codes):
    result = qc.apply(aimet_sample(), qc.Scheme.parse(f"{text} {convention}"))
    own = qc.encoding(result)
    assert result.codes.tolist() == codes
    assert own["offset"].item() == offset
    assert (round(own["min"].item(), 4), round(own["max"].item(), 4)) == ends


REFUSED = [
    ("int8 per_group(4) torch.fake_quantize", (4, 8), "per-tensor and per-channel"),
    ("int10 torch.fake_quantize", (4, 8), "up to 8 bits and for 16"),
    ("int4 torch.quantize_per_tensor", (4, 8), "8 bits only"),
    ("int8n torch.quantize_per_tensor", (4, 8), "full range"),
    ("int8 per_channel torch.quantize_per_tensor", (4, 8), "one scale for the whole tensor"),
    ("int8 torch.quantize_per_channel", (4, 8), "one scale per channel"),
    ("int4 per_group(3) torchao", (4, 8), r"divide the axis; here blocks of shape \(1, 3\)"),
    ("int4 per_block([3,8]) torchao", (4, 8), "divide"),
    ("int4 per_group(16) torchao", (4, 8), "divide"),
    ("int4 asymmetric torchao.no_clipping_err", (4, 8), "symmetric codes only"),
    ("int4 per_group(3) aimet.Quantize", (4, 8), "aimet-torch 2.42.0.*divide"),
    ("int2 onnxruntime", (4, 8), "4, 8 and 16 bits"),
    ("int8 per_block([2,2]) onnx", (4, 8), "per-group"),
    ("int16 per_group(4) onnxruntime", (4, 8), "groups only for 4 and 8"),
    ("int8 per_group(4) onnxruntime", (2, 4, 8), "groups only for tensors with two axes"),
    ("uint8 compressed_tensors", (4, 8), "signed codes only"),
    ("int8 per_channel(1) compressed_tensors", (4, 8), "along axis 0"),
    ("int8 per_group(2,axis=0) compressed_tensors", (4, 8), "last axis"),
    ("int8 per_group(3) compressed_tensors", (4, 8), "divide the last axis"),
    ("int8 brevitas", (4, 8), "narrow range.*int8n"),
    ("uint8 symmetric brevitas", (4, 8), "Int8Weight"),
    ("int8n per_channel(1) brevitas", (4, 8), "axis 0"),
    ("int8 asymmetric quanto", (4, 8), "signed symmetric"),
    ("int3 quanto", (4, 8), "2, 4 and 8"),
    ("int8 per_channel(1) quanto", (2, 4, 8), "first or the last"),
    ("int8 per_channel(0) quanto", (8,), "several axes; here the tensor has 1 axis"),
    ("int4 given(0.1) quanto", (4, 8), "clamps to 8 bits"),
    ("int4 per_group(1) torchao", (4, 8), "one scale for the whole tensor"),
    ("uint4 symmetric hqq", (4, 8), "unsigned asymmetric"),
    ("uint7 asymmetric hqq", (4, 8), "2, 3, 4, 5, 6 and 8"),
    ("uint4 asymmetric per_group(4,axis=0) hqq", (4, 8), "last axis"),
    ("uint4 asymmetric per_group(3) hqq.round_zero", (4, 8), "divide"),
]


@for_each(("text", "shape", "words"), REFUSED)
def test_what_the_library_refuses(text, shape, words):
    scheme = qc.Scheme.parse(text)
    with pytest.raises(qc.QuantError, match=words) as raised:
        qc.apply(torch.ones(shape), scheme)
    assert qc.unsupported_reason(scheme, shape) == str(raised.value)
    with pytest.raises(qc.QuantError, match=words):
        qc.quantize(torch.ones(shape), 1.0, 0, scheme)
    assert str(scheme.convention) in str(raised.value)


def test_a_minimum_is_stored_only_in_a_format_with_zero():
    """Stored in e8m0, a minimum of 0 would be NaN, and every value with it."""
    text = "int4 {} per_group(32) gguf.Q4_1 scales({} symmetric per_tensor given(1) stored)"
    for symmetric in ("symmetric", "asymmetric"):
        with pytest.raises(qc.QuantError, match=r"stores the minimum .* and e8m0 has neither 0 nor negative"):
            qc.apply(torch.ones(2, 32), qc.Scheme.parse(text.format(symmetric, "e8m0")))
        assert bool(qc.apply(torch.ones(2, 32), text.format(symmetric, "fp16")).dequantized.isfinite().all())


@for_each("name", qc.INTEGER_CONVENTIONS)
def test_only_the_textbook_refuses_nan(name):
    """brevitas and onnxruntime's tool refuse the scale that NaN leads to, but not NaN with a given scale."""
    fmt, symmetric = {
        "brevitas": ("int8n", "symmetric"),
        "hqq": ("uint8", "asymmetric"),
        "hqq.round_zero": ("uint8", "asymmetric"),
    }.get(name, ("int8", "symmetric"))
    granularity = "per_channel(0)" if name == "torch.quantize_per_channel" else "per_tensor"
    x = torch.tensor([[float("nan"), float("inf"), 0.25]])
    scheme = qc.Scheme.parse(f"{fmt} {symmetric} {granularity} given(0.1) {name}")
    if name == "textbook":
        with pytest.raises(qc.QuantError, match="x contains one NaN and one infinity, the first"):
            qc.apply(x, scheme)
        return
    with pytest.warns(UserWarning, match="1 element becomes NaN"):
        result = qc.apply(x, scheme)
    assert result.warnings
    assert result.codes[0, 2] == 2
    assert result.codes[0, 1] == (scheme.format.qmin if name == "onnx" else scheme.format.qmax)


def test_scales_that_libraries_refuse():
    x = torch.tensor([[float("nan"), 1.0]])
    for text in ("int8n brevitas", "int8 onnxruntime", "int8 onnx"):
        with pytest.raises(qc.QuantError, match="refuses a scale that is not a finite number"):
            qc.apply(x, qc.Scheme.parse(text))


@for_each("name", some(qc.INTEGER_CONVENTIONS, 3))
def test_text_of_a_convention(name):
    convention = qc.CONVENTIONS[name]
    assert str(convention) == name
    assert qc.Scheme.parse(f"int4 {name}").convention == convention
    for choice in CHOICES:
        for value in (True, "A", "wrap", "no", "zero", 0.5, (4, 16), "float64", "nan"):
            try:
                changed = convention.changed(**{choice: value})
            except qc.QuantError:
                continue
            assert qc.Scheme.parse(f"int4 {changed}").convention == changed


@for_each("name", qc.INTEGER_CONVENTIONS)
def test_every_record_names_its_sources(name):
    convention = qc.CONVENTIONS[name]
    assert convention.library
    assert convention.call
    if name != "textbook":
        assert convention.version
        base = qc.TEXTBOOK
        named = {choice for choice, _ in convention.sources}
        assert named <= {*CHOICES}
        assert "kernel" in named or convention.coding.kernel == base.coding.kernel


EXACT = {  # in Python's exact arithmetic
    "half_even": lambda v: round(v),
    "half_away": lambda v: math.floor(abs(v) + Fraction(1, 2)) * (1 if v > 0 else -1),
    "half_up": lambda v: math.floor(v + Fraction(1, 2)),
    "floor": math.floor,
    "ceil": math.ceil,
    "toward_zero": math.trunc,
}


@for_each("rounding", EXACT)
@for_each(
    "text",
    [
        pytest.param("int8 given(0.25,0) {}", marks=pytest.mark.slow),
        "uint8 asymmetric given(0.25,100) {}",
        "int8 asymmetric given(0.25,-7) compressed_tensors({})",
    ],
)
def test_rounding_is_a_choice(text, rounding):
    """x/s is exact here, so exact arithmetic gives the code; the trace and the scripts must agree."""
    change = f"rounding={rounding}"
    scheme = qc.Scheme.parse(text.format(change if "compressed" in text else f"textbook({change})"))
    x = torch.tensor([[-2.5, -1.75, -0.5, -0.49999997, 0.0], [0.5, 0.49999997, 1.5, 2.5, 8388607.0]]) / 4
    result = qc.apply(x, scheme)
    z = int(result.zero_point)
    before = "compressed" in text  # z is added before rounding
    for index in np.ndindex(x.shape):
        quotient = Fraction(float(x[index])) * 4
        if before:
            quotient = Fraction(float(np.float32(float(x[index]) * 4) + np.float32(z)))
        code = EXACT[rounding](quotient) + (0 if before else z)
        clamped = min(max(code, scheme.format.qmin), scheme.format.qmax)
        assert result.codes[index] == clamped
        assert qc.trace(result, index).code == clamped
    assert qc.Scheme.parse(str(scheme)) == scheme
    code = f"import torch\n\nx = torch.tensor({x.tolist()})"
    for script in (qc.snippets.quantcore_script, qc.snippets.torch_script):
        exec(script(code, result), {})


def test_rounding_by_chance():
    """Unbiased: the mean of n codes is within 6 standard deviations, sqrt(p(1-p)/n), of x/s."""
    n = 40_000
    x = torch.tensor([0.1, 0.5, -0.3, 2.75, -1.999]).repeat(n, 1)
    first, again, other = (
        qc.apply(x, qc.Scheme.parse(f"int8 given(1) textbook(rounding={name})"))
        for name in ("stochastic", "stochastic_0", "stochastic_7")
    )
    p = (x[0] - x[0].floor()).double()
    bound = 6 * (p * (1 - p) / n).sqrt()
    assert ((first.codes.double().mean(0) - x[0].double()).abs() <= bound).all()
    assert torch.equal(first.codes, again.codes)
    assert not torch.equal(first.codes, other.codes)
    for index in ((0, 0), (1, 3), (2, 4)):
        trace = qc.trace(first, index)
        assert trace.code == first.codes[index]
        assert trace.rounded == trace.code
        assert "stochastic" in next(s.formula for s in trace.steps() if s.name == "round")
    with pytest.raises(qc.QuantError, match="Stochastic rounding"):
        qc.snippets.torch_script("import torch\n\nx = torch.zeros(2)", qc.apply([1.0, 2.0], first.scheme))
