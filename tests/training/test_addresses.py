"""Workers are found by the addresses that Spark knows, and listen on the ports that they are allowed."""

from __future__ import annotations

import socket
from contextlib import ExitStack

import pytest

from sparkdl.training.group import addresses
from sparkdl.training.group.addresses import (
    ANY_PORT,
    interface_of,
    join_port,
    listen,
    own_address,
    parse_ports,
    reserve_port,
    split_host,
)


@pytest.mark.parametrize(
    ("address", "host", "again"),
    [
        ("10.0.0.5:7337", "10.0.0.5", "10.0.0.5:7337"),
        ("worker-1.example:7337", "worker-1.example", "worker-1.example:7337"),
        ("[::1]:7337", "::1", "[::1]:7337"),
        ("[fd00::a:1]:7337", "fd00::a:1", "[fd00::a:1]:7337"),
    ],
)
def test_hosts_lose_the_brackets_that_spark_gives_ipv6_and_get_them_back(address: str, host: str, again: str) -> None:
    assert split_host(address) == host
    assert join_port(host, 7337) == again


@pytest.mark.parametrize(
    ("host", "expected"), [("127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("no-such-name", "127.0.0.1")]
)
def test_workers_of_one_machine_meet_on_whatever_address_it_has(host: str, expected: str) -> None:
    assert own_address(host, [host, host]) == expected


class Network:
    """Of a machine: what names resolve to, its addresses, and from which of them there is a way out."""

    def __init__(self, names: dict[str, list[str]], own: dict[str, bool], default: str) -> None:
        self.names, self.own, self.default = names, own, default

    def addresses(self, host: str) -> list[str]:
        return self.names.get(host, [host] if host[0].isdigit() else [])

    def source(self, target: str, own: str = "") -> str:
        found = own if self.own.get(own) else "" if own else self.default
        return "" if found.startswith("127.") else found


@pytest.mark.parametrize(
    ("names", "own", "expected"),
    [
        ({"one": ["127.0.1.1"]}, {"127.0.1.1": True}, "10.0.0.1"),  # Debian's own name
        ({}, {}, "10.0.0.1"),  # a name that this machine does not resolve
        ({"one": ["10.0.0.1"]}, {"10.0.0.1": True}, "10.0.0.1"),
        ({"one": ["192.168.0.1"]}, {"192.168.0.1": True}, "192.168.0.1"),  # the interface that Spark's name means
        ({"one": ["192.168.0.1", "10.0.0.1"]}, {"192.168.0.1": False, "10.0.0.1": True}, "10.0.0.1"),  # one is down
        ({"one": ["10.9.9.9"]}, {}, "10.0.0.1"),  # another machine's by now
    ],
)
def test_the_own_address_is_one_that_the_others_can_reach(
    monkeypatch: pytest.MonkeyPatch, names: dict[str, list[str]], own: dict[str, bool], expected: str
) -> None:
    network = Network(names, own, "10.0.0.1")
    monkeypatch.setattr(addresses, "_addresses", network.addresses)
    monkeypatch.setattr(addresses, "_source", network.source)
    assert own_address("one", ["one", "10.0.0.2"]) == expected


def test_a_machine_without_a_way_to_the_others_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    network = Network({"one": ["127.0.1.1"]}, {"127.0.1.1": True}, "127.0.0.1")
    monkeypatch.setattr(addresses, "_addresses", network.addresses)
    monkeypatch.setattr(addresses, "_source", network.source)
    with pytest.raises(OSError, match="one resolves to 127.0.1.1 on this machine.*no way to 10.0.0.2.*SPARK_LOCAL_IP"):
        own_address("one", ["one", "10.0.0.2"])


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_the_interface_of_the_loopback_address_is_lo(address: str) -> None:
    assert interface_of(address) == "lo"


def test_an_address_of_another_machine_has_no_interface() -> None:
    assert interface_of("192.0.2.1") is None


@pytest.mark.parametrize(
    ("text", "ports"), [("", ANY_PORT), ("40000-40100", range(40000, 40101)), (" 40000 - 40001 ", range(40000, 40002))]
)
def test_ports_are_read(text: str, ports: range) -> None:
    assert parse_ports(text) == ports


@pytest.mark.parametrize("text", ["0-10", "40100-40000", "40000-70000", "40000,40001", "many", "-1"])
def test_other_ports_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="sparkdl.ports must be two ports.*received"):
        parse_ports(text)


def free_ports(number: int) -> range:
    """So many ports in a row, of which nobody had one a moment ago."""
    for first in range(42000, 60000, number):
        with ExitStack() as stack:
            try:
                for port in range(first, first + number):
                    stack.enter_context(socket.create_server(("127.0.0.1", port)))
            except OSError:
                continue
            return range(first, first + number)
    raise AssertionError("No free ports.")


def test_taken_ports_are_skipped_by_servers_and_reservations_alike() -> None:
    ports = free_ports(4)
    with ExitStack() as stack:
        taken = stack.enter_context(socket.create_server(("127.0.0.1", ports[0])))
        opened = [stack.enter_context(take("127.0.0.1", ports)) for take in (reserve_port, listen, reserve_port)]
        assert [taken.getsockname()[1], *(each.getsockname()[1] for each in opened)] == list(ports)
        with pytest.raises(OSError, match=f"all ports of sparkdl.ports, {ports[0]}-{ports[3]}, are taken on 127.0.0.1"):
            listen("127.0.0.1", ports)


def test_a_reserved_port_can_be_had_by_a_server_that_shares_ports() -> None:
    with ExitStack() as stack:
        address = stack.enter_context(reserve_port("127.0.0.1", ANY_PORT)).getsockname()
        server = stack.enter_context(socket.create_server(address, reuse_port=True))
        there = stack.enter_context(socket.create_connection(address, 5))
        here = stack.enter_context(server.accept()[0])
        assert here.getpeername() == there.getsockname()


def test_an_address_that_the_machine_does_not_have_is_named() -> None:
    with pytest.raises(OSError, match="no port can be had on 192.0.2.1"):
        listen("192.0.2.1", range(40000, 40010))
