"""Error feedback, however weak, is no flipped bit; a flipped bit among codes rounded to nearest is, by whichever arithmetic.

A code that is rounded after its value was moved by d steps is not the nearest with probability |d|. A weight that GPTQ
quantized with hardly any feedback has a few such codes, each as far off as one whose lowest bit is flipped may be.
"""

from dataclasses import replace

import feedback
import numpy as np
import pytest
import torch
from grid import for_each
from parts import in_parts, some
from releases import save

from quantcore.checkpoints import open_checkpoint

MODULE = "model.layers.1.mlp.up_proj"
DTYPES = {"float32": np.float32, "float16": np.float16}


def problems(folder, q, x, gptq=False):
    """The findings, but for notes, on a release of one weight, and what its original says."""
    tensors, config = (feedback.as_gptq if gptq else feedback.as_bytes)(MODULE, q)
    stored = {name: torch.from_numpy(np.ascontiguousarray(t)) for name, t in tensors.items()}
    release = open_checkpoint(save(folder / "release", stored, config))
    original = open_checkpoint(save(folder / "original", {f"{MODULE}.weight": x}))
    return [f for f in release.findings(original) if f.severity != "note"]


def weight(draw, rows, columns, dtype):
    values = (
        draw.standard_t(draw.choice([4, 8, 30]), size=(rows, columns))
        * 0.02
        * np.exp(0.3 * draw.normal(size=(rows, 1)))
    )
    return torch.from_numpy(values.astype(np.float32)).to(dtype)


def grid(draw):
    columns = int(draw.choice([64, 128, 256]))
    bits = int(draw.integers(4, 9))
    return {
        "rows": int(draw.choice([16, 64, 256])), "columns": columns, "bits": bits, "size": int(draw.choice([32, 64, columns])),
        "symmetric": bool(draw.random() < 0.6), "gptq": bits in (4, 8) and bool(draw.random() < 0.6),
        "dtype": (torch.float32, torch.bfloat16, torch.float16)[draw.integers(3)],
        "scales": str(draw.choice(["float16", "float32"])),
    }  # fmt: skip


def with_feedback(draw, given, correlation, damping, act_order=False):
    x = weight(draw, given["rows"], given["columns"], given["dtype"])
    h = feedback.hessian(given["columns"], 256 * int(draw.choice([1, 4, 64])), correlation, draw)
    scales = np.float16 if given["gptq"] else DTYPES[given["scales"]]
    return x, feedback.quantize(
        x.double().numpy(),
        given["bits"],
        given["size"],
        h,
        damping,
        given["symmetric"],
        act_order,
        not given["gptq"],
        scales,
    )


GIVEN = {
    "rows": 64, "columns": 128, "bits": 8, "size": 32, "symmetric": True, "gptq": True, "dtype": torch.bfloat16, "scales": "float16",
}  # fmt: skip


@for_each(
    "changed",
    some([
        {}, {"bits": 4}, {"dtype": torch.float16}, {"dtype": torch.float32}, {"bits": 6, "gptq": False}, {"symmetric": False},
        {"size": 128}, {"bits": 5, "gptq": False, "scales": "float32"},
    ], 8),
    ids=str,
)  # fmt: skip
@in_parts(5)
def test_feedback_is_no_flipped_bit(changed, part, tmp_path):
    given = GIVEN | changed
    for seed, damping in part(enumerate((0.01, 0.1, 1.0, 10.0, 100.0, 1000.0))):
        x, q = with_feedback(np.random.default_rng(seed), given, 0.1, damping, act_order=bool(seed % 2))
        off = np.abs(x.double().numpy() - q.values) / q.of_element
        assert (off > 0.5).any()
        assert [f.sentence for f in problems(tmp_path / f"{seed}", q, x, given["gptq"])] == [], damping


def in_dtype(dtype):
    """Quotients that are rounded to a dtype."""
    return lambda w, s: (torch.from_numpy(w) / torch.from_numpy(s)).to(dtype).float().numpy()


def reciprocal(w, s):
    return w * (1 / s)


# how codes are computed: the dtype of the weight, whether the original is rounded to it only afterwards, and the rest
ARITHMETIC = {
    "float32": (torch.float32, False, {}), "of bfloat16": (torch.bfloat16, False, {}),
    "reciprocal": (torch.bfloat16, False, {"quotient": reciprocal}),
    "quotients in bfloat16": (torch.bfloat16, False, {"quotient": in_dtype(torch.bfloat16)}),
    "quotients in float16": (torch.float16, False, {"quotient": in_dtype(torch.float16)}),
    "scales rounded afterwards": (torch.bfloat16, False, {"afterwards": True}),
    "original rounded afterwards": (torch.float16, True, {}), "both rounded afterwards": (torch.bfloat16, True, {"afterwards": True}),
}  # fmt: skip


def rounded(draw, given, arithmetic):
    dtype, later, more = ARITHMETIC[arithmetic]
    exact = weight(draw, given["rows"], given["columns"], torch.float32)
    x = exact.to(dtype)
    scales = np.float16 if given["gptq"] else DTYPES[given["scales"]]
    w = (exact if later else x.float()).numpy()
    return x, feedback.nearest(w, given["bits"], given["size"], given["symmetric"], scales, **more)


def flip(q, row, column, bit):
    codes = q.codes.copy()
    codes[row, column] ^= 1 << bit
    return replace(q, codes=codes)


def is_named(found, row, column):
    """Whether the one problem is one code, and this one."""
    facts = [f.facts for f in found if f.kind == "code_impossible"]
    return len(found) == len(facts) == 1 and (facts[0]["elements"], facts[0]["row"], facts[0]["column"]) == (
        1,
        row,
        column,
    )


@in_parts(2)
@for_each("arithmetic", some(ARITHMETIC, 3))
def test_a_flipped_bit_is_found_whatever_the_arithmetic(arithmetic, part, tmp_path):
    seeds, turn = [(0, 4), (1, 8)], list(ARITHMETIC).index(arithmetic) % 2
    for seed, bits in part(seeds[turn:] + seeds[:turn]):
        x, q = rounded(np.random.default_rng(seed), GIVEN | {"bits": bits}, arithmetic)
        assert problems(tmp_path / f"{seed} sound", q, x, True) == []
        for bit in part((1, bits - 1)[:: 1 - 2 * turn]):
            row, column = np.argwhere(
                (q.codes > 0) & (q.codes < 2**bits - 1) & (np.abs(q.codes - 2 ** (bits - 1)) < 40)
            )[100 + bit]
            found = problems(tmp_path / f"{seed} {bit}", flip(q, row, column, bit), x, True)
            assert is_named(found, row, column), [f.sentence for f in found]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_random_feedback_is_no_flipped_bit(seed, tmp_path):
    for number in range(300):
        draw = np.random.default_rng([seed, number])
        given = grid(draw)
        x, q = with_feedback(
            draw, given, 10 ** draw.uniform(-3, 0.3), 10 ** draw.uniform(-3, 4), draw.random() < 0.3
        )
        found = [f.sentence for f in problems(tmp_path, q, x, given["gptq"])]
        assert found == [], (number, given)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_random_flips_are_found(seed, tmp_path):
    """Each of 3 steps or more, and all but some of the lowest bit, which may move a code by hardly more than half a step."""
    named, count = 0, 300
    for number in range(count):
        draw = np.random.default_rng([seed, number, 1])
        given, arithmetic = grid(draw), draw.choice(list(ARITHMETIC))
        x, q = rounded(draw, given, arithmetic)
        assert problems(tmp_path, q, x, given["gptq"]) == [], (number, given, arithmetic)
        row, column, bit = (int(draw.integers(n)) for n in (*q.codes.shape, given["bits"]))
        found = problems(tmp_path, flip(q, row, column, bit), x, given["gptq"])
        named += is_named(found, row, column)
        assert bit == 0 or is_named(found, row, column) or bit == 1, (
            number,
            given,
            arithmetic,
            row,
            column,
            bit,
        )
    assert named >= 0.93 * count
