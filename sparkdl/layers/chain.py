"""Layers in a row: how they are held, named and described."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

from sparkdl.layers.base import Layer
from sparkdl.layers.composite import Child, Composite

LONG = 60  # letters of a composite that is told by the number of its layers
COUNTS = ("none", "one layer", "two layers")


@dataclass(frozen=True)
class Chain(Composite):
    """Layers in a row, the output of each being the input of the next.

    Parameters
    ----------
    layers : sequence of Layer
        In order from input to output; their names are their own or their type and position, as in "conv_0".
    """

    layers: Sequence[Layer]

    def __post_init__(self) -> None:
        hold_layers(self, "layers")
        super().__post_init__()

    @cached_property
    def children(self) -> tuple[Child, ...]:
        names = names_of(self.layers)
        for index, layer in enumerate(self.layers):
            check_shares(names[index], layer, names[:index])
        return tuple(
            Child(name, layer, (index,), layer.shares)
            for index, (name, layer) in enumerate(zip(names, self.layers, strict=True))
        )

    def replaced(self, layers: Mapping[str, Layer]) -> Self:
        return replace(self, layers=[layers.get(child.name, child.layer) for child in self.children])

    def _subject(self, index: int) -> str:
        return f"Layer {index} ({type(self.layers[index]).__name__})"


def hold_layers(owner: Layer, field: str, least: int = 1) -> None:
    """Check a field of `owner` that holds layers, and freeze them if `owner` is frozen.

    Raises
    ------
    ValueError
        It is no list or tuple of at least `least` layers.
    """
    layers, kind = getattr(owner, field), type(owner).__name__
    if isinstance(layers, Layer) or not isinstance(layers, (list, tuple)):
        raise ValueError(f"{field} of {kind} must be a list of layers, received {layers!r}.")
    for index, layer in enumerate(layers):
        if not isinstance(layer, Layer):
            hint = f"; write {layer.__name__}(...)" if isinstance(layer, type) else ""
            raise ValueError(f"Layer {index} of the network must be a Layer, received {layer!r}{hint}.")
    if len(layers) < least:
        raise ValueError(f"{field} of {kind} must hold at least {COUNTS[least]}, received {COUNTS[len(layers)]}.")
    if not owner.trainable:
        layers = [replace(layer, trainable=False) for layer in layers]
    object.__setattr__(owner, field, tuple(layers))


def check_shares(name: str, layer: Layer, before: Collection[str]) -> None:
    """ValueError if a layer of that name uses the weights of one that is not among those before it."""
    if layer.shares and layer.shares not in before:
        known = f"; those are {', '.join(before)}" if before else ""
        raise ValueError(
            f"Layer {name!r} is to share the weights of {layer.shares!r}, which is no layer before it{known}."
        )


def names_of(layers: Sequence[Layer]) -> tuple[str, ...]:
    """The layers' own names, or their types and positions: "conv_0"."""
    return tuple(layer.name or f"{snake_case(layer)}_{index}" for index, layer in enumerate(layers))


def snake_case(layer: Layer) -> str:
    """Its type, as a name: "dense" or "max_pool"."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(layer).__name__).lower()


def described(layer: Layer) -> str:
    """A layer's type and what differs from its defaults, as one line; of many layers within it only how many."""
    text = repr(layer)
    return f"{type(layer).__name__} of {_count(layer)} layers" if len(text) > LONG and _count(layer) > 1 else text


def _count(layer: Layer) -> int:
    return sum(_count(child.layer) for child in layer.children) if isinstance(layer, Composite) else 1
