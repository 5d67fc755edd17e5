"""Losses that compare the rows of a batch with one another, as those of two towers do."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from sparkdl.losses.loss import Loss
from sparkdl.specs import check_range


@dataclass(frozen=True)
class InBatchSoftmax(Loss):
    """-log(softmax(s_i)_i): query i is to choose item i among those of the batch (Yi et al. 2019, section 3).

    s_ij is the dot product of query i and item j over the temperature. The batch is that of all workers. Rivals of item
    i are the rows with another label and a weight above 0: rows of the same item are none.

    An item is a rival as often as it occurs, so that frequent ones are learned to be unlikely. `corrected` scores are
    s_ij - log(how often item j occurs), and the sum is over all rows, those of item i too: it estimates that over all
    items, so that s_ij becomes the log probability that query i chooses j, but for a constant of i. Take it where
    items are then found by dot product alone.

    outputs  (batch, 2, size), the `Stack()` of queries and items
    labels   (batch,) the items' numbers; if corrected (batch, 2), these and how often each occurs among the rows
    weights  (batch,) of rows as queries; as rivals all rows count alike

    "accuracy" is the share of queries whose own item has the largest score. Rows by themselves have no such loss, so
    `evaluate` and `score_rows` refuse it.

    Parameters
    ----------
    temperature : float, default 1
        Divides the scores; 0.05 to 0.2 is usual for vectors of length 1.
    corrected : bool, default False
        Whether a label is (item, how often it occurs), any multiple of that, such as its share, and scores are
        corrected by it.
    """

    temperature: float = 1.0
    corrected: bool = field(default=False, kw_only=True)
    metric = "accuracy"
    whole_batch = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "(0, inf)", "temperature")

    def labels_a_row(self, output_shape: tuple[int, ...]) -> int:
        return 2 if self.corrected else 1

    def encode(self, labels: np.ndarray[Any, Any], output_shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        if labels.ndim == 1 and self.corrected:
            raise ValueError(
                "InBatchSoftmax(corrected=True) takes 2 labels a row, the item and how often it occurs, received 1; "
                "give both as an array, or leave corrected out."
            )
        encoded = super().encode(labels, output_shape)
        if self.corrected and len(wrong := encoded[encoded[:, 1] <= 0]):
            raise ValueError(
                "The second label of InBatchSoftmax(corrected=True) is how often the item occurs and must be above 0, "
                f"received {wrong[0, 1]:.15g}; count the item's rows."
            )
        return encoded

    def check(self, output_shape: tuple[int, ...]) -> None:
        if len(output_shape) != 2 or output_shape[0] != 2:
            raise ValueError(
                f"InBatchSoftmax needs a network ending in rows of shape (2, size), this one ends in "
                f"{tuple(output_shape)}; put Stack() of the two towers at its end."
            )

    def targets(self, outputs: Array, labels: Array) -> Array:
        return labels.reshape(len(outputs), -1)

    def losses(self, outputs: Array, targets: Array) -> Array:
        return self._losses(outputs, targets, jnp.ones(len(outputs), outputs.dtype))

    @partial(jax.jit, static_argnums=0)
    def value(self, outputs: Array, labels: Array, weights: Array) -> Array:
        return _total(self._losses(outputs, labels, weights), weights)

    @partial(jax.jit, static_argnums=0)
    def delta(self, outputs: Array, labels: Array, weights: Array) -> Array:
        counted = jnp.where((weights != 0)[:, None, None], outputs, 0)  # a row of weight 0 may hold anything
        return jax.grad(lambda rows: _total(self._losses(rows, labels, weights), weights))(counted)

    @partial(jax.jit, static_argnums=0)
    def metric_sum(self, outputs: Array, labels: Array, weights: Array) -> Array:
        scores = self._scores(outputs, labels, weights)
        numbers = labels.reshape(len(outputs), -1)[:, 0]
        best = numbers[scores.argmax(axis=1)] == numbers
        return _total(best.astype(outputs.dtype), weights)

    def _losses(self, outputs: Array, labels: Array, weights: Array) -> Array:
        scores = self._scores(outputs, labels, weights)
        return jax.nn.logsumexp(scores, axis=1) - jnp.diagonal(scores)

    def _scores(self, outputs: Array, labels: Array, weights: Array) -> Array:
        """Of every query with every item, (batch, batch); -inf for those that are no rivals."""
        queries, items = outputs[:, 0], outputs[:, 1]
        scores = queries @ items.T / self.temperature
        labels = labels.reshape(len(outputs), -1)
        numbers, rivals = labels[:, 0], (weights > 0)[None]
        if self.corrected:
            occurrences = jnp.where(weights > 0, labels[:, 1], 1)  # a row of weight 0 may hold anything
            scores = scores - jnp.log(occurrences).astype(scores.dtype)[None]
        else:
            rivals = rivals & (numbers[:, None] != numbers[None])
        return jnp.where(rivals | jnp.eye(len(outputs), dtype=bool), scores, -jnp.inf)


def _total(values: Array, weights: Array) -> Array:
    weights = weights.astype(values.dtype)
    return jnp.where(weights != 0, weights * values, 0).sum()
