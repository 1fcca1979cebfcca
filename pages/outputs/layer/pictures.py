"""The maps of x, w and y with their quantized forms and the error of y; they follow the scheme's controls."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import streamlit as st
from torch import Tensor

import quantcore as qc
from pages.maps import arithmetic, component, live
from pages.maps.beside import BesideMaps
from pages.maps.picture import Picture
from pages.outputs.layer import controls, keys, run, views
from pages.outputs.layer.controls import Choices
from pages.outputs.layer.run import LayerTask, ShownLayer
from pages.shared.charts import theme
from pages.shared.computing import cache
from pages.shared.large import is_large
from pages.shared.state.selection import VALUE, Current, PageTensor
from quantcore.analysis import MapData, View, map_data, output_data, value_data
from quantcore.outputs import LayerOutput
from quantcore.quantization import Quantized

ANSWER, TABS = "ly_answer", "ly_tabs"  # keys of containers
_ROWS = {"x": "a row per token", "w": "a row per output channel"}
LIVE = 1 << 22  # products with which maps follow a dragged control


@dataclass(frozen=True)
class LayerView:
    """What a map shows; the answer above the maps follows with that of y.

    Attributes:
        name: x, w or y.
        at: the output that the visitor chose; None for the worst.
    """

    name: str
    choices: Choices
    at: tuple[int, int] | None
    theme: str
    large: bool

    def shown(
        self,
        tensor: PageTensor,
        scheme: qc.Scheme,
        pointer: arithmetic.Offer,
        element: tuple[int, ...] | None,
    ) -> tuple[Picture, BesideMaps]:
        """Return the picture of this map for a weight and its scheme, and what follows with it.

        Raises:
            QuantError: they do not fit x, or the scheme does not fit.
        """
        task = LayerTask(tensor, scheme, self.choices)
        task.check()
        done = run.done(task)
        if self.name != "y":
            return self.picture(task, done), BesideMaps()
        summary = views.summary(done, task.choices.given.words)
        return self.picture(task, done), BesideMaps({ANSWER: summary}, late=(TABS,))

    def picture(self, task: LayerTask, done: ShownLayer) -> Picture:
        """Return the picture of this map."""
        found, name = done.found, self.name
        token, channel = at = self.at or controls.worst_of(found)
        values, result = self._matrix(found)
        row = {"x": token, "w": channel}.get(name)
        own = {"x": self.choices.given.x.key, "w": task.tensor.key, "y": done.content.key}[name]
        make = partial(_output, found) if row is None else partial(_pair, name, result, values)
        return Picture(
            result,
            cache.cached(done.content, f"map {name}", make),
            View(),
            identity=f"{own} {name}",
            element=at if row is None else (-1, -1),
            borders=False,
            numbers=True,
            theme=self.theme,
            found=() if row is None else (((row, row + 1), (0, found.w.shape[1])),),
            whole=tuple(values.shape),
            stacked=True,
        )

    def _matrix(self, found: LayerOutput) -> tuple[Tensor, Quantized | None]:
        """Return the values of this map, and their quantized form."""
        match self.name:
            case "x":
                return found.x, found.activation
            case "w":
                return found.w, found.weight
        return found.y, None


def _output(found: LayerOutput) -> MapData:
    return output_data(found.y, found.y_hat, "y = x·wᵀ" + " + bias" * (found.bias is not None))


def _pair(name: str, result: Quantized | None, values: Tensor) -> MapData:
    """Return the maps of a matrix and its quantized form, or of the matrix alone."""
    title = f"{name}, {_ROWS[name]}"
    if result is None:
        return replace(value_data(values, None), symbols=(name, name, ""), titles=(title,))
    hat = f"{name}̂"
    symbols = (name, hat, f"{name} − {hat}")
    return replace(map_data(result), names=("x", "dequantized"), symbols=symbols, titles=(title, hat))


def draw(task: LayerTask, done: ShownLayer, at: tuple[int, int], current: Current) -> None:
    """Draw x over x̂, w over ŵ, and y over ŷ − y; a click chooses the token, the channel, or the output."""
    typed = at if st.session_state[keys.CELL].strip() else None
    numbers: list[str] = []
    picks: dict[str, Callable[[tuple[int, ...]], None]] = {
        "x": partial(_choose, at, 0),
        "w": partial(_choose, at, 1),
        "y": controls.pick,
    }
    # no value is dragged in a cell here
    followed = replace(current, controls={k: v for k, v in current.controls.items() if k != VALUE})
    for place, (name, on_pick) in zip(st.columns(3, gap="xsmall"), picks.items(), strict=True):
        view, key = LayerView(name, task.choices, typed, theme(), is_large()), f"ly_map_{name}"
        with place:
            following = live.offer(view, followed, key, quick=task.products <= LIVE)
            picture = view.picture(task, done)
            component.four_maps(picture, key=key, on_pick=on_pick, live=following, among=numbers)
    component.announce(numbers)


def _choose(at: tuple[int, int], axis: int, index: tuple[int, ...]) -> None:
    """Choose the row that was clicked in x (its token) or in w (its output channel) (a callback)."""
    controls.pick((index[0], at[1]) if axis == 0 else (at[0], index[0]))
