"""What a worker's process is told of addresses before it joins the others."""

from __future__ import annotations

import os
import socket
import threading
import time

import pytest
from jaxlib import _jax

from sparkdl.training.group import joining

PROXIES = "no_grpc_proxy", "no_proxy"


@pytest.fixture
def restored(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Whatever a test leaves in jaxlib and in the environment is put back."""
    monkeypatch.setattr(_jax, "make_gloo_tcp_collectives", _jax.make_gloo_tcp_collectives)
    for name in (*PROXIES, "NCCL_SOCKET_IFNAME"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    return monkeypatch


def test_nccl_takes_the_interface_of_the_address_unless_told_another(restored: pytest.MonkeyPatch) -> None:
    joining._take_interface("127.0.0.1")
    assert os.environ["NCCL_SOCKET_IFNAME"] == "=lo"
    restored.setenv("NCCL_SOCKET_IFNAME", "eth7")
    joining._take_interface("127.0.0.1")
    assert os.environ["NCCL_SOCKET_IFNAME"] == "eth7"


@pytest.mark.parametrize(
    ("excluded", "expected"),
    [
        ({}, "10.0.0.5,10.0.0.6"),
        ({"no_proxy": "localhost,10.0.0.6"}, "localhost,10.0.0.6,10.0.0.5"),
        ({"no_proxy": "localhost", "no_grpc_proxy": "example.org"}, "example.org,10.0.0.5,10.0.0.6"),
    ],
)
def test_the_other_workers_are_added_to_whom_grpc_talks_to_without_a_proxy(
    restored: pytest.MonkeyPatch, excluded: dict[str, str], expected: str
) -> None:
    for name, value in excluded.items():
        restored.setenv(name, value)
    joining._avoid_proxies(["10.0.0.5", "10.0.0.6", "10.0.0.5"])
    assert os.environ[joining.EXCLUDED] == expected
    assert os.environ.get("no_proxy") == excluded.get("no_proxy")


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_workers_wait_for_a_coordinator_that_comes_late(address: str) -> None:
    """gRPC would try at once, and a second later."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as late:
        late.bind((address, 0))  # and does not listen yet
        waiting = threading.Thread(
            target=joining._await_coordinator, args=(address, late.getsockname()[1], time.monotonic() + 60)
        )
        waiting.start()
        waiting.join(0.2)
        assert waiting.is_alive()
        late.listen()
        waiting.join(60)
        assert not waiting.is_alive()


def test_they_do_not_wait_longer_than_they_may() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        started = time.monotonic()
        joining._await_coordinator("127.0.0.1", silent.getsockname()[1], started + 0.3)
        assert time.monotonic() - started >= 0.3
