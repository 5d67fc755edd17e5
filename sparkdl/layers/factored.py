"""A dense kernel's gradient, left as its two factors until all rows of a step are at hand.

The gradient x.T @ dy of a kernel of shape (inputs, outputs) is a sum over rows. While a step adds up parts of a batch,
it is cheaper to collect the rows of x and dy and to multiply once; and workers may exchange rows instead of products
where these are fewer numbers (Xie et al. 2015, "Distributed machine learning via sufficient factor broadcasting").
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array


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
        return self.rows.T @ self.slopes


def is_factored(part: Any) -> bool:
    """Whether `part` of a tree is such a pair."""
    return isinstance(part, Factored)


def map_factored(function: Callable[[Factored], Any], tree: Any) -> Any:
    """The tree with `function` of every pair in its place, arrays as they are."""
    return jax.tree.map(lambda part: function(part) if is_factored(part) else part, tree, is_leaf=is_factored)


def added(one: Any, other: Any) -> Any:
    """The sum of two trees of one structure; that of two pairs is a pair with the rows of both."""

    def both(one: Any, other: Any) -> Any:
        return (
            Factored(*(jnp.concatenate(each) for each in zip(one, other, strict=True)))
            if is_factored(one)
            else one + other
        )

    return jax.tree.map(both, one, other, is_leaf=is_factored)


def multiplied(tree: Any) -> Any:
    """The tree with every pair's matrix in its place."""
    return map_factored(Factored.product, tree)
