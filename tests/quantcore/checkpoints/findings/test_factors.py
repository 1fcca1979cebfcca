"""From which size on a factor of a row, a column or a block is more than noise, and what formulas call the numbers."""

from dataclasses import replace

import pytest
import releases
import torch
from checkpoint_cases import case
from grid import for_each
from suspects import COLUMNS, ROWS, M, W, awq_of, awq_stored, suspect, weight

from quantcore.checkpoints import open_checkpoint
from quantcore.checkpoints.findings.against import numbers
from quantcore.checkpoints.findings.against.grid import nearest_power
from quantcore.checkpoints.findings.against.measure import Measure
from quantcore.checkpoints.findings.against.suspect import Residual
from quantcore.checkpoints.findings.stored import of_group_index
from quantcore.checkpoints.ggml import BLOCK_TYPES, BlockType
from quantcore.checkpoints.origin.words import _labeled

# the relative error, the number of elements that a factor is estimated from -> the least factor that is no noise
CHANCES = [
    (0.2, 128, 0.2 * 6 / 128**0.5),
    (0.2, 48, 0.2 * 6 / 48**0.5),
    (0.01, 128, 0.02),
    (2.0, 128, 6 / 128**0.5),
    (1.0, 48, 6 / 48**0.5),
]


@for_each(("relative", "n", "least"), CHANCES)
def test_factors_that_noise_explains(relative, n, least, tmp_path):
    """Six times the standard error of a factor, but at least 2 %."""
    x = weight()
    rows = n == COLUMNS
    for by, found in ((1 + 0.98 * least, False), (1 + 1.02 * least, True)):
        y = x.clone()
        if rows:
            y[7] /= by
        else:
            y[:, 7] /= by
        s = suspect(tmp_path / f"{by}", {W: y}, x, "")
        s.__dict__["now"] = Residual(1.0, relative)
        what = list((numbers.factor_per_row if rows else numbers.factor_per_column)(s))
        assert [e.facts["low"] for e in what] == [pytest.approx(1 / by, rel=1e-4)] * found


@for_each(("many", "counted"), [(9, 9), (11, 11), (12, 17), (20, 25)])
def test_factors_of_a_quarter_of_the_rows(many, counted, tmp_path):
    """They are meant: then those that noise alone would explain count, too."""
    x = weight()
    by = torch.ones(ROWS, 1)
    by[:many], by[-5:] = 2.0, 1.05
    s = suspect(tmp_path, {W: x * by}, x, "")
    s.__dict__["now"] = Residual(1.0, 0.2)
    (found,) = numbers.factor_per_row(s)
    assert (found.facts["rows"], found.facts["first"]) == (counted, 0)
    assert (found.facts["low"], found.facts["high"]) == pytest.approx(
        (1.05 if many > 11 else 2.0, 2.0), rel=1e-4
    )


@for_each(("many", "counted"), [(31, 31), (32, 37)])
def test_factors_of_a_quarter_of_the_columns(many, counted, tmp_path):
    x = weight()
    by = torch.ones(1, COLUMNS)
    by[:, :many], by[:, -5:] = 2.0, 1.05
    s = suspect(tmp_path, {W: x * by}, x, "")
    s.__dict__["now"] = Residual(1.0, 0.2)
    found = list(numbers.factor_per_column(s))
    assert found[0].facts["columns"] == counted
    assert [e.kind for e in found] == ["column_factors", "row_and_column_factors"][: 1 + (many == 32)]


@for_each(("left", "found"), [(0.35, False), (0.15, True)])
def test_factors_that_leave_much(left, found, tmp_path):
    """A quarter of the squared error of a row or column may be left."""
    generator = torch.Generator().manual_seed(4)
    x = weight()
    noise = torch.randn(x.shape, generator=generator)
    for axis, hypothesis in ((0, numbers.factor_per_row), (1, numbers.factor_per_column)):
        line = x.select(axis, 9)
        rest = noise.select(axis, 9)
        rest = rest - line * (line @ rest) / (line @ line)
        off = 0.5 * float(line.norm())  # the error that a factor of 2 explains, if stored is half of it
        rest = rest / rest.norm() * off * (left / (1 - left)) ** 0.5
        y = x.clone()
        y.select(axis, 9).copy_(line / 2 + rest / 2)
        s = suspect(tmp_path / f"{axis}", {W: y}, x, "")
        assert bool(list(hypothesis(s))) is found


@for_each(("size", "found"), [(4, False), (8, True), (64, True), (128, False)])
def test_blocks_that_show_a_factor(size, found, tmp_path):
    """Of at least eight columns, and several to a row."""
    x = weight()
    q, s = releases.symmetric(x, size, 7, torch.bfloat16)
    wrong = s.clone()
    wrong[5, 0] *= 2
    stored = {
        f"{M}.weight_packed": releases.words(q + 8),
        f"{M}.weight_scale": wrong,
        f"{M}.weight_shape": torch.tensor(q.shape),
    }
    config = releases._ct(4, "int", "group", "pack-quantized", size)
    release = open_checkpoint(releases.save(tmp_path / "size", stored, config))
    one = suspect(tmp_path / "one", releases.ct_int4(M, x), x)
    one = replace(one, measure=Measure(release.tensors[W].layout, one.measure.source))
    assert [e.facts["first"] for e in numbers.factor_per_block(one)] == [(5, 0)] * found


INDICES = {
    "one group": (torch.zeros(COLUMNS), 128, []), "two": (torch.arange(COLUMNS) // 64, 64, ["config_unused"]),
    "beyond": (torch.where(torch.arange(COLUMNS) == 100, 2, torch.arange(COLUMNS) // 64), 64, ["g_idx_unsorted"]),
    "far beyond": (torch.where(torch.arange(COLUMNS) == 100, 7, torch.arange(COLUMNS) // 64), 64, ["g_idx_unsorted"]),
    "below": (torch.where(torch.arange(COLUMNS) == 100, -1, torch.arange(COLUMNS) // 64), 64, ["g_idx_unsorted"]),
    "unbalanced": (torch.where(torch.arange(COLUMNS) == 63, 1, torch.arange(COLUMNS) // 64), 64, ["g_idx_unbalanced", "config_unused"]),
}  # fmt: skip


@for_each("what", INDICES)
def test_groups_of_columns_that_do_not_exist(what, tmp_path):
    """Reading says so, not how many columns each group has; one group has no order."""
    index, size, kinds = INDICES[what]
    groups = COLUMNS // size
    stored = releases.gptq(M, weight())
    stored = {
        **stored,
        f"{M}.g_idx": index.to(torch.int32),
        f"{M}.scales": stored[f"{M}.scales"][:groups],
        f"{M}.qzeros": stored[f"{M}.qzeros"][:groups],
    }
    config = releases.WRITERS["gptq_desc_act"][1] | {"group_size": size}
    layout = open_checkpoint(releases.save(tmp_path, stored, config)).tensors[W].layout
    assert [f.kind for f in of_group_index(layout)] == kinds


SYMBOLS = {
    "gguf_model": {}, "imatrix": {"codes": "x", "counts": "counts"}, "mlx_affine_4bit": {"codes": "q", "scale": "s", "zero_point": "bias"},
    "quanto_qint4": {"codes": "q", "scale": "s", "zero_point": "shift"}, "awq_gemm_g128": {"codes": "q", "scale": "s", "zero_point": "z"},
    "bnb_int8": {"codes": "q", "scale": "amax"}, "ct_nvfp4": {"codes": "q", "scale_code": "sc", "global_scale": "s_global"},
    "ct_int4_actorder_group": {"codes": "q", "scale": "s", "g_idx": "g"}, "bnb_nf4": {"codes": "q", "scale": "s", "quant_map": "v"},
}  # fmt: skip


@for_each("name", SYMBOLS)
def test_what_formulas_call_the_numbers(name):
    """x is a value that is stored as it is, and nothing else."""
    for tensor in open_checkpoint(case(name).release).tensors.values():
        fields = tensor.layout.fields
        if not tensor.is_quantized and set(fields) == {"codes"}:
            assert tensor.layout.symbol("codes") == "x"
        elif SYMBOLS[name]:
            known = {role: tensor.layout.symbol(role) for role in fields if role in SYMBOLS[name]}
            assert known == {role: s for role, s in SYMBOLS[name].items() if role in fields}
            assert known.keys() >= {"codes"}


@for_each("name", ["gguf_legacy", "gguf_k", "gguf_iq", "gguf_ternary_fp4"])
def test_what_bits_of_a_block_are_called(name):
    """A number of which a block has several has its index."""
    kinds = {
        BLOCK_TYPES[t.layout.block_type]
        for t in open_checkpoint(case(name).release).tensors.values()
        if t.layout.block_type
    }
    for kind in kinds:
        assert isinstance(kind, BlockType)
        bits = _labeled(kind, (3,), kind.elements)
        assert len(bits) == 8 * kind.num_bytes
        owners = {bit.owner for bit in bits}
        for field in kind.fields:
            if field.name != "codes":
                wanted = (
                    {f"{field.name} {i}" for i in range(field.count)} if field.count > 1 else {field.name}
                )
                assert {o for o in owners if o.split(" ")[0] == field.name} == wanted
        codes = {o for o in owners if o.startswith("(")}
        assert codes <= {f"(3, {kind.elements + i})" for i in range(kind.elements)}
    assert kinds


@for_each(
    ("factor", "power"),
    [(1.0, 1.0), (1.4, 1.0), (1.42, 2.0), (-3.1, -4.0), (0.36, 0.5), (-0.35, -0.25), (-1e-3, -(2.0**-10))],
)
def test_the_nearest_power_of_two(factor, power):
    """By the ratio: between 1 and 2, the square root of 2 is in the middle."""
    assert nearest_power(factor) == power


@for_each("zeros", [0, 10, 40])
def test_zero_points_where_most_scales_are_0(zeros, tmp_path):
    """Rows whose scale is 0 say nothing about their zero points."""
    x = weight().abs() + 0.01
    q, z, step = awq_of(x)
    z = z + 2
    q = (x / step).round() + z
    step[:zeros] = 0
    (found,) = numbers.zero_point_off(suspect(tmp_path, awq_stored(q, z + 1, step), x, "awq"))
    assert (found.facts["by"], found.facts["way"]) == (1, "large")
