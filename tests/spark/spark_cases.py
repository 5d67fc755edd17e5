"""Rows, a network, and its training in plain NumPy: what several tests of the Spark floor share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pyarrow as pa

from sparkdl import DeepClassificationModel, Network
from sparkdl.layers import Dense, Rescale, Tanh
from sparkdl.weights import named_arrays, nested_weights

Array = np.ndarray[Any, Any]
Remains = Callable[[float], list[str]]  # see the fixture `remains`

# An environment variable for sessions whose workers compile for longer than they compute, as JAX's own tests have it.
UNOPTIMIZED = ("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
# Whole numbers in 0..255, so that every type of features column can hold them.
FEATURES = np.random.default_rng(11).integers(0, 256, (24, 4))
LABELS = (FEATURES[:, 0] + FEATURES[:, 1] > FEATURES[:, 2] + FEATURES[:, 3]).astype(int)
LAYERS = [Rescale(1 / 255), Dense(5), Tanh(), Dense(2)]
NETWORK = Network(LAYERS, input_shape=(4,))
FROZEN = Network(LAYERS, input_shape=(4,), trainable=False)


def table(features: Array = FEATURES, labels: Array = LABELS, **columns: Any) -> pa.Table:
    """An Arrow table of features (list<double>), label and id, and of further columns."""
    parts = {"features": features.astype(float).tolist(), "label": labels, "id": np.arange(len(labels))}
    return pa.table(parts | columns)


def arrays(model: Any) -> dict[str, Array]:
    """A model's weights by path."""
    return dict(named_arrays(model.weights))


def same_bits(one: dict[str, Array], other: dict[str, Array]) -> bool:
    """Whether weights are equal in names, dtypes, shapes and every bit."""
    described = [{name: (a.dtype, a.shape, a.tobytes()) for name, a in each.items()} for each in (one, other)]
    return described[0] == described[1]


def assert_close(actual: dict[str, Array], expected: dict[str, Array], tolerance: float) -> None:
    """Equal names, and values to within `tolerance` of the largest in their array."""
    assert actual.keys() == expected.keys()
    for name, array in actual.items():
        np.testing.assert_allclose(array, expected[name], rtol=0, atol=tolerance * np.abs(expected[name]).max())


def initial(network: Network, seed: int, dtype: str) -> dict[str, Array]:
    """The network's initial weights; those of either float type are draws of their own."""
    with jax.enable_x64(dtype == "float64"):
        return {name: np.asarray(array) for name, array in named_arrays(network.init(seed))}


def a_model(kind: Any = DeepClassificationModel, network: Network = NETWORK, **params: Any) -> Any:
    """A model of random weights, as training would have made it."""
    weights = nested_weights(initial(network, 3, params.get("computeDtype", "float32")))
    return kind(weights).setParams(**({"network": network, "loss": "softmax_cross_entropy", "batchSize": 8} | params))


def outputs(weights: dict[str, Array], features: Array) -> Array:
    """NETWORK's outputs by NumPy in float64."""
    hidden = np.tanh(features / 255 @ weights["dense_1/kernel"].astype(float) + weights["dense_1/bias"])
    return hidden @ weights["dense_3/kernel"].astype(float) + weights["dense_3/bias"]


def centred(scores: Array) -> Array:
    """Rows shifted to add up to 0."""
    return scores - scores.mean(axis=1, keepdims=True)


def softmax(scores: Array) -> Array:
    """Rows that add up to 1."""
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def descended(
    weights: dict[str, Array], features: Array, labels: Array, step_size: float, steps: int
) -> tuple[dict[str, Array], list[float]]:
    """NETWORK after steps of gradient descent on the mean cross-entropy of all rows, and that mean before each."""
    weights, losses = {name: array.astype(float) for name, array in weights.items()}, []
    for _ in range(steps):
        x = features / 255
        hidden = np.tanh(x @ weights["dense_1/kernel"] + weights["dense_1/bias"])
        chances = softmax(hidden @ weights["dense_3/kernel"] + weights["dense_3/bias"])
        losses.append(float(-np.log(chances[np.arange(len(labels)), labels]).mean()))
        slope = (chances - np.eye(2)[labels]) / len(labels)
        slope_below = slope @ weights["dense_3/kernel"].T * (1 - hidden**2)
        gradient = {
            "dense_1/kernel": x.T @ slope_below,
            "dense_1/bias": slope_below.sum(axis=0),
            "dense_3/kernel": hidden.T @ slope,
            "dense_3/bias": slope.sum(axis=0),
        }
        weights = {name: array - step_size * gradient[name] for name, array in weights.items()}
    return weights, losses
