"""PyTorch's side of the CIFAR-10 benchmark: the tutorial's network by PyTorch's own functions, channels last."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from contestants import tutorial
from contestants.serve import Spec, Taker, Turn
from contestants.tutorial import BATCH, CROP, DECAY, DECAYED, SEED, SIDE
from torch import Tensor

WIDTH = 2 * tutorial.RADIUS + 1  # channels that a channel is normalised over


class Tutorial(torch.nn.Module):
    """The network, from images (n, 3, CROP, CROP) to scores (n, 10), with the weights given by our names."""

    def __init__(self, weights: Mapping[str, tutorial.Array]) -> None:
        super().__init__()
        self.conv_1, self.conv_2 = torch.nn.Conv2d(3, 64, 5, padding=2), torch.nn.Conv2d(64, 64, 5, padding=2)
        self.dense_1, self.dense_2 = torch.nn.Linear(36 * 64, 384), torch.nn.Linear(384, 192)
        self.dense_3 = torch.nn.Linear(192, 10)
        axes = {4: (3, 2, 0, 1), 2: (1, 0), 1: (0,)}
        with torch.no_grad():
            for name, parameter in self.named_weights().items():
                parameter.copy_(torch.from_numpy(weights[name].transpose(axes[weights[name].ndim]).copy()))
        self.to(memory_format=torch.channels_last)

    def named_weights(self) -> dict[str, torch.nn.Parameter]:
        """The parameters by our names."""
        return {name.replace(".weight", "/kernel").replace(".bias", "/bias"): p for name, p in self.named_parameters()}

    def forward(self, x: Tensor) -> Tensor:
        """Scores."""
        x = _lrn(F.max_pool2d(F.relu(self.conv_1(x)), 3, 2, ceil_mode=True))
        x = F.max_pool2d(_lrn(F.relu(self.conv_2(x))), 3, 2, ceil_mode=True)
        x = x.permute(0, 2, 3, 1).flatten(1)  # as the weights expect it; channels last, this copies nothing
        return self.dense_3(F.relu(self.dense_2(F.relu(self.dense_1(x)))))


def optimizer(model: Tutorial) -> torch.optim.Optimizer:
    """SGD whose weight decay is the gradient of the objective's penalty."""
    weights = model.named_weights()
    decayed = [weights.pop(name) for name in DECAYED]
    groups: list[dict[str, Any]] = [{"params": decayed, "weight_decay": DECAY}, {"params": list(weights.values())}]
    return torch.optim.SGD(groups, lr=tutorial.STEP_SIZE, fused=True)


def cross_entropy(model: torch.nn.Module, x: Tensor, labels: Tensor) -> Tensor:
    """Its mean over the rows."""
    return F.cross_entropy(model(x), labels)


def penalty(model: Tutorial) -> Tensor:
    """What the decay adds to the objective."""
    weights = model.named_weights()
    with torch.no_grad():
        return DECAY / 2 * torch.stack([weights[name].square().sum() for name in DECAYED]).sum()


def channels_last(x: tutorial.Array) -> Tensor:
    """Images (n, height, width, 3) as PyTorch takes them, (n, 3, height, width), without a copy."""
    return torch.from_numpy(x).permute(0, 3, 1, 2)


def augmented(images: tutorial.Array, generator: torch.Generator) -> Tensor:
    """Random crops, flips, brightness and contrast of uint8 images (n, SIDE, SIDE, 3)."""
    rows = len(images)

    def draw(low: float, high: float) -> Tensor:
        return torch.empty(rows, 1, 1, 1).uniform_(low, high, generator=generator)

    corner = torch.randint(0, SIDE - CROP + 1, (rows, 2, 1), generator=generator)
    mirrored = torch.randint(0, 2, (rows, 1), generator=generator) > 0
    along = torch.arange(CROP)
    down, across = corner[:, 0] + along, corner[:, 1] + torch.where(mirrored, CROP - 1 - along, along)
    chosen = torch.from_numpy(images)[torch.arange(rows)[:, None, None], down[:, :, None], across[:, None, :]]
    x = chosen.float() + draw(-tutorial.MAX_DELTA, tutorial.MAX_DELTA)
    mean = x.mean(dim=(1, 2), keepdim=True)
    x = (x - mean) * draw(*tutorial.CONTRAST) + mean
    variance, mean = torch.var_mean(x, dim=(1, 2, 3), correction=0, keepdim=True)
    return ((x - mean) * variance.clamp_min(1 / x[0].numel()).rsqrt()).permute(0, 3, 1, 2)


def make_step(model: Tutorial, loss: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    """`step(x, labels, rate) -> objective`; `loss` is the cross-entropy by the model, however it is wrapped."""
    descent = optimizer(model)

    def step(x: Tensor, labels: Tensor, rate: float) -> Tensor:
        for group in descent.param_groups:
            group["lr"] = rate
        value = penalty(model)
        descent.zero_grad(set_to_none=True)
        mean = loss(x, labels)
        mean.backward()
        descent.step()
        return mean.detach() + value

    return step


def step(spec: Spec) -> Taker:
    """Training steps on one prepared batch; the setting `compiled` compiles them with torch.compile."""
    images, labels = tutorial.read_rows(Path(spec.folder), "train", BATCH)
    batch = channels_last(tutorial.centred(images)), torch.from_numpy(labels).long()
    model = _model(spec)

    def loss(x: Tensor, labels: Tensor) -> Tensor:
        return cross_entropy(model, x, labels)

    advance = make_step(model, torch.compile(loss) if spec.settings["compiled"] else loss)
    return _taker(lambda: advance(*batch, tutorial.STEP_SIZE))


def fit(spec: Spec) -> Taker:
    """Training steps on shuffled batches from memory, with augmentation."""
    batches = tutorial.shuffled(*tutorial.read_rows(Path(spec.folder), "train", spec.steps * BATCH))
    model = _model(spec)
    generator = torch.Generator().manual_seed(SEED)
    advance = make_step(model, lambda x, labels: cross_entropy(model, x, labels))

    def once() -> Tensor:
        images, labels = next(batches)
        return advance(augmented(images, generator), torch.from_numpy(labels).long(), tutorial.STEP_SIZE)

    return _taker(once)


def learn(spec: Spec) -> Taker:
    """Training on the batches that ours has left, of as many whole epochs as hold the steps."""
    folder = Path(spec.folder)
    (images, labels), (test, truth) = (tutorial.read_lesson(folder, split, spec.steps) for split in ("train", "test"))

    def take(steps: int) -> Turn:
        model = _model(spec)
        generator = torch.Generator().manual_seed(SEED)
        advance = make_step(model, lambda x, labels: cross_entropy(model, x, labels))
        number, history, started = 0, [], time.perf_counter()
        for epoch, batches in enumerate(tutorial.read_order(folder, steps)):
            total = torch.zeros(())
            for chosen in batches:
                classes = torch.from_numpy(labels[chosen]).long()
                total += len(chosen) * advance(augmented(images[chosen], generator), classes, tutorial.step_size(epoch))
                number += 1
            history.append(float(total) / len(labels))
        seconds = time.perf_counter() - started
        with torch.no_grad():
            parts = np.array_split(tutorial.centred(test), 20)
            found = torch.cat([model(channels_last(part)).argmax(dim=1) for part in parts]).numpy()
        return tutorial.lesson(seconds, number, history, float(np.mean(found == truth)))

    return take


def _model(spec: Spec) -> Tutorial:
    torch.set_num_threads(len(spec.cores))
    return Tutorial(tutorial.read_weights(Path(spec.folder)))


def _taker(once: Callable[[], Tensor]) -> Taker:
    """What takes turns of such steps, warmed up."""

    def take(steps: int) -> Turn:
        started = time.perf_counter()
        loss = float(torch.stack([once() for _ in range(steps)]).mean())
        return {"seconds": time.perf_counter() - started, "steps": steps, "loss": loss}

    take(2)
    return take


def _lrn(x: Tensor) -> Tensor:
    """PyTorch's own, which divides alpha by the number of channels."""
    return F.local_response_norm(x, WIDTH, WIDTH * tutorial.ALPHA, tutorial.BETA, tutorial.BIAS)
