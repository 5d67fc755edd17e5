"""What the environment of a process that trains says: threads, platform, visible devices, memory."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from sparkdl.spark.tasks.local_disk import programs_directory

if TYPE_CHECKING:
    from pyspark import BarrierTaskContext

TUNABLES = "GLIBC_TUNABLES"  # which glibc reads as a program starts
GPUS = "CUDA_VISIBLE_DEVICES"  # which CUDA reads before its first use


def _tunables(kept: int) -> list[str]:
    """For pages of 2 MiB where the system has them, and so many free bytes kept, of allocations up to that size."""
    return ["glibc.malloc.hugetlb=1", *(f"glibc.malloc.{name}_threshold={kept}" for name in ("mmap", "trim"))]


# A Python worker of Spark takes its memory anew for each batch, of up to 64 MiB: transform of dense Vectors takes a
# tenth less processor time if what is free is kept.
MEMORY = ":".join(_tunables(256 << 20))
# A process that trains takes in every step what it took in the last, a GB for ResNet-18 and 64 rows, which the system
# fills with zeros each time: so it keeps all, in its first arena, which alone may be that large. ResNet-18's step takes
# 0.93 of the time, and 0.7 where there are no pages of 2 MiB.
TRAINING_MEMORY = ":".join(["glibc.malloc.arena_max=1", *_tunables(1 << 40)])


def bound_threads() -> None:
    """Have XLA, and the decoding of images, take as many threads here as the task has CPUs; before JAX's first use."""
    from pyspark import TaskContext

    if context := TaskContext.get():
        os.environ.setdefault("PJRT_NPROC", str(context.cpus()))


def training_memory() -> str:
    """What `GLIBC_TUNABLES` is to say to a process that trains: what a user has it say, if anything."""
    return TRAINING_MEMORY if os.environ.get(TUNABLES, MEMORY) == MEMORY else os.environ[TUNABLES]


def worker_environment(context: BarrierTaskContext, device: str, hosts: list[str]) -> dict[str, str]:
    """Variables for the process that trains for a task, which it needs before JAX starts.

    Parameters
    ----------
    context : pyspark.BarrierTaskContext
    device : str
        "auto", "cpu" or "gpu".
    hosts : list of str
        Of every worker, in the order of ranks.
    """
    resource = context.resources().get("gpu")
    environment = {
        "PJRT_NPROC": str(context.cpus()),
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "JAX_PLATFORMS": "cuda" if device == "gpu" or (device == "auto" and resource) else "cpu",
        TUNABLES: training_memory(),
    }
    folder = programs_directory()
    if folder and "JAX_COMPILATION_CACHE_DIR" not in os.environ:  # compiled programs, for as long as the session lives
        environment["JAX_COMPILATION_CACHE_DIR"] = folder
        environment["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    if environment["JAX_PLATFORMS"] == "cuda":
        rank = context.partitionId()
        below = hosts[:rank].count(hosts[rank])  # workers of lower rank on this machine
        environment[GPUS] = visible_gpu(resource.addresses[0] if resource else str(below))
    return environment


def visible_gpu(address: str) -> str:
    """What `GPUS` is for the one GPU of this address: Spark counts those that its executor sees, maybe not all."""
    visible = os.environ.get(GPUS, "").split(",")
    narrowed = visible != [""] and address.isdigit() and int(address) < len(visible)
    return visible[int(address)] if narrowed else address
