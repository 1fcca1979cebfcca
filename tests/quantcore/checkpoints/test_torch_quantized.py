"""Quantized tensors of PyTorch itself in .pt files: codes, parameters and values as torch has them, bit for bit."""

import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch

from quantcore import QuantError
from quantcore.checkpoints import encode, open_checkpoint, script

pytestmark = pytest.mark.filterwarnings("ignore:.*quantize_per_tensor.*:UserWarning")
DTYPES = {torch.qint8: (-128, 127), torch.quint8: (0, 255), torch.qint32: (-1000, 1000)}


def quantized():
    """Tensors of every scheme, with float64 scales that are no float32."""
    generator, found = torch.Generator().manual_seed(0), {}

    def numbers(*shape):
        return torch.randn(*shape, generator=generator)

    for dtype, (low, high) in DTYPES.items():
        name = str(dtype).removeprefix("torch.")
        found[f"{name}.tensor"] = torch.quantize_per_tensor(numbers(6, 8), 0.0123456789, (low + high) // 2 + 3, dtype)
        found[f"{name}.vector"] = torch.quantize_per_tensor(numbers(7) * 30, 0.3, 0, dtype)
        for axis, count in ((0, 6), (1, 8)):
            scales = torch.rand(count, dtype=torch.float64, generator=generator) / 3 + 1e-3
            zeros = torch.randint(low, high, (count,), generator=generator)
            found[f"{name}.axis{axis}"] = torch.quantize_per_channel(numbers(6, 8) * 20, scales, zeros, axis, dtype)
    scales, zeros = torch.rand(6, generator=generator) + 0.1, numbers(6)
    found["float_qparams"] = torch.quantize_per_channel(numbers(6, 8) * 20, scales, zeros, 0, torch.quint8)
    found["transposed"] = found["qint8.tensor"].T
    found["rows"] = found["qint8.tensor"][2:5]
    found["conv"] = torch.quantize_per_channel(
        numbers(4, 3, 2, 2), torch.rand(4, dtype=torch.float64, generator=generator) + 0.1, torch.zeros(4, dtype=torch.int64), 0, torch.qint8
    )
    found["kept"] = torch.nn.Parameter(found["qint8.tensor"], requires_grad=False)
    return found


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        given = quantized()
        path = tmp_path_factory.mktemp("torch") / "x.pt"
        torch.save(given | {"plain": torch.ones(3)}, path)
    return given, path


def test_values_are_those_of_dequantize(saved):
    given, path = saved
    checkpoint = open_checkpoint(path)
    assert (checkpoint.format, checkpoint.problems) == ("torch", ())
    assert set(checkpoint.tensors) == {*given, "plain"}
    for name, tensor in given.items():
        mine, expected = checkpoint.tensors[name], tensor.dequantize()
        assert torch.equal(mine.read(), expected), name
        assert torch.equal(mine.read(slice(1, 3)), expected[1:3]), name
        index = tuple(n - 1 for n in tensor.shape)
        assert mine.origin(index).value == float(expected[index]), name


def test_codes_and_parameters(saved):
    given, path = saved
    checkpoint = open_checkpoint(path)
    for name, tensor in given.items():
        mine = checkpoint.tensors[name]
        if tensor.dtype == torch.qint32:
            with pytest.raises(QuantError, match="is qint32, so it has no codes"):
                mine.codes()
            continue
        assert torch.equal(mine.codes().to(torch.int32), tensor.int_repr().to(torch.int32)), name
        if tensor.qscheme() == torch.per_tensor_affine:
            assert mine.scale().item() == torch.tensor(tensor.q_scale(), dtype=torch.float32).item()
            assert mine.zero_point().item() == tensor.q_zero_point()
        else:
            assert torch.equal(mine.scale().reshape(-1), tensor.q_per_channel_scales().float()), name
            assert torch.equal(mine.zero_point().reshape(-1), tensor.q_per_channel_zero_points()), name
            assert mine.layout.granularity.axis == tensor.q_per_channel_axis()
        result = mine.quantized()
        assert torch.allclose(result.dequantized, tensor.dequantize(), rtol=2**-22, atol=0), name  # scales are float32


def test_bytes_are_encoded_again(saved):
    checkpoint = open_checkpoint(saved[1])
    for name, tensor in checkpoint.tensors.items():
        pieces = {piece.name: bytes(piece.bytes()) for piece in tensor.layout.pieces.values()}
        assert encode(tensor) == {key: pieces[key] for key in encode(tensor)}, name


def test_scripts_compute_an_element(saved):
    given, path = saved
    names, tensors = ("qint8.axis0", "float_qparams"), open_checkpoint(path).tensors
    text = "\n".join(script(tensors[name].origin((3, 5))) for name in names)
    ran = subprocess.run([sys.executable, "-c", text], cwd=path.parent, capture_output=True, text=True, check=True)
    assert [np.float32(n) for n in ran.stdout.split()] == [np.float32(given[n].dequantize()[3, 5]) for n in names]


def test_a_quantized_module(tmp_path):
    """What torch.ao.quantization.convert makes: a state dict with packed parameters."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU()).eval()
        module.qconfig = torch.ao.quantization.get_default_qconfig("fbgemm")
        torch.ao.quantization.prepare(module, inplace=True)(torch.randn(3, 8))
        torch.ao.quantization.convert(module, inplace=True)
        torch.save(module.state_dict(), tmp_path / "x.pt")
        weight, bias = module.state_dict()["0._packed_params._packed_params"]
    tensors = open_checkpoint(tmp_path / "x.pt").tensors
    assert torch.equal(tensors["0._packed_params._packed_params.0"].read(), weight.dequantize())
    assert torch.equal(tensors["0._packed_params._packed_params.1"].read(), bias.detach())
