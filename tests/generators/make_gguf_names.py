"""Write quantcore/checkpoints/ggml/data/names.json of the gguf package: generators/make_gguf_names.py"""

import json
from importlib.metadata import version
from pathlib import Path

from gguf import MODEL_ARCH_NAMES, MODEL_TENSORS, TENSOR_NAMES, TensorNameMap

PATH = Path(__file__).parents[2] / "quantcore/checkpoints/ggml/data/names.json"


def names():
    """Each llama.cpp tensor with its names in Hugging Face models, and the tensors of each architecture."""
    both = [*TensorNameMap.mappings_cfg.items(), *TensorNameMap.block_mappings_cfg.items()]
    own = TensorNameMap.arch_block_mappings_cfg
    return {
        "source": f"gguf {version('gguf')} (MIT), TensorNameMap and MODEL_TENSORS; {{bid}} is the number of "
        "a layer",
        "tensors": [[TENSOR_NAMES[tensor], *found] for tensor, found in both],
        "architectures": {
            name: [i for i, (tensor, _) in enumerate(both) if tensor in MODEL_TENSORS[arch]]
            for arch, name in sorted(MODEL_ARCH_NAMES.items(), key=lambda pair: pair[1])
        },
        "instead": {
            MODEL_ARCH_NAMES[arch]: {TENSOR_NAMES[t]: list(found) for t, found in config.items()}
            for arch, config in own.items()
        },
    }  # fmt: skip


if __name__ == "__main__":
    found = names()
    lines = [f'"{key}": {json.dumps(found[key])}' for key in ("source", "instead")]
    for key in ("tensors", "architectures"):
        inner = found[key].items() if isinstance(found[key], dict) else [(None, v) for v in found[key]]
        rows = ",\n".join((f"{json.dumps(k)}: " if k else "") + json.dumps(v) for k, v in inner)
        opening, closing = "{}" if isinstance(found[key], dict) else "[]"
        lines.append(f'"{key}": {opening}\n{rows}\n{closing}')
    PATH.write_text("{\n" + ",\n".join(lines) + "\n}\n")
