"""Twelve visitors with large tensors at once, and one with a small tensor: python benchmarks/large_tensors.py

Starts the app, opens twelve sessions at the same moment, each with a generated 4096×14336 tensor and a seed of its
own, while a thirteenth moves its Bits slider on an 8×8 tensor. Prints the first and the last answer, the longest wait
of the thirteenth, and the peak of the process's resident memory. Exits with 1 where a budget is exceeded.
"""

import argparse
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.session import Session, resident, server

FIRST_BUDGET, SMALL_BUDGET, MEMORY_BUDGET = 5.0, 1.0, 2e9  # seconds, seconds, bytes


def main() -> int:
    """Print the table; return 1 where a budget is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sessions", type=int, default=12)
    parser.add_argument("--shape", default="4096x14336")
    parser.add_argument("--page", default="", help="the page's address, such as ranges")
    asked = parser.parse_args()
    peak, done, answers, waits, said = 0, threading.Event(), [], [], set()

    def watch(pid: int) -> None:
        nonlocal peak
        while not done.is_set():
            peak = max(peak, resident(pid))
            time.sleep(0.02)

    def large(port: int, seed: int, start: threading.Barrier) -> None:
        with Session(port, asked.page, dist="normal", shape=asked.shape, seed=seed) as visitor:
            start.wait()
            visitor.ask()
            answers.append(visitor.answer(timeout=600))
            said.update(text for text in visitor.texts if "before yours" in text)

    def small(port: int) -> None:
        with Session(port, dist="normal", shape="8x8") as visitor:
            visitor.ask()
            visitor.answer()
            bits = 4
            while not done.is_set():
                bits = 4 + (bits - 3) % 5
                visitor.move("Bits", bits)
                waits.append(visitor.answer())
                done.wait(0.3)

    with server() as (port, pid):
        others = [threading.Thread(target=watch, args=(pid,)), threading.Thread(target=small, args=(port,))]
        for thread in others:
            thread.start()
        while len(waits) < 5:
            time.sleep(0.1)
        before, alone = resident(pid), len(waits)
        start = threading.Barrier(asked.sessions)
        visitors = [threading.Thread(target=large, args=(port, i, start)) for i in range(asked.sessions)]
        for thread in visitors:
            thread.start()
        for thread in visitors:
            thread.join()
        during, answers = waits[alone:], sorted(answers)
        done.set()
        for thread in others:
            thread.join()
        time.sleep(1)
        after = resident(pid)
    rows = [
        ("first answer", f"{answers[0]:.1f} s", answers[0] <= FIRST_BUDGET, f"{FIRST_BUDGET:g} s"),
        ("last answer", f"{answers[-1]:.1f} s", True, ""),
        ("8×8, longest wait", f"{max(during):.2f} s", max(during) <= SMALL_BUDGET, f"{SMALL_BUDGET:g} s"),
        (
            "peak of the process",
            f"{peak / 1e6:,.0f} MB",
            peak <= MEMORY_BUDGET,
            f"{MEMORY_BUDGET / 1e6:,.0f} MB",
        ),
    ]
    print("| what | measured | budget |\n|---|---:|---:|")
    for what, measured, kept, budget in rows:
        print(f"| {what} | {measured}{'' if kept else ', over budget'} | {budget} |")
    print("answers, s:", " ".join(f"{a:.1f}" for a in answers))
    print(f"8×8 while alone: {max(waits[:alone]):.2f} s at most; during: {len(during)} moves")
    print(f"memory before {before / 1e6:,.0f} MB, after {after / 1e6:,.0f} MB")
    print("said:", *sorted(said), sep="\n  ")
    return int(not all(kept for _, _, kept, _ in rows))


if __name__ == "__main__":
    sys.exit(main())
