"""Processes that PySpark's TorchDistributor starts for a fit: a turn of theirs, their group, and their steps' time."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from contestants.serve import Spec, Taker, Turn
from pyspark.ml.torch.distributor import TorchDistributor

from sparkdl.spark import local_session


def fits(spec: Spec, train: Callable[..., Turn], *given: Any) -> Taker:
    """Turns of `train(folder, *given, steps)` in a process for each core.

    Each turn starts the processes anew, as TorchDistributor does; its seconds are those of the steps alone.
    """
    workers = len(spec.cores)
    local_session(f"local[{workers}]", "sparkdl-benchmark")
    distributor = TorchDistributor(num_processes=workers, local_mode=True, use_gpu=False)

    def take(steps: int) -> Turn:
        started = time.perf_counter()
        result: Any = distributor.run(train, spec.folder, *given, steps)
        return result | {"wall": time.perf_counter() - started}

    return take


@contextmanager
def joined() -> Iterator[tuple[int, int]]:
    """This process as one of a gloo group, on one thread: its rank, and how many they are."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    yield dist.get_rank(), dist.get_world_size()
    dist.destroy_process_group()


def timed(once: Callable[[], torch.Tensor], steps: int, warm_up: int) -> tuple[float, torch.Tensor]:
    """Seconds that all workers take for so many steps after warming up, and this one's mean loss."""
    for _ in range(warm_up):
        once()
    dist.barrier()
    started = time.perf_counter()
    mean = torch.stack([once() for _ in range(steps)]).mean()
    dist.barrier()
    return time.perf_counter() - started, mean


def _end_with_parent() -> None:
    """End this process when torchrun, which gives it a session of its own, is killed."""
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)
