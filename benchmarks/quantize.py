"""Time and memory of quantcore against copying the tensor: python benchmarks/quantize.py

Time: 4096 x 4096 float32, one thread. Every row quantizes and dequantizes; quantcore's rows include range
setting. The unit is y.copy_(x), timed in the same rounds. Memory: the extra peak of a child process while it
quantizes 4096 x 14336 float32, in multiples of that tensor. Prints Markdown; exits with 1 if a budget is
exceeded.
"""

import argparse
import importlib.util
import json
import re
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

import quantcore as qc
from benchmarks.smallest import sized

SHAPE, ROUNDS = sized((4096, 4096), (128, 256)), sized(7, 1)
MEMORY_SHAPE = sized((4096, 14336), (512, 1024))  # a layer of a language model
SYMMETRIC_BUDGET, ASYMMETRIC_BUDGET, MEMORY_BUDGET = 4.0, 6.0, 1.5
GRANULARITIES = {"per_tensor": 8, "per_channel(0)": 8, "per_group(128)": 4, "per_block([128,128])": 4}
MEMORY_SCHEMES = ["int8 per_tensor", "int4 per_group(128)", "uint4 asymmetric per_block([128,128])"]
Case = Callable[[], object]


def quantcore_cases(x: torch.Tensor, buffer: torch.Tensor) -> tuple[dict[str, Case], dict[str, float]]:
    """Every granularity, symmetric and asymmetric, with reused and fresh buffers; budgets of the reused."""
    cases: dict[str, Case] = {}
    budgets = {}
    for granularity, bits in GRANULARITIES.items():
        for symmetry, budget in (("symmetric", SYMMETRIC_BUDGET), ("asymmetric", ASYMMETRIC_BUDGET)):
            scheme = qc.Scheme.parse(f"int{bits} {symmetry} {granularity}")
            earlier = qc.apply(x, scheme)

            def reused(scheme: qc.Scheme = scheme, earlier: qc.Quantized = earlier) -> None:
                result = qc.apply(x, scheme, out=earlier)
                qc.dequantize(result.codes, result.scale, result.zero_point, scheme, out=buffer)

            name = f"quantcore int{bits} {symmetry} {granularity}"
            cases[f"{name}, reused"] = reused
            cases[f"{name}, fresh"] = lambda scheme=scheme: qc.apply(x, scheme).dequantized
            budgets[f"{name}, reused"] = budget
    return cases, budgets


def torch_cases(x: torch.Tensor) -> dict[str, Case]:
    """torch's own fake quantization, with a given range."""
    scale = (x.abs().amax(1) / 127).clamp(min=1e-30)
    zeros = torch.zeros(len(x), dtype=torch.int32)
    one = float(scale.max())
    return {
        "torch.fake_quantize_per_tensor_affine, no range": lambda: torch.fake_quantize_per_tensor_affine(
            x, one, 0, -128, 127
        ),
        "torch.fake_quantize_per_channel_affine, no range": lambda: torch.fake_quantize_per_channel_affine(
            x, scale, zeros, 0, -128, 127
        ),
    }


def torchao_cases(x: torch.Tensor) -> dict[str, Case]:
    """int4 in groups of 128, as torchao quantizes weights."""
    ao = importlib.import_module("torchao.quantization.quant_primitives")
    block, codes, ends = (1, 128), torch.int8, (-8, 7)

    def run() -> object:
        scale, zero_point = ao.choose_qparams_affine(x, ao.MappingType.SYMMETRIC, block, codes, *ends)
        q = ao.quantize_affine(x, block, scale, zero_point, codes, *ends)
        return ao.dequantize_affine(q, block, scale, zero_point, codes, *ends)

    return {"torchao int4 symmetric, groups of 128": run}


def onnxruntime_cases(x: torch.Tensor) -> dict[str, Case]:
    """QuantizeLinear and DequantizeLinear, int8 per tensor, into reused buffers, with a given range."""
    ort, onnx = importlib.import_module("onnxruntime"), importlib.import_module("onnx")
    helper, kinds, shape = onnx.helper, onnx.TensorProto, list(x.shape)
    graph = helper.make_graph(
        [
            helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
            helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["y"]),
        ],
        "quantize",
        [helper.make_tensor_value_info("x", kinds.FLOAT, shape)],
        [
            helper.make_tensor_value_info("q", kinds.INT8, shape),
            helper.make_tensor_value_info("y", kinds.FLOAT, shape),
        ],
        [
            helper.make_tensor("scale", kinds.FLOAT, [], [float(x.abs().max()) / 127]),
            helper.make_tensor("zero", kinds.INT8, [], [0]),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    buffers = [torch.empty(shape, dtype=torch.int8), torch.empty(shape)]
    binding.bind_ortvalue_input("x", ort.OrtValue.ortvalue_from_numpy(x.numpy()))
    for name, buffer in zip(("q", "y"), buffers, strict=True):
        binding.bind_output(name, "cpu", 0, buffer.numpy().dtype, shape, buffer.data_ptr())

    def run(keep: object = buffers) -> None:
        session.run_with_iobinding(binding)

    return {"onnxruntime int8 symmetric per tensor, reused, no range": run}


def median_times(unit: Case, cases: dict[str, Case]) -> tuple[float, dict[str, float]]:
    """Seconds of the unit and of each case: medians over rounds in which all take turns.

    The unit runs before every case, since a slow phase of the machine would otherwise shift every ratio.
    """
    units: list[float] = []
    times: dict[str, list[float]] = {name: [] for name in cases}
    for turn in range(ROUNDS + 1):
        for name, case in cases.items():
            found = [seconds(unit), seconds(case)]
            if turn:  # the first round warms up
                units.append(found[0])
                times[name].append(found[1])
    return statistics.median(units), {name: statistics.median(found) for name, found in times.items()}


def seconds(case: Case) -> float:
    start = time.perf_counter()
    case()
    return time.perf_counter() - start


def time_section() -> bool:
    """Print the table of times; return whether all budgets are kept."""
    torch.set_num_threads(1)
    x = torch.randn(SHAPE, generator=torch.Generator().manual_seed(0))
    y = torch.empty_like(x)
    own, budgets = quantcore_cases(x, y)
    cases: dict[str, Case] = {**own, **torch_cases(x)}
    absent = []
    for library, make in (("onnxruntime", onnxruntime_cases), ("torchao", torchao_cases)):
        try:
            cases |= make(x)
        except ImportError:
            absent.append(library)
    unit, times = median_times(lambda: y.copy_(x), cases)
    print(f"## Quantize and dequantize {SHAPE[0]} x {SHAPE[1]} float32, one thread, {ROUNDS} rounds\n")
    print("| what | ms | copies | budget |\n|---|---:|---:|---:|")
    print(f"| y.copy_(x) | {unit * 1e3:.1f} | 1.0 | |")
    for name, time_s in times.items():
        ratio = time_s / unit
        print(f"| {name} | {time_s * 1e3:.1f} | {ratio:.1f} | {verdict(ratio, budgets.get(name))} |")
    for library in absent:
        print(f"| {library} | not installed | | |")
    return all(times[name] / unit <= budget for name, budget in budgets.items())


def verdict(value: float, budget: float | None) -> str:
    if budget is None:
        return ""
    return f"{budget:g} {'kept' if value <= budget else 'EXCEEDED'}"


def peak() -> int:
    """The peak resident memory so far, in bytes."""
    status = Path("/proc/self/status")
    if status.exists():
        # not getrusage: on Linux its ru_maxrss survives exec, so a child would start at its parent's peak
        return int(re.search(r"VmHWM:\s*(\d+) kB", status.read_text())[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # macOS: bytes


def measure_memory(text: str) -> dict[str, float]:
    """In a separate process: the extra peak after each step, in multiples of the tensor."""
    scheme = qc.Scheme.parse(text)

    def walk(x: torch.Tensor) -> dict[str, float]:
        found = {}
        base = peak()
        result = qc.apply(x, scheme)
        found["apply"] = (peak() - base) / x.nbytes
        qc.report(result)
        found["report"] = (peak() - base) / x.nbytes
        if importlib.util.find_spec("quantcore.figures"):
            importlib.import_module("quantcore.figures").maps(result)
            found["maps"] = (peak() - base) / x.nbytes
        return found

    walk(torch.ones(256, 256))  # so that what libraries load on first use is not counted
    return walk(torch.empty(MEMORY_SHAPE).normal_(generator=torch.Generator().manual_seed(0)))


def memory_section() -> bool:
    """Print the table of peaks; return whether the budget is kept."""
    mb = 4 * MEMORY_SHAPE[0] * MEMORY_SHAPE[1] / 1e6
    print(
        f"\n## Extra peak memory for {MEMORY_SHAPE[0]} x {MEMORY_SHAPE[1]} float32 ({mb:.0f} MB), in "
        "tensors\n"
    )
    print("| scheme | apply | and report | and maps | budget |\n|---|---:|---:|---:|---:|")
    kept = True
    for text in MEMORY_SCHEMES:
        run = subprocess.run(
            [sys.executable, __file__, "--memory-of", text], check=True, stdout=subprocess.PIPE, text=True
        )
        found = json.loads(run.stdout)
        worst = max(found.values())
        kept &= worst <= MEMORY_BUDGET
        steps = ("apply", "report", "maps")
        row = " | ".join(f"{found[step]:.2f}" if step in found else "not available" for step in steps)
        print(f"| {text} | {row} | {verdict(worst, MEMORY_BUDGET)} |")
    return kept


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--memory-of", metavar="SCHEME", help="measure one scheme's memory in this process")
    scheme = parser.parse_args().memory_of
    if scheme:
        print(json.dumps(measure_memory(scheme)))
        return 0
    kept = [time_section(), memory_section()]
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main())
