"""Progress on its way from rank 0 to the driver: best effort, so that it can be late or lost but never fail a fit."""

from __future__ import annotations

import contextlib
import hmac
import json
import secrets
import socket
import sys
import threading
import time
import warnings
from types import TracebackType
from typing import Any, Self

CONNECT_SECONDS = 2.0
LINE_BYTES = 1 << 16


def wanted(setting: str) -> bool:
    """Whether to show a progress bar: "on", "off", or "auto" for a terminal or a notebook."""
    return setting == "on" or (setting == "auto" and (sys.stderr.isatty() or _in_notebook()))


class Receiver:
    """Listens on the driver and draws a progress bar; a context manager.

    Parameters
    ----------
    host : str
        The driver's address as workers see it.
    bind : str
        The address to listen on.
    metric : str
        What to call the metric.
    shown : bool
        False listens to nothing.
    """

    def __init__(self, host: str, bind: str, metric: str, shown: bool) -> None:
        self._metric = metric
        self.address: dict[str, Any] | None = None
        self._server: socket.socket | None = None
        if not shown:
            return
        try:
            self._server = socket.create_server((bind, 0))
        except OSError as error:
            warnings.warn(f"No progress bar: cannot listen on {bind} ({error}).", stacklevel=3)
            return
        token = secrets.token_hex(16)
        self.address = {"host": host, "port": self._server.getsockname()[1], "token": token}
        self._bar = _bar()
        self._thread = threading.Thread(target=self._listen, args=(token,), daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is None:
            return
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)  # wakes accept, which close alone does not
        self._server.close()
        self._thread.join(CONNECT_SECONDS)
        self._bar.close()

    def _listen(self, token: str) -> None:
        assert self._server is not None
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                connection.settimeout(CONNECT_SECONDS)
                stream = connection.makefile("rb")
                if not hmac.compare_digest(stream.readline(LINE_BYTES).strip(), token.encode()):
                    continue
                connection.settimeout(None)
                while line := stream.readline(LINE_BYTES):
                    self._draw(json.loads(line))

    def _draw(self, message: dict[str, Any]) -> None:
        done = message["epoch"] * message["total_rows"] + message["rows"]
        if not self._bar.n:  # rows/s and time left should know nothing of the workers' start
            self._bar.start_t = self._bar.last_print_t = time.time() - message["seconds"]
        self._bar.total = message["epochs"] * message["total_rows"]
        self._bar.set_description(f"epoch {message['epoch'] + 1}/{message['epochs']}", refresh=False)
        labels = {"loss": "loss", "metric": self._metric}
        shown = {label: f"{message[key]:.4f}" for key, label in labels.items() if message.get(key) is not None}
        held_out = (message.get("history") or {}).get("validation_loss")
        if held_out is not None:
            shown["validation"] = f"{held_out:.4f}"
        self._bar.set_postfix(shown, refresh=False)
        self._bar.update(done - self._bar.n)


class Sender:
    """Sends messages from a task to the driver's Receiver; every trouble is swallowed.

    Parameters
    ----------
    address : dict or None
        The receiver's; None sends nothing.
    """

    def __init__(self, address: dict[str, Any] | None) -> None:
        self._socket: socket.socket | None = None
        if address is None:
            return
        with contextlib.suppress(OSError):
            self._socket = socket.create_connection((address["host"], address["port"]), CONNECT_SECONDS)
            self._socket.sendall(address["token"].encode() + b"\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._socket is not None:
            self._socket.close()

    def send(self, message: dict[str, Any]) -> None:
        """Send one message, or give up for good."""
        if self._socket is None:
            return
        try:
            self._socket.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            self._socket.close()
            self._socket = None


def _in_notebook() -> bool:
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return type(shell).__name__ == "ZMQInteractiveShell"


def _bar() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of tqdm, about a notebook without ipywidgets
        from tqdm.auto import tqdm

        return tqdm(unit=" rows", unit_scale=True, dynamic_ncols=True, file=sys.stderr)
