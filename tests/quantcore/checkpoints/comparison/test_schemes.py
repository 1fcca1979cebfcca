"""Why two quantized weights differ: the divisors of their scales, zero points, codes; scales are computed here."""

from releases import GROUP, WRITERS, in_groups, save
from suspects import M, W, awq_of, awq_stored, ct_stored, weight

from quantcore.__main__ import main
from quantcore.checkpoints import open_checkpoint
from quantcore.checkpoints.comparison import why_different


def symmetric(x, divisor):
    step = (in_groups(x).abs().amax(-1) / divisor).bfloat16().float().repeat_interleave(GROUP, 1)
    return (x / step).round().clamp(-8, 7), step


def asymmetric(x, steps):
    _, _, step = awq_of(x)
    step = (step.half().float() * 15 / steps).half().float()
    z = (-in_groups(x).amin(-1).clamp(max=0).repeat_interleave(GROUP, 1) / step).round().clamp(0, 15)
    return ((x / step).round() + z).clamp(0, 15), z, step


def opened(folder, stored, name):
    return open_checkpoint(save(folder, stored, WRITERS[name][1])).tensors[W].layout


def test_why(tmp_path):
    """Divisors of symmetric and asymmetric scales, other blocks, one factor, moved zero points, moved codes."""
    x = weight()

    def ct(case, q, step, name="ct_int4"):
        return opened(tmp_path / case, ct_stored(q, step), name)

    q, step = symmetric(x, 7)
    seven = ct("7", q, step)
    for divisor in (7.5, 8):
        facts = why_different(ct(str(divisor), *symmetric(x, divisor)), seven).facts
        assert (facts["a"], facts["b"]) == (f"{divisor:g}", "7")
    moved = q.clone()
    moved[:, ::5] = (moved[:, ::5] + 1).clamp(max=7)
    facts = why_different(seven, ct("codes", moved, step)).facts
    assert (facts["share"], facts["step"]) == (float((moved != q).double().mean()), 1)
    assert why_different(seven, ct("factor", q, step * 3)).facts["ratio"] == 3
    assert why_different(seven, ct("same", q, step)) is None
    assert "1 × 32" in why_different(seven, opened(tmp_path / "int8", WRITERS["ct_int8"][0](M, x), "ct_int8")).about(W)
    given = {steps: asymmetric(x, steps) for steps in (15, 16)}
    layouts = {steps: opened(tmp_path / f"awq{steps}", awq_stored(*found), "awq") for steps, found in given.items()}
    facts = why_different(layouts[16], layouts[15]).facts
    assert (facts["a"], facts["b"]) == ("16", "15")
    q, z, step = given[15]
    z = z.clamp(0, 14)
    one, two = (opened(tmp_path / f"zero{n}", awq_stored(q, z + n, step), "awq") for n in (0, 1))
    assert why_different(one, two).facts["by"] == 1


def test_compare_says_both_schemes_and_why(capsys, tmp_path):
    """Of two quantized releases what their scales differ by; against an original, what `check` finds."""
    x = weight()
    original = save(tmp_path / "original", {W: x})
    folders = {d: save(tmp_path / str(d), ct_stored(*symmetric(x, d)), WRITERS["ct_int4"][1]) for d in (7, 7.5)}
    assert main(["compare", str(folders[7.5]), str(folders[7])]) == 0
    out = capsys.readouterr().out
    assert "A divides max |w| by 7.5, B by 7" in out
    assert "A compressed-tensors int4 per_group(32) symmetric, B compressed-tensors int4 per_group(32) symmetric: 1 tensor\n" in out
    q, step = symmetric(x, 7)
    negative = save(tmp_path / "negative", ct_stored(q.clamp(min=0), step), WRITERS["ct_int4"][1])
    assert main(["compare", str(original), str(negative)]) == 0
    out = capsys.readouterr().out
    assert "A plain float32, B compressed-tensors int4" in out
    assert "[saturated]" in out
    assert main(["compare", str(original), str(folders[7])]) == 0
    assert "error" not in capsys.readouterr().out.replace("max |error|", "")
