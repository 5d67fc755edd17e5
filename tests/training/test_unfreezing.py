"""Layers that rest for some epochs: what a run comes to, alone or with others, undisturbed or from any checkpoint."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from row_cases import rows_of, trained

from sparkdl import Graph, Network, Same, training
from sparkdl.layers import Add, BatchNorm, Dense, Embedding, Flatten, Relu, Residual, SeparableConv, Tanh
from sparkdl.layers.base import Context
from sparkdl.optimizers import SGD, Adam, AdamW
from sparkdl.specs import Named
from sparkdl.training import (
    Checkpoints,
    Exchange,
    ParameterAveraging,
    Result,
    ShardedAllReduce,
    ThresholdSharing,
    Training,
)
from sparkdl.training.by_layer import network_at
from sparkdl.training.exchanges.threshold import Memory
from sparkdl.weights import named_arrays

pytestmark = pytest.mark.usefixtures("unoptimized")

RANDOM = np.random.default_rng(12)
X, Y = RANDOM.normal(size=(12, 3)), RANDOM.normal(size=12)
NETWORK = Network(
    [Dense(4, name="low"), BatchNorm(name="norm"), Tanh(), Dense(3, name="high"), Tanh(), Dense(1, name="head")],
    input_shape=(3,),
)
RESTS = {"low": 3, "norm": 3, "high": 1}
OPTIONS: dict[str, Any] = {"loss": "squared_error", "batch_size": 6, "epochs": 4, "step_size": 0.05, "dtype": "float64"}


def fit(network: Network = NETWORK, **options: Any) -> Result:
    return training.fit(network, (X, Y), **OPTIONS | options)


def without_norm() -> Network:
    """The same chain, whose rows know nothing of one another."""
    return Network([layer for layer in NETWORK.layers if layer.name != "norm"], input_shape=(3,))


def assert_same(one: Any, other: Any, **tolerance: float) -> None:
    for (path, array), (_, expected) in zip(named_arrays(one), named_arrays(other), strict=True):
        if tolerance:
            np.testing.assert_allclose(array, expected, **tolerance, err_msg=path)
        else:
            np.testing.assert_array_equal(array, expected, err_msg=path)


def test_phases_are_runs_with_frozen_layers_one_after_the_other() -> None:
    """Of an optimizer that keeps nothing, and of rows in one order; statistics of what rests stay, too."""
    once = fit(unfreeze_after=RESTS, shuffle=False)
    weights = None
    for frozen, epochs in ((("low", "norm", "high"), 1), (("low", "norm"), 2), ((), 1)):
        network = NETWORK.frozen(*frozen) if frozen else NETWORK
        weights = fit(network, epochs=epochs, shuffle=False, initial=weights).weights
    assert_same(once.weights, weights)
    before = fit(unfreeze_after=RESTS, shuffle=False, epochs=3).weights
    start = fit(epochs=0).weights
    assert_same(before["norm"], start["norm"])
    assert np.abs(once.weights["norm"]["mean"] - start["norm"]["mean"]).min() > 0


def test_they_are_parameter_groups_that_are_added_to_an_optimizer_of_pytorch() -> None:
    """AdamW there counts from then on; the clipped norm is of all that learn."""
    torch = pytest.importorskip("torch")
    chain, rule = without_norm(), AdamW(weight_decay=0.1, clip_norm=0.3)
    result = fit(chain, optimizer=rule, unfreeze_after={"low": 3, "high": 1}, batch_size=12)
    start = fit(chain, epochs=0).weights
    tensors = {path: torch.tensor(array, requires_grad=True) for path, array in named_arrays(start)}
    groups = [[tensor for path, tensor in tensors.items() if path.startswith(name)] for name in ("head", "high", "low")]
    peer, learning = torch.optim.AdamW(groups[0], lr=0.05, weight_decay=0.1), [*groups[0]]
    for epoch in range(4):
        for index, begins in ((1, 1), (2, 3)):
            if epoch == begins:
                peer.add_param_group({"params": groups[index]})
                learning += groups[index]
        y = torch.tensor(X)
        for layer in ("low", "high", "head"):
            y = y @ tensors[f"{layer}/kernel"] + tensors[f"{layer}/bias"]
            y = torch.tanh(y) if layer != "head" else y
        for tensor in tensors.values():
            tensor.grad = None
        ((y[:, 0] - torch.tensor(Y)) ** 2).mean().backward()
        norm = math.sqrt(sum(float((tensor.grad**2).sum()) for tensor in learning))
        for tensor in learning:
            tensor.grad *= min(1, 0.3 / norm)  # clip_grad_norm_ adds 1e-6 to the norm
        peer.step()
    assert_same(result.weights, nested(tensors), rtol=1e-8, atol=1e-11)


def nested(tensors: Any) -> Any:
    """Their arrays by layer and name."""
    found: dict[str, Any] = {}
    for path, tensor in tensors.items():
        layer, name = path.split("/")
        found.setdefault(layer, {})[name] = tensor.detach().numpy()
    return found


@pytest.mark.parametrize(
    "exchange", ["all_reduce", ShardedAllReduce(), ParameterAveraging(1, False), ThresholdSharing()], ids=str
)
def test_a_run_goes_on_from_any_checkpoint_of_any_phase(exchange: Any, tmp_path: Path) -> None:
    options = {"exchange": exchange, "devices": 2, "optimizer": Adam(), "unfreeze_after": RESTS}
    kept = Checkpoints(str(tmp_path), unit="step", keep=9)
    whole = fit(checkpoints=kept, **options)
    files = sorted(tmp_path.glob("*/*.ckpt"))
    assert len(files) == 8
    for newest in reversed(files[:-1]):
        for file in files:
            if file.name > newest.name:
                file.unlink(missing_ok=True)
        again = fit(checkpoints=replace(kept, every=99), **options)
        assert again.resumed is not None
        assert_same(again.weights, whole.weights)
        assert [epoch.loss for epoch in again.history] == [epoch.loss for epoch in whole.history]


@pytest.mark.parametrize("exchange", ["all_reduce", ShardedAllReduce(), ParameterAveraging(1)], ids=str)
def test_workers_together_come_to_what_one_does(exchange: Exchange | str) -> None:
    rows = rows_of(X, Y, np.ones(12))
    optimizer = SGD() if isinstance(exchange, ParameterAveraging) else Adam()
    options: dict[str, Any] = OPTIONS | {"batch_size": 12, "unfreeze_after": {"low": 2, "high": 1}}
    plan = Training(without_norm(), exchange=exchange, optimizer=optimizer, **options)
    assert_same(trained(plan, rows, (7, 5)).weights, trained(plan, rows, (12,)).weights, rtol=1e-9, atol=1e-12)


def test_what_threshold_sharing_has_not_told_yet_stays_with_its_weights() -> None:
    before = {"b": {"kernel": jnp.zeros((2, 2))}, "d": {"bias": jnp.zeros(1)}}
    learned = {"a": {"bias": jnp.ones(2)}, "b": {"bias": jnp.ones(1), "kernel": jnp.ones((2, 2))}, **{"d": before["d"]}}
    exchange = ThresholdSharing()
    state = exchange.init(before)._replace(residual=jnp.arange(1.0, 6), threshold=jnp.float32(0.5), step=jnp.int32(7))
    carried = exchange.carried(state, exchange.init(learned), before, learned)
    assert isinstance(carried, Memory)
    assert carried.residual.tolist() == [0, 0, 0, 1, 2, 3, 4, 5]
    assert (float(carried.threshold), int(carried.step)) == (0.5, 7)


def test_tables_that_begin_late_move_by_the_rows_that_batches_name() -> None:
    """Every batch names all rows of the table, so that resting rows are none."""
    network = Network([Embedding(4, 2), Flatten(), Dense(1, name="head")], input_shape=(6,))
    ids = np.array([RANDOM.permutation([0, 1, 2, 3, 0, 1]) for _ in range(12)], np.int32)
    options = {**OPTIONS, "unfreeze_after": {"embedding": 1}, "epochs": 3}
    lazy, whole = (training.fit(network, (ids, Y), optimizer=Adam(lazy=lazy), **options) for lazy in (True, False))
    assert_same(lazy.weights, whole.weights, rtol=1e-9, atol=1e-12)


SHARED = Graph(
    inputs={"a": (3,), "b": (3,)},
    nodes={
        "side": (Dense(3), "a"),
        "side_1": (Same("side"), "b"),
        "both": (Add(), "side", "side_1"),
        "deep": (Residual([Dense(3), Relu(), Dense(3)]), "both"),
        "y": (Dense(1), "deep"),
    },
    outputs="y",
)


@pytest.mark.parametrize(
    ("network", "rests", "learned"),
    [
        (NETWORK, {"low": 2}, {"norm", "high", "head"}),
        (NETWORK, {"low": 1}, {"low", "norm", "high", "head"}),
        (SHARED, {"side": 2}, {"deep/body/dense_0", "deep/body/dense_2", "y"}),
        (SHARED, {"deep": 2, "deep/body/dense_2": 1}, {"side", "deep/body/dense_2", "y"}),
        (SHARED, {"deep/body/dense": 2}, {"side", "y"}),
        (SHARED, {"deep/body/dense_0": 2, "y": 3}, {"side", "deep/body/dense_2"}),
    ],
    ids=lambda given: str(given) if isinstance(given, dict) else "",  # a set has no order of its own
)
def test_what_rests_is_frozen(network: Any, rests: dict[str, int], learned: set[str]) -> None:
    """In the second epoch."""
    found = network_at(network, Named(rests), 1).learned(network.init(0))
    assert {path.rpartition("/")[0] for path, _ in named_arrays(found)} == learned


def test_no_gradient_is_worked_out_below_the_first_layer_that_learns() -> None:
    def products(network: Network) -> int:
        """Matrix products on the way back, and forward."""
        weights, context = network.init(0), Context(jax.random.key(0), jnp.ones(2))

        def step(x: Any) -> Any:
            y, kept = network.train_forward(weights, x, context)
            return network.train_backward(weights, x, y, y, kept, context, False)

        return str(jax.make_jaxpr(step)(jnp.ones((2, 3)))).count("dot_general")

    resting = network_at(NETWORK, Named({"low": 1, "norm": 1, "high": 1}), 0)
    assert products(NETWORK) - products(resting) == 4  # deltas by head and high, gradients of high and low


def test_they_are_part_of_the_json_of_a_run() -> None:
    plan = Training(NETWORK, loss="squared_error", unfreeze_after=RESTS)
    assert Training.from_json(json.dumps(plan.to_json())) == plan


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"low": -1}, "unfreeze_after must be a dict of numbers of epochs, integers of at least 0, by name of a layer"),
        ({"low": 1.5}, "unfreeze_after must be a dict"),
        ({"low": True}, "unfreeze_after must be a dict"),
        (["low"], "unfreeze_after must be a dict"),
        ({"lower": 1}, "unfreeze_after names 'lower', which stands for no layer that .*; nearest are low"),
        ({"low/kernel": 1}, "unfreeze_after names 'low/kernel'"),
        (
            {"wide/depthwise": 1},
            "unfreeze_after cannot divide a layer: Layers within a SeparableConv .*; name the whole",
        ),
    ],
)
def test_what_cannot_rest_is_refused(given: Any, message: str) -> None:
    images = Network([SeparableConv(2, (1, 1), name="wide"), Flatten(), Dense(1)], input_shape=(1, 1, 3))
    network = images if "wide/depthwise" in given else NETWORK
    with pytest.raises(ValueError, match=message):
        Training(network, loss="squared_error", unfreeze_after=given)
