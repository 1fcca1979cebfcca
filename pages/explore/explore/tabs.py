"""The tabs below the maps; a closed tab computes nothing."""

from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import streamlit as st

import quantcore as qc
from pages.maps import arithmetic
from pages.maps.arithmetic import ElementArithmetic
from pages.maps.four_maps import ARITHMETIC
from pages.shared import charts, messages, tables
from pages.shared.charts import theme
from pages.shared.computing import cache, needs
from pages.shared.state import choice, link
from pages.shared.state.selection import PageTensor
from quantcore import export, figures, snippets, tensors
from quantcore.analysis import MapData, View

if TYPE_CHECKING:  # imported by the tabs that draw a table, which are closed on a first page
    import pandas as pd

MAPS = {"original": "x", "codes": "codes", "dequantized": "dequantized", "error": "error"}
DISTRIBUTION, HISTOGRAM = "Distribution", "distribution_chart"  # the tab, and the key of its chart
LINES = "arithmetic_lines"  # key of their place
BESIDE = "side by side"  # a table of all four
LABELS = [ARITHMETIC, DISTRIBUTION, "Scales", "Numbers", "Code", "Export"]
KEYS = {"tab", "log", "one_block", "table"}
TABLE_ROWS = 2000
Writer = Callable[[qc.Quantized], Any]  # of a file


def draw(tensor: PageTensor, result: qc.Quantized, view: View | None, shown: ElementArithmetic) -> None:
    """Draw the tabs and the content of the open tab."""
    draws: list[Callable[[], None]] = [
        partial(_arithmetic, tensor, result.scheme, shown),
        partial(_distribution, tensor, result, shown.trace.block),
        partial(_scales, tensor, result),
        partial(_numbers, tensor, result, view),
        partial(_code, tensor, result),
        partial(_export, tensor, result, view),
    ]
    for tab, content in zip(st.tabs(LABELS, key="tab", bind="query-params"), draws, strict=True):
        if tab.open:
            with tab:
                content()


def _arithmetic(tensor: PageTensor, scheme: qc.Scheme, shown: ElementArithmetic) -> None:
    st.container(key=LINES).html(arithmetic.markup(tensor, scheme, shown, theme()))


def _distribution(tensor: PageTensor, result: qc.Quantized, block: tuple[int, ...]) -> None:
    left, right = st.columns([1, 3])
    log = left.toggle(
        "Log counts",
        key="log",
        bind="query-params",
        help="Logarithmic counts, so that rare values stay visible",
    )
    one = right.toggle(
        "Only the chosen element's block",
        key="one_block",
        bind="query-params",
        help="If off, all of x is drawn faintly behind the elements that share the chosen element's scale",
    )
    what = f"distribution {result.scheme} {block} {one} {log} {theme()}"
    whole = cache.cached(tensor, "histogram", lambda: figures.histogram(result.x))
    make = partial(figures.distribution, result, block, alone=one, log=log, theme=theme(), whole=whole)
    drawn = cache.cached(tensor, what, make)
    charts.draw(drawn, "Histogram of x, with the values of the codes", key=HISTOGRAM)


def _scales(tensor: PageTensor, result: qc.Quantized) -> None:
    if result.scale.numel() > 1:  # of one scale, a chart says nothing that the table does not
        make = partial(figures.scales, result, theme=theme())
        drawn = cache.cached(tensor, f"scales {result.scheme} {theme()}", make)
        charts.draw(drawn, "Scale of every block", key="scales_chart")
    table = cache.cached(tensor, f"scale table {result.scheme}", partial(scale_table, result))
    st.dataframe(table, hide_index=True, column_config=tables.columns(table, 6))
    if result.scale.numel() > TABLE_ROWS:
        st.caption(
            f"The first {TABLE_ROWS:,} of {result.scale.numel():,} blocks; the .npz file under Export has "
            "all of them."
        )


def scale_table(result: qc.Quantized) -> "pd.DataFrame":
    """Return one row per block in row-major order: position, parameters, range and error."""
    import pandas as pd

    numbers: dict[str, Any] = {
        "scale": result.scale,
        "zero_point": result.params.zero_point,
        **qc.encoding(result),
        "low": result.params.low,
        "high": result.params.high,
        "mse": qc.block_errors(result),
    }
    places = islice(np.ndindex(tuple(result.scale.shape)), TABLE_ROWS)
    table: dict[str, Any] = {"block": [str(place) for place in places]}
    for name, values in numbers.items():
        if values is not None:
            table[name] = values.reshape(-1)[:TABLE_ROWS].cpu().numpy()
    return pd.DataFrame(table)


def _numbers(tensor: PageTensor, result: qc.Quantized, view: View | None) -> None:
    if view is None:
        return
    import pandas as pd

    data = cache.drawn(tensor, result.scheme, view)
    names = {name: name for name in (*MAPS, BESIDE)}
    chosen = choice.segmented("Map", "table", names, default="codes", label_visibility="collapsed")
    if chosen == BESIDE:
        _beside(data)
        return
    values = data.map(MAPS[chosen])
    rows = [data.rows[0] + i * data.step[0] for i in range(values.shape[0])]
    columns = [str(data.columns[0] + i * data.step[1]) for i in range(values.shape[1])]
    frame = pd.DataFrame(values, index=rows, columns=columns)
    st.dataframe(frame, column_config=tables.numbers(frame))
    if data.step != (1, 1):
        st.caption(data.legend)


def _beside(data: MapData) -> None:
    """Draw one row per element with what all four maps show of it, with decimals as printed tensors have."""
    if data.step != (1, 1):
        st.caption("Drag a box in a map to see its elements side by side: there are too many for a table.")
        return
    import pandas as pd

    indices = np.indices(data.map("x").shape).reshape(2, -1)
    table = {"row": data.rows[0] + indices[0], "column": data.columns[0] + indices[1]}
    table |= {name: np.asarray(data.map(of)).ravel() for name, of in MAPS.items()}
    frame = pd.DataFrame(table).iloc[:TABLE_ROWS]
    shown = {name: _printed(frame[name].to_numpy()) for name in ("original", "dequantized", "error")}
    config = tables.columns(frame, skip=shown)
    config |= {
        name: st.column_config.NumberColumn(tables.label(name), format=way) for name, way in shown.items()
    }
    st.dataframe(frame, hide_index=True, column_config=config)
    if len(indices[0]) > TABLE_ROWS:
        every = f"{len(indices[0]):,} elements"
        st.caption(f"The first {TABLE_ROWS:,} of {every}; the files under Export have all.")


def _printed(values: np.ndarray) -> str:
    """Return the format of a column: four decimals where these tell the numbers apart, else as `tables`."""
    finite = np.abs(values[np.isfinite(values)])
    largest = float(finite.max(initial=0.0))
    return "%.4f" if 0.01 <= largest < 1e4 else tables.number_format(values, 6)


def _code(tensor: PageTensor, result: qc.Quantized) -> None:
    """Draw the scripts that reproduce the result."""
    if result.scheme.convention.name != qc.TEXTBOOK.name:
        _library(tensor, result)
    left, right = st.columns(2)
    literal = cache.cached(tensor, "literal", lambda: tensors.literal(cache.values(tensor)))
    with left:
        _script("With quantcore", snippets.quantcore_script(tensor.recipe or literal, result))
    with right:
        _script("With torch only", *_or_sentence(lambda: snippets.torch_script(literal, result)))
    st.caption("Each script rebuilds this tensor and checks the codes.")


def _script(heading: str, script: str, problem: str = "") -> None:
    """Draw a script, or the reason why there is none."""
    st.markdown(f"**{heading}**")
    if problem:
        st.info(messages.plain(problem))
    else:
        st.code(script, language="python", height=460)


def _library(tensor: PageTensor, result: qc.Quantized) -> None:
    """Draw the script that uses the library's own API."""
    convention = result.scheme.convention
    script, problem = cache.cached(
        tensor,
        f"library script {result.scheme}",
        lambda: _or_sentence(lambda: snippets.library_script(result)),
    )
    name = f"{convention.library} {convention.version}".strip()
    _script(f"With {messages.plain(name)}", script, problem)
    if problem:
        return
    if convention.library in snippets.RECORDED_ONLY:
        st.caption(
            f"The tests do not run this script, since {name} can't be installed alongside the other "
            "libraries; they check these integers against integers recorded with that version."
        )
    elif convention.name in qc.INTEGER_CONVENTIONS:
        st.caption(
            f"The tests run such scripts with {name}, across its granularities, symmetries and bit widths."
        )
    else:
        st.caption(f"The tests run the script of every preset with {name}.")


def _export(tensor: PageTensor, result: qc.Quantized, view: View | None) -> None:
    """Draw the download buttons."""
    download = partial(_download, tensor, result.scheme)
    problem = _too_large(tensor)
    if problem:
        messages.error(problem)
    st.markdown("**Tensors**: x, codes, scale, zero_point, dequantized")
    with st.container(horizontal=True):
        download("NumPy .npz", "quantscope.npz", export.to_npz)
        download(".safetensors", "quantscope.safetensors", export.to_safetensors)
        for label, name in MAPS.items():
            download(f"{label} .csv", f"{name}.csv", partial(_csv, name=name))
    st.markdown("**Model**: x → QuantizeLinear → codes → DequantizeLinear → dequantized")
    data, problem = cache.cached(
        tensor, f"onnx {result.scheme}", lambda: _or_sentence(lambda: export.to_onnx(result)), needs.ONNX
    )
    st.download_button(
        "ONNX .onnx", data or b"", "quantscope.onnx", on_click="ignore", disabled=bool(problem)
    )
    st.caption(messages.plain(problem) if problem else "onnxruntime reproduces these integers.")
    if view is not None:
        st.markdown("**Maps as shown**")
        maps = partial(figures.maps, view=view, borders=st.session_state["borders"], grey=tensor.is_image)
        with st.container(horizontal=True):
            for kind in ("png", "svg"):  # pages/browser/picture.js takes the clicks
                st.button(
                    f"Picture .{kind}", key=f"_picture_{kind}", help="With scheme and link in small print"
                )
            write = lambda result: figures.to_html(maps(result))  # noqa: E731
            works = "Works offline: plotly.js is included"
            download("Figure .html", "quantscope.html", write, help=works)
            _loop(tensor, result.scheme, view)


def _loop(tensor: PageTensor, scheme: qc.Scheme, view: View) -> None:
    """Draw the button that saves the maps from 8 to 2 bits."""
    address, colors, integers = link.address(), theme(), isinstance(scheme.format, qc.IntFormat)

    def content() -> bytes:
        with cache.turn_of(tensor, needs.EXPORT):
            from pages.explore.explore import loop  # here: a first page needs no Pillow

            return loop.gif(tensor, scheme, view, address, colors)

    st.download_button(
        "Loop 8 → 2 bits .gif",
        content,
        "quantscope.gif",
        on_click="ignore",
        disabled=not integers or bool(_too_large(tensor)),
        help="The maps at 8, 7, … 2 bits, with scheme and link in small print"
        if integers
        else "Integer formats have bits to play",
    )


def _csv(result: qc.Quantized, name: str) -> str:
    return export.to_csv(getattr(result, name))


def _download(
    tensor: PageTensor, scheme: qc.Scheme, label: str, file: str, write: Writer, **more: Any
) -> None:
    """Draw a button whose file is made when downloaded: until then the button must not hold the result."""

    def content() -> Any:
        with cache.turn_of(tensor, needs.EXPORT):
            return write(cache.result(tensor, scheme))

    st.download_button(label, content, file, on_click="ignore", disabled=bool(_too_large(tensor)), **more)


def _too_large(tensor: PageTensor) -> str:
    """Return why files of the tensor can't be written here, or "": a download has no place for a sentence."""
    return cache.too_much(tensor, needs.EXPORT)


def _or_sentence(make: Callable[[], Any]) -> tuple[Any, str]:
    """Return the result of ``make`` and "", or None and the error message."""
    try:
        return make(), ""
    except qc.QuantError as error:
        return None, str(error)
