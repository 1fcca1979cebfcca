"""Each preset's script runs with the library itself, and notices other numbers."""

import importlib.util
import re
import warnings

import pytest
import torch

import quantcore as qc
from quantcore.snippets import library_script
from quantcore.snippets_libraries.presets import CALLS

# distributions and what they are imported as, where that differs
MODULES = {"compressed-tensors": "compressed_tensors"}
SCRIPTED = [name for name, preset in qc.PRESETS.items() if preset.convention.name in CALLS]


@pytest.fixture(autouse=True)
def _quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def needs(name):
    library = qc.PRESETS[name].convention.library
    module = MODULES.get(library, library)
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{library} is not installed")


def shape_of(name):
    """The smallest that the library takes, in blocks and in blocks of scales."""
    return (256, 64) if name == "torchao.nf4" else (4, 256)


def rows(name, seed, shape=None):
    """Rows of many magnitudes, a row of zeros, and one of ties."""
    x = torch.randn(shape or shape_of(name), generator=torch.Generator().manual_seed(seed))
    x *= torch.logspace(-3, 2, len(x))[:, None]
    x[1] = 0
    x[2] = torch.arange(x.shape[1]) % 13 / 4 - 1.5
    return x


def result_of(name, x):
    return qc.apply(x, qc.PRESETS[name])


def run(script):
    names = {}
    exec(compile(script, "script", "exec"), names)
    return names


@pytest.mark.parametrize("name", SCRIPTED)
@pytest.mark.parametrize("seed", [0, 1])
def test_script_holds(name, seed, capsys):
    needs(name)
    script = library_script(result_of(name, rows(name, seed)))
    try:
        run(script)
    except Exception as error:
        pytest.fail(f"{error!r}\n{script}")


@pytest.mark.parametrize("name", SCRIPTED)
def test_script_notices_another_tensor(name, capsys):
    """Its tensor is that of another script: the assertions must fail."""
    needs(name)
    script, other = (library_script(result_of(name, rows(name, seed))) for seed in (0, 1))
    whole = re.compile(r"^x = .*?\)$", re.MULTILINE | re.DOTALL)
    broken = whole.sub(lambda _: whole.search(other)[0], script, count=1)
    assert broken != script
    with pytest.raises(AssertionError):
        run(broken)
