"""AWQ releases (AutoAWQ), the versions gemm and gemv.

gemm, per module: ``qweight`` int32 [in, out/8] and ``qzeros`` int32 [groups, out/8], eight 4-bit codes per
word, along the output axis and interleaved; ``scales`` [groups, out]. gemv: ``qweight`` int32 [out, in/8],
``qzeros`` int32 [out, width] and ``scales`` [out, 8 * width], along the input axis in natural order, padded
to whole words and, for groups of 64 and 32, to 2 and 4 of them. w = (code - zero) * scale, in float32.

Source: AutoAWQ 88e4c76b, awq/utils/packing_utils.py, awq/modules/linear/gemm.py and gemv.py. The version
gemv_fast is stored differently (gemv_fast.py) and is not supported.
"""

from collections.abc import Iterator, Mapping

import torch

from quantcore.checkpoints.containers.stored import Pieces
from quantcore.checkpoints.packing import dense, permuted
from quantcore.checkpoints.protocol.config import Config, flag, group_size, integer, text
from quantcore.checkpoints.protocol.fields import Field, Numbers
from quantcore.checkpoints.protocol.kinds import Cut, Packed
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.checkpoints.protocol.reading import Reading, elsewhere
from quantcore.checkpoints.protocol.record import CODES, SCALE, ZERO_POINT, words
from quantcore.checkpoints.protocol.release import Release, attempt
from quantcore.checkpoints.statement import Facts, Statement, named
from quantcore.errors import QuantError
from quantcore.formats import UINT4
from quantcore.granularity import PerGroup, Shape
from quantcore.wording import short

# the place of column j of eight in its word, counted from the lowest bits
INTERLEAVE = (0, 4, 1, 5, 2, 6, 3, 7)
ORDER = permuted(4, 32, INTERLEAVE)
_MIDDLE = 8  # of the codes
NAMES = ("qweight", "qzeros", "scales")


def find(release: Release) -> Iterator[Layout]:
    """Yield the weights of an AWQ release."""
    for module, pieces in release.modules_with(*NAMES):
        if release.method or has_its_shape(pieces):
            yield attempt(f"{module}.weight", pieces, layout_of, module, pieces, release.quantization)


def has_its_shape(pieces: Pieces) -> bool:
    """Tell whether eight outputs share a word of qweight, as in no GPTQ release."""
    return pieces["qweight"].shape[-1:] == pieces["qzeros"].shape[-1:]


def layout_of(module: str, pieces: Pieces, config: Config) -> Layout:
    """Return the layout of one module.

    Raises:
        QuantError: an unsupported version or number of bits, or shapes that don't fit the config.
    """
    version = (text(config, "version") or "gemm").lower()
    if version not in ("gemm", "gemv"):
        raise QuantError(
            f"{named(module)} is stored in AWQ's version {short(version)}, which is not supported; convert "
            "it to version gemm."
        )
    for key in ("bits", "w_bit"):
        integer(config, key, (4,))
    for piece in pieces.values():
        if len(piece.shape) != 2:
            raise QuantError(f"{named(piece.name)} has shape {piece.shape}; AWQ stores matrices.")
    found = (_gemm if version == "gemm" else _gemv)(module, pieces, config)
    symmetric = flag(config, "sym") is True or flag(config, "zero_point") is False
    return found.changed(checks=_symmetric) if symmetric else found


def _symmetric(layout: Layout) -> Iterator[Statement]:
    """Yield a statement if zero points are not the middle of the codes, although the config says so."""
    zero_point = layout.fields[ZERO_POINT].read()
    others = zero_point != _MIDDLE
    if bool(others.any()):
        words = (
            "{is} symmetric according to the config, so every zero point should be {middle}, but {zeros} "
            "({share:%}) of {its} stored zero points have other values, such as {example}: the config is "
            "wrong, and readers that trust it ignore them. They are used; correct the config."
        )
        facts: Facts = {
            "middle": _MIDDLE, "zeros": int(others.sum()), "share": float(others.double().mean()),
            "example": int(zero_point[others][0]),
        }  # fmt: skip
        yield Statement("config_symmetric", "error", words, facts)


def _gemm(module: str, pieces: Pieces, config: Config) -> Layout:
    (columns, words_), (groups, rows) = pieces["qweight"].shape, pieces["scales"].shape
    if rows != words_ * ORDER.count:
        raise QuantError(
            f"{named(pieces['scales'].name)} has {rows} columns, but the qweight of {named(module)} holds "
            f"{words_ * ORDER.count} outputs; the file is damaged."
        )
    size, remarks = group_size(config, ("group_size", "q_group_size"), columns, groups, pieces["scales"])
    fields: dict[str, Field] = {
        CODES: Packed(pieces["qweight"], ORDER, (rows, columns), axis=0, transposed=True),
        SCALE: Numbers(pieces["scales"], transposed=True),
        ZERO_POINT: Packed(pieces["qzeros"], ORDER, (rows, groups), axis=0, transposed=True),
    }
    return _layout(module, (rows, columns), pieces, fields, size).changed(remarks=remarks, rivals=_rivals)


def _gemv(module: str, pieces: Pieces, config: Config) -> Layout:
    order, (rows, words_) = dense(4, 32), pieces["qweight"].shape
    columns = words_ * order.count
    sizes = (integer(config, key, range(-1, 2**31)) for key in ("group_size", "q_group_size"))
    said = next((n for n in sizes if n), -1)
    size = columns if said < 1 else said
    groups = -(-columns // size)
    padding = order.count * {64: 2, 32: 4}.get(size, 1)
    width = -(-groups // padding) * padding
    if columns % size or pieces["scales"].shape != (rows, width):
        raise QuantError(
            f"{named(pieces['scales'].name)} has shape {pieces['scales'].shape}, but groups of {size} for "
            f"{columns} inputs take {(rows, width)} in AWQ's version gemv; the file does not fit its config."
        )
    zeros = Packed(pieces["qzeros"], order, (rows, width))
    fields: dict[str, Field] = {
        CODES: Packed(pieces["qweight"], order, (rows, columns)),
        SCALE: Cut(Numbers(pieces["scales"]), (rows, groups)),
        ZERO_POINT: Cut(zeros, (rows, groups)),
    }
    return _layout(module, (rows, columns), pieces, fields, size)


def _layout(module: str, shape: Shape, pieces: Pieces, fields: Mapping[str, Field], size: int) -> Layout:
    return Layout(
        f"{module}.weight", shape, torch.float32, pieces, fields,
        "awq", words("awq", "int4", f"per_group({size})", "asymmetric"), UINT4, PerGroup(size),
        narrowed=torch.float16,
    )  # fmt: skip


def _rivals(layout: Layout) -> Iterator[Reading]:
    """Yield the reading of AWQ without undoing its interleave."""
    other = layout.with_field(CODES, order=dense(4, 32)).with_field(ZERO_POINT, order=dense(4, 32))
    yield Reading(
        "awq_interleave", "interleave not undone", "GPTQModel 7.7.0, convert_awq_file", other,
        elsewhere("Takes the eight codes of a word in the order in which they are stored"),
    )  # fmt: skip
