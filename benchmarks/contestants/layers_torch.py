"""The layers in PyTorch on the same arrays as ours: its functionals, channels last, and its autograd."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from sparkdl.layers import BatchNorm, Conv, Dense, GlobalAvgPool, Layer, LocalResponseNorm, MaxPool, Relu
from sparkdl.layers.windows import Windows

Tensor = torch.Tensor
Arrays = dict[str, np.ndarray[Any, Any]]


def limit(threads: int) -> None:
    """Keep PyTorch to so many threads."""
    torch.set_num_threads(threads)


def product(factors: np.ndarray[Any, Any]) -> Callable[[], Any]:
    """A call of the product of two matrices, (2, size, size)."""
    left, right = torch.from_numpy(factors)
    return lambda: left @ right


def kernels(
    layer: Layer, weights: Arrays, x: np.ndarray[Any, Any], dy: np.ndarray[Any, Any]
) -> dict[str, Callable[[], Any]]:
    """Calls of the forward pass, of dL/dx alone and, if the layer has weights, of dL/dweights alone.

    Forward runs as in training, where it keeps what the other two need; each call of those starts from what was kept.
    """
    rows, above = channels_first(x).requires_grad_(), channels_first(dy)
    tensors = {name: parameter(value) for name, value in weights.items()}
    learned = [tensors[name].requires_grad_() for name in layer.learned(weights)]
    run = FUNCTIONALS[type(layer)](layer, tensors, x.shape[1:-1])
    y = run(rows)
    calls: dict[str, Callable[[], Any]] = {
        "forward": lambda: run(rows),
        "delta": lambda: torch.autograd.grad(y, rows, above, retain_graph=True)[0],
    }
    if learned:  # autograd leaves out what is not asked for, so this is the gradient alone
        calls["gradient"] = lambda: torch.autograd.grad(y, learned, above, retain_graph=True)
    return calls


def channels_first(array: np.ndarray[Any, Any]) -> Tensor:
    """A tensor around the array's memory; images become (batch, channels, height, width), stored channels last."""
    tensor = torch.from_numpy(array)
    return tensor.permute(0, 3, 1, 2) if tensor.ndim == 4 else tensor


def channels_last(tensor: Tensor) -> np.ndarray[Any, Any]:
    """The array of `channels_first`."""
    tensor = tensor.detach()
    return (tensor.permute(0, 2, 3, 1) if tensor.ndim == 4 else tensor).numpy()


def parameter(array: np.ndarray[Any, Any]) -> Tensor:
    """A kernel (height, width, inputs, filters) as (filters, inputs, height, width), a dense one transposed."""
    tensor = torch.from_numpy(array)
    if tensor.ndim == 4:
        return tensor.permute(3, 2, 0, 1).contiguous(memory_format=torch.channels_last)
    return tensor.T.contiguous() if tensor.ndim == 2 else tensor.clone()


Forward = Callable[[Tensor], Tensor]
Spatial = tuple[int, ...]


def conv(layer: Conv, weights: dict[str, Tensor], spatial: Spatial) -> Forward:
    """conv2d; PyTorch pads both sides alike."""
    windows = Windows.over(spatial, layer.size, layer.strides, layer.padding)
    padding = [low for low, _ in windows.padding]
    return lambda x: F.conv2d(x, weights["kernel"], weights.get("bias"), windows.strides, padding)


def dense(layer: Dense, weights: dict[str, Tensor], spatial: Spatial) -> Forward:
    """linear."""
    return lambda x: F.linear(x, weights["kernel"], weights.get("bias"))


def max_pool(layer: MaxPool, weights: dict[str, Tensor], spatial: Spatial) -> Forward:
    """max_pool2d; its ceil_mode is the odd position of "same" padding, which comes at the end."""
    windows = Windows.over(spatial, layer.size, layer.strides or layer.size, layer.padding)
    padding = [low for low, _ in windows.padding]
    ceil_mode = any(high > low for low, high in windows.padding)
    return lambda x: F.max_pool2d(x, windows.size, windows.strides, padding, ceil_mode=ceil_mode)


def local_response_norm(layer: LocalResponseNorm, weights: dict[str, Tensor], spatial: Spatial) -> Forward:
    """local_response_norm, which divides alpha by the size of its window."""
    size = 2 * layer.radius + 1
    return lambda x: F.local_response_norm(x, size, layer.alpha * size, layer.beta, layer.bias)


def batch_norm(layer: BatchNorm, weights: dict[str, Tensor], spatial: Spatial) -> Forward:
    """batch_norm with the statistics of the batch; PyTorch's momentum is the new batch's share."""
    mean, variance, scale, bias = (weights[name] for name in ("mean", "variance", "scale", "bias"))
    return lambda x: F.batch_norm(x, mean, variance, scale, bias, True, 1 - layer.momentum, layer.epsilon)


def relu(layer: Relu, weights: dict[str, Tensor], spatial: Spatial) -> Forward:
    """relu."""
    return F.relu


def global_avg_pool(layer: GlobalAvgPool, weights: dict[str, Tensor], spatial: Spatial) -> Forward:
    """adaptive_avg_pool2d to a single position."""
    return lambda x: F.adaptive_avg_pool2d(x, 1).flatten(1)


FUNCTIONALS: dict[type[Layer], Callable[[Any, dict[str, Tensor], Spatial], Forward]] = {
    BatchNorm: batch_norm,
    Conv: conv,
    Dense: dense,
    GlobalAvgPool: global_avg_pool,
    LocalResponseNorm: local_response_norm,
    MaxPool: max_pool,
    Relu: relu,
}
