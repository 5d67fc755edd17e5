"""The house stands: imports go down only, pyspark stays upstairs, nothing is pickled, everything says what it is."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "sparkdl"
FILES = {str(path.relative_to(PACKAGE)): path for path in sorted(PACKAGE.rglob("*.py"))}
TREES = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in FILES.items()}
FLOORS = {
    **dict.fromkeys(["layers", "losses", "initializers", "norms", "optimizers", "schedules"], 0),
    **dict.fromkeys(["specs", "classes", "compiler", "decoding", "dtypes", "lazy"], 0),
    **dict.fromkeys(["datasets", "report", "evaluation", "places", "synonyms"], 0),
    **dict.fromkeys(["network", "contract", "graph", "transfer"], 1),
    **dict.fromkeys(["training", "launch"], 2),
    **dict.fromkeys(["spark", "quickstart"], 3),
}
UPSTAIRS = [name for name, floor in FLOORS.items() if floor == 3]

each_file = pytest.mark.parametrize("name", [name for name in FILES if name != "__init__.py"])


def room(name: str) -> str:
    """ "layers" for "layers/dense.py", "losses" for "losses.py"."""
    return name.split("/")[0].removesuffix(".py")


def imports(tree: ast.AST) -> Iterator[str]:
    """Full names of what is imported, anywhere in a file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def floor(target: str) -> int:
    """Where what is imported lives; the package itself offers the network, and what is for Spark."""
    package, *parts = target.split(".")
    if package != "sparkdl":
        return 0
    if parts and parts[0] in FLOORS:
        return FLOORS[parts[0]]
    return FLOORS["network" if parts in ([], ["Network"], ["__version__"]) else "spark"]


def test_every_file_has_a_floor() -> None:
    assert {room(name) for name in FILES} - {"__init__"} <= FLOORS.keys()


@each_file
def test_imports_go_down_only(name: str) -> None:
    higher = [target for target in imports(TREES[name]) if floor(target) > FLOORS[room(name)]]
    assert not higher


@each_file
def test_only_the_top_floor_knows_spark(name: str) -> None:
    outsiders = {target.split(".")[0] for target in imports(TREES[name])} & {"pyspark", "py4j"}
    assert not outsiders or room(name) in UPSTAIRS


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
