"""Where files go that are dropped or pasted on a page, by their names and sizes."""

import pytest
from grid import for_each

import quantcore as qc
from pages.serving.settings import upload_limit
from pages.sidebar import brought
from quantcore import tensors
from quantcore.checkpoints import OPENERS

FIELDS = {"tensor": "key-_upload]", "checkpoint": "key-_ck_upload]", "code": "match_code_file "}


def found(*names: str, section: str = "Tensors") -> list[tuple[str, str, tuple[int, ...]]]:
    """What is offered: where to, by the field, the label, and which files."""
    offered = brought.ways([(name, 10) for name in names], section)
    places = [
        [place for place, part in FIELDS.items() if f"{part}" in way.target.selector] for way in offered
    ]
    return [
        (place[0], way.label, way.files) for place, way in zip(places, offered, strict=True) if len(place) == 1
    ]


@for_each(
    ("names", "section", "expected"),
    [
        (["x.NPY"], "Tensors", [("tensor", "x.NPY", (0,))]),
        (["a.png"], "Learn", [("tensor", "a.png", (0,))]),
        (["m.safetensors"], "Tensors", [("tensor", "m.safetensors", (0,))]),
        (["m.safetensors"], "Models", [("checkpoint", "m.safetensors", (0,))]),
        (["m.gguf"], "Tensors", [("checkpoint", "m.gguf", (0,))]),
        (["m.onnx"], "Learn", [("checkpoint", "m.onnx", (0,))]),
        (["h.ipynb"], "Models", [("code", "h.ipynb", (0,))]),
        (["a.csv", "b.csv"], "Tensors", [("tensor", "a.csv", (0,)), ("tensor", "b.csv", (1,))]),
        (
            ["config.json", "m.safetensors"],
            "Tensors",
            [
                ("checkpoint", "2 files as a checkpoint", (0, 1)),
                ("tensor", "config.json", (0,)),
                ("tensor", "m.safetensors", (1,)),
            ],
        ),
        (["config.json", "m.bin", "x.doc"], "Models", [("checkpoint", "2 files as a checkpoint", (0, 1))]),
    ],
)
def test_files_go_where_their_kind_is_read(
    names: list[str], section: str, expected: list[tuple[str, str, tuple[int, ...]]]
) -> None:
    assert found(*names, section=section) == expected


def test_every_kind_that_is_read_can_be_dropped() -> None:
    for kind in (*tensors.EXTENSIONS, *tensors.IMAGES, *OPENERS):
        assert found(f"x{kind}"), kind


def test_what_cannot_be_taken_is_one_sentence() -> None:
    with pytest.raises(qc.QuantError, match=r"^'a\.doc' and 'b' can't be opened here: \.npy, .*\.ipynb, \.py files can\.$"):
        found("a.doc", "b")
    with pytest.raises(qc.QuantError, match=r"^'big\.npy' has 268\.4 MB; at most 268\.4 MB can be opened here\.$"):
        brought.ways([("big.npy", upload_limit() + 1)], "Tensors")
