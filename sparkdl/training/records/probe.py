"""What a look at one step finds: the spread of weights, gradients and activations, and how far the step went."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from sparkdl.layers.base import Context, Weights
from sparkdl.layers.ragged import Ragged, cast, values_of
from sparkdl.layers.steps import of_steps, steps_of
from sparkdl.network import BaseNetwork
from sparkdl.objective import Objective, Workers
from sparkdl.training.data.batches import Rows
from sparkdl.weights import named_arrays, updated

BINS = 30  # of a histogram


class Histogram(NamedTuple):
    """Finite values of an array in `BINS` bins of equal width over [-bound, bound], with their extremes and sums."""

    bound: Any
    least: Any
    most: Any
    total: Any
    squares: Any
    counts: Any


class Probed(NamedTuple):
    """What a probe finds.

    Attributes
    ----------
    weights, gradients : dict of Histogram
        By "layer/name": after the step, and of the mean objective of the rows.
    updates : dict of (Array, Array)
        Mean |after - before| and mean |before| of every learned array.
    activations : dict of Array
        "layer/mean" and "layer/standard_deviation" of every layer's output over rows and positions.
    """

    weights: dict[str, Histogram]
    gradients: dict[str, Histogram]
    updates: dict[str, tuple[Any, Any]]
    activations: dict[str, Any]


def make_probe(network: BaseNetwork, objective: Objective, dtype: str | None = None) -> Callable[..., Probed]:
    """`probe(before, after, rows, seed, step) -> Probed`, compiled for this process alone.

    It is no part of the training step, which therefore costs nothing more where nothing is logged. Layers see the rows
    as in training (random layers draw anew, batch normalization takes the statistics of these rows).
    """

    @jax.jit
    def probe(before: Weights, after: Weights, rows: Rows, seed: Array, step: Array) -> Probed:
        wide = next((leaf.dtype for leaf in jax.tree.leaves(before)), jnp.dtype("float32"))
        weights = jax.tree.map(lambda array: array.astype(dtype or array.dtype), before)
        row_weights = rows.weights.astype(wide)
        shares = objective.shares(rows.labels, row_weights, lambda own: own)
        context = Context(jax.random.fold_in(jax.random.key(seed), step), row_weights)
        x = network.read(rows.features, dtype or wide)
        outputs, kept = network.train_forward(weights, x, context)
        y = network.named(cast(outputs, wide))
        labels = objective.follow(rows.labels, y, network, kept)
        delta = network.joined(objective.delta(y, labels, row_weights, shares, Workers()))
        dy = jax.tree.map(lambda array, like: array.astype(like.dtype), delta, values_of(outputs))
        _, sums = network.train_backward(weights, x, outputs, dy, kept, context, False)

        weight = objective.totals(y, labels, row_weights, shares, Workers())[2]
        total = jnp.where(weight > 0, weight, 1)
        learned = network.learned(before)
        pull = jax.grad(lambda part: jnp.asarray(network.penalty(updated(before, part)), wide))(learned)
        gradient = jax.tree.map(lambda part, own: part.astype(wide) / total + own, sums, pull)
        changed = dict(named_arrays(network.learned(after)))
        activations: dict[str, Array] = {}
        for name, own in network.train_outputs(kept):
            ragged = isinstance(own, Ragged)
            weighing, rows_out = (of_steps(context, own).row_weights, steps_of(own)) if ragged else (row_weights, own)
            weighed = jnp.where(weighing.sum() > 0, weighing.sum(), 1)
            values = rows_out.astype(wide).reshape(len(rows_out), -1)
            mean = weighing @ values.mean(axis=1) / weighed
            variance = weighing @ jnp.square(values - mean).mean(axis=1) / weighed
            activations |= {f"{name}/mean": mean, f"{name}/standard_deviation": jnp.sqrt(variance)}
        return Probed(
            weights={name: _histogram(array) for name, array in named_arrays(after)},
            gradients={name: _histogram(array) for name, array in named_arrays(gradient)},
            updates={
                name: (abs(changed[name] - array).mean(), abs(array).mean()) for name, array in named_arrays(learned)
            },
            activations=activations,
        )

    return probe


def _histogram(array: Array) -> Histogram:
    finite = jnp.isfinite(array)
    values = jnp.where(finite, array, 0)
    size = abs(values).max()
    bound = jnp.where(size > 0, size, 1)
    bins = jnp.clip(jnp.floor((values / bound + 1) * (BINS / 2)).astype(jnp.int32), 0, BINS - 1)
    counts = jnp.zeros(BINS, jnp.int32).at[bins].add(finite.astype(jnp.int32))
    least, most = values.min(where=finite, initial=bound), values.max(where=finite, initial=-bound)
    return Histogram(bound, least, most, values.sum(), jnp.square(values).sum(), counts)
