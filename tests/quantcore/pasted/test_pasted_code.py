"""Pasted code is evaluated: correct quantizers raise no complaint, mistakes are named with their line."""

import functools
import math
import random
import re

import code_snippets
import numpy as np
import pytest
import torch
from grid import for_each
from parts import some, some_rows

import quantcore as qc
from pages.shared.curriculum import LESSONS
from quantcore import mistakes
from quantcore.mistakes import CASES as MISTAKES
from quantcore.mistakes import IN_SOURCE, lines, run
from quantcore.pasted import MOST, bounds, intended, show_code
from quantcore.pasted.on_tensor import block_of
from quantcore.pasted.walk import evaluate, probes

read = functools.cache(qc.read_code)  # what several tests read
MARK = re.compile(r"  #! (\S+)")
pytestmark = pytest.mark.usefixtures("no_hurry")


def marked(text):
    """The snippet without its marks, and the (line, kind) of each mark."""
    found = [(i, kind) for i, line in enumerate(text.split("\n"), 1) for kind in MARK.findall(line)]
    return MARK.sub("", text), sorted(found)


def named(findings):
    return sorted((finding.line, finding.mistake) for finding in findings)


def first_of_each_kind():
    """The names of the first wrong snippet with each kind of finding, and every fourth of the others."""
    seen, first = set(), []
    for name, text in code_snippets.WRONG.items():
        kinds = set(MARK.findall(text))
        first += [name] if kinds - seen else []
        seen |= kinds
    return {*first, *[name for name in code_snippets.WRONG if name not in first][::8]}


FEW = first_of_each_kind()


def executed(text, **names):
    """The oracle: the test runs its own snippet, as a student would."""
    scope = {"torch": torch, "np": np, **names}
    exec(text, scope)
    return scope


@for_each("name", some(code_snippets.RIGHT, 11))
def test_right_code_is_not_accused(name):
    reading = read(code_snippets.RIGHT[name])
    assert named(reading.mistakes) == []
    assert reading.unread == ()
    if "library" not in name:
        assert reading.quantizers
        assert reading.summary.startswith("No known mistake found in: scale (line ")
    assert not re.search(r"\bcorrect\b|\bright\b", reading.summary)


@for_each("name", [name if name in FEW else pytest.param(name, marks=pytest.mark.slow) for name in code_snippets.WRONG])
def test_wrong_code_is_named_with_its_line(name):
    text, expected = marked(code_snippets.WRONG[name])
    assert expected
    reading = read(text)
    assert named(reading.mistakes) == expected
    for finding in reading.findings:
        assert finding.source == text.split("\n")[finding.line - 1].strip()
        assert finding.what.endswith((".", "?"))
        assert finding.fix.endswith(".") or "…" in finding.fix
        assert finding.mistake in IN_SOURCE


def test_every_kind_is_met():
    """Each kind of finding occurs in a snippet or in a lesson's code."""
    texts = [marked(code_snippets.WRONG[name])[0] for name in FEW]
    texts += ["\n".join(line.text for line in lines(m)[0]) for m in MISTAKES.values()]
    texts += ["s = x.abs().max() / 7\nq = torch.round(x / s).clamp(-128, 127)"]
    texts += ["s = (x.max() - x.min()) / 15\nz = -x.min() / s\nq = torch.round(x / s + z).clamp(0, 15)"]
    texts += ["s = (x.max() - x.min()) / 15\nz = torch.round(-x.min() / s).clamp(0, 15)\nq = (torch.round(x / s) + z).clamp(0, 15)"]
    texts += ["z = torch.round(-x.min() / s).to(torch.uint8)\nq = (torch.round(x / s) + z).clamp(0, 255)"]
    levels = "0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -16"
    texts += [f"t = torch.tensor([{levels}])\nq = ((x / s)[..., None] - t).abs().argmin(-1)\ny = t[q] * s"]
    texts += ["s = x.abs().max() / 255\nq = torch.round(x.abs() / s).clamp(0, 255)\ny = q * s"]
    texts += ["s = x.abs().max() / 7\nq = torch.round(x / s).clamp(-8, 7).to(torch.int8)\np = q[::2] << 4 | q[1::2]"]
    assert {f.mistake for text in texts for f in read(text).findings} == set(IN_SOURCE)


def test_every_finding_leads_to_a_lesson():
    for name in IN_SOURCE:
        lesson, step = mistakes.MISTAKES[name].lesson
        assert step in ("", *LESSONS[lesson].steps), name


# the mistakes found in each lesson's code, if not just the one it is named for
LESSON = {
    "wraps-per-tensor": {"zero_point_left_out", "wrapped"},
    "wraps-per-column": {"zero_point_left_out", "wrapped"},
    "wraps-per-group": {"zero_point_left_out", "wrapped"},
    "clamp-of-another-type": {"other_format"},
    "range-without-minimum": {"divisor"},
    "zero-point-left-at-zero": {"zero_point_left_out"},
}


@for_each("name", MISTAKES)
def test_the_lesson_s_code_is_recognized(name):
    wrong, right = lines(MISTAKES[name])
    reading = read("\n".join(line.text for line in wrong))
    notes = name == "scale-in-float16"  # a note: whether it hurts depends on the tensor
    found = reading.notes if notes else reading.mistakes
    expected = LESSON.get(name) or {m.name for m in mistakes.MISTAKES.values() if MISTAKES[name] in m.cases}
    assert {f.mistake for f in found if f.mistake != "zero_scale"} == expected
    if name != "range-without-minimum":  # its divisor is in a line that is the same in both versions
        assert any(wrong[f.line - 1].differs for f in found if f.mistake in expected)
    reading = read("\n".join(line.text for line in right))
    assert named(reading.mistakes) == []
    assert {f.mistake for f in reading.notes} <= {"zero_scale", "wrapped"}


@for_each("name", MISTAKES)
@for_each("which", some(["wrong", "right"], 2))
def test_codes_are_those_of_the_code_when_it_runs(name, which):
    """The codes are computed from what was read, without running it; the lesson's functions are the oracle."""
    mistake = MISTAKES[name]
    reading = read("\n".join(line.text for line in lines(mistake)[which == "right"]))
    tensors = [
        mistake.x(),
        *(torch.randn(6, 8, generator=torch.Generator().manual_seed(i)) * 3 for i in range(1)),
    ]
    for x in tensors:
        ran = run(getattr(mistake, which), x)
        shown = show_code(reading, len(reading.quantizers) - 1, x)
        assert torch.equal(shown.codes, ran.codes.float())
        np.testing.assert_allclose(shown.dequantized, ran.dequantized, rtol=2e-6, atol=2e-6, strict=True, equal_nan=False)


# with their scales no code gets far enough to wrap
HARMLESS = ("one too far", "clamp to 256", "cast before the clamp")


@for_each("name", [n for n in FEW if n not in ("in place", "in place, by masks")])
def test_what_is_shown_is_what_the_snippet_makes(name):
    """The codes computed from what was read equal those of the snippet, which this test runs."""
    text, _ = marked(code_snippets.WRONG[name])
    x = torch.randn(8, 8, generator=torch.Generator().manual_seed(3)) * 4 - 1
    is_numpy = "np." in text
    scope = executed(text, x=x.numpy() if is_numpy else x, w=x.numpy() if is_numpy else x, weights=x)
    reading = read(text)
    shown = show_code(reading, reading.mistakes[-1].quantizer, x)
    if "q" in scope and not callable(scope["q"]):
        assert np.array_equal(np.asarray(scope["q"], np.float32), shown.codes.numpy())
    if "x_hat" in scope:
        np.testing.assert_allclose(
            np.asarray(scope["x_hat"], np.float32), shown.dequantized.numpy(), rtol=1e-5, atol=1e-5
        )
    assert shown.against.wrong_cells.any() != (name in HARMLESS)


@for_each("name", some(["torch symmetric", "torch asymmetric", "numpy symmetric", "int4 in int8", "per-channel with keepdim",
                                  "per-group", "percentile of magnitudes", "uint8 around 128", "unsigned after a ReLU"]))  # fmt: skip
def test_right_code_gives_the_scheme_s_codes(name):
    x = torch.randn(8, 64, generator=torch.Generator().manual_seed(5))
    reading = read(code_snippets.RIGHT[name])
    shown = show_code(reading, len(reading.quantizers) - 1, x.relu() if "ReLU" in name else x)
    assert not shown.against.outside
    if "ReLU" not in name:  # there the scheme's zero point is 128
        assert not shown.against.wrong_cells.any()


def test_what_differs_from_the_scheme_by_more_than_rounding_is_counted_with_its_sqnr():
    """A floor instead of rounding: what is 0.75 of a step above a code is too far, what is 0.25 above is not."""
    steps = np.array([-129.0, 0.25, 0.75, 3.25, 3.75, 126.0, 127.0])
    x = torch.tensor(steps / 64, dtype=torch.float32)
    shown = show_code(read("s = x.max() / 127\nq = torch.floor(x / s)\nx_hat = q * s"), 0, x)
    assert np.array_equal(shown.codes, np.floor(steps))
    against, scale = shown.against, 129 / 127
    assert against.outside == 1
    assert against.too_far.tolist() == [False, False, True, False, True, False, False]
    values = np.floor(steps), np.round(steps / scale) * scale
    for sqnr_db, x_hat in zip(against.sqnr_db, values, strict=True):
        expected = 10 * math.log10((steps**2).sum() / ((steps - x_hat) ** 2).sum())
        assert sqnr_db == pytest.approx(expected, abs=1e-3)


def test_a_clean_result_says_what_was_checked():
    reading = read(code_snippets.RIGHT["torch asymmetric"])
    assert reading.summary == (
        "No known mistake found in: scale (line 5) (max(x) - min(x)) / 255, per-tensor; codes (line 7) round(x / scale) + z, "
        "in this order (kernel A of qc.Convention); clamp (line 7) 0..255; "
        "cast (line 7) uint8; zero point (line 6); dequantize (line 11)."
    )


@for_each(
    ("order", "kernel"),
    [
        ("round(x / s + z)", "C"),
        ("round(x / s) + z", "A"),
        ("round(x * (1 / s)) + z", "B"),
        ("round(x * (1 / s) + z)", "D"),
    ],
)
def test_the_kernel_is_named(order, kernel):
    """None of the four orders is a mistake; each is used by some library."""
    text = f"s = (x.max() - x.min()) / 255\nz = torch.round(-x.min() / s)\nq = torch.{order}\nq = q.clamp(0, 255).to(torch.uint8)"
    reading = read(text)
    assert not reading.mistakes
    assert f"kernel {kernel}" in reading.summary


def test_what_is_not_recognized_is_said():
    reading = read("s = my_scale(x)\nq = torch.round(x / s).clamp(-128, 127).to(torch.int8)")
    assert reading.unread == (
        "Line 1: `my_scale(x)` is not recognized, so what depends on it is not checked.",
    )
    assert not reading.mistakes
    reading = read("y = my_mean(x)\nq = torch.round(y / s).to(torch.int8)")
    assert reading.unread[0].startswith("Line 1: `my_mean(x)` is not recognized")
    assert (
        reading.summary
        == "No quantizer could be followed to its codes, because some lines are not evaluated."
    )
    assert read("print('hello')").summary.startswith("No quantizer is recognized")


@for_each(
    "text",
    [
        "q = torch.round(x / scale).to(torch.int8)",
        "def quantize(x, scale, zero_point):\n    return (torch.round(x / scale) + zero_point).to(torch.int8)",
        "s = x.abs().max() / levels\nq = torch.round(x / s).clamp(-128, 127).to(torch.int8)",
        "s = find(x) / 255\nq = torch.round(x / s).clamp(-128, 127).to(torch.int8)",
        "s = y.abs().max() / 127\nq = torch.round(x / s).to(torch.int8)",
        "q = torch.round(x / s).clamp(low, high).to(torch.int8)",
        "s = (hi - lo) / 255\nq = torch.round(x / s).clamp(-128, 127)",
    ],
)
def test_of_what_is_not_known_nothing_is_claimed(text):
    assert named(read(text).mistakes) == []


@for_each(
    ("text", "words"),
    [
        ("", "There is no code yet"),
        ("x = (1 +\n", "Line 1: this is not valid Python"),
        ("the codes are:\na", "Line 1: this is not valid Python"),
        ("x\0y", "null byte"),
        ("x = " + "(" * 300 + "1" + ")" * 300, "is not valid Python|nested"),
        ("x = " + "-" * 3000 + "1", "nested"),
        ("x = " + "+".join("1" * 3000), "more than|nested"),
        ("x = 1\n" * 5000, "the limit is 200,000 characters and 5,000 lines"),
        ("a" * 300_000, "300,000 characters"),
        ("\ud800", "incomplete Unicode character"),
        ("x = [" + ",".join("[1, 2, 3]" for _ in range(8000)) + "]", "more than 30,000 syntax nodes"),
        ("x" + ".a" * 60, "nested more than 40 levels"),
    ],
)
def test_bad_text_is_one_sentence(text, words):
    with pytest.raises(qc.QuantError, match=words) as error:
        read(text)
    assert str(error.value).endswith(".")
    assert "\n" not in str(error.value)


def test_prompts_and_python_2_are_read():
    text = "In [3]: s = x.max() / 127\n\nIn [4]: q = np.clip(np.round(x / s), -128, 127)\nprint q\nOut[4]: array([1, 2])"
    assert named(read(text).mistakes) == [(1, "absolute_value")]
    text = ">>> def f(x):\n...     s = x.max() / 127\n...     return torch.round(x / s).clamp(-128, 127)\n>>> f(x)\ntensor([1.])"
    assert named(read(text).mistakes) == [(2, "absolute_value")]
    assert named(read("    s = x.max() / 127\n    q = torch.round(x / s).clamp(-128, 127)").mistakes)


EVIL = [
    "__import__('os').system('touch {}')",
    "import os\nos.system('touch {}')",
    "open('{}', 'w')",
    "q = eval(\"open('{}', 'w')\")",
    "exec(\"open('{}', 'w').close()\")",
    "class A:\n    x = open('{}', 'w')",
    "def f(x=open('{}', 'w')):\n    pass\nf()",
    "q = [open('{}', 'w') for _ in range(3)]",
    "q = f\"{{open('{}', 'w')}}\"",
    "@open('{}', 'w')\ndef f(x): pass",
    "s = x.max() / 127\nfrom pathlib import Path\nq = torch.round(x / s).to(torch.int8)\nPath('{}').touch()",
]


@for_each("text", EVIL)
def test_nothing_is_run(text, tmp_path):
    place = tmp_path / "made"
    read(text.format(place))
    assert not place.exists()


@for_each(
    "text", ["x = 10 ** 10 ** 10", "x = 1 << 10 ** 9", "x = 2 ** 64 ** 64", "x = 'a' * 10 ** 10", "x = [0] * 10 ** 10", "x = 9.9e300 * 9.9e300",
             "x = (-8) ** 0.5", "x = 0 ** -1", "x = 1 % 0 + 1 // 0 + 1 / 0", "while True:\n    x = 1", "def f(x):\n    return f(x)\nf(x)",
             "a = b = c = a", "for i in range(10 ** 9):\n    q = torch.round(x / 0)", "lambda: 0", "x = x[x] = x",
             "s = x.abs().max() / float('nan')\nq = torch.round(x / s)\ny = q * s", "q = torch.round(x / 0.1).clamp(float('nan'), 127).to(torch.int8)",
             "n = 10 ** 250\nz = float('inf')\nq = (torch.round(x / n) + z).clamp(0, z).to(torch.uint8)", "def f(*a, **k): return f(*a, **k)\nf(1)"],
)  # fmt: skip
def test_arithmetic_that_never_ends_is_not_done(text, monkeypatch):
    monkeypatch.setattr(bounds, "SECONDS", 0.1)
    monkeypatch.setattr(bounds, "SECONDS_IN_ALL", 0.1)
    try:
        read(text)
    except qc.QuantError as error:
        # whichever limit a busy machine reaches first
        assert re.search("steps|too long", str(error))  # noqa: PT017


def test_a_tree_of_calls_ends():
    calls = "\n".join(f"def f{i}(x):\n    return f{i + 1}(x) + f{i + 1}(x) + f{i + 1}(x)" for i in range(20))
    branches = "\n".join(f"if a{i}:\n    x = x / {i + 2}" for i in range(60))
    for text in (calls, branches):
        try:
            read(text)
        except qc.QuantError as error:
            assert "paste only the lines that quantize" in str(error)  # noqa: PT017


@pytest.mark.parametrize("count", [12, pytest.param(24, marks=pytest.mark.slow)])
def test_broken_snippets_give_sentences(count):
    """Whatever is removed or swapped, only QuantErrors are raised, and what is read can be shown."""
    chance, x = random.Random(8), torch.randn(4, 64, generator=torch.Generator().manual_seed(1))
    texts = [*code_snippets.RIGHT.values(), *code_snippets.WRONG.values()]
    found = 0
    for _ in range(count):
        pieces = re.findall(r"\w+|\s+|\W", chance.choice(texts))
        match chance.randrange(4):
            case 0:
                pieces = list("".join(pieces)[: chance.randrange(len(pieces) * 2)])
            case 1:
                for _ in range(3):
                    pieces.pop(chance.randrange(len(pieces)))
            case 2:
                a, b = chance.randrange(len(pieces)), chance.randrange(len(pieces))
                pieces[a], pieces[b] = pieces[b], pieces[a]
            case 3:
                rows = "".join(pieces).split("\n")
                rows.pop(chance.randrange(len(rows)))
                pieces = ["\n".join(rows)]
        try:
            reading = qc.read_code("".join(pieces))
            found += 1
            for place in range(len(reading.quantizers)):
                show_code(reading, place, x)
        except qc.QuantError as error:
            assert re.fullmatch(r"[^\n]+\.", str(error))  # noqa: PT017
    assert found > count / 5


@for_each(
    ("text", "x", "words"),
    [
        ("s = x.abs().max() / 127\nq = torch.round(x / s)", torch.zeros(3), "divides by a scale of 0"),
        ("s = x.abs().max() / 127\nq = torch.round(x / s)", torch.tensor([1.0, torch.nan]), "are all finite"),
        (
            "s = x.abs().amax(dim=1) / 127\nq = torch.round(x / s)",
            torch.ones(3, 4),
            "Line 2: on a tensor of shape (3, 4), this fails: The size of tensor a (4) must match",
        ),
        (
            "s = x.abs().amax(dim=2, keepdim=True) / 127\nq = torch.round(x / s)",
            torch.ones(3, 4),
            "Line 1: on a tensor of shape (3, 4), this fails: Dimension out of range",
        ),
    ],
)
def test_what_can_not_be_shown_is_said(text, x, words):
    with pytest.raises(qc.QuantError, match=re.escape(words)):
        show_code(read(text), 0, x)


@for_each(
    ("shape", "block"),
    [((1024, 512), (256, 256)), ((300, 999), (256, 192)), ((100_000,), (65_536,)), ((512, 512, 3, 3), (64, 112, 3, 3)), ((8, 64), (8, 64))],
)  # fmt: skip
def test_a_block_is_drawn_over_all_of_a_large_tensor(shape, block):
    """It is made of runs of neighbours, in order and none twice, and the scheme's codes are those of the code on it."""
    x = torch.arange(np.prod(shape), dtype=torch.float32).reshape(shape) / 2**20 - 1
    drawn, places = block_of(x)
    assert tuple(drawn.shape) == block
    assert drawn.numel() <= MOST
    assert torch.equal(drawn, x[torch.meshgrid(*places, indexing="ij")])
    assert torch.equal(drawn, block_of(x)[0])
    for axis, (n, at) in enumerate(zip(shape, places, strict=True)):
        assert (at.diff() > 0).all()
        run = min(n, 64 if axis == len(shape) - 1 else 16)  # groups of so many stay whole
        assert torch.equal(at.reshape(-1, run) - at[::run, None], torch.arange(run).expand(len(at) // run, run))
        assert (at[::run] % run == 0).all()
        assert at[-1] > n / 2 or len(at) <= 256
    shown = show_code(read("s = x.abs().max() / 127\nq = torch.round(x / s).clamp(-128, 127)"), 0, x)
    assert torch.equal(shown.x, drawn)
    assert not shown.against.wrong_cells.any()


def test_of_a_large_tensor_each_line_s_value_is_that_of_the_element():
    x = torch.randn(1000, 900, generator=torch.Generator().manual_seed(2))
    reading = read("s = x.abs().max() / 127\ny = x * 2\nq = torch.round(x / s)")
    rows, columns = block_of(x)[1]
    for element in ((0, 0), (int(rows[-1]), int(columns[-1])), (-1000, -900)):
        assert show_code(reading, 0, x, element).lines[1].picked == float(x[element] * 2)
    left_out = next(i for i in range(1000) if i not in rows.tolist())
    for element in ((left_out, 0), (5000, 0), (0,)):
        assert show_code(reading, 0, x, element).lines[1].picked is None


def found(text, kind):
    (finding,) = [f for f in read(text).findings if f.mistake == kind]
    return finding.what


@for_each("zero", [0, 128])
@for_each("divisor", some([255, 200, 4095], 2))
def test_what_is_said_of_a_divisor_is_so(divisor, zero):
    low, high, kind = (0, 255, "uint8") if zero else (-128, 127, "int8")
    text = f"s = x.abs().max() / {divisor}\nq = (torch.round(x / s) + {zero}).clamp({low}, {high}).to(torch.{kind})"
    what = found(text, "divisor")
    reach, top, share = re.search(r"codes up to (\d+), .* larger than (\d+) steps \((\d+)% of", what).groups()
    x = torch.linspace(-1, 1, 100_001)
    codes = torch.round(x / (x.abs().max() / divisor)) + zero
    assert int(codes.max()) == int(reach)
    clipped = x[(codes > high) & (x > 0)]
    assert float(clipped.min()) * divisor == pytest.approx(int(top) + 0.5, abs=0.5)
    assert float(clipped.min()) == pytest.approx(int(share) / 100, abs=0.01)


@for_each(("scale", "zero"), [(0.05, 0), (0.3, 0), (0.02, 40)])
def test_the_values_that_are_said_to_wrap_do(scale, zero):
    text = f"s = {scale}\nq = (torch.round(x / s) + {zero}).to(torch.int8)"
    low, high = map(
        float, re.search(r"values outside (\S+)\.\.(\S+) need", found(text, "wrapped")).groups()
    )
    inside = torch.tensor([low, high])
    outside = torch.tensor([low - scale, high + scale])
    q = executed(text, x=inside)["q"].float()
    assert torch.allclose((q - zero) * scale, inside, atol=scale)
    q = executed(text, x=outside)["q"].float()
    assert ((q - zero) * scale - outside).abs().min() > 100 * scale


def test_a_zero_point_of_another_range_is_said_with_its_codes():
    text = "s = (x.max() - x.min()) / 255\nz = torch.round(-x.min() / s)\nq = (torch.round(x / s) + z).clamp(-128, 127)"
    got, begin = re.search(
        r"gets the code (-?\d+), but the codes begin at (-?\d+)", found(text, "zero_point_range")
    ).groups()
    x = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    scope = executed(text, x=x)
    assert float(torch.round(x.min() / scope["s"]) + scope["z"]) == float(got)
    assert int(begin) == -128  # where the clamp begins


def test_the_shift_on_the_way_back_is_as_said():
    x = torch.randn(100, generator=torch.Generator().manual_seed(0))
    for name, times in (("forgotten on the way back", 1), ("added on the way back", 2)):
        text, _ = marked(code_snippets.WRONG[name])
        scope = executed(text, x=x.numpy() if "np." in text else x)
        shift = np.asarray(scope["x_hat"]) - x.numpy()
        what = found(text, "zero_point_forgotten" if times == 1 else "zero_point_added")
        assert ("2 · zero_point · scale" in what) == (times == 2)
        assert np.allclose(
            shift, times * float(scope["zp"]) * float(scope["scale"]), atol=float(scope["scale"])
        )


@for_each(
    "nested",
    ["-" * 90 + "x", "a." * 100 + "b", "f(" * 80 + "x" + ")" * 80, "not " * 95 + "x", "x" + "[0]" * 99],
)
@for_each("before", [0, 3])
def test_the_line_of_code_nested_too_deeply(nested, before):
    """Its innermost node may be an operator or a context, which has no line of its own."""
    with pytest.raises(qc.QuantError, match=f"^Line {before + 1}: the code is nested more than"):
        read("\n" * before + f"q = {nested}")


@for_each(
    ("name", "scheme"),
    some_rows([
        ("floor", "int8 symmetric"), ("wrong sign", "uint8 asymmetric"), ("255 with symmetric int8", "int8 symmetric"),
        ("channels without keepdim", "int8 symmetric per_channel(0)"), ("multiplied by the scale", "int8 symmetric"),
        ("zero point after the clamp", "int8 asymmetric"), ("maximum of signed values", "int8 symmetric"),
    ]),
)  # fmt: skip
def test_a_mistake_is_certain_because_its_repair_gives_the_right_codes(name, scheme, monkeypatch):
    """Without the repair, the codes stay wrong, and the finding is a note."""
    text, expected = marked(code_snippets.WRONG[name])
    codes, x = [], probes((64, 64))["positive"]  # first those that show how it rounds

    def spied(given, overrides):
        walk = evaluate(given, overrides)
        codes.append({tuple(v.value.shape): v.value for v in walk.vals if isinstance(v.value, torch.Tensor) and v.op in ("cast", "clamp")})
        return walk

    monkeypatch.setattr(intended, "evaluate", spied)
    assert named(qc.read_code(text).mistakes) == expected
    right = qc.apply(x, qc.Scheme.parse(scheme)).codes
    assert any(each[64, 64].float().ne(right.float()).float().mean() < 0.01 for each in codes[1:])
    monkeypatch.setattr(intended, "_overrides", lambda *args: {})
    reading = qc.read_code(text)
    assert named(reading.mistakes) == []
    assert set(expected) <= set(named(reading.notes))


AWAY = {
    "trunc": "torch.trunc(x / s + 0.5 * torch.sign(x))",
    "sign of the quotient": "torch.fix(x / s + torch.sign(x / s) * 0.5)",
    "cast": "(x / s + 0.5 * torch.sign(x)).to(torch.int8)",
    "copysign": "torch.trunc(x / s + torch.copysign(torch.tensor(0.5), x))",
    "magnitude": "torch.sign(x) * torch.floor(x.abs() / s + 0.5)",
    "magnitude of the quotient": "torch.floor((x / s).abs() + 0.5) * torch.sign(x)",
    "magnitude clamped": "torch.floor(x.abs() / s + 0.5).clamp(0, 127) * torch.sign(x)",
    "magnitude, copysign": "torch.copysign(torch.floor(x.abs() / s + 0.5), x)",
    "where": "torch.where(x / s >= 0, torch.floor(x / s + 0.5), torch.ceil(x / s - 0.5))",
    "where, negative first": "torch.where(x < 0, torch.ceil(x / s - 0.5), torch.floor(x / s + 0.5)).clamp(-128, 127)",
    "where, by casts": "torch.where(x > 0, (x / s + 0.5).int(), (x / s - 0.5).int())",
}


@for_each("rounded", some(AWAY.values(), 2), ids=AWAY)
def test_half_away_from_zero_is_a_rounding(rounded):
    text = f"s = x.abs().max() / 127\nq = {rounded}"
    x = torch.tensor([127.0, 0.5, -0.5, 1.5, -2.5, 2.25, 0.0])  # s is 1
    assert executed(text, x=x)["q"].tolist() == [127, 1, -1, 2, -3, 2, 0]
    reading = read(text)
    assert named(reading.mistakes) == []
    assert "half away(x / scale)" in reading.summary
    assert "scale (line 1) max|x| / 127, per-tensor" in reading.summary
    assert " 0..127" not in reading.summary
    assert len(reading.quantizers) == 1


def test_half_away_from_zero_with_a_zero_point():
    """Codes of negative values are seen too, though the type has none below 0."""
    rounded = "torch.where(x >= 0, torch.floor(x / s + 0.5), torch.ceil(x / s - 0.5))"
    text = f"s = (x.max() - x.min()) / 255\nz = torch.round(-x.min() / s)\nq = ({rounded} + z){{}}.to(torch.uint8)\ny = (q.float() - z) * s"
    for clamp in ("", ".clamp(0, 255)"):
        reading = read(text.format(clamp))
        assert named(reading.mistakes) == []
        assert "half away(x / scale) + z" in reading.summary
        assert ("clamp (line 3) 0..255" in reading.summary) == bool(clamp)


@for_each(
    "clamped",
    [
        "q.clamp(-8, 7)", "torch.minimum(torch.maximum(q, torch.tensor(-8.0)), torch.tensor(7.0))", "torch.where(q > 7, 7, torch.where(q < -8, -8, q))",
        "q.masked_fill(q > 7, 7).masked_fill(q < -8, -8)", "q.clip(max=7).clamp_min(-8)", "(q + 8).clamp(0, 15) - 8",
    ],
)  # fmt: skip
def test_bounds_are_seen_however_the_clamp_is_written(clamped):
    reading = read(f"s = x.abs().max() / 7\nq = torch.round(x / s)\nq = {clamped}")
    assert named(reading.mistakes) == []
    assert re.search(r"clamp \(line 3\) (-8..7|0..15)", reading.summary)


def test_what_only_looks_like_half_away_is_not():
    down, magnitude = "torch.trunc(x / s - 0.5 * torch.sign(x))", "torch.floor(x.abs() / s) * torch.sign(x)"
    for rounded in (down, magnitude):
        assert "half away" not in read(f"s = x.abs().max() / 127\nq = {rounded}").summary
    assert not read("s = x.abs().max() / 127\nq = torch.round(x / s) * torch.sign(x)").quantizers[1:]
    assert "dequantize" not in read("s = x.abs().max() / 127\nq = torch.round(x / s) * torch.sign(x)").summary
    (mistake,) = read(f"s = x.abs().max() / 127\nq = {magnitude}").mistakes
    assert (mistake.line, mistake.mistake) == (2, "toward_zero")


# written otherwise than the snippets, with the (line, kind) of their mistakes
OTHERS = {
    "mse search": ("""
import torch
best, best_err = None, float('inf')
amax = x.abs().max()
for i in range(6):
    s = amax * (1 - i * 0.1) / 7
    q = torch.clamp(torch.round(x / s), -8, 7)
    err = ((x - q * s) ** 2).mean()
    if err < best_err:
        best, best_err = s, err
q = torch.clamp(torch.round(x / best), -8, 7).to(torch.int8)
""", []),
    "ste": ("""
def fake_quant(x, bits=8):
    qmax = 2 ** (bits - 1) - 1
    s = x.detach().abs().max() / qmax
    q = torch.clamp(torch.round(x / s), -qmax - 1, qmax)
    y = q * s
    return x + (y - x).detach()
""", []),
    "module": ("""
import torch.nn as nn
class FakeQuant(nn.Module):
    def __init__(self, bits=4):
        super().__init__()
        self.qmin, self.qmax = -2 ** (bits - 1), 2 ** (bits - 1) - 1
    def forward(self, x):
        scale = x.abs().amax(dim=-1, keepdim=True).clamp(min=1e-8) / self.qmax
        q = (x / scale).round().clamp(self.qmin, self.qmax)
        return q * scale
""", []),
    "main": ("""
import numpy as np
def q8(a):
    s = np.abs(a).max() / 127
    return np.clip(np.round(a / s), -127, 127).astype(np.int8), s
def main():
    a = np.random.randn(4, 8)
    q, s = q8(a)
    print(q, s)
if __name__ == '__main__':
    main()
""", []),
    "own tensor": ("""
import torch
x = torch.tensor([[0.5, -1.0], [2.0, 0.1]])
s = x.abs().max() / 127
q = torch.round(x / s).clamp(-128, 127).to(torch.int8)
""", []),
    "conv": ("""
s = w.abs().amax(dim=(1, 2, 3), keepdim=True) / 127
q = torch.round(w / s).clamp(-127, 127).to(torch.int8)
""", []),
    "bool param": ("""
def quantize(x, bits=8, symmetric=False):
    if symmetric:
        s = x.abs().max() / (2 ** (bits - 1) - 1)
        return torch.clamp(torch.round(x / s), -2 ** (bits - 1), 2 ** (bits - 1) - 1)
    s = (x.max() - x.min()) / (2 ** bits - 1)
    z = torch.round(-x.min() / s)
    return torch.clamp(torch.round(x / s) + z, 0, 2 ** bits - 1)
""", []),
    "aminmax": ("""
lo, hi = torch.aminmax(x)
s = (hi - lo) / 255
z = (-lo / s).round().clamp(0, 255)
q = ((x / s).round() + z).clamp(0, 255).byte()
x_hat = (q.float() - z) * s
""", []),
    "zeropoint div last": ("""
s = (x.max() - x.min()) / 255
z = -128 - (x.min() / s).round()
q = (x / s + z).round().clamp(-128, 127).char()
x_hat = s * (q - z)
""", []),
    "a loop over rows, one scale": ("""
s = x.abs().max() / 127
q = torch.zeros_like(x)
for i in range(x.shape[0]):
    q[i] = torch.round(x[i] / s).clamp(-128, 127)
x_hat = q * s
""", []),
    "plots": ("""
import matplotlib.pyplot as plt
s = x.abs().max() / 127
q = torch.round(x / s).clamp(-128, 127).to(torch.int8)
plt.hist(q.flatten().numpy(), bins=256)
plt.show()
""", []),
    "per group numpy": ("""
import numpy as np
g = w.reshape(-1, 16)
s = np.abs(g).max(axis=1, keepdims=True) / 7
s = np.where(s == 0, 1, s)
q = np.clip(np.rint(g / s), -8, 7).astype(np.int8)
w_hat = (q * s).reshape(w.shape)
""", []),
    "few values kept": ("""
s = x.abs().max() / 127
z = round(float(-x.min() / s))
q = (torch.round(x / s) + z).clamp(0, 7)
x_hat = q * s
""", [(5, "zero_point_forgotten")]),
    "codes of a mean": ("""
y = x - x.mean()
s = y.abs().max() / 127
q = torch.round(y / s).clamp(-128, 127).to(torch.int8)
x_hat = q * s + x.mean()
""", []),
    "transposed": ("""
s = w.T.abs().amax(dim=1, keepdim=True) / 127
q = torch.round(w.T / s).clamp(-128, 127).to(torch.int8).T
""", []),
    "fp16 weights": ("""
w = w.half()
s = w.abs().max() / 127
q = torch.round(w / s).clamp(-128, 127).to(torch.int8)
""", []),
    "asym float zp kept": ("""
s = (x.max() - x.min()) / 15
z = -x.min() / s
q = torch.clamp(torch.round(x / s + z), 0, 15)
x_hat = (q - z) * s
""", []),
    "a loop over rows, a scale each": ("""
q = torch.zeros_like(w)
for i in range(w.shape[0]):
    s = w[i].abs().max() / 255
    q[i] = torch.round(w[i] / s).clamp(-128, 127)
""", [(4, "divisor")]),
    "int() zp numpy neg": ("""
import numpy as np
s = (x.max() - x.min()) / 255
zp = int(-128 - x.min() / s)
q = np.clip(np.round(x / s) + zp, -128, 127).astype(np.int8)
""", [(4, "zero_point_not_rounded")]),
    "dequant int8 arithmetic": ("""
def quant(x):
    s = (x.max() - x.min()) / 255
    z = int(round(float(-128 - x.min() / s)))
    q = torch.clamp(torch.round(x / s) + z, -128, 127).to(torch.int8)
    return q, s, z
def dequant(q, s, z):
    return (q - z) * s
""", [(8, "dequantize_overflow")]),
    "floor in numpy": ("""
import numpy as np
s = np.abs(x).max() / 127
q = np.floor(x / s).clip(-128, 127).astype('int8')
""", [(4, "toward_zero")]),
    "in place by another method": ("""
def f(x):
    x.abs_()
    s = x.max() / 255
    return torch.round(x / s).clamp(0, 255).to(torch.uint8)
""", [(3, "clamp_in_place")]),
    "max in function with default": ("""
def absmax_quantize(x, n=8):
    s = x.max() / 127
    return (x / s).round().clamp(-127, 127).to(torch.int8)
""", [(3, "absolute_value")]),
    "dequant missing z class": ("""
class Q:
    def __init__(self, x):
        self.s = (x.max() - x.min()) / 255
        self.z = torch.round(-x.min() / self.s)
    def quantize(self, x):
        return torch.clamp(torch.round(x / self.s) + self.z, 0, 255)
    def dequantize(self, q):
        return q * self.s
c = Q(x)
y = c.dequantize(c.quantize(x))
""", [(9, "zero_point_forgotten")]),
    "4d no keepdim": ("""
s = w.abs().amax(dim=(1, 2, 3)) / 127
q = torch.round(w / s).clamp(-127, 127).to(torch.int8)
""", [(2, "other_axis")]),
}


@for_each("name", some(OTHERS, 11))
def test_other_code_is_understood_too(name):
    text, expected = OTHERS[name]
    reading = read(text)
    assert named(reading.mistakes) == expected
    assert reading.quantizers
