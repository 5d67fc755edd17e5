"""One vector of each sequence: the mean of its steps by weights that a layer learns to give them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import jax.numpy as jnp

from sparkdl.initializers import GlorotUniform, Initializer
from sparkdl.layers.base import Array, KernelLayer, Shape, Weights, jitted
from sparkdl.layers.products import transposed_product
from sparkdl.layers.ragged import Ragged, as_ragged, check_vectors
from sparkdl.specs import check_integers


class Attention(NamedTuple):
    """What the passes both ways need of every step; of padding, values and shares are 0.

    Attributes
    ----------
    values : Array, shape (batch, steps, inputs)
    hidden : Array, shape (batch, steps, units)
        tanh(values @ kernel + bias).
    shares : Array, shape (batch, steps)
        By which the steps count, whose sum over a row is 1.
    """

    values: Array
    hidden: Array
    shares: Array


@dataclass(frozen=True)
class AttentionPool(KernelLayer):
    """The mean of every sequence's steps, weighted by how much each matters (Yang et al. 2016).

    From "Hierarchical attention networks for document classification", equations 5 to 7::

        score[t] = tanh(x[t] @ kernel + bias) . query
        y        = sum over t of  share[t] x[t]   with   share = softmax over the row's own steps of score

    x        Ragged (batch, steps, inputs), or such an array     dx  array (batch, steps, inputs)   dL/dx
    y        (batch, inputs), zeros for a row without steps      dy  (batch, inputs)                dL/dy
    weights  kernel (inputs, units), bias (units,), query (units,)

    Parameters
    ----------
    units : int, optional
        Numbers that a step's score is made of; by default as many as a step has.
    bias : bool, default True
        Whether to add a learned bias before the tanh.
    kernel_initializer, bias_initializer : Initializer or str
        An initializer or its name; that of the kernel draws the query, too.
    l1, l2, constraint
        Of the kernel; see `KernelLayer`.

    Examples
    --------
    >>> from sparkdl import Network
    >>> from sparkdl.layers import AttentionPool, Bidirectional, Dense, Embedding, Gru
    >>> layers = [Embedding(10_000, 32), Bidirectional(Gru(16)), AttentionPool(), Dense(5)]
    >>> Network(layers, input_shape=(None,)).output_shape()
    (5,)
    """

    units: int | None = None
    kernel_initializer: Initializer | str = field(default=GlorotUniform(), kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integers(self, 1, "units")

    @property
    def takes_ragged(self) -> bool:
        return True

    def output_shape(self, input_shape: Shape) -> Shape:
        check_vectors("AttentionPool", input_shape)
        return input_shape[1:]

    def multiply_adds(self, input_shape: Shape) -> int:
        steps, inputs = input_shape
        units = self.units or inputs
        return (steps or 1) * (inputs * units + units + inputs)

    def init(self, key: Array, input_shape: Shape) -> Weights:
        units, (kernel_key, query_key) = self.units or input_shape[-1], jax.random.split(key)
        query = Initializer.of(self.kernel_initializer).sample(query_key, (units, 1))
        return self.init_kernel(kernel_key, (input_shape[-1], units)) | {"query": query[:, 0]}

    @jitted
    def forward(self, weights: Weights, x: Array | Ragged) -> Array:
        at = self._attention(weights, x)
        return (at.shares[:, :, None] * at.values).sum(axis=1)

    @jitted
    def delta(self, weights: Weights, x: Array | Ragged, y: Array, dy: Array) -> Array:
        at = self._attention(weights, x)
        _, dz = self._slopes(weights, at, y, dy)
        return at.shares[:, :, None] * dy[:, None] + dz @ weights["kernel"].T

    @jitted
    def gradient(self, weights: Weights, x: Array | Ragged, y: Array, dy: Array) -> Weights:
        at = self._attention(weights, x)
        dscore, dz = self._slopes(weights, at, y, dy)
        flat_dz = dz.reshape(-1, dz.shape[-1])
        gradient = {
            "kernel": transposed_product(at.values.reshape(-1, at.values.shape[-1]), flat_dz),
            "query": at.hidden.reshape(flat_dz.shape).T @ dscore.reshape(-1),
        }
        return gradient | ({"bias": flat_dz.sum(axis=0)} if self.bias else {})

    def _attention(self, weights: Weights, x: Array | Ragged) -> Attention:
        rows = as_ragged(x)
        values, valid = rows.cleared().values, rows.valid
        z = values @ weights["kernel"]
        hidden = jnp.tanh(z + weights["bias"][None, None] if self.bias else z)
        score = jnp.where(valid, hidden @ weights["query"], -jnp.inf)
        most = jnp.where(valid.any(axis=1), score.max(axis=1), 0)  # of no steps none: 0, so that exp(-inf) is 0
        powers = jnp.exp(score - most[:, None])
        total = powers.sum(axis=1)
        return Attention(values, hidden, powers / jnp.where(total > 0, total, 1)[:, None])

    def _slopes(self, weights: Weights, at: Attention, y: Array, dy: Array) -> tuple[Array, Array]:
        """dL/dscore, (batch, steps), and dL/dz of what the tanh is of, (batch, steps, units)."""
        dshare = (at.values * dy[:, None]).sum(axis=2)  # less what all shares of the row have together: y . dy
        dscore = at.shares * (dshare - (y * dy).sum(axis=1)[:, None])
        return dscore, dscore[:, :, None] * weights["query"][None, None] * (1 - at.hidden * at.hidden)
