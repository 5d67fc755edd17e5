"""Gradients left as factors until all rows of a step are at hand, and rows of a table that few of a batch name.

The gradient x.T @ dy of a kernel of shape (inputs, outputs) is a sum over rows. While a step adds up parts of a batch,
it is cheaper to collect the rows of x and dy and to multiply once; and workers may exchange rows instead of products
where these are fewer numbers (Xie et al. 2015, "Distributed machine learning via sufficient factor broadcasting").
A table's gradient is such a product too, of rows that are 1 at one place: the numbers of these places will do, and
where they are few, only the rows of the table that they name need be touched at all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
from jax import Array

from sparkdl.arrays import INTEGERS
from sparkdl.layers.products import transposed_product

MOST_ROWS = 1 << 24  # of a table whose rows are left apart: their numbers travel as float32


class Factored(NamedTuple):
    """The matrix rows.T @ slopes.

    Attributes
    ----------
    rows : Array, shape (batch, inputs)
    slopes : Array, shape (batch, outputs)
    """

    rows: Array
    slopes: Array

    def product(self) -> Array:
        """The matrix itself, (inputs, outputs)."""
        return transposed_product(self.rows, self.slopes)

    @property
    def shape(self) -> tuple[int, int]:
        """The matrix's."""
        return self.rows.shape[1], self.slopes.shape[1]

    def scaled(self, factor: Array) -> Self:
        """The matrix times a number."""
        return self._replace(slopes=self.slopes * factor)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TableRows:
    """The matrix (rows, size) whose row `i` is the sum of the slopes with `ids == i`; other ids have none.

    Attributes
    ----------
    ids : Array, shape (batch,)
    slopes : Array, shape (batch, size)
    rows : int
    lazy : bool
        Whether rows of the table that have no slope, or one of 0, are to be told from those that have one.
    """

    ids: Array
    slopes: Array
    rows: int = field(metadata={"static": True})
    lazy: bool = field(default=False, metadata={"static": True})

    @classmethod
    def of(cls, matrix: Array) -> TableRows:
        """That of which a matrix is the product, lazy."""
        return cls(jnp.arange(len(matrix), dtype=INTEGERS), matrix, len(matrix), lazy=True)

    def product(self) -> Array:
        """The matrix itself."""
        return self.add_to(jnp.zeros(self.shape, self.slopes.dtype))

    @property
    def shape(self) -> tuple[int, int]:
        """The matrix's."""
        return self.rows, self.slopes.shape[1]

    def scaled(self, factor: Array) -> TableRows:
        """The matrix times a number."""
        return replace(self, slopes=self.slopes * factor)

    def merged(self) -> TableRows:
        """The same with ids that ascend and differ, but for those of no row at the end, whose slopes are zeros.

        Of a lazy one, ids with slopes of 0 are of no row: what fills up a batch has the number of one.
        """
        inside = (self.ids >= 0) & (self.ids < self.rows)
        inside = inside & (self.slopes != 0).any(axis=1) if self.lazy else inside
        order = jnp.argsort(jnp.where(inside, self.ids, self.rows), stable=True)
        ids = jnp.where(inside, self.ids, self.rows)[order]
        place = jnp.cumsum(jnp.append(False, ids[1:] != ids[:-1]), dtype=ids.dtype)
        slopes = jax.ops.segment_sum(self.slopes[order], place, len(ids), indices_are_sorted=True)
        distinct = jnp.full_like(ids, self.rows).at[place].set(ids, indices_are_sorted=True)
        return replace(self, ids=distinct, slopes=jnp.where((distinct < self.rows)[:, None], slopes, 0))

    def add_to(self, table: Array) -> Array:
        """The sum of an array (rows, size) and the matrix."""
        return table.at[self.ids].add(self.slopes, mode="drop")

    def taken(self, table: Array) -> Array:
        """The rows of an array (rows, size) that the ids name, and NaN for those of no row."""
        return rows_at(table, self.ids)

    def put(self, table: Array, values: Array) -> Array:
        """The array with other values in the rows that `merged` ids name."""
        return table.at[self.ids].set(values, mode="drop", indices_are_sorted=True)


def rows_at(table: Array, ids: Array) -> Array:
    """The rows of an array (rows, size) that ids of any shape name, and NaN for those of no row."""
    inside = (ids >= 0) & (ids < len(table))
    one, zero = (jnp.where(inside, number, jnp.nan).astype(table.dtype)[..., None] for number in (1, 0))
    # Not `mode="fill"`: with nothing to compute, XLA on a CPU unrolls rows of up to 75 numbers into copies one
    # by one, and few rows are on their way from memory at once. 4,096 of 64, out of 1,000,000, take 0.45 ms, 0.08 so.
    return table.at[ids].get(mode="clip") * one + zero


def is_factored(part: Any) -> bool:
    """Whether `part` of a tree is one of these."""
    return isinstance(part, (Factored, TableRows))


def is_table_rows(part: Any) -> bool:
    """Whether `part` of a tree is rows of a table."""
    return isinstance(part, TableRows)


def map_factored(function: Callable[[Any], Any], tree: Any) -> Any:
    """The tree with `function` of every one of these in its place, arrays as they are."""
    return jax.tree.map(lambda part: function(part) if is_factored(part) else part, tree, is_leaf=is_factored)


def added(one: Any, other: Any) -> Any:
    """The sum of two trees of one structure; that of two factored matrices has the rows of both.

    Where one of the two is factored alone, as of a table that is read by number and multiplied with, the sum is not.
    """

    def both(one: Any, other: Any) -> Any:
        if is_factored(one) and is_factored(other):
            return jax.tree.map(lambda *parts: jnp.concatenate(parts), one, other)
        one, other = (part.product() if is_factored(part) else part for part in (one, other))
        return one + other

    return jax.tree.map(both, one, other, is_leaf=is_factored)


def multiplied(tree: Any) -> Any:
    """The tree with every matrix itself in its place."""
    return map_factored(lambda pair: pair.product(), tree)
