"""Lesson 3: which elements share a scale, how scales broadcast, and what they cost."""

import numpy as np
import streamlit as st
import torch

import quantcore as qc
from pages.shared import cells, compute, lesson, lesson_view

STEPS = {
    "tensor": "One scale for all: the largest value rules",
    "rows": "One scale a row: axis 0, scales of shape (4, 1)",
    "columns": "One scale a column: axis 1, scales of shape (1, 6)",
    "trap": "A scale of shape (n,) divides columns",
    "groups": "Groups: a scale for a few neighbours",
    "blocks": "Blocks: a scale for a tile",
    "cost": "What every scale costs",
    "yours": "The same on your tensor",
}
ROWS = ["0.11 -0.32 0.05 0.27 -0.14 0.21", "0.40 0.18 -0.35 0.02 0.33 -0.29", "9.60 -4.10 7.20 2.50 -8.80 5.30",
        "-0.06 0.24 0.37 -0.19 0.12 -0.41"]  # fmt: skip
X = np.array([row.split() for row in ROWS], np.float32)
TENSOR = lesson_view.own("outlier row", X)
BITS = qc.INT4


def found(granularity: qc.Granularity) -> tuple[qc.Quantized, qc.Report]:
    """The result and report of the lesson's tensor."""
    scheme = qc.Scheme(BITS, granularity=granularity)
    return compute.result(TENSOR, scheme), compute.report(TENSOR, scheme)


def blocks(result: qc.Quantized) -> np.ndarray:
    """The number of each element's block."""
    number = torch.arange(result.scale.numel(), dtype=torch.float32).view(result.scale.shape)
    ones = torch.ones(result.x.shape, dtype=torch.int8)
    return qc.dequantize(ones, number, 0, result.scheme).numpy().astype(int)


def key_figures(result: qc.Quantized, report: qc.Report) -> None:
    """How many scales, what they cost, how good the result is."""
    bits = qc.bits_per_element(result.scheme, X.shape)
    lesson_view.figures(
        ("shape of the scales", str(tuple(result.scale.shape))),
        ("SQNR", qc.decibels(report.sqnr_db)),
        ("elements that became 0", f"{int((result.dequantized == 0).sum())} of {X.size}"),
        ("bits per element", f"{bits:.3g}"),
    )


def coloured(granularity: qc.Granularity, key: str) -> None:
    """Draw the tensor, its scales and its codes, the elements that share a scale in one colour."""
    result, report = found(granularity)
    tint = cells.tints(blocks(result))
    own = cells.tints(np.arange(result.scale.numel()).reshape(result.scale.shape))
    tables = [
        cells.Table("x", X, tint, str(X.shape)),
        cells.Table("scale s", result.scale.numpy(), own, str(tuple(result.scale.shape))),
        cells.Table("codes", result.codes.numpy(), tint, str(X.shape)),
    ]
    cells.draw(tables, key)
    if result.scale.numel() > cells.TINTS:
        st.caption("The small numbers count the blocks: cells with the same number share a scale.")
    key_figures(result, report)


def broadcast(result: qc.Quantized, axis: int) -> None:
    """Draw how the maximum along an axis becomes scales, and these stand beside every element."""
    largest = np.abs(X).max(axis=1 - axis, keepdims=True)
    tint, own = cells.tints(blocks(result)), cells.tints(np.arange(X.shape[axis]).reshape(largest.shape))
    scale = result.scale.numpy()
    tables = [
        cells.Table("x", X, tint, str(X.shape)),
        cells.Table("max|x|", largest, own, f"{largest.shape}, keepdim"),
        cells.Table("scale s = max|x| / 7", scale, own, str(scale.shape)),
        cells.Table("s as broadcasting sees it", np.broadcast_to(scale, X.shape), tint, str(X.shape)),
        cells.Table("codes = round(x / s)", result.codes.numpy(), tint, str(X.shape)),
    ]
    cells.draw(tables, f"learn_granularity_{axis}")


step = lesson.head("granularity", STEPS)
match step:
    case "tensor":
        st.markdown(
            "Row 2 is some twenty times larger than the others. One scale must reach 9.6, so its step is wider than "
            "everything the other rows hold: they become 0."
        )
        result, report = found(qc.PerTensor())
        tables = [cells.Table("x", X), cells.Table("codes", result.codes.numpy())]
        cells.draw([*tables, cells.Table("x̂", result.dequantized.numpy())], "learn_granularity_all")
        key_figures(result, report)
    case "rows":
        st.markdown(
            "**per-channel, axis 0**: axis 0 counts the rows, so each row gets a scale. The maximum is taken along the "
            "*other* axis, and `keepdim` leaves a 1 in its place: (4, 6) becomes (4, 1). In x / s that 1 is stretched "
            "to 6, so every element of a row meets the scale of its row."
        )
        result, report = found(qc.PerChannel(0))
        broadcast(result, 0)
        key_figures(result, report)
    case "columns":
        st.markdown(
            "**per-channel, axis 1**: the maximum along axis 0 leaves (1, 6), stretched downwards to (4, 6). Each "
            "column has one value of the large row 2, so these scales help little. Which axis is right depends on "
            "the data: for the weights of a linear layer it is usually that of the outputs, axis 0."
        )
        result, report = found(qc.PerChannel(1))
        broadcast(result, 1)
        key_figures(result, report)
    case "trap":
        st.markdown(
            "Broadcasting lines shapes up **from the right**: a scale of shape (n,) counts as (1, n), one a column. For "
            "a square tensor nothing fails, and the scales of the rows divide the columns. Write (n, 1), or `keepdim`."
        )
        square = np.array([[1, 2, 3], [4, 5, 6], [7, 8, 9]], np.float32)
        scales = np.array([1, 5, 10], np.float32)
        by_row, by_column = (
            cells.tints(np.arange(3)[:, None].repeat(3, 1)),
            cells.tints(np.arange(3)[None].repeat(3, 0)),
        )
        tables = [
            cells.Table("x", square, note="(3, 3)"),
            cells.Table("s of the rows", scales[:, None], by_row[:, :1], "(3, 1)"),
            cells.Table("x / s, meant", square / scales[:, None], by_row, "right"),
            cells.Table("s without keepdim", scales, by_column[:1], "(3,)"),
            cells.Table("x / s, what it gives", square / scales, by_column, "wrong, in silence"),
        ]
        cells.draw(tables, "learn_granularity_trap")
        lesson_view.formula(
            "(3, 3)        (3, 3)",
            "(3, 1)             (3,)  counts as (1, 3)",
            "------        ------",
            "(3, 3)        (3, 3)",
        )
    case "groups":
        st.markdown(
            "A **group** is a run of neighbours along an axis: finer than a channel, and one large value spoils only its "
            "group. The scales stand in block form: shape (4, 6) in groups of 3 along axis 1 has scales of (4, 2)."
        )
        size = st.segmented_control(
            "Group size",
            [1, 2, 3, 6],
            default=3,
            key="learn_granularity_size",
            required=True,
            bind="query-params",
        )
        coloured(qc.PerGroup(int(size), 1), "learn_granularity_groups")
    case "blocks":
        st.markdown(
            "A **block** is a rectangle: neighbours along both axes share a scale; DeepSeek-V3 stores its weights so, in "
            "blocks of 128 × 128. A row is the block (1, 6), a group of 3 the block (1, 3), the whole tensor the block "
            "(4, 6): one rule for all of them, and the scales have as many rows and columns as there are blocks."
        )
        rows, columns = st.columns(2)
        down = rows.segmented_control(
            "Rows of a block",
            [1, 2, 4],
            default=2,
            key="learn_granularity_down",
            required=True,
            bind="query-params",
        )
        across = columns.segmented_control(
            "Columns of a block",
            [1, 2, 3, 6],
            default=3,
            key="learn_granularity_across",
            required=True,
            bind="query-params",
        )
        coloured(qc.PerBlock((int(down), int(across))), "learn_granularity_blocks")
    case "cost":
        st.markdown(
            "Every scale is a float32 of 32 bits, shared out over its block: **bits per element = bits of a code + 32 / "
            "elements of a block**. On 24 elements scales are dear; in a layer of 4096 × 4096 a scale a row costs 0.008 "
            "bits, one for each group of 32 a whole bit."
        )
        shape, rows = (4096, 4096), []
        kinds = {"tensor": qc.PerTensor(), "row (axis 0)": qc.PerChannel(0), "column (axis 1)": qc.PerChannel(1),
                 "group of 3": qc.PerGroup(3, 1), "block of 2 × 3": qc.PerBlock((2, 3))}  # fmt: skip
        for name, kind in kinds.items():
            result, report = found(kind)
            rows.append(
                {
                    "int4, one scale per": name,
                    "shape of the scales": str(tuple(result.scale.shape)),
                    "bits per element here": f"{qc.bits_per_element(result.scheme, X.shape):.3g}",
                    "SQNR here": qc.decibels(report.sqnr_db),
                }
            )
        lesson_view.table(rows)
        large = {f"group of {n}": qc.PerGroup(n) for n in (16, 32, 64, 128)} | {"row": qc.PerChannel(0)}
        lesson_view.table(
            [
                {
                    "in 4096 × 4096, int4": k,
                    "bits per element": f"{qc.bits_per_element(qc.Scheme(BITS, granularity=g), shape):.4g}",
                }
                for k, g in large.items()
            ]
        )
    case "yours":
        st.markdown(
            "Your tensor and scheme from the sidebar: choose there what shares one scale. Lines part the blocks; the "
            "dashed frame is the block of the chosen element."
        )
        if chosen := lesson_view.yours():
            lesson_view.explored("granularity", *chosen)
lesson.foot(
    "Nagel et al. 2021, arXiv 2106.08295, section 2.4",
    "Broadcasting: numpy.org/doc/stable/user/basics.broadcasting.html",
    "Blocks of 128 × 128: DeepSeek-V3, arXiv 2412.19437, section 3.3.2",
)
