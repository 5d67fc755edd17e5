"""PyTorch's transformer blocks with the weights of ours."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from sparkdl import Network
from sparkdl.layers import Gelu, TransformerEncoder

Array = np.ndarray[Any, Any]


def module(network: Network, weights: dict[str, Any]) -> torch.nn.Sequential:
    """The blocks of a network of TransformerEncoders, in the order of theirs."""
    return torch.nn.Sequential(
        *(_block(layer, weights[name]) for name, layer in zip(network.names, network.layers, strict=True))
    )


def _block(layer: Any, weights: dict[str, Any]) -> torch.nn.TransformerEncoderLayer:
    assert isinstance(layer, TransformerEncoder) and layer.activation == Gelu()
    size = weights["attention_norm"]["scale"].size
    peer = torch.nn.TransformerEncoderLayer(
        size, layer.heads, layer.feed_forward, 0.0, "gelu", layer.epsilon, batch_first=True, norm_first=layer.norm_first
    )
    attention, dense = weights["attention"], weights["feed_forward"]
    parts = [attention[name] for name in ("query", "key", "value")]
    values = {
        "self_attn.in_proj_weight": np.concatenate([part["kernel"].reshape(size, -1).T for part in parts]),
        "self_attn.in_proj_bias": np.concatenate([part["bias"].reshape(-1) for part in parts]),
        "self_attn.out_proj.weight": attention["output"]["kernel"].reshape(-1, size).T,
        "self_attn.out_proj.bias": attention["output"]["bias"],
    }
    for theirs, ours in (("linear1", dense["inner"]), ("linear2", dense["outer"])):
        values |= {f"{theirs}.weight": ours["kernel"].T, f"{theirs}.bias": ours["bias"]}
    for theirs, ours in (("norm1", weights["attention_norm"]), ("norm2", weights["feed_forward_norm"])):
        values |= {f"{theirs}.weight": ours["scale"], f"{theirs}.bias": ours["bias"]}
    peer.load_state_dict({name: torch.from_numpy(np.array(value)) for name, value in values.items()})
    return peer
