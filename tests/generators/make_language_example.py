"""Write the example charlm: train a language model of characters on the reference texts of Python's help().

Needs only torch and Python's standard library; takes some minutes on two cores:
python tests/generators/make_language_example.py [steps]
"""

import json
import math
import sys
from pathlib import Path
from pydoc_data.topics import topics

import torch
from safetensors.torch import save_file
from torch.nn import functional

from quantcore.checkpoints.examples import DATA
from quantcore.training.language import CHARACTERS, HEAD, LENGTH, CharacterModel, tokens_of

HELD_OUT = ("bltin-code-objects", "exceptions", "import", "operator-summary")
STEPS, BATCH, RATE = 3000, 16, 4e-3
TEXT = Path("quantcore/training/data/charlm.txt")
INPUTS = 64
ABOUT = f"""charlm.txt: text that the example charlm was not trained on, after three line ends.

Source    Python {sys.version.split()[0]}, pydoc_data/topics.py: {", ".join(HELD_OUT)}.
License   PSF License Agreement, version 2 (see LICENSE-python); code within it also Zero Clause BSD.
          Copyright (c) 2001-2023 Python Software Foundation; All Rights Reserved.
Changes   Characters outside of ASCII are left out, runs of line ends shortened to two, and the text is cut
          to {INPUTS} inputs of {LENGTH} characters.


"""


def ascii_of(text):
    """A text in ASCII, with at most one empty line at a time."""
    kept = text.encode("ascii", "ignore").decode()
    while "\n\n\n" in kept:
        kept = kept.replace("\n\n\n", "\n\n")
    return kept


def texts():
    """The text to train on, without paragraphs that the held-out text has, and the held-out text."""
    held = "".join(ascii_of(topics[name]) for name in HELD_OUT)
    paragraphs = set(held.split("\n\n"))
    others = "\n\n".join(ascii_of(text) for name, text in topics.items() if name not in HELD_OUT)
    kept = [part for part in others.split("\n\n") if part not in paragraphs]
    return "\n\n".join(kept), held[: INPUTS * LENGTH]


def loss_of(model, rows):
    """The mean cross-entropy of the next character, in nats."""
    return functional.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())


def trained(tokens, judged, steps):
    """The model after so many steps of AdamW."""
    torch.manual_seed(0)
    model = CharacterModel()
    for name, weight in model.named_parameters():
        if weight.ndim == 2:
            torch.nn.init.normal_(weight, std=0.02 if "embed" in name else 0.5 * weight.shape[1] ** -0.5)
    groups = [
        {"params": [p for p in model.parameters() if (p.ndim == 2) == decays], "weight_decay": 0.1 * decays}
        for decays in (True, False)
    ]
    optimizer = torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.98))
    for step in range(steps):
        part = min(1, (step + 1) / 100) * (0.02 + 0.49 * (1 + math.cos(math.pi * step / steps)))
        for group in optimizer.param_groups:
            group["lr"] = RATE * part
        starts = torch.randint(len(tokens) - LENGTH - 1, (BATCH, 1))
        loss = loss_of(model, tokens[starts + torch.arange(LENGTH + 1)])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 100 == 99:
            with torch.no_grad():
                print(f"{step + 1}: {loss:.3f}, held out {loss_of(model, judged):.3f} nats", flush=True)
    return model


def main():
    text, held = texts()
    model = trained(tokens_of(text), tokens_of(held).reshape(-1, LENGTH), int((*sys.argv, STEPS)[1]))
    TEXT.write_text(ABOUT + held, encoding="ascii")
    (DATA / "charlm").mkdir(exist_ok=True)
    state = {name: weight.bfloat16() for name, weight in model.state_dict().items()}
    save_file(state, DATA / "charlm" / "model.safetensors", {"format": "pt"})
    attention = model.model.layers[0].self_attn
    inner, width = model.model.layers[0].mlp.gate_proj.weight.shape
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16",
        "vocab_size": CHARACTERS, "hidden_size": width, "intermediate_size": inner,
        "num_hidden_layers": len(model.model.layers), "head_dim": HEAD,
        "num_attention_heads": len(attention.q_proj.weight) // HEAD,
        "num_key_value_heads": len(attention.k_proj.weight) // HEAD,
        "max_position_embeddings": LENGTH, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "tie_word_embeddings": True, "hidden_act": "silu",
    }  # fmt: skip
    (DATA / "charlm" / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


main()
