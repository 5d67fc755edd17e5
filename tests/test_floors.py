"""The house stands: imports go down only, pyspark stays upstairs, nothing is pickled, everything says what it is."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "sparkdl"
FILES = {str(path.relative_to(PACKAGE)): path for path in sorted(PACKAGE.rglob("*.py"))}
TREES = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in FILES.items()}
# By the longest folder, or the file, that a path begins with; a folder within another lies at least as high as it says.
FLOORS = {
    "": 0,
    "base_network.py": 1,
    "generation.py": 1,
    "graph.py": 1,
    "network.py": 1,
    "objective.py": 1,
    "contract.py": 1,
    "models": 1,
    "interchange": 1,
    "stepping.py": 1,
    "transfer.py": 1,
    "scoring": 2,  # with Spark or without
    "mlflow_flavor.py": 3,
    "predict.py": 3,
    "training": 2,  # the process that trains
    "launch": 3,  # the task that starts it
    "spark/tasks": 4,
    "spark/saving": 5,
    "spark/params": 6,
    "spark/driver": 7,
    "spark": 8,
    "series.py": 9,
    "quickstart.py": 9,
    "text": 9,
}
SPARK = 4  # the first floor that knows it

each_file = pytest.mark.parametrize("name", [name for name in FILES if name != "__init__.py"])


def floor(path: str) -> int:
    """Of a file of the package, by its path or that of a folder, from there."""
    found = max((place for place in FLOORS if not place or f"{path}/".startswith(f"{place}/")), key=len)
    return FLOORS[found]


def imports(tree: ast.AST) -> Iterator[str]:
    """Full names of what is imported, anywhere in a file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def floor_of(target: str) -> int:
    """Where what is imported lies; the package itself offers the network, and what is for Spark."""
    package, *parts = target.split(".")
    if package != "sparkdl":
        return 0
    for length in range(len(parts), 0, -1):
        path = "/".join(parts[:length])
        if f"{path}.py" in FILES:
            return floor(f"{path}.py")
        if f"{path}/__init__.py" in FILES:
            return floor(path)
    return floor("network.py" if parts in ([], ["Graph"], ["Network"], ["Same"], ["__version__"]) else "spark")


@each_file
def test_imports_go_down_only(name: str) -> None:
    higher = [target for target in imports(TREES[name]) if floor_of(target) > floor(name)]
    assert not higher


@each_file
def test_only_the_floors_of_spark_know_spark(name: str) -> None:
    outsiders = {target.split(".")[0] for target in imports(TREES[name])} & {"pyspark", "py4j"}
    assert not outsiders or floor(name) >= SPARK


@pytest.mark.parametrize("name", FILES)
def test_no_import_leads_back(name: str) -> None:
    """Not even by way of others; the package itself, which imports what is asked of it, leads nowhere."""
    reached, ahead = set(), [name]
    while ahead:
        for target in files_imported(ahead.pop()) - reached:
            reached.add(target)
            ahead.append(target)
    assert name not in reached


@cache
def files_imported(name: str) -> frozenset[str]:
    found = set()
    for target in imports(TREES[name]):
        parts = target.split(".")[1:] if target.startswith("sparkdl.") else []
        for length in range(len(parts), 0, -1):
            path = "/".join(parts[:length])
            if known := {f"{path}.py", f"{path}/__init__.py"} & FILES.keys():
                found |= known
                break
    return frozenset(found)


LOADING = """
import pkgutil, sys
from importlib import import_module
folder = import_module({package!r})
for found in pkgutil.walk_packages(folder.__path__, folder.__name__ + "."):
    import_module(found.name)
from jax._src import xla_bridge
print([name for name in {heavy} if name in sys.modules], xla_bridge.backends_are_initialized())
"""


@pytest.mark.parametrize(
    ("package", "heavy"),
    [
        ("sparkdl.training", ["pyspark"]),
        ("sparkdl.launch", ["pyspark"]),
        ("sparkdl.scoring", ["pyspark"]),
        ("sparkdl.spark.tasks", ["pyspark.ml"]),
    ],
)
def test_a_folder_loads_only_what_its_process_needs(package: str, heavy: list[str]) -> None:
    code = LOADING.format(package=package, heavy=heavy)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.split("\n")[0] == "[] False", done.stderr


def test_training_speaks_its_own_names() -> None:
    """Spark's names of Params, as checkpointDir, are known in spark/ alone."""
    spelled = re.compile(r"[a-z]+[A-Z]\w*")
    params = {
        node.target.id
        for name, tree in TREES.items()
        if name.startswith("spark/params/")
        for node in ast.walk(tree)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and spelled.fullmatch(node.target.id)
    }
    assert {"checkpointDir", "computeDtype"} <= params
    params |= {"stepSize", "maxIter", "labelCol", "featuresCol", "validationIndicatorCol"}  # Spark's own
    found = {
        (name, word)
        for name, tree in TREES.items()
        if name.startswith(("training/", "launch/"))
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        for word in spelled.findall(node.value)
    }
    assert not [(name, word) for name, word in found if word in params]


SHIPPING = ("spark/driver/shipping.py", "classes.py")  # of a program's own classes to its workers, as Spark does


@pytest.mark.parametrize("name", [name for name in FILES if name not in SHIPPING])
def test_nothing_is_pickled(name: str) -> None:
    parts = {part for target in imports(TREES[name]) for part in target.split(".")}
    assert not parts & {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "CPickleSerializer"}
    keywords = [node for node in ast.walk(TREES[name]) if isinstance(node, ast.keyword)]
    assert not [word for word in keywords if word.arg == "allow_pickle" and getattr(word.value, "value", True)]


def public(tree: ast.Module) -> Iterator[tuple[str, ast.AST, list[str]]]:
    """Public classes, functions and methods, with the names of the bases of a method's class."""
    for node in tree.body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and not node.name.startswith("_"):
            yield node.name, node, []
            if isinstance(node, ast.ClassDef):
                bases = [getattr(base, "id", getattr(base, "attr", "")) for base in node.bases]
                for method in node.body:
                    if isinstance(method, ast.FunctionDef) and not method.name.startswith("_"):
                        yield f"{node.name}.{method.name}", method, bases


DOCUMENTED = {
    path
    for tree in TREES.values()
    for path, node, _ in public(tree)
    if ast.get_docstring(node)  # type: ignore[arg-type]
}
BASES = {
    node.name: [getattr(base, "id", getattr(base, "attr", "")) for base in node.bases]
    for tree in TREES.values()
    for node in ast.walk(tree)
    if isinstance(node, ast.ClassDef)
}


def inherits_documentation(method: str, bases: list[str]) -> bool:
    """Whether a base of sparkdl's, at any height, documents the method; what others' bases do is theirs to say."""
    return any(
        f"{base}.{method}" in DOCUMENTED or base not in BASES or inherits_documentation(method, BASES[base])
        for base in bases
        if base not in {"Generic", "NamedTuple", "TypedDict", "Protocol", "RuntimeError", "Exception"}
    )


@pytest.mark.parametrize("name", FILES)
def test_every_file_and_everything_public_says_what_it_is(name: str) -> None:
    tree = TREES[name]
    opening = ast.get_docstring(tree)
    assert opening and opening.split("\n\n")[0].rstrip().endswith("."), "the file's opening sentence"
    silent = [
        path
        for path, node, bases in public(tree)
        if path not in DOCUMENTED and not inherits_documentation(path.split(".")[-1], bases)
    ]
    assert not silent
