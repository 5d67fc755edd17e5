"""Spark's daemon of Python workers, which forks them with all loaded that sparkdl's tasks import.

For sessions whose setting `spark.python.daemon.module` names this module, as those of `local_session` do. The processes
that train are forked as well, by a server that starts here. JAX's backends start in those that were forked, as a fork
would break them; the threads of NumPy and Arrow know how to outlive one.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from typing import Any

from sparkdl.spark.tasks.environment import MEMORY, TUNABLES, training_memory


def load() -> None:
    """Import what tasks need."""
    import sparkdl.spark.tasks.measuring
    import sparkdl.spark.tasks.row_scores
    import sparkdl.spark.tasks.task  # noqa: F401

    gc.freeze()  # its pages stay shared


def main() -> None:
    """Be Spark's daemon."""
    from pyspark import daemon

    from sparkdl.launch.fork_server import open_fork_server

    load()
    open_fork_server({TUNABLES: training_memory()})
    daemon.worker = _quiet(daemon.worker)
    daemon.manager()


def _quiet(worker: Callable[..., int]) -> Callable[..., int]:
    """Spark's worker, without a traceback where Spark has hung up: after the rows that `first` or `show` asks for."""

    def quiet(*arguments: Any) -> int:
        try:
            return worker(*arguments)
        except BrokenPipeError:
            return 1

    return quiet


if __name__ == "__main__":
    if TUNABLES not in os.environ:
        os.execve(sys.executable, sys.orig_argv, os.environ | {TUNABLES: MEMORY})
    main()
