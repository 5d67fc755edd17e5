"""PyTorch's side of the benchmark of residual networks: the step, eager or compiled, and TorchDistributor's fit."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from pathlib import Path

import torch
from contestants.network_cases import STEP_SIZE, network_of, read_batches, read_weights, taker
from contestants.resnet_torch import module
from contestants.serve import Spec, Taker, Turn
from contestants.torch_workers import fits, joined, timed
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

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
    return taker(advance, batches, time.perf_counter() - started)


def fit(spec: Spec) -> Taker:
    """Fits of so many steps by TorchDistributor."""
    return fits(spec, train, spec.settings["case"])


def train(folder: str, case: str, steps: int) -> Turn:
    """What each process does: its part of every batch, with batch statistics of its own, as DDP has them."""
    with joined() as (rank, world):
        model = model_of(case, Path(folder))
        advance = make_step(model, DistributedDataParallel(model, gradient_as_bucket_view=True))
        own = [tuple(part[rank::world] for part in batch) for batch in tensors(case, Path(folder))]
        batches = itertools.cycle(own)
        seconds, mean = timed(lambda: advance(*next(batches)), steps, warm_up=2)
    return {"seconds": seconds, "steps": steps, "loss": float(mean)}


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
