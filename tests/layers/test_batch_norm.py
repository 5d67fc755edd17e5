"""Batch normalization: the weighted batch, its delta, any split over workers, and the running averages."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec

from sparkdl.layers.base import Array, Context, Weights
from sparkdl.layers.batch_norm import BatchNorm

SHAPES = [(6, 4), (6, 3, 4), (6, 2, 3, 4)]
ROW_WEIGHTS = np.array([2.0, 0.5, 1.0, 0.0, 3.0, 1.0])


def batch(*shape: int) -> tuple[np.ndarray, np.ndarray]:
    """x and dy."""
    draw = np.random.default_rng(len(shape))
    return 3 * draw.normal(size=shape) + 5, draw.normal(size=shape)


def weights(channels: int, dtype: Any = float) -> Weights:
    draw = np.random.default_rng(9)
    names = {"scale": (0.5, 2), "bias": (-1, 1), "mean": (-3, 3), "variance": (0.1, 4)}
    return {name: jnp.asarray(draw.uniform(*bounds, channels), dtype) for name, bounds in names.items()}


def moments(x: np.ndarray, row_weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    axes = tuple(range(x.ndim - 1))
    factor = np.broadcast_to(row_weights.reshape(-1, *(1,) * (x.ndim - 1)), x.shape)
    mean = np.average(x, axes, factor)
    return mean, np.average((x - mean) ** 2, axes, factor)


@partial(jax.jit, static_argnames=("layer", "axis"))
def step(layer: BatchNorm, values: Weights, x: Any, dy: Any, rows: Any, axis: str | None = None) -> dict[str, Any]:
    """Everything one training step produces, summed over workers where the exchange does so later."""
    context = Context(jax.random.key(0), rows, axis)
    y, kept = layer.train_forward(values, x, context)
    dx, gradient = layer.train_backward(values, x, y, dy, kept, context, wants_delta=True)
    gradient = {name: context.sum_over_workers(value) for name, value in gradient.items()}
    return {"rows": {"y": y, "dx": dx}, "gradient": gradient, "statistics": layer.new_statistics(values, kept)}


def close(ours: Any, theirs: Any, tolerance: float = 1e-12) -> None:
    def compare(a: Any, b: Any) -> None:
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)

    jax.tree.map(compare, ours, theirs)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_training_normalizes_by_the_weighted_batch_and_moves_the_averages(
    shape: tuple[int, ...], float64: None
) -> None:
    (x, dy), values = batch(*shape), weights(4)
    mean, variance = moments(x, ROW_WEIGHTS)
    done = step(BatchNorm(0.7, epsilon=1e-3), values, jnp.asarray(x), jnp.asarray(dy), jnp.asarray(ROW_WEIGHTS))
    old = {name: np.asarray(value) for name, value in values.items()}
    close(done["rows"]["y"], (x - mean) / np.sqrt(variance + 1e-3) * old["scale"] + old["bias"])
    close(done["statistics"]["mean"], 0.7 * old["mean"] + 0.3 * mean)
    close(done["statistics"]["variance"], 0.7 * old["variance"] + 0.3 * variance)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("scale, bias", [(True, True), (False, False)])
def test_delta_and_gradient_differentiate_through_the_batch(
    shape: tuple[int, ...], scale: bool, bias: bool, float64: None
) -> None:
    (x, dy), used = batch(*shape), ["scale"] * scale + ["bias"] * bias

    def plain(x: Array, learned: Weights) -> Array:
        axes, factor = tuple(range(len(shape) - 1)), ROW_WEIGHTS.reshape(-1, *(1,) * (len(shape) - 1))
        total = ROW_WEIGHTS.sum() * np.prod(shape[1:-1])
        mean = (factor * x).sum(axes, keepdims=True) / total
        variance = (factor * (x - mean) ** 2).sum(axes, keepdims=True) / total
        spread = {name: jnp.broadcast_to(value, shape) for name, value in learned.items()}
        return (x - mean) / jnp.sqrt(variance + 1e-5) * spread.get("scale", 1.0) + spread.get("bias", 0.0)

    values = {name: value for name, value in weights(4).items() if name in [*used, "mean", "variance"]}
    y, pull = jax.vjp(plain, jnp.asarray(x), {name: values[name] for name in used})
    dx, gradient = pull(jnp.asarray(dy))
    done = step(BatchNorm(scale=scale, bias=bias), values, jnp.asarray(x), jnp.asarray(dy), jnp.asarray(ROW_WEIGHTS))
    close([done["rows"], done["gradient"]], [{"y": y, "dx": dx}, gradient])


@pytest.mark.parametrize("offset", [0, 100], ids=["near", "far"])
@pytest.mark.parametrize("workers, held", [(2, [[0, 1, 2, 4], [5]]), (3, [[1], [], [0, 2, 4, 5]])])
def test_workers_together_compute_what_one_machine_does(
    workers: int, held: list[list[int]], offset: float, float64: None
) -> None:
    (x, dy), values, layer = batch(6, 2, 4), weights(4), BatchNorm()
    x += offset
    alone = [0, 1, 2, 4, 5]
    whole = step(layer, values, *(jnp.asarray(value[alone]) for value in (x, dy, ROW_WEIGHTS)))
    x_split, dy_split, rows = np.full((workers, 4, 2, 4), 1e3), np.zeros((workers, 4, 2, 4)), np.zeros((workers, 4))
    for worker, mine in enumerate(held):
        there = slice(0, len(mine))
        x_split[worker, there], dy_split[worker, there], rows[worker, there] = x[mine], dy[mine], ROW_WEIGHTS[mine]
    split, everywhere = PartitionSpec("workers"), PartitionSpec()
    run = jax.shard_map(
        lambda values, x, dy, rows: step(layer, values, x, dy, rows, "workers"),
        mesh=Mesh(np.array(jax.devices()[:workers]), ("workers",)),
        in_specs=(everywhere, split, split, split),
        out_specs={"rows": split, "gradient": everywhere, "statistics": everywhere},
    )
    flat = (jnp.asarray(value.reshape(-1, *value.shape[2:])) for value in (x_split, dy_split, rows))
    done = jax.jit(run)(values, *flat)
    places = {row: 4 * worker + place for worker, mine in enumerate(held) for place, row in enumerate(mine)}
    order = [places[row] for row in alone]
    done["rows"] = jax.tree.map(lambda value: np.asarray(value)[order], done["rows"])
    close(done, whole)


def test_weight_k_is_the_row_k_times(float64: None) -> None:
    (x, dy), counts = batch(4, 3, 2), np.array([3, 1, 0, 2])
    layer, values = BatchNorm(), weights(2)
    weighted = step(layer, values, jnp.asarray(x), jnp.asarray(dy * counts[:, None, None]), jnp.asarray(1.0 * counts))
    repeated = step(layer, values, *(jnp.asarray(np.repeat(value, counts, axis=0)) for value in (x, dy)), jnp.ones(6))
    heavy, counts = np.flatnonzero(counts), counts[counts > 0]
    y, dx = np.asarray(weighted["rows"]["y"])[heavy], np.asarray(weighted["rows"]["dx"])[heavy]
    rows = {"y": np.repeat(y, counts, axis=0), "dx": np.repeat(dx / counts[:, None, None], counts, axis=0)}
    close(weighted | {"rows": rows}, repeated)


def test_a_step_without_weight_changes_nothing_and_stays_finite() -> None:
    values = weights(4, np.float32)
    x, dy = jnp.ones((3, 2, 4)), jnp.zeros((3, 2, 4))
    done = step(BatchNorm(), values, x, dy, jnp.zeros(3))
    assert all(np.isfinite(value).all() for value in jax.tree.leaves(done))
    for name, value in done["statistics"].items():
        np.testing.assert_array_equal(value, values[name])


@pytest.mark.parametrize("frozen", [True, False], ids=["frozen", "inference"])
def test_inference_and_a_frozen_layer_use_the_running_averages(frozen: bool, float64: None) -> None:
    (x, dy), values = batch(6, 3, 4), weights(4)
    old = {name: np.asarray(value) for name, value in values.items()}
    factor = old["scale"] / np.sqrt(old["variance"] + 1e-5)
    rows = {"y": (x - old["mean"]) * factor + old["bias"], "dx": dy * factor}
    if frozen:
        done = step(BatchNorm(trainable=False), values, jnp.asarray(x), jnp.asarray(dy), jnp.ones(6))
        close(done, {"rows": rows, "gradient": {}, "statistics": {}})  # those that it has stay
    else:
        y = BatchNorm().forward(values, jnp.asarray(x))
        dx = BatchNorm().delta(values, jnp.asarray(x), y, jnp.asarray(dy))
        close({"y": y, "dx": dx}, rows)


@pytest.mark.parametrize("deviations", [0, 3, 4.9, 5.1, 1e4])
def test_a_mean_far_from_0_costs_few_digits(deviations: float) -> None:
    draw = np.random.default_rng(0)
    x = (draw.normal(size=(64, 8, 8, 3)) + deviations).astype(np.float32)
    dy = draw.normal(size=x.shape).astype(np.float32)
    done = step(BatchNorm(0.0, scale=False), weights(3, np.float32), jnp.asarray(x), jnp.asarray(dy), jnp.ones(64))
    mean, variance = moments(x.astype(np.float64), np.ones(64))
    np.testing.assert_allclose(done["statistics"]["variance"], variance, rtol=1e-5)
    standard, count = (x - mean) / np.sqrt(variance + 1e-5), x[..., 0].size
    sums = dy.sum((0, 1, 2), np.float64), (dy * standard).sum((0, 1, 2))
    dx = (dy - sums[0] / count - standard * sums[1] / count) / np.sqrt(variance + 1e-5)
    np.testing.assert_allclose(done["rows"]["dx"], dx, atol=1e-5 + 1e-7 * deviations)


def test_statistics_take_one_exchange() -> None:
    x, values, split = jnp.asarray(batch(6, 2, 4)[0], jnp.float32), weights(4, np.float32), PartitionSpec("workers")
    run = jax.shard_map(
        lambda x, rows: BatchNorm().train_forward(values, x, Context(jax.random.key(0), rows, "workers"))[1],
        mesh=Mesh(np.array(jax.devices()[:2]), ("workers",)),
        in_specs=split,
        out_specs=PartitionSpec(),
    )
    program = str(jax.jit(run).lower(x, jnp.ones(6)).compile().as_text())
    entry = program[program.index("\nENTRY") :]
    assert entry.count(" all-reduce(") == 1


def test_half_precision_rows_keep_float32_statistics() -> None:
    x = jnp.asarray(batch(6, 50, 4)[0], jnp.bfloat16)
    values, exact = weights(4, np.float32), np.asarray(x, np.float64)
    done = step(BatchNorm(0.0), values, x, jnp.ones_like(x), jnp.ones(6))
    assert {value.dtype for value in done["rows"].values()} == {jnp.dtype(jnp.bfloat16)}
    assert {value.dtype for value in done["gradient"].values()} == {jnp.dtype(jnp.float32)}
    close(done["statistics"], {"mean": exact.mean((0, 1)), "variance": exact.var((0, 1))}, 1e-6)


def test_training_agrees_with_pytorch(float64: None) -> None:
    torch = pytest.importorskip("torch")
    (x, dy), values = batch(6, 3, 4), weights(4)
    given = [torch.tensor(np.array(value), requires_grad=True) for value in (x, values["scale"], values["bias"])]
    expected = torch.nn.functional.batch_norm(
        given[0].movedim(-1, 1), None, None, given[1], given[2], training=True, eps=1e-5
    ).movedim(1, -1)
    expected.backward(torch.tensor(dy))
    dx, dscale, dbias = (value.grad.numpy() for value in given)
    done = step(BatchNorm(), values, jnp.asarray(x), jnp.asarray(dy), jnp.ones(6))
    theirs = [{"y": expected.detach().numpy(), "dx": dx}, {"scale": dscale, "bias": dbias}]
    close([done["rows"], done["gradient"]], theirs)
