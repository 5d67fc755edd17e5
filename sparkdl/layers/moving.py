"""Which layers of a network move what is in an image in training, on the way to one of its outputs, and how."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeGuard

from sparkdl.layers.augmentation import RandomImageLayer
from sparkdl.layers.base import Layer
from sparkdl.layers.composite import Composite
from sparkdl.moves import Move


def moving_layers(network: Composite, exit: int) -> dict[str, RandomImageLayer]:
    """Those that an output depends on, by path and in the order of computation.

    Parameters
    ----------
    network : Composite
    exit : int
        The output, as of `exits`.

    Raises
    ------
    ValueError
        Two of them are not one behind the other, so that what is in the image has no one place.
    """
    found: dict[str, RandomImageLayer] = {}
    before: int | None = None
    for index in _needed_for(network, exit):
        child = network.children[index]
        own: dict[str, RandomImageLayer] = {}
        if isinstance(child.layer, RandomImageLayer) and child.layer.moves:
            own = {child.name: child.layer}
        elif _keeps_of_children(child.layer):
            inner = moving_layers(child.layer, child.layer.exits[0])
            own = {f"{child.name}/{path}": layer for path, layer in inner.items()}
        if own:
            if before is not None and before not in _needed_for(network, network.entries + index):
                raise ValueError(
                    f"{list(found)[-1]!r} and {next(iter(own))!r} each move what is in an image, but neither reads "
                    "what the other gives, so that labels which name places cannot follow both; put both before the "
                    "layers that part."
                )
            before = index
        found |= own
    return found


def moves_of(network: Composite, exit: int, kept: Any) -> Iterator[Move]:
    """How each of `moving_layers` moved the rows of a step, from what `train_forward` kept."""
    for index in _needed_for(network, exit):
        layer, (x, _, own) = network.children[index].layer, kept[index]
        if isinstance(layer, RandomImageLayer) and layer.moves:
            yield layer.move(own, x.shape[1:3])
        elif _keeps_of_children(layer):
            yield from moves_of(layer, layer.exits[0], own)


def _needed_for(network: Composite, value: int) -> list[int]:
    """The children on which a value depends, counted as `Child.sources` are, in the order of computation."""
    needed = {value}
    for index, child in reversed(list(enumerate(network.children, network.entries))):
        if index in needed:
            needed.update(child.sources)
    return [index - network.entries for index in sorted(needed) if index >= network.entries]


def _keeps_of_children(layer: Layer) -> TypeGuard[Composite]:
    """Whether it is made of layers that each get the image, and keeps what they keep."""
    return isinstance(layer, Composite) and type(layer).train_forward is Composite.train_forward
