"""L-BFGS: the weights that the textbook's formulas come to, the optimum that SciPy finds, on any number of workers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from row_cases import rows_of, trained
from scipy.optimize import minimize

from sparkdl import Graph, Network, training
from sparkdl.constraints import MaxNorm
from sparkdl.layers import BatchNorm, Dense, Dropout, Gru, LastStep, Relu, Tanh
from sparkdl.optimizers import LBFGS
from sparkdl.schedules import CosineDecay
from sparkdl.training import AllReduce, Checkpoints, ParameterAveraging, ShardedAllReduce, Training
from sparkdl.weights import named_arrays

pytestmark = pytest.mark.usefixtures("unoptimized")

RANDOM = np.random.default_rng(5)
ROWS = 40
X = RANDOM.normal(size=(ROWS, 3)) * [1.0, 4.0, 0.3]
NOISY = np.sin(X[:, 0]) + 0.2 * X[:, 1] + RANDOM.normal(scale=0.3, size=ROWS)
CLASSES = (NOISY > 0).astype(int) + (X[:, 2] > 0.2)
WEIGHTS = RANDOM.uniform(0.5, 2, ROWS)
DATA = X, CLASSES.astype(float), WEIGHTS
CHAIN = Network([Dense(4, l2=1e-2), Tanh(), Dense(3, l2=1e-2)], input_shape=(3,))
EXACT: dict[str, Any] = {"dtype": "float64", "seed": 3}


def fit(network: Network = CHAIN, data: Any = DATA, looks: int = 20, memory: int = 10, **options: Any) -> Any:
    return training.fit(network, data, optimizer=LBFGS(memory, looks), **{"step_size": 0.5, **options})


def losses(result: Any) -> list[float]:
    return [epoch.loss for epoch in result.history]


def objective() -> tuple[Callable[[np.ndarray], tuple[float, np.ndarray]], np.ndarray, Any]:
    """(value and gradient of flat weights, the first weights, back to a tree) by JAX's own derivative, in float64."""
    with jax.enable_x64(True):
        start = jax.tree.map(np.float64, training.fit(CHAIN, DATA, epochs=0, **EXACT).weights)
        flat, restore = ravel_pytree(start)

        @jax.jit
        def mean_loss(flat: Any) -> Any:
            weights = restore(flat)
            hidden = jnp.tanh(X @ weights["dense_0"]["kernel"] + weights["dense_0"]["bias"][None])
            scores = jax.nn.log_softmax(hidden @ weights["dense_2"]["kernel"] + weights["dense_2"]["bias"][None])
            own = -jnp.take_along_axis(scores, jnp.asarray(CLASSES)[:, None], 1)[:, 0]
            squares = sum((weights[name]["kernel"] ** 2).sum() for name in weights if weights[name])
            return (WEIGHTS * own).sum() / WEIGHTS.sum() + 1e-2 / 2 * squares

        both = jax.jit(jax.value_and_grad(mean_loss))

    def value(flat: np.ndarray) -> tuple[float, np.ndarray]:
        with jax.enable_x64(True):
            loss, slope = both(flat)
            return float(loss), np.asarray(slope)

    return value, np.asarray(flat), restore


def by_hand(steps: int, memory: int, step_size: float) -> tuple[list[float], np.ndarray, int]:
    """(the loss after every step, the last weights, points looked at), with H as the whole matrix that it is.

    H by equation 7.16 and 7.20 of Nocedal and Wright, step lengths by bisection as Lewis and Overton, algorithm 2.6.
    """
    value, w, _ = objective()
    f, g = value(w)
    pairs: list[tuple[np.ndarray, np.ndarray]] = []
    found, looks = [], 1
    for _ in range(steps):
        h, length = np.eye(len(w)), step_size
        if pairs:
            s, y = pairs[-1]
            h, length = h * (s @ y) / (y @ y), 1.0
        for s, y in pairs:
            v = np.eye(len(w)) - np.outer(y, s) / (y @ s)
            h = v.T @ h @ v + np.outer(s, s) / (y @ s)
        d, least, most = -h @ g, 0.0, np.inf
        while True:
            new = w + length * d
            new_f, new_g = value(new)
            looks += 1
            if new_f > f + 1e-4 * length * (g @ d):
                most = length
            elif new_g @ d < 0.9 * (g @ d):
                least = length
            else:
                break
            length = (least + most) / 2 if np.isfinite(most) else 2 * least
        pairs = [*pairs, (new - w, new_g - g)][-memory:]
        w, f, g = new, new_f, new_g
        found.append(f)
    return found, w, looks


@pytest.mark.parametrize(
    ("memory", "step_size", "expected_looks"), [(3, 0.5, 13), (10, 0.5, 13), (10, 50.0, 17), (10, 1e-3, 22)]
)
def test_steps_are_those_of_the_formulas(memory: int, step_size: float, expected_looks: int) -> None:
    steps = 12
    expected, weights, looks = by_hand(steps, memory, step_size)
    assert looks == expected_looks  # the last two look too far and not far enough
    result = fit(memory=memory, step_size=step_size, epochs=steps, **EXACT)
    np.testing.assert_allclose(losses(result), expected, rtol=1e-9)
    np.testing.assert_allclose(ravel_pytree(result.weights)[0], weights, rtol=1e-6, atol=1e-8)


def test_it_comes_to_the_optimum_that_scipy_finds() -> None:
    """Of softmax regression with l2, which has one."""
    network = Network([Dense(3, l2=0.1)], input_shape=(3,))

    def value(flat: np.ndarray) -> float:
        kernel, bias = flat[3:].reshape(3, 3), flat[:3]
        scores = X @ kernel + bias
        scores -= np.log(np.exp(scores).sum(axis=1, keepdims=True))
        return -(WEIGHTS * scores[np.arange(ROWS), CLASSES]).sum() / WEIGHTS.sum() + 0.05 * (kernel**2).sum()

    best = minimize(value, np.zeros(12), method="BFGS", options={"gtol": 1e-9}).fun
    result = fit(network, epochs=40, **EXACT)
    assert losses(result)[-1] == pytest.approx(best, rel=1e-9)


@pytest.mark.parametrize("shares", [(40,), (20, 20), (3, 30, 7)])
def test_any_number_of_workers_takes_the_steps_of_one(shares: tuple[int, ...]) -> None:
    plan = Training(CHAIN, optimizer=LBFGS(), step_size=0.5, epochs=8, batch_size=7, **EXACT)
    result = trained(plan, rows_of(X, CLASSES.astype(np.int32), WEIGHTS), shares)
    expected, weights, _ = by_hand(8, 10, 0.5)
    assert [epoch.steps for epoch in result.history] == [1] * 8
    np.testing.assert_allclose(losses(result), expected, rtol=1e-10)
    np.testing.assert_allclose(ravel_pytree(result.weights)[0], weights, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(
    "layers",
    [
        [Dense(16), Relu(), Dense(16), Relu(), Dense(3)],
        [Dense(16), Relu(), Dropout(0.4), Dense(3)],
        [Dense(16), BatchNorm(), Relu(), Dense(3)],
    ],
    ids=["kinks", "random", "batch statistics"],
)
def test_the_loss_never_rises(layers: list[Any]) -> None:
    found = losses(fit(Network(layers, input_shape=(3,)), epochs=60))
    assert found[-1] < 0.3 * found[0]
    assert all(later <= before * (1 + 1e-5) for before, later in zip(found, found[1:], strict=False))


def test_running_statistics_follow_the_batch() -> None:
    network = Network([BatchNorm(momentum=0.5), Dense(3)], input_shape=(3,))
    statistics = fit(network, epochs=30).weights["batch_norm_0"]
    expected = np.average(X, axis=0, weights=WEIGHTS)
    np.testing.assert_allclose(statistics["mean"], expected, rtol=1e-4, atol=1e-5)


def test_a_step_that_overflows_is_shortened() -> None:
    result = fit(step_size=1e38, looks=200, epochs=20)
    assert losses(result)[-1] < losses(result)[0] < 10


def test_at_the_optimum_the_weights_stay() -> None:
    network = Network([Dense(3, l2=0.1)], input_shape=(3,))
    early, late = (fit(network, epochs=epochs) for epochs in (60, 90))
    assert losses(late)[60:] == [losses(late)[60]] * 30
    assert losses(late)[-1] == pytest.approx(losses(early)[-1], rel=1e-5)
    for (_, before), (_, after) in zip(named_arrays(early.weights), named_arrays(late.weights), strict=True):
        np.testing.assert_allclose(after, before, rtol=1e-2, atol=1e-4)


def test_a_tolerance_ends_the_fit_at_the_optimum() -> None:
    network = Network([Dense(3, l2=0.1)], input_shape=(3,))
    result = fit(network, epochs=500, tol=1e-6, **EXACT)
    assert len(result.history) < 60
    assert losses(result)[-1] == pytest.approx(losses(fit(network, epochs=80, **EXACT))[-1], rel=1e-5)


def test_a_loss_that_is_no_number_is_told() -> None:
    broken = X.copy()
    broken[0, 0] = np.inf
    with pytest.raises(ValueError, match="(?i)finite|diverge"):
        fit(data=(broken, CLASSES.astype(float)), epochs=3)


def test_batches_and_their_order_change_nothing() -> None:
    """But that validation goes through its rows by them."""
    each = [
        fit(epochs=5, validation=DATA, **given)
        for given in ({"batch_size": 7}, {"batch_size": 1000}, {"shuffle": False})
    ]
    for other in each[1:]:
        assert losses(other) == losses(each[0])
        assert other.history[-1].validation_loss == pytest.approx(each[0].history[-1].validation_loss, rel=1e-5)


def test_a_resumed_fit_ends_as_one_that_was_not_interrupted(tmp_path: Path) -> None:
    whole = fit(epochs=12, **EXACT)
    kept = Checkpoints(str(tmp_path), every=1)
    fit(epochs=5, checkpoints=kept, **EXACT)
    resumed = fit(epochs=12, checkpoints=kept, **EXACT)
    assert resumed.resumed == [5, 0]
    assert losses(resumed)[5:] == losses(whole)[5:]
    for (_, ours), (_, theirs) in zip(named_arrays(resumed.weights), named_arrays(whole.weights), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_frozen_layers_rest_and_fits_go_on_from_others() -> None:
    start = fit(epochs=5).weights
    frozen = CHAIN.frozen("dense_0")
    result = fit(frozen, initial=start, epochs=10)
    np.testing.assert_array_equal(result.weights["dense_0"]["kernel"], start["dense_0"]["kernel"])
    assert losses(result)[-1] < losses(fit(epochs=5))[-1]


def test_rows_of_any_length() -> None:
    network = Network([Gru(5), LastStep(), Dense(2)], input_shape=(None, 2))
    rows = [RANDOM.normal(size=(length, 2)) for length in (5, 1, 9, 3, 7, 2, 6, 4)]
    labels = np.array([row[-1, 0] > 0 for row in rows], float)
    found = losses(fit(network, (rows, labels), epochs=40))
    assert found[-1] < 0.05 * found[0]


def test_several_outputs() -> None:
    body = Network([Dense(8), Tanh()])
    nodes: Any = {"body": (body, "x"), "kind": (Dense(3), "body"), "size": (Dense(1), "body")}
    graph = Graph({"x": (3,)}, nodes, ("kind", "size"))
    data = {"x": X}, {"kind": CLASSES.astype(float), "size": X[:, 1] ** 2}
    both = {"kind": "softmax_cross_entropy", "size": "squared_error"}
    found = losses(fit(graph, data, loss=both, epochs=60))
    assert found[-1] < 0.1 * found[0]


def test_a_timeline_has_every_look() -> None:
    """Of one worker the steps alone, of which the first looks at the first weights and then elsewhere."""
    result = fit(epochs=4, statistics=True)
    steps = [event for event in result.events if event["phase"] == "step"]
    assert {event["step"] for event in steps} == {0}  # of so few it is looked at alone
    assert len(steps) > 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"exchange": ParameterAveraging(2)}, "LBFGS.*AllReduce alone.*ParameterAveraging"),
        ({"exchange": ShardedAllReduce()}, "AllReduce alone.*ShardedAllReduce"),
        ({"exchange": AllReduce("bfloat16")}, "LBFGS.*bfloat16"),
        ({"dtype": "bfloat16"}, "dtype of the training cannot stand beside LBFGS"),
        ({"step_factors": {"dense_0": 0.1}}, "step_factors of the training cannot"),
        ({"unfreeze_after": {"dense_0": 2}}, "unfreeze_after of the training cannot"),
        ({"network": CHAIN.frozen("dense_0", "dense_2")}, "expects weights to move, but every layer.*frozen"),
        ({"network": Network([Dense(3, constraint=MaxNorm(1.0))], (3,))}, "constraint of a layer cannot"),
    ],
)
def test_what_its_search_cannot_follow_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Training(**{"network": CHAIN, "optimizer": LBFGS(), **options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"memory": 0}, "memory of LBFGS must be a positive integer, received 0"),
        ({"looks": 1.5}, "looks of LBFGS must be a positive integer"),
        ({"weight_decay": 0.1}, "weight_decay of LBFGS must be left out.*received 0.1"),
        ({"clip_norm": 1.0}, "clip_norm of LBFGS must be left out"),
        ({"schedule": CosineDecay()}, "schedule of LBFGS must be left out"),
    ],
)
def test_arguments_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LBFGS(**options)
