"""Which number is told where two libraries' parameters differ."""

from types import SimpleNamespace

from grid import for_each

from quantcore.comparison import sentences


@for_each(("raws", "scales", "told"), [
    ((0.25, 0.5), (0.5, 0.5), "scale before it is quantized (max): a 0.25 against b 0.5"),
    ((0.25, 0.5), (0.25, 0.5), "scale (max): a 0.25 against b 0.5"),
    ((0.5, 0.5), (0.25, 0.5), "scale (the scale of the scales): a 0.25 against b 0.5"),
    ((None, None), (0.25, 0.5), "scale (max): a 0.25 against b 0.5"),
])  # fmt: skip
def test_the_first_number_that_differs_is_told(raws, scales, told):
    sides = [
        (who, SimpleNamespace(raw_scale=raw, scale=scale))
        for who, raw, scale in zip("ab", raws, scales, strict=True)
    ]
    assert sentences._parameter(sides, "scale", ["any"], lambda choice: "max") == told
