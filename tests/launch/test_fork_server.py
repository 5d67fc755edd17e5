"""Workers that a server forks are as those that Python starts: in what they do, what they are told, how they end."""

from __future__ import annotations

import json
import os
import pickle
import platform
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from test_worker import ENDLESS, ENVIRONMENT, SHORT, is_alive, jobs

from sparkdl import Network
from sparkdl.classes import CLASSES
from sparkdl.launch import fork_server
from sparkdl.launch.child import Child, WorkerError
from sparkdl.launch.fork_server import SERVER_NAME, WARDEN_NAME, fork_worker, open_fork_server
from sparkdl.layers import Dense
from sparkdl.spark.tasks.environment import TRAINING_MEMORY, TUNABLES
from sparkdl.tensor_file import read_tensors
from sparkdl.training.worker import PROCESS_NAME, WEIGHTS

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers are forked on Linux only")
MEMORY = {TUNABLES: TRAINING_MEMORY}
OWN_LAYER = """
import ctypes, os, jax
from concurrent.futures import ThreadPoolExecutor
from resource import RUSAGE_SELF, getrusage
from sparkdl.layers import Dense
class Own(Dense): ...
print("Seen:", os.environ.get("TOLD"), os.environ.get("LANG"), jax.config.jax_check_tracer_leaks)

library, size = ctypes.CDLL(None), 100_000_000
library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
library.free.argtypes = [ctypes.c_void_p]
def take():
    before = getrusage(RUSAGE_SELF).ru_minflt
    block = library.malloc(size)
    ctypes.memset(block, 1, size)
    library.free(block)
    return getrusage(RUSAGE_SELF).ru_minflt - before
with ThreadPoolExecutor(1) as thread:
    print("Seen: memory is kept", [thread.submit(take).result() for _ in range(3)][-1] < 10)
"""


# Scenes, in a process of their own, which has none of JAX's backends and opens a server.


def main(folder: Path) -> None:
    sys.path.insert(0, str(folder))
    (folder / "own_layer.py").write_text(OWN_LAYER)
    open_fork_server(MEMORY)
    told = {"forked": training(folder)}
    told |= {scene.__name__: scene(folder) for scene in (killed, deserted, for_a_gpu, without_server)}
    told["started"] = training(folder)
    (folder / "told.json").write_text(json.dumps(told))


def ancestors(process: int) -> list[tuple[int, str]]:
    """Parent and grandparent of a process, with their names."""
    found = []
    for _ in range(2):
        process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
        found.append((process, name_of(process)))
    return found


def name_of(process: int) -> str:
    return Path(f"/proc/{process}/comm").read_text().strip()


def training(folder: Path) -> dict[str, Any]:
    """What comes of a job whose layer is of a module that only the worker's path has."""
    from own_layer import Own

    plan = replace(SHORT, network=Network([Own(3), Dense(2)], input_shape=(4,)))
    environment = {**ENVIRONMENT, "PYTHONPATH": f"{folder}:{ENVIRONMENT['PYTHONPATH']}"}
    environment |= {"TOLD": "by its parent", "JAX_CHECK_TRACER_LEAKS": "1"} | MEMORY
    with TemporaryDirectory() as work, jobs(Path(work), plan, (8,), (2,)) as (job,):
        log = Path(job.directory, "log.txt")
        Path(job.directory, CLASSES).write_bytes(json.dumps(["own_layer.Own"]).encode() + b"\n" + pickle.dumps([Own]))
        with Child(log, environment) as child:
            forked = ancestors(child.pid)[0][1] == WARDEN_NAME
            child.run(job, lambda event: None)
            name = name_of(child.pid)
            seen = [line for line in log.read_text().splitlines() if line.startswith("Seen:")]
        arrays = {name: array.tolist() for name, array in read_tensors(Path(job.directory, WEIGHTS)).arrays.items()}
    return {"forked": forked, "name": name, "seen": seen, "weights": arrays}


def killed(folder: Path) -> Any:
    """The error of a worker that is killed while it trains, and whether it is there still."""

    def kill(event: dict[str, Any]) -> None:
        if event["event"] == "progress":
            os.kill(child.pid, signal.SIGKILL)

    with TemporaryDirectory() as work, jobs(Path(work), ENDLESS, (8,), (0,)) as (job,):
        with Child(Path(job.directory, "log.txt"), ENVIRONMENT) as child:
            try:
                child.run(job, kill)
            except WorkerError as error:
                message = str(error)
        return message, is_alive(child.pid)


def deserted(folder: Path) -> Any:
    """The exit code of a worker that nobody talks to any more, and whether its directory is there still."""
    work = folder / "work"
    work.mkdir()
    with (folder / "log.txt").open("wb") as log:
        process = fork_worker(str(work), log, os.environ | ENVIRONMENT)
    assert process is not None
    process.stdin.close()
    code = process.wait()
    process.stdout.close()
    return code, work.exists()


def for_a_gpu(folder: Path) -> Any:
    """Whether a worker that drives a GPU is forked."""
    with Child(folder / "log.txt", ENVIRONMENT | {"JAX_PLATFORMS": "cuda"}) as child:
        return ancestors(child.pid)[0][1] == WARDEN_NAME


def without_server(folder: Path) -> Any:
    """Whether a worker is forked after the server's death."""
    with Child(folder / "log.txt", ENVIRONMENT) as child:
        server, name = ancestors(child.pid)[1]
    assert name == SERVER_NAME
    os.kill(server, signal.SIGKILL)
    os.waitpid(server, 0)
    with Child(folder / "log.txt", ENVIRONMENT) as child:
        return ancestors(child.pid)[0][1] == WARDEN_NAME


# What the tests see of it.


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("scenes")
    done = subprocess.run([sys.executable, __file__, str(folder)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "told.json").read_text())


def test_a_forked_worker_does_what_a_started_one_does(told: dict[str, Any]) -> None:
    started, forked = told["started"], told["forked"]
    assert (started.pop("forked"), forked.pop("forked")) == (False, True)
    assert forked == started
    assert forked["name"] == PROCESS_NAME


def test_it_has_the_environment_and_the_path_that_it_is_given(told: dict[str, Any]) -> None:
    assert told["forked"]["seen"][0] == f"Seen: by its parent {os.environ.get('LANG')} True"


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")
def test_it_keeps_what_its_threads_free(told: dict[str, Any]) -> None:
    """More than 64 MB, which malloc takes from the system anew unless it is told before the program starts."""
    assert told["forked"]["seen"][1] == "Seen: memory is kept True"


def test_its_death_is_told_with_the_signal(told: dict[str, Any]) -> None:
    message, there = told["killed"]
    assert "was killed by signal 9; the machine may be out of memory" in message
    assert not there


def test_it_cleans_up_and_ends_when_nobody_talks_to_it(told: dict[str, Any]) -> None:
    assert told["deserted"] == [1, False]


def test_workers_of_gpus_and_those_without_a_server_are_started(told: dict[str, Any]) -> None:
    assert (told["for_a_gpu"], told["without_server"]) == (False, False)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """Where the requests of this process arrive, in a server's place."""
    asker, requests = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with asker, requests:
        monkeypatch.setattr(fork_server, "_server", asker)
        yield requests


def request_fork(tmp_path: Path) -> fork_server.Forked | None:
    with (tmp_path / "log.txt").open("wb") as log:
        return fork_worker(str(tmp_path), log, {})


def test_a_server_that_cannot_fork_leaves_it_to_its_asker(asked: socket.socket, tmp_path: Path) -> None:
    def close_what_came() -> None:
        for descriptor in socket.recv_fds(asked, fork_server.REQUEST_BYTES, 4)[1]:
            os.close(descriptor)

    answering = threading.Thread(target=close_what_came)
    answering.start()
    assert request_fork(tmp_path) is None
    answering.join()


def test_a_server_that_does_not_answer_is_not_waited_for_without_end(
    asked: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fork_server, "ANSWER_SECONDS", 0.2)
    with pytest.raises(OSError, match="No process was forked for a worker within 0"):
        request_fork(tmp_path)


def test_where_no_server_can_be_started_workers_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_server, "_server", None)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nothing"))
    open_fork_server({})
    asker = fork_server._server
    assert asker is not None
    with asker:
        assert request_fork(tmp_path) is None


def test_the_server_ends_with_who_opened_it_even_if_others_could_ask_it_still() -> None:
    script = (
        "import os, sys, time; from sparkdl.launch.fork_server import open_fork_server\n"
        "open_fork_server({}); (server,) = open(f'/proc/self/task/{os.getpid()}/children').read().split()\n"
        "if asker := os.fork(): print(server, asker, flush=True); os._exit(0)\n"
        "os.dup2(os.open(os.devnull, os.O_RDWR), 1); time.sleep(60)"
    )
    told = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, timeout=60).stdout
    server, asker = map(int, told.split())
    try:
        deadline = time.monotonic() + 20
        while is_alive(server) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not is_alive(server)
        assert is_alive(asker)
    finally:
        os.kill(asker, signal.SIGKILL)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
