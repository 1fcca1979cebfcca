"""What results say of themselves: one line, and a card that is readable without styles and pictures."""

import io
import re
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
import torch
from card_text import Text
from checkpoint_cases import case
from grid import for_each
from PIL import Image

import quantcore as qc
from quantcore.notebook.links import address
from quantcore.notebook.numbers import EXACT, numbers
from quantcore.notebook.pictures import CELLS, png, view

X = torch.tensor([[0.5, -1.0, 2.0, 0.1], [9.0, 0.3, -0.2, -2.5]])
SCHEME = qc.Scheme.parse("int4 per_channel(0) percentile(90)")


def shown():
    """One result of each kind, by the name of its class."""
    result = qc.apply(X, SCHEME)
    checkpoint = qc.checkpoints.open_checkpoint(case("gptq_v1_4bit_g128_sym").release)
    *_, step = qc.sensitivity(checkpoint, ["int8"])
    results = [
        SCHEME, result, qc.report(result), qc.trace(result, (1, 0)), qc.diagnose(result)[0], qc.match(X, result.codes),
        qc.compare(X, "int4 per_channel(0)", "textbook", "torchao"), checkpoint,
        next(iter(checkpoint.tensors.values())), step.table,
    ]  # fmt: skip
    return {type(of).__name__: of for of in results}


def test_every_result_is_one_line_and_a_card_without_styles():
    results = shown()
    assert len(results) == 10
    for name, of in results.items():
        line, card = repr(of), of._repr_html_()
        assert "\n" not in line, name
        assert 10 < len(line) <= 400, line
        found = Text(card)
        assert found.tags & {"script", "style", "link", "iframe", "object"} == set(), name
        assert "http" not in re.sub(r'href="http://localhost:8501/[^"]*"', "", card), name
        assert not any("url(" in style or "color:" in style for style in found.styles), name
        assert len(card) < 60_000
        assert len(found.text) > 20, name
    for name in ("Quantized", "Trace", "Scheme"):
        text = Text(results[name]._repr_html_()).text
        assert "int4 symmetric per_channel percentile(90)" in text, name


def test_the_line_of_a_result_has_its_numbers():
    result = qc.apply(X, SCHEME)
    x, codes, x_hat = X.numpy(), result.codes.numpy(), result.dequantized.numpy()
    sqnr = 10 * np.log10((x**2).sum() / ((x - x_hat) ** 2).sum())
    clipped = np.mean((np.rint(x / result.scale.numpy()) > 7) | (np.rint(x / result.scale.numpy()) < -8))
    assert clipped > 0
    assert repr(result) == (
        f"Quantized {SCHEME} · float32 [2, 4] · {qc.bits_per_element(SCHEME, (2, 4)):.4g} bits · codes −8..7, "
        f"{len(set(codes.ravel()))} of 16 used · SQNR {sqnr:.1f} dB · clipped {100 * clipped:.3g} %"
    )
    assert repr(SCHEME) == str(SCHEME)
    assert repr(qc.apply(X.bfloat16().repeat(32, 64), "gguf.Q4_K")).startswith("Quantized gguf.Q4_K · bfloat16 [64, 256]")


def test_the_numbers_of_a_large_tensor_are_marked_until_they_are_exact():
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(1030, 1024)).astype(np.float32))
    result = qc.apply(x, "int4 per_channel(0)")
    assert x.numel() > EXACT
    assert "SQNR ≈ " in repr(result)
    assert "≈" in Text(result._repr_html_()).text
    sampled, exact = numbers(result).report, qc.report(result)
    # of 262,144 normal numbers, whose squared errors spread by about their mean: 1/√262144, in dB, 6 times
    assert sampled.sqnr_db == pytest.approx(exact.sqnr_db, abs=6 * 4.34 / 512)
    assert sampled.sse < exact.sse / 3
    assert f"SQNR {qc.decibels(exact.sqnr_db)}" in repr(result)
    assert "≈" not in repr(result)


@for_each("x", [
    np.zeros((0, 4), np.float32), np.float32(3.0), [1.0, np.nan, 2.0], [[np.inf, 1.0]], np.ones((2, 3, 4, 5)), [[0.0]],
], ids=lambda x: str(np.shape(x)))  # fmt: skip
@for_each("scheme", ["int4", "e4m3fn", "nf4", "uint8 asymmetric"])
def test_whatever_a_result_holds_it_can_be_shown(x, scheme):
    try:
        result = qc.apply(x, scheme)
    except qc.QuantError:
        return  # the library refuses it
    assert repr(result).startswith(f"Quantized {scheme.split()[0]} ")
    assert str(list(np.shape(x))) in Text(result._repr_html_()).text


def test_a_result_whose_x_was_changed_still_says_what_it_is():
    x = torch.ones(600, 600)
    result = qc.apply(x, "int4")
    x += 1
    with pytest.raises(qc.QuantError):
        qc.report(result)
    assert repr(result) == f"Quantized · {result.scheme}"
    assert str(result.scheme) in Text(result._repr_html_()).text


def test_clipped_elements_are_outlined_in_every_map():
    result = qc.apply(X, SCHEME)
    clipped = qc.report(result).clipped
    card = result._repr_html_()
    assert clipped > 0
    assert card.count("<rect") == 4 * clipped
    assert f"{clipped} clipped element" in card


def test_the_first_of_many_clipped_elements_are_outlined():
    result = qc.apply(np.linspace(-1, 1, 400).reshape(20, 20), "int4 fixed(-0.1,0.1)")
    card = result._repr_html_()
    assert qc.report(result).clipped > 60
    assert card.count("<rect") == 4 * 60
    assert f"Outlined: 60 of {qc.report(result).clipped} clipped elements." in card


def test_codes_changed_in_place_are_measured_again():
    result = qc.apply(X, "int4 per_channel(0)")
    before = qc.report(result)
    result.codes.zero_()  # as somebody who tries what zeros do
    assert f"SQNR {qc.decibels(before.sqnr_db)}" not in repr(result)
    assert "1 of 16 used · SQNR 0.0 dB" in repr(result)
    with torch.inference_mode():
        frozen = qc.apply(X, "int4")
        qc.report(frozen)
    assert "SQNR" in repr(frozen)


def test_the_part_that_is_drawn_has_the_worst_element():
    for shape, worst in (((7, 300), (3, 299)), ((2, 90, 90), (1, 50, 2)), ((1000,), (999,)), ((), ())):
        part = view(shape, worst)
        assert part.rows is not None
        assert part.columns is not None
        row, column = (0, 0, *worst)[-2:]
        assert row in range(*part.rows)
        assert column in range(*part.columns)
        assert np.diff([part.rows, part.columns]).max() <= CELLS
        assert part.index == worst[:-2]


def test_a_picture_is_an_image_file():
    colors = np.random.default_rng(1).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(png(colors)))), colors)


def test_the_link_has_the_tensor_and_the_scheme(monkeypatch):
    result = qc.apply(X.bfloat16(), SCHEME)
    given = {name: value for name, (value,) in parse_qs(urlsplit(address(SCHEME, result)).query).items()}
    assert qc.Scheme.parse(given["scheme"]) == SCHEME
    np.testing.assert_array_equal(qc.tensors.decode(given["t"]), X.bfloat16().float().numpy())
    assert given["dtype"] == "bfloat16"
    monkeypatch.setenv("QUANTSCOPE_APP", "https://scope.example/q/")
    large = qc.apply(torch.from_numpy(np.random.default_rng(2).normal(size=(64, 64))), "gguf.Q4_0")
    assert address(large.scheme, large) == "https://scope.example/q/?scheme=gguf.Q4_0"
    assert "too large for a link" in Text(large._repr_html_()).text


def test_what_a_file_says_is_text(tmp_path):
    from safetensors.torch import save_file

    name = "<img src=x onerror=alert(1)>\n" * 3
    save_file({name: torch.ones(2, 2)}, tmp_path / "model.safetensors")
    checkpoint = qc.checkpoints.open_checkpoint(tmp_path / "model.safetensors")
    for of in (checkpoint, *checkpoint.tensors.values()):
        assert "<img" not in of._repr_html_()
        assert "\n" not in repr(of)
