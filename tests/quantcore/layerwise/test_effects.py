"""What groups of weights do to the output of a model that the test trains nothing of and runs itself."""

import itertools
import json
import math

import pytest
import torch
from safetensors.torch import save_file

import quantcore as qc
from quantcore import layerwise
from quantcore.checkpoints import open_checkpoint

SCHEMES = ["int8 per_channel(0)", "int4 per_channel(0)", "int3 per_group(16)"]
WIDTH, LAYERS, WORDS = 32, 3, 40
GROUPS = LAYERS * 2 + 2


def weights():
    """A causal model whose first layer is amplified and whose last hardly matters."""
    generator = torch.Generator().manual_seed(4)
    shapes = {"embed_tokens.weight": (WORDS, WIDTH), "lm_head.weight": (WORDS, WIDTH)}
    for i in range(LAYERS):
        shapes |= {f"layers.{i}.self_attn.{k}_proj.weight": (WIDTH, WIDTH) for k in "qkv"}
        shapes |= {f"layers.{i}.mlp.down_proj.weight": (WIDTH, WIDTH)}
    found = {name: torch.randn(shape, generator=generator) / shape[1] ** 0.5 for name, shape in shapes.items()}
    for name in found:
        found[name] *= 2.0 if ".0." in name else 0.02 if ".2.mlp" in name else 1.0
    return found | {"norm.weight": torch.ones(WIDTH)}


def logits(weights, inputs=6, length=9):
    """The logits of a few sequences, of shape (inputs, length, words)."""
    tokens = torch.randint(0, WORDS, (inputs, length), generator=torch.Generator().manual_seed(8))
    x = weights["embed_tokens.weight"][tokens]
    mask = torch.full((length, length), -math.inf).triu(1)
    for i in range(LAYERS):
        q, k, v = (x @ weights[f"layers.{i}.self_attn.{name}_proj.weight"].T for name in "qkv")
        x = x + torch.softmax(q @ k.mT / WIDTH**0.5 + mask, -1) @ v
        x = x + torch.tanh(x) @ weights[f"layers.{i}.mlp.down_proj.weight"].T
    return x * weights["norm.weight"] @ weights["lm_head.weight"].T


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model.safetensors"
    save_file(weights(), path)
    return open_checkpoint(path)


@pytest.fixture(scope="module")
def whole(model):
    *_, last = qc.sensitivity(model, SCHEMES, forward=logits)
    return last.table


def divergence(changed):
    """The mean of KL(original || changed) by torch's own loss, of 6 inputs of 9 positions each."""
    p, q = (logits(own).double().log_softmax(-1).flatten(0, 1) for own in (weights(), changed))
    return float(torch.nn.functional.kl_div(q, p, log_target=True, reduction="batchmean"))


def quantized(schemes):
    """The weights under the schemes of a plan."""
    own = weights()
    return own | {
        name: qc.apply(own[name], text).dequantized for name, text in schemes.items() if text != layerwise.AS_STORED
    }


def test_an_effect_is_that_of_the_group_alone(whole):
    assert len(whole.effects) == GROUPS
    group = [f"layers.1.self_attn.{k}_proj.weight" for k in "qkv"]
    for i, scheme in enumerate(whole.schemes):
        effect = whole.effects["layers.1.self_attn: q, k, v"][i]
        assert effect.mean == pytest.approx(divergence(quantized(dict.fromkeys(group, scheme))), rel=1e-9)
        each = [
            logits(own).double().log_softmax(-1) for own in (weights(), quantized(dict.fromkeys(group, scheme)))
        ]
        per_input = (each[0].exp() * (each[0] - each[1])).sum(-1).mean(1)
        assert effect.standard_error == pytest.approx(float(per_input.std()) / 6**0.5)


def test_a_plan_by_effects_is_better_than_others(whole):
    """Than every uniform choice that fits, and than a plan by errors of weights; the sum predicts what it does."""
    for bits in (5.5, 7.5):
        size = bits / 8 * sum(row.elements for row in whole.rows.values())
        found = layerwise.plan(whole, size, "effect")
        reached = divergence(quantized(found.schemes))
        assert found.error == pytest.approx(reached, rel=0.35)
        assert reached < divergence(quantized(layerwise.plan(whole, size).schemes))
        for scheme, (cost, _) in layerwise.trade_off(whole, "effect").uniform.items():
            if cost <= size:
                names = [name for name, row in whole.rows.items() if row.cells]
                assert reached <= divergence(quantized(dict.fromkeys(names, scheme)))


def test_stopped_and_resumed_it_is_the_same(model, whole):
    steps = qc.sensitivity(model, SCHEMES, forward=logits)
    begun = next(step.table for step in steps if step.group)
    steps.close()
    kept = layerwise.Table.of_dict(json.loads(json.dumps(begun.as_dict())))
    assert len(kept.effects) == 1
    calls = itertools.count()

    def counted(given):
        next(calls)
        return logits(given)

    *_, last = qc.sensitivity(model, SCHEMES, table=kept, forward=counted)
    assert last.table.effects == whole.effects
    assert next(calls) == 1 + (GROUPS - 1) * len(SCHEMES)
    with pytest.raises(qc.QuantError, match="The table's effects are kl, not cosine"):
        next(qc.sensitivity(model, SCHEMES, table=kept, forward=counted, score="cosine"))


def test_scores():
    def score(name, *changed):
        return layerwise.effects._Outputs(torch.tensor([[3.0, 4.0], [1.0, 0.0]]).double(), name).effect(*changed, "g")

    turned = torch.tensor([[4.0, -3.0], [1.0, 0.0]])
    assert score("cosine", turned) == layerwise.Effect(0.5, 0.5)
    assert score("relative", turned) == layerwise.Effect(1.0, 1.0)
    assert score("kl", torch.tensor([[3.0, 4.0], [1.0, 0.0]]) + 7) == layerwise.Effect(0.0, 0.0)


def test_what_forward_may_not_return_is_said(model, whole):
    with pytest.raises(qc.QuantError, match=r"The score cosine of input 1 is not finite .*: its outputs are all 0\."):
        layerwise.effects._Outputs(torch.eye(2)[[0, 1]] * torch.tensor([[1.0], [0.0]]), "cosine").effect(torch.eye(2), "g")
    size = 6 / 8 * sum(row.elements for row in whole.rows.values())
    cases = [
        (lambda given: [1.0], "forward must return a tensor of shape"), (lambda given: torch.tensor(1.0), "not shape"),
        (lambda given: logits(given) * math.nan, "NaN or infinite outputs of the original"),
        (lambda given: logits(given, 6 + int(not torch.equal(given["lm_head.weight"], weights()["lm_head.weight"]))),
         "forward returned shape .* with 'lm_head.weight' quantized"),
    ]  # fmt: skip
    for forward, said in cases:
        with pytest.raises(qc.QuantError, match=said):
            list(qc.sensitivity(model, SCHEMES, forward=forward))
    with pytest.raises(qc.QuantError, match="There is no score 'mse'"):
        next(qc.sensitivity(model, SCHEMES, forward=logits, score="mse"))
    *_, last = qc.sensitivity(model, SCHEMES)
    with pytest.raises(qc.QuantError, match="on the output was not measured; call sensitivity with forward="):
        layerwise.plan(last.table, size, "effect")
