"""A network in the making: layers with their weights, and in which order of numbers each reads what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sparkdl.interchange.onnx_in.folding import check_whole
from sparkdl.interchange.onnx_in.onnx_file import Operator
from sparkdl.interchange.onnx_in.views import Form, Value
from sparkdl.layers.base import Layer, Weights


@dataclass(frozen=True)
class Node:
    """A layer, and what it reads.

    Attributes
    ----------
    layer : Layer
    sources : tuple of (Value, Form)
        Each with the form, of its parts, that the layer is to be given.
    ours : Form
        Of what the layer puts out.
    weights : dict of arrays
        The layer's.
    operator : Operator
        Of which it is made.
    """

    layer: Layer
    sources: tuple[tuple[Value, Form], ...]
    ours: Form
    weights: Weights
    operator: Operator


@dataclass(frozen=True)
class Unfinished:
    """In place of a layer, what is none by itself, but may become one together with what reads it.

    Attributes
    ----------
    what : str
        What it is.
    values : tuple of Value
        What it reads.
    told : dict
        Further things that who reads it must know.
    operator : Operator
        Of which it is made.
    """

    what: str
    values: tuple[Value, ...]
    told: Mapping[str, Any]
    operator: Operator


@dataclass
class Assembly:
    """Nodes in the order of computation.

    Attributes
    ----------
    inputs : dict
        By name the form of each input.
    nodes : dict of Node or Unfinished
        By a number of their own.
    readers : dict of int
        How many operators of the file read an array of it; that it is an output counts as one.
    """

    readers: Mapping[str, int]
    inputs: dict[str, Form] = field(default_factory=dict)
    nodes: dict[str, Node | Unfinished] = field(default_factory=dict)

    def put(
        self,
        operator: Operator,
        layer: Layer,
        sources: Sequence[tuple[Value, Form]],
        ours: Form,
        theirs: Form,
        weights: Weights | None = None,
    ) -> Value:
        """What a new node puts out, its parts in the axes `ours`, of which the file makes `theirs`."""
        return Value(self._kept(Node(layer, tuple(sources), ours, weights or {}, operator)), ours, theirs)

    def each(self, operator: Operator, layer: Layer, value: Value, weights: Weights | None = None) -> Value:
        """What a new node puts out that takes each number by itself, or with the channels, and keeps all in place."""
        return self.put(operator, layer, [(value, value.ours)], value.ours, value.theirs, weights)

    def leave(self, operator: Operator, what: str, values: Sequence[Value], theirs: Form, **told: Any) -> Value:
        """What stands for something that is no layer yet."""
        return Value(self._kept(Unfinished(what, tuple(values), told, operator)), theirs, theirs)

    def node(self, value: Value) -> Node | None:
        """The node that puts it out; None of an input, or of what is unfinished."""
        node = self.nodes.get(value.node)
        return node if isinstance(node, Node) else None

    def is_finished(self, value: Any) -> bool:
        """Whether it is an input or what a layer puts out."""
        return isinstance(value, Value) and not isinstance(self.nodes.get(value.node), Unfinished)

    def unfinished(self, value: Value, what: str) -> Unfinished | None:
        """What it stands for, if that is `what`."""
        node = self.nodes.get(value.node)
        return node if isinstance(node, Unfinished) and node.what == what else None

    def _kept(self, node: Node | Unfinished) -> str:
        name = f"#{len(self.nodes)}"  # until it is known which nodes are left
        self.nodes[name] = node
        return name


def float32(array: Any) -> np.ndarray[Any, Any]:
    """An array of weights as such, in memory of its own."""
    return np.array(check_whole(np.asarray(array)), np.float32, order="C")
