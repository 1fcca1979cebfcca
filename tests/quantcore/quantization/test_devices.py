"""A tensor on a GPU gets the codes, scales and values of the same tensor on the CPU, and they stay on the GPU."""

import re
import warnings

import pytest
import torch

import quantcore as qc

pytestmark = pytest.mark.gpu

DEVICES = {"cuda": torch.cuda.is_available, "mps": torch.backends.mps.is_available}
# a search may add up squared errors in another order, so that of two nearly equal ranges the other one wins
SETTINGS = ("min_max", "percentile(99)", "fixed(-1,2.5)", "given(0.3,0)")


def schemes():
    """Every preset, and every convention of integers with each range setting that sums nothing."""
    yield from qc.PRESETS.values()
    for name in qc.CONVENTIONS:
        for text in ("int8 symmetric", "uint4 asymmetric per_channel(0)", "int4 symmetric per_group(32)"):
            for setting in SETTINGS:
                yield qc.Scheme.parse(f"{text} {setting} {name}")


def difference(x, scheme, device):
    """Return which part of the result differs on the device, or None."""
    try:
        here = qc.apply(x, scheme)
    except qc.QuantError as reason:
        with pytest.raises(qc.QuantError, match=re.escape(str(reason))):
            qc.apply(x.to(device), scheme)
        return None
    there = qc.apply(x.to(device), scheme)
    for name in ("codes", "scale", "zero_point", "dequantized"):
        own, found = getattr(here, name), getattr(there, name)
        if own is None and found is None:
            continue
        if found.device.type != torch.device(device).type or not torch.equal(own, found.cpu()):
            return name
    return None


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_a_gpu_gives_the_codes_of_the_cpu(device, dtype):
    if not DEVICES[device]():
        pytest.skip(f"there is no {device} device")
    x = (torch.randn(64, 256, generator=torch.Generator().manual_seed(0)) * 3).to(dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = {str(scheme): difference(x, scheme, device) for scheme in schemes()}
    assert not {text: name for text, name in found.items() if name}
