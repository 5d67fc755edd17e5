"""The same networks in PyTorch, translated layer by layer, and PyTorch's own training step of them."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import torch
from contestants.resnet_steps import STEP_SIZE, WARM_UP, Case, Contestant, rows
from torch import nn

from sparkdl.layers import (
    AvgPool,
    BatchNorm,
    Concatenate,
    Conv,
    Dense,
    DepthwiseConv,
    Dropout,
    Flatten,
    GlobalAvgPool,
    Layer,
    LeakyRelu,
    LocalResponseNorm,
    MaxPool,
    Parallel,
    Relu,
    Relu6,
    Residual,
    Tanh,
)
from sparkdl.layers.base import Shape, Weights
from sparkdl.layers.chain import Chain
from sparkdl.layers.windows import Windows

Step = Callable[[torch.Tensor, torch.Tensor], None]


class Sum(nn.Module):
    """Of a body and a shortcut."""

    def __init__(self, body: nn.Module, shortcut: nn.Module) -> None:
        super().__init__()
        self.body, self.shortcut = body, shortcut

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, channels, height, width)."""
        return self.body(x) + self.shortcut(x)


class Beside(nn.ModuleList):
    """What modules that all read x put out, their channels one after another."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, channels of all, height, width)."""
        return torch.cat([branch(x) for branch in self], 1)


class ChannelsLast(nn.Module):
    """(batch, channels, height, width) as flat rows in sparkdl's order; no copy if memory is in that order too."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, height * width * channels)."""
        return x.permute(0, 2, 3, 1).flatten(1)


def module(layer: Layer, weights: Weights, input_shape: Shape) -> nn.Module:
    """The layer, or network, as a PyTorch module with the same weights; rows are (channels, height, width).

    Raises
    ------
    ValueError
        A layer has no counterpart here.
    """
    if isinstance(layer, Chain):
        shapes = layer.shapes(input_shape)
        parts = zip(layer.names, layer.layers, shapes[:-1], strict=True)
        return nn.Sequential(*(module(inner, weights.get(name, {}), shape) for name, inner, shape in parts))
    if isinstance(layer, Residual):
        sides = {child.name: child.layer for child in layer.children}
        body, shortcut = (
            module(sides[name], weights.get(name, {}), input_shape) if name in sides else nn.Identity()
            for name in ("body", "shortcut")
        )
        return Sum(body, shortcut)
    if isinstance(layer, Parallel) and isinstance(layer.merge, Concatenate):
        branches = zip(layer.children, layer.branches, strict=False)
        return Beside(module(branch, weights.get(child.name, {}), input_shape) for child, branch in branches)
    if isinstance(layer, Relu):
        return nn.ReLU()
    if isinstance(layer, Tanh):
        return nn.Tanh()
    if isinstance(layer, LeakyRelu):
        return nn.LeakyReLU(layer.slope)
    if isinstance(layer, AvgPool):
        return nn.AvgPool2d(layer.size, layer.strides)
    if isinstance(layer, Relu6):
        return nn.ReLU6()
    if isinstance(layer, Dropout):
        return nn.Dropout(layer.rate)
    if isinstance(layer, Flatten):
        return ChannelsLast()
    if isinstance(layer, GlobalAvgPool):
        return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    if isinstance(layer, LocalResponseNorm):
        size = 2 * layer.radius + 1  # by which PyTorch divides alpha
        return nn.LocalResponseNorm(size, layer.alpha * size, layer.beta, layer.bias)
    if isinstance(layer, MaxPool):
        return _max_pool(layer, input_shape)
    values = {name: torch.tensor(np.asarray(value)) for name, value in weights.items()}
    result: nn.Module
    if isinstance(layer, BatchNorm):
        result = nn.BatchNorm2d(input_shape[-1], layer.epsilon, 1 - layer.momentum)
        state = {"weight": "scale", "bias": "bias", "running_mean": "mean", "running_var": "variance"}
        result.load_state_dict({theirs: values[ours] for theirs, ours in state.items()}, strict=False)
        return result
    if isinstance(layer, Dense):
        kernel = values["kernel"].T
        result = nn.Linear(input_shape[0], layer.units, bias=layer.bias)
    elif isinstance(layer, Conv | DepthwiseConv):
        kernel = values["kernel"].permute(3, 2, 0, 1)
        windows = Windows.over(input_shape[:-1], layer.size, layer.strides, layer.padding)
        (above, below), (left, right) = windows.padding
        assert (above, left) == (below, right)
        place = (windows.size, windows.strides, (above, left))
        channels = input_shape[-1]
        filters, groups = (layer.filters, layer.groups) if isinstance(layer, Conv) else (len(kernel), channels)
        result = nn.Conv2d(channels, filters, *place, groups=groups, bias=layer.bias)
    else:
        raise ValueError(f"A layer must have a counterpart in PyTorch, received {layer!r}; add it to resnet_torch.py.")
    result.load_state_dict({"weight": kernel} | ({"bias": values["bias"]} if layer.bias else {}))
    return result


def _max_pool(layer: MaxPool, input_shape: Shape) -> nn.Module:
    windows = Windows.over(input_shape[:-1], layer.size, layer.strides or layer.size, layer.padding)
    (low, high), *_ = windows.padding
    return nn.MaxPool2d(windows.size, windows.strides, low, ceil_mode=low < high)  # one more at the end, as "same" does


def torch_step(model: nn.Module, device: str, step_size: float, dtype: str, compiled: bool) -> Step:
    """`step(images, classes)`: one step of SGD on NHWC images, mixed precision by autocast.

    Compiled for a GPU, it replays CUDA graphs, as XLA's programs do.
    """
    optimizer = torch.optim.SGD(model.parameters(), step_size, fused=True)

    def mean_loss(images: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        with torch.autocast(device, torch.bfloat16, enabled=dtype == "bfloat16"):
            return nn.functional.cross_entropy(model(images.permute(0, 3, 1, 2)), classes)

    if compiled:
        mean_loss = torch.compile(mean_loss, mode="reduce-overhead" if device == "cuda" else "default")

    def step(images: torch.Tensor, classes: torch.Tensor) -> None:
        optimizer.zero_grad(set_to_none=True)
        mean_loss(images, classes).backward()
        optimizer.step()

    return step


def torch_contestant(case: Case, eager: bool) -> Contestant:
    """PyTorch's step of the case, compiled unless `eager` is asked for or compiling fails, which is then printed."""
    device = "cuda" if torch.cuda.is_available() and case.devices[0].platform == "gpu" else "cpu"
    torch.compiler.reset()  # of what it holds of cases before this one
    if device == "cuda":
        torch.set_float32_matmul_precision("high")  # TF32 products as by default in JAX; convolutions have it already
        torch.backends.cudnn.benchmark = True
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    images, classes = rows(case)
    placed = torch.tensor(images, device=device), torch.tensor(classes, device=device, dtype=torch.int64)
    weights = case.network.init(0)

    def attempt(compiled: bool) -> tuple[Step, float]:
        assert case.network.input_shape is not None
        model = module(case.network, weights, case.network.input_shape)
        model = model.to(device, memory_format=torch.channels_last).train()
        step = torch_step(model, device, STEP_SIZE, case.dtype, compiled)
        started = time.perf_counter()
        for _ in range(1 + WARM_UP):
            step(*placed)
        wait()
        return step, time.perf_counter() - started

    def wait() -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    name = "PyTorch, eager" if eager else "torch.compile"
    try:
        step, first_s = attempt(not eager)
    except Exception as error:
        if eager:
            raise
        print(f"torch.compile failed, eager PyTorch takes its place: {str(error).strip().splitlines()[0]}")
        name = "PyTorch, eager"
        step, first_s = attempt(False)

    def run(steps: int) -> None:
        for _ in range(steps):
            step(*placed)
        wait()

    memory = torch.cuda.max_memory_allocated() if device == "cuda" else None
    return Contestant(name, run, first_s, memory, None)
