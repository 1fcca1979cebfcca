"""One output: its dot product term by term, the parts of its error, and the path of its integers."""

import streamlit as st
from torch import Tensor

import quantcore as qc
from pages.maps import arithmetic
from pages.outputs.layer import controls, keys
from pages.outputs.layer.run import ShownLayer
from pages.shared import messages
from pages.shared.computing import cache
from pages.shared.state import choice
from quantcore import outputs
from quantcore.outputs import IntegerLayer, LayerOutput, OutputTerms
from quantcore.wording import count, joined

ROWS = 256  # terms of the table
OUTPUTS = {"uint8": "uint8 asymmetric", "int8": "int8 symmetric"}
ACCUMULATORS = {"32": "32 bits", "24": "24 bits", "16": "16 bits"}
_BOUND = 8.0  # times the layer: differences, and ten products of norms as float64
_NEED = 8.0  # times the layer: codes as float64, and the sums as int64


def dot_product(done: ShownLayer, at: tuple[int, int]) -> None:
    """Draw the terms of an output, the largest errors first, and the parts of its error."""
    terms = cache.cached_small(done.content, f"terms {at}", lambda: done.found.terms(*at))
    left, right = st.columns([3, 2], gap="medium")
    with left:
        _table(terms)
    with right:
        messages.lines(part_lines(terms, done.found), arithmetic.PLACE, heading=heading(terms))
        st.caption(messages.plain(leading_sentence(terms)))
        make = lambda: float(done.found.bound[at])  # noqa: E731
        bound = cache.cached_small(done.content, f"bound {at}", make, _BOUND)
        st.caption(messages.plain(float_sentence(done.found, at, bound)))


def float_sentence(found: LayerOutput, at: tuple[int, int], bound: float) -> str:
    """Say how far the parts are from ŷ − y in float32, and the ``bound`` that is derived for that."""
    parts = sum(float(part[at]) for part in found.parts.values())
    rest = abs(float(found.y_hat[at]) - float(found.y[at]) - parts)
    are = "add up to" if len(found.parts) > 1 else "equals"
    return (
        f"In float32, {joined(list(found.parts))} {are} ŷ − y to within {rest:.1e}; float32's own rounding "
        f"explains up to {bound:.1e}."
    )


def heading(terms: OutputTerms) -> str:
    """Name the output."""
    return f"y[{terms.token}, {terms.channel}]: token {terms.token}, output channel {terms.channel}"


def part_lines(terms: OutputTerms, found: LayerOutput) -> list[str]:
    """Return the output before and after, its error and the parts of that, one per line."""
    plus = " + bias" if found.bias is not None else ""
    names = (outputs.OF_WEIGHTS, outputs.OF_ACTIVATIONS, outputs.OF_BOTH)
    parts = [(name, part) for name, part in zip(names, terms.parts, strict=True) if name in found.parts]
    steps = [
        qc.Step("y", f"Σ x·w{plus}", _number(terms.y)),
        qc.Step("ŷ", f"Σ x̂·ŵ{plus}", _number(terms.y_hat)),
        *(qc.Step(name, f"Σ of {len(terms.x):,} terms", _number(part)) for name, part in parts),
        qc.Step("ŷ − y", "their sum" if len(parts) > 1 else "Σ error", _number(terms.y_hat - terms.y)),
    ]
    return arithmetic.aligned(steps)


def leading_sentence(terms: OutputTerms) -> str:
    """Say how many terms carry the error."""
    number, every = terms.leading, count(len(terms.x), "term")
    if not number:
        return f"None of the {every} changes."
    which = f"one term, k = {int(terms.order[0])}" if number == 1 else f"{number:,} terms"
    return f"● At least half of Σ|error| comes from {which}, of {every}."


def _number(value: float) -> str:
    return f"{value: .6g}".replace("-", "−")


def _table(terms: OutputTerms) -> None:
    import pandas as pd

    order = terms.order[:ROWS]
    columns = {
        "x": terms.x, "w": terms.w, "x·w": terms.products, "x̂": terms.x_hat, "ŵ": terms.w_hat,
        "x̂·ŵ": terms.quantized, "error": terms.errors,
    }  # fmt: skip
    marks = ["●" if place < terms.leading else "" for place in range(len(order))]
    frame = pd.DataFrame({"": marks, "k": order.numpy()} | {n: v[order].numpy() for n, v in columns.items()})
    config = {name: st.column_config.NumberColumn(name, format="%.4g") for name in columns}
    mark = st.column_config.TextColumn("", width=28, help="These terms make half of Σ|error|")
    st.dataframe(frame, hide_index=True, column_config={**config, "": mark})
    if len(terms.x) > ROWS:
        st.caption(f"The {ROWS} terms with the largest errors, of {len(terms.x):,}.")


def integer_path(done: ShownLayer, at: tuple[int, int]) -> None:
    """Draw the arithmetic of an output by integers alone, or say why there is none."""
    found = done.found
    if found.activation is None:
        messages.hint("The integer path needs integer codes of x: quantize x, above the maps.")
        return
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        fmt = choice.segmented("Codes of the output", keys.OUTPUT, OUTPUTS, width="content")
        help_ = "What the sum must fit in; hardware mostly has 32 bits. Fewer overflow earlier."
        bits = choice.segmented("Accumulator", keys.BITS, ACCUMULATORS, width="content", help=help_)
    try:
        paths = of_integers(done, OUTPUTS[fmt], int(bits))
    except qc.QuantError as error:
        messages.hint(str(error))
        return
    messages.lines(path_lines(paths, at), arithmetic.PLACE, heading=f"Integer path of y[{at[0]}, {at[1]}]")
    overflows, differs = paths[outputs.FLOAT].product.overflows, rounded_differently(paths)
    _sentence(overflow_sentence(paths[outputs.FLOAT]), overflows, at)
    _sentence(rounding_sentence(paths, at), differs, at)


def _sentence(text: str, where: Tensor, at: tuple[int, int]) -> None:
    """Draw a sentence about the outputs ``where`` something happens, and the way to the first of them."""
    st.caption(messages.plain(text))
    if bool(where.any()) and not bool(where[at]):
        first = (int(where.nonzero()[0, 0]), int(where.nonzero()[0, 1]))
        st.button(
            f"Show y[{first[0]}, {first[1]}]", key=f"_{text[:3]}", on_click=controls.pick, args=(first,)
        )


Paths = dict[str, IntegerLayer]  # by how the output is requantized


def of_integers(done: ShownLayer, output_scheme: str, bits: int) -> Paths:
    """Return the layer by integers, requantized in each way.

    Raises:
        QuantError: it has none.
    """
    found = done.found

    def make() -> Paths:
        assert found.activation is not None
        assert found.weight is not None
        first = outputs.integer_layer(
            found.activation, found.weight, found.bias, output_scheme, accumulator_bits=bits
        )
        return {how: first.requantized(how) for how in outputs.REQUANTIZATIONS}

    return cache.cached(done.content, f"integers {output_scheme} {bits}", make, _NEED)


def path_lines(paths: Paths, at: tuple[int, int]) -> list[str]:
    """Return the lines of the integer path: sums, accumulator, scale, and the three requantizations."""
    first, *_ = paths.values()
    shared = first.sum_lines(*at)
    lines = [*shared, ""]
    for how, layer in paths.items():
        lines += [outputs.REQUANTIZATIONS[how], *(f"  {line}" for line in layer.lines(*at)[len(shared) :])]
    return lines


def overflow_sentence(layer: IntegerLayer) -> str:
    """Say how many accumulators overflow."""
    overflowing, bits = int(layer.product.overflows.sum()), layer.product.bits
    every = count(layer.y.numel(), "accumulator")
    if not overflowing:
        largest, most = int(layer.product.exact.abs().max()), 2 ** (bits - 1) - 1
        return f"No accumulator overflows: |sum| is at most {largest:,}, and int{bits} holds {most:,}."
    return f"{overflowing:,} of {every} overflow int{bits} and wrap around, which makes these outputs wrong."


def rounded_differently(paths: Paths) -> Tensor:
    """Return where the two roundings by multiplier and shift give different codes."""
    single, double = (paths[how].output for how in (outputs.SINGLE, outputs.DOUBLE))
    assert single is not None
    assert double is not None
    return single.codes != double.codes


def rounding_sentence(paths: Paths, at: tuple[int, int]) -> str:
    """Say where the requantizations give different codes."""
    differs = rounded_differently(paths)
    number, every = int(differs.sum()), count(differs.numel(), "code")
    if not number:
        return f"Both roundings by multiplier and shift give the same {every}."
    token, channel = (int(n) for n in differs.nonzero()[0])
    here = "this one included" if bool(differs[at]) else f"the first at token {token}, channel {channel}"
    return f"The two roundings by multiplier and shift differ by 1 in {number:,} of {every}, {here}."
