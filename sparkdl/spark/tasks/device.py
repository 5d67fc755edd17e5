"""Which device and threads a task scores rows with, as Spark has given them to it."""

from __future__ import annotations

import jax
from pyspark import TaskContext

from sparkdl.spark.tasks.environment import bound_threads
from sparkdl.spark.tasks.local_disk import programs_directory


def prepare_device(device: str) -> None:
    """Choose threads, platform and a folder for compiled programs; in effect only before JAX's first use here."""
    context = TaskContext.get()
    if context is None:
        return
    bound_threads()
    if device == "cpu" or (device == "auto" and "gpu" not in context.resources()):
        jax.config.update("jax_platforms", "cpu")
    # Spark ends workers that wait for a minute; the next one finds its programs on Spark's disk, beside those of fits.
    folder = programs_directory()
    if folder and getattr(jax.config, "jax_compilation_cache_dir", None) is None:
        jax.config.update("jax_compilation_cache_dir", folder)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
