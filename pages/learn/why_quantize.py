"""Lesson: what a model weighs, what memory bandwidth costs, and whether integers multiply faster here."""

from functools import cache
from math import prod

import streamlit as st

import quantcore as qc
from pages.learn import frame, measured, question, views
from quantcore.checkpoints import EXAMPLES, open_checkpoint
from quantcore.figures import lessons
from quantcore.wording import megabytes

NAME = "why_quantize"
MODEL = "charlm"
SCHEMES: dict[
    str, qc.Scheme | float
] = {  # name -> scheme of a weight; a number: stored as it is, in so many bits
    "float32": 32.0,
    "bfloat16": 16.0,
    "int8, a scale per row": qc.Scheme.parse("int8 per_channel(0)"),
    "Q8_0 of GGUF": qc.PRESETS["gguf.Q8_0"],
    "Q4_0 of GGUF": qc.PRESETS["gguf.Q4_0"],
    "MXFP4": qc.PRESETS["torchao.mxfp4"],
}
LAYER = (4096, 4096)  # whose bits per weight stand for those of a large model
ASKED = 7  # billion weights of the question


@cache
def shapes() -> tuple[tuple[int, ...], ...]:
    """Return the shapes of the shipped language model's tensors."""
    return tuple(tensor.shape for tensor in open_checkpoint(EXAMPLES[MODEL]).tensors.values())


def bits(scheme: qc.Scheme | float, shape: tuple[int, ...]) -> float:
    """Return the bits per element of a tensor; what is not a matrix stays in bfloat16, as it is stored."""
    if isinstance(scheme, qc.Scheme):
        return qc.bits_per_element(scheme, shape) if len(shape) == 2 else 16.0
    return scheme


def size_of(scheme: qc.Scheme | float) -> float:
    """Return the bytes of the shipped model."""
    return sum(bits(scheme, shape) / 8 * prod(shape) for shape in shapes())


def gigabytes(billions: float, name: str) -> float:
    """Return the size of a model of so many billion weights, of layers like `LAYER`."""
    return billions * bits(SCHEMES[name], LAYER) / 8


step = frame.head(NAME)
words, picture = views.side_by_side((1, 2))
match step:
    case "size":
        sizes = {name: size_of(scheme) for name, scheme in SCHEMES.items()}
        full, small = sizes["float32"], sizes["MXFP4"]
        weights = sum(map(prod, shapes()))
        words.markdown(
            f"The language model of characters that Quantscope ships has {weights:,} weights. In float32 "
            f"each takes 4 bytes: {megabytes(int(full))}. With 4-bit codes it takes "
            f"{megabytes(round(small))}, {full / small:.1f} times less. It is not 8 times less, because of "
            "the scales, and because vectors such as norms stay in bfloat16."
        )
        with picture:
            texts = [f"{megabytes(round(n))} · {full / n:.3g}×" for n in sizes.values()]
            kilobytes = {name: n / 1e3 for name, n in sizes.items()}
            style = frame.plot_style()
            views.figure(lessons.bars(kilobytes, texts, "size of the model (kB)", **style), "learn_why_size")
    case "bandwidth":
        speed = measured.bandwidth() / 1e9
        with words:
            st.markdown(
                "To generate one token, a language model reads **every weight once**. However fast the "
                f"processor is, it waits for the memory. This server copied {measured.COPIED >> 20} MiB at "
                f"**{speed:.3g} GB/s**, measured when this lesson was first opened."
            )
            billions = st.slider("Billion weights", 1, 70, 7, key=f"learn_{NAME}_billions",
                                 bind="query-params")  # fmt: skip
        rows = []
        for name in SCHEMES:
            size = gigabytes(billions, name)
            rows.append(
                {
                    "weights in": name,
                    "bits per weight": f"{bits(SCHEMES[name], LAYER):.4g}",
                    "size": f"{size:.3g} GB",
                    "time to read": f"{size / speed:.3g} s",
                    "tokens per second, at most": f"{speed / size:.3g}",
                }
            )
        with picture:
            views.table(rows)
    case "product":
        found = measured.product_times()
        ratio = found.float32 / found.int8
        if ratio > 1:
            told = f"int8 was **{ratio:.3g} times as fast** as float32"
        else:
            told = f"int8 took **{1 / ratio:.3g} times as long** as float32: fewer bits alone are not faster"
        words.markdown(
            f"{measured.TOKENS} tokens times a weight of {measured.SIZE} × {measured.SIZE}, on this server: "
            f"{told}. That holds for torch's own kernels with {found.processor} and "
            f"{found.threads} thread{'s' * (found.threads != 1)}, the fastest of a few runs, including the "
            "quantization of x. Whether int8 gains depends on the processor's instructions for int8, and on "
            "kernels that use them."
        )
        times = {"float32": found.float32 * 1e3, "int8": found.int8 * 1e3}
        with picture:
            texts = [f"{ms:.3g} ms" for ms in times.values()]
            views.figure(
                lessons.bars(times, texts, "time of one product (ms)", **frame.plot_style()),
                "learn_why_times",
            )
    case "question":
        right, no_scales, half, bytes_ = (
            f"{size:.3g} GB"
            for size in (
                gigabytes(ASKED, "Q4_0 of GGUF"),
                ASKED * 4 / 8,
                ASKED * 8 / 8,
                ASKED * 4.0,
            )
        )
        with words:
            question.ask(
                NAME,
                f"A model has **{ASKED} billion weights**. They are stored as 4-bit codes with one float16 "
                "scale per group of 32. How large is it?",
                {
                    no_scales: "These are the codes alone. Each group of 32 has a scale of 16 bits, half a "
                    "bit per weight.",
                    right: f"4 + 16/32 = 4.5 bits per weight, and {ASKED} · 4.5 / 8 = {right}.",
                    half: "That is a byte per weight, as in int8.",
                    bytes_: "That is 4 bytes per weight, as in float32.",
                },
                right,
            )
        with picture:
            views.table(
                [
                    {"stored": "code of a weight", "bits": "4", "shared by": "1 weight"},
                    {"stored": "scale, float16", "bits": "16", "shared by": "32 weights"},
                ]
            )
frame.foot(
    "Reading every weight once per token: Pope et al. 2022, Efficiently Scaling Transformer Inference, arXiv "
    "2211.05102",
    "4.5 bits per weight: block_q4_0 in ggml-common.h of ggml",
)
