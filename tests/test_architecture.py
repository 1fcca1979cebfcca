"""Who may import whom, read from the source: nothing is run."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# lowest first; a module imports from lower floors, or from its own where no circle comes of it
FLOORS = [
    ["quantcore.errors", "quantcore.notation", "quantcore.formats", "quantcore.granularity", "quantcore.inputs"],
    ["quantcore.range_setting", "quantcore.conventions"],
    ["quantcore.scheme"],
    ["quantcore.qparams", "quantcore.quantize"],
    ["quantcore.metrics", "quantcore.storage", "quantcore.trace"],
    [
        "quantcore.literals", "quantcore.views", "quantcore.snippets", "quantcore.snippets_blocks",
        "quantcore.snippets_torch", "quantcore.export", "quantcore.tensors",
    ],
    ["quantcore.figures"],
    ["quantcore"],
    ["pages"],
    ["pages.shared"],
    ["pages.*"],
    ["pages.main"],
    ["app"],
]  # fmt: skip
UNPICKLERS = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}


def modules():
    """Dotted name -> source tree of every file of the program."""
    paths = [ROOT / "app.py", *(ROOT / "pages").rglob("*.py"), *(ROOT / "quantcore").rglob("*.py")]
    found = {}
    for path in paths:
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = ast.parse(path.read_text(encoding="utf-8"))
    return found


MODULES = modules()


def imports(tree):
    """Every dotted name that a source tree imports, in functions too: of ``from a import b`` both a.b and a."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: write the full name of what is imported"
            yield from ((f"{node.module}.{alias.name}", node.module) for alias in node.names)


def imports_of_ours(name):
    found = {exact if exact in MODULES else module for exact, module in imports(MODULES[name])}
    return {f for f in found if f in MODULES}


def floor(name):
    """The floor of a module: that of the longest name in FLOORS which it is, or lies in."""
    heights = {entry: height for height, entries in enumerate(FLOORS) for entry in entries}
    parts = name.split(".")
    if parts[0] == "pages" and len(parts) > 1 and name not in heights and parts[1] != "shared":
        return heights["pages.*"]
    for length in range(len(parts), 0, -1):
        entry = ".".join(parts[:length])
        if entry in heights and (length > 1 or len(parts) == 1):
            return heights[entry]
    raise AssertionError(f"{name} stands on no floor; write it into FLOORS.")


def packages(tree):
    return {exact.split(".")[0] for exact, _ in imports(tree)}


@pytest.mark.parametrize("name", MODULES)
def test_imports_come_from_below(name):
    height = floor(name)
    above = {other: floor(other) for other in imports_of_ours(name) if floor(other) > height}
    assert not above, f"{name}, on floor {height}, imports from above: {above}"


def test_no_circles():
    graph = {name: imports_of_ours(name) - {name} for name in MODULES}
    list(TopologicalSorter(graph).static_order())  # raises CycleError, which names the circle


@pytest.mark.parametrize("name", [n for n in MODULES if n.startswith("quantcore")])
def test_the_library_knows_no_streamlit_and_only_figures_know_plotly(name):
    allowed = {"plotly"} if name.startswith("quantcore.figures") else set()
    assert packages(MODULES[name]) & {"streamlit", "plotly"} <= allowed
    assert not packages(MODULES[name]) & {"pages", "app"}


@pytest.mark.parametrize("name", MODULES)
def test_nothing_is_unpickled_or_evaluated(name):
    assert not packages(MODULES[name]) & UNPICKLERS
    for node in ast.walk(MODULES[name]):
        if not isinstance(node, ast.Call):
            continue
        keywords = {k.arg: k.value.value for k in node.keywords if isinstance(k.value, ast.Constant)}
        assert keywords.get("allow_pickle", False) is False, f"{name}, line {node.lineno}"
        called = ast.unparse(node.func)
        assert called not in {"eval", "exec", "compile", "__import__"}, (
            f"{name}, line {node.lineno}: {called}"
        )
        if called == "torch.load":
            assert keywords.get("weights_only") is True, f"{name}, line {node.lineno}"


def test_the_floors_name_what_exists():
    named = {entry for entries in FLOORS for entry in entries} - {"pages.*"}
    assert named <= set(MODULES)


def test_the_reader_of_imports_sees_all_forms():
    tree = ast.parse("import a.b as c\ndef f():\n    from d.e import g, h\n")
    assert list(imports(tree)) == [("a.b", "a.b"), ("d.e.g", "d.e"), ("d.e.h", "d.e")]
    assert packages(tree) == {"a", "d"}
