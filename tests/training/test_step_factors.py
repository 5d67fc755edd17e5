"""Layers whose steps are longer or shorter than others': by how much, whatever takes the steps."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest
from row_cases import rows_of, trained

from sparkdl import Network, optimizers, training
from sparkdl.layers import BatchNorm, Dense, Embedding, Flatten, Tanh
from sparkdl.optimizers import LBFGS, SGD, Adam, AdamW, Momentum, Optimizer
from sparkdl.schedules import StepDecay
from sparkdl.training import AllReduce, Exchange, ParameterAveraging, ShardedAllReduce, ThresholdSharing, Training
from sparkdl.training.step.factors import with_factors
from sparkdl.weights import named_arrays

pytestmark = pytest.mark.usefixtures("unoptimized")

RANDOM = np.random.default_rng(8)
X, Y = RANDOM.normal(size=(12, 3)), RANDOM.normal(size=12)
CHAIN = Network([Dense(4), Tanh(), Network([Dense(3), Tanh()]), Dense(1, l2=0.1)], input_shape=(3,))
FACTORS = {"dense": 2.0, "network_2": 0.1, "network_2/dense_0/bias": 0.5, "dense_3": 0.0}
OF_ARRAYS = {
    "dense_0/kernel": 2.0,
    "dense_0/bias": 2.0,
    "network_2/dense_0/kernel": 0.1,
    "network_2/dense_0/bias": 0.5,
    "dense_3/kernel": 0.0,
    "dense_3/bias": 0.0,
}
KINDS = [kind for kind in vars(optimizers).values() if isinstance(kind, type) and issubclass(kind, Optimizer)]


def test_they_are_parameter_groups_of_pytorch() -> None:
    """Of AdamW, whose decay is part of the step; the learning rate falls on the way."""
    torch = pytest.importorskip("torch")
    start = jax.tree.map(np.asarray, CHAIN.init(0))
    options: dict[str, Any] = {"loss": "squared_error", "batch_size": 12, "epochs": 5, "dtype": "float64"}
    rule = AdamW(weight_decay=0.1, schedule=StepDecay(2, 0.5))
    result = training.fit(CHAIN, (X, Y), optimizer=rule, step_size=0.05, step_factors=FACTORS, initial=start, **options)
    tensors = {path: torch.tensor(np.float64(array), requires_grad=True) for path, array in named_arrays(start)}
    groups = [{"params": [tensor], "lr": 0.05 * OF_ARRAYS[path]} for path, tensor in tensors.items()]
    peer = torch.optim.AdamW(groups, weight_decay=0.1)
    falling = torch.optim.lr_scheduler.StepLR(peer, 2, 0.5)
    for _ in range(5):
        y = torch.tensor(X)
        for layer in ("dense_0", "network_2/dense_0", "dense_3"):
            y = y @ tensors[f"{layer}/kernel"] + tensors[f"{layer}/bias"]
            y = torch.tanh(y) if layer != "dense_3" else y
        loss = ((y[:, 0] - torch.tensor(Y)) ** 2).mean() + 0.05 * (tensors["dense_3/kernel"] ** 2).sum()
        peer.zero_grad()
        loss.backward()
        peer.step()
        falling.step()
    for path, array in named_arrays(result.weights):
        np.testing.assert_allclose(array, tensors[path].detach().numpy(), rtol=1e-9, atol=1e-12, err_msg=path)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if not kind.__subclasses__() and kind is not LBFGS])
def test_every_rule_s_step_is_scaled_and_its_state_is_not(kind: type[Optimizer], float64: None) -> None:
    weights = jax.tree.map(np.asarray, CHAIN.init(1))
    plain = kind(weight_decay=0.1, clip_norm=1.0).transformation(0.1, 9, 3)
    gradient = jax.tree.map(lambda array: RANDOM.normal(size=array.shape), weights)
    changes, state = plain.update(gradient, plain.init(weights), weights)
    scaled, same = with_factors(plain, FACTORS).update(gradient, plain.init(weights), weights)
    for (path, change), (_, whole) in zip(named_arrays(scaled), named_arrays(changes), strict=True):
        np.testing.assert_allclose(change, OF_ARRAYS[path] * whole, rtol=1e-12, err_msg=path)
    jax.tree.map(np.testing.assert_array_equal, same, state)


def moved(plan: Training, rows: Any, shares: tuple[int, ...]) -> dict[str, Any]:
    """What the first step adds to each array."""
    start = dict(named_arrays(trained(replace(plan, epochs=0), rows, shares).weights))
    return {name: array - start[name] for name, array in named_arrays(trained(plan, rows, shares).weights)}


@pytest.mark.parametrize(
    ("optimizer", "exchange"),
    [
        (SGD(), AllReduce()),
        (Adam(lazy=True), AllReduce()),
        (Momentum(weight_decay=0.1), ShardedAllReduce()),
        (Adam(), ParameterAveraging(1)),
        (SGD(), ThresholdSharing()),
    ],
    ids=lambda spec: type(spec).__name__,
)
def test_tables_and_kernels_move_by_as_much_under_every_exchange(optimizer: Optimizer, exchange: Exchange) -> None:
    network = Network([Embedding(40, 3), Flatten(), Dense(2)], input_shape=(2,))
    rows = rows_of(RANDOM.integers(0, 40, (8, 2)).astype("int32"), RANDOM.integers(0, 2, 8), np.ones(8))
    plan = Training(network, optimizer=optimizer, exchange=exchange, epochs=1, batch_size=8, dtype="float64")
    whole, part = moved(plan, rows, (5, 3)), moved(replace(plan, step_factors={"embedding_0": 0.25}), rows, (5, 3))
    for path, change in part.items():
        factor = 0.25 if path.startswith("embedding") else 1
        np.testing.assert_allclose(change, factor * whole[path], rtol=1e-9, atol=1e-15, err_msg=path)
    assert np.abs(part["embedding_0/table"]).max() > 0


def test_statistics_go_on_where_steps_are_0() -> None:
    network = Network([BatchNorm(), Dense(1)], input_shape=(3,))
    result = training.fit(network, (X, Y), loss="squared_error", epochs=1, step_factors={"batch_norm_0": 0})
    np.testing.assert_array_equal(result.weights["batch_norm_0"]["scale"], np.ones(3))
    assert np.abs(result.weights["batch_norm_0"]["mean"]).max() > 0


def test_they_are_part_of_the_json_of_a_run() -> None:
    plan = Training(CHAIN, loss="squared_error", step_factors=FACTORS)
    assert Training.from_json(json.dumps(plan.to_json())) == plan


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"dense_0": -0.1},
            "step_factors must be a dict of finite numbers of at least 0, by name of a layer, received",
        ),
        ({"dense_0": float("inf")}, "step_factors must be a dict"),
        ({"dense_0": True}, "step_factors must be a dict"),
        (0.1, "step_factors must be a dict"),
        ({"dense_1": 0.1}, "step_factors names 'dense_1', which stands for no layer .*; nearest are dense_3, dense_0"),
        ({"tanh_1": 0.1}, "step_factors names 'tanh_1'"),
    ],
)
def test_what_is_no_factor_of_a_layer_is_refused(given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Training(CHAIN, loss="squared_error", step_factors=given)


def test_layers_that_are_frozen_have_no_factor() -> None:
    with pytest.raises(ValueError, match="step_factors names 'dense_0', which stands for no layer that trains weights"):
        Training(CHAIN.frozen("dense_0"), loss="squared_error", step_factors={"dense_0": 0.5})
