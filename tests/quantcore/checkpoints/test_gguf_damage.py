"""Corrupt GGUF and imatrix files give a QuantError or a result, within limits of time and memory."""

import random
import time
import tracemalloc

import checkpoint_cases
import pytest
from checkpoint_damage import damage, exercise
from gguf_bytes import all_types

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
MOST_SECONDS, MOST_BYTES = 2.0, 64 * 2**20  # CPU seconds of this process


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
    run(100, 1, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 12))
def test_many_damaged_files_get_an_answer(seed, tmp_path):
    run(1000, seed, tmp_path)
