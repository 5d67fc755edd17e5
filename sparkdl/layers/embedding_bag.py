"""Bags of categories: rows of any number of them, as what a user has bought, each row as one vector."""

from __future__ import annotations

from dataclasses import dataclass, field

import jax.numpy as jnp

from sparkdl.layers.base import Array, Shape, Weights, jitted
from sparkdl.layers.embedding import Embedding, HashedEmbedding
from sparkdl.layers.factored import TableRows
from sparkdl.layers.ragged import Ragged, as_ragged

MODES = ("mean", "sum")


@dataclass(frozen=True)
class EmbeddingBag(Embedding):
    """The mean, or the sum, of the learned vectors of a row's categories; zeros for a row without any.

    x  Ragged of int32, (batch, steps) and (batch,), or (batch, n) of int32       dx  none
    y  (batch, size)                                                              dy  (batch, size)   dL/dy
       table (rows, size), one row more with `unknown`

    Parameters
    ----------
    mode : str, default "mean"
        Or "sum".

    Notes
    -----
    It takes inputs of shape (None,), which hold any number of categories a row, and (n,). All else is as of
    `Embedding`: categories that are not in the table, and that a step touches only the rows that its batch names.

    Examples
    --------
    >>> from sparkdl import Network
    >>> from sparkdl.layers import Dense, EmbeddingBag
    >>> Network([EmbeddingBag(9000, 32), Dense(1)], input_shape=(None,)).output_shape()
    (1,)
    """

    each_step = False

    mode: str = field(default="mean", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mode not in MODES:
            raise ValueError(
                f"mode of {type(self).__name__} must be {' or '.join(map(repr, MODES))}, received {self.mode!r}."
            )

    @property
    def takes_ragged(self) -> bool:
        return True

    def output_shape(self, input_shape: Shape) -> Shape:
        if len(input_shape) != 1:
            raise ValueError(
                f"{type(self).__name__} expects rows of categories, of shape (None,) or (n,), received {input_shape}."
            )
        return (self.size,)

    @jitted
    def forward(self, weights: Weights, x: Array | Ragged) -> Array:
        bags = as_ragged(x)
        vectors = Embedding.forward(self, weights, jnp.where(bags.valid, bags.values, 0))
        total = jnp.where(bags.valid[..., None], vectors, 0).sum(axis=1)
        return self._shared_out(total, bags)

    gradient = Embedding.gradient
    train_forward, train_gradient = Embedding.train_forward, Embedding.train_gradient

    def _rows_of(self, x: Array | Ragged, dy: Array) -> TableRows:
        """Padding has the number of no row."""
        bags = as_ragged(x)
        ids = jnp.where(bags.valid, self._ids(bags.values), self._every_row)
        slopes = jnp.broadcast_to(self._shared_out(dy, bags)[:, None], (*ids.shape, self.size))
        return TableRows(ids.reshape(-1), slopes.reshape(-1, self.size), self._every_row)

    def _shared_out(self, rows: Array, bags: Ragged) -> Array:
        """Rows (batch, size), of a mean each divided by how many vectors it is of."""
        if self.mode == "sum":
            return rows
        return rows / jnp.maximum(jnp.asarray(bags.lengths), 1).astype(rows.dtype)[:, None]


@dataclass(frozen=True)
class HashedEmbeddingBag(HashedEmbedding, EmbeddingBag):
    """An EmbeddingBag of any integers, or of strings, each hashed to one of the rows as of HashedEmbedding.

    A column of `array<string>` needs no index: workers hash its strings; nor does one of strings with a `split`.
    """
