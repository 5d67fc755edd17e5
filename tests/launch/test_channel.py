"""Who shows the token is heard, whoever else holds the port's line; who does not is cut off soon."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sparkdl.launch import channel
from sparkdl.launch.alarm import Alarm
from sparkdl.launch.channel import Door, connect
from sparkdl.spark.driver.progress import Receiver

HERE = "127.0.0.1"


@pytest.fixture
def alarm() -> Iterator[dict[str, Any]]:
    with Alarm(HERE) as listening:
        listening.watch(0, 2, listening.address, lambda: None)
        yield listening.address


@pytest.fixture
def progress() -> Iterator[dict[str, Any]]:
    with Receiver(HERE, HERE, "accuracy", False, True) as listening:
        assert listening.address is not None
        yield listening.address


@pytest.fixture(params=["alarm", "progress"])
def address(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Of either port that the workers or the driver listen on."""
    return request.getfixturevalue(request.param)


def knock(address: dict[str, Any]) -> socket.socket:
    """A connection that has shown nothing."""
    return socket.create_connection((address["host"], address["port"]), 10)


def heard(address: dict[str, Any]) -> bool:
    """Whether one with the token is let in, by what is the alarm's answer alone."""
    with connect(address, 10) as known:
        known.sendall(b"\0\0\0\1")
        return bool(known.recv(1))


@pytest.mark.parametrize("trickle", [b"", b"x"])
def test_a_slow_stranger_is_cut_off_at_one_deadline(
    address: dict[str, Any], trickle: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel, "GREETING_SECONDS", 0.3)
    began = time.monotonic()
    with knock(address) as stranger:
        stranger.settimeout(0.1)
        while time.monotonic() < began + 5:
            try:
                stranger.sendall(trickle)
                if stranger.recv(1) == b"":
                    break
            except TimeoutError:
                continue
            except ConnectionError:
                break
    assert 0.2 < time.monotonic() - began < 2


def test_strangers_are_few_at_once_and_keep_out_nobody_with_the_token(
    alarm: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel, "STRANGERS", 3)
    before = threading.active_count()
    strangers = [knock(alarm) for _ in range(10)]
    for oldest in strangers[:7]:
        assert oldest.recv(1) == b""
        oldest.close()
    deadline = time.monotonic() + 10
    while threading.active_count() > before + 4 and time.monotonic() < deadline:  # three, and who lets them in
        time.sleep(0.01)
    assert threading.active_count() <= before + 4
    assert heard(alarm)
    for stranger in strangers[7:]:
        stranger.close()


def test_strangers_are_let_go_when_the_door_closes() -> None:
    with Alarm(HERE) as listening:
        listening.watch(0, 2, listening.address, lambda: None)
        stranger = knock(listening.address)
        assert heard(listening.address)  # by when the stranger has been accepted as well
    with stranger:
        assert stranger.recv(1) == b""


def test_a_process_with_too_many_open_files_listens_again_when_it_has_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        """A socket that cannot accept at first."""

        def __init__(self, server: socket.socket) -> None:
            self._server, self.failed = server, False

        def accept(self) -> Any:
            if not self.failed:
                self.failed = True
                raise OSError(24, "Too many open files")
            return self._server.accept()

        def __getattr__(self, name: str) -> Any:
            return getattr(self._server, name)

    door = Door(HERE)
    monkeypatch.setattr(door, "_server", Full(door._server))
    came = threading.Event()
    door.open(lambda connection: came.set())
    with connect(door.address, 10):
        assert came.wait(10)
    door.close()


@pytest.mark.parametrize("host", ["::1", "[::1]"])
@pytest.mark.parametrize(
    "listen",
    [Door, Alarm, lambda host: Receiver(host, host, "accuracy", False, True)],
    ids=["door", "alarm", "progress"],
)
def test_an_ipv6_address_may_have_brackets(listen: Callable[[str], Any], host: str) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as error:
        pytest.skip(f"this machine has no IPv6: {error}")
    listening = listen(host)
    assert listening.address["host"] == "::1"
    connect(listening.address, 10).close()
    connect({**listening.address, "host": "[::1]"}, 10).close()
    listening.close() if isinstance(listening, Door) else listening.__exit__(None, None, None)


@pytest.mark.parametrize("rank, workers", [(0, 1), (1, 2)])
def test_no_alarm_listens_that_nobody_will_call(alarm: dict[str, Any], rank: int, workers: int) -> None:
    with Alarm(HERE) as other:
        other.watch(rank, workers, alarm, lambda: None)
        with pytest.raises(ConnectionRefusedError):
            knock(other.address)


@pytest.mark.parametrize("other", ["127.0.0.2", "::1"])
def test_only_the_address_that_is_asked_for_is_open(other: str) -> None:
    door = Door(HERE)
    with pytest.raises(OSError):
        socket.create_connection((other, door.address["port"]), 5)
    door.close()
