"""Transfer learning: networks made of parts of others, and weights that begin where another training ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from sparkdl.layers.base import Layer, Weights

if TYPE_CHECKING:
    from sparkdl.network import Network


def frozen(network: Network, *names: str, until: str | None = None) -> Network:
    """The same network with some layers' weights held fixed in training; every layer keeps its name.

    Parameters
    ----------
    network : Network
    *names : str
        Layers to freeze, such as "conv_0"; a network within the network is frozen as a whole.
    until : str, optional
        Freeze this layer, too, and all before it.

    Raises
    ------
    ValueError
        There is no such layer, or none is named.
    """
    if not names and until is None:
        raise ValueError('frozen expects names of layers or until=..., received neither; write frozen("conv_0").')
    chosen = {_position(network, name) for name in names}
    if until is not None:
        chosen |= set(range(_position(network, until) + 1))
    layers = [replace(layer, trainable=False) if i in chosen else layer for i, layer in enumerate(network.layers)]
    return replace(network, layers=layers)


def up_to(network: Network, name: str) -> Network:
    """The layers through `name`, as a network of their own that makes features of the same rows.

    Raises
    ------
    ValueError
        There is no such layer.
    """
    return replace(network, layers=network.layers[: _position(network, name) + 1])


def with_head(network: Network, layers: Sequence[Layer], after: str) -> Network:
    """The layers through `after`, which keep their names and so their weights, then new ones.

    Parameters
    ----------
    network : Network
        With an `input_shape`.
    layers : sequence of Layer
        The new ones. One with weights needs a `name` where its position would give it that of a layer it replaces.
    after : str
        The last layer to keep.

    Raises
    ------
    ValueError
        There is no such layer, the new ones do not fit it, or one would take the weights of a layer it replaces.
    """
    if not isinstance(layers, (list, tuple)):
        raise ValueError(f"layers of with_head must be a list of layers, received {layers!r}; write [...] around it.")
    kept = _position(network, after) + 1
    changed = replace(network, layers=[*network.layers[:kept], *layers], trainable=True)
    replaced = network.abstract_weights().keys() & changed.abstract_weights().keys() - set(network.names[:kept])
    for name, layer in zip(changed.names[kept:], layers, strict=True):
        if layer.name is None and name in replaced:
            kind = type(layer).__name__
            raise ValueError(
                f"The new {kind} would be called {name!r}, as a layer that it replaces is, and so take its weights; "
                f"give it a name of its own, as in {kind}(..., name='head')."
            )
    return changed


def shared_layers(expected: Weights, initial: Weights) -> list[str]:
    """The layers that a network, of weights like `expected`, can take from `initial`; only shapes are looked at.

    Raises
    ------
    ValueError
        There are none, or a layer's arrays have other names or shapes.
    """
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


def _position(network: Network, name: str) -> int:
    if name not in network.names:
        raise ValueError(f"The network has no layer {name!r}; its layers are {', '.join(network.names)}.")
    return network.names.index(name)


def _shapes(weights: Weights) -> dict[str, tuple[int, ...]]:
    """Shapes by path, such as "kernel"; nested networks have longer paths."""
    leaves, _ = jax.tree.flatten_with_path(weights)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): np.shape(leaf) for path, leaf in leaves}
