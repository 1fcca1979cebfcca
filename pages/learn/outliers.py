"""Lesson: activations have outlier channels, and SmoothQuant moves them into the weights."""

import numpy as np
import streamlit as st

import quantcore as qc
from pages.learn import frame, hand, question, views
from pages.learn.hand import Handle, MovedNumber
from pages.maps import cells
from pages.shared.computing import cache
from pages.shared.state.selection import generated, of_values
from quantcore import outputs, tensors
from quantcore.figures import lessons
from quantcore.wording import difference

NAME = "outliers"
# the example of the paper's figure 5; w is [out, in] here
X = np.array([[1, -16, 2, 6], [-2, 8, -1, -9]], np.float32)
W = np.array([[2, 1, 2, -1], [1, -1, -1, -1], [-2, -1, -2, 1]], np.float32)
SMALL = of_values(X, "smoothquant x")
LAYER_X = generated(tensors.Generated("outlier_channel", (128, 64), seed=1))
LAYER_W = generated(tensors.Generated("normal", (48, 64), seed=2))
X_SCHEME, W_SCHEME = "int8 per_tensor", "int8 per_channel(0)"
ALPHA = MovedNumber(f"learn_{NAME}_alpha", 0.0, 1.0, 0.05, "α")
ALPHAS = [round(0.05 * i, 2) for i in range(21)]


def alpha_slider() -> float:
    """Draw the slider of α; its value is kept from step to step by the link."""
    return float(st.slider("α", 0.0, 1.0, 0.5, 0.05, key=ALPHA.key, bind="query-params"))


def curves() -> dict[str, list[float]]:
    """Return the output's SQNR for every α: of both quantized, and of x or w alone."""
    x, w = cache.values(LAYER_X), cache.values(LAYER_W)
    names = {"x and w in int8": (W_SCHEME, X_SCHEME), "only x": (None, X_SCHEME), "only w": (W_SCHEME, None)}
    found: dict[str, list[float]] = {name: [] for name in names}
    for alpha in ALPHAS:
        smooth = outputs.smoothquant(x, w, alpha)
        for name, (w_scheme, x_scheme) in names.items():
            found[name].append(outputs.layer(smooth.x, smooth.w, w_scheme, x_scheme).sqnr_db)
    return found


def quality(found: dict[str, list[float]], values: hand.Values, theme: str) -> hand.MovedStep:
    """Return the step on how much should move."""
    both, alpha = found["x and w in int8"], values[ALPHA.key]
    best = ALPHAS[int(np.argmax(both))]
    sentence = (
        "A layer of 64 inputs, one of which is an outlier channel. At α = 0 the outlier stays in x, at α = 1 "
        f"it is in w; now α = {ALPHA.scrub(alpha)}. The best of these is α = {best:g}: "
        f"{difference(max(both), both[0]):+.1f} dB against α = 0, "
        f"{difference(max(both), both[-1]):+.1f} dB against α = 1."
    )
    at = ALPHAS.index(round(alpha, 2))
    numbers = views.written_figures(*((name, qc.decibels(curve[at])) for name, curve in found.items()))
    html = {hand.WORDS: f"<p>{sentence}</p>", hand.NUMBERS: numbers}
    figure = lessons.quality_against(ALPHAS, found, alpha, "α", theme=theme)
    return hand.MovedStep(figure, (Handle(ALPHA),), html, "SQNR of the output against α")


step = frame.head(NAME)
# tables side by side need the width more than the text does
words, picture = views.side_by_side((1, 3) if step in ("channels", "question") else (1, 2))
match step:
    case "channels":
        result = cache.result(SMALL, qc.Scheme(qc.INT4))
        reach = np.abs(X).max(0)
        outlier = int(reach.argmax())
        zeros = int((result.dequantized == 0).sum())
        words.markdown(
            f"Two tokens, four input channels. Channel {outlier} reaches {reach[outlier]:g}, channel "
            f"{int(reach.argmin())} only {reach.min():g}. One scale for x must cover {reach[outlier]:g}: in "
            f"int4 its step is {float(result.scale):.3g}, and {zeros} of {X.size} elements become 0. In real "
            "models the same few channels are large in every token, so a scale per token does not help; "
            "and a scale per channel of x can't be taken out of the sum over channels."
        )
        with picture:
            lit = np.where(np.arange(4) == outlier, "tint4", "").astype("<U6")
            tables = [
                cells.MarkedTable("x", X, np.tile(lit, (2, 1)), "2 tokens × 4 channels"),
                cells.MarkedTable("max|x|", reach[None], lit[None]),
                cells.MarkedTable("codes in int4", result.codes.numpy(), np.tile(lit, (2, 1))),
                cells.MarkedTable("x̂", result.dequantized.numpy(), np.tile(lit, (2, 1))),
            ]
            cells.draw(tables, "learn_outliers_channels", fill=1)
    case "move":
        with words:
            st.markdown(
                "Divide channel j of x by **s_j**, and multiply column j of w by it: the product stays the "
                "same. **s_j = max|x_j|^α / max|w_j|^(1−α)**. α says how much of the outlier moves into "
                "the weights."
            )
            alpha = alpha_slider()
        smooth = outputs.smoothquant(X, W, alpha)
        before, after = X @ W.T, (smooth.x @ smooth.w.T).numpy()
        with words:
            views.figures(
                ("max|x / s|", f"{float(smooth.x.abs().max()):.3g}"),
                ("max|w·s|", f"{float(smooth.w.abs().max()):.3g}"),
                ("change of x·wᵀ", f"{np.abs(after - before).max():.1g}"),
            )
        with picture:
            tables = [
                cells.MarkedTable("x", X),
                cells.MarkedTable("w", W),
                cells.MarkedTable("s", smooth.scale.numpy()),
                cells.MarkedTable("x / s", smooth.x.numpy()),
                cells.MarkedTable("w·s", smooth.w.numpy()),
            ]
            cells.draw(tables, "learn_outliers_move", fill=1)
            j, reach = 1, (float(np.abs(X[:, 1]).max()), float(np.abs(W[:, 1]).max()))
            views.formula(
                f"{f's_{j}':<14} {reach[0]:g}^{alpha:g} / {reach[1]:g}^{1 - alpha:.4g} = "
                f"{float(smooth.scale[j]):.4g}"
            )
    case "quality":
        found = cache.cached(LAYER_X, "lesson outliers", curves)
        with words:
            alpha = alpha_slider()
        theme = frame.plot_style()["theme"]
        hand.draw(lambda values: quality(found, values, theme), {ALPHA: alpha}, words, picture)
    case "question":
        with words:
            answered = question.ask(
                NAME,
                "Take **α = 1**. What is the largest magnitude of each channel of x / s?",
                {
                    "1": "At α = 1, s_j = max|x_j|, so every channel of x / s reaches 1. The outliers are "
                    "now in w·s.",
                    "max|w|": "At α = 1 the exponent of max|w_j| is 0, so it does not matter how large the "
                    "weights are.",
                    "as before": "Then s would have to be 1; at α = 1 it is max|x_j|.",
                },
                "1",
            )
        smooth = outputs.smoothquant(X, W, 1.0)
        with picture:
            shown_tables = [cells.MarkedTable("x", X), cells.MarkedTable("w", W)]
            if answered:
                shown_tables += [
                    cells.MarkedTable("s", smooth.scale.numpy()),
                    cells.MarkedTable("x / s", smooth.x.numpy()),
                    cells.MarkedTable("w·s", smooth.w.numpy()),
                ]
            cells.draw(shown_tables, "learn_outliers_question", fill=1)
frame.foot(
    "Xiao et al. 2023, SmoothQuant, arXiv 2211.10438, equation 4 and figure 5",
    "Outlier channels: Dettmers et al. 2022, LLM.int8(), arXiv 2208.07339, section 4",
)
