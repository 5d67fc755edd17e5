"""Weights that begin where another training ended."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from sparkdl.layers.base import Weights


def shared_layers(expected: Weights, initial: Weights) -> list[str]:
    """The layers that a network, of weights like `expected`, can take from `initial`; only shapes are looked at.

    Raises
    ------
    ValueError
        They are no dict, there are none, or a layer's arrays have other names or shapes.
    """
    if not isinstance(initial, Mapping):
        raise ValueError(
            f"The initial weights must be a dict by name of the layer, as init gives, received {initial!r}."
        )
    shared = [name for name in expected if name in initial]
    if not shared:
        raise ValueError(
            f"The initial weights are of layers {', '.join(initial) or 'of no name'}, none of which the network has "
            f"(those with weights: {', '.join(expected) or 'none'}); give the layers to start from the same names."
        )
    for name in shared:
        wanted, given = _shapes(expected[name]), _shapes(initial[name])
        for array in sorted(wanted.keys() | given.keys()):
            want, have = wanted.get(array, "nothing"), given.get(array, "nothing")
            if want != have:
                raise ValueError(
                    f"Layer {name!r}: the network has {want} as its {array or 'array'}, "
                    f"the initial weights have {have}; "
                    "to start the layer afresh give it a name of its own, as in Dense(3, name='head')."
                )
    return shared


def started_from(fresh: Weights, initial: Weights) -> Weights:
    """`fresh` weights with the layers of `initial` in place of their own, in the dtype of `fresh`.

    Layers that `initial` lacks stay fresh, and layers of `initial` that `fresh` lacks are left out.

    Raises
    ------
    ValueError
        As `shared_layers`.
    """
    taken = {
        name: jax.tree.map(lambda own, new: jnp.asarray(new, own.dtype), fresh[name], initial[name])
        for name in shared_layers(fresh, initial)
    }
    return {**fresh, **taken}


def _shapes(weights: Weights) -> dict[str, tuple[int, ...]]:
    """Shapes by path, such as "kernel"; nested networks have longer paths."""
    leaves, _ = jax.tree.flatten_with_path(weights)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): np.shape(leaf) for path, leaf in leaves}
