"""The sockets of an exchange hold a message each."""

from __future__ import annotations

import socket
import sys

import pytest

from sparkdl.training.sockets import SEND_BYTES, widen_send_buffers


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
