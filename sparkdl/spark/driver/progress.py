"""Shows progress and logs on the driver: best effort, so that they can be late or lost but never fail a fit."""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import sys
import threading
import time
import warnings
from types import TracebackType
from typing import Any, Self

from sparkdl.launch.channel import Door
from sparkdl.training.group.addresses import ANY_PORT

FAREWELL_SECONDS = 2.0
LINE_BYTES = 1 << 16
LOGGER = logging.getLogger("sparkdl.worker")


def wanted(setting: str) -> bool:
    """Whether to show a progress bar: "on", "off", or "auto" for a terminal or a notebook."""
    return setting == "on" or (setting == "auto" and (sys.stderr.isatty() or _in_notebook()))


class Receiver:
    """Listens on the driver, draws a progress bar and logs what workers print; a context manager.

    Lines go to the logger "sparkdl.worker" at level INFO, and from there to standard error if nobody set up logging.

    Parameters
    ----------
    host : str
        The driver's address as workers see it.
    bind : str
        The address to listen on. It may be 0.0.0.0, where containers have `spark.driver.bindAddress` so, as the
        driver's address is then none of this machine's.
    metric : str
        What to call the metric.
    shown : bool
        Whether to draw the bar.
    logged : bool, default False
        Whether to log the lines. If neither is wanted, nothing listens.
    ports : range, optional
        Those to listen on.
    """

    def __init__(
        self, host: str, bind: str, metric: str, shown: bool, logged: bool = False, ports: range = ANY_PORT
    ) -> None:
        self._metric = metric
        self.address: dict[str, Any] | None = None
        self._door: Door | None = None
        if not shown and not logged:
            return
        try:
            self._door = Door(host, bind, ports)
        except OSError as error:
            lost = " or ".join(["progress bar"] * shown + ["worker logs"] * logged)
            warnings.warn(f"No {lost}: cannot listen on {bind} ({error}).", stacklevel=3)
            return
        self.address = self._door.address
        self._bar = _bar() if shown else None
        self._handler = _handler() if logged else None
        self._lock = threading.Lock()  # of what is shown
        self._door.open(self._hear)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._door is None:
            return
        self._door.close(FAREWELL_SECONDS)
        if self._handler is not None:
            LOGGER.removeHandler(self._handler)
        if self._bar is not None:
            self._bar.close()

    def _hear(self, connection: socket.socket) -> None:
        """Show what one worker, or one attempt of it, has to say."""
        with connection.makefile("rb") as stream, contextlib.suppress(ValueError, KeyError, TypeError):
            while line := stream.readline(LINE_BYTES):
                message = json.loads(line)
                with self._lock:
                    if "line" in message:
                        self._log(message)
                    else:
                        self._draw(message)

    def _log(self, message: dict[str, Any]) -> None:
        with _aside(self._bar):
            LOGGER.info("[rank %s on %s] %s", message["rank"], message["host"], message["line"])

    def _draw(self, message: dict[str, Any]) -> None:
        if self._bar is None:
            return
        before, together, runs = dict(message).get("runs", (0, 1, 1))
        whole = message["epochs"] * message["total_rows"]
        done = before * whole + together * (message["epoch"] * message["total_rows"] + message["rows"])
        if not self._bar.n:  # rows/s and time left should know nothing of the workers' start
            self._bar.start_t = self._bar.last_print_t = time.time() - message["seconds"]
        self._bar.total = runs * whole
        which = f"fit {before + 1}/{runs}, " if runs > 1 else ""
        self._bar.set_description(f"{which}epoch {message['epoch'] + 1}/{message['epochs']}", refresh=False)
        labels = {"loss": "loss", "metric": self._metric}
        shown = {label: f"{message[key]:.4f}" for key, label in labels.items() if message.get(key) is not None}
        held_out = (message.get("history") or {}).get("validation_loss")
        if held_out is not None:
            shown["validation"] = f"{held_out:.4f}"
        self._bar.set_postfix(shown, refresh=False)
        self._bar.update(done - self._bar.n)


def _in_notebook() -> bool:
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return type(shell).__name__ == "ZMQInteractiveShell"


def _handler() -> logging.Handler | None:
    """A handler to take away afterwards, if nobody has set up logging; else None."""
    if LOGGER.level == logging.NOTSET:
        LOGGER.setLevel(logging.INFO)
    if LOGGER.hasHandlers():
        return None
    handler = logging.StreamHandler()
    LOGGER.addHandler(handler)
    return handler


def _aside(bar: Any) -> contextlib.AbstractContextManager[Any]:
    """A context in which lines can be written without breaking the bar."""
    return contextlib.nullcontext() if bar is None else bar.external_write_mode(file=sys.stderr)


def _bar() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of tqdm, about a notebook without ipywidgets
        from tqdm.auto import tqdm

        return tqdm(unit=" rows", unit_scale=True, dynamic_ncols=True, file=sys.stderr)
