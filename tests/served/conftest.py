"""One server for what needs no settings of its own: to start one takes 5 s of processor time."""

from collections.abc import Iterator
from typing import NamedTuple

import pytest
from checkpoint_cases import case
from loops import finish
from served import Server, free_port, serve

from benchmarks.visitor import visit


class Started(NamedTuple):
    """A server, and its modules before and after somebody looked at the first page."""

    server: Server
    before: set[str]
    after: set[str]


@pytest.fixture(scope="session")
def metrics() -> str:
    """Where `served` tells its numbers."""
    return f"127.0.0.1:{free_port()}"


@pytest.fixture(scope="session")
def started(tmp_path_factory: pytest.TempPathFactory, metrics: str) -> Iterator[Started]:
    """The app, started by `streamlit run app.py` in a folder of checkpoints; only its first page is warm."""
    folder = tmp_path_factory.mktemp("elsewhere")
    release = case("gptq_v1_4bit_g128_sym").release
    (folder / "harmless").symlink_to(release)
    (folder / "harmless.safetensors").write_bytes((release / "model.safetensors").read_bytes())
    with serve(folder, QUANTSCOPE_MODELS="", QUANTSCOPE_METRICS=metrics) as server:
        before = server.imported()
        finish(visit(server.host, ""))
        yield Started(server, before, server.imported())


@pytest.fixture(scope="session")
def served(started: Started) -> Server:
    """The same for all tests of this folder that change nothing of it."""
    return started.server
