"""Deaths that need no Spark to be seen: of a worker's parent, together with its process group, and of rank 0's."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from sparkdl.launch.alarm import ADMITTED, Alarm

PARENT = """
import signal, sys, time
from pathlib import Path
from sparkdl.launch.child import Child
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # which nohup has all ignore
with Child(Path(sys.argv[1]), {"JAX_PLATFORMS": "cpu", "PYTHONPATH": ":".join(filter(None, sys.path))}) as child:
    print(child.pid, flush=True)
    time.sleep(1000)
"""


def test_a_worker_cleans_up_though_its_process_group_is_hung_up(tmp_path: Path) -> None:
    """As Spark's daemon does to its Python workers when it has lost the executor."""
    folder = tmp_path / "work"
    folder.mkdir()
    command = [sys.executable, "-c", PARENT, str(folder / "log.txt")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as parent:
        assert parent.stdout is not None
        worker = Path("/proc", parent.stdout.readline().decode().strip())
        os.killpg(parent.pid, signal.SIGHUP)
    deadline = time.monotonic() + 30  # it notices when it has imported its libraries
    while folder.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not list(tmp_path.iterdir())
    while worker.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not worker.exists()


@pytest.mark.parametrize("answer", [b"", ADMITTED, ADMITTED + b"\0\0\0"])
def test_a_first_worker_that_dies_while_it_is_greeted_is_an_error(answer: bytes) -> None:
    """One of the kind that has Spark run the stage again."""

    def greet() -> None:
        peer, _ = server.accept()
        with peer:
            peer.recv(6, socket.MSG_WAITALL)
            peer.sendall(answer)
            peer.shutdown(socket.SHUT_WR)
            while peer.recv(100):
                pass

    with socket.create_server(("127.0.0.1", 0)) as server, Alarm("127.0.0.1") as alarm:
        center = {"host": "127.0.0.1", "port": server.getsockname()[1], "token": "to"}
        thread = threading.Thread(target=greet)
        thread.start()
        with pytest.raises(OSError, match="does not answer|fell silent"):
            alarm.watch(1, 2, center, lambda: None)
    thread.join(10)
    assert not thread.is_alive()
