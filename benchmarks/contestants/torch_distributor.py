"""PySpark's TorchDistributor in the CIFAR-10 benchmark: a process for each core, which agree by DDP over gloo."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.distributed as dist
from contestants import tutorial
from contestants.serve import Spec, Taker, Turn
from contestants.torch_peer import Tutorial, augmented, cross_entropy, make_step
from contestants.torch_workers import fits, joined, timed
from contestants.tutorial import BATCH, SEED
from torch.nn.parallel import DistributedDataParallel


def fit(spec: Spec) -> Taker:
    """Fits of so many steps by TorchDistributor."""
    return fits(spec, train)


def train(folder: str, steps: int) -> Turn:
    """What each process does."""
    with joined() as (rank, world):
        images, labels = tutorial.read_rows(Path(folder), "train", steps * BATCH)
        batches = tutorial.shuffled(images, labels)
        model = Tutorial(tutorial.read_weights(Path(folder)))
        together = DistributedDataParallel(model, gradient_as_bucket_view=True)
        advance = make_step(model, lambda x, labels: cross_entropy(together, x, labels))
        generator = torch.Generator().manual_seed(SEED + rank)

        def once() -> torch.Tensor:
            images, labels = (part[rank::world] for part in next(batches))
            return advance(augmented(images, generator), torch.from_numpy(labels).long(), tutorial.STEP_SIZE)

        seconds, mean = timed(once, steps, warm_up=3)
        dist.all_reduce(mean)
    return {"seconds": seconds, "steps": steps, "loss": float(mean) / world}
