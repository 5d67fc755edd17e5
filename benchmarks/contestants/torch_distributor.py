"""PySpark's TorchDistributor in the CIFAR-10 benchmark: a process for each core, which agree by DDP over gloo."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from contestants import tutorial
from contestants.serve import Spec, Taker, Turn
from contestants.torch_peer import Tutorial, augmented, cross_entropy, make_step
from contestants.tutorial import BATCH, SEED
from pyspark.ml.torch.distributor import TorchDistributor
from torch.nn.parallel import DistributedDataParallel

from sparkdl.spark import local_session

WARM_UP = 3  # steps before the clock starts


def fit(spec: Spec) -> Taker:
    """Each turn starts the processes anew, as TorchDistributor does; its seconds are those of the steps alone."""
    workers = len(spec.cores)
    local_session(f"local[{workers}]", "sparkdl-benchmark")
    distributor = TorchDistributor(num_processes=workers, local_mode=True, use_gpu=False)

    def take(steps: int) -> Turn:
        started = time.perf_counter()
        result: Any = distributor.run(train, spec.folder, steps)
        return result | {"wall": time.perf_counter() - started}

    return take


def train(folder: str, steps: int) -> Turn:
    """What each process does."""
    threading.Thread(target=end_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    images, labels = tutorial.read_rows(Path(folder), "train", steps * BATCH)
    batches = tutorial.shuffled(images, labels)
    model = Tutorial(tutorial.read_weights(Path(folder)))
    together = DistributedDataParallel(model, gradient_as_bucket_view=True)
    advance = make_step(model, lambda x, labels: cross_entropy(together, x, labels))
    generator = torch.Generator().manual_seed(SEED + rank)

    def once() -> torch.Tensor:
        images, labels = (part[rank::world] for part in next(batches))
        return advance(augmented(images, generator), torch.from_numpy(labels).long(), tutorial.STEP_SIZE)

    for _ in range(WARM_UP):
        once()
    dist.barrier()
    started = time.perf_counter()
    mean = torch.stack([once() for _ in range(steps)]).mean()
    dist.barrier()
    seconds = time.perf_counter() - started
    dist.all_reduce(mean)
    dist.destroy_process_group()
    return {"seconds": seconds, "steps": steps, "loss": float(mean) / world}


def end_with_parent() -> None:
    """End this process when torchrun, which gives it a session of its own, is killed."""
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)
