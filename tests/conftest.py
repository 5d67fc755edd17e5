"""The suite is strict: warnings are errors, JAX neither promotes dtypes or ranks nor sees a single device only."""

from __future__ import annotations

import gc
import inspect
import mmap
import os
import re
import sys
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jax
import pytest

from sparkdl.compiler import OPTIONS

# XLA's older emitters compile in half of the time; XLA ends processes that set a flag which it does not know. The hosts
# of tests/cluster, notebooks and benchmarks have none of this.
EMITTERS = "xla_cpu_use_fusion_emitters"


def knows(flag: str) -> bool:
    """Whether this XLA has a flag of this name."""
    [folder] = find_spec("jaxlib").submodule_search_locations  # type: ignore[union-attr, misc]
    for library in Path(folder).glob("libjax_common.*"):
        with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return content.find(flag.encode()) >= 0
    return False


if EMITTERS not in os.environ.get("XLA_FLAGS", "") and knows(EMITTERS):
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --{EMITTERS}=false"
jax.config.update("jax_num_cpu_devices", 3)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

# Java's optimizing compiler is half of a session's work, and pays off in none this short; half of the rest is to load
# and verify classes, which share_classes.py may have done. Subprocesses get these too.
_java = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
os.environ.setdefault("SPARK_LAUNCHER_OPTS", _java)
_classes = Path(sys.prefix, "spark.jsa")
if _classes.exists() and _classes.stat().st_size:
    _java += f" -XX:SharedArchiveFile={_classes} -Xlog:disable"
os.environ.setdefault("SPARK_SUBMIT_OPTS", _java)

ON_SPARK = ("tests/spark/", "tests/faults/", "tests/fuzz/")
# With no session, or with their own.
ALONE = (
    "test_everywhere.py",
    "test_processes.py",
    "test_slots.py",
    "test_task.py",
)


# What `make test` leaves to `make test-slow`, `test-cluster` and `test-benchmarks`: whatever begins like a line of it.
SLOW = tuple(Path(__file__).with_name("slow.txt").read_text(encoding="utf-8").split("\n")[:-1])
PEER = re.compile(r'importorskip\("(torch|tensorflow|transformers)"\)')


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Where no slow test is wanted, do not import files of nothing else: some load Keras, PyTorch or MLflow."""
    if config.option.markexpr != "not slow":
        return None
    return f"{collection_path.relative_to(config.rootpath).as_posix()}/".startswith(SLOW) or None


def pytest_collection_modifyitems(items: list[pytest.Item], config: pytest.Config) -> None:
    """Mark the slow ones, and those that compare with a peer; those on Spark come first, as they take longest."""
    items.sort(key=lambda item: not item.nodeid.startswith(ON_SPARK))
    if "peers" in config.option.markexpr:
        asks = {item: _asks_for_a_peer(item.function) for item in items if isinstance(item, pytest.Function)}
        for item in filter(asks.get, items):
            item.add_marker(pytest.mark.peers)
    for item in items:
        if item.nodeid.startswith(SLOW):
            item.add_marker(pytest.mark.slow)


@cache
def _asks_for_a_peer(test: Any) -> bool:
    """Whether a test, its file or a function there that it calls asks for PyTorch, TensorFlow or transformers."""
    module = vars(sys.modules[test.__module__])
    texts, seen = re.findall(r"^\w.*", inspect.getsource(sys.modules[test.__module__]), re.MULTILINE), [test]
    for function in seen:  # which grows
        texts.append(inspect.getsource(function))
        called = (module.get(name) for name in function.__code__.co_names)
        seen += [
            one for one in called if inspect.isfunction(one) and one.__module__ == test.__module__ and one not in seen
        ]
    return any(map(PEER.search, texts))


def pytest_collection_finish() -> None:
    """Look for garbage seldom, and not among what the tests import: JAX makes objects by the million when it traces."""
    gc.freeze()
    gc.set_threshold(100_000, 10, 10)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Files go to whichever process is free, but those that use a Spark session to one of two, which have one."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.split("::")[0]
            if not file.startswith(ON_SPARK) or file.endswith(ALONE):
                return file
            return "one session" if file.startswith("tests/spark/") and file < "tests/spark/test_g" else "the other"

    config.option.loadscopereorder = False  # files of many tests are not those that take long
    return ByFile(config, log)


@pytest.fixture
def float64() -> Iterator[None]:
    """Compute in float64 for the length of a test."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="module")
def unoptimized() -> Iterator[None]:
    """For files whose small programs take longer to compile than to run; workers compile as they do for users."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture
def as_for_users(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of training are compiled by the emitters that users have, for bits that depend on these."""
    if EMITTERS in os.environ.get("XLA_FLAGS", ""):
        monkeypatch.setitem(OPTIONS["cpu"], EMITTERS, True)
