"""Lesson: a Hadamard rotation spreads an outlier over all channels, first 4 by hand, then 64."""

import streamlit as st
import torch

import quantcore as qc
from pages.learn import frame, question, views
from pages.maps import cells
from pages.shared.computing import cache
from pages.shared.state import choice
from pages.shared.state.selection import generated
from quantcore import outputs, tensors
from quantcore.figures import lessons
from quantcore.wording import difference

NAME = "rotation"
X = torch.tensor([[0.5, 8.0, -0.5, 1.0], [-1.0, -6.0, 0.5, 0.5]])  # [tokens, in]
W = torch.tensor([[0.5, 0.25, -0.5, 1.0], [-1.0, 0.5, 0.25, 0.5], [0.25, -0.5, 1.0, 0.5]])  # [out, in]
SCHEME = qc.Scheme.parse("int4 per_channel(0)")  # a scale per token, and per output
LAYER_X = generated(tensors.Generated("outlier_channel", (128, 64), seed=1))
LAYER_W = generated(tensors.Generated("normal", (48, 64), seed=2))
SIZES = (1, 4, 16, 64)


def layers() -> dict[int, tuple[float, float]]:
    """Return the output's SQNR and max|x| for each size of rotation; size 1 changes nothing."""
    x, w = cache.values(LAYER_X), cache.values(LAYER_W)
    found = {}
    for size in SIZES:
        rotated = outputs.hadamard(w, x, size=size)
        quality = outputs.layer(rotated.x, rotated.w, SCHEME, SCHEME).sqnr_db
        found[size] = (quality, float(rotated.x.abs().max()))
    return found


step = frame.head(NAME)
words, picture = views.side_by_side((1, 2))
rotated = outputs.hadamard(W, X)
h = outputs.hadamard_matrix(4)
match step:
    case "spread":
        names = {"before": "x", "after": "x·Q"}
        words.markdown(
            "**H** has entries ±1 and rows that are orthogonal; **Q = H/√4**. Every channel of x·Q is a sum "
            f"of all channels, with signs, over 2: the outlier of {float(X.abs().max()):g} becomes four "
            f"numbers of about half its size, at most {float(rotated.x.abs().max()):g}. The step of a token "
            "shrinks with them."
        )
        with words:
            which = choice.segmented("Quantize", f"learn_{NAME}_which", names)
        values = X if which == "before" else rotated.x
        result = qc.apply(values, SCHEME)
        with words:
            views.figures(
                ("scales", ", ".join(f"{s:.3g}" for s in result.scale.flatten().tolist())),
                ("elements that become 0", f"{int((result.dequantized == 0).sum())} of {X.numel()}"),
            )
        with picture:
            tables = [
                cells.MarkedTable("x", X.numpy()),
                cells.MarkedTable("H", h.numpy().astype(int)),
                cells.MarkedTable("x·Q", rotated.x.numpy()),
                cells.MarkedTable(f"codes of {names[which]}", result.codes.numpy()),
            ]
            cells.draw(tables, "learn_rotation_spread", fill=1)
            terms = zip(X[0].tolist(), h[1].tolist(), strict=True)
            written = " + ".join(f"({sign:g})·({value:g})" for value, sign in terms)
            views.formula(f"{'(x·Q)_01':<14} ({written}) / 2 = {float(rotated.x[0, 1]):g}")
    case "undo":
        before, after = X @ W.T, rotated.x @ rotated.w.T
        words.markdown(
            "Q·Qᵀ = I: rotate the weights as well, and the rotations cancel in the product, "
            "**(x·Q)·(w·Q)ᵀ = x·wᵀ**. w·Q is computed once before quantizing. x·Q is computed while the "
            "model runs, by additions only, or is merged into the layer before. Here the outputs differ by "
            f"at most {float((after - before).abs().max()):.1g}."
        )
        with picture:
            tables = [
                cells.MarkedTable("Q·Qᵀ", (h @ h.T / 4).numpy().astype(int)),
                cells.MarkedTable("w", W.numpy()),
                cells.MarkedTable("w·Q", rotated.w.numpy()),
                cells.MarkedTable("x·wᵀ", before.numpy()),
                cells.MarkedTable("(x·Q)·(w·Q)ᵀ", after.numpy()),
            ]
            cells.draw(tables, "learn_rotation_undo", fill=1)
    case "layer":
        found = cache.cached(LAYER_X, "lesson rotation", layers)
        plain, full = found[SIZES[0]], found[SIZES[-1]]
        words.markdown(
            "A layer of 64 inputs, one of which is an outlier channel; x and w in int4, with a scale per "
            "token and per output. Rotating all 64 channels together lowers max|x| from "
            f"{plain[1]:.3g} to {full[1]:.3g}, and the SQNR of the output changes by "
            f"{difference(full[0], plain[0]):+.1f} dB. Smaller rotations spread the outlier less far."
        )
        with picture:
            bars = {
                "no rotation" if size == 1 else f"{size} channels": max(quality, 0.0)
                for size, (quality, _) in found.items()
            }
            texts = [f"{qc.decibels(quality)},<br>max|x| {reach:.3g}" for quality, reach in found.values()]
            views.figure(
                lessons.bars(bars, texts, "SQNR of the output (dB)", **frame.plot_style()),
                "learn_rotation_layer",
            )
    case "question":
        spike = torch.zeros(1, 64)
        spike[0, 1] = 8
        reach = float(outputs.hadamard(torch.ones(1, 64), spike).x.abs().max())
        with words:
            st.markdown("A token has 64 channels: one is **8**, all others are 0.")
            question.ask(
                NAME,
                "What is the largest magnitude after a rotation of all 64?",
                {
                    "0.125": "That is 8/64. Q divides by √64, so that the sum of the squares stays the same.",
                    f"{reach:g}": f"8/√64 = {reach:g}, in every channel: 64·{reach:g}² = 8².",
                    "8": "Every channel of x·Q is ±8/√64, since each entry of H is ±1.",
                },
                f"{reach:g}",
            )
        with picture:
            channels = spike.reshape(8, 8).numpy().astype(int)  # in eight rows they fill their place
            table = cells.MarkedTable("x", channels, note="its 64 channels, row by row", index=False)
            cells.draw([table], "learn_rotation_question", fill=1)
frame.foot("Ashkboos et al. 2024, QuaRot, arXiv 2404.00456, section 3")
