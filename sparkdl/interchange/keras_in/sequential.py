"""Keras's Sequential models as networks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sparkdl.interchange.keras_in.described import Described, Names, all_described, groups_of, row_shape
from sparkdl.interchange.keras_in.part import Part, Variable
from sparkdl.layers.base import Layer, Shape
from sparkdl.network import Network

# A layer that reads rows of a shape.
Convert = Callable[[Described, Shape], Part]


def sequential(config: Any, convert: Convert, shape: Shape | None = None) -> Part:
    """A model whose layers stand in a row.

    Parameters
    ----------
    config : dict, or list as Keras's before 2.2.3
    convert : callable
        The part that a layer becomes.
    shape : tuple, optional
        Of the rows that it reads within another model.

    Returns
    -------
    Part
        A Network and the variables of all layers.
    """
    layers = all_described(config if isinstance(config, list) else config.get("layers"))
    groups = groups_of(layers)
    names, chain, variables = Names(), list[Layer](), list[Variable]()
    read: Any = _told(config, layers) if shape is None else shape
    start = read
    for layer in layers:
        if layer.kind == "InputLayer":
            continue
        part = convert(layer, read)
        made = names.of(layer, part)
        for name, one in made:
            chain.append(replace(one, name=name))
            read = layer.after(one, read)
        variables += layer.placed(part, made[0][0], groups[layer.name]) if made else []
    return Part((Network(chain, input_shape=start if shape is None else None),), tuple(variables))


def _told(config: Any, layers: list[Described]) -> Shape:
    """The shape of the rows that the model was built for."""
    if layers and layers[0].shape is not None:
        return layers[0].shape
    if isinstance(config, dict) and config.get("build_input_shape") is not None:
        return row_shape(config["build_input_shape"], "The model")
    raise ValueError("The model does not know the shape of its rows; begin it by keras.Input(shape) and save it again.")
