"""Spark's standalone cluster over hosts, and drivers of applications on it."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyspark
from hosts import LOCAL, Host

from sparkdl.spark.session import find_java

REPOSITORY = Path(__file__).parents[2]
SPARK = Path(pyspark.__file__).parent
REGISTERED = "Successfully registered with master"
CLASS = str(SPARK / "bin" / "spark-class")
PORT = 7077
READY_SECONDS = 90.0
CLOCK, AHEAD = Path(__file__).with_name("clock"), 3600  # a folder for Python's path, and the seconds it then is ahead
SETTINGS = {
    "spark.executor.memory": "700m",
    "spark.driver.memory": "700m",
    "spark.executorEnv.PYTHONPATH": str(REPOSITORY),
    "spark.python.daemon.module": "sparkdl.spark.daemon",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.shuffle.partitions": "4",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}


def environment(host: Host, user: int | None = None, **more: str) -> dict[str, str]:
    """Of Spark's processes on a host, which are root's or another user's."""
    java = find_java()
    assert java is not None
    ipv6 = str(host.address.startswith("[")).lower()
    own = {
        "JAVA_HOME": java,
        "JAVA_TOOL_OPTIONS": f"{os.environ['SPARK_SUBMIT_OPTS']} -Djava.net.preferIPv6Addresses={ipv6}",
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",  # most programs take longer to compile than to run
        "SPARK_DAEMON_MEMORY": "192m",
        "SPARK_HOME": str(SPARK),
        "SPARK_LOCAL_IP": host.address,
        "SPARK_PREFER_IPV6": ipv6,
    }
    for name, folder in (("SPARK_LOCAL_DIRS", LOCAL), ("SPARK_WORKER_DIR", "work"), ("TMPDIR", "tmp")):
        own[name] = str(host.folder / folder)
        os.makedirs(own[name], exist_ok=True)
        if user is not None:
            os.chown(own[name], user, user)

    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    return kept | own | more


def wait_until(what: Callable[[], Any], seconds: float, otherwise: Callable[[], str]) -> Any:
    """The first true value of `what`; an AssertionError saying what else is there after so many seconds."""
    deadline = time.monotonic() + seconds
    while not (found := what()):
        if time.monotonic() > deadline:
            raise AssertionError(f"Not within {seconds:g} s. {otherwise()}")
        time.sleep(0.1)
    return found


class Standalone:
    """A master on the first host, and workers on the others; a context manager.

    Attributes
    ----------
    master : str
        Spark's URL of it.
    workers : list of Host
    """

    def __init__(self, hosts: list[Host], user: int | None = None) -> None:
        self.driver_host, *self.workers = hosts
        self._user, self._port = user, PORT if user is None else PORT + 1
        self.master = f"spark://{self.driver_host.address}:{self._port}"
        self._numbers = itertools.count()

    def __enter__(self) -> Standalone:
        self._start(self.driver_host, "master", "Master", "--host", self.driver_host.address, "--port", str(self._port))
        self._await(self.driver_host, "master", "I have been elected leader")
        for host in self.workers:
            self.start_worker(host)
        for host in self.workers:
            self._await(host, "worker", REGISTERED)
        return self

    def __exit__(self, *_: object) -> None:
        """Hosts end what runs on them."""

    def start_worker(self, host: Host) -> None:
        """Spark's worker of a host."""
        arguments = ["--host", host.address, "--cores", "1", "--memory", "1g", self.master]
        self._start(host, "worker", "Worker", *arguments)

    def registrations(self) -> list[int]:
        """How often every worker has registered with the master, which then ends executors that it had given up."""
        return [self._log(host, "worker").read_text().count(REGISTERED) for host in self.workers]

    def is_whole(self) -> bool:
        """Whether every worker that the master gave up, having heard nothing for a minute, is registered again."""
        told = self._log(self.driver_host, "master").read_text()
        return told.count("Registering worker") - told.count("Removing worker worker-") == len(self.workers)

    def environment(self, host: Host) -> dict[str, str]:
        """Of this cluster's processes on a host; on the second worker's clocks can be ahead (see `CLOCK`)."""
        ahead = {"CLOCK_AHEAD": str(AHEAD)} if host is self.workers[1] else {}
        return environment(host, self._user, **ahead)

    def _start(self, host: Host, log: str, kind: str, *arguments: str) -> None:
        command = [CLASS, f"org.apache.spark.deploy.{log}.{kind}", *arguments, "--webui-port", "0"]
        host.start(command, self.environment(host), self._log(host, log), user=self._user)

    def _log(self, host: Host, name: str) -> Path:
        return host.folder / f"{name}.log"

    def _await(self, host: Host, log: str, words: str) -> None:
        path = self._log(host, log)
        wait_until(lambda: path.exists() and words in path.read_text(), READY_SECONDS, lambda: path.read_text()[-3000:])

    @contextlib.contextmanager
    def connect_server(self, port: int) -> Iterator[str]:
        """The address of a server of Spark Connect on the first host."""
        host = self.driver_host
        settings = SETTINGS | {
            "spark.connect.grpc.binding.address": host.address,
            "spark.connect.grpc.binding.port": str(port),
            "spark.driver.host": host.address,
            "spark.driver.bindAddress": host.address,
        }
        options = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
        server = ["org.apache.spark.deploy.SparkSubmit", "--master", self.master, *options]
        server += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
        log = host.folder / "connect.log"
        own = {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(REPOSITORY), "SPARK_DAEMON_MEMORY": "700m"}
        process = host.start([CLASS, *server], environment(host) | own, log)
        try:
            wait_until(lambda: (host.address, port) in host.listening("java"), READY_SECONDS, log.read_text)
            yield host.address
        finally:
            host.kill("SparkConnectServer")
            process.wait(30)

    @contextlib.contextmanager
    def driver(self, master: str = "", host: Host | None = None, **settings: str) -> Iterator[Driver]:
        """An application of this cluster, or of another master, whose driver runs on the first host or another."""
        host = host or self.driver_host
        own = {
            "spark.master": master or self.master,
            "spark.driver.host": host.address,
            "spark.driver.bindAddress": host.address,
        }
        whole = settings if "spark.remote" in settings else SETTINGS | own | settings
        driver = Driver(host, whole, f"driver-{next(self._numbers)}")
        try:
            driver.result("session", READY_SECONDS)
            yield driver
        finally:
            driver.stop()


class Driver:
    """Does jobs of `jobs.py` in a process on a host (see driver.py)."""

    def __init__(self, host: Host, settings: dict[str, str], name: str) -> None:
        self.log = host.folder / f"{name}.log"
        self._results = host.folder / f"{name}.json"
        command = [sys.executable, str(Path(__file__).with_name("driver.py")), json.dumps(settings), str(self._results)]
        own = environment(host, PYSPARK_PYTHON=sys.executable, PYTHONPATH=str(REPOSITORY))
        self.process = host.start(command, own, self.log, subprocess.PIPE)
        self._numbers = itertools.count()

    def start(self, job: str, **arguments: Any) -> str:
        """Have a job done; what `result` is to be asked for."""
        number = f"{job}-{next(self._numbers)}"
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"id": number, "job": job, "arguments": arguments}) + "\n")
        self.process.stdin.flush()
        return number

    def outcome(self, number: str, seconds: float) -> dict[str, Any]:
        """What came of a job: {"value": ...} or {"error": type, "message": ...}."""

        def found() -> Any:
            if self.process.poll() is not None:
                raise AssertionError(f"The driver has ended. {self.last_words()}")
            lines = self._results.read_text().splitlines() if self._results.exists() else []
            return next((told for told in map(json.loads, lines) if told["id"] == number), None)

        return wait_until(found, seconds, self.last_words)

    def result(self, number: str, seconds: float = 120.0) -> Any:
        """The value of a job, which has not failed."""
        told = self.outcome(number, seconds)
        assert "error" not in told, f"{told['error']}: {told['message']}\n{self.last_words()}"
        return told["value"]

    def run(self, job: str, seconds: float = 120.0, **arguments: Any) -> Any:
        """Have a job done, and give its value."""
        return self.result(self.start(job, **arguments), seconds)

    def last_words(self) -> str:
        """The end of what it printed."""
        return f"{self.log}:\n{self.log.read_text()[-4000:] if self.log.exists() else ''}"

    def stop(self) -> None:
        """End the application."""
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
