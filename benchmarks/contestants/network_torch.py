"""PyTorch's side of the benchmark of residual networks: the step, eager or compiled, and TorchDistributor's fit."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from contestants.network_cases import STEP_SIZE, network_of, read_batches, read_weights
from contestants.resnet_torch import module
from contestants.serve import Spec, Taker, Turn
from contestants.torch_distributor import end_with_parent
from pyspark.ml.torch.distributor import TorchDistributor
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from sparkdl.spark import local_session

WARM_UP = 2  # steps before the clock starts

Batches = list[tuple[Tensor, Tensor]]


def step(spec: Spec) -> Taker:
    """Training steps on prepared batches, channels last; the setting `compiled` compiles them with torch.compile."""
    torch.set_num_threads(len(spec.cores))
    case, folder = spec.settings["case"], Path(spec.folder)
    model, batches = model_of(case, folder), itertools.cycle(tensors(case, folder))
    started = time.perf_counter()
    advance = make_step(model, torch.compile(model) if spec.settings["compiled"] else model)
    if spec.settings["compiled"]:
        state = {name: value.clone() for name, value in model.state_dict().items()}
        advance(*next(batches))
        model.load_state_dict(state)
        batches = itertools.cycle(tensors(case, folder))
    compile_s = time.perf_counter() - started

    def take(steps: int) -> Turn:
        started = time.perf_counter()
        losses = [float(advance(*next(batches))) for _ in range(steps)]
        seconds = time.perf_counter() - started
        return {"seconds": seconds, "steps": steps, "loss": losses[-1], "losses": losses, "compile": compile_s}

    return take


def fit(spec: Spec) -> Taker:
    """Each turn starts the processes anew, as TorchDistributor does; its seconds are those of the steps alone."""
    workers = len(spec.cores)
    local_session(f"local[{workers}]", "sparkdl-benchmark")
    distributor = TorchDistributor(num_processes=workers, local_mode=True, use_gpu=False)

    def take(steps: int) -> Turn:
        started = time.perf_counter()
        result: Any = distributor.run(train, spec.folder, spec.settings["case"], steps)
        return result | {"wall": time.perf_counter() - started}

    return take


def train(folder: str, case: str, steps: int) -> Turn:
    """What each process does: its part of every batch, with batch statistics of its own, as DDP has them."""
    threading.Thread(target=end_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = model_of(case, Path(folder))
    advance = make_step(model, DistributedDataParallel(model, gradient_as_bucket_view=True))
    own = [tuple(part[rank::world] for part in batch) for batch in tensors(case, Path(folder))]
    batches = itertools.cycle(own)
    for _ in range(WARM_UP):
        advance(*next(batches))
    dist.barrier()
    started = time.perf_counter()
    losses = [float(advance(*next(batches))) for _ in range(steps)]
    dist.barrier()
    seconds = time.perf_counter() - started
    dist.destroy_process_group()
    return {"seconds": seconds, "steps": steps, "loss": float(np.mean(losses))}


def model_of(case: str, folder: Path) -> torch.nn.Module:
    """The case's network in training, channels last, with the initial weights."""
    network = network_of(case)
    assert network.input_shape is not None
    model = module(network, read_weights(folder, case), network.input_shape)
    return model.to(memory_format=torch.channels_last).train()


def tensors(case: str, folder: Path) -> Batches:
    """The batches; images are (rows, channels, height, width) in channels-last memory."""
    return [
        (torch.from_numpy(images).permute(0, 3, 1, 2), torch.from_numpy(labels).long())
        for images, labels in read_batches(folder, case)
    ]


def make_step(model: torch.nn.Module, forward: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """`step(images, classes) -> loss`: one step of SGD; `forward` is the model, however it is wrapped."""
    optimizer = torch.optim.SGD(model.parameters(), STEP_SIZE, fused=True)

    def step(images: Tensor, classes: Tensor) -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = cross_entropy(forward(images), classes)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step
