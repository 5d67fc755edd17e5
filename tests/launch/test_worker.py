"""Worker processes: two of them train as one process does, and every way to fail ends all of them with a sentence."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pyarrow as pa
import pytest
from jax.sharding import Mesh
from pyspark import cloudpickle

from sparkdl import Network
from sparkdl.classes import CLASSES
from sparkdl.launch import child
from sparkdl.launch.child import Child, WorkerError
from sparkdl.layers import BatchNorm, Dense, Dropout, Tanh
from sparkdl.tensor_file import read_tensors
from sparkdl.training import Training, fit
from sparkdl.training.data.batches import Rows
from sparkdl.training.data.shard_file import ShardWriter, open_shard, stored_batches
from sparkdl.training.exchanges.exchange import WORKERS
from sparkdl.training.loop import Share, train
from sparkdl.training.records import meter, pulse, recorder
from sparkdl.training.worker import INITIAL, TRAINING, VALIDATION, WEIGHTS, Job
from sparkdl.weights import named_arrays

PATH = os.pathsep.join(path for path in sys.path if path)
ENVIRONMENT = {"JAX_PLATFORMS": "cpu", "PJRT_NPROC": "1", "PYTHONPATH": PATH}
NETWORK = Network([Dense(3, bias=False), BatchNorm(), Tanh(), Dropout(0.2), Dense(2)], input_shape=(4,))
SHORT = Training(NETWORK, optimizer="adam", step_size=0.05, epochs=3, batch_size=4, seed=11, dtype="float64")
ENDLESS = replace(SHORT, epochs=10**7)
LENGTHS = {(5, 3): (2, 3), (8, 0): (0, 4), (4, 0, 3): (3, 0, 2)}  # rows to learn from and rows held out


def write_shard(path: Path, rows: int) -> None:
    random = np.random.default_rng(rows)
    labels = random.integers(0, 2, rows).astype("int32")
    features = random.normal(size=(rows, 4))
    written = Rows({"features": features}, {"label": labels}, random.uniform(1, 2, rows))
    writer = ShardWriter(path, jax.tree.map(lambda part: part[:0], written))
    writer.append(written, random.permutation(rows))
    writer.close()


@contextmanager
def jobs(directory: Path, plan: Training, rows: tuple[int, ...], held_out: tuple[int, ...]) -> Iterator[list[Job]]:
    """One job a worker, with its shards in a directory of its own, and a port that stays free for them."""
    with socket.socket() as reservation:
        reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reservation.bind(("127.0.0.1", 0))
        addresses, port = ["127.0.0.1"] * len(rows), reservation.getsockname()[1]
        made = []
        for rank, counts in enumerate(zip(rows, held_out, strict=True)):
            own = directory / str(rank)
            own.mkdir()
            for name, count in zip((TRAINING, VALIDATION), counts, strict=True):
                write_shard(own / name, count)
            made.append(Job([plan.to_json()], str(own), rank, list(rows), list(held_out), addresses, port, 60.0))
        yield made


def dealt(folder: Path, name: str, held: tuple[int, ...]) -> Share:
    """What all workers hold once those with too many rows have given away those of the largest keys."""
    each, over = divmod(sum(held), len(held))
    fullest = sorted(range(len(held)), key=lambda rank: -held[rank])[:over]
    shares = tuple(each + (rank in fullest) for rank in range(len(held)))
    own, spare = {}, []
    for rank, share in enumerate(shares):
        (batch,) = stored_batches(folder / str(rank) / name)
        batch = batch.sort_by("key")
        own[rank] = [batch[:share]]
        spare += [batch[at : at + 1] for at in range(share, len(batch))]
    for rank, share in enumerate(shares):
        while sum(map(len, own[rank])) < share:
            own[rank].append(spare.pop(0))
        with pa.ipc.new_file(str(folder / f"{rank}-{name}"), own[rank][0].schema) as writer:
            writer.write_table(pa.Table.from_batches(own[rank]))
    return Share([open_shard([folder / f"{rank}-{name}"]) for rank in range(len(held))], shares, 0)


def run_all(
    made: list[Job],
    on_event: Callable[[list[Child], int, dict[str, Any]], None] = lambda *_: None,
    environment: dict[str, str] = ENVIRONMENT,
) -> tuple[list[Any], list[float]]:
    """What the worker of every job gave, or the error it raised, and when; all of them are gone afterwards."""
    with ExitStack() as stack:
        children = [stack.enter_context(Child(Path(job.directory, "log.txt"), environment)) for job in made]

        def run(rank: int) -> tuple[Any, float]:
            try:
                result: Any = children[rank].run(made[rank], lambda event: on_event(children, rank, event))
            except WorkerError as error:
                result = error
            return result, time.monotonic()

        with ThreadPoolExecutor(len(made)) as pool:
            results, times = zip(*pool.map(run, range(len(made))), strict=True)
    assert not any(is_alive(worker.pid) for worker in children)
    return list(results), list(times)


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that ended and that nobody has asked for its exit code does not."""
    try:
        os.kill(pid, 0)
        return sys.platform != "linux" or Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):  # either may find it gone
        return False


def test_a_proxy_does_not_keep_workers_apart(tmp_path: Path) -> None:
    with socket.socket() as nobody, jobs(tmp_path, SHORT, (5, 3), (2, 3)) as made:
        nobody.bind(("127.0.0.1", 0))
        proxy = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        results, _ = run_all(made, environment=ENVIRONMENT | dict.fromkeys(("http_proxy", "https_proxy"), proxy))
    assert [done["event"] for done in results] == ["done", "done"]


@pytest.mark.parametrize(
    ("rows", "exchange"), [((5, 3), "all_reduce"), ((8, 0), "all_reduce"), ((4, 0, 3), "sharded_all_reduce")], ids=str
)
def test_processes_train_as_one_with_as_many_devices(
    rows: tuple[int, ...], exchange: str, tmp_path: Path, float64: None
) -> None:
    plan = replace(SHORT, exchange=exchange)
    with jobs(tmp_path, plan, rows, LENGTHS[rows]) as made:
        (first, second, *_), _ = run_all(made)
    mesh = Mesh(np.array(jax.local_devices()[: len(rows)]), (WORKERS,))
    shares = [dealt(tmp_path, TRAINING, rows), dealt(tmp_path, VALIDATION, LENGTHS[rows])]
    expected = train(plan, *shares, mesh)
    weights = read_tensors(tmp_path / "0" / WEIGHTS).arrays
    assert set(weights) == {f"0/{name}" for name, _ in named_arrays(expected.weights)}
    for name, array in named_arrays(expected.weights):
        np.testing.assert_allclose(weights[f"0/{name}"], array, rtol=0, atol=1e-12 * np.abs(array).max(), err_msg=name)
    assert not (tmp_path / "1" / WEIGHTS).exists()
    first, second = first["runs"][0], second["runs"][0]
    for epoch in first["history"] + second["history"]:
        assert epoch.pop("seconds") > 0 and epoch.pop("validation_seconds") > 0
        assert epoch.pop("outputs") is None
    histories = [done["history"] for done in (first, second)]
    assert histories[0] == histories[1]
    for epoch, wanted in zip(histories[0], expected.history, strict=True):
        assert epoch == pytest.approx({key: wanted._asdict()[key] for key in epoch}, rel=1e-12)
    assert first["compile_seconds"] > 0 and first["training_seconds"] > 0


def refusing_class() -> bytes:
    """A layer of a user's own, as it is sent, which nobody can make."""

    class Refusing(Tanh):
        def __post_init__(self) -> None:
            raise ValueError("it is never made")

    return b'["Refusing"]\n' + cloudpickle.dumps([Refusing])


@pytest.mark.parametrize(
    ("flaw", "kind", "message"),
    [
        ("layer", "ValueError", "received 'Hologram'; choose one of .*BatchNorm"),
        ("shard", "FileNotFoundError", TRAINING),
        ("initial weights", "ValueError", "is no safetensors file"),
        ("class", "ValueError of a class or library", "The last it printed:\n(.*\n)*.*it is never made"),
        ("device", "RuntimeError", "no device of the platform 'cuda' here .*train on the CPU"),
    ],
)
def test_a_failure_is_told_in_the_words_of_the_worker(
    flaw: str, kind: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with jobs(tmp_path, SHORT, (8,), (0,)) as (job,):
        if flaw == "layer":
            job.trainings[0]["network"]["layers"][1]["type"] = "Hologram"
        elif flaw == "device":
            monkeypatch.setitem(ENVIRONMENT, "JAX_PLATFORMS", "cuda")
            monkeypatch.setitem(ENVIRONMENT, "CUDA_VISIBLE_DEVICES", "")
        elif flaw == "initial weights":
            Path(job.directory, INITIAL.format(0)).write_bytes(b"nonsense")
        elif flaw == "class":
            Path(job.directory, CLASSES).write_bytes(refusing_class())
            job.trainings[0]["network"]["layers"][1]["type"] = "Refusing"
        else:
            Path(job.directory, TRAINING).unlink()
        started = time.monotonic()
        (error,), (ended,) = run_all([job])
    assert ended - started < 10
    assert isinstance(error, WorkerError)
    assert (error.type, error.secondary) == (kind, False)
    with pytest.raises(WorkerError, match=message):
        raise error


def test_an_exception_comes_with_the_last_lines_that_the_worker_printed(tmp_path: Path) -> None:
    with jobs(tmp_path, SHORT, (8,), (0,)) as (job,):
        Path(job.directory, TRAINING).unlink()
        (error,), _ = run_all([job])
    message, _, printed = str(error).partition("\nThe last it printed:\n")
    assert "\n" not in message and "No such file" in message
    assert printed.count("Traceback (most recent call last)") <= 1
    assert printed.splitlines()[-1] == f"FileNotFoundError: {message}"


def test_a_dead_workers_last_lines_are_the_end_of_a_long_log(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    with Child(log, ENVIRONMENT) as worker:
        worker.close()
        assert worker.log_tail() == ""
        log.write_text("".join(f"line {number}\n" for number in range(10**5)))
        assert worker.log_tail().splitlines() == [f"line {number}" for number in range(10**5 - 20, 10**5)]


def test_what_a_worker_prints_is_followed_while_it_works(tmp_path: Path) -> None:
    said: list[str] = []
    environment = ENVIRONMENT | {"JAX_LOGGING_LEVEL": "DEBUG"}
    with jobs(tmp_path, SHORT, (8,), (0,)) as (job,), Child(tmp_path / "0" / "log.txt", environment) as worker:
        with worker.follow(said.append):
            worker.run(job, lambda event: None)
        printed = (tmp_path / "0" / "log.txt").read_text().splitlines()
    assert len(said) > 10
    assert said[:10] == [line if len(line) <= 500 else f"{line[:500]}..." for line in printed[:10]]


def test_a_killed_worker_is_named_and_takes_the_other_along(tmp_path: Path) -> None:
    killed: list[float] = []

    def kill_the_second(children: list[Child], rank: int, event: dict[str, Any]) -> None:
        if event["event"] == "progress" and not killed:
            killed.append(time.monotonic())
            os.kill(children[1].pid, signal.SIGKILL)

    with jobs(tmp_path, ENDLESS, (5, 3), (0, 0)) as made:
        (first, second), times = run_all(made, kill_the_second)
    assert isinstance(first, WorkerError) and isinstance(second, WorkerError)
    assert "was killed by signal 9; the machine may be out of memory" in str(second)
    assert (first.secondary, second.secondary) == (True, False)
    assert times[1] - killed[0] < 10
    assert times[0] - killed[0] < 15


def test_a_stopped_worker_is_noticed_by_its_silence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = []

    def stop(children: list[Child], rank: int, event: dict[str, Any]) -> None:
        if event["event"] == "progress" and not stopped:
            os.kill(children[0].pid, signal.SIGSTOP)
            stopped.append(children[0].pid)
            monkeypatch.setattr(child, "SILENCE_SECONDS", 1)

    with jobs(tmp_path, ENDLESS, (8,), (0,)) as made:
        (error,), _ = run_all(made, stop)
    assert isinstance(error, WorkerError)
    assert f"its process {stopped[0]} gave no sign of life for 1 s and was ended" in str(error)


def test_a_worker_that_lives_but_gets_on_with_nothing_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread waits for the other end of a pipe, its heart beats on."""
    monkeypatch.setenv("SPARKDL_STUCK_SECONDS", "0.5")
    with jobs(tmp_path, SHORT, (8,), (0,)) as made:
        os.mkfifo(Path(made[0].directory, INITIAL.format(0)))
        (error,), _ = run_all(made)
    assert isinstance(error, WorkerError) and (error.type, error.secondary) == ("", False)
    assert "lives, but has got on with nothing for 0.5 s and was ended; look for what waits" in str(error)


def test_every_step_and_phase_is_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    beats = {name: 0 for name in ("meter", "recorder")}

    def counting(name: str) -> Callable[[], None]:
        return lambda: beats.update({name: beats[name] + 1})

    for module in (meter, recorder):
        name = module.__name__.rpartition(".")[2]
        monkeypatch.setattr(module, "beat", counting(name))
    rows = np.ones((8, 4)), np.arange(8) % 2
    fit(NETWORK, rows, validation=rows, batch_size=4, epochs=3)
    assert beats["meter"] == 3 * (2 + 2)
    assert beats["recorder"] == 2 * (2 + 3)  # two compiles, and a validation an epoch
    monkeypatch.setattr(pulse, "_last", None)
    assert pulse.idle() == 0.0  # before there is a job
    monkeypatch.setattr(pulse, "_last", time.monotonic() - 100)
    assert pulse.idle() >= 100
    pulse.beat()
    assert pulse.idle() < 100


PARENT = """
import json, sys
from pathlib import Path
from sparkdl.launch.child import Child
from sparkdl.training.worker import Job
job, environment, log = json.loads(sys.argv[1])
busy, idle = (Child(Path(log), environment) for _ in range(2))
def tell(event):
    if event["event"] == "progress":
        print(busy.pid, idle.pid, flush=True)
busy.run(Job(**job), tell)
"""


def test_no_worker_and_no_directory_outlive_the_parent(tmp_path: Path) -> None:
    with jobs(tmp_path, ENDLESS, (8,), (0,)) as (job,):
        arguments = json.dumps([asdict(job), ENVIRONMENT, str(tmp_path / "log.txt")])
        parent = subprocess.Popen([sys.executable, "-c", PARENT, arguments], stdout=subprocess.PIPE, text=True)
        with parent:
            assert parent.stdout is not None
            pids = [int(pid) for pid in parent.stdout.readline().split()]
            assert len(pids) == 2 and all(map(is_alive, pids))
            parent.kill()
        deadline = time.monotonic() + 10
        while any(map(is_alive, pids)) and time.monotonic() < deadline:
            time.sleep(0.05)
    assert not any(map(is_alive, pids))
    assert not Path(job.directory).exists()
