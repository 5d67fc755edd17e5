"""What gloo is told: the address, by a private name of JAX; that its thread gives way; how much its sockets hold."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys

import pytest
from jaxlib import _jax

from sparkdl.training.group.addresses import ANY_PORT, reserve_port
from sparkdl.training.group.gloo import SEND_BYTES, bind_gloo, widen_send_buffers

PROCESS = """
import json, os, sys
import jax
from sparkdl.training.group.gloo import bind_gloo

bind_gloo("127.0.0.1")
jax.distributed.initialize(sys.argv[1], num_processes=1, process_id=0, cluster_detection_method="deactivate")
jax.devices()
print(json.dumps({thread: os.sched_getscheduler(int(thread)) for thread in os.listdir("/proc/self/task")}))
jax.distributed.shutdown()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="lists open files as Linux does")
def test_every_tcp_socket_gets_a_larger_send_buffer_and_stays_open() -> None:
    unix, peer = socket.socketpair()
    with (
        unix,
        peer,
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as one,
        server.accept()[0] as other,
    ):
        before = unix.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        granted = one.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        widen_send_buffers()
        assert granted < one.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) <= 2 * SEND_BYTES
        assert unix.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == before
        one.sendall(b"still here")
        assert other.recv(100) == b"still here"


def test_jax_makes_gloo_by_the_name_that_is_replaced_and_tells_it_the_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If JAX ever makes its collectives otherwise, this fails, before any cluster does."""
    from jax._src import distributed, xla_bridge

    told = {}

    class Stop(Exception):
        pass

    def make(distributed_client: object, hostname: str | None = None, interface: str | None = None) -> None:
        told.update(client=distributed_client, hostname=hostname, interface=interface)
        raise Stop

    client = object()
    monkeypatch.setattr(_jax, "make_gloo_tcp_collectives", make)
    monkeypatch.setattr(distributed.global_state, "client", client)
    bind_gloo("10.0.0.5")
    with pytest.raises(Stop):
        xla_bridge.make_cpu_client()
    assert told == {"client": client, "hostname": "10.0.0.5", "interface": None}


def test_a_jaxlib_without_that_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(_jax, "make_gloo_tcp_collectives")
    with pytest.raises(RuntimeError, match=r"jaxlib \d.* has no make_gloo_tcp_collectives.*install a version"):
        bind_gloo("10.0.0.5")


@pytest.mark.skipif(sys.platform != "linux", reason="schedules as Linux does")
def test_gloos_thread_alone_gives_way_to_others() -> None:
    with reserve_port("127.0.0.1", ANY_PORT) as reserved:
        coordinator = f"127.0.0.1:{reserved.getsockname()[1]}"
        done = subprocess.run(
            [sys.executable, "-c", PROCESS, coordinator], capture_output=True, text=True, timeout=60, check=True
        )
    policies = list(json.loads(done.stdout.splitlines()[-1]).values())
    assert policies.count(os.SCHED_BATCH) == 1, "gloo has as many threads as it has devices, one here"
    assert policies.count(os.SCHED_OTHER) == len(policies) - 1
