"""Layers side by side: a body with a connection around it, and branches that are merged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

from sparkdl.layers.base import Layer
from sparkdl.layers.chain import Chain, hold_layers, names_of
from sparkdl.layers.composite import Child, Composite
from sparkdl.layers.merge import Add, Concatenate


@dataclass(frozen=True)
class Residual(Composite):
    """y = layers(x) + shortcut(x) (He et al. 2016, "Deep residual learning for image recognition").

    x        (batch, *input_shape)       dx  (batch, *input_shape)   dL/dx
    y        (batch, *output_shape)      dy  (batch, *output_shape)  dL/dy
    weights  {"body": {layer name: ...}, "shortcut": {layer name: ...}}

    An activation after the sum, as He et al. have it, is the next layer of the network.

    Parameters
    ----------
    layers : sequence of Layer
        The body, from input to output.
    shortcut : sequence of Layer, default ()
        What x goes through beside it where the body changes its shape; by default nothing.

    Examples
    --------
    >>> from sparkdl import Network
    >>> from sparkdl.layers import BatchNorm, Conv, Relu, Residual
    >>> body = [Conv(16, (3, 3), padding="same"), BatchNorm(), Relu(), Conv(16, (3, 3), padding="same"), BatchNorm()]
    >>> Network([Conv(16, (3, 3)), Residual(body), Relu()], input_shape=(8, 8, 3)).output_shape()
    (6, 6, 16)
    """

    layers: Sequence[Layer]
    shortcut: Sequence[Layer] = ()

    def __post_init__(self) -> None:
        hold_layers(self, "layers")
        hold_layers(self, "shortcut", least=0)
        super().__post_init__()

    @cached_property
    def children(self) -> tuple[Child, ...]:
        body = Child("body", Chain(self.layers), (0,))
        if not self.shortcut:
            return body, Child("sum", Add(), (1, 0))
        return body, Child("shortcut", Chain(self.shortcut), (0,)), Child("sum", Add(), (1, 2))

    def replaced(self, layers: Mapping[str, Layer]) -> Self:
        sides = {child.name: layers.get(child.name, child.layer) for child in self.children}
        body, shortcut = (_layers_of(sides[name]) if name in sides else () for name in ("body", "shortcut"))
        return replace(self, layers=body, shortcut=shortcut)

    def _subject(self, index: int) -> str:
        return {"body": "layers", "shortcut": "shortcut", "sum": "layers and shortcut"}[self.names[index]]


@dataclass(frozen=True)
class Parallel(Composite):
    """Branches that all read x, and a layer that merges what they put out.

    x        (batch, *input_shape)       dx  (batch, *input_shape)   dL/dx
    y        (batch, *output_shape)      dy  (batch, *output_shape)  dL/dy
    weights  {branch name: ...}; the merging layer's are under "merge", if it has any

    Parameters
    ----------
    branches : sequence of Layer
        Two or more; a branch of several layers is a Network. Their names are their own or their type and position.
    merge : Layer, default Concatenate()
        Given a tuple of what the branches put out, in order.

    Examples
    --------
    >>> from sparkdl import Network
    >>> from sparkdl.layers import Conv, Parallel
    >>> wide_and_narrow = Parallel([Conv(4, (1, 1)), Conv(8, (3, 3), padding="same")])
    >>> Network([wide_and_narrow], input_shape=(8, 8, 3)).output_shape()
    (8, 8, 12)
    """

    branches: Sequence[Layer]
    merge: Layer = Concatenate()

    def __post_init__(self) -> None:
        hold_layers(self, "branches", least=2)
        if not isinstance(self.merge, Layer):
            raise ValueError(f"merge of Parallel must be a Layer, received {self.merge!r}; write Add() or the like.")
        super().__post_init__()

    @cached_property
    def children(self) -> tuple[Child, ...]:
        branches = [
            Child(name, branch, (0,)) for name, branch in zip(names_of(self.branches), self.branches, strict=True)
        ]
        return *branches, Child("merge", self.merge, tuple(range(1, len(branches) + 1)))

    def replaced(self, layers: Mapping[str, Layer]) -> Self:
        *branches, merge = (layers.get(child.name, child.layer) for child in self.children)
        return replace(self, branches=branches, merge=merge)


def _layers_of(chain: Layer) -> Sequence[Layer]:
    assert isinstance(chain, Chain)
    return chain.layers
