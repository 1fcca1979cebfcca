"""Lesson: which elements share a scale, how scales broadcast, and what they cost."""

import numpy as np
import streamlit as st
import torch

import quantcore as qc
from pages.learn import choices, frame, views
from pages.learn.material import OUTLIER_ROW as X
from pages.maps import cells
from pages.shared.computing import cache
from pages.shared.state import selection
from pages.shared.state.selection import of_values
from quantcore.wording import difference

TENSOR = of_values(X, "outlier row")
BITS = qc.INT4


def found(granularity: qc.Granularity) -> tuple[qc.Quantized, qc.Report]:
    """Return the result and report of the lesson's tensor."""
    scheme = qc.Scheme(BITS, granularity=granularity)
    return cache.result(TENSOR, scheme), cache.report(TENSOR, scheme)


def key_figures(result: qc.Quantized, report: qc.Report) -> None:
    """Draw the shape of the scales, their cost and the quality of the result."""
    bits = qc.bits_per_element(result.scheme, X.shape)
    views.figures(
        ("shape of the scales", str(tuple(result.scale.shape))),
        ("SQNR", qc.decibels(report.sqnr_db)),
        ("elements that became 0", f"{int((result.dequantized == 0).sum())} of {X.size}"),
        ("bits per element", f"{bits:.3g}"),
    )


def tints(result: qc.Quantized) -> tuple[np.ndarray, np.ndarray]:
    """Return the colors of the elements and of their scales: elements that share a scale have the same."""
    numbers = torch.arange(result.scale.numel(), dtype=torch.float32).view(result.scale.shape)
    ones = torch.ones(result.x.shape, dtype=torch.int8)
    of_elements = qc.dequantize(ones, numbers, 0, result.scheme)  # the number of each element's block
    return cells.tints(of_elements.numpy().astype(int)), cells.tints(numbers.numpy().astype(int))


def coloured(granularity: qc.Granularity, key: str) -> None:
    """Draw the tensor, its scales and its codes; elements that share a scale have the same color."""
    result, report = found(granularity)
    tint, own = tints(result)
    tables = [
        cells.MarkedTable("x", X, tint, str(X.shape)),
        cells.MarkedTable("scale s", result.scale.numpy(), own, str(tuple(result.scale.shape))),
        cells.MarkedTable("codes", result.codes.numpy(), tint, str(X.shape)),
    ]
    with picture:
        cells.draw(tables, key, fill=1)
        if result.scale.numel() > cells.TINTS:
            st.caption(
                "The small numbers are the indices of the blocks: cells with the same number share a scale."
            )
    with words:
        key_figures(result, report)


def broadcast(axis: int) -> None:
    """Draw how maxima along an axis become scales, and how broadcasting repeats them."""
    result, report = found(qc.PerChannel(axis))
    largest, scale = np.abs(X).max(axis=1 - axis, keepdims=True), result.scale.numpy()
    tint, own = tints(result)
    tables = [
        cells.MarkedTable("x", X, tint, str(X.shape)),
        cells.MarkedTable("max|x|", largest, own, str(largest.shape)),
        cells.MarkedTable("s = max|x| / 7", scale, own, str(scale.shape)),
        cells.MarkedTable("s, broadcast", np.broadcast_to(scale, X.shape), tint, str(X.shape)),
        cells.MarkedTable("codes = round(x / s)", result.codes.numpy(), tint, str(X.shape)),
    ]
    with words:
        key_figures(result, report)
    with picture:
        cells.draw(tables, f"learn_granularity_{axis}", fill=1)


step = frame.head("granularity")
words, picture = views.side_by_side(views.for_maps() if step == "yours" else (1, 2))
match step:
    case "tensor":
        result, report = found(qc.PerTensor())
        reach = np.abs(X).max(1)
        outlier = int(reach.argmax())
        zeros = int((np.delete(result.dequantized.numpy(), outlier, 0) == 0).sum())
        others = X.size - X.shape[1]
        words.markdown(
            f"Row {outlier} reaches {reach.max():g}, the other rows at most "
            f"{np.delete(reach, outlier).max():g}. A single scale must cover {reach.max():g}, so its step is "
            f"{float(result.scale):.3g}: {'all' if zeros == others else f'{zeros} of the'} {others} elements "
            "of the other rows become 0."
        )
        with words:
            key_figures(result, report)
        tables = [cells.MarkedTable("x", X), cells.MarkedTable("codes", result.codes.numpy())]
        with picture:
            cells.draw(
                [*tables, cells.MarkedTable("x̂", result.dequantized.numpy())], "learn_granularity_all", fill=1
            )
    case "rows":
        words.markdown(
            "**per-channel, axis 0**: axis 0 indexes the rows, so each row has its own scale. The maximum "
            "is taken along the *other* axis; `keepdim` keeps that axis with length 1, so (4, 6) becomes "
            "(4, 1). In x / s, broadcasting repeats that column 6 times: every element is divided by the "
            "scale of its row."
        )
        broadcast(0)
    case "columns":
        plain = found(qc.PerTensor())[1].sqnr_db
        gains = [difference(found(qc.PerChannel(a))[1].sqnr_db, plain) for a in (1, 0)]
        words.markdown(
            "**per-channel, axis 1**: the maximum along axis 0 has shape (1, 6) and is repeated over the 4 "
            "rows. Every column contains a value of the large row, so one scale per column gains only "
            f"{gains[0]:.1f} dB over per-tensor; one per row gains {gains[1]:.1f} dB. The right axis depends "
            "on the data: for the weights of a linear layer it is usually that of the outputs, axis 0."
        )
        broadcast(1)
    case "trap":
        words.markdown(
            "Broadcasting aligns shapes **from the right**: a scale of shape (n,) is read as (1, n), one "
            "per column. With a square tensor nothing fails, and the scales of the rows silently divide the "
            "columns. Use shape (n, 1), or `keepdim`."
        )
        square = np.array([[1, 2, 3], [4, 5, 6], [7, 8, 9]], np.float32)
        scales = np.array([1, 5, 10], np.float32)
        by_row, by_column = (
            cells.tints(np.arange(3)[:, None].repeat(3, 1)),
            cells.tints(np.arange(3)[None].repeat(3, 0)),
        )
        tables = [
            cells.MarkedTable("x", square, note="(3, 3)"),
            cells.MarkedTable("s per row", scales[:, None], by_row[:, :1], "(3, 1)"),
            cells.MarkedTable("x / s, intended", square / scales[:, None], by_row, "correct"),
            cells.MarkedTable("s without keepdim", scales, by_column[:1], "(3,)"),
            cells.MarkedTable("x / s, actual", square / scales, by_column, "silently wrong"),
        ]
        with picture:
            cells.draw(tables, "learn_granularity_trap", fill=1)
        with words:
            views.formula(
                "(3, 3)     (3, 3)",
                "(3, 1)        (3,)  as (1, 3)",
                "------     ------",
                "(3, 3)     (3, 3)",
            )
    case "groups":
        with words:
            st.markdown(
                "A **group** is a run of neighbors along an axis, finer than a channel: a large value costs "
                "precision only within its group. There is one scale per group: groups of 3 along axis 1 of "
                "(4, 6) have scales of shape (4, 2)."
            )
            size = st.segmented_control("Group size", [1, 2, 3, 6], default=3, key="learn_granularity_size",
                                        required=True, bind="query-params")  # fmt: skip
        coloured(qc.PerGroup(int(size), 1), "learn_granularity_groups")
    case "blocks":
        with words:
            st.markdown(
                "A **block** is a rectangle: neighbors along both axes share a scale. DeepSeek-V3 stores "
                "its weights in blocks of 128 × 128. A row is the block (1, 6), a group of 3 the block (1, "
                "3), the whole tensor the block (4, 6); there is one scale per block."
            )
            rows, columns = st.columns(2)
        down = rows.segmented_control("Rows of a block", [1, 2, 4], default=2, key="learn_granularity_down",
                                      required=True, bind="query-params")  # fmt: skip
        across = columns.segmented_control("Columns of a block", [1, 2, 3, 6], default=3,
                                           key="learn_granularity_across", required=True,
                                           bind="query-params")  # fmt: skip
        coloured(qc.PerBlock((int(down), int(across))), "learn_granularity_blocks")
    case "cost":
        shape, costs = (4096, 4096), []
        of_layer: dict[str, qc.Granularity] = {f"group of {n}": qc.PerGroup(n) for n in (16, 32, 64, 128)}
        of_layer["row"] = qc.PerChannel(0)
        large = {
            kind: qc.bits_per_element(qc.Scheme(BITS, granularity=g), shape) for kind, g in of_layer.items()
        }
        words.markdown(
            "A scale takes 32 bits (float32), shared by the elements of its block: **bits per element = "
            f"bits per code + 32 / elements per block**. With {X.size} elements, scales are expensive. In a "
            f"layer of 4096 × 4096, one scale per row costs {large['row'] - BITS.bits:.2g} bits per element, "
            f"one per group of 32 costs {large['group of 32'] - BITS.bits:.2g}."
        )
        kinds: dict[str, qc.Granularity] = {
            "tensor": qc.PerTensor(),
            "row (axis 0)": qc.PerChannel(0),
            "column (axis 1)": qc.PerChannel(1),
            "group of 3": qc.PerGroup(3, 1),
            "block of 2 × 3": qc.PerBlock((2, 3)),
        }
        for name, kind in kinds.items():
            result, report = found(kind)
            costs.append(
                {
                    "one scale per": name,
                    "scales": str(tuple(result.scale.shape)),
                    "bits per element": f"{qc.bits_per_element(result.scheme, X.shape):.3g}",
                    "SQNR": qc.decibels(report.sqnr_db),
                }
            )
        with picture:
            here, layer = st.columns([3, 2])
        with here:
            st.caption("This tensor in int4")
            views.table(costs)
        with layer:
            st.caption("4096 × 4096 in int4")
            views.table(
                [{"one scale per": k, "bits per element": f"{v:.4g}"} for k, v in large.items()], "layer"
            )
    case "yours":
        words.markdown(
            "Your tensor and scheme from the sidebar: choose which elements share a scale. Lines separate "
            "the blocks; the dashed frame marks the block of the chosen element."
        )
        if tensor := selection.get().tensor:
            with words:
                choices.choose("One scale per", "granularity", choices.granularities(tensor.shape))
        if chosen := views.yours():
            views.explore("granularity", *chosen, words, picture)
frame.foot(
    "Nagel et al. 2021, arXiv 2106.08295, section 2.4",
    "Broadcasting: numpy.org/doc/stable/user/basics.broadcasting.html",
    "Blocks of 128 × 128: DeepSeek-V3, arXiv 2412.19437, section 3.3.2",
)
