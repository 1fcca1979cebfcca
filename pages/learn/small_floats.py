"""Lesson: floats of 4 bits, and blocks whose scales have few bits themselves: MXFP4 and NVFP4."""

import streamlit as st
import torch

import quantcore as qc
from pages.learn import frame, question, views
from pages.maps import cells
from pages.shared.charts import theme
from pages.shared.computing import cache
from pages.shared.state import choice
from pages.shared.state.selection import generated
from quantcore import figures, tensors
from quantcore.figures import typography
from quantcore.wording import difference, signed

NAME = "small_floats"
MX, NV = qc.PRESETS["torchao.mxfp4"], qc.PRESETS["torchao.nvfp4"]
NAMES = {"mx": "MXFP4", "nv": "NVFP4"}
SHARES = (0.05, -0.18, 0.44, 0.12, -0.03, 1.0, 0.24, -0.56)  # of the block's largest number; repeated
DATA = generated(tensors.Generated("normal", (64, 256), seed=1))
KINDS = {
    "e2m1, a float32 scale per 32": qc.Scheme.parse("e2m1 per_group(32)"),
    "MXFP4: e8m0 per 32": MX,
    "NVFP4: e4m3 per 16": NV,
    "int4, a float32 scale per 32": qc.Scheme.parse("int4 per_group(32)"),
}
E2M1 = qc.apply([[0.0, 0.5, 1, 1.5, 2, 3, 4, 6]], "e2m1 per_tensor given(1)")  # by their codes
LINES = {"e2m1": [*-E2M1.dequantized[0], *E2M1.dequantized[0]], "int4": list(range(-8, 8))}


def block(largest: float) -> torch.Tensor:
    """Return 32 numbers, of which this is the largest magnitude."""
    return torch.tensor([SHARES * 4]) * largest


step = frame.head(NAME)
words, picture = views.side_by_side((1, 2))
match step:
    case "values":
        with words:
            st.markdown(
                "**e2m1** has a sign, 2 bits of exponent and 1 of mantissa: 16 codes, of which two are 0. "
                "Its values are dense near 0 and sparse at the end, where they are 2 apart; those of int4 "
                "are evenly spaced."
            )
            code = st.slider("Code", 0, 7, 5, key=f"learn_{NAME}_code", bind="query-params")
        values = E2M1.dequantized
        exponent, mantissa = code >> 1, code & 1
        value = 2.0 ** (exponent - 1) * (1 + mantissa / 2) if exponent else mantissa / 2
        lit = [["chosen" if n == code else "" for n in range(8)]]
        line = figures.number_line(LINES, chosen=("e2m1", value), theme=theme())
        line.update_layout(xaxis_title="value", font_size=typography.TEXT, margin={"l": 8})
        line.update_yaxes(range=[1.6, -0.6])
        line.update_traces(marker_size=70, selector={"marker.symbol": "line-ns"})
        with picture:
            views.figure(line, "learn_floats_line")
            tables = [
                cells.MarkedTable("bits", [[f"0 {n >> 1:02b} {n & 1}" for n in range(8)]], lit),
                cells.MarkedTable("value", values.numpy(), lit, "the negative ones have sign 1"),
            ]
            cells.draw(tables, "learn_floats_values")
            written = f"2^({exponent} - 1)·(1 + {mantissa}/2)" if exponent else f"{mantissa}/2, a subnormal"
            views.formula(f"{f'code {code}':<14} {written} = {value:g}")
    case "scales":
        with words:
            st.markdown(
                "A block shares a scale. In **MXFP4** it is a power of two for 32 elements, 8 bits; in "
                "**NVFP4** it is an e4m3 float for 16 elements, times one float32 for the tensor. Change the "
                "largest number: a power of two can't follow it, so it is clipped, or codes stay unused."
            )
            which = choice.segmented("Format", f"learn_{NAME}_format", NAMES)
            largest = st.slider("Largest |x|", 2.0, 16.0, 7.5, 0.5, key=f"learn_{NAME}_largest",
                                bind="query-params")  # fmt: skip
        x = block(largest)
        result = qc.apply(x, MX if which == "mx" else NV)
        report, scale = qc.report(result), float(result.scale[0, 0])
        with words:
            views.figures(
                ("scale", f"{scale:.4g}"),
                ("largest value", f"{6 * scale:.4g}"),
                ("SQNR", qc.decibels(report.sqnr_db)),
            )
        with picture:
            part = slice(0, len(SHARES))
            tables = [
                cells.MarkedTable("x", x[:, part].numpy()),
                cells.MarkedTable("x / s", (x / scale)[:, part].numpy()),
                cells.MarkedTable("x̂", result.dequantized[:, part].numpy()),
                cells.MarkedTable("error", result.error[:, part].numpy()),
            ]
            cells.draw(tables, f"learn_floats_scales_{which}", fill=1)
    case "cost":
        rows, quality = [], {}
        for name, scheme in KINDS.items():
            quality[name] = cache.report(DATA, scheme).sqnr_db
            bits = f"{qc.bits_per_element(scheme, (4096, 4096)):.4g}"
            rows.append({"format": name, "bits per element": bits, "SQNR": qc.decibels(quality[name])})
        float_scale, mx, nv = list(quality.values())[:3]
        words.markdown(
            "Normally distributed numbers in the four formats. A scale that is a power of two saves bits and "
            f"changes the SQNR by {signed(f'{difference(mx, float_scale):+.1f}')} dB against a float32 "
            f"scale; NVFP4's smaller blocks are at {signed(f'{difference(nv, mx):+.1f}')} dB against MXFP4."
        )
        with picture:
            views.table(rows)
    case "question":
        scale = float(qc.apply(block(5.0), MX).scale[0, 0])
        with words:
            question.ask(
                NAME,
                "The largest number of a block is **5**. MXFP4 takes the scale 2^(⌊log2 max⌋ − 2). Which?",
                {
                    f"{scale:g}": f"⌊log2 5⌋ = 2, so the scale is 2^0 = {scale:g}, and 6 the largest value.",
                    "0.833": "That is 5/6, which would use all values, but it is not a power of two.",
                    "2": "That is rounding up: 5/2 fits too, but the values above it stay unused.",
                },
                f"{scale:g}",
            )
        with picture:
            numbers = block(5.0)[0, : len(SHARES)].reshape(4, 2).numpy()  # in four rows they fill their place
            note = f"the first {len(SHARES)} of the block's 32 numbers, row by row"
            table = cells.MarkedTable("x", numbers, note=note, index=False)
            cells.draw([table], "learn_floats_asked", fill=1)
frame.foot(
    "OCP Microscaling Formats (MX) 1.0, section 6.3",
    "Rouhani et al. 2023, Microscaling Data Formats for Deep Learning, arXiv 2310.10537",
)
