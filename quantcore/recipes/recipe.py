"""A recipe: which tensor takes which scheme, in the form that a tool reads, with the reason per tensor."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from quantcore.analysis import decibels
from quantcore.checkpoints import Checkpoint
from quantcore.errors import QuantError
from quantcore.layerwise import AS_STORED, Plan, Table, group_of
from quantcore.recipes.preview import FtypeFile
from quantcore.recipes.tools.auto_round import AUTO_ROUND
from quantcore.recipes.tools.compressed_tensors import COMPRESSED_TENSORS
from quantcore.recipes.tools.llama_cpp import LLAMA_CPP
from quantcore.recipes.tools.mlx import MLX
from quantcore.recipes.tools.modelopt import MODELOPT
from quantcore.recipes.tools.onnxruntime import ONNXRUNTIME
from quantcore.recipes.tools.tool import TensorChoice, Tool
from quantcore.recipes.tools.torchao import TORCHAO
from quantcore.recipes.wanted import check_width, nearest_of, wanted
from quantcore.scheme import Scheme
from quantcore.wording import count, nearest, passed, short

_ALL = (LLAMA_CPP, COMPRESSED_TENSORS, TORCHAO, MODELOPT, AUTO_ROUND, MLX, ONNXRUNTIME)
TOOLS = {tool.name: tool for tool in _ALL}


@dataclass(frozen=True)
class ToolRecipe:
    """What a tool is given.

    ``text``: of a file, for which ``file`` is a name; ``json``: the same as plain data, for tools that take
    it; ``reasons``: by tensor, what the tool does with it and why.
    """

    tool: str
    file: str
    text: str
    json: Any
    reasons: Mapping[str, str]


def recipe(
    chosen: Plan | FtypeFile | Mapping[str, Scheme | str],
    for_: str = "llama.cpp",
    checkpoint: Checkpoint | None = None,
    table: Table | None = None,
) -> ToolRecipe:
    """Return the recipe of a choice for a tool.

    The tool is told formats, symmetry and granularity; how it rounds and computes scales is its own.

    Args:
        chosen: a plan; a file of llama-quantize (`ftype_file`); or by tensor a scheme, its text, the name of
            a preset, a type of ggml, or ``"as stored"``, which tensors without an entry are too.
        for_: a tool, see `TOOLS`.
        checkpoint: the model, by which widths are checked; needed for llama.cpp unless names are those of a
            GGUF file, and for onnxruntime.
        table: with which the plan was made, for the error in each reason.

    >>> made = recipe({"blk.0.attn_v.weight": "Q6_K", "blk.0.attn_q.weight": "Q4_K"})
    >>> print(made.text, end="")
    llama-quantize --pure \\
      --tensor-type '^blk\\.0\\.attn_q\\.weight$=q4_K' \\
      model.gguf model-quantized.gguf Q6_K
    >>> made.reasons["blk.0.attn_v.weight"]
    'Q6_K: as given'

    Raises:
        QuantError: there is no such tool, it lacks a scheme (it says the nearest that it has), or the choice
            does not fit it or the checkpoint.
    """
    tool = tool_of(for_)
    if isinstance(chosen, FtypeFile) and checkpoint is None:
        checkpoint = chosen.checkpoint
    choices = _choices(chosen, table)
    _check_schemes(choices, tool)
    _check_names(choices, tool, checkpoint)
    written = tool.write(choices, checkpoint)
    reasons = {
        each.name: f"{each.wanted.text if each.wanted else AS_STORED}: {each.reason}" for each in choices
    }
    return ToolRecipe(tool.name, tool.file, written.text, written.data, reasons)


def fitted(table: Table, tool: Tool, checkpoint: Checkpoint) -> Table:
    """Return a table in which what a tool does not quantize is left alone, as a plan then leaves it.

    Raises:
        QuantError: the tool lacks a scheme of the table, or does not know the checkpoint.
    """
    schemes = [TensorChoice("", wanted(scheme), "") for scheme in table.schemes]
    _check_schemes(schemes, tool)
    unfit, sizes = tool.unfit(checkpoint), []
    for each in schemes:
        assert each.wanted is not None
        sizes.append(each.wanted.kind.group_size if each.wanted.kind else 0)
    rows = {}
    for name, row in table.rows.items():
        cells = tuple(
            replace(cell, problem=f"groups of {size} do not divide its rows")
            if size and row.shape[-1] % size
            else cell
            for cell, size in zip(row.cells, sizes, strict=bool(row.cells))
        )
        alone = name in unfit and row.cells
        rows[name] = replace(row, cells=(), reason=unfit[name]) if alone else replace(row, cells=cells)
    return replace(table, rows=rows)


def tool_of(name: str) -> Tool:
    """Return a tool by its name, in any case.

    Raises:
        QuantError: there is no such tool.
    """
    by_lower = {each.lower(): tool for each, tool in TOOLS.items()}
    found = by_lower.get(name.lower()) if isinstance(name, str) else None
    if found is None:
        near = nearest(str(name), TOOLS)
        hint = f"the nearest is {near}" if near else f"choose one of {', '.join(TOOLS)}"
        raise QuantError(f"There are no recipes for {passed(name)}; {hint}.")
    return found


def _choices(chosen: Any, table: Table | None) -> list[TensorChoice]:
    if isinstance(chosen, Plan):
        rows = {} if table is None else table.rows
        return [
            TensorChoice(name, wanted(scheme), _why(rows.get(name), scheme, table))
            for name, scheme in chosen.schemes.items()
        ]
    if isinstance(chosen, FtypeFile):
        kinds = {tensor.name: tensor.kind for tensor in chosen.tensors}
        return [
            TensorChoice(own, None if kind == kinds[name] else wanted(kind), chosen.reasons[name])
            for name, kind in chosen.types.items()
            for own in chosen.origins[name]
        ]
    if not isinstance(chosen, Mapping):
        raise QuantError(
            f"A recipe needs a plan, a file of llama-quantize or schemes by tensor, not {passed(chosen)}."
        )
    return [TensorChoice(str(name), wanted(scheme), "as given") for name, scheme in chosen.items()]


def _why(row: Any, scheme: str, table: Table | None) -> str:
    """Return why a plan gives a tensor a scheme."""
    if row is None or table is None:
        return "chosen by the plan"
    if not row.cells:
        return f"it {row.reason}" if row.reason else "not measured"
    if scheme == AS_STORED:
        return f"chosen by the plan, {8 * row.num_bytes / max(1, row.elements):.3g} bits per weight"
    cell = row.cells[table.schemes.index(scheme)]
    bits = 8 * cell.num_bytes / max(1, row.elements)
    return f"chosen by the plan, SQNR {decibels(cell.sqnr_db)} at {bits:.3g} bits per weight"


def _check_schemes(choices: Sequence[TensorChoice], tool: Tool) -> None:
    lacking = [each for each in choices if each.wanted is not None and not tool.has(each.wanted)]
    if lacking:
        first = lacking[0]
        assert first.wanted is not None
        others = f" and {count(len(lacking) - 1, 'other tensor')}" if len(lacking) > 1 else ""
        where = f" ({short(first.name, 120)}{others})" if first.name else ""
        raise QuantError(
            f"{tool.name} has no {first.wanted.text}{where}; the nearest that it has is "
            f"{nearest_of(first.wanted, tool.menu)}."
        )
    if all(each.wanted is None for each in choices):
        raise QuantError("No tensor is to be quantized, so that there is no recipe; choose a scheme for one.")


def _check_names(choices: Sequence[TensorChoice], tool: Tool, checkpoint: Checkpoint | None) -> None:
    """Check that the checkpoint has the tensors, that groups fit them, and that readers can load them."""
    tensors = {} if checkpoint is None else checkpoint.tensors
    unfit = {} if checkpoint is None else tool.unfit(checkpoint)
    groups: dict[str, TensorChoice] = {}
    for each in choices:
        if checkpoint is not None and each.name not in tensors:
            near = nearest(each.name, tensors)
            hint = f"; the nearest name is {short(near, 120)}" if near else ""
            raise QuantError(f"The checkpoint has no tensor {short(each.name, 120)}{hint}.")
        if each.wanted is not None and each.name in unfit:
            raise QuantError(
                f"{short(each.name, 120)} {unfit[each.name]}, so that {tool.name} does not quantize it; "
                "leave it as stored."
            )
        kind = each.wanted.kind if each.wanted else None
        if kind is not None and checkpoint is not None:
            check_width(each.name, tensors[each.name].shape, kind.group_size, tool.name)
        if tool.fuses and each.name.endswith(".weight"):
            other = groups.setdefault(group_of(each.name), each)
            if (other.wanted and other.wanted.kind) != kind:
                raise QuantError(
                    f"Readers of {tool.name} fuse {short(other.name, 100)} and {short(each.name, 100)}, but "
                    "they are to have different schemes; give both the same."
                )
