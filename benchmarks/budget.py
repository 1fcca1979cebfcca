"""What no machine's speed changes, against the table budget.json: memory, bytes to the browser, runs.

    python benchmarks/budget.py [--only PART] [--rewrite] [--smallest]

Copies: the extra peak of a process, in multiples of the tensor, for each step on 4096x4096 float32 and for
the readers of checkpoints. Server: MB above rest, with twelve visitors and with a checkpoint, and how much of
its memory a visitor's run takes who was admitted. Page: kB over the websocket for the first page and for a
press of a key, the runs of a press, and its processor time in multiples of a page with a slider and a line of
text, measured beside.

Prints what changed; exits with 1 if something is worse than its row allows. `--rewrite` puts it into the
table.
"""

import argparse
import asyncio
import json
import math
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

from served import Server, serve

from benchmarks import checkpoint_page
from benchmarks.processes import resident
from benchmarks.smallest import sized
from benchmarks.visitor import Visitor

TABLE = Path(__file__).with_suffix(".json")
SHAPE = sized((4096, 4096), (1024, 1024))
STEPS = ("apply", "report", "errors_of", "map", "diagnose")
SCHEMES = ("int8", "int4 per_group(128)", "e4m3fn")
WORK_GB = 0.2
# MB that no table may allow: 1.3 times what is admitted, and 1.3 GB for twelve tensors with the server's 0.4
LIMITS = {"MB: twelve": 900.0, "MB: admitted": 1.3e3 * WORK_GB, "MB: refused": 40.0}
# links of tensors just small enough for a budget of 0.2 GB, and of one that is too large
ADMITTED = ("?shape=4096x3300&seed=1", "ranges?shape=4096x5000&seed=2", "libraries?shape=2048x4500&seed=3")
REFUSED = tuple(f"{page}?shape=4096x14336" for page in ("", "ranges", "schemes", "libraries"))
# a page with a slider and a line of text; as in the app, what is loaded is exempt from later collections
FLOOR = """
import gc
import streamlit as st
from pages.serving.warm import one_thread
one_thread()
@st.cache_resource
def freeze():
    gc.freeze()
    return True
freeze()
bits = st.slider("Bits", 2, 16, 4, key="bits", bind="query-params")
st.markdown(f"painted-{bits}")
"""
PRESSES, BITS = sized(40, 6), (3, 5, 6, 7, 8)
Found = dict[str, float]


def peak_of(step: Callable[[], object]) -> int:
    """Return the bytes by which a step raises this process's resident memory at its highest."""
    import ctypes
    import gc

    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    before = resident_now("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    kept = step()
    peak = resident_now("VmHWM")
    del kept
    return max(0, peak - before)


def resident_now(name: str) -> int:
    """Return a line of this process's status, in bytes."""
    found = re.search(rf"{name}:\s*(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return 1024 * int(found[1])


def steps(text: str) -> Found:
    """Return the copies of the tensor for each step under a scheme; in a process of its own."""
    import torch

    import quantcore as qc
    from quantcore.analysis import map_data

    torch.set_num_threads(1)

    def walk(shape: tuple[int, int]) -> Found:
        x = torch.empty(shape).normal_(generator=torch.Generator().manual_seed(0))
        x[:, 1] *= 20  # a channel that sets the scale: the finding that looks at it takes most
        scheme = qc.Scheme.parse(text)
        result = qc.apply(x, scheme)
        report = qc.report(result)
        work: tuple[Callable[[], object], ...] = (
            lambda: qc.apply(x, scheme),
            lambda: qc.report(result),
            lambda: qc.errors_of(x, scheme),
            lambda: map_data(result),
            lambda: qc.diagnose(result, report),
        )
        return {
            f"copies: {step}, {text}": peak_of(do) / x.nbytes for step, do in zip(STEPS, work, strict=True)
        }

    walk((256, 256))  # what libraries load when they are first used is not counted
    return walk(SHAPE)


def copies() -> Found:
    """Return the copies of the tensor for every step and scheme."""
    found: Found = {}
    for text in SCHEMES:
        command = [sys.executable, __file__, "--steps", text]
        run = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        found |= json.loads(run.stdout)
    return found


def readers() -> Found:
    """Return the extra memory of readers of checkpoints, in multiples of the values, as checkpoints.py."""
    from benchmarks import checkpoints

    found: Found = {}
    for name in list(checkpoints.RELEASES)[: sized(None, 2)]:
        found[f"copies: read {name}"] = checkpoints.extra_memory(name)
    return found


async def above_rest(server: Server, links: list[str], refused: bool = False) -> float:
    """Open pages at once, each in a session of its own; return the MB of the server's peak above before.

    Args:
        refused: whether each page must say that it is too large; otherwise none may, but about findings.
    """
    peak = rest = resident(server.process.pid)

    async def watch() -> None:
        nonlocal peak
        while True:
            peak = max(peak, resident(server.process.pid))
            await asyncio.sleep(0.005)

    async def visit(link: str) -> None:
        page, _, query = link.partition("?")
        async with Visitor(server.host, page, query) as visitor:
            await visitor.run()
            said = [text for text in visitor.texts if "of memory" in text]
            drawn = [text for text in visitor.texts if "SQNR" in text]
            if refused != bool(said and not drawn):
                raise SystemExit(f"{link}: {said[0] if said else 'it was not refused'}")

    watching = asyncio.create_task(watch())
    await asyncio.gather(*map(visit, links))
    watching.cancel()
    return peak - rest


def memory() -> Found:
    """Return the MB that the server takes for twelve visitors, for what is admitted, and what is refused."""
    found: Found = {}
    shape, many = sized("4096x14336", "1024x1280"), sized(12, 3)
    with tempfile.TemporaryDirectory() as folder, serve(Path(folder)) as server:
        links = [f"?dist=normal&shape={shape}&seed={seed}" for seed in range(many)]
        found["MB: twelve large tensors"] = asyncio.run(above_rest(server, links))
    with tempfile.TemporaryDirectory() as folder:
        checkpoint_page.write(made := Path(folder) / "models" / "llama", sized(2, 5))
        with serve(Path(folder), QUANTSCOPE_MODELS=str(made.parent)) as server:
            links = ["checkpoint?ck=llama", "checkpoint?ck=llama&ck_tensor=lm_head.weight&ck_rows=all"]
            asyncio.run(above_rest(server, ["checkpoint"]))
            found["MB: a large checkpoint"] = asyncio.run(above_rest(server, links))
    for link in ADMITTED:
        page = link.partition("?")[0] or "explore"
        with (
            tempfile.TemporaryDirectory() as folder,
            serve(Path(folder), QUANTSCOPE_WORK_GB=str(WORK_GB)) as server,
        ):
            asyncio.run(above_rest(server, [f"{link.partition('?')[0]}?shape=8x8"]))  # imports
            found[f"MB: admitted to 200, {page}"] = asyncio.run(above_rest(server, [link]))
    with (
        tempfile.TemporaryDirectory() as folder,
        serve(Path(folder), QUANTSCOPE_WORK_GB=str(WORK_GB)) as server,
    ):
        asyncio.run(above_rest(server, [link.partition("?")[0] + "?shape=8x8" for link in REFUSED]))
        found["MB: refused"] = asyncio.run(above_rest(server, list(REFUSED), refused=True))
    return found


def page() -> Found:
    """Return the kB of a first page and a press, a press's runs, and its processor time over a floor's."""

    async def press(host: str, query: str) -> tuple[float, float]:
        async with Visitor(host, "", query) as visitor:
            await visitor.run()
            first, sizes = visitor.received, []
            for i in range(PRESSES):
                before = visitor.received
                await visitor.slide("bits", BITS[i % len(BITS)])
                sizes.append(visitor.received - before)
            return first / 1e3, statistics.median(sizes) / 1e3

    found: Found = {}
    times: dict[str, float] = {}
    for name in ("page", "floor"):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "floor.py").write_text(FLOOR, encoding="utf-8")
            script = ROOT / "app.py" if name == "page" else Path(folder) / "floor.py"
            with serve(Path(folder), script) as server:
                asyncio.run(press(server.host, "shape=8x8"))
                before = len(server.look_inside()["runs"])
                first, each = asyncio.run(press(server.host, "shape=8x8"))
                runs = server.look_inside()["runs"][before + 1 :]
            times[name] = statistics.median(runs)
            if name == "page":
                found |= {"kB: first page": first, "kB: a press": each}
                found["runs of a press"] = len(runs) / PRESSES
    return found | {"processor time of a press, in floors": times["page"] / times["floor"]}


PARTS: dict[str, Callable[[], Found]] = {"copies": copies, "readers": readers, "memory": memory, "page": page}


def compare(found: Found, table: dict[str, dict[str, float]]) -> list[str]:
    """Print what was measured beside the table; return rows that are worse than allowed, or that it lacks."""
    worse = []
    print("| what | measured | table | allowed |\n|---|---:|---:|---:|")
    for name, value in found.items():
        row = table.get(name)
        limit = next((most for start, most in LIMITS.items() if name.startswith(start)), math.inf)
        most = min(row["value"] + row["worse"] if row else 0.0, limit)
        bad = row is None or value > most
        worse += [name] if bad else []
        known = f"{row['value']:.3g} | {most:.3g}" if row else "none | none"
        print(f"| {name} | {value:.3g}{', worse' if bad else ''} | {known} |")
    return worse


def rows(found: Found, table: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    """Return the table with what was measured; a new row allows a tenth more, or what runs differ by."""
    least = {"copies": 0.1, "MB": 40.0, "kB": 1.0, "runs": 0.0, "processor": 1.5}
    new = dict(table)
    for name, value in found.items():
        smallest = next(each for start, each in least.items() if name.startswith(start))
        usual = round(max(0.1 * value if smallest else 0.0, smallest), 2)
        allowed = table[name]["worse"] if name in table else usual
        new[name] = {"value": round(value, 3), "worse": allowed}
    return new


def main() -> int:
    """Return 1 if something is worse than allowed."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--only", choices=PARTS, help="measure one part")
    parser.add_argument("--rewrite", action="store_true", help="put what was measured into the table")
    parser.add_argument("--steps", metavar="SCHEME", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.steps:
        print(json.dumps(steps(chosen.steps)))
        return 0
    found: Found = {}
    for name in [chosen.only] if chosen.only else PARTS:
        found |= PARTS[name]()
    table = json.loads(TABLE.read_text(encoding="utf-8")) if TABLE.exists() else {}
    worse = compare(found, table)
    if chosen.rewrite:
        TABLE.write_text(json.dumps(rows(found, table), indent=1) + "\n", encoding="utf-8")
        return 0
    print("Worse than allowed: " + "; ".join(worse) if worse else "Nothing is worse than allowed.")
    return int(bool(worse))


if __name__ == "__main__":
    sys.exit(main())
