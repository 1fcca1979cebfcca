"""LLM.int8 against bitsandbytes; a head with a quantized cache against torch's attention."""

import numpy as np
import pytest
import torch
from grid import for_each
from torch.nn.functional import scaled_dot_product_attention

import quantcore as qc

RNG = np.random.default_rng(4)


def layer_inputs(tokens=9, inputs=32, outputs=11):
    x = torch.from_numpy(RNG.standard_normal((tokens, inputs), dtype=np.float32))
    x[:, 3] *= 30
    x[2, 17 % inputs] = -6.0  # at the threshold
    return x, torch.from_numpy(RNG.standard_normal((outputs, inputs), dtype=np.float32))


@for_each("threshold", [6.0, 2.0, 1000.0])
@for_each("tokens", [1, 9])
def test_codes_and_output_are_bitsandbytes(tokens, threshold):
    import bitsandbytes.functional as bnb

    x, w = layer_inputs(max(tokens, 3))
    x = x[:tokens]
    codes, largest, columns = bnb.int8_vectorwise_quant(x.clone(), threshold)
    w_codes, w_largest, _ = bnb.int8_vectorwise_quant(w.clone())
    found = qc.outputs.llm_int8(x, w, threshold)
    assert found.outliers.tolist() == columns.tolist()
    # of one token, bitsandbytes leaves the codes of the outliers, which are 0 already
    assert torch.equal(found.x_codes, codes)
    assert torch.equal(found.weight.codes, w_codes)
    torch.testing.assert_close(found.x_scale[:, 0], largest / 127, rtol=1e-6, atol=0)
    sums = bnb.int8_linear_matmul(codes, w_codes)
    y = bnb.int8_mm_dequant(sums, largest, w_largest).float()
    torch.testing.assert_close(found.y_int8, y, rtol=2e-3, atol=2e-2)  # theirs is float16
    w_hat = w_codes.float() * (w_largest / 127)[:, None]
    expected = x[:, columns] @ w_hat[:, columns].T
    torch.testing.assert_close(found.y_outliers, expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found.y_hat, found.y_int8 + found.y_outliers, rtol=0, atol=0)
    torch.testing.assert_close(found.y, x @ w.T, rtol=1e-5, atol=1e-4)


def test_outliers_in_float_help():
    x, w = layer_inputs(64)
    scheme = "bitsandbytes.int8_vectorwise"
    with_outliers = qc.outputs.layer(x, w, scheme, scheme)
    found = qc.outputs.llm_int8(x, w)
    assert 3 in found.outliers.tolist()
    assert found.sqnr_db > with_outliers.sqnr_db + 3
    error = (found.y_hat - found.y).double().numpy()
    power = (found.y.double().numpy() ** 2).sum()
    assert found.sqnr_db == pytest.approx(10 * np.log10(power / (error**2).sum()))


def head(queries=6, tokens=20, size=16):
    q, k, v = (RNG.standard_normal((n, size), dtype=np.float32) for n in (queries, tokens, tokens))
    k[:, 5] = 12 + k[:, 5]  # a channel of keys that is large for all tokens
    return q, k, v


@for_each("causal", [False, True])
def test_the_output_is_that_of_torchs_attention(causal):
    q, k, v = head(20 if causal else 6)
    found = qc.outputs.kv_cache(q, k, v, "int4 per_channel(1)", "int4 per_channel(0)", causal)
    exact = {name: torch.from_numpy(value).double() for name, value in (("q", q), ("k", k), ("v", v))}
    k_hat, v_hat = found.keys.dequantized.double(), found.values.dequantized.double()
    for y, keys, values in (
        (found.y, exact["k"], exact["v"]),
        (found.y_hat, k_hat, v_hat),
        (found.of_keys, k_hat, exact["v"]),
        (found.of_values, exact["k"], v_hat),
    ):
        expected = scaled_dot_product_attention(
            *(t[None] for t in (exact["q"], keys, values)), is_causal=causal
        )
        torch.testing.assert_close(y.double(), expected[0], rtol=1e-4, atol=1e-5)
    assert torch.equal(found.keys.codes, qc.apply(k, "int4 per_channel(1)").codes)
    for y_hat, db in (
        (found.y_hat, found.sqnr_db), (found.of_keys, found.keys_sqnr_db), (found.of_values, found.values_sqnr_db)
    ):  # fmt: skip
        assert db == pytest.approx(qc.errors(found.y, y_hat).sqnr_db, abs=1e-3)


def test_a_later_query_sees_the_tokens_up_to_its_own():
    q, k, v = head(2, 3)
    found = qc.outputs.kv_cache(q, k, v, None, None, causal=True)
    assert (found.probabilities == 0).tolist() == [[False, False, True], [False, False, False]]
    assert torch.equal(found.y, found.y_hat)


def test_keys_want_channels():
    found = qc.outputs.kv_granularities(*head(64, 64, 32), "int4")
    (keys_token, values_token), (keys_channel, values_channel) = found["per token"], found["per channel"]
    assert keys_channel > keys_token + 3
    assert abs(values_channel - values_token) < 3


@for_each(
    ("make", "words"),
    [
        (lambda o: o.llm_int8(*layer_inputs(), threshold=0), "threshold must be positive"),
        (
            lambda o: o.kv_cache(np.ones((2, 3)), np.ones((4, 2)), np.ones((4, 3)), "int4", None),
            "q has shape",
        ),
        (
            lambda o: o.kv_cache(np.ones((2, 3)), np.ones((4, 3)), np.ones((3, 3)), "int4", None),
            "q has shape",
        ),
        (lambda o: o.kv_cache(*head(5, 4), "int4", None, causal=True), "5 queries, but 4 tokens"),
        (
            lambda o: o.kv_cache(np.ones(3), np.ones((4, 3)), np.ones((4, 3)), "int4", None),
            r"give a matrix, \[queries, d\]",
        ),
    ],
)
def test_wrong_input_is_one_sentence(make, words):
    with pytest.raises(qc.QuantError, match=words):
        make(qc.outputs)
