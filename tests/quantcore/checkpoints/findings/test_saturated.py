"""Codes that saturate in all layers alike: the share that is clipped, and the SQNR that the same bits reach, in NumPy."""

import numpy as np
import pytest
import releases
import torch
from parts import in_parts
from releases import GROUP, WRITERS, save
from suspects import M, W, awq_of, awq_stored, ct_stored, grid_of, weight

from quantcore.checkpoints import open_checkpoint


def check(folder, stored, x, name):
    """The errors of a release of one weight against its original."""
    release = open_checkpoint(save(folder / "release", stored, WRITERS[name][1]))
    found = release.findings(open_checkpoint(save(folder / "original", {W: x})))
    return [f for f in found if f.severity == "error"]


def sqnr(x, y):
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    return 10 * np.log10((x**2).sum() / ((x - y) ** 2).sum())


def clipped(x, q, step, low, high):
    """The fraction of elements that lie more than half a step beyond the codes' ends."""
    away = np.asarray(x / step, np.float64) - np.asarray(q, np.float64)
    q = np.asarray(q)
    return (((q == high) & (away > 0.5)) | ((q == low) & (away < -0.5))).mean()


def int4(x, low=-8, high=7, factor=1.0):
    """Codes, steps, and what all codes on the scales of max |x| / 7 give."""
    _, y, step = grid_of(x)
    return (x / (step * factor)).round().clamp(low, high), step * factor, y


def test_integers_that_end_too_early(tmp_path):
    """The negative half is lost, codes are those of another width, or scales are too small."""
    x = weight()
    cases = {
        "negative": (0, 7, 1.0),
        "positive": (-7, 0, 1.0),
        "of 3 bits": (-4, 3, 1.0),
        "half": (-8, 7, 0.5),
    }
    for case, (low, high, factor) in cases.items():
        q, step, right = int4(x, low, high, factor)
        (found,) = check(tmp_path / case, ct_stored(q, step), x, "ct_int4")
        assert (found.kind, found.severity) == ("saturated", "error"), case
        facts = found.facts
        assert (facts["low"], facts["high"]) == (low, high)
        assert facts["share"] == pytest.approx(clipped(x, q, step, low, high), rel=1e-6)
        assert facts["sqnr"] == pytest.approx(sqnr(x, q * step), rel=1e-5)
        assert facts["factor"] == 1 / factor
        assert facts["reach"] == pytest.approx(sqnr(x, right), rel=1e-4)
        ends = {"negative": "below the smallest one, 0", "positive": "beyond the largest one, 0"}
        assert ends.get(case, "beyond the ends of its codes") in found.sentence


def test_2_bits_lose_less_and_reach_less(tmp_path):
    """0.3 times the step of min-max loses 3 dB of 7; half of it is near the least squared error, and sound."""
    x = weight()
    groups = releases.in_groups(x)
    low, high = groups.amin(-1, keepdim=True), groups.amax(-1, keepdim=True)
    for factor, wrong in ((0.3, True), (0.5, False)):
        step = ((high - low) / 3 * factor).half()
        bias = ((high + low) / 2 - 1.5 * step).half()
        q = ((groups - bias) / step).round().clamp(0, 3)
        words = (q.reshape(len(x), -1, 16).long() << (2 * torch.arange(16))).sum(-1).to(torch.uint32)
        stored = {f"{M}.weight": words, f"{M}.scales": step.squeeze(-1), f"{M}.biases": bias.squeeze(-1)}
        folder = tmp_path / str(factor)
        opened = releases.release(folder, stored, {"quantization": {"bits": 2, "group_size": GROUP}})
        found = opened.findings(open_checkpoint(save(folder / "original", {W: x})))
        errors = [f for f in found if f.severity == "error"]
        assert [f.kind for f in errors] == ["saturated"] * wrong, factor
        if wrong:
            assert errors[0].facts["sqnr"] == pytest.approx(
                sqnr(groups, bias.float() + q * step.float()), rel=1e-3
            )


def test_codes_of_0_where_the_original_has_values(tmp_path):
    x = weight()
    q, step, _ = int4(x)
    (found,) = check(tmp_path, ct_stored(0 * q, step), x, "ct_int4")
    assert (found.kind, found.facts["relative"]) == ("all_zero", 1)


def test_zero_points_of_0(tmp_path):
    """What lies below 0 is lost; min-max zero points reach what the bits can."""
    x = weight()
    q, z, step = awq_of(x)
    (found,) = check(tmp_path, awq_stored((q - z).clamp(0, 15), 0 * z, step), x, "awq")
    assert found.kind == "saturated"
    assert (found.facts["low"], found.facts["factor"]) == (0, 0)
    groups = releases.in_groups(x)
    low, high = groups.amin(-1, keepdim=True), groups.amax(-1, keepdim=True)
    exact = low + ((groups - low) / ((high - low) / 15)).round() * ((high - low) / 15)
    assert found.facts["reach"] == pytest.approx(sqnr(groups, exact), rel=1e-4)


def test_floats(tmp_path):
    """FP8 on scales that are four times too small stops at ±448."""
    x = weight()
    scale = x.abs().amax(1, keepdim=True) / 448 / 4
    codes = (x / scale).clamp(-448, 448).to(torch.float8_e4m3fn)
    (found,) = check(tmp_path, {f"{M}.weight": codes, f"{M}.weight_scale": scale}, x, "fp8")
    assert (found.kind, found.facts["factor"], found.facts["high"]) == ("saturated", 4, 448)
    assert found.facts["share"] == pytest.approx(
        float((x.abs() > scale * (448 + 16)).float().mean()), rel=1e-6
    )
    right = (x / (4 * scale)).to(torch.float8_e4m3fn).float() * 4 * scale
    assert found.facts["reach"] == pytest.approx(sqnr(x, right), rel=1e-4)


@in_parts(3)
def test_clipping_that_pays(part, tmp_path):
    """A search for the scale clips, too, but loses little, or less in most elements."""
    x = weight()
    outliers = x.clone()
    outliers[:, ::GROUP] *= 6
    for case, w in (("alike", x), ("outliers", outliers)):
        for name in part(("ct_int4_search", "gptq_search", "mxfp4", "gptq_feedback")):
            assert check(tmp_path / case / name, WRITERS[name][0](M, w), w, name) == [], (case, name)
