"""Which device and threads a task scores rows with, as Spark has given them to it."""

from __future__ import annotations

import os

import jax
from pyspark import TaskContext

from sparkdl.spark.tasks.environment import GPUS, bound_threads, visible_gpu
from sparkdl.spark.tasks.local_disk import programs_directory


def prepare_device(device: str) -> None:
    """Choose threads, platform and a folder for compiled programs; in effect only before JAX's first use here."""
    context = TaskContext.get()
    if context is None:
        return
    bound_threads()
    gpu = context.resources().get("gpu")
    if device == "cpu" or (device == "auto" and gpu is None):
        jax.config.update("jax_platforms", "cpu")
    elif gpu is not None:
        os.environ[GPUS] = visible_gpu(gpu.addresses[0])
    # Spark ends workers that wait for a minute; the next one finds its programs on Spark's disk, beside those of fits.
    folder = programs_directory()
    if folder and getattr(jax.config, "jax_compilation_cache_dir", None) is None:
        jax.config.update("jax_compilation_cache_dir", folder)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
