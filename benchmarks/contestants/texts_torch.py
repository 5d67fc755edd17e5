"""The networks of texts in PyTorch, from the weights of ours, and a training loop over rows of any length."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sparkdl import Network
from sparkdl.layers import SinusoidalPositions
from sparkdl.layers.base import Weights

Rows = Sequence[np.ndarray[Any, Any]]


class Transformer(nn.Module):
    """`models.transformer_classifier`, of ids padded to one length."""

    def __init__(self, network: Network, weights: Weights) -> None:
        super().__init__()
        own = dict(zip(network.names, network.layers, strict=True))
        table, _, dropout, *blocks, norm, _, dense = network.names
        self.table = nn.Embedding.from_pretrained(_tensor(weights[table]["table"]), freeze=False)
        self.positions, self.dropout = SinusoidalPositions(), nn.Dropout(own[dropout].rate)
        size = self.table.embedding_dim
        self.blocks = nn.ModuleList()
        for name in blocks:
            layer = own[name]
            given: dict[str, Any] = {"activation": "gelu", "layer_norm_eps": layer.epsilon, "batch_first": True}
            block = nn.TransformerEncoderLayer(
                size, layer.heads, layer.feed_forward, layer.dropout, norm_first=layer.norm_first, **given
            )
            _set_block(block, weights[name])
            self.blocks.append(block)
        self.norm = nn.LayerNorm(size, own[norm].epsilon)
        _set(self.norm, _tensor(weights[norm]["scale"]), weights[norm]["bias"])
        self.dense = _linear(weights[dense])

    def forward(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """(batch, classes) of (batch, steps) and (batch,)."""
        padding = torch.arange(ids.shape[1])[None] >= lengths[:, None]
        x = self.table(ids)
        x = self.dropout(x + _tensor(self.positions.vectors({}, np.zeros((1, *x.shape[1:]), np.float32))))
        for block in self.blocks:
            x = block(x, src_key_padding_mask=padding)
        x = self.norm(x).masked_fill(padding[..., None], 0)
        return self.dense(x.sum(dim=1) / lengths[:, None])

    def constrain(self) -> None:
        """Nothing bounds its weights."""


class TextCnn(nn.Module):
    """`models.text_cnn`, of ids padded to one length, each at least one step."""

    def __init__(self, network: Network, weights: Weights) -> None:
        super().__init__()
        table, parallel, dropout, dense = network.names
        own = dict(zip(network.names, network.layers, strict=True))
        self.table = nn.Embedding.from_pretrained(_tensor(weights[table]["table"]), freeze=False)
        self.unknown, self.unknown_rate = own[table].rows, own[table].unknown_rate
        self.convolutions = nn.ModuleList()
        for branch in weights[parallel].values():
            kernel = _tensor(branch["conv_0"]["kernel"]).permute(2, 1, 0)  # filters, channels, size
            convolution = nn.Conv1d(kernel.shape[1], kernel.shape[0], kernel.shape[2])
            _set(convolution, kernel, branch["conv_0"]["bias"])
            self.convolutions.append(convolution)
        self.dropout, self.dense = nn.Dropout(own[dropout].rate), _linear(weights[dense])
        self.limit = own[dense].constraint.limit

    def forward(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """(batch, classes) of (batch, steps) and (batch,)."""
        valid = (torch.arange(ids.shape[1])[None] < lengths[:, None])[:, None]
        if self.training:
            ids = ids.masked_fill(torch.rand(ids.shape) < self.unknown_rate, self.unknown)
        x = self.table(ids).swapaxes(1, 2) * valid
        found = []
        for convolution in self.convolutions:
            wide = convolution.kernel_size[0] - 1
            y = convolution(nn.functional.pad(x, (wide // 2, wide - wide // 2)))
            found.append((torch.relu(y) * valid).amax(dim=2))  # no relu gives less than the zeros of padding
        return self.dense(self.dropout(torch.cat(found, dim=1)))

    def constrain(self) -> None:
        """Shorten what leads to an output, where it is longer than the limit."""
        with torch.no_grad():
            self.dense.weight.copy_(torch.renorm(self.dense.weight, 2, 0, self.limit))


def train(
    model: Transformer | TextCnn, rows: Rows, labels: Sequence[int], *, epochs: int, batch: int, step: float, seed: int
) -> None:
    """Adam with a step size that falls by half a cosine, in shuffled batches.

    Parameters
    ----------
    model : Transformer or TextCnn
    rows : sequence of arrays (steps,) of int
    labels : sequence of int
    epochs, batch, seed : int
    step : float
        The size of the first step.
    """
    torch.manual_seed(seed)
    torch.set_num_threads(1)  # more take longer on networks this small
    count, classes = len(rows), torch.tensor(labels)
    optimizer = torch.optim.Adam(model.parameters(), step)
    falling = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * math.ceil(count / batch))
    model.train()
    for _ in range(epochs):
        for chosen in torch.randperm(count).split(batch):
            optimizer.zero_grad()
            scores = model(*padded([rows[row] for row in chosen]))
            nn.functional.cross_entropy(scores, classes[chosen]).backward()
            optimizer.step()
            model.constrain()
            falling.step()
    model.eval()


def scored(model: Transformer | TextCnn, rows: Rows, batch: int = 256) -> np.ndarray[Any, Any]:
    """The scores (n, classes) of rows."""
    with torch.no_grad():
        parts = [model(*padded(rows[first : first + batch])) for first in range(0, len(rows), batch)]
    return torch.cat(parts).numpy()


def padded(rows: Rows) -> tuple[Tensor, Tensor]:
    """The rows (n, steps), with zeros behind the shorter ones, and their lengths (n,)."""
    ids = nn.utils.rnn.pad_sequence([torch.from_numpy(np.asarray(row, np.int64)) for row in rows], batch_first=True)
    return ids, torch.tensor([len(row) for row in rows])


def _set_block(block: nn.TransformerEncoderLayer, weights: Weights) -> None:
    attention, size = weights["attention"], block.linear1.in_features
    parts = [attention[name] for name in ("query", "key", "value")]
    with torch.no_grad():
        kernels = [_tensor(part["kernel"]).reshape(size, size).T for part in parts]
        block.self_attn.in_proj_weight.copy_(torch.cat(kernels))
        block.self_attn.in_proj_bias.copy_(torch.cat([_tensor(part["bias"]).reshape(-1) for part in parts]))
    output = attention["output"]
    _set(block.self_attn.out_proj, _tensor(output["kernel"]).reshape(size, size).T, output["bias"])
    for linear, name in ((block.linear1, "inner"), (block.linear2, "outer")):
        own = weights["feed_forward"][name]
        _set(linear, _tensor(own["kernel"]).T, own["bias"])
    for norm, name in ((block.norm1, "attention_norm"), (block.norm2, "feed_forward_norm")):
        _set(norm, _tensor(weights[name]["scale"]), weights[name]["bias"])


def _linear(weights: Weights) -> nn.Linear:
    linear = nn.Linear(*weights["kernel"].shape)
    _set(linear, _tensor(weights["kernel"]).T, weights["bias"])
    return linear


def _set(module: Any, weight: Tensor, bias: Any) -> None:
    with torch.no_grad():
        module.weight.copy_(weight)
        module.bias.copy_(_tensor(bias))


def _tensor(array: Any) -> Tensor:
    return torch.from_numpy(np.array(array, np.float32))
