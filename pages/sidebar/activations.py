"""The activations x of a layer, the same on every page: generated with outlier channels, pasted, or from a
file.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import streamlit as st
from torch import Tensor

import quantcore as qc
from pages.serving.settings import upload_limit
from pages.shared.computing import cache, guarded, needs, turn
from pages.shared.state import choice, link, sharing
from pages.shared.state.file_field import FileField
from pages.shared.state.selection import NoTensorYet, PageTensor, of_values
from pages.sidebar import pasted, tensor_controls
from quantcore import outputs, snippets, tensors, training
from quantcore.wording import count, joined

if TYPE_CHECKING:
    from quantcore.checkpoints import CheckpointTensor

SOURCES = {"generate": "generated", "example": "real", "paste": "pasted", "upload": "file"}
# the layer of charlm whose inputs are the example, by how many there are
EXAMPLES = {64: "model.layers.2.self_attn.q_proj.weight", 160: "model.layers.2.mlp.down_proj.weight"}
SOURCE, TOKENS, OUTLIERS, FACTOR, SEED = "ly_x", "ly_tokens", "ly_outliers", "ly_factor", "ly_seed"
VALUES = "ly_values"  # a parameter without a control: the numbers of x that were pasted or uploaded
DEFAULTS: dict[str, Any] = {SOURCE: "generate", TOKENS: 8, OUTLIERS: 1, FACTOR: 20.0, SEED: 0}
KEYS = {*DEFAULTS, VALUES}
_TEXT = "_ly_text"
_OWN = "Use their own w"


class Batches(NamedTuple):
    """Tokens for calibration; ``code``: Python that binds ``batches``; ``words``: whose tokens they are."""

    load: Callable[[], list[Tensor]]
    code: str
    words: str


@dataclass(frozen=True)
class GivenActivations:
    """The activations of a layer, and the tokens on which static scales are found.

    Attributes:
        x: [tokens, in].
        code: Python that binds ``x``.
        words: in a few words.
        batches: returns so many batches.
    """

    x: PageTensor
    code: str
    words: str
    batches: Callable[[int], Batches]


def popover(inputs: int, place: Any = st) -> GivenActivations:
    """Draw the button that opens the controls of x, for a layer with so many inputs; return x.

    Raises:
        NoTensorYet, QuantError: as in `draw`.
    """
    with place.popover("Activations x", icon=":material/input:", help="Where they come from"):
        return draw(inputs)


def draw(inputs: int) -> GivenActivations:
    """Draw the controls of x for a layer with so many inputs; return x.

    Raises:
        NoTensorYet: nothing has been pasted or uploaded.
        QuantError: what was typed or uploaded is not a tensor.
    """
    found = brought(inputs)
    return _generated(inputs) if found is None else found


def brought(inputs: int) -> GivenActivations | None:
    """Draw where x comes from, and the field of what is pasted or uploaded; None if x is to be generated.

    Args:
        inputs: of the layer, for the example.

    Raises:
        NoTensorYet, QuantError: as in `draw`.
    """
    widths = joined(list(map(str, EXAMPLES)), "or")
    about = f"real: what layers of charlm, a small language model, multiply; w then needs {widths} columns"
    source = choice.segmented("x is", SOURCE, SOURCES, help=about)
    if source in ("generate", "example"):
        _carry(None)
        return _example(inputs) if source == "example" else None
    found = _pasted() if source == "paste" else _uploaded()
    _carry(found)
    return found


def _example(inputs: int) -> GivenActivations:
    """Return real activations: what a layer of the shipped language model multiplies, in text new to it."""
    name = EXAMPLES.get(inputs)
    own = name or EXAMPLES[min(EXAMPLES)]
    st.button(_OWN, on_click=_take_weight, args=(own,), help=f"{own} of charlm, which multiplies these x")
    if name is None:
        raise qc.QuantError(
            f"w has {inputs:,} columns, and the real activations {joined(list(map(str, EXAMPLES)), 'or')}; "
            f"press “{_OWN}” under “Activations x”, choose another x there, or give w as many columns."
        )

    def make() -> np.ndarray:
        model = training.character_model({key: tensor.read() for key, tensor in _charlm().items()})
        return training.activations_of(model, name, training.load_text().judged[:1]).numpy()

    x = cache.cached_small(cache.CacheKey(f"real activations {name}"), "x", make)
    return _given(of_values(x, f"inputs of {name}"), f"real: inputs of {name} of charlm")


def _charlm() -> "Mapping[str, CheckpointTensor]":
    """Return the weights of the shipped language model."""
    from quantcore import checkpoints  # which the first page does without

    return checkpoints.open_checkpoint(checkpoints.EXAMPLES["charlm"]).tensors


def _take_weight(name: str) -> None:
    """Make a weight of the shipped language model the tensor (a callback)."""
    tensor_controls.put_tensor(of_values(_charlm()[name].read(), f"{name} of charlm", name=name))


def _generated(inputs: int) -> GivenActivations:
    left, right = st.columns(2)
    tokens = int(_number(left, "Tokens", TOKENS, 1, 4096, "Rows of x"))
    seed = int(_number(right, "Seed", SEED, 0, 2**31, "Change it for new numbers"))
    about = "Columns of x that are larger than the others for every token, as in large language models"
    outliers = int(_number(left, "Outlier channels", OUTLIERS, 0, 4096, about))
    about = "How many times larger they are"
    factor = float(_number(right, "Outlier factor", FACTOR, 1.0, 10_000.0, about, format="%g"))

    def call(rows: int, sample: int) -> str:
        return (
            f"qc.outputs.activations({rows}, {inputs}, outliers={outliers}, factor={factor:g}, "
            f"correlation=0, seed={seed}, sample={sample})"
        )

    def make(rows: int, sample: int) -> Tensor:
        more: dict[str, Any] = {"outliers": outliers, "factor": factor, "seed": seed, "sample": sample}
        return outputs.activations(rows, inputs, correlation=0.0, **more)

    def batches(number: int) -> Batches:
        rows = number * tokens, outputs.CALIBRATION
        code = f"batches = {call(*rows)}.chunk({number})"
        return Batches(lambda: list(make(*rows).chunk(number)), code, count(rows[0], "other token"))

    outputs.activations(1, inputs, outliers=outliers)  # before a later step asks for them
    recipe = f"x = {call(tokens, outputs.HELD_OUT)}"
    load = lambda: make(tokens, outputs.HELD_OUT).numpy()  # noqa: E731
    x = PageTensor(recipe, "generated activations", (tokens, inputs), load, recipe)
    channels = f"{count(outliers, 'outlier channel')} ×{factor:g}" if outliers else "no outlier channels"
    return GivenActivations(x, recipe, f"{count(tokens, 'token')}, {channels}", batches)


def _number(place: Any, label: str, key: str, low: Any, high: Any, about: str, **more: Any) -> Any:
    default = DEFAULTS[key]
    return place.number_input(label, low, high, default, key=key, help=about, bind="query-params", **more)


def _given(x: PageTensor, words: str) -> GivenActivations:
    """Return activations known only by their values: static scales are found on the first half of them.

    A single row of numbers is one token.
    """
    if len(x.shape) == 1:
        x = of_values(cache.values(x).numpy()[None], x.title)
    values, rows = cache.values(x), count((*x.shape, 0)[0], "token")
    if values.dim() != 2:
        raise qc.QuantError(f"x has shape {x.shape}; give a matrix, [tokens, in], with one row per token.")

    def batches(number: int) -> Batches:
        half = -(-len(values) // 2)
        code, words = f"batches = x[:{half}].chunk({number})", f"the first {half:,} of {rows}"
        return Batches(lambda: list(values[:half].chunk(number)), code, words)

    return GivenActivations(x, snippets.binding("x", values), f"{rows}, {words}", batches)


def _pasted() -> GivenActivations:
    problem = ""
    if _TEXT not in st.session_state or link.from_history():
        try:
            carried = _linked()
            st.session_state[_TEXT] = "" if carried is None else tensor_controls.write(carried)
        except qc.QuantError as error:
            problem = str(error)
    text = st.text_area(
        "Activations, one row per token",
        key=_TEXT,
        height=140,
        persist_state="session",
        placeholder="0.5, -1.2, 3, 0\n2, 0.25, -4, 1",
        help="Rows of numbers, a printed tensor or an array, also amid code; Ctrl+Enter reads it.",
    )
    if problem:
        raise qc.QuantError(problem)
    if not text.strip():
        link.write(VALUES, None)
        raise NoTensorYet("There are no activations yet: paste x, one row per token, under “Activations x”.")
    read = pasted.read(text, "_ly_which")
    if read is None:
        raise NoTensorYet("The text can be read in several ways; choose the tensor under “Activations x”.")
    return _given(of_values(read.values, "pasted activations"), "pasted")


def _read(files: list[Any]) -> tuple[str, PageTensor]:
    (file,) = files
    name, data = file.name, file.getvalue()
    with turn.current() as mine:
        mine.need(int(needs.READING * len(data)))
        info = tensors.first_weight(guarded.list_tensors(data, name))
        x = guarded.read_tensor(data, name, info)
    return name, of_values(x, f"activations of {name}")


_FIELD: FileField[tuple[str, PageTensor]] = FileField("_ly_file", _read, lambda kept: kept[0])


def _uploaded() -> GivenActivations:
    _FIELD.draw(
        "Activations, one row per token",
        type=["npy", "npz", "safetensors", "csv", "txt", "json"],
        help=f"Up to {upload_limit() >> 20} MB. Nothing in it is ever executed.",
    )
    if _FIELD.problem:
        raise qc.QuantError(_FIELD.problem)
    if _FIELD.content is not None:
        name, x = _FIELD.content
        return _given(x, name)
    carried = _linked()
    if carried is None:
        raise NoTensorYet(
            "There are no activations yet: upload a file with x, [tokens, in], under “Activations x”."
        )
    return _given(of_values(carried, "activations from the link"), "from the link")


def put(x: Tensor, words: str) -> dict[str, str]:
    """Make x the activations, in place of any file (a callback); return the parameters that choose them.

    Args:
        words: where they come from.
    """
    _FIELD.put((words, of_values(x, f"activations {words}")))
    return {SOURCE: "upload"}


def _linked() -> np.ndarray | None:
    """Return the activations of the link, None if it has none.

    Raises:
        QuantError: they can't be read.
    """
    text = st.query_params.get(VALUES)
    return tensors.decode(text) if text else None


def _carry(found: GivenActivations | None) -> None:
    """Put the values of activations into the link if they fit."""
    x = None if found is None else cache.values(found.x).numpy()
    fits = x is not None and tensors.fits_link(x)
    link.write(VALUES, tensors.encode(x) if x is not None and fits else None)
    if found is not None and not fits:
        sharing.note("The link does not carry the activations x, which are too many: send their file along.")
