"""GGUF and imatrix files with bytes flipped, cut and overwritten: a QuantError or a result, soon, and nothing else."""

import random
import struct
import time
import tracemalloc

import checkpoint_cases
import pytest
from gguf_bytes import all_types

from quantcore.checkpoints import encode, open_checkpoint
from quantcore.errors import QuantError

IMATRIX = checkpoint_cases.case("imatrix").release
SOURCES = {
    **{
        str(case): case.release
        for case in checkpoint_cases.cases("gguf_", "bad_gguf", "bad_q5k")
        if case.record["path"]
    },
    "imatrix.gguf": IMATRIX / "imatrix.gguf",
    "imatrix.dat": IMATRIX / "imatrix.dat",
}
EXTREMES = [
    struct.pack("<Q", n)
    for n in (0, 1, 2, 31, 2**31 - 1, 2**32 - 1, 2**40, 2**62, 2**63, 2**64 - 1, 2**64 - 32)
]
MOST_SECONDS, MOST_BYTES = 2.0, 64 * 2**20  # of the process: other programs don't count


def damage(content, generator, header):
    """A damaged copy: the header suffers most, where counts and offsets are."""
    damaged = bytearray(content)
    reach = len(content) if generator.random() < 0.2 else header
    for _ in range(generator.choice((1, 1, 2, 5))):
        what, at = generator.random(), generator.randrange(max(1, min(reach, len(damaged))))
        if what < 0.4:
            damaged[at] ^= 1 << generator.randrange(8)
        elif what < 0.7:
            damaged[at : at + 8] = generator.choice(EXTREMES)
        elif what < 0.8:
            damaged[at : at + 4] = generator.choice(EXTREMES)[:4]
        elif what < 0.9:
            del damaged[at : at + generator.randrange(1, 40)]
        else:
            del damaged[generator.randrange(len(damaged)) :]
        damaged = damaged or bytearray(1)
    return bytes(damaged)


def exercise(path):
    """Everything that can be asked of a checkpoint; QuantErrors are answers."""
    sentences = []
    checkpoint = answer(lambda: open_checkpoint(path), sentences)
    if checkpoint is None:
        return sentences
    for tensor in checkpoint.tensors.values():
        index = (0,) * len(tensor.shape)
        for ask in (
            tensor.read, tensor.codes, tensor.scale, tensor.min, tensor.zero_point, tensor.stored, tensor.notes,
            tensor.quantized, lambda t=tensor: t.read(slice(1, 2)), lambda t=tensor, i=index: t.locate(i),
            lambda t=tensor: encode(t), lambda t=tensor: repr(t),
        ):  # fmt: skip
            answer(ask, sentences)
    return sentences


def answer(ask, sentences):
    """What is returned; None and one more sentence after a QuantError."""
    try:
        return ask()
    except QuantError as error:
        sentences.append(str(error))
        return None


def run(count, seed, folder):
    generator = random.Random(seed)
    contents = {name: path.read_bytes() for name, path in SOURCES.items()}
    contents["all types"] = all_types(seed=3, rows=1, blocks=1)[0]
    tracemalloc.start()
    try:
        for number in range(count):
            name = generator.choice(list(contents))
            content = contents[name]
            path = folder / f"{number}{'.dat' if name.endswith('.dat') else '.gguf'}"
            path.write_bytes(damage(content, generator, min(len(content), 1300)))
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            start = time.process_time()
            try:
                sentences = exercise(path)
            except Exception as error:
                raise AssertionError(f"case {number} of seed {seed} ({name})") from error
            assert time.process_time() - start < MOST_SECONDS, (number, seed, name)
            assert tracemalloc.get_traced_memory()[1] - before < MOST_BYTES, (number, seed, name)
            assert all("\n" not in said and len(said) < 600 for said in sentences), (number, seed, name)
            path.unlink()
    finally:
        tracemalloc.stop()


def test_damaged_files_get_an_answer(tmp_path):
    run(300, 1, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 12))
def test_many_damaged_files_get_an_answer(seed, tmp_path):
    run(1000, seed, tmp_path)
