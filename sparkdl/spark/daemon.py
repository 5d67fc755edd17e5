"""Spark's daemon of Python workers, which forks them with all loaded that sparkdl's tasks import.

For sessions whose setting `spark.python.daemon.module` names this module, as those of `local_session` do. JAX's
backends start in the workers, as a fork would break them; the threads of NumPy and Arrow know how to outlive one.
"""

from __future__ import annotations

import gc

from pyspark.daemon import manager

import sparkdl.spark.measuring
import sparkdl.spark.task  # noqa: F401

if __name__ == "__main__":
    gc.freeze()  # its pages stay shared
    manager()
