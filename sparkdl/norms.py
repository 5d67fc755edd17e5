"""The rules of optax that need norms of whole arrays, for workers that hold a part of every array each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array, lax


def clip_norm(limit: float, axis: str | None) -> optax.GradientTransformation:
    """Bound the Euclidean norm of the whole gradient.

    Parameters
    ----------
    limit : float
    axis : str or None
        The mesh axis over which arrays are cut, inside whose program this runs; None where they are whole.
    """
    if axis is None:
        return optax.clip_by_global_norm(limit)
    return optax.stateless(lambda gradients, weights: _shortened(gradients, _squares(gradients, axis), limit))


def clip_layer_norms(limit: float, axis: str | None) -> optax.GradientTransformation:
    """Bound that of each innermost dict of arrays. See `clip_norm`."""
    if axis is None:
        clip = optax.clip_by_global_norm(limit)
        return optax.stateless(
            lambda gradients, weights: _of_layers(lambda own: clip.update(own, optax.EmptyState())[0], gradients)
        )
    return optax.stateless(
        lambda gradients, weights: _of_layers(
            lambda own, squares: _shortened(own, squares, limit), gradients, _squares(gradients, axis)
        )
    )


def clip_array_norms(limit: float, axis: str | None) -> optax.GradientTransformation:
    """Bound that of each array. See `clip_norm`."""
    return optax.stateless(
        lambda gradients, weights: jax.tree.map(
            lambda array, square: _shortened(array, square, limit), gradients, _squares(gradients, axis)
        )
    )


def normalize_layers(axis: str | None) -> optax.GradientTransformation:
    """Divide each innermost dict of arrays by its norm, unless that is 0. See `clip_norm`."""
    return optax.stateless(lambda gradients, weights: _of_layers(_normalized, gradients, _squares(gradients, axis)))


def normalize_arrays(axis: str | None) -> optax.GradientTransformation:
    """Divide each array by its norm, unless that is 0. See `clip_norm`."""
    return optax.stateless(lambda gradients, weights: jax.tree.map(_normalized, gradients, _squares(gradients, axis)))


def scale_by_trust_ratio(axis: str | None) -> optax.GradientTransformation:
    """Scale each array's step to the norm of its weights; a norm of 0 scales nothing. See `clip_norm`."""
    if axis is None:
        return optax.scale_by_trust_ratio()

    def scaled(steps: Any, weights: Any) -> Any:
        def ratio(step: Array, of_step: Array, of_weights: Array) -> Array:
            zero = (of_step == 0) | (of_weights == 0)
            return step * jnp.where(zero, 1, jnp.sqrt(of_weights) / jnp.sqrt(jnp.where(zero, 1, of_step)))

        return jax.tree.map(ratio, steps, *_squares((steps, weights), axis))

    return optax.stateless(scaled)


def _squares(tree: Any, axis: str | None) -> Any:
    """The squared norm of every array in its place, over the parts of all workers: one collective for all of them."""
    leaves, structure = jax.tree.flatten(tree)
    if axis is None or not leaves:
        return jax.tree.map(lambda leaf: jnp.sum(leaf * leaf), tree)
    return jax.tree.unflatten(structure, list(lax.psum(jnp.stack([jnp.sum(leaf * leaf) for leaf in leaves]), axis)))


def _shortened(tree: Any, squares: Any, limit: float) -> Any:
    """The tree with a norm of at most `limit`, as optax does it."""
    norm = jnp.sqrt(sum(jax.tree.leaves(squares)))
    return jax.tree.map(lambda leaf: jnp.where(norm < limit, leaf, leaf / norm.astype(leaf.dtype) * limit), tree)


def _normalized(tree: Any, squares: Any) -> Any:
    """The tree with a norm of 1, or 0 if it has that."""
    norm = jnp.sqrt(sum(jax.tree.leaves(squares)))
    return jax.tree.map(lambda leaf: leaf / jnp.where(norm > 0, norm, 1).astype(leaf.dtype), tree)


def _of_layers(function: Callable[..., Any], *trees: Any) -> dict[str, Any]:
    """`function` of every innermost dict of the trees, in its place."""
    first = trees[0]
    arrays = [{name: tree[name] for name, value in first.items() if not isinstance(value, dict)} for tree in trees]
    own = function(*arrays) if arrays[0] else {}
    return {
        name: _of_layers(function, *(tree[name] for tree in trees)) if isinstance(value, dict) else own[name]
        for name, value in first.items()
    }
