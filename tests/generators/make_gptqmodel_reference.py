"""Write tests/data/outputs/gptqmodel.npz: GPTQ and AWQ's clipping by GPTQModel 7.7.0, on a CPU.

python tests/generators/make_gptqmodel_reference.py, with gptqmodel installed. x is stored in units of 1/64.
"""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from gptqmodel.looper.awq_processor import AWQProcessor
from gptqmodel.quantization import QuantizeConfig
from gptqmodel.quantization.gptq import GPTQ

TARGET = Path(__file__).resolve().parents[1] / "data" / "outputs" / "gptqmodel.npz"
# name: bits, group size, act_order, static groups
CASES = {
    "channel": (4, -1, False, False),
    "groups": (4, 16, False, False),
    "groups_3bit": (3, 8, False, False),
    "act_order": (4, -1, True, False),
    "static": (4, 16, False, True),
    "static_act_order": (4, 16, True, True),
    "act_order_groups": (4, 16, True, False),
    "long": (4, 32, False, False),  # more columns than the 128 that are updated together
    "dead": (4, 16, False, False),  # an input that is always 0
}


def clipping() -> dict[str, np.ndarray]:
    """The largest |w| that AWQ keeps in each group of 16."""
    rng = torch.Generator().manual_seed(0)
    w, x = torch.randn(64, 64, generator=rng), torch.randn(40, 64, generator=rng)
    w[::7, ::5] *= 3
    processor = AWQProcessor.__new__(AWQProcessor)
    processor.qcfg = SimpleNamespace(group_size=16, bits=4, sym=True)
    most = processor._compute_best_clip(w, x).squeeze()
    return {"clip.w": w.numpy(), "clip.x": x.numpy(), "clip.most": most.numpy()}


def main() -> None:
    found: dict[str, np.ndarray] = {}
    for name, (bits, size, act_order, static) in CASES.items():
        rng = torch.Generator().manual_seed(sum(map(ord, name)))
        inputs, tokens = (144, 160) if name == "long" else (32, 128)
        mix = torch.eye(inputs) + 0.3 * torch.randn(inputs, inputs, generator=rng)
        x = (torch.randn(tokens, inputs, generator=rng) @ mix * 64).round() / 64
        if name == "dead":
            x[:, 5] = 0
        w = torch.randn(8, inputs, generator=rng)
        module = torch.nn.Linear(inputs, 8, bias=False)
        module.weight.data = w.clone()
        config = QuantizeConfig(
            bits=bits, group_size=size, desc_act=act_order, static_groups=static, act_group_aware=False,
            sym=False, damp_percent=0.01,
        )  # fmt: skip
        method = GPTQ(module, config)
        method.quantizer.configure(perchannel=True)
        method.add_batch(x[None], module(x[None]))
        values, scale, zero_point, groups, *_ = method.quantize()
        columns = (scale[:, groups], zero_point[:, groups])
        codes = (values / columns[0]).round() + columns[1]
        assert bool((codes >= 0).all() & (codes < 1 << bits).all())
        found |= {
            f"{name}.x": (x * 64).round().to(torch.int16).numpy(),
            f"{name}.w": w.numpy(),
            f"{name}.codes": codes.to(torch.uint8).numpy(),
            f"{name}.dequantized": values.detach().numpy(),
        }
    found |= clipping()
    TARGET.parent.mkdir(exist_ok=True)
    np.savez_compressed(TARGET, **found)


if __name__ == "__main__":
    main()
