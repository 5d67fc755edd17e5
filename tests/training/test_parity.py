"""The headline: any number of workers, however the rows fall to them, take the steps of one process on whole batches.

The reference is a plain loop: autodiff of the weighted mean loss, written here with jnp, over the rows that the workers
together take in a step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import accumulate
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import row_cases
from jax import lax
from row_cases import Shares, chosen, rows_of

from sparkdl import Network, optimizers
from sparkdl.initializers import Initializer
from sparkdl.layers import BatchNorm, Conv, Dense, Dropout, Flatten, MaxPool, Tanh
from sparkdl.optimizers import LBFGS, Adam, AdamW, Momentum, Optimizer
from sparkdl.schedules import ExponentialDecay
from sparkdl.training import Training
from sparkdl.training.data.batches import Rows, Steps, epoch_order
from sparkdl.weights import named_arrays, updated

Array = jax.Array


@dataclass(frozen=True)
class Waves(Initializer):
    """Numbers without a pattern that, unlike random ones, compile in no time."""

    def sample(self, key: Array, shape: Shares) -> Array:
        return jnp.sin(1 + jnp.arange(float(math.prod(shape))) ** 2).reshape(shape)


KINDS = [kind for kind in vars(optimizers).values() if isinstance(kind, type) and issubclass(kind, Optimizer)]
OPTIMIZERS = [kind() for kind in KINDS if not kind.__subclasses__() and kind is not LBFGS]  # LBFGS: test_lbfgs.py
COMBINED = Momentum(
    clip_value=0.05,
    clip_layer_norm=0.1,
    clip_norm=0.12,
    weight_decay=0.1,
    schedule=ExponentialDecay(every=2, factor=0.7),
)
SHARES = [(21, 0, 3), (24,), (21, 3), (9, 9, 6)]
TOLERANCE = {"float64": 1e-12, "float32": 1e-5}
STEP_SIZE = 0.05

RANDOM = np.random.default_rng(17)
PLAIN = rows_of(RANDOM.normal(size=(24, 4)).astype("float32"), RANDOM.integers(0, 3, 24).astype("int32"), np.ones(24))
WEIGHTED = PLAIN._replace(weights=np.tile([0.5, 2, 0.25, 0, 3, 1, 1.75, 0.5], 3))
IMAGES = PLAIN._replace(features={"features": RANDOM.integers(0, 256, (24, 6, 6, 2)).astype("uint8")})

# A bias before a batch normalization has gradient 0, of whose rounding an optimizer that normalizes would make a step.
NETWORK = Network(
    [Dense(3, bias=False, kernel_initializer=Waves()), BatchNorm(), Tanh(), Dense(3, kernel_initializer=Waves())],
    input_shape=(4,),
)
CONV_NETWORK = Network(
    [
        Conv(2, (3, 3), bias=False, l1=0.01, kernel_initializer=Waves()),
        BatchNorm(),
        MaxPool((2, 2)),
        Tanh(),
        Flatten(),
        Dense(3, l2=0.1, kernel_initializer=Waves()),
    ],
    input_shape=(6, 6, 2),
)


def training(network: Network, optimizer: Optimizer | str = "sgd", **options: Any) -> Training:
    return Training(
        network,
        optimizer=optimizer,
        step_size=STEP_SIZE,
        **{"epochs": 2, "batch_size": 8, "seed": 3, "dtype": "float64"} | options,
    )


def trained(plan: Training, rows: Rows, shares: Shares) -> Any:
    """The weights after training with one worker for each share."""
    return row_cases.trained(plan, rows, shares).weights


# The same by hand. `Outputs` gives a network's outputs, its batch normalization's averages, and the penalties.

Outputs = Callable[[Any, Array, Array], tuple[Array, Any, Array | float]]


def normalized(weights: Any, x: Array, row_weights: Array) -> tuple[Array, Any]:
    """Batch normalization by the statistics of the weighted rows, and its running averages after the step."""
    positions = x.reshape(-1, x.shape[-1])
    shares = jnp.repeat(row_weights / row_weights.sum(), len(positions) // len(x))[:, None] * (len(x) / len(positions))
    mean = (shares * positions).sum(axis=0)
    variance = (shares * (positions - mean[None]) ** 2).sum(axis=0)
    standard = (positions - mean[None]) / jnp.sqrt(variance + BatchNorm().epsilon)[None]
    averages = {name: 0.9 * weights[name] + 0.1 * new for name, new in (("mean", mean), ("variance", variance))}
    return (standard * weights["scale"][None] + weights["bias"][None]).reshape(x.shape), averages


def outputs_of_network(weights: Any, x: Array, row_weights: Array) -> tuple[Array, Any, Array | float]:
    y, averages = normalized(weights["batch_norm_1"], x @ weights["dense_0"]["kernel"], row_weights)
    return jnp.tanh(y) @ weights["dense_3"]["kernel"] + weights["dense_3"]["bias"][None], averages, 0.0


def outputs_of_conv_network(weights: Any, x: Array, row_weights: Array) -> tuple[Array, Any, Array | float]:
    kernel, last = weights["conv_0"]["kernel"], weights["dense_5"]
    y = lax.conv_general_dilated(x, kernel, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    y, averages = normalized(weights["batch_norm_1"], y, row_weights)
    y = jnp.tanh(y.reshape(-1, 2, 2, 2, 2, 2).max(axis=(2, 4))).reshape(len(x), -1)
    penalty = 0.01 * jnp.abs(kernel).sum() + 0.1 / 2 * (last["kernel"] ** 2).sum()
    return y @ last["kernel"] + last["bias"][None], averages, penalty


@partial(jax.jit, static_argnums=0)
def derivative(outputs: Outputs, learned: Any, weights: Any, rows: Rows) -> tuple[Any, Any]:
    """Derivative of the mean cross-entropy plus penalties by the learned weights; the new statistics."""

    def objective(learned: Any) -> tuple[Array, Any]:
        x, classes = jnp.asarray(rows.features["features"]), rows.labels["label"][:, None]
        scores, averages, penalty = outputs(updated(weights, learned), x, rows.weights)
        losses = jax.nn.logsumexp(scores, axis=1) - jnp.take_along_axis(scores, classes, axis=1)[:, 0]
        return (rows.weights * losses).sum() / rows.weights.sum() + penalty, averages

    slopes, averages = jax.grad(objective, has_aux=True)(learned)
    return slopes, {"batch_norm_1": averages}


@cache
def rule(optimizer: Optimizer, steps: int, epochs: int) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """optax's init and compiled update, which test_optimizers.py holds to the formulas."""
    transformation = optimizer.transformation(STEP_SIZE, steps * epochs, steps)
    return transformation.init, jax.jit(transformation.update)


def trained_by_one_process(plan: Training, rows: Rows, shares: Shares, outputs: Outputs) -> Any:
    """The weights after a loop over the rows that workers with these shares together take in every step."""
    weights = trained(replace(plan, epochs=0), rows, (24,))
    division, starts = Steps(shares, plan.batch_size), [0, *accumulate(shares[:-1])]
    features, labels = rows.features["features"].astype(plan.dtype), rows.labels["label"]
    rows = rows_of(features, labels, rows.weights.astype(plan.dtype))
    with jax.enable_x64(plan.dtype == "float64"):
        init, update = rule(Optimizer.of(plan.optimizer), division.count, plan.epochs)
        learned = plan.network.learned(weights)
        state = init(learned)
        for epoch in range(plan.epochs):
            orders = [
                start + (epoch_order(share, plan.seed, epoch, worker) if plan.shuffle else np.arange(share))
                for worker, (start, share) in enumerate(zip(starts, shares, strict=True))
            ]
            for step in range(division.count):
                taken = [order[slice(*division.bounds(worker, step))] for worker, order in enumerate(orders)]
                batch = chosen(rows, np.concatenate(taken))
                slopes, averages = derivative(outputs, learned, weights, batch)
                changes, state = update(slopes, state, learned)
                learned = optax.apply_updates(learned, changes)
                weights = updated(updated(weights, learned), averages)
        return jax.tree.map(np.asarray, weights)


def assert_close(actual: Any, expected: Any, tolerance: float = TOLERANCE["float64"]) -> None:
    """The same names, and arrays equal to within `tolerance` of their largest number."""
    actual, expected = dict(named_arrays(actual)), dict(named_arrays(expected))
    assert actual.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_allclose(actual[name], array, rtol=0, atol=tolerance * np.abs(array).max(), err_msg=name)


def are_identical(one: Any, other: Any) -> bool:
    return jax.tree.all(jax.tree.map(np.array_equal, one, other))


@pytest.mark.parametrize(
    ("optimizer", "shares", "dtype"),
    [
        *((optimizer, SHARES[0], "float64") for optimizer in OPTIMIZERS),
        *((Adam(), shares, "float64") for shares in SHARES[1:]),  # which rows fall to whom is nothing to an optimizer
        *((optimizer, SHARES[0], "float32") for optimizer in (Adam(), Momentum())),  # nor is the dtype
    ],
    ids=str,
)
def test_workers_take_the_steps_of_one_process(optimizer: Optimizer, shares: Shares, dtype: str) -> None:
    plan = training(NETWORK, optimizer, dtype=dtype)
    expected = trained_by_one_process(plan, WEIGHTED, shares, outputs_of_network)
    assert_close(trained(plan, WEIGHTED, shares), expected, TOLERANCE[dtype])


@pytest.mark.parametrize(
    ("shares", "dtype", "exchange"),
    [
        *((shares, "float64", "all_reduce") for shares in SHARES),
        ((9, 9, 6), "float32", "all_reduce"),
        ((21, 0, 3), "float64", "sharded_all_reduce"),
    ],
    ids=str,
)
def test_so_they_do_with_convolution_penalties_clipping_decay_and_schedule(
    shares: Shares, dtype: str, exchange: str
) -> None:
    plan = training(CONV_NETWORK, COMBINED, dtype=dtype, exchange=exchange)
    expected = trained_by_one_process(plan, IMAGES, shares, outputs_of_conv_network)
    assert_close(trained(plan, IMAGES, shares), expected, TOLERANCE[dtype])


@pytest.mark.parametrize(("inputs", "factored"), [(72, 1), (4, 0)])
def test_few_rows_of_a_large_kernel_are_exchanged_instead_of_its_gradient(
    inputs: int, factored: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    gathers: list[Any] = []
    gather = lax.all_gather
    monkeypatch.setattr(lax, "all_gather", lambda *arguments: gathers.append(arguments) or gather(*arguments))
    network = Network([Dense(200, kernel_initializer=Waves()), Tanh(), Dense(3)], input_shape=(inputs,))
    plan = training(network, batch_size=24)
    features = IMAGES.features["features"].reshape(24, -1)[:, :inputs] / 255
    rows = rows_of(features, PLAIN.labels["label"], WEIGHTED.weights)
    alone = trained(plan, rows, (24,))
    assert not gathers
    assert_close(trained(plan, rows, (13, 0, 11)), alone)
    assert len(gathers) == factored


@pytest.mark.parametrize("part", ["clip_value", "clip_layer_norm", "clip_norm", "weight_decay", "schedule"])
def test_every_part_of_that_optimizer_matters(part: str) -> None:
    """Else the test above would not notice its absence."""
    plan = training(CONV_NETWORK, COMBINED, epochs=1)
    neutral = 1.0 if part == "weight_decay" else "constant_schedule" if part == "schedule" else None
    without = replace(plan, optimizer=replace(COMBINED, **{part: neutral}))
    whole, less = (trained_by_one_process(each, IMAGES, (24,), outputs_of_conv_network) for each in (plan, without))
    assert not np.allclose(whole["conv_0"]["kernel"], less["conv_0"]["kernel"], rtol=1e-6)


def test_rows_come_in_order_without_shuffling() -> None:
    plan = training(NETWORK, shuffle=False)
    ordered = trained(plan, PLAIN, (21, 3))
    assert_close(ordered, trained_by_one_process(plan, PLAIN, (21, 3), outputs_of_network))
    assert not are_identical(ordered, trained(replace(plan, shuffle=True), PLAIN, (21, 3)))


@pytest.mark.parametrize("shares", [(24,), (21, 0, 3)], ids=str)
def test_a_weight_counts_as_often_as_the_row_repeated(shares: Shares) -> None:
    counts = np.array([3, 1, 0, 2, 5, 1, 1, 4] * 3)
    repeated = chosen(PLAIN, np.repeat(np.arange(24), counts))
    plan = training(NETWORK, AdamW(), batch_size=1000)
    weighted = trained(plan, PLAIN._replace(weights=counts), shares)
    assert_close(weighted, trained(plan, repeated, (len(repeated.weights),)))


def test_a_step_of_rows_that_weigh_nothing_changes_nothing() -> None:
    plan = training(NETWORK, shuffle=False, epochs=1)
    rows = PLAIN._replace(weights=np.repeat([1.0, 0.0, 1.0], 8))
    remaining = chosen(rows, np.delete(np.arange(24), np.s_[8:16]))
    assert_close(trained(plan, rows, (24,)), trained(plan, remaining, (16,)))


def test_frozen_layers_stay_as_they_were_bit_for_bit() -> None:
    network = replace(NETWORK, layers=[*(replace(layer, trainable=False) for layer in NETWORK.layers[:3]), Dense(3)])
    plan = training(network, AdamW(weight_decay=0.5), dtype="float32")
    before, after = (dict(named_arrays(trained(replace(plan, epochs=epochs), PLAIN, (21, 3)))) for epochs in (0, 2))
    learned = {name for name, array in after.items() if not np.array_equal(array, before[name])}
    assert learned == {"dense_3/kernel", "dense_3/bias"}


def test_the_seed_decides_every_bit() -> None:
    network = Network([Dense(4), Dropout(0.5), Dense(3)], input_shape=(4,))
    runs = [trained(training(network, seed=seed, dtype="float32"), PLAIN, (21, 0, 3)) for seed in (1, 1, 2)]
    assert are_identical(runs[0], runs[1])
    assert not are_identical(runs[0], runs[2])


@pytest.mark.parametrize(("shares", "epochs", "sums"), [((1, 1), 1, 3), ((1,), 2, 4)], ids=str)
def test_every_worker_and_every_step_drops_other_inputs(shares: Shares, epochs: int, sums: int) -> None:
    """Inputs of 1 and a kernel of 0: an input's weights move once for every time that it is not dropped."""
    network = Network([Dropout(0.5), Dense(3, kernel_initializer="zeros")], input_shape=(64,))
    ones = rows_of(np.ones((len(shares), 64)), np.zeros(len(shares), "int32"), np.ones(len(shares)))
    kernel = trained(training(network, epochs=epochs), ones, shares)["dense_1"]["kernel"]
    assert len(np.unique(kernel[:, 0].round(9))) == sums
