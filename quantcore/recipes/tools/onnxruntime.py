"""onnxruntime: MatMulNBitsQuantizer, which gives all MatMul nodes one scheme, but for nodes_to_exclude.

Nodes are told by their names (onnxruntime 1.31, quantization/matmul_nbits_quantizer.py,
`_process_subgraph`), not by those of their weights, so that the graph is needed. Weights are [in, out], and
groups run along axis 0.
"""

import json
from collections.abc import Sequence
from typing import Any

from quantcore.checkpoints import Checkpoint, OnnxGraph
from quantcore.errors import QuantError
from quantcore.granularity import PerGroup
from quantcore.recipes.tools.tool import TensorChoice, Tool, Written, by_kind, quantized
from quantcore.recipes.wanted import StorageKind
from quantcore.wording import short

_TEXT = """import onnx
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

quantizer = MatMulNBitsQuantizer(
    onnx.load("model.onnx"), bits={bits}, block_size={block_size}, is_symmetric={is_symmetric},
    nodes_to_exclude={nodes},
)
quantizer.process()
quantizer.model.save_model_to_file("model-quantized.onnx", use_external_data_format=True)
"""


def entry(kind: StorageKind) -> dict[str, Any] | None:
    """Return the arguments of the quantizer."""
    granularity = kind.granularity
    if kind.bits not in (4, 8) or kind.scales or not isinstance(granularity, PerGroup):
        return None
    if granularity.axis != 0 or granularity.size not in (16, 32, 64, 128, 256):
        return None
    return {"bits": kind.bits, "block_size": granularity.size, "is_symmetric": kind.symmetric}


def _graph(checkpoint: Checkpoint | None) -> OnnxGraph:
    structures = () if checkpoint is None else checkpoint.release.structures
    found = next((each for each in structures if isinstance(each, OnnxGraph)), None)
    if found is None:
        raise QuantError("onnxruntime excludes nodes by their names; give the ONNX model as checkpoint.")
    return found


def _matmuls(graph: OnnxGraph) -> list[Any]:
    return [node for node in graph.nodes if node.op == "MatMul" and not node.domain]


def _no_matmuls(checkpoint: Checkpoint) -> dict[str, str]:
    used = {node.input(1) for node in _matmuls(_graph(checkpoint))}
    return {name: "is not the second input of a MatMul" for name in checkpoint.tensors if name not in used}


def _write(choices: Sequence[TensorChoice], checkpoint: Checkpoint | None) -> Written:
    graph = _graph(checkpoint)
    entries = {json.dumps(entry(choice.kind)): choice for choice in quantized(choices)}
    if len(entries) > 1:
        one, other = list(entries.values())[:2]
        raise QuantError(
            f"onnxruntime gives all MatMuls one scheme, but {short(one.name, 100)} is to have another than "
            f"{short(other.name, 100)}; choose one scheme, and leave the other weights as stored."
        )
    used = _matmuls(graph)
    nodes = {node.name: node.input(1) for node in used}
    taken = {choice.name for choice in quantized(choices)}
    excluded = [name for name, weight in nodes.items() if weight not in taken]
    if "" in excluded or len(nodes) < len(used):
        raise QuantError(
            "Several MatMul nodes of the model have no name or the same one, by which onnxruntime excludes "
            "them; give every node a name of its own."
        )
    (text,) = entries
    data = {**json.loads(text), "nodes_to_exclude": excluded}
    return Written(_TEXT.format(**data, nodes=json.dumps(excluded)), data)


ONNXRUNTIME = Tool(
    "onnxruntime", "quantize_with_onnxruntime.py",
    tuple(
        f"uint{bits} {symmetry} per_group({size}, axis=0)" for bits in (4, 8)
        for symmetry in ("symmetric", "asymmetric") for size in (16, 32, 64, 128, 256)
    ),
    ("uint4 asymmetric per_group(32, axis=0)",),
    by_kind(entry), _write, _no_matmuls,
)  # fmt: skip
