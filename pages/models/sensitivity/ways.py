"""Ways from a weight to other pages: as it is stored, and what its error does to the layer's output."""

import streamlit as st
from torch import Tensor

import quantcore as qc
from pages.models import opening
from pages.models.keys import IMATRIX_KEYS, SLOTS, TENSOR
from pages.models.sensitivity import controls
from pages.models.sensitivity.run import SharedTable
from pages.shared.state import leaving
from pages.shared.state.selection import PageTensor
from pages.sidebar import activations, scheme_state, tensor_controls
from quantcore import outputs
from quantcore.layerwise import Imatrix

PROBLEM = "_sensitivity_problem"
TOKENS = 64  # of generated activations
PAGE = "sensitivity"


def checkpoint(name: str) -> None:
    """Open a weight on the page Checkpoint (a callback)."""
    if not st.session_state.get(SLOTS[""]):
        st.session_state[SLOTS[""]] = f"{opening.EXAMPLE}{controls.EXAMPLE}"
    opening.show_tensor(PAGE, IMATRIX_KEYS | controls.KEYS, {TENSOR: name})


def layer(found: SharedTable, tensor: PageTensor, scheme: qc.Scheme) -> None:
    """Open a weight as the w of a layer, with activations of the imatrix if it has some (a callback)."""
    try:
        scheme_state.apply_scheme(scheme)
        x = of_imatrix(found, tensor)
    except qc.QuantError as error:
        st.session_state[PROBLEM] = f"{tensor.name} can't be opened in Layer: {error}"
        return
    tensor_controls.put_tensor(tensor)
    kept = {key: st.session_state[key] for key in (IMATRIX_KEYS | controls.KEYS) & set(st.session_state)}
    leaving.remember(PAGE, kept)
    leaving.to("outputs/layer/page.py", {} if x is None else activations.put(*x))


def of_imatrix(found: SharedTable, tensor: PageTensor) -> tuple[Tensor, str] | None:
    """Return activations with the mean squares that the imatrix has for a matrix, and what they are.

    None if it has none.

    Raises:
        QuantError: the imatrix can't be read.
    """
    if found.imatrix is None:
        return None
    architecture = found.opened.checkpoint.config.get("general.architecture")
    squares = Imatrix(found.imatrix.checkpoint.tensors, architecture).of(tensor.name, tensor.shape).weights
    if squares is None:
        return None
    x = outputs.of_mean_squares(squares.reshape(-1), TOKENS)
    return x, f"generated with the mean squares in {found.imatrix.title}"
