"""GPTQ against GPTQModel's codes, and against the least-squares solution that each of its updates is."""

import numpy as np
import pytest
import torch
from grid import for_each
from parts import some
from places import ROOT

import quantcore as qc

DATA = np.load(ROOT / "tests" / "data" / "outputs" / "gptqmodel.npz", allow_pickle=False)
CASES = {
    "channel": ("uint4 asymmetric per_channel(0)", {}),
    "groups": ("uint4 asymmetric per_group(16)", {}),
    "groups_3bit": ("uint3 asymmetric per_group(8)", {}),
    "act_order": ("uint4 asymmetric per_channel(0)", {"act_order": True}),
    "static": ("uint4 asymmetric per_group(16)", {"static_groups": True}),
    "static_act_order": ("uint4 asymmetric per_group(16)", {"static_groups": True, "act_order": True}),
    "act_order_groups": ("uint4 asymmetric per_group(16)", {"act_order": True}),
    "long": ("uint4 asymmetric per_group(32)", {}),
    "dead": ("uint4 asymmetric per_group(16)", {}),
}


def correlated(seed, tokens=96, inputs=24, outputs=7):
    rng = np.random.default_rng(seed)
    mix = np.eye(inputs) + 0.4 * rng.standard_normal((inputs, inputs))
    x = (rng.standard_normal((tokens, inputs)) @ mix).astype(np.float32)
    return x, rng.standard_normal((outputs, inputs), dtype=np.float32)


@for_each("name", some([*list(CASES)[6:], *list(CASES)[:6]], 2))
def test_codes_are_those_of_gptqmodel(name):
    scheme, options = CASES[name]
    x = DATA[f"{name}.x"].astype(np.float32) / 64
    found = qc.outputs.gptq(DATA[f"{name}.w"], x, scheme, lazy_ranges=True, **options)
    np.testing.assert_array_equal(found.quantized.codes, DATA[f"{name}.codes"])
    # ranges of weights that were updated differ by roundings
    np.testing.assert_allclose(found.quantized.dequantized, DATA[f"{name}.dequantized"], rtol=1e-4, atol=1e-5)
    assert found.objective < found.nearest_objective


@for_each("act_order", [False, True])
def test_each_column_is_what_least_squares_leaves(act_order):
    """Given the columns coded so far, the others minimize the output's error, as normal equations say."""
    x, w = correlated(3)
    found = qc.outputs.gptq(w, x, "int3 per_channel(0)", damping=0, act_order=act_order)
    order = found.order.numpy()
    power = (x.astype(np.float64) ** 2).sum(0)
    assert (np.diff(power[order]) <= 0).all() if act_order else (order == np.arange(24)).all()
    inputs, target = x[:, order].astype(np.float64), x.astype(np.float64) @ w.T.astype(np.float64)
    coded = found.quantized.dequantized.double().numpy()[:, order]
    for step in found.steps:
        i = step.index
        rest = target - inputs[:, :i] @ coded[:, :i].T
        best = np.linalg.lstsq(inputs[:, i:], rest, rcond=None)[0].T
        np.testing.assert_allclose(step.before, best[:, 0], atol=2e-5)
        weight = found.weight_before(i).numpy()
        np.testing.assert_allclose(weight[:, i:], best, atol=2e-5)
        np.testing.assert_array_equal(weight[:, :i], coded[:, :i].astype(np.float32))
        np.testing.assert_array_equal(step.dequantized, coded[:, i].astype(np.float32))
        if i + 1 < len(found.steps):
            after = found.weight_before(i + 1).numpy()[:, i + 1 :]
            np.testing.assert_allclose(weight[:, i + 1 :] + step.update.numpy(), after, atol=2e-5)
    assert [step.column for step in found.steps] == order.tolist()


def test_the_range_of_a_group_is_of_its_columns_as_they_are_then():
    x, w = correlated(12)
    scheme = qc.Scheme.parse("int3 per_group(8)")
    for block_size in (5, 128):
        found = qc.outputs.gptq(w, x, scheme, block_size=block_size)
        for first in (0, 8, 16):
            columns = found.weight_before(first)[:, first : first + 8]
            scale = qc.apply(columns, scheme).scale[:, 0]
            np.testing.assert_allclose(found.quantized.scale[:, first // 8], scale, rtol=1e-5)
    lazy = qc.outputs.gptq(w, x, scheme, lazy_ranges=True)  # all in one block: of w itself
    np.testing.assert_array_equal(lazy.quantized.scale, qc.apply(w, scheme).scale)


def test_objectives_are_squared_errors_of_outputs():
    x, w = correlated(4)
    found = qc.outputs.gptq(w, x, "int4 per_group(8)")
    for result, objective in (
        (found.quantized, found.objective),
        (qc.apply(w, "int4 per_group(8)"), found.nearest_objective),
    ):
        error = x.astype(np.float64) @ (result.dequantized.double().numpy() - w).T
        assert objective == pytest.approx((error**2).sum(), rel=1e-9)


def test_a_moment_stands_for_activations():
    x, w = correlated(5)
    scheme = "int4 per_group(8)"
    moment = qc.outputs.second_moment(x)
    found, same = qc.outputs.gptq(w, x, scheme), qc.outputs.gptq(w, None, scheme, moment=moment)
    assert torch.equal(found.quantized.codes, same.quantized.codes)
    # without correlations there is nothing to make up for
    alone = qc.outputs.gptq(w, None, scheme, moment=moment.diagonal())
    assert torch.equal(alone.quantized.codes, qc.apply(w, scheme).codes)
    assert not torch.equal(found.quantized.codes, alone.quantized.codes)


@for_each(
    "scheme",
    some(["int4 per_block([3, 5])", "int4 per_tensor", "int4 per_group(9)", "int4 per_channel(1)", "torchao.mxfp4",
          "gguf.Q4_0", "nf4 per_group(8)", "e2m1 per_channel(0)", "uint4 asymmetric per_group(8) min_mse"]),
)  # fmt: skip
@for_each("act_order", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_any_scheme_whose_codes_follow_from_scales(scheme, act_order):
    x, w = correlated(6, inputs=32)
    found = qc.outputs.gptq(w, x, scheme, act_order=act_order)
    assert found.objective <= 1.01 * found.nearest_objective
    steps = torch.stack([step.dequantized for step in found.steps], 1)
    assert torch.equal(found.quantized.dequantized[:, found.order], steps)


def test_groups_in_the_order_of_activations_are_of_any_columns():
    x, w = correlated(7)
    found = qc.outputs.gptq(w, x, "int4 per_group(8)", act_order=True)
    for group in range(3):
        columns = found.order[8 * group : 8 * group + 8]
        assert bool((found.quantized.scale[:, columns] == found.quantized.scale[:, columns[:1]]).all())
    static = qc.outputs.gptq(w, x, "int4 per_group(8)", act_order=True, static_groups=True)
    assert torch.equal(static.quantized.scale, qc.apply(w, "int4 per_group(8)").scale)


@for_each("shape", [(3, 1, 2), (5, 3, 1), (300, 129, 2)])
def test_shapes_at_the_edge(shape):
    x, w = correlated(8, *shape)
    found = qc.outputs.gptq(w, x, "int4 per_channel(0)")
    assert found.objective <= found.nearest_objective
    assert len(found.steps) == shape[1]


def test_an_outlier_channel_needs_no_damping():
    x, w = correlated(13)
    x[:, 4] *= 1e6
    found = qc.outputs.gptq(w, x, "int4 per_channel(0)", damping=0)
    assert found.objective < found.nearest_objective


def test_it_can_be_stopped():
    x, w = correlated(9)
    work = qc.outputs.gptq_steps(w, x, "int4 per_channel(0)")
    step = next(work)
    assert (step.index, step.count) == (0, 24)
    work.close()
    assert next(work, None) is None


@for_each(
    ("options", "words"),
    [
        ({"damping": 0, "x": np.ones((4, 24))}, "can't be inverted with damping=0"),
        ({"x": np.full((4, 24), 1e-40)}, "exceeds float32"),
        ({"damping": -1}, "damping must be 0 or more"),
        ({"block_size": 0}, "block_size must be 1 or more"),
        ({"x": None}, "either activations x or their second moment"),
        ({"moment": np.eye(24)}, "either activations x or their second moment"),
        ({"x": None, "moment": np.eye(3)}, "has 24 columns"),
        ({"x": np.ones((4, 5))}, "x has 5 columns"),
        ({"scheme": "nf4 per_flat_group(8)"}, "can't be coded one at a time with per_flat_group"),
        ({"scheme": "int4 per_group(8) given(0.1)", "w": np.full((7, 24), np.inf)}, "w contains"),
    ],
)
def test_wrong_input_is_one_sentence(options, words):
    x, w = correlated(10)
    arguments = {"w": w, "x": x, "scheme": "int4 per_channel(0)"} | options
    with pytest.raises(qc.QuantError, match=words):
        qc.outputs.gptq(**arguments)


def test_a_search_for_codes_is_refused():
    x, w = correlated(11, inputs=256)
    with pytest.raises(qc.QuantError, match="chooses codes by a search"):
        qc.outputs.gptq(w, x, "gguf.Q4_K")
