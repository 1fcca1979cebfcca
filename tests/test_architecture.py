"""Which module may know which, and what none may do: read from the source, nothing is imported."""

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# Lowest floor first; a name ending in a dot or an underscore stands for all that begin with it
FLOORS = [
    ["quantcore.errors", "quantcore.notation", "quantcore.block_names", "quantcore.scratch", "quantcore.rounding"],
    ["quantcore.lookup", "quantcore.float_layout", "quantcore.float_codes", "quantcore.float_format",
     "quantcore.codebook_codes", "quantcore.codebook_format", "quantcore.codebook_fit",
     "quantcore.formats", "quantcore.granularity", "quantcore.regions", "quantcore.inputs"],
    ["quantcore.range_setting", "quantcore.range_",  "quantcore.conventions", "quantcore.conventions.", "quantcore.kernels"],
    ["quantcore.scheme", "quantcore.presets", "quantcore.scales_of_floats", "quantcore.scales"],
    ["quantcore.refusal", "quantcore.qparams", "quantcore.casts", "quantcore.coding", "quantcore.boxes", "quantcore.extremes", "quantcore.grid_trials", "quantcore.grid_search", "quantcore.squared_error", "quantcore.quantize"],
    ["quantcore.fit_scheme", "quantcore.metrics", "quantcore.blocks", "quantcore.storage", "quantcore.trace", "quantcore.trace_",
     "quantcore.training", "quantcore.training.",
     "quantcore.encodings", "quantcore.differences", "quantcore.differences_"],
    ["quantcore.compare", "quantcore.compare_", "quantcore.measured_blocks", "quantcore.error_curve", "quantcore.error_marks", "quantcore.sweep", "quantcore.diagnose", "quantcore.diagnose.", "quantcore.planes", "quantcore.views", "quantcore.match", "quantcore.match.", "quantcore.literals", "quantcore.snippets", "quantcore.snippets_", "quantcore.export",
     "quantcore.export_onnx", "quantcore.tensors", "quantcore.tensors.",
     "quantcore.mistakes", "quantcore.mistakes.", "quantcore.code_reading", "quantcore.code_reading.", "quantcore.practice", "quantcore.predict", "quantcore.predict_"],
    ["quantcore.figures", "quantcore.figures."],
    ["quantcore"],
    ["pages", "pages.shared", "pages.shared."],
    ["pages.explore.", "pages.compare.", "pages.learn.", "pages.models."],
    ["pages.main"],
    ["app"],
]  # fmt: skip


def name_of(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


SOURCES = {
    name_of(path): path
    for path in [
        ROOT / "app.py",
        *sorted((ROOT / "quantcore").rglob("*.py")),
        *sorted((ROOT / "pages").rglob("*.py")),
    ]
}
TREES = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in SOURCES.items()}
each_module = pytest.mark.parametrize("name", SOURCES)


def imports(name, tree=None):
    """Full names of what a module imports, anywhere in it; of ours, the module, not the thing in it."""
    package = name if SOURCES[name].name == "__init__.py" else name.rpartition(".")[0]
    found = set()
    for node in ast.walk(TREES[name] if tree is None else tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                up = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*up, *([base] if base else [])])
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                found.add(inner if inner in SOURCES else base)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            found |= {a.value for a in node.args if isinstance(a, ast.Constant)}
    return found


def roots(name):
    return {imported.partition(".")[0] for imported in imports(name)}


def floor(name):
    def fits(entry):
        return name == entry or (entry.endswith((".", "_")) and name.startswith(entry))

    return next((i for i, names in enumerate(FLOORS) if any(map(fits, names))), None)


@each_module
def test_every_module_has_a_floor(name):
    assert floor(name) is not None, f"{name} stands on no floor: say in FLOORS where it belongs"


@each_module
def test_imports_come_from_below(name):
    for imported in imports(name) & set(SOURCES):
        assert floor(imported) <= floor(name), f"{name} imports {imported}, which stands above it"


def test_no_cycles():
    graph = {name: imports(name) & set(SOURCES) - {name} for name in SOURCES}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"imports in a circle: {' -> '.join(error.args[1])}")


@each_module
def test_only_pages_know_streamlit(name):
    if name.startswith("quantcore"):
        assert "streamlit" not in roots(name)
        assert not {"pages", "app"} & roots(name)


@each_module
def test_only_figures_know_plotly(name):
    if name.startswith("quantcore") and not name.startswith("quantcore.figures"):
        assert "plotly" not in roots(name)


@each_module
def test_nothing_unpickles(name):
    assert not {"pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"} & roots(name)
    for call in (node for node in ast.walk(TREES[name]) if isinstance(node, ast.Call)):
        function = ast.unparse(call.func)
        keywords = {k.arg: ast.unparse(k.value) for k in call.keywords}
        assert keywords.get("allow_pickle", "False") == "False", f"{name}:{call.lineno}"
        if function in ("np.load", "numpy.load"):
            assert keywords.get("allow_pickle") == "False", f"{name}:{call.lineno}"
        if function == "torch.load":
            assert keywords.get("weights_only") == "True", f"{name}:{call.lineno}"


@each_module
def test_nothing_runs_text_or_trusts_it_as_html(name):
    for call in (node for node in ast.walk(TREES[name]) if isinstance(node, ast.Call)):
        assert ast.unparse(call.func) not in ("eval", "exec", "compile", "os.system"), f"{name}:{call.lineno}"
        for keyword in call.keywords:
            if keyword.arg in ("unsafe_allow_html", "unsafe_allow_javascript", "shell"):
                assert ast.unparse(keyword.value) == "False", f"{name}:{call.lineno}"


def test_the_rules_see_what_they_should():
    """The reader of imports finds each way of writing one."""
    text = "import a.b\nfrom quantcore import scheme, apply\nfrom . import views\nfrom .trace import trace\n"
    text += "def f():\n    import streamlit as st\nimportlib.import_module('plotly.io')\n"
    assert imports("quantcore.metrics", ast.parse(text)) == {
        "a.b", "quantcore.scheme", "quantcore", "quantcore.views", "quantcore.trace", "streamlit", "plotly.io",
    }  # fmt: skip
