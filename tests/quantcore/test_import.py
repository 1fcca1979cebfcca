"""What `import quantcore` brings: what `apply` needs, and the rest when it is asked for."""

import json
import subprocess
import sys

LATER = {
    "plotly", "safetensors", "jinja2", "pandas", "PIL", "onnx", "quantcore.checkpoints", "quantcore.comparison",
    "quantcore.diagnosis", "quantcore.figures", "quantcore.layerwise", "quantcore.matching", "quantcore.notebook",
    "quantcore.outputs", "quantcore.pasted", "quantcore.recipes", "quantcore.snippets", "quantcore.tensors",
    "quantcore.training",
}  # fmt: skip
SCRIPT = """
import gc, json, sys
import torch
full = []
gc.callbacks.append(lambda phase, run: full.append(phase) if run["generation"] == 2 else None)
import quantcore as qc
gc.callbacks.clear()
result = qc.apply(torch.ones(2, 4), "int4 per_channel(0) torchao")
qc.report(result), qc.trace(result, (0, 0)).steps(), result.dequantized
first = sorted(sys.modules)
known = dir(qc)
missing = [name for name in qc.__all__ if getattr(qc, name, None) is None or name not in known]
print(json.dumps([first, missing, sorted(sys.modules), len(full), gc.isenabled()]))
"""


def test_what_apply_does_not_need_is_imported_when_it_is_asked_for():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    first, missing, last, full, collects = json.loads(done.stdout)
    assert set(first) & LATER == set()
    assert missing == []
    assert {"quantcore.matching", "quantcore.pasted", "quantcore.comparison", "quantcore.diagnosis"} <= set(last)
    assert full == 0  # a collection of torch's objects would take a tenth as long as importing them
    assert collects
