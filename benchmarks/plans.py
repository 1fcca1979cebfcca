"""What plans do to the output of a model, beside uniform schemes and random plans: python benchmarks/plans.py

The model is the example ``charlm``, a language model of characters. Effects are measured, and inputs
collected, on 16 inputs of 128 characters; every plan is judged on 48 others, by the mean KL divergence of the
next character from that of the original weights. Prints Markdown, with KL in thousandths.
"""

import math
import random
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
from torch import Tensor
from torch.nn.functional import kl_div

import quantcore as qc
from benchmarks.smallest import sized
from quantcore.checkpoints import EXAMPLES, open_checkpoint
from quantcore.layerwise import AS_STORED, Plan, Table, groups_of, plan, trade_off

SCHEMES = [
    "int8 per_channel(0)", "int6 per_channel(0)", "int5 per_channel(0)", "int4 per_group(32)",
    "int4 per_channel(0)", "int3 per_group(32)",
]  # fmt: skip
SIZES = sized((4.25, 4.6, 5.0, 5.5, 6.0, 7.0), (5.0,))  # bits per weight
RANDOM, INPUTS = sized(20, 2), sized(16, 1)
BY = {"error": "relative", "error of outputs": "output_relative", "effect": "effect"}


@dataclass
class Trial:
    """The example, what is measured of it, and its logits; ``calibration``, ``judged``: tokens."""

    weights: dict[str, Tensor]
    model: qc.training.CharacterModel
    table: Table
    calibration: Tensor
    judged: Tensor

    @classmethod
    def of(cls, schemes: Sequence[str], calibration: Tensor, judged: Tensor) -> "Trial":
        """Measure errors, errors of outputs, and effects."""
        checkpoint = open_checkpoint(EXAMPLES["charlm"])
        weights = {name: tensor.read() for name, tensor in checkpoint.tensors.items()}
        own = cls(weights, qc.training.character_model(weights), Table("", (), ()), calibration, judged)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "inputs.gguf"
            qc.collect(own.model, [calibration]).save(file)
            steps = qc.sensitivity(
                checkpoint, schemes, open_checkpoint(file), forward=lambda w: own.logits(w, calibration)
            )
            *_, last = steps
        own.table = last.table
        return own

    @torch.inference_mode()
    def logits(self, weights: Mapping[str, Tensor], tokens: Tensor) -> Tensor:
        """Return the logits of the model with other weights."""
        exact = {name: weight.float() for name, weight in weights.items()}
        found: Tensor = torch.func.functional_call(self.model, exact, (tokens,))
        return found

    def divergence(self, schemes: Mapping[str, str], tokens: Tensor) -> float:
        """Return the mean KL divergence of the next character under the schemes of weights."""
        changed = {
            name: qc.apply(self.weights[name], text).dequantized.to(self.weights[name].dtype)
            for name, text in schemes.items()
            if text != AS_STORED
        }
        p, q = (
            self.logits(own, tokens).double().log_softmax(-1).flatten(0, 1)
            for own in (self.weights, self.weights | changed)
        )
        return float(kl_div(q, p, log_target=True, reduction="batchmean"))

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
    own = [trial.divergence(found.schemes, trial.judged) for found in plans.values()]
    uniform = min((trial.divergence(each, trial.judged) for each in trial.uniform(size)), default=math.nan)
    drawn = sorted(trial.divergence(trial.random_plan(size, draw), trial.judged) for _ in range(RANDOM))
    predicted = plans["effect"].error / trial.divergence(plans["effect"].schemes, trial.calibration)
    values = [f"{1000 * value:.1f}" for value in (*own, uniform, drawn[0], drawn[len(drawn) // 2])]
    return [f"{bits:g}", *values, f"{predicted:.2f}"]


def main() -> None:
    text = qc.training.load_text()
    trial = Trial.of(SCHEMES, text.calibration[:INPUTS], text.judged[: 3 * INPUTS])
    print(f"{len(groups_of(trial.table))} groups, {len(SCHEMES)} schemes, {RANDOM} random plans\n")
    heads = [
        "bits per weight", *(f"plan by {name}" for name in BY), "best uniform", "best random",
        "median random", "predicted / measured",
    ]  # fmt: skip
    print(f"| {' | '.join(heads)} |\n|{'---:|' * len(heads)}")
    for bits in SIZES:
        print(f"| {' | '.join(line(trial, bits))} |", flush=True)


if __name__ == "__main__":
    main()
