"""What the environment of a process that trains says: threads, platform, visible devices, memory."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from sparkdl.spark.tasks.local_disk import programs_directory

if TYPE_CHECKING:
    from pyspark import BarrierTaskContext

TUNABLES = "GLIBC_TUNABLES"  # which glibc reads as a program starts
# A program takes its memory anew in every step: in pages of 2 MiB a CNN's step in whole batches takes a quarter less
# time, one in parts a few percent. So does each of Spark's batches, of up to 64 MiB: if what is free is kept, transform
# of dense Vectors takes a tenth less processor time.
MEMORY = ":".join(
    ["glibc.malloc.hugetlb=1", *(f"glibc.malloc.{name}_threshold={256 << 20}" for name in ("mmap", "trim"))]
)


def bound_threads() -> None:
    """Have XLA, and the decoding of images, take as many threads here as the task has CPUs; before JAX's first use."""
    from pyspark import TaskContext

    if context := TaskContext.get():
        os.environ.setdefault("PJRT_NPROC", str(context.cpus()))


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
        TUNABLES: os.environ.get(TUNABLES, MEMORY),
    }
    folder = programs_directory()
    if folder and "JAX_COMPILATION_CACHE_DIR" not in os.environ:  # compiled programs, for as long as the session lives
        environment["JAX_COMPILATION_CACHE_DIR"] = folder
        environment["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    if environment["JAX_PLATFORMS"] == "cuda":
        rank = context.partitionId()
        below = hosts[:rank].count(hosts[rank])  # workers of lower rank on this machine
        address = resource.addresses[0] if resource else str(below)
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
        # Spark counts the GPUs that its executor sees, which may be some of the machine's.
        narrowed = visible != [""] and address.isdigit() and int(address) < len(visible)
        environment["CUDA_VISIBLE_DEVICES"] = visible[int(address)] if narrowed else address
    return environment
