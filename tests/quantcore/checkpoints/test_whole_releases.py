"""Whole models quantized and saved by llm-compressor and GPTQModel, on a CPU: what a check must find sound, and read as they do.

Neither is among the test dependencies: llm-compressor needs an older transformers than the rest here, GPTQModel a compiler.
Run it with an interpreter that has one of them (and what `requirements-dev.txt` names):

    python -m pytest -m slow -rs tests/quantcore/checkpoints/test_whole_releases.py
"""

import importlib
import json
import os
import warnings

import numpy as np
import pytest
import random_releases
import torch
from safetensors.torch import load_file

from quantcore.checkpoints import open_checkpoint

LAYERS, WIDTH, INNER, VOCABULARY, GROUP = 5, 256, 512, 96, 32
pytestmark = pytest.mark.slow


def library(name):
    """The module, or a skip with the reason why it can't be imported."""
    os.environ |= {"HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    try:
        return pytest.importorskip(name)
    except ImportError as reason:  # installed, but something that it needs is not
        return pytest.skip(f"{name} can't be imported: {reason}")


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A tiny random Llama in bfloat16, as transformers saves it."""
    library("transformers")
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    patch = pytest.MonkeyPatch()
    patch.setattr(random_releases, "WIDTH", WIDTH)
    patch.setattr(random_releases, "INNER", INNER)
    weights = random_releases.weights("llama", 3, LAYERS)
    patch.undo()
    config = LlamaConfig(
        hidden_size=WIDTH, intermediate_size=INNER, num_hidden_layers=LAYERS, num_attention_heads=8, num_key_value_heads=1,
        head_dim=32, vocab_size=VOCABULARY, tie_word_embeddings=False, dtype="bfloat16",
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    model.load_state_dict({name: torch.from_numpy(value) for name, value in weights.items()})
    folder = tmp_path_factory.mktemp("source")
    model.to(torch.bfloat16).save_pretrained(folder)
    words = Tokenizer(WordLevel({str(i): i for i in range(VOCABULARY)}, unk_token="0"))
    PreTrainedTokenizerFast(tokenizer_object=words, unk_token="0", pad_token="1", eos_token="2").save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps(config.to_dict() | {"head_dim": WIDTH // 8}))
    return folder


def calibration(n=8, length=48):
    numbers = np.random.default_rng(0).integers(0, VOCABULARY, (n, length)).tolist()
    return [{"input_ids": row, "attention_mask": [1] * length} for row in numbers]


def llm_compressor(source, folder, recipe, data):
    """Return the values that compressed-tensors decompresses to, by name."""
    with pytest.MonkeyPatch.context() as patch:
        # AWQ pins its cache for a GPU, which fails without one
        patch.setattr(torch.Tensor, "pin_memory", lambda self, *_: self)
        return _llm_compressor(library("llmcompressor").oneshot, source, folder, recipe(), data)


def _llm_compressor(oneshot, source, folder, recipe, data):
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.bfloat16)
    more = {}
    if data:
        dataset = pytest.importorskip("datasets").Dataset.from_list(calibration())
        more = {"dataset": dataset, "num_calibration_samples": len(dataset), "max_seq_length": 48}
    oneshot(model=model, recipe=recipe, **more)
    model.save_pretrained(folder, save_compressed=True)
    return decompressed(folder)


def decompressed(folder):
    """The linear weights of a compressed-tensors release, by that library's own arithmetic."""
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationConfig
    from compressed_tensors.utils.match import match_name

    stored = load_file(folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())["quantization_config"]
    schemes = list(QuantizationConfig.model_validate(config).config_groups.values())
    found = {}
    for module in {name.rpartition(".")[0] for name in stored if name.endswith("weight_scale")}:
        named = [s for s in schemes if any(match_name(module, target) for target in s.targets)]
        scheme = (named or schemes)[0]
        compressor = BaseCompressor.get_value_from_registry(scheme.format or config["format"])
        own = {name.removeprefix(f"{module}."): t for name, t in stored.items() if name.rpartition(".")[0] == module}
        found[f"{module}.weight"] = compressor.decompress(own, scheme)["weight"]
    return found


def gptq_model(source, folder, settings):
    """Return the values that GPTQModel's own torch layer dequantizes to, by name."""
    with pytest.MonkeyPatch.context() as patch:
        # it shares two workers out of half of the cores
        cores = max(4, os.cpu_count() or 1)
        patch.setattr(os, "cpu_count", lambda: cores)
        return _gptq_model(library("gptqmodel"), source, folder, settings)


def _gptq_model(package, source, folder, settings):
    config = package.QuantizeConfig(**{"bits": 4, "group_size": GROUP} | settings)
    model = package.GPTQModel.load(str(source), config, device="cpu", backend=package.BACKEND.TORCH)
    model.quantize([{k: torch.tensor([v]) for k, v in row.items()} for row in calibration()], batch_size=1)
    model.save(str(folder))
    # bfloat16 would round the stored float16 scales first
    loaded = package.GPTQModel.load(str(folder), device="cpu", backend=package.BACKEND.TORCH, dtype=torch.float16)
    return {
        f"{name}.weight": layer.dequantize_weight().T
        for name, layer in loaded.model.named_modules() if hasattr(layer, "dequantize_weight")
    }  # fmt: skip


def modifier(name, scheme="W4A16", **settings):
    """A step of llm-compressor's recipes; its module is imported when the recipe is made."""
    module = {"Quantization": "quantization", "GPTQ": "quantization"}.get(name, f"transform.{name.lower()}")

    def make():
        library("llmcompressor")
        kind = getattr(importlib.import_module(f"llmcompressor.modifiers.{module}"), f"{name}Modifier")
        more = {"targets": "Linear", "scheme": scheme} if module == "quantization" and "config_groups" not in settings else {}
        return kind(**more, **({"ignore": ["lm_head"]} if module == "quantization" else {}), **settings)

    return make


def weights_of(*targets, **settings):
    return {"targets": targets, "weights": {"symmetric": True, **settings}}


def rounded(scheme="W4A16", **settings):
    return modifier("Quantization", scheme, **settings)


def one_group(**settings):
    return rounded(config_groups={"all": weights_of("Linear", **settings)})


MIXED = {
    "codes": weights_of("re:.*mlp.*", num_bits=4, type="int", strategy="group", group_size=32),
    "floats": weights_of("re:.*self_attn.*", num_bits=8, type="float", strategy="block", block_structure=[128, 128]),
}
ROUNDED = (
    "W2A16", "W3A16", "W4A16", "W4A16_ASYM", "W5A16", "W8A16", "W4A8", "W4AFP8", "W8A8", "FP8_DYNAMIC", "FP8_BLOCK",
    "NVFP4A16", "MXFP4A16", "MXFP4", "MXFP8A16",
)  # fmt: skip
FEEDBACK = ("W4A16", "W4A16_ASYM", "W8A8", "NVFP4A16", "MXFP4A16", "FP8_BLOCK")
SCALED = ("W4A16", "W4A16_ASYM", "FP8_DYNAMIC", "NVFP4A16")
RECIPES = {  # those without calibration data, and with
    **{scheme: ([rounded(scheme)], False) for scheme in ROUNDED},
    "int8 of a tensor": ([one_group(num_bits=8, type="int", strategy="tensor")], False),
    "asymmetric int8 of rows": ([one_group(num_bits=8, type="int", symmetric=False, strategy="channel")], False),
    "searched ranges": ([one_group(num_bits=4, type="int", strategy="group", group_size=32, observer="mse")], False),
    "two schemes": ([rounded(config_groups=MIXED)], False),
    "QuIP": ([modifier("QuIP", transform_type="hadamard"), rounded()], False),
    "SpinQuant": ([modifier("SpinQuant", rotations=["R1", "R2"], transform_type="hadamard"), rounded()], False),
    "NVFP4": ([rounded("NVFP4")], True),
    "FP8": ([rounded("FP8")], True),
    **{f"GPTQ {scheme}": ([modifier("GPTQ", scheme)], True) for scheme in FEEDBACK},
    "GPTQ in the order of activations": ([modifier("GPTQ", actorder="weight")], True),
    **{f"AWQ {scheme}": ([modifier("AWQ"), rounded(scheme)], True) for scheme in SCALED},
    "AWQ and GPTQ": ([modifier("AWQ"), modifier("GPTQ")], True),
    "SmoothQuant": ([modifier("SmoothQuant"), rounded("W8A8")], True),
}


def compressed(steps, data):
    return lambda source, folder: llm_compressor(source, folder, lambda: [step() for step in steps], data)


def of_gptq_model(**settings):
    return lambda source, folder: gptq_model(source, folder, settings)


WRITERS = {
    **{f"llm-compressor {name}": compressed(*recipe) for name, recipe in RECIPES.items()},
    "GPTQModel": of_gptq_model(desc_act=False),
    "GPTQModel desc_act": of_gptq_model(desc_act=True),
    "GPTQModel asymmetric": of_gptq_model(desc_act=False, sym=False),
    "GPTQModel desc_act asymmetric": of_gptq_model(desc_act=True, sym=False),
    "GPTQModel 8 bits": of_gptq_model(desc_act=False, bits=8),
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_whole_release_is_sound_and_read_as_its_library_reads_it(name, source, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the libraries write logs
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        values = WRITERS[name](source, tmp_path / "release")
    checkpoint = open_checkpoint(tmp_path / "release")
    quantized = {n: t for n, t in checkpoint.tensors.items() if t.is_quantized}
    assert len(quantized) == 7 * LAYERS
    assert quantized.keys() <= values.keys()
    for weight, tensor in quantized.items():
        own = values[weight].float().cpu()
        assert torch.equal(tensor.read().to(values[weight].dtype).float(), own), weight
    for against in (None, open_checkpoint(source)):
        found = checkpoint.findings(against)
        assert [f.sentence for f in found if f.severity != "note"] == []
        assert len(found) <= 8, [f.sentence for f in found]
