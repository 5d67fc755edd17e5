"""Which Python Spark starts for its workers: one that lacks sparkdl is named before the first job, or in its error."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

from pyspark import SparkFiles
from pyspark.sql import SparkSession

from sparkdl.spark.driver.remote import over_connect, setting

NEEDED = ("sparkdl", "pyarrow", "jax")
INSTALLED = (*NEEDED, "jaxlib", "numpy", "optax", "pandas", "pyspark")  # with sparkdl; others are the user's own
ANSWER_SECONDS = 20.0
QUESTION = (
    "import sys; from importlib.util import find_spec; "
    "print('{}.{}'.format(*sys.version_info), *(name for name in sys.argv[1:] if find_spec(name) is None))"
)
REMEDY = (
    "set PYSPARK_PYTHON, or spark.pyspark.python for spark-submit, to a Python that has sparkdl before the session "
    "starts"
)
_able: set[tuple[str, str]] = set()  # interpreters, with their paths, that have what workers need


def check_interpreter(session: SparkSession) -> None:
    """Ask the Python that Spark will start on this machine for what workers import; elsewhere nobody can look.

    Raises
    ------
    ValueError
        It lacks something, or is of another version than the driver's.
    """
    if over_connect(session) or not setting(session, "spark.master", "").startswith("local"):
        return
    context = session.sparkContext
    command, system = context.pythonExec, context._jvm.System  # type: ignore[union-attr]
    found = shutil.which(command, path=system.getenv("PATH"))
    if found is None or _same(found, sys.executable):
        return
    files = SparkFiles.getRootDirectory()
    included = [os.path.join(files, name) for name in context._python_includes or ()]
    parts = [context.environment.get("PYTHONPATH"), system.getenv("PYTHONPATH"), files, *included]
    path = os.pathsep.join(part for part in parts if part)
    if (found, path) in _able:
        return
    fault = _fault(found, path)
    if fault:
        chosen = "" if found == command else f" ({command} of PATH)"
        raise ValueError(
            f"Spark would start {found}{chosen} for its workers, which {fault}; {REMEDY}: {sys.executable}."
        )
    _able.add((found, path))


def complaint_in(text: str) -> str | None:
    """A sentence, if an exception's text is that of workers whose Python cannot do its work; None for all else."""
    remedy = f"{REMEDY}, on every machine."
    for name in re.findall(r"No module named '?(\w+)", text):
        if name in INSTALLED:
            return f"The Python that Spark starts for its workers lacks {name}; install sparkdl-jax for it, or {remedy}"
    if found := re.search(r'Cannot run program "([^"]+)"[^\n]*No such file', text):
        return f"Spark finds no {found[1]} to start for its workers; {remedy}"
    if found := re.search(r"different version: (\d+\.\d+) than that in driver:? (\d+\.\d+)", text):
        return f"The Python that Spark starts for its workers is {found[1]} where the driver's is {found[2]}; {remedy}"
    return None


def _same(one: str, other: str) -> bool:
    """Whether these are one environment's Python by two names; those of two environments may link to one file."""
    return os.path.dirname(one) == os.path.dirname(other) and os.path.realpath(one) == os.path.realpath(other)


def _fault(command: str, path: str) -> str | None:
    """What is wrong with an interpreter; None also if it does not answer."""
    try:
        answer = subprocess.run(
            [command, "-c", QUESTION, *NEEDED],
            capture_output=True,
            text=True,
            timeout=ANSWER_SECONDS,
            check=True,
            env=os.environ | {"PYTHONPATH": path},
        ).stdout.split()
    except (OSError, subprocess.SubprocessError):
        return None
    own = "{}.{}".format(*sys.version_info)
    if len(answer) > 1:
        return f"lacks {', '.join(answer[1:])}"
    return f"is Python {answer[0]} where the driver runs {own}" if answer and answer[0] != own else None
