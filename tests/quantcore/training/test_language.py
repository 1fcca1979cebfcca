"""The language model of the example charlm: its logits are those of transformers, and it has learned its text."""

from importlib.resources import files

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch.nn import functional

import quantcore as qc
from quantcore import training
from quantcore.checkpoints import EXAMPLES

FILE = EXAMPLES["charlm"] / "model.safetensors"


def model():
    return training.character_model(load_file(FILE))


@torch.inference_mode()
def test_logits_are_those_of_transformers():
    """Of the letters ` to g at two places, by LlamaForCausalLM of transformers 5.24.0 in float32."""
    logits = model()(training.load_text().judged[:2])
    assert logits[1, -1, 96:104].tolist() == pytest.approx([-5.8229, 2.0004, 0.0636, -0.982, 13.4474, 2.0236, 0.0137, 4.8472], abs=1e-3)
    assert logits[0, 0, 96:104].tolist() == pytest.approx([-15.4316, 3.0063, -1.5308, 4.402, -0.6197, 3.6674, 0.9503, 2.2904], abs=1e-3)


@pytest.mark.slow  # it imports transformers
@torch.inference_mode()
def test_all_logits_are_those_of_transformers():
    from transformers import LlamaForCausalLM

    theirs = LlamaForCausalLM.from_pretrained(EXAMPLES["charlm"], dtype=torch.float32).eval()
    tokens = training.load_text().judged[:16]
    np.testing.assert_allclose(model()(tokens), theirs(tokens).logits, atol=2e-4, rtol=0, strict=True, equal_nan=False)


@torch.inference_mode()
def test_it_predicts_text_that_it_has_not_seen():
    """In 1.46 nats per character; the frequencies of characters alone take above 3."""
    tokens = training.load_text().judged
    loss = functional.cross_entropy(model()(tokens[:16])[:, :-1].flatten(0, 1), tokens[:16, 1:].flatten())
    assert float(loss) < 1.6
    share = torch.bincount(tokens.flatten()).double() / tokens.numel()
    assert float(-share.xlogy(share).sum()) > 3


def test_the_text_has_its_source():
    text = training.load_text()
    assert (text.calibration.shape, text.judged.shape) == ((16, 128), (48, 128))
    assert bytes(text.calibration[0, :12].tolist()) == b"Code Objects"
    about, _, held = (files("quantcore.training") / "data" / "charlm.txt").read_text("ascii").partition("\n\n\n")
    for word in ("PSF License Agreement", "pydoc_data/topics.py", "Changes"):
        assert word in about
    assert len(held) == 64 * 128
    assert FILE.stat().st_size < 600_000


def test_what_a_layer_multiplies():
    """The first layer's attention gets the normalized embeddings of the characters."""
    weights, tokens = load_file(FILE), training.load_text().judged[:2]
    x = training.activations_of(model(), "model.layers.0.self_attn.q_proj.weight", tokens)
    wide = weights["model.embed_tokens.weight"].double()[tokens.flatten()]
    gain = weights["model.layers.0.input_layernorm.weight"].double()
    expected = wide / (wide.square().mean(1, keepdim=True) + 1e-5).sqrt() * gain
    np.testing.assert_allclose(x.double(), expected, rtol=1e-5, atol=1e-6, strict=True, equal_nan=False)
    with pytest.raises(qc.QuantError, match="no layer with the weight 'lm_head'"):
        training.activations_of(model(), "lm_head", tokens)


def test_what_is_no_such_model_is_said():
    with pytest.raises(qc.QuantError, match="'é' is not ASCII"):
        training.tokens_of("café")
    weights = load_file(FILE)
    for wrong in ({}, weights | {"more": torch.ones(1)}, weights | {"model.norm.weight": torch.ones(3)}):
        with pytest.raises(qc.QuantError, match="not the weights of a model like charlm"):
            training.character_model(wrong)
