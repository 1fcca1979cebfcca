"""One verdict on pasted code, whatever form a mistake is written in: each kind by its right value, and none on sound code."""

import functools
import re

import code_siblings
import numpy as np
import pytest
import torch
from grid import for_each
from parts import some, some_rows

import quantcore as qc
from quantcore.pasted import show_code
from quantcore.pasted.walk import probes

read = functools.cache(qc.read_code)  # what is read for several tensors
pytestmark = pytest.mark.usefixtures("no_hurry")
POSITIVE, NEGATIVE = probes((64, 64))["positive"], probes((64, 64))["negative"]


def kinds(findings):
    return {finding.mistake for finding in findings}


def executed(text, x, w=None):
    """The oracle: the test runs its own snippet, as a student would."""
    w = x if w is None else w
    is_numpy = bool(re.search(r"\bnp\b|numpy", text))
    scope = {"torch": torch, "np": np, "x": x.numpy() if is_numpy else x, "w": w.numpy() if is_numpy else w}
    with np.errstate(all="ignore"):
        exec(text, scope)
    return scope


@for_each("text", some(code_siblings.SOUND, 9))
def test_sound_code_is_not_accused(text):
    reading = qc.read_code(text)
    assert kinds(reading.mistakes) == set()
    assert reading.quantizers
    assert reading.unread == ()


@for_each("text", some(code_siblings.ZERO_OF_ZEROS, 2))
def test_a_zero_point_that_is_always_0_is_missing(text):
    (found,) = [f for f in qc.read_code(text).mistakes if f.mistake == "zero_point_left_out"]
    assert "the zero point is 0:" in found.what
    assert found.source == text.split("\n")[found.line - 1].strip()


@for_each("text", some(code_siblings.WRAPS_ON_ITS_OWN, 2))
def test_what_wraps_on_the_code_s_own_tensor_is_an_error(text):
    (found,) = [f for f in qc.read_code(text).mistakes if f.mistake == "wrapped"]
    said = re.search(r"own tensor, they reach (\S+)\.\.(\S+), and (\d+) of (\d+) codes wraps? around", found.what)
    low, high, lost, size = map(float, said.groups())
    q = executed(text, POSITIVE)["q"]
    wide = re.sub(r"\.to\(torch\.u?int8\)|\.astype\(np\.u?int8\)", "", text)
    codes = np.asarray(executed(wide, POSITIVE)["q"], np.float64)
    kept = np.asarray(q, np.float64) == codes
    assert (size, lost) == (codes.size, int((~kept).sum()))
    assert (low, high) == (codes.min(), codes.max())


@for_each(("text", "formula"), some_rows(code_siblings.FORMULAS, 2))
def test_a_scale_is_read_from_the_text_not_from_the_numbers(text, formula):
    summary = qc.read_code(text).summary.replace("w", "x").replace("xeights", "x").replace("xith", "with")
    assert formula in summary
    assert ("max|x|" in summary) == ("|" in formula)


@for_each("text", some(code_siblings.CAST_FIRST, 2))
def test_a_clamp_after_the_cast_is_seen(text):
    reading = qc.read_code(text)
    (found,) = [f for f in reading.findings if f.mistake == "cast_before_clamp"]
    assert re.search(r"astype|\.to\(|char\(", found.source)
    shown = re.search(r"of a tensor from (\S+) to (\S+), the codes reach (\S+)\.\.(\S+)\.$", found.what)
    # a note where no code can be lost, as with max|x| / 127
    assert found.certain == (shown is not None or "scale, zero_point" in text)
    assert found.certain or "on the tensors tried, there are none" in found.what


def test_the_codes_that_a_late_clamp_no_longer_sees_are_as_said():
    text = code_siblings.CAST_FIRST[0]
    (found,) = [f for f in qc.read_code(text).mistakes if f.mistake == "cast_before_clamp"]
    x = probes((64, 64))["one-sided"]
    low, high = map(float, re.search(r"reach (\S+)\.\.(\S+)\.$", found.what).groups())
    _, step, zp = executed(text.replace("\nq, step, zp = to_int8(x)", ""), x)["to_int8"](x.numpy())
    codes = np.round(x.numpy() / step + zp)
    assert (codes.min(), codes.max()) == (low, high)
    assert low > 127  # none of them fits


@for_each("text", some(code_siblings.ONE_CODE_TOO_MANY, 4))
def test_a_maximum_that_wraps_is_certain(text):
    found = kinds(qc.read_code(text).mistakes)
    assert {"wrapped", "divisor"} & found
    if "tensor(" not in text:  # with the tensor given, the largest code is the lowest of all
        q = np.asarray(executed(text, POSITIVE)["q"], np.int64)
        assert q.flatten()[int(POSITIVE.argmax())] == np.iinfo(np.asarray(executed(text, POSITIVE)["q"]).dtype).min


@for_each("text", some(code_siblings.ZERO_CLAMPED, 4))
def test_a_clamped_zero_point_is_said_with_what_becomes_of_such_a_tensor(text):
    reading = qc.read_code(text)
    assert kinds(reading.mistakes) == set()  # tensors of both signs are not harmed
    (found,) = [f for f in reading.notes if f.mistake == "zero_point_clamped"]
    got, want, back = re.search(r"it is (\S+) instead of (\S+), and they come back as (.+)\.$", found.what).groups()
    q = reading.quantizers[0]
    scope = executed(text, probes((64, 64))["one-sided"])
    if "z" in scope and "s" in scope and np.asarray(scope["s"]).size == 1:
        s, z = float(scope["s"]), float(scope["z"])
        assert z == float(got) == q.bounds[0]
        assert float(want) == pytest.approx(q.bounds[0] - float(probes((64, 64))["one-sided"].min()) / s, abs=0.51)
        assert float(back) == pytest.approx((q.bounds[1] - z) * s, rel=1e-3)  # all of them are clipped


def test_a_clamped_zero_point_of_the_code_s_own_tensor_is_an_error():
    text = "x = torch.tensor([1.0, 2.0, 1.5])\ns = (x.max() - x.min()) / 255\nz = torch.round(-x.min() / s).clamp(0, 255)\n"
    text += "q = (torch.round(x / s) + z).clamp(0, 255).to(torch.uint8)\ny = (q.float() - z) * s"
    (found,) = qc.read_code(text).mistakes
    assert (found.line, found.mistake) == (3, "zero_point_clamped")
    y = executed(text, POSITIVE)["y"]
    assert f"for values from 1 to 2 it is 0 instead of -255, and they come back as {float(y[0]):.4g}." in found.what
    assert y.unique().numel() == 1


@for_each("text", some(code_siblings.NOT_UNDONE, 2))
def test_what_does_not_undo_quantizing_is_an_error(text):
    found = [f for f in qc.read_code(text).mistakes if f.mistake not in ("zero_point_left_out", "wrapped", "divisor")]
    assert found
    for each in found:
        if each.mistake != "not_undone":
            continue
        off = 0.0
        for x in (POSITIVE, NEGATIVE):
            y = np.asarray(executed(text, x)["y"], np.float64)
            s = np.asarray(executed(text, x).get("s", (float(x.max()) - float(x.min())) / 255), np.float64)
            off = max(off, float(np.abs((y - x.numpy()) / s).max()))
        assert float(re.search(r"up to (\d+) steps", each.what)[1]) == pytest.approx(off, abs=1.1)


@for_each("text", some(code_siblings.FRACTIONS, 4))
def test_codes_with_fractions_are_an_error(text):
    (found,) = [f for f in qc.read_code(text).mistakes if f.mistake == "fractional_codes"]
    code = float(re.search(r"codes such as (\S+),", found.what)[1])
    assert code != round(code)
    scope = executed(text, POSITIVE)
    if not callable(scope.get("quant")):
        assert np.abs(np.asarray(scope["q"], np.float64) - code).min() < 0.006


@for_each(("text", "granularity"), code_siblings.FLOORS)
@for_each("size", some([1e-7, 1.0], 2))
def test_a_floor_of_the_scale_leaves_the_granularity(text, granularity, size):
    """Also where it takes the place of every scale."""
    x = torch.randn(64, 64, generator=torch.Generator().manual_seed(1)) * size
    reading = read(text)
    assert kinds(reading.mistakes) == set()
    assert f" {granularity} " in str(show_code(reading, 0, x).against.scheme)


@for_each(("text", "dtype"), some_rows(code_siblings.CASTS, 2))
def test_the_last_cast_is_the_stored_type(text, dtype):
    reading = qc.read_code(text)
    scope = executed(text, POSITIVE)
    stored = str(scope["u" if "\nu =" in text else "q"].dtype).removeprefix("torch.")
    assert stored == dtype
    assert re.search(rf"cast \(line \d\) {stored}\b", reading.summary)
    assert reading.quantizers[-1].cast.dtype == stored


def test_what_follows_codes_and_is_not_evaluated_is_not_held_against_them():
    text = "s = (x.max() - x.min()) / 255\nz = my_zero(x)\nq = (torch.round(x / s) + z).clamp(0, 255).to(torch.uint8)"
    assert kinds(qc.read_code(text).mistakes) == set()
    assert "zero_point_left_out" in kinds(qc.read_code(text.replace("my_zero(x)", "0")).mistakes)
    complete = "s = x.abs().max() / 127\nq = torch.trunc(x / s)\nr = my_plot(q)"
    assert kinds(qc.read_code(complete).mistakes) == {"toward_zero"}


def test_what_goes_wrong_on_the_tensor_shown_is_found_on_it():
    text = "s = x.std() / 100\nq = torch.round(x / s).to(torch.int8)"
    reading = qc.read_code(text)
    assert reading.findings == reading.notes
    x = torch.randn(40, generator=torch.Generator().manual_seed(2))
    lost = int((torch.round(x / (x.std() / 100)).abs() > 128).sum())
    (found,) = show_code(reading, 0, x).findings
    assert (found.line, found.mistake) == (2, "wrapped")
    assert f"and {lost} of 40 codes wrap around" in found.what
    assert kinds(reading.with_findings([found]).mistakes) == {"wrapped"}
    assert show_code(reading, 0, x.clamp(-0.5, 0.5)).findings == ()
    one_sided = qc.read_code(code_siblings.ZERO_CLAMPED[2])
    assert kinds(show_code(one_sided, 0, x.abs() + 1).findings) == {"zero_point_clamped"}
    assert show_code(one_sided, 0, x).findings == ()
    merged = one_sided.with_findings(show_code(one_sided, 0, x.abs() + 1).findings)
    assert [f.mistake for f in merged.findings].count("zero_point_clamped") == 1
    assert kinds(merged.mistakes) == {"zero_point_clamped"}


def test_an_end_of_the_range_is_not_taken_for_a_zero_point():
    """With codes that have none; an integer that is subtracted is one."""
    text = "s = (x.max() - x.min()) / 255\nz = 0\nq = (torch.round(x / s) + z).clamp(-128, 127)\ny = (q {}) * s"
    for added, kind in (("+ x.min()", "not_undone"), ("- torch.round(x.min() / s)", "zero_point_not_added")):
        assert kinds(f for f in qc.read_code(text.format(added)).mistakes if f.line == 4) == {kind}


NF4 = [
    -1.0, -0.6961928, -0.5250731, -0.3949175, -0.2844414, -0.1847734, -0.09105, 0.0, 0.0795803, 0.1609302,
    0.2461123, 0.3379152, 0.4407098, 0.562617, 0.7229568, 1.0,
]  # fmt: skip


def test_how_many_codes_are_not_the_nearest_is_as_said():
    text = (
        f"import numpy as np\nt = np.array({NF4})\ns = np.abs(x).max()\nq = np.digitize(x / s, t) - 1\ny = t[q] * s"
    )
    (found,) = qc.read_code(text).mistakes
    lost = []
    for x in (POSITIVE, NEGATIVE):
        scope = executed(text, x)
        u = x.numpy() / scope["s"]
        nearest = np.abs(u[..., None] - scope["t"]).min(axis=-1)
        lost.append(np.abs(scope["t"][scope["q"]] - u) > nearest + 1e-6)
    assert (found.line, found.mistake) == (4, "not_nearest")
    assert found.what.startswith("x / scale is rounded down to a value of the table: ")
    assert f": {np.mean(lost):.0%} of the codes" in found.what


@for_each("place", [1, 6, 12])
def test_a_table_that_is_almost_a_known_one_is_a_note(place):
    table = [*NF4]
    table[place] = round(table[place] * 1.05, 4)
    text = "t = torch.tensor({})\ns = x.abs().max()\nq = ((x / s)[..., None] - t).abs().argmin(-1)\ny = t[q] * s"
    reading = qc.read_code(text.format(table))
    (note,) = [f for f in reading.findings if f.mistake == "table_differs"]
    assert not reading.mistakes
    assert f"15 of the 16 values of nf4; at place {place}, it has {table[place]:g} instead of" in note.what
    assert "those of nf4" in read(text.format(NF4)).summary
    assert "table_differs" not in kinds(read(text.format(NF4)).findings)


def test_a_line_that_sets_elements_shows_them_and_a_table_has_no_value_at_an_element():
    text = (
        f"t = np.array({NF4})\ns = np.abs(x).max()\nq = np.zeros(x.shape, dtype=np.int64)\nfor i in range(len(x)):\n"
        "    for j in range(x.shape[1]):\n        q[i, j] = np.argmin(np.abs(x[i, j] / s - t))\ny = t[q] * s"
    )
    x = POSITIVE[:2, :4].contiguous()
    lines = {(line.line, line.name): line for line in show_code(qc.read_code(text), 0, x, (1, 2)).lines}
    codes = np.abs(x.numpy()[..., None] / np.abs(x.numpy()).max() - np.array(NF4)).argmin(axis=-1)
    assert (lines[3, "q"].low, lines[3, "q"].high) == (0, 0)
    assert (lines[6, "q"].low, lines[6, "q"].high, lines[6, "q"].picked) == (codes.min(), codes.max(), codes[1, 2])
    assert lines[1, "t"].shape == (16,)
    assert lines[1, "t"].picked is None


def test_places_in_a_table_without_a_scale_are_not_silently_passed_over():
    text = f"t = np.array({NF4})\nq = np.digitize(x, (t[1:] + t[:-1]) / 2)\ny = t[q]"
    reading = qc.read_code(text)
    (why,) = reading.unread
    assert why.startswith("Line 2: `digitize` gives places in a table, but nothing scales the tensor before")
    assert reading.summary.startswith("No quantizer is recognized: the places in a table")
    assert not qc.read_code(text.replace("digitize(x", "digitize(x / np.abs(x).max()")).unread
