"""The panel of a cell for every tensor of every golden checkpoint: it shows the record's numbers, names escaped."""

import html
import re

import numpy as np
import pytest
from app_page import PATIENCE
from checkpoint_cases import case, cases
from grid import for_each
from parts import some
from streamlit.testing.v1 import AppTest

from pages.models.checkpoint import cell_markup
from quantcore.checkpoints import open_checkpoint
from quantcore.errors import QuantError

Q = "model.layers.0.self_attn.q_proj.weight"
PAGE = """
from pages.models.checkpoint import cell
from pages.models.opening import OpenCheckpoint
from quantcore.checkpoints import open_checkpoint

opened = OpenCheckpoint(open_checkpoint({path!r}), {path!r}, "a title", 1)
original = opened if {original} else None
for name in {names!r} or opened.checkpoint.tensors:
    shape = opened.checkpoint.tensors[name].shape
    cell.draw(opened, name, {index!r} or tuple(n // 2 for n in shape), original)
"""


def drawn(given, names=(), index=(), original=False):
    """A page with the panel of one element of each tensor."""
    text = PAGE.format(path=str(given.release), names=names, index=index, original=original)
    at = AppTest.from_string(text, default_timeout=PATIENCE).run()
    assert not at.exception, at.exception
    return at


def texts(at):
    """The text of a page's HTML elements, without markup."""
    found = " ".join(e.proto.body for e in at.main if e.type == "html")
    return html.unescape(re.sub("<[^>]*>", "", found))


@for_each("given", some(cases(""), 92), ids=str)
def test_every_tensor_of_every_case(given):
    """Each shows its value and lines, or one sentence saying why it can't be read."""
    try:
        tensors = open_checkpoint(given.release).tensors
    except QuantError:
        pytest.skip("it does not open")
    at = drawn(given)
    said, refused = texts(at), 0
    for name, tensor in tensors.items():
        try:
            origin = tensor.origin(tuple(n // 2 for n in tensor.shape))
        except QuantError:
            refused += 1
            continue
        assert f"value {origin.result} {origin.dtype}" in said, name
        for line in origin.lines:
            assert line.numbers in said, line
    assert len(at.error) == refused


def test_rivals_and_findings_stand_side_by_side():
    said = texts(drawn(case("bad_gptq_v1_but_zeros_8"), (Q,), (5, 42)))
    assert "this reading-0.25616455" in said
    assert "as GPTQ v1≠ -0.29885864Adds 1 to the stored zero point: z = 9 instead of 8." in said
    assert "1,024 of 1,024 elements differ." in said
    assert (
        "but the first of its stored zeros is 8, as in v2" in said
    )  # the finding, next to the other reading


def test_the_original_stands_beside_the_value():
    assert "original 0.028442383" in texts(drawn(case("gptq_v1_3bit_g128"), (Q,), (5, 42), original=True))


def test_the_script_can_be_copied():
    (code,) = drawn(case("gptq_v1_3bit_g128"), (Q,), (5, 42)).code
    assert "stored('model.safetensors', (11071, 6, 2), (11324, 0, 1))" in code.value


def test_an_element_that_is_not_there():
    (error,) = drawn(case("gptq_v1_3bit_g128"), (Q,), (500, 42)).error
    assert "There is no element" in error.value


def test_bits_are_marked_where_they_lie():
    """The bits marked in a word are those that the record marks, and a title says to what each run belongs."""
    origin = open_checkpoint(case("gptq_v1_3bit_g128").release).tensors[Q].origin((5, 42))
    text = cell_markup.panel(origin, "")
    runs = re.findall(r"<span class='(own k0 )?bit' title='([^']*)'>([01]+)</span>", text)
    for word in origin.code.words:
        of_word = runs[: len({bit.owner for bit in word.bits})]
        runs = runs[len(of_word) :]
        assert "".join(digits for _, _, digits in of_word) == word.binary
        assert [digits for own, _, digits in of_word if own] == [
            "".join(word.binary[31 - position] for position in sorted(word.own, reverse=True))
        ]
        assert next(title for own, title, _ in of_word if own).endswith("this one")
        assert (
            any(title.startswith("bits 27–29: bits 0–2 of element (5, 41)") for _, title, _ in of_word)
            or word.index[0] == 4
        )


def test_names_from_files_are_text(tmp_path):
    name = "<img src=x onerror=alert(1)>\x1b[0m"
    np.savez(tmp_path / "x.npz", **{name: np.arange(3, dtype=np.float32)})
    tensor = next(iter(open_checkpoint(tmp_path / "x.npz").tensors.values()))
    text = cell_markup.heading(tensor.origin((1,)), None) + cell_markup.panel(tensor.origin((1,)), "")
    assert "<img" not in text
    assert "\x1b" not in text
    assert "&lt;img" in text
