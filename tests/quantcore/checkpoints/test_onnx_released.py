"""Models as they are published, and what onnxruntime's tool makes of them: needs the packages that carry them.

``pip install --no-deps rapidocr-onnxruntime==1.4.4 silero-vad==6.2.3 magika==1.0.3``
"""

import importlib.util
import logging
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, numpy_helper
from onnx_models import arrays, dequantized
from onnxruntime.quantization import quantize_dynamic

from quantcore.checkpoints import open_checkpoint

pytestmark = pytest.mark.slow
PACKAGES = ("rapidocr_onnxruntime", "silero_vad", "magika")


def models():
    specs = [importlib.util.find_spec(name) for name in PACKAGES]
    folders = [Path(spec.origin).parent for spec in specs if spec is not None and spec.origin]
    return sorted(path for folder in folders for path in folder.rglob("*.onnx"))


def stored_in(graph):
    """Every tensor of a graph and its subgraphs, Constant nodes included, but for shapes and conditions in them."""
    yield from ((stored.name, stored) for stored in graph.initializer)
    for node in graph.node:
        for attribute in node.attribute:
            if node.op_type == "Constant" and attribute.name == "value" and attribute.t.data_type not in (7, 9):
                yield node.output[0], attribute.t
            if attribute.type == AttributeProto.GRAPH:
                yield from stored_in(attribute.g)


@pytest.mark.parametrize("path", models() or [None], ids=lambda path: path.name if path else "none")
def test_published(path):
    if path is None:
        pytest.skip("none of the packages is installed; see the head of this file")
    checkpoint = open_checkpoint(path)
    found = Counter(tensor.read().numpy().tobytes() for tensor in checkpoint.tensors.values())
    wanted = Counter(
        numpy_helper.to_array(stored).astype(np.float32).tobytes() for _, stored in stored_in(onnx.load(path).graph)
    )
    assert found == wanted
    for tensor in (t for t in checkpoint.tensors.values() if 0 not in t.shape):
        last = tuple(n - 1 for n in tensor.shape)
        assert np.array_equal(tensor.origin(last).value, tensor.read().numpy()[last], equal_nan=True)
    assert [f.sentence for f in checkpoint.findings() if f.severity == "error"] == []


@pytest.mark.parametrize("path", models() or [None], ids=lambda path: path.name if path else "none")
@pytest.mark.parametrize("per_channel", [False, True])
def test_quantized_dynamically(path, per_channel, tmp_path):
    if path is None:
        pytest.skip("none of the packages is installed; see the head of this file")
    logging.disable(logging.WARNING)
    try:
        quantize_dynamic(path, tmp_path / "m.onnx", per_channel=per_channel)
    except Exception as error:
        pytest.skip(f"the tool does not quantize it: {error}")
    finally:
        logging.disable(logging.NOTSET)
    stored, checkpoint = arrays(onnx.load(tmp_path / "m.onnx")), open_checkpoint(tmp_path / "m.onnx")
    weights = [name for name in stored if name.endswith("_quantized")]
    for name in weights:
        base, tensor = name.removesuffix("_quantized"), checkpoint.tensors[name]
        scale, zero_point = stored[f"{base}_scale"], stored[f"{base}_zero_point"]
        axis = getattr(tensor.layout.granularity, "axis", 2) if scale.size > 1 else 0  # an LSTM's differ along the last
        scale, zero_point = (p.reshape(-1) if scale.size > 1 else p.reshape(()) for p in (scale, zero_point))
        assert np.array_equal(tensor.read().numpy(), dequantized(stored[name], scale, zero_point, axis)), name
