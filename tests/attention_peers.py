"""PyTorch's attention in float64, with its weights as ours, and slopes by its autograd: what tests compare with."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sparkdl.layers import Ragged


def drawn(module: Any, seed: int) -> Any:
    """The module in float64, with weights drawn anew, so that none are zeros or ones, as biases are at first."""
    import torch

    random = np.random.default_rng(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.from_numpy(random.normal(size=tuple(parameter.shape)) * 0.4))
    return module.double()


def attention_weights(module: Any, gradient: bool = False) -> dict[str, Any]:
    """Of a `MultiheadAttention`, or what autograd left for them, as those of MultiHeadAttention."""
    heads, inputs = module.num_heads, module.embed_dim
    size = inputs // heads

    def array(parameter: Any) -> np.ndarray:
        return (parameter.grad if gradient else parameter.detach()).numpy().copy()

    packed, own = module.in_proj_weight is not None, {}
    biases = np.split(array(module.in_proj_bias), 3)
    for index, name in enumerate(("query", "key", "value")):
        part = (
            np.split(array(module.in_proj_weight), 3)[index]
            if packed
            else array(getattr(module, f"{name[0]}_proj_weight"))
        )
        own[name] = {"kernel": part.T.reshape(-1, heads, size), "bias": biases[index].reshape(heads, size)}
    kernel = array(module.out_proj.weight).T.reshape(heads, size, inputs)
    return own | {"output": {"kernel": kernel, "bias": array(module.out_proj.bias)}}


def block_weights(module: Any, gradient: bool = False) -> dict[str, Any]:
    """Of a `TransformerEncoderLayer` or `TransformerDecoderLayer`, as those of TransformerEncoder or -Decoder."""

    def array(parameter: Any) -> np.ndarray:
        return (parameter.grad if gradient else parameter.detach()).numpy().copy()

    def dense(linear: Any) -> dict[str, Any]:
        return {"kernel": array(linear.weight).T, "bias": array(linear.bias)}

    names = ["attention", *(["cross_attention"] if hasattr(module, "multihead_attn") else []), "feed_forward"]
    norms = (getattr(module, f"norm{index}") for index in range(1, len(names) + 1))
    weights: dict[str, Any] = {
        f"{name}_norm": {"scale": array(norm.weight), "bias": array(norm.bias)}
        for name, norm in zip(names, norms, strict=True)
    }
    weights["attention"] = attention_weights(module.self_attn, gradient)
    if "cross_attention" in names:
        weights["cross_attention"] = attention_weights(module.multihead_attn, gradient)
    return weights | {"feed_forward": {"inner": dense(module.linear1), "outer": dense(module.linear2)}}


def padding(values: np.ndarray, lengths: Any) -> Any:
    """What PyTorch calls `key_padding_mask`."""
    import torch

    return torch.from_numpy(np.arange(values.shape[1])[None] >= np.asarray(lengths)[:, None])


def ragged(values: np.ndarray, lengths: Any) -> Ragged:
    return Ragged(jnp.asarray(values), jnp.asarray(lengths, "int32"))


def valid(values: np.ndarray, lengths: Any) -> np.ndarray:
    """The array with zeros in the padding."""
    return np.where((np.arange(values.shape[1])[None] < np.asarray(lengths)[:, None])[..., None], values, 0)


def assert_close(actual: Any, expected: Any, tolerance: float = 1e-12) -> None:
    """Equal structure, and arrays equal to within `tolerance`."""
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=0, atol=tolerance), actual, expected)
