"""Which modules may import which, and what none may do; checked by parsing the source, not importing it."""

import ast
import gc
import re
import sys
import tomllib
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# A package may import only packages on earlier lines, none on its own line. pages.*.*: every folder of a page
LINES = """
quantcore.interruption quantcore.errors quantcore.wording quantcore.displayed quantcore.collection
quantcore.syntax
quantcore.notation quantcore.numerics quantcore.tensors
quantcore.expressions
quantcore.formats quantcore.granularity
quantcore.conventions quantcore.range_setting
quantcore.scheme
quantcore.programs
quantcore.qparams
quantcore.quantization
quantcore.analysis quantcore.tracing
quantcore.mistakes quantcore.outputs
quantcore.matching quantcore.snippets quantcore.export quantcore.training
quantcore.comparison quantcore.diagnosis quantcore.prediction quantcore.pasted quantcore.figures
quantcore.checkpoints
quantcore.layerwise
quantcore.recipes quantcore.notebook
quantcore.commands
quantcore.__main__
quantcore
pages.browser pages.models.keys
pages.serving
pages.shared
pages.sidebar pages.maps
pages.models.opening pages.learn
pages.*.*
pages.registry
pages.main
app
"""
# the same inside the largest package, from bytes to findings; its face imports all of them
FLOORS = """
statement examples ggml packing
files
containers
protocol headers
layouts rows
origin quantized
tensor row_loss
comparison listing inspection
findings
checkpoint
"""
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
IMPORTED_AS = {"pillow": "PIL", "dask": "distributed", "prometheus-client": "prometheus_client"}
# of what Streamlit brings
BY_STREAMLIT = {"anyio", "google", "httptools", "python_multipart", "starlette", "uvicorn", "websockets"}
SECTIONS = ("explore", "outputs", "compare", "models")
FLOOR = {room: number for number, line in enumerate(FLOORS.split("\n")) for room in line.split()}
LINE = {package: number for number, line in enumerate(LINES.split("\n")) for package in line.split()}


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


@cache
def trees():
    """All modules, parsed; to look for garbage among their nodes meanwhile would take three times as long."""
    gc.disable()
    try:
        return {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in SOURCES.items()}
    finally:
        gc.freeze()
        gc.enable()


def tree_of(name):
    return trees()[name]


def each_module(rule):
    """Check a rule for all modules in one test: a test per module would take half a minute to distribute."""

    def test():
        for name in SOURCES:
            rule(name)

    test.__name__, test.__doc__ = rule.__name__, rule.__doc__
    return test


@cache
def nodes_of(name):
    """All nodes but operators and the contexts of names; `ast.walk` would take six times as long."""
    found = [tree_of(name)]
    for node in found:
        if type(node) not in (ast.Name, ast.Constant):  # half of all, and nothing is in them
            for field in parts_of(type(node)):
                value = getattr(node, field)
                if isinstance(value, ast.AST):
                    found.append(value)
                elif isinstance(value, list):
                    found += [one for one in value if isinstance(one, ast.AST)]
    return found


@cache
def parts_of(kind):
    """The fields of a kind of nodes that nodes stand in."""
    plain = {"ctx", "op", "ops", "attr", "arg", "name", "names", "module", "level"}
    return [field for field in kind._fields if field not in plain]


def dotted(node):
    """Return a name as it is written, after "" for what is no name: `ast.unparse` takes seconds."""
    after = []
    while isinstance(node, ast.Attribute):
        after.append(node.attr)
        node = node.value
    return ".".join([node.id if isinstance(node, ast.Name) else "", *after[::-1]])


@cache
def calls(name):
    """Each call of a module: the function as it is written, and the node."""
    return [(dotted(n.func), n) for n in nodes_of(name) if isinstance(n, ast.Call)]


@cache
def imports(name, tree=None):
    """The full names of all modules that a module imports, anywhere in it."""
    package = name if SOURCES[name].name == "__init__.py" else name.rpartition(".")[0]
    found = set()
    for node in nodes_of(name) if tree is None else ast.walk(tree):
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
        elif isinstance(node, ast.Call) and dotted(node.func).endswith(("import_module", "__import__")):
            found |= {a.value for a in node.args if isinstance(a, ast.Constant)}
    return found


def names_in(node):
    """The names that a statement reads."""
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


def roots(name):
    return {imported.partition(".")[0] for imported in imports(name)}


@cache
def package(name):
    """The innermost package of LINES with a module, or its page; `quantcore` is only its `__init__.py`."""
    page = ".".join(name.split(".")[:3])
    if f"{page}.page" in SOURCES:
        return page
    if name in LINE:
        return name
    fitting = [p for p in LINE if name.startswith(f"{p}.") and p != "quantcore"]
    return max(fitting, key=len, default=None)


def line(package):
    return LINE.get(package, LINE["pages.*.*"])


@each_module
def test_every_module_belongs_to_a_package(name):
    if name not in ("pages", *(f"pages.{section}" for section in SECTIONS)):  # they only contain packages
        assert package(name), f"{name} is not in any package of LINES"


@each_module
def test_imports_come_from_below(name):
    for imported in imports(name) & set(SOURCES):
        mine, other = package(name), package(imported)
        assert mine == other or line(other) < line(mine), (
            f"{name} imports {imported}, which is not on an earlier line"
        )


@each_module
def test_rooms_of_checkpoints_build_on_lower_floors(name):
    inside = "quantcore.checkpoints."
    if name.startswith(inside):
        mine = name.removeprefix(inside).partition(".")[0]
        assert mine in FLOOR, f"{name} is on no floor of FLOORS"
        for imported in imports(name) & set(SOURCES):
            other = imported.removeprefix(inside).partition(".")[0]
            if imported.startswith(inside) and other != mine:
                assert FLOOR[other] < FLOOR[mine], f"{name} imports {imported}, which is not on a lower floor"


LATER = {
    "plotly", "safetensors", "jinja2", "pandas", "PIL", "onnx", "quantcore.checkpoints",
    "quantcore.comparison", "quantcore.diagnosis", "quantcore.figures", "quantcore.layerwise",
    "quantcore.matching", "quantcore.notebook", "quantcore.outputs", "quantcore.pasted", "quantcore.recipes",
    "quantcore.snippets", "quantcore.tensors", "quantcore.training",
}  # fmt: skip


def imports_at_once(name):
    """What a module imports when it is imported itself: not in functions, nor for types alone."""
    found, waiting = set(), [*tree_of(name).body]
    for node in waiting:
        if isinstance(node, ast.Import | ast.ImportFrom):
            found |= imports(name, node)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in names_in(node.test):
            waiting += node.orelse
        elif not isinstance(node, ast.FunctionDef):
            waiting += ast.iter_child_nodes(node)
    return found


def test_what_apply_does_not_need_is_not_imported_with_it():
    """A new process imports quantcore without these; tests/test_distribution.py has one, in the slow run."""
    waiting, seen = ["quantcore"], set()
    for name in waiting:
        at_once = imports_at_once(name)
        late = {m for m in at_once if {m.partition(".")[0], ".".join(m.split(".")[:2])} & LATER}
        assert late == set(), f"{name} imports {late} at once"
        seen.add(name)
        around = {m.rpartition(".")[0] for m in at_once if m.startswith("quantcore.")}
        waiting += (at_once | around) & set(SOURCES) - set(waiting)
    assert len(seen) > 50


@each_module
def test_packages_are_entered_by_their_face(name):
    """Others import from `quantcore.formats`; its own modules import from each other, to avoid cycles."""
    for node in (n for n in nodes_of(name) if isinstance(n, ast.ImportFrom) and n.module in SOURCES):
        own, other = (".".join(n.split(".")[:2]) for n in (name, node.module))
        is_face = node.module == other or SOURCES[node.module].name == "__init__.py"
        only_modules = all(f"{node.module}.{alias.name}" in SOURCES for alias in node.names)
        if other == own and node.module == own:
            assert only_modules, f"{name} imports from its own package: name the module"
        elif other != own and other.startswith("quantcore."):
            assert is_face, f"{name} imports from {node.module}: import from {other}"


@each_module
def test_constants_stand_before_their_use(name):
    """Except tables of what the module defines, which can't."""
    body = tree_of(name).body
    defined = {n.name for n in body if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    used = [n for n in nodes_of(name) if type(n) is ast.Name and n.id.isupper() and type(n.ctx) is ast.Load]
    for node in body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        constants = {t.id for t in targets if isinstance(t, ast.Name) and t.id.isupper()}
        if constants and not defined & names_in(node):
            earlier = [n.lineno for n in used if n.id in constants and n.lineno < node.lineno]
            assert not earlier, f"{name}:{node.lineno} is used in line {earlier[0]}"


def test_a_class_name_stands_for_one_thing():
    found = {}
    for name in SOURCES:
        for node in (n for n in nodes_of(name) if isinstance(n, ast.ClassDef)):
            found.setdefault(node.name, []).append(name)
    assert {name: where for name, where in found.items() if len(where) > 1} == {}


def test_no_cycles():
    graph = {name: imports(name) & set(SOURCES) - {name} for name in SOURCES}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"import cycle: {' -> '.join(error.args[1])}")


@each_module
def test_only_pages_know_streamlit(name):
    if name.startswith("quantcore"):
        assert "streamlit" not in roots(name)
        assert not {"pages", "app"} & roots(name)


def test_no_style_selects_by_a_part_of_a_class():
    """Chromium would recompute all styles whenever any class changes, which is twice per key press."""
    for path in sorted((ROOT / "pages").rglob("*.css")):
        assert "[class" not in path.read_text(encoding="utf-8"), path


def packages(requirements):
    """How the packages of some requirements are imported."""
    found = {re.split(r"[\[<>=; ]", requirement)[0] for requirement in requirements}
    return {IMPORTED_AS.get(name, name) for name in found}


def foreign(*starts):
    """The packages that modules import, but for Python's own and ours."""
    found = {root for name in SOURCES if name.partition(".")[0] in starts for root in roots(name)}
    return found - set(sys.stdlib_module_names) - {"quantcore", "pages", ""}


def test_only_what_is_declared_is_imported():
    extras = PROJECT["optional-dependencies"]
    library = packages(PROJECT["dependencies"])
    optional = packages(need for name, needs in extras.items() if name != "app" for need in needs)
    app = packages(extras["app"])
    assert foreign("quantcore") >= {"numpy", "torch"}
    assert foreign("quantcore") - library - optional == set()
    assert foreign("pages", "app") - library - optional - app <= BY_STREAMLIT
    pinned = (ROOT / "requirements.txt").read_text(encoding="utf-8").replace('"', "'").split("\n")
    assert set(extras["app"]) <= set(pinned)
    assert PROJECT["requires-python"] == ">=3.11"


@each_module
def test_only_figures_know_plotly(name):
    if name.startswith("quantcore") and not name.startswith("quantcore.figures"):
        assert "plotly" not in roots(name)


@each_module
def test_nothing_unpickles(name):
    assert not {"pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"} & roots(name)
    for function, call in calls(name):
        keywords = {
            k.arg: ast.unparse(k.value) for k in call.keywords if k.arg in ("allow_pickle", "weights_only")
        }
        assert keywords.get("allow_pickle", "False") == "False", f"{name}:{call.lineno}"
        if function in ("np.load", "numpy.load"):
            assert keywords.get("allow_pickle") == "False", f"{name}:{call.lineno}"
        if function == "torch.load":
            assert keywords.get("weights_only") == "True", f"{name}:{call.lineno}"


@each_module
def test_nothing_runs_text_or_trusts_it_as_html(name):
    for function, call in calls(name):
        assert function not in ("eval", "exec", "compile", "os.system"), f"{name}:{call.lineno}"
        for keyword in call.keywords:
            if keyword.arg in ("unsafe_allow_html", "unsafe_allow_javascript", "shell"):
                assert ast.unparse(keyword.value) == "False", f"{name}:{call.lineno}"


def test_the_rules_see_what_they_should():
    """`imports` finds every way of writing an import."""
    text = (
        "import a.b\nfrom quantcore import scheme, apply\nfrom . import views\nfrom .metrics import report\n"
    )
    text += "def f():\n    import streamlit as st\nimportlib.import_module('plotly.io')\n"
    assert imports("quantcore.analysis.sweep", ast.parse(text)) == {
        "a.b", "quantcore.scheme", "quantcore", "quantcore.analysis.views", "quantcore.analysis.metrics",
        "streamlit", "plotly.io",
    }  # fmt: skip
