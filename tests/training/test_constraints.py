"""Constraints hold after every step, whoever takes it; weight decay leaves alone what it is told to."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sparkdl import Graph, Network, training
from sparkdl.constraints import Constraint, MaxNorm, MinMaxNorm, NonNegative, UnitNorm
from sparkdl.layers import Conv, ConvTranspose, Dense, Embedding, Flatten, KernelLayer, LocallyConnected, Relu
from sparkdl.training.exchanges.all_reduce import AllReduce
from sparkdl.training.exchanges.averaging import ParameterAveraging
from sparkdl.training.exchanges.sharded import ShardedAllReduce

pytestmark = pytest.mark.usefixtures("unoptimized")

RANDOM = np.random.default_rng(2)
ROWS = RANDOM.normal(size=(96, 6)).astype("float32"), RANDOM.integers(0, 3, 96)


@pytest.mark.parametrize(
    ("constraint", "expected"),
    [
        (MaxNorm(1.5), lambda rows, norms: rows * np.minimum(1, 1.5 / norms)),
        (MinMaxNorm(3.0, 3.5), lambda rows, norms: rows * np.clip(norms, 3.0, 3.5) / norms),
        (UnitNorm(), lambda rows, norms: rows / norms),
        (NonNegative(), lambda rows, norms: np.maximum(rows, 0)),
    ],
    ids=["max norm", "norm between", "unit norm", "non-negative"],
)
def test_the_nearest_weights_are_taken(constraint: Constraint, expected: Any, float64: None) -> None:
    kernel = RANDOM.normal(size=(3, 4, 5))
    norms = np.linalg.norm(kernel.reshape(12, 5), axis=0)
    projected = constraint.project(jnp.asarray(kernel), (0, 1))
    np.testing.assert_allclose(projected, expected(kernel, norms), rtol=1e-13)
    np.testing.assert_allclose(constraint.project(projected, (0, 1)), projected, rtol=1e-13)
    np.testing.assert_array_equal(constraint.project(jnp.zeros((3, 4)), (0,)), np.zeros((3, 4)))


def test_a_rate_goes_a_part_of_the_way_to_the_bounds(float64: None) -> None:
    array = np.array([[3.0, 0.3, 0.6, 0.0], [4.0, 0.4, 0.8, 0.0]])  # of lengths 5, 0.5, 1 and 0
    projected = MinMaxNorm(0.9, 2.0, rate=0.25).project(jnp.asarray(array), (0,))
    lengths = np.array([0.75 * 5 + 0.25 * 2, 0.75 * 0.5 + 0.25 * 0.9, 1, 0])
    np.testing.assert_allclose(projected, lengths * [[0.6, 0.6, 0.6, 0], [0.8, 0.8, 0.8, 0]], rtol=1e-13)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MinMaxNorm(2.0, 1.0), "least of MinMaxNorm must be at most its most, 1.0, received 2.0"),
        (lambda: MinMaxNorm(-1.0), "least of MinMaxNorm"),
        (lambda: MinMaxNorm(rate=0.0), r"rate of MinMaxNorm must be a number in \(0, 1\], received 0.0"),
    ],
)
def test_bounds_are_checked(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("layer", "shape", "axes"),
    [
        (Dense(4, constraint="unit_norm"), (3,), (0,)),
        (Conv(4, (2, 2), constraint="unit_norm"), (3, 3, 2), (0, 1, 2)),
        (ConvTranspose(4, (2, 2), constraint="unit_norm"), (3, 3, 2), (0, 1, 3)),
        (LocallyConnected(4, 2, constraint="unit_norm"), (3, 2), (1,)),
    ],
    ids=str,
)
def test_a_vector_leads_to_one_output(layer: KernelLayer, shape: Any, axes: Any, float64: None) -> None:
    weights = layer.init(jax.random.key(0), shape)
    held = layer.constrained(weights)
    np.testing.assert_allclose(np.linalg.norm(np.sqrt((held["kernel"] ** 2).sum(axis=axes)) - 1), 0, atol=1e-6)
    np.testing.assert_array_equal(held["bias"], weights["bias"])
    frozen = type(layer).from_json(layer.to_json() | {"trainable": False})
    assert isinstance(frozen, KernelLayer)
    np.testing.assert_array_equal(frozen.constrained(weights)["kernel"], weights["kernel"])


@pytest.mark.parametrize("exchange", [AllReduce(), ShardedAllReduce(), ParameterAveraging(2)], ids=repr)
@pytest.mark.parametrize("devices", [1, 3])
def test_they_hold_after_training(exchange: Any, devices: int) -> None:
    layers = [Dense(8, constraint=MaxNorm(0.5)), Relu(), Dense(3, constraint="non_negative")]
    given: dict[str, Any] = {"optimizer": "momentum", "step_size": 0.1, "epochs": 3, "batch_size": 24}
    result = training.fit(Network(layers, input_shape=(6,)), ROWS, exchange=exchange, devices=devices, **given)
    norms = np.linalg.norm(np.asarray(result.weights["dense_0"]["kernel"]), axis=0)
    assert norms.max() <= 0.5 * (1 + 1e-6) and (norms > 0.499).any()
    last = np.asarray(result.weights["dense_2"]["kernel"])
    assert last.min() == 0 < last.max()


def test_within_graphs_and_of_tables_too() -> None:
    network = Graph(
        {"who": ()}, {"table": (Embedding(5, 4, constraint="unit_norm"), "who"), "y": (Dense(2), "table")}, "y"
    )
    ids = RANDOM.integers(0, 5, 80).astype("int32")
    result = training.fit(network, ({"who": ids}, ids % 2), step_size=0.5, epochs=2, batch_size=20)
    np.testing.assert_allclose(np.linalg.norm(np.asarray(result.weights["table"]["table"]), axis=1), 1, rtol=1e-6)


def test_what_is_not_trained_cannot_be_spared_from_decay() -> None:
    network = Network([Flatten(), Dense(3)], input_shape=(6,))
    given: dict[str, Any] = {"epochs": 1, "batch_size": 24}
    with pytest.raises(ValueError, match="no_decay of AdamW names 'biases', .* there are bias, dense_1, .*kernel"):
        training.fit(network, ROWS, optimizer={"type": "AdamW", "no_decay": ["biases"]}, **given)
    result = training.fit(network, ROWS, optimizer={"type": "AdamW", "no_decay": ["bias"]}, **given)
    assert result.history
