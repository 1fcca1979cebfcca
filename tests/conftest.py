"""What all tests share."""

import functools
import gc
import os
import re
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any
from unittest.mock import NonCallableMock

import pytest

if "PYTEST_XDIST_WORKER" in os.environ:  # before torch is imported: workers would fight over the cores
    os.environ.setdefault("OMP_NUM_THREADS", "1")
# Workers, and dozens of servers and programs, import the same 700 modules: what one has compiled the others
# take, and the next run, too, even where images of containers say otherwise
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# What tests share they do not write into a home; the servers of the browser tests have this folder in common
SHARED = tempfile.TemporaryDirectory(prefix="quantscope-", ignore_cleanup_errors=True)
os.environ["QUANTSCOPE_STORE"] = SHARED.name
# the checkpoints that the pages of all tests may open
os.environ["QUANTSCOPE_MODELS"] = str(Path(__file__).parent / "data" / "golden_checkpoints")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported and collected stays to the end: looking for garbage in it would take 4 s a worker."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(10_000, 20, 10)  # as often as at first, looking takes a further 1.5 % of the whole
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, pytest.CollectReport]:
    """Each worker begins elsewhere: what one has compiled the others take, and nobody compiles all modules.

    In a fresh checkout that takes 6 s, most of it for what pytest makes of each `assert`.
    """
    report: pytest.CollectReport = yield
    worker, workers = (os.environ.get(f"PYTEST_XDIST_{name}", "") for name in ("WORKER", "WORKER_COUNT"))
    if worker and isinstance(collector, pytest.Directory) and report.passed:
        at = int(worker.removeprefix("gw")) * len(report.result) // int(workers)
        report.result = report.result[at:] + report.result[:at]
    return report


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """In one order, wherever the worker began."""
    items.sort(key=_turn)


TESTS = Path(__file__).parent
ONE_SERVER = ("test_hostile", "test_models_folder", "test_server", "test_warm")
# packages of libraries that take 4 to 6 s to import, and the scripts that do so
LIBRARIES = re.compile(
    r"^ *(?:from|import) "
    r"(?:bitsandbytes|compressed_tensors|torchao|brevitas|optimum|hqq|library_releases|quanto_library"
    r"|quantcore\.snippets import .*library_script)\b",
    re.M,
)


@functools.cache
def _scope(module: str) -> str:
    """What one worker runs: a module, whose tests share a server or a training, or all of one import."""
    if module.startswith("tests/browser/"):
        return "browser"
    if Path(module).stem in ONE_SERVER and module.startswith("tests/served/"):
        return "one server"
    text = (TESTS.parent / module).read_text(encoding="utf-8")
    return "libraries" if LIBRARIES.search(text) else module


def _turn(item: pytest.Item) -> tuple[int, str]:
    """What waits comes first, beside what computes, then what takes longest: at the end, cores would idle."""
    module = item.nodeid.partition("::")[0]
    waits, long = module.startswith(("tests/browser/", "tests/served/")), _scope(module) == "libraries"
    return (0 if waits else 1 if long else 2), module


@pytest.hookimpl(optionalhook=True)  # pytest-xdist's
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One more than there are cores, as those with a browser wait for it; each imports everything."""
    return 1 + len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 4


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """One worker runs what needs a browser: a second would start a server and a Chromium more.

    Groups of pytest-xdist 3.8.0 would say so too, but have no effect under pytest 9.2.0.
    """
    from xdist.scheduler import LoadScopeScheduling

    class OneBrowser(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return _scope(nodeid.partition("::")[0])

    # as collected: what needs a browser takes longest, and comes first
    config.option.loadscopereorder = False
    return OneBrowser(config, log)


@pytest.fixture(scope="session", autouse=True)
def _once_for_all_pages() -> Any:
    """What takes two thirds of a page's run under `AppTest`, and does not change what the page does.

    It looks through all installed packages for components of theirs (there are none), looks up the scripts of
    all pages and compiles them, each time with the same result; asks a thousand times a second whether the
    run has ended, each time taking the interpreter away from it; collects the whole state for each widget;
    hashes each message for a browser's cache and records it as an event; looks at all attributes of the
    server for which it puts a mock; and, after large work, looks for garbage among all that the tests have
    loaded.
    """
    from streamlit.components.v2 import manifest_scanner
    from streamlit.runtime.scriptrunner.script_cache import ScriptCache
    from streamlit.runtime.scriptrunner_utils import script_run_context
    from streamlit.runtime.state.safe_session_state import SafeSessionState
    from streamlit.testing.v1 import app_test, local_script_runner

    from pages.serving import own_value
    from pages.serving.work import memory
    from pages.shared import page

    def wait(runner: Any, timeout: float) -> None:
        runner._script_thread.join(timeout)
        ask(runner, timeout)

    def keep(runner: Any, message: Any) -> None:
        runner._maybe_handle_execution_control_request()
        runner.forward_msg_queue.enqueue(message)

    ask = local_script_runner.require_widgets_deltas
    compiled = functools.cache(functools.partial(ScriptCache.get_bytecode, ScriptCache()))
    look_up, found = page.for_navigation, []

    def looked_up(pages: Any) -> Any:
        if not found:
            found.append(look_up(pages))
        return found[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manifest_scanner, "scan_component_manifests", list)
        patch.setattr(page, "for_navigation", looked_up)
        patch.setattr(memory, "give_back", lambda: None)
        patch.setattr(script_run_context, "populate_hash_if_needed", lambda message: None)
        patch.setattr(ScriptCache, "get_bytecode", lambda self, path: compiled(path))
        patch.setattr(local_script_runner, "require_widgets_deltas", wait)
        patch.setattr(local_script_runner.LocalScriptRunner, "_enqueue_forward_msg", keep)
        patch.setattr(SafeSessionState, "filtered_state", property(own_value.SessionValues))
        patch.setattr(app_test, "MagicMock", lambda spec: NonCallableMock())
        yield


@pytest.fixture(scope="session", autouse=True)
def _guests_are_forked_from_here() -> None:
    """Else each worker starts a process that imports what guests use: 4 s of a core, and who asks waits."""
    import guests_nearby

    from pages.serving.guard import guard

    if guard._NURSERY.forks:
        guests_nearby.start()


@pytest.fixture
def no_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is found in pasted code does not depend on how fast the machine is.

    How long code may take is tested with hostile code.
    """
    from quantcore.pasted import bounds

    monkeypatch.setattr(bounds, "SECONDS", 60)
    monkeypatch.setattr(bounds, "SECONDS_IN_ALL", 60)
