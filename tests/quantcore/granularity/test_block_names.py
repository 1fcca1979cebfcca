"""A block's name says which elements are in it: parsed again, it gives exactly these elements."""

import re

import numpy as np
from grid import for_each
from parts import Part, in_parts, some

import quantcore as qc
from quantcore.granularity.layout import block_name


def elements(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """A mask of the elements that a name refers to, read as a person would."""
    mask = np.zeros(shape, bool)
    if name == "the whole tensor":
        return ~mask
    flat = re.fullmatch(r"elements? (\d+)(?:–(\d+))? in row-major order", name)
    if flat:
        mask.reshape(-1)[int(flat[1]) : int(flat[2] or flat[1]) + 1] = True
        return mask
    cut = [slice(None)] * len(shape)
    for part in name.split(", "):
        found = re.fullmatch(r"(?:axis (\d+) )?(row|column|element|index|indice)s? (\d+)(?:–(\d+))?", part)
        assert found, part
        axis = int(found[1]) if found[1] else {"row": 0, "column": 1, "element": 0}[found[2]]
        assert ("–" in part) == bool(re.search(r"(rows|columns|elements|indices) ", part))
        cut[axis] = slice(int(found[3]), int(found[4] or found[3]) + 1)
    mask[tuple(cut)] = True
    return mask


@for_each("shape", some([(3, 8), (), (1,), (2, 3, 8), (7,), (1, 1), (4, 6), (2, 3, 2, 4)], 3))
@for_each(
    "granularity",
    [
        "per_tensor",
        "per_channel(0)",
        "per_channel(-1)",
        "per_group(2)",
        "per_group(5)",
        "per_flat_group(5)",
        "blocks",
    ],
)
@in_parts(3)
def test_a_name_stands_for_the_elements_of_the_block(
    shape: tuple[int, ...], granularity: str, part: Part
) -> None:
    if not shape and granularity != "per_tensor":
        return
    if granularity == "blocks":
        granularity = f"per_block([{','.join(str(min(2, n)) for n in shape)}])"
    if granularity.startswith("per_group"):
        granularity = f"per_group({min(int(granularity[-2]), shape[-1])})"
    x = np.arange(1.0, 1 + np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)
    result = qc.apply(x, qc.Scheme.parse(f"int8 symmetric {granularity} min_max textbook"))
    for index in part(np.ndindex(*shape)):
        t = qc.trace(result, index)
        mask = elements(block_name(t.bounds, shape), shape)
        assert mask[index]
        # x increases, so the scale is that of the last element: the name must cover all that share it
        assert np.float32(x[mask].max()) / np.float32(127) == t.scale
