"""What a task decides by itself: threads and devices of its child, and whether workers fit together."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import pytest
from pyspark import TaskContext

from sparkdl.spark.tasks import task
from sparkdl.spark.tasks.device import prepare_device
from sparkdl.spark.tasks.environment import worker_environment
from sparkdl.spark.tasks.meeting import Meeting
from sparkdl.training.group.addresses import ANY_PORT, listen

HOSTS = ["a", "b", "a", "a"]


class Context:
    """Stands in for a barrier task's context."""

    def __init__(self, rank: int = 0, gpus: list[str] | None = None, peers: list[dict[str, Any]] | None = None) -> None:
        self._rank, self._gpus, self._peers = rank, gpus, peers or []

    def partitionId(self) -> int:
        return self._rank

    def cpus(self) -> int:
        return 3

    def resources(self) -> dict[str, Any]:
        return {} if self._gpus is None else {"gpu": SimpleNamespace(addresses=self._gpus)}

    def getTaskInfos(self) -> list[Any]:
        return [SimpleNamespace(address=f"{number}:1") for number in range(1 + len(self._peers))]

    def allGather(self, message: str) -> list[str]:
        return [message, *(json.dumps(json.loads(message) | peer) for peer in self._peers)]


@pytest.mark.parametrize(
    "device, rank, gpus, visible, expected",
    [
        ("auto", 0, None, None, ("cpu", None)),
        ("cpu", 0, ["1"], None, ("cpu", None)),
        ("auto", 0, ["1"], None, ("cuda", "1")),
        ("gpu", 0, ["1", "2"], None, ("cuda", "1")),
        ("gpu", 3, None, None, ("cuda", "2")),  # the third worker on machine a
        ("gpu", 1, None, None, ("cuda", "0")),
        ("auto", 0, ["1"], "4,6", ("cuda", "6")),  # Spark counts among those its executor sees
        ("auto", 0, ["GPU-1f"], "4,6", ("cuda", "GPU-1f")),
    ],
)
def test_a_worker_gets_the_tasks_cpus_and_one_gpu(
    monkeypatch: pytest.MonkeyPatch,
    device: str,
    rank: int,
    gpus: list[str] | None,
    visible: str | None,
    expected: tuple[str, str | None],
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    environment = worker_environment(Context(rank, gpus), device, HOSTS)  # type: ignore[arg-type]
    assert environment["PJRT_NPROC"] == "3"
    assert (environment["JAX_PLATFORMS"], environment.get("CUDA_VISIBLE_DEVICES")) == expected


@pytest.mark.parametrize(
    "device, gpus, visible, platforms, expected",
    [
        ("auto", None, None, "cpu", None),
        ("cpu", ["1"], None, "cpu", None),
        ("auto", ["1"], None, None, "1"),
        ("gpu", ["0"], "4,6", None, "4"),
        ("gpu", None, "4,6", None, "4,6"),
    ],
)
def test_a_task_scores_on_the_gpu_that_spark_assigned_to_it(
    monkeypatch: pytest.MonkeyPatch,
    device: str,
    gpus: list[str] | None,
    visible: str | None,
    platforms: str | None,
    expected: str | None,
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible or "")  # so that it is put back
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setenv("PJRT_NPROC", "1")
    monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)
    monkeypatch.setattr(TaskContext, "get", lambda: Context(0, gpus))
    settings: dict[str, Any] = {}
    monkeypatch.setattr(jax.config, "update", settings.__setitem__)
    prepare_device(device)
    assert settings.get("jax_platforms") == platforms
    assert os.environ.get("CUDA_VISIBLE_DEVICES") == expected


def test_a_worker_keeps_large_pages_of_memory_and_compiled_programs_with_spark(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("GLIBC_TUNABLES", "JAX_COMPILATION_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/elsewhere")
    environment = worker_environment(Context(0, None), "cpu", HOSTS)  # type: ignore[arg-type]
    tunables = dict(each.split("=") for each in environment["GLIBC_TUNABLES"].split(":"))
    assert tunables["glibc.malloc.hugetlb"] == "1"
    kept = [tunables[f"glibc.malloc.{name}_threshold"] for name in ("mmap", "trim")]
    assert all(int(size) > 64 << 20 for size in kept)  # a batch of Spark's
    assert Path(environment["JAX_COMPILATION_CACHE_DIR"]).parent == tmp_path
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.check=1")
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "/of/the/user")
    environment = worker_environment(Context(0, None), "cpu", HOSTS)  # type: ignore[arg-type]
    assert environment["GLIBC_TUNABLES"] == "glibc.malloc.check=1"
    assert "JAX_COMPILATION_CACHE_DIR" not in environment  # the worker inherits the user's


def meeting(**context: Any) -> Meeting:
    return Meeting(Context(**context), "fit")  # type: ignore[arg-type]


OWN: dict[str, Any] = {"rows": (5, 1), "weighing": (5, 1), "wrong": [], "port": 1, "alarm": {}}


@pytest.mark.parametrize(
    "peer, sentence",
    [
        ({"platform": "cuda"}, "All workers must have the same platform: worker 0 has cpu, worker 1 has cuda"),
        ({"versions": {"jax": "0"}}, "All workers must have the same versions"),
        ({"wrong": ["ValueError", "Column 'x' holds 2 null rows."]}, "Column 'x' holds 2 null rows."),
    ],
)
def test_every_worker_says_the_same_of_what_does_not_fit(peer: dict[str, Any], sentence: str) -> None:
    with pytest.raises(task._Refused, match=sentence) as refused:
        task._meet(meeting(peers=[peer]), OWN, "cpu")
    assert refused.value.type == "ValueError"  # of what the user is to see


def test_workers_meet_when_one_of_them_has_no_rows() -> None:
    peers = task._meet(meeting(peers=[{"rows": (0, 0), "weighing": (0, 0)}]), OWN, "cpu")
    assert [peer["rows"] for peer in peers] == [[5, 1], [0, 0]]


def test_a_failure_is_found_in_sparks_own_words() -> None:
    text = f"Job aborted: {task.TaskFailure('Worker 1 on b: its process died.')} at org.apache.spark"
    assert task.failure_in(text) == "Worker 1 on b: its process died."
    assert task.failure_in("Job aborted") is None


def test_only_the_first_of_several_workers_takes_a_port_for_the_coordinator() -> None:
    with listen("127.0.0.1", ANY_PORT) as free:
        port = free.getsockname()[1]
    one = range(port, port + 1)
    for hosts, rank in ((["127.0.0.1"], 0), (["127.0.0.1"] * 2, 1)):
        with task._meeting_place(hosts, rank, one, "Worker") as (place, _):
            assert place == {"address": "127.0.0.1"}
    with (
        pytest.raises(task.TaskFailure, match="two for the first worker of a fit"),
        task._meeting_place(["127.0.0.1"] * 2, 0, one, "Worker 0"),
    ):
        pass
