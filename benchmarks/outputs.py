"""Time of a layer's output error and of the methods that reduce it: python benchmarks/outputs.py

Weights 4096 x 4096 with 512 tokens, GPTQ 2048 x 2048, one thread: CPU seconds of one run, so that other
processes count little, beside the reference implementation where it is installed. Prints Markdown; exits with
1 beyond a budget, in seconds on the clock of an idle machine.
"""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

import quantcore as qc
from benchmarks.smallest import sized

SIZE, GPTQ_SIZE, TOKENS = sized(4096, 128), sized(2048, 128), sized(512, 16)
SCHEME = "torchao.int4_g128"


class Case(NamedTuple):
    """What is measured, its budget in seconds, and the reference, if any."""

    name: str
    run: Callable[[], object]
    budget: float | None = None
    reference: str = ""
    other: Callable[[], Callable[[], object]] | None = None  # imports it, and returns what is measured


def seconds(case: Callable[[], object]) -> float:
    start = time.process_time()
    case()
    return time.process_time() - start


def layer_inputs(size: int, tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(tokens, size, generator=rng)
    x[:, :: size // 16] *= 20
    return x, torch.randn(size, size, generator=rng)


def everything(found: Any) -> object:
    """Read every number of a layer's error, as a page does."""
    return found.sqnr_db, found.channel_sqnr_db, found.token_sqnr_db, found.energies, found.cross_terms


def torchao_awq(x: torch.Tensor, w: torch.Tensor) -> Callable[[], object]:
    from torchao.prototype.awq.core import AWQObserver
    from torchao.quantization import IntxWeightOnlyConfig, PerGroup

    def run() -> object:
        observer = AWQObserver(w, None, IntxWeightOnlyConfig(torch.int4, PerGroup(128)))
        observer(x, None)
        return observer.calculate_qparams()

    return run


def torchao_smoothquant(x: torch.Tensor, w: torch.Tensor) -> Callable[[], object]:
    from torchao.prototype.smoothquant.core import SmoothQuantObserver

    def run() -> object:
        observer = SmoothQuantObserver(w)
        observer(x)
        scale, *_ = observer.calculate_qparams()
        return x / scale, w * scale

    return run


def dense_rotation(x: torch.Tensor, w: torch.Tensor) -> Callable[[], object]:
    from compressed_tensors.transform.utils.hadamard import deterministic_hadamard_matrix

    def run() -> object:
        matrix = deterministic_hadamard_matrix(w.shape[1], torch.float32) / w.shape[1] ** 0.5
        return x @ matrix, w @ matrix

    return run


def gptqmodel(x: torch.Tensor, w: torch.Tensor) -> Callable[[], object]:
    from gptqmodel.quantization import QuantizeConfig
    from gptqmodel.quantization.gptq import GPTQ

    def run() -> object:
        module = torch.nn.Linear(*w.shape[::-1], bias=False)
        module.weight.data = w.clone()
        config = QuantizeConfig(
            bits=4, group_size=128, desc_act=False, act_group_aware=False, sym=False, damp_percent=0.01
        )
        method = GPTQ(module, config)
        method.quantizer.configure(perchannel=True)
        method.add_batch(x[None], module(x[None]))
        return method.quantize()

    return run


def published_gptq(x: torch.Tensor, w: torch.Tensor) -> Callable[[], object]:
    """Algorithm 1 of the paper, arXiv 2210.17323, in float32, with a range per block of 128 columns."""

    def run() -> object:
        h = 2 / len(x) * x.T @ x
        h.diagonal().add_(0.01 * h.diagonal().mean())
        inverse = torch.linalg.cholesky(torch.cholesky_inverse(torch.linalg.cholesky(h)), upper=True)
        left, found = w.clone(), torch.empty_like(w)
        for start in range(0, w.shape[1], 128):
            stop = min(start + 128, w.shape[1])
            block, errors = left[:, start:stop].clone(), torch.empty_like(left[:, start:stop])
            low, high = block.amin(1).clamp(max=0), block.amax(1).clamp(min=0)
            scale = (high - low) / 15
            zero = (-low / scale).round()
            for i in range(stop - start):
                column, row = block[:, i], inverse[start + i, start + i : stop]
                code = ((column / scale).round() + zero).clamp(0, 15)
                found[:, start + i] = scale * (code - zero)
                errors[:, i] = (column - found[:, start + i]) / row[0]
                block[:, i:] -= torch.outer(errors[:, i], row)
            left[:, stop:] -= errors @ inverse[start:stop, stop:]
        return found

    return run


def cases() -> list[Case]:
    x, w = layer_inputs(SIZE, TOKENS)
    small_x, small_w = layer_inputs(GPTQ_SIZE, 4 * GPTQ_SIZE)
    x8, w8 = (torch.randint(-128, 128, t.shape, dtype=torch.int8) for t in (x, w))
    run = qc.outputs
    return [
        Case("layer, int4 weights", lambda: everything(run.layer(x, w, SCHEME)), 2),
        Case(
            "layer, int4 weights, int8 activations per token",
            lambda: everything(run.layer(x, w, SCHEME, "int8 per_channel(0)")),
            2,
        ),
        Case(
            "smoothquant", lambda: run.smoothquant(x, w), None, "torchao", lambda: torchao_smoothquant(x, w)
        ),
        Case("hadamard", lambda: run.hadamard(w, x), None, "dense product", lambda: dense_rotation(x, w)),
        Case("awq, 20 ratios", lambda: run.awq(w, x, SCHEME), 30, "torchao", lambda: torchao_awq(x, w)),
        Case(
            "gptq",
            lambda: run.gptq(small_w, small_x, "uint4 asymmetric per_group(128)"),
            60,
            "GPTQModel",
            lambda: gptqmodel(small_x, small_w),
        ),
        Case(
            "gptq",
            lambda: run.gptq(small_w, small_x, "uint4 asymmetric per_group(128)"),
            60,
            "as published",
            lambda: published_gptq(small_x, small_w),
        ),
        Case(
            "integer_product",
            lambda: run.integer_product(x8, w8),
            None,
            "torch._int_mm",
            lambda: lambda: torch._int_mm(x8, w8.T.contiguous()),
        ),
        Case("llm_int8", lambda: run.llm_int8(x, w)),
    ]


def main() -> int:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--only", default="", help="a part of the names")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("| what | s | budget | reference | s | ratio |\n|---|---:|---:|---|---:|---:|")
    all_kept = True
    for case in cases():
        if options.only not in case.name:
            continue
        found, reference, theirs, ratio = seconds(case.run), case.reference, "", ""
        if case.other is not None:
            try:
                other = seconds(case.other())
                theirs, ratio = f"{other:.2f}", f"{found / max(other, 1e-9):.2f}"
            except ImportError:
                reference += ", not installed"
        kept = case.budget is None or found <= case.budget
        all_kept &= kept
        budget = "" if case.budget is None else f"{case.budget:g}" + " EXCEEDED" * (not kept)
        print(f"| {case.name} | {found:.2f} | {budget} | {reference} | {theirs} | {ratio} |", flush=True)
    return 0 if all_kept else 1


if __name__ == "__main__":
    sys.exit(main())
