"""PyTorch's recurrent layers with the weights of ours, and calls of any layer of it: forward and a training step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from sparkdl.layers import Gru, Lstm
from sparkdl.layers.recurrent import Recurrent

Array = np.ndarray[Any, Any]
KINDS: dict[type[Recurrent], type[torch.nn.RNNBase]] = {Lstm: torch.nn.LSTM, Gru: torch.nn.GRU}
NAMES = {"kernel": "weight_ih_l0", "recurrent": "weight_hh_l0", "bias": "bias_ih_l0", "recurrent_bias": "bias_hh_l0"}


def limit(threads: int) -> None:
    """Keep PyTorch to so many threads."""
    torch.set_num_threads(threads)


def module(layer: Recurrent, weights: dict[str, Array]) -> torch.nn.RNNBase:
    """PyTorch's layer with the weights of ours; its LSTM's second bias, which ours lacks, is zeros."""
    peer = KINDS[type(layer)](weights["kernel"].shape[0], layer.units, batch_first=True)
    with torch.no_grad():
        peer.bias_hh_l0.zero_()
        for name, array in weights.items():
            getattr(peer, NAMES[name]).copy_(torch.from_numpy(in_its_order(layer, array)))
    return peer


def in_its_order(layer: Recurrent, array: Array) -> Array:
    """Columns of ours as rows of PyTorch's, whose GRU has the reset gate before the update gate."""
    if isinstance(layer, Gru):
        update, reset, candidate = np.split(array, 3, axis=-1)
        array = np.concatenate([reset, update, candidate], axis=-1)
    return np.ascontiguousarray(array.T)


def kernels(peer: torch.nn.Module, x: Array, dy: Array, compiled: bool) -> dict[str, Callable[[], Any]]:
    """Calls of forward, as at inference, and of `train`: y, dL/dx and dL/dweights; eager or compiled."""
    learned = list(peer.parameters())
    run = torch.compile(peer) if compiled else peer
    rows, above = torch.from_numpy(x), torch.from_numpy(dy)
    varied = torch.from_numpy(x).requires_grad_()

    def y_of(x: torch.Tensor) -> torch.Tensor:
        given = run(x)
        return given[0] if isinstance(given, tuple) else given  # an RNN gives its last state, too

    def forward() -> Any:
        peer.eval()
        with torch.no_grad():
            return y_of(rows)

    def train() -> Any:
        peer.train()
        y = y_of(varied)
        return y.detach(), torch.autograd.grad(y, [varied, *learned], above)

    return {"forward": forward, "train": train}
