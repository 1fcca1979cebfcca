"""What `collect` sums, against the same inputs computed in NumPy, and the files that it writes."""

import types

import gguf
import numpy as np
import pytest
import torch
from torch import nn

import quantcore as qc
from quantcore import layerwise
from quantcore.checkpoints import open_checkpoint

WORDS, WIDTH, INNER = 11, 6, 8


class Model(nn.Module):
    """Embeddings, two linear layers with a ReLU between, and a head on the first token."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.up, self.down, self.head = nn.Linear(WIDTH, INNER), nn.Linear(INNER, WIDTH), nn.Linear(WIDTH, 2)

    def forward(self, input_ids, attention_mask=None):
        return self.head(self.down(self.up(self.embed(input_ids)).relu())[:, 0])


def model_and_batches():
    torch.manual_seed(2)
    return Model().eval(), [torch.randint(0, WORDS, (2, 5)), torch.randint(0, WORDS, (3, 4))]


def inputs_of(model, tokens):
    """The rows that each layer gets for some tokens (inputs, length), in float64."""
    held = {name: value.detach().double().numpy() for name, value in model.named_parameters()}
    x = held["embed.weight"][tokens.numpy()]
    y = np.maximum(x @ held["up.weight"].T + held["up.bias"], 0)
    z = y @ held["down.weight"].T + held["down.bias"]
    return {"up.weight": x, "down.weight": y, "head.weight": z[:, 0]}


def test_sums_are_those_of_all_rows():
    model, batches = model_and_batches()
    found = qc.collect(model, batches, full=True)
    assert list(found.layers) == ["up.weight", "down.weight", "head.weight"]
    assert found.batches == 2
    for name, own in found.layers.items():
        x = np.concatenate([inputs_of(model, tokens)[name].reshape(-1, len(own.sums)) for tokens in batches])
        assert own.tokens == len(x)
        np.testing.assert_allclose(own.sums, (x**2).sum(0), rtol=2e-6)
        np.testing.assert_allclose(own.hessian, x.T @ x, rtol=2e-6, atol=1e-6)
        np.testing.assert_allclose(own.mean_square, (x**2).mean(0), rtol=2e-6)
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_padding_does_not_count():
    model, (tokens, _) = model_and_batches()
    mask = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 0]])
    by_keyword = qc.collect(model, [{"input_ids": tokens, "attention_mask": mask}])
    by_mask = qc.collect(model, [(tokens,)], mask=lambda batch: mask)
    for found in (by_keyword, by_mask):
        for name in ("up.weight", "down.weight"):
            x = inputs_of(model, tokens)[name][mask.bool().numpy()]
            assert found.layers[name].tokens == 7
            np.testing.assert_allclose(found.layers[name].sums, (x**2).sum(0), rtol=2e-6)
        assert found.layers["head.weight"].tokens == 2
        assert found.notes[1].startswith("1 weight, the first 'head.weight': padding counts too")
    every = qc.collect(model, [{"input_ids": tokens, "attention_mask": mask}], mask=lambda batch: None)
    assert every.layers["up.weight"].tokens == 10


def test_rows_that_are_flattened_are_masked():
    model = nn.Sequential(nn.Flatten(0, 1), nn.Linear(3, 2)).eval()
    x, mask = torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(1)), torch.tensor([[1, 0, 1, 1], [0, 0, 1, 0]])
    found = qc.collect(model, [x], mask=lambda batch: mask).layers["1.weight"]
    np.testing.assert_allclose(found.sums, (x[mask.bool()].double().numpy() ** 2).sum(0))


def test_samples_are_rows_drawn_alike_for_all_layers():
    model, _ = model_and_batches()
    batches = [torch.arange(10)[:, None]] * 30
    found = qc.collect(model, batches, samples=40)
    x = inputs_of(model, batches[0])
    drawn = [
        [int(np.abs(x[name].reshape(10, -1) - row).sum(1).argmin()) for row in own.samples.double().numpy()]
        for name, own in found.layers.items()
    ]
    assert drawn[0] == drawn[1] == drawn[2]
    assert len(drawn[0]) == 40
    assert len(set(drawn[0])) == 10  # of 300, each ten times
    assert set(drawn[0]) != set(drawn[0][:10])  # not the first
    few = qc.collect(model, batches[:1], samples=40).layers["up.weight"].samples.double().numpy()
    np.testing.assert_allclose(few, x["up.weight"][:, 0], rtol=1e-6)


def test_what_does_not_fit_is_said():
    model, batches = model_and_batches()
    found = qc.collect(model, batches, full=True, most_bytes=8 * (WIDTH**2 + WIDTH**2))
    assert [own.hessian is not None for own in found.layers.values()] == [True, False, True]
    assert found.notes[-1] == "1 weight, the first 'down.weight': no H, since it does not fit in most_bytes."
    attention = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    with torch.no_grad():
        found = qc.collect(nn.Sequential(nn.Linear(8, 8), attention).eval(), [torch.randn(1, 3, 8)])
    assert found.notes[0] == (
        "1 weight, the first '1.self_attn.in_proj_weight': no entry, since it does not belong to a torch.nn.Linear."
    )
    assert "no entry, since the model did not run it as a module" in found.notes[1]
    assert "1.self_attn.out_proj.weight" not in found.layers


def test_the_imatrix_is_read_again(tmp_path):
    model, batches = model_and_batches()
    found = qc.collect(model, batches)
    found.save(tmp_path / "own.gguf")
    inputs = layerwise.Imatrix(open_checkpoint(tmp_path / "own.gguf").tensors)
    reader = gguf.GGUFReader(tmp_path / "own.gguf")
    stored = {tensor.name: tensor.data for tensor in reader.tensors}
    for name, own in found.layers.items():
        weights, said = inputs.of(name, (3, len(own.sums)))
        np.testing.assert_allclose(weights[0], own.mean_square, rtol=1e-6)
        assert said == f"{own.tokens:,} tokens seen"
        np.testing.assert_array_equal(stored[f"{name}.in_sum2"], own.sums.float()[None])
        np.testing.assert_array_equal(stored[f"{name}.counts"], [[own.tokens]])
    assert reader.fields["general.type"].contents() == "imatrix"
    assert reader.fields["imatrix.datasets"].contents() == ["quantcore.collect"]
    assert reader.fields["imatrix.chunk_count"].contents() == 2
    assert reader.fields["imatrix.chunk_size"].contents() == 11


def test_names_and_stacks_of_experts_are_those_of_llama_cpp(tmp_path):
    mlp = nn.Module()
    mlp.gate, mlp.experts = nn.Linear(4, 3), nn.ModuleList(nn.Module() for _ in range(3))
    for expert in mlp.experts:
        expert.up_proj = nn.Linear(4, 5)
    model = nn.Module()
    model.model = nn.Module()
    model.model.layers = nn.ModuleList([nn.Module()])
    model.model.layers[0].mlp = mlp
    model.forward = lambda x: [mlp.gate(x), mlp.experts[0].up_proj(x[:3]), mlp.experts[2].up_proj(x[2:])]
    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(3))
    found = qc.collect(model.eval(), [x])
    found.save(tmp_path / "own.gguf", architecture="qwen3moe")
    stored = {tensor.name: tensor.data for tensor in gguf.GGUFReader(tmp_path / "own.gguf").tensors}
    assert set(stored) == {
        f"blk.0.{name}.weight.{piece}" for name in ("ffn_gate_inp", "ffn_up_exps") for piece in ("in_sum2", "counts")
    }
    squares = (x.double() ** 2).numpy()
    want = [squares[:3].sum(0), np.zeros(4), squares[2:].sum(0)]
    np.testing.assert_allclose(stored["blk.0.ffn_up_exps.weight.in_sum2"], want, rtol=1e-6)
    np.testing.assert_array_equal(stored["blk.0.ffn_up_exps.weight.counts"], [[3], [0], [3]])
    imatrix = layerwise.Imatrix(open_checkpoint(tmp_path / "own.gguf").tensors, "qwen3moe")
    weights, said = imatrix.of("model.layers.0.mlp.experts.2.up_proj.weight", (5, 4))
    np.testing.assert_allclose(weights[0], squares[2:].mean(0), rtol=1e-6)
    assert said == "3 tokens seen"
    stack, said = imatrix.of("blk.0.ffn_up_exps.weight", (3, 5, 4))
    assert stack.shape == (3, 1, 4)
    assert said == "1 of 3 experts without tokens, 6 tokens seen"
    with pytest.raises(qc.QuantError, match="is not known for the architecture 'qwen3moo'"):
        found.save(tmp_path / "other.gguf", architecture="qwen3moo")


def test_everything_is_read_again(tmp_path):
    model, batches = model_and_batches()
    found = qc.collect(model, batches, full=True, samples=3, most_bytes=8 * WIDTH**2)
    found.save(tmp_path / "own.safetensors")
    again = layerwise.Collected.load(tmp_path / "own.safetensors")
    assert again.batches == 2
    assert again.layers.keys() == found.layers.keys()
    for name, own in found.layers.items():
        for field in ("sums", "tokens", "hessian", "samples"):
            value, kept = getattr(own, field), getattr(again.layers[name], field)
            assert torch.equal(value, kept) if isinstance(value, torch.Tensor) else value == kept
    assert tuple(open_checkpoint(tmp_path / "own.safetensors").tensors["up.weight.hessian"].shape) == (WIDTH, WIDTH)


def test_what_is_wrong_is_said(tmp_path):
    model, (tokens, _) = model_and_batches()
    both = {"input_ids": tokens, "attention_mask": torch.ones(2, 5)}
    encoder = types.SimpleNamespace(is_encoder_decoder=True)
    nan = nn.Sequential(nn.Linear(2, 2)).eval()
    cases = [
        (model, [], {}, "There are no batches"),
        (model, [torch.tensor([[99]])], {}, r"The model can't run batch 0 \(IndexError"),
        (model, [tokens, {"ids": tokens}], {}, r"The model can't run batch 1 \(TypeError"),
        (model, [both | {"attention_mask": torch.ones(2, 1, 5, 5)}], {}, r"must be a tensor of shape \(inputs, tokens\), not shape"),
        (model, [tokens], {"mask": lambda batch: [1]}, "not list; give mask="),
        (model, [both | {"decoder_input_ids": tokens}], {}, "is not that of every layer; give mask="),
        (model, [both], {"mask": lambda batch: torch.zeros(2, 5), "samples": -1}, "can't be negative"),
        (nn.Embedding(3, 3).eval(), [tokens], {}, r"no torch.nn.Linear layers"),
        (nn.Linear(2, 2), [tokens], {}, "in training mode"),
        (model, tokens, {}, r"for one batch, give \[batch\]"), (model, both, {}, r"give \[batch\]"),
        (nan, [torch.tensor([[1.0, torch.nan]])], {}, "Batch 0: The inputs of '0.weight' contain NaN"),
        (nan, [torch.ones(1, 3, 2)], {"mask": lambda batch: torch.zeros(1, 3)}, "or all tokens are masked"),
    ]  # fmt: skip
    for given, batches, options, said in cases:
        with pytest.raises(qc.QuantError, match=said):
            qc.collect(given, batches, **options)
        assert not any(module._forward_pre_hooks for module in given.modules())
    model.config = encoder
    with pytest.raises(qc.QuantError, match="is not that of every layer"):
        qc.collect(model, [both])
    del model.config
    found = qc.collect(model, [tokens])
    for name, options, said in (
        ("a.dat", {}, "must end with .gguf"), ("a.safetensors", {"architecture": "llama"}, "leave architecture out"),
        ("no/a.gguf", {}, "can't be written"), ("no/a.safetensors", {}, "can't be written"),
    ):  # fmt: skip
        with pytest.raises(qc.QuantError, match=said):
            found.save(tmp_path / name, **options)
    with pytest.raises(qc.QuantError, match=r"llama\.cpp's name of 'up\.weight' is not known"):
        found.save(tmp_path / "a.gguf", architecture="llama")
    twins = nn.ModuleDict({name: nn.ModuleDict({"lm_head": nn.Linear(3, 3)}) for name in ("model", "module")})
    twins.forward = lambda x: [twin["lm_head"](x) for twin in twins.values()]
    with pytest.raises(qc.QuantError, match=r"'module\.lm_head\.weight' is not the only .* calls 'output\.weight'"):
        qc.collect(twins.eval(), [torch.ones(1, 3)]).save(tmp_path / "a.gguf", architecture="llama")
    found.save(tmp_path / "a.gguf")
    for name in ("a.gguf", "none.safetensors"):
        with pytest.raises(qc.QuantError, match="is not a file of inputs"):
            layerwise.Collected.load(tmp_path / name)
