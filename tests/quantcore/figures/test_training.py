"""The figures of training show what was computed, and nothing else."""

import itertools

import numpy as np
import pytest
import torch
from grid import for_each

from quantcore import training
from quantcore.figures import lessons

POINTS = training.summary(
    [training.MethodAccuracy(training.FLOAT, 32, seed, 0.96 + seed / 100) for seed in range(2)]
    + [
        training.MethodAccuracy(method, bits, seed, accuracy - seed / 10)
        for (method, accuracy), bits, seed in itertools.product(
            {"ptq": 0.5, "qat": 0.8, "lsq": 1.0}.items(), (8, 2), range(2)
        )
    ]
)


@for_each("theme", ["light", "dark"])
def test_digits_stand_in_rows_with_what_they_are_read_as(theme):
    images = training.load_digits().test_images[:3]
    figure = lessons.digit_images(images, [7, 1, 2], [7, 4, 2], across=2, theme=theme)
    (picture,) = figure.data
    assert picture.z.shape == (22, 20)
    for (top, left), image in zip([(0, 0), (0, 10), (11, 0)], images.numpy(), strict=True):
        np.testing.assert_array_equal(picture.z[top : top + 8, left : left + 8], image.reshape(8, 8))
    assert np.isfinite(picture.z).sum() == 3 * 64
    assert [note.text for note in figure.layout.annotations] == ["7", "<b>4</b>, not 1", "2"]
    assert [(note.x, note.y) for note in figure.layout.annotations] == [(3.5, 7.6), (13.5, 7.6), (3.5, 18.6)]
    colours = [note.font.color for note in figure.layout.annotations]
    assert colours[1] is not None
    assert colours[0] is colours[2] is None


def test_no_digits_at_all():
    assert np.isnan(lessons.digit_images(torch.zeros(0, 64), [], []).data[0].z).all()


def test_accuracy_over_epochs():
    figure = lessons.accuracy_over_epochs(
        {"qat": [0.5, 0.75], "lsq": [0.9]}, {"float32": 0.97, "PTQ": 0.5}, 4
    )
    drawn = {trace.name: (list(trace.x), list(trace.y)) for trace in figure.data}
    assert drawn == {
        lessons.METHOD_NAMES["qat"]: ([0, 1], [50, 75]),
        lessons.METHOD_NAMES["lsq"]: ([0], [90]),
    }
    assert [shape.y0 for shape in figure.layout.shapes] == [97, 50]
    assert [note.text.strip() for note in figure.layout.annotations] == ["float32", "PTQ"]
    low, high = figure.layout.xaxis.range
    assert low < 0 < 4 < high
    assert figure.layout.yaxis.range[0] < 50
    assert 100 < lessons.accuracy_over_epochs({}, {"float32": 0.97}, 4).layout.yaxis.range[1] < 100.5


def test_accuracy_against_bits_with_the_spread_of_seeds():
    figure = lessons.accuracy_against_bits(POINTS)
    assert [trace.name for trace in figure.data] == list(lessons.METHOD_NAMES.values())
    for trace, mean in zip(figure.data, (45, 75, 95), strict=True):
        assert [round(x) for x in trace.x] == [2, 8]
        np.testing.assert_allclose(trace.y, mean)
        np.testing.assert_allclose(trace.error_y.array, 5)
        np.testing.assert_allclose(trace.error_y.arrayminus, 5)
    assert len({trace.line.dash for trace in figure.data}) == 3  # distinguishable without color
    assert len({trace.marker.symbol for trace in figure.data}) == 3
    band = figure.layout.shapes[0]
    assert (band.y0, band.y1) == (96, 97)
    assert list(figure.layout.xaxis.tickvals) == [2, 8]


def test_what_is_read_wrongly_stays_on_a_logarithmic_axis():
    figure = lessons.accuracy_against_bits(POINTS, errors=True)
    ptq, _, lsq = figure.data
    np.testing.assert_allclose(ptq.y, 55)
    np.testing.assert_allclose(lsq.y, 5)
    np.testing.assert_allclose(lsq.y - lsq.error_y.arrayminus, 0.01)  # an error of 0 has no logarithm
    np.testing.assert_allclose(lsq.y + lsq.error_y.array, 10)
    assert figure.layout.yaxis.type == "log"


def test_a_method_without_points_is_not_drawn():
    only = [p for p in POINTS if p.method in ("float", "ptq")]
    assert [trace.name for trace in lessons.accuracy_against_bits(only).data] == [lessons.METHOD_NAMES["ptq"]]
    assert len(lessons.accuracy_against_bits([p for p in only if p.method == "float"]).data) == 0


@for_each(("bits", "scale"), [(2, 1.0), (3, 0.25), (4, 2.0)])
def test_slopes_are_those_of_torch(bits, scale):
    """The oracle is torch's own fake quantization with a learnable scale, element by element."""
    qmin, qmax = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    found = lessons.slopes(bits, scale)
    x = torch.tensor(found.x, requires_grad=True)
    s, z = torch.tensor([scale], requires_grad=True), torch.zeros(1)
    theirs = torch._fake_quantize_learnable_per_tensor_affine(x, s, z, qmin, qmax, 1.0)
    np.testing.assert_array_equal(found.x_hat, theirs.detach())
    (through,) = torch.autograd.grad(theirs.sum(), x, retain_graph=True)
    np.testing.assert_array_equal(found.through, through)
    for i in range(0, len(found.x), 50):
        (to_scale,) = torch.autograd.grad(theirs[i], s, retain_graph=True)
        assert found.to_scale[i] == pytest.approx(float(to_scale), abs=1e-6)
    assert not found.rounding.any()
    assert found.x.min() < qmin * scale
    assert found.x.max() > qmax * scale


@for_each("which", ["rounding", "through", "to_scale"])
def test_a_slope_below_the_stairs(which):
    found = lessons.slopes(3, 0.5)
    line, stairs, slope = lessons.slope(found, which, theme="dark", size=24).data
    np.testing.assert_array_equal(line.y, found.x)
    np.testing.assert_array_equal(stairs.y, found.x_hat)
    np.testing.assert_array_equal(slope.y, getattr(found, which))
    assert slope.yaxis == "y2"
