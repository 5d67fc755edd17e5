"""spark-submit with the package in a packed environment, on hosts that have none, by a user who is not root."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hosts import Host
from standalone import REPOSITORY, SETTINGS, SPARK, Standalone

NOBODY = 65534
SYSTEM = "/usr/bin/python3"  # of which everybody can use a copy; pyenv's may lie in root's home
PACKAGES = ["jax", "jaxlib", "numpy", "optax", "pandas", "pyarrow", "tqdm", "py4j"]  # pyspark is the cluster's
SUBMIT_SECONDS = 300


def usable() -> bool:
    """Whether there is a Python for everybody, of this one's version."""
    code = "import sys, venv; print(*sys.version_info[:2])"
    done = subprocess.run([SYSTEM, "-c", code], capture_output=True, text=True) if os.path.exists(SYSTEM) else None
    return done is not None and done.stdout.split() == [str(part) for part in sys.version_info[:2]]


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of an environment with a wheel of this package, as venv-pack makes them."""
    if not usable():
        pytest.skip(f"{SYSTEM} is not a Python {sys.version_info[0]}.{sys.version_info[1]} with venv")
    folder = tmp_path_factory.mktemp("packed")
    source = folder / "source"
    shutil.copytree(REPOSITORY, source, ignore=shutil.ignore_patterns(".git", ".venv", "build", "tests", "*.egg-info"))
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", str(folder), str(source)], check=True, timeout=300)
    (wheel,) = folder.glob("*.whl")
    subprocess.run([SYSTEM, "-m", "venv", "--without-pip", str(folder / "environment")], check=True, timeout=60)
    own = [f"{name}=={_version(name)}" for name in PACKAGES]
    into = [*pip, "--python", str(folder / "environment" / "bin" / "python")]
    for wanted in (own, ["--no-deps", str(wheel)]):
        plain = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # what is there is not here
        subprocess.run([*into, "install", *wanted], check=True, timeout=600, env=plain)
    archive = folder / "environment.tar.gz"
    content = [entry.name for entry in (folder / "environment").iterdir()]  # Spark refuses an entry for "."
    command = [
        "tar",
        "--create",
        "--use-compress-program",
        "gzip -1",
        "--file",
        str(archive),
        "--directory",
        str(folder / "environment"),
        *content,
    ]
    subprocess.run(command, check=True, timeout=300)
    return archive


def _version(name: str) -> str:
    from importlib.metadata import version

    return version(name)


@pytest.fixture(scope="module")
def everybodys() -> Iterator[Path]:
    """A folder that everybody can reach: those of pytest are closed to others whenever one starts."""
    with TemporaryDirectory(prefix="sparkdl-", ignore_cleanup_errors=True) as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


@pytest.fixture(scope="module")
def bare(hosts: list[Host], everybodys: Path) -> Iterator[Standalone]:
    """A cluster whose processes are nobody's, on two of the hosts, with a system's Python that lacks the package."""
    with Standalone([host.within(everybodys) for host in hosts[:3]], user=NOBODY) as made:
        yield made


def test_a_submitted_program_trains_on_hosts_that_lack_the_package(
    bare: Standalone, packed: Path, everybodys: Path
) -> None:
    here = bare.driver_host
    folder = everybodys / "submitted"
    folder.mkdir()
    os.chown(folder, NOBODY, NOBODY)
    script = folder / "submitted.py"
    shutil.copy(Path(__file__).with_name("submitted.py"), script)
    shutil.copy(packed, folder / "environment.tar.gz")
    subprocess.run(["mkdir", str(folder / "unpacked")], check=True)
    subprocess.run(["tar", "--extract", "--file", str(packed), "--directory", str(folder / "unpacked")], check=True)
    told = folder / "told.json"
    settings = {name: value for name, value in SETTINGS.items() if not name.startswith("spark.executorEnv")} | {
        "spark.driver.host": here.address,
        "spark.driver.bindAddress": here.address,
        "spark.archives": f"{folder / 'environment.tar.gz'}#environment",
        "spark.pyspark.python": "./environment/bin/python",
        "spark.pyspark.driver.python": str(folder / "unpacked" / "bin" / "python"),
        "spark.sparkdl.ports": "43000-43020",
    }
    options = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    log = folder / "submit.log"
    process = here.start(
        [str(SPARK / "bin" / "spark-submit"), "--master", bare.master, *options, str(script), str(told)],
        bare.environment(here),
        log,
        user=NOBODY,
        folder=Path("/"),  # which it cannot write to
    )
    assert process.wait(SUBMIT_SECONDS) == 0, log.read_text()[-5000:]
    found = json.loads(told.read_text())
    assert found["user"] == NOBODY
    assert found["package"].startswith(str(folder / "unpacked"))
    assert {each["user"] for each in found["there"]} == {NOBODY}
    assert all("/environment/" in each["package"] for each in found["there"])
    assert len(set(found["hosts"])) == 2
    assert found["scored"] == 90
