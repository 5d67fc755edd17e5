"""Networks of tables and series in PyTorch: graphs translated node by node, with the same weights, and how to train."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sparkdl import Graph
from sparkdl.layers import (
    Add,
    Concatenate,
    Dense,
    Dropout,
    Embedding,
    Flatten,
    HashedEmbedding,
    L2Normalize,
    LastStep,
    Layer,
    Lstm,
    Normalization,
    Parallel,
    Relu,
    RepeatStep,
    RepeatVector,
    Scale,
    Stack,
    Subset,
    Subtract,
)
from sparkdl.layers.base import Weights
from sparkdl.layers.chain import Chain

Array = np.ndarray[Any, Any]
MERGES: dict[type[Layer], Callable[..., Tensor]] = {
    Concatenate: lambda *parts: torch.cat(parts, dim=1),
    Add: lambda *parts: torch.stack(parts).sum(dim=0),
    RepeatStep: lambda row, like: row[:, None].expand(-1, like.shape[1], -1),
    Stack: lambda *parts: torch.stack(parts, dim=1),
    Subtract: lambda one, other: one - other,
}


class Table(nn.Module):
    """A table of vectors whose last row is for numbers that it has not, where the layer says so."""

    def __init__(self, layer: Embedding, weights: Weights) -> None:
        super().__init__()
        self.rows, self.unknown = layer.rows, layer.unknown
        self.table = nn.Embedding.from_pretrained(_tensor(weights["table"]), freeze=False)

    def forward(self, ids: Tensor) -> Tensor:
        """(batch, size) of (batch,)."""
        return self.table(torch.where((ids < 0) | (ids >= self.rows), self.rows, ids) if self.unknown else ids)


class Normalized(nn.Module):
    """Columns of mean 0 and variance 1, by constants."""

    def __init__(self, weights: Weights) -> None:
        super().__init__()
        self.register_buffer("mean", _tensor(weights["mean"]))
        variance = _tensor(weights["variance"])
        self.register_buffer("factor", torch.where(variance > 0, variance, 1).rsqrt())

    def forward(self, x: Tensor) -> Tensor:
        """(batch, columns)."""
        return (x - self.mean) * self.factor


class UnitLength(nn.Module):
    """Rows of length 1."""

    def forward(self, x: Tensor) -> Tensor:
        """(batch, size)."""
        return nn.functional.normalize(x)


class Recurrent(nn.Module):
    """An LSTM over rows of one length."""

    def __init__(self, weights: Weights) -> None:
        super().__init__()
        inputs, units = weights["kernel"].shape[0], weights["recurrent"].shape[0]
        self.lstm = nn.LSTM(inputs, units, batch_first=True)
        with torch.no_grad():
            self.lstm.weight_ih_l0.copy_(_tensor(weights["kernel"]).T)  # of gates i, f, g and o, as ours
            self.lstm.weight_hh_l0.copy_(_tensor(weights["recurrent"]).T)
            self.lstm.bias_ih_l0.copy_(_tensor(weights["bias"]))
            self.lstm.bias_hh_l0.zero_().requires_grad_(False)  # ours has one bias

    def forward(self, x: Tensor) -> Tensor:
        """(batch, steps, units) of (batch, steps, inputs)."""
        return self.lstm(x)[0]


class Function(nn.Module):
    """What has no weights."""

    def __init__(self, compute: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.compute = compute

    def forward(self, x: Tensor) -> Tensor:
        """What the function makes of it."""
        return self.compute(x)


class Module(nn.Module):
    """A graph with one output as a module of named inputs, from the same weights.

    Raises
    ------
    ValueError
        A layer has no counterpart here.
    """

    def __init__(self, graph: Graph, weights: Weights) -> None:
        super().__init__()
        self.nodes = {name: (layer, sources) for name, (layer, *sources) in graph.nodes.items()}
        (self.output,) = graph.outputs
        learned = {name: layer for name, (layer, _) in self.nodes.items() if type(layer) not in MERGES}
        self.parts = nn.ModuleDict({name: module(layer, weights.get(name, {})) for name, layer in learned.items()})

    def forward(self, features: Mapping[str, Tensor]) -> Tensor:
        """The output's rows."""
        values = dict(features)
        for name, (layer, sources) in self.nodes.items():
            compute = MERGES[type(layer)] if type(layer) in MERGES else self.parts[name]
            values[name] = compute(*(values[source] for source in sources))
        return values[self.output]


def module(layer: Layer, weights: Weights) -> nn.Module:
    """A layer, or a row of layers, with these weights."""
    if isinstance(layer, Chain):
        parts = zip(layer.names, layer.layers, strict=True)
        return nn.Sequential(*(module(inner, weights.get(name, {})) for name, inner in parts))
    if isinstance(layer, Embedding) and not isinstance(layer, HashedEmbedding):
        return Table(layer, weights)
    if isinstance(layer, Normalization):
        return Normalized(weights)
    if isinstance(layer, Dense):
        inputs, outputs = weights["kernel"].shape
        linear = nn.Linear(inputs, outputs, bias=layer.bias)
        with torch.no_grad():
            linear.weight.copy_(_tensor(weights["kernel"]).T)
            if layer.bias:
                linear.bias.copy_(_tensor(weights["bias"]))
        return linear
    if isinstance(layer, Relu):
        return nn.ReLU()
    if isinstance(layer, Dropout):
        return nn.Dropout(layer.rate)
    if isinstance(layer, L2Normalize):
        return UnitLength()
    if isinstance(layer, Lstm):
        return Recurrent(weights)
    if isinstance(layer, LastStep):
        return Function(lambda x: x[:, -1])
    if isinstance(layer, Flatten):
        return nn.Flatten()
    if isinstance(layer, RepeatVector):
        return Function(lambda x: x[:, None].expand(-1, layer.times, *x.shape[1:]))
    if isinstance(layer, Scale) and not layer.per_channel:
        return Function(lambda x: x * layer.number)
    if isinstance(layer, Parallel) and not weights:
        branches, merge = [module(branch, {}) for branch in layer.branches], MERGES[type(layer.merge)]
        return Function(lambda x: merge(*(branch(x) for branch in branches)))
    if isinstance(layer, Subset):
        return Function(lambda x: x[..., layer.start : layer.stop])
    raise ValueError(f"There is no {type(layer).__name__} here.")


def tensors(features: Mapping[str, Array]) -> dict[str, Tensor]:
    """Features as tensors: integers to choose rows by, all else float32."""
    return {
        name: torch.from_numpy(np.asarray(part, np.int64 if part.dtype.kind in "iu" else np.float32))
        for name, part in features.items()
    }


def train(
    model: nn.Module,
    features: Mapping[str, Array],
    loss: Callable[[Tensor, Tensor], Tensor],
    labels: Array,
    *,
    epochs: int,
    batch: int,
    step_size: float,
    weight_decay: float,
    seed: int,
) -> None:
    """Adam with decoupled weight decay and a step size that falls by half a cosine, in shuffled batches.

    Parameters
    ----------
    model : Module
    features : dict of arrays (n, ...)
    loss : callable
        The mean over the rows of (outputs, labels).
    labels : array (n, ...)
    """
    torch.manual_seed(seed)
    torch.set_num_threads(1)  # more take longer on networks this small
    inputs, targets, rows = tensors(features), torch.from_numpy(labels), len(labels)
    optimizer = torch.optim.AdamW(model.parameters(), lr=step_size, weight_decay=weight_decay)
    total = epochs * math.ceil(rows / batch)
    falling = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: (1 + math.cos(math.pi * step / total)) / 2)
    model.train()
    for _ in range(epochs):
        for chosen in torch.randperm(rows).split(batch):
            optimizer.zero_grad()
            loss(model({name: part[chosen] for name, part in inputs.items()}), targets[chosen]).backward()
            optimizer.step()
            falling.step()
    model.eval()


def _tensor(array: Any) -> Tensor:
    return torch.from_numpy(np.array(array, np.float32))
