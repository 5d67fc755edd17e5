"""Layers made of layers: which child reads what, and from that their weights, their passes and their names."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import jax

from sparkdl.layers.base import Array, Context, Layer, Shape, Weights, jitted
from sparkdl.places import place_of

COUNTS = ("none", "one layer", "two layers")


class Node(NamedTuple):
    """A child of a composite, and what it reads.

    Attributes
    ----------
    name : str
        Key of its weights, and its path.
    layer : Layer
    sources : tuple of int
        0 is the composite's x and `i + 1` what node `i`, an earlier one, puts out; several arrive as a tuple.
    """

    name: str
    layer: Layer
    sources: tuple[int, ...]


class Leaf(NamedTuple):
    """A layer that is not made of layers: its path, and the shapes of a row before and after it."""

    path: str
    layer: Layer
    before: Any
    after: Shape


@dataclass(frozen=True)
class Composite(Layer):
    """A layer made of layers; a subclass says by `nodes` of which, and what the last of them puts out is y.

    weights  {name of the node: its weights} for the nodes that have weights

    A frozen composite (trainable=False) holds frozen layers.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        slashed = [name for name in self.names if "/" in name]
        if slashed:
            raise ValueError(f"Layer names may not hold a slash, received {slashed[0]!r}.")
        doubled = sorted({name for name in self.names if self.names.count(name) > 1})
        if doubled:
            raise ValueError(f"Layer names must differ within a network, {doubled[0]!r} stands twice.")
        for node in self.nodes:
            if node.layer.takes_integers and not (node.sources == (0,) and self.takes_integers):
                raise ValueError(
                    f"Layer {node.name!r} reads integers, which only a network's input holds; have it read the input, "
                    "and no layer beside it that reads other numbers."
                )

    @property
    @abstractmethod
    def nodes(self) -> tuple[Node, ...]:
        """The children in the order of computation."""

    @property
    def takes_integers(self) -> bool:
        return all(node.layer.takes_integers for node in self.nodes if 0 in node.sources)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The nodes' names, in order; they are the keys of the weights."""
        return tuple(node.name for node in self.nodes)

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """The nodes' names, those of composites followed by the paths within: "block_1", "block_1/conv_0"."""
        nested = ((node.name, node.layer.paths if isinstance(node.layer, Composite) else ()) for node in self.nodes)
        return tuple(path for name, inner in nested for path in (name, *(f"{name}/{below}" for below in inner)))

    def check_paths(self, paths: Collection[str]) -> None:
        """ValueError naming the first of `paths` that leads to none of the layers."""
        unknown = sorted(set(paths) - set(self.paths))
        if unknown:
            raise ValueError(f"The network has no layer {unknown[0]!r}; its layers are {', '.join(self.paths)}.")

    def shapes(self, input_shape: Any) -> list[Any]:
        """Shapes of a row of x and of what every node puts out."""
        shapes = [input_shape]
        for index, node in enumerate(self.nodes):
            subject = self._subject(index)
            try:
                shapes.append(node.layer.output_shape(_read(shapes, node)))
            except ValueError as error:
                raise ValueError(f"{subject}: {error}{place_of(error)}") from None
            except Exception as error:  # of a user's own forward
                raise ValueError(f"{subject}: {type(error).__name__}: {error}{place_of(error)}") from error
        return shapes

    def leaves(self, input_shape: Any) -> Iterator[Leaf]:
        """Every layer at the bottom, in the order of computation."""
        shapes = self.shapes(input_shape)
        for node, after in zip(self.nodes, shapes[1:], strict=True):
            before = _read(shapes, node)
            if isinstance(node.layer, Composite):
                for leaf in node.layer.leaves(before):
                    yield leaf._replace(path=f"{node.name}/{leaf.path}")
            else:
                yield Leaf(node.name, node.layer, before, after)

    def output_shape(self, input_shape: Any) -> Shape:
        return self.shapes(input_shape)[-1]

    def multiply_adds(self, input_shape: Any) -> int:
        shapes = self.shapes(input_shape)
        return sum(node.layer.multiply_adds(_read(shapes, node)) for node in self.nodes)

    def init(self, key: Array, input_shape: Any) -> Weights:
        """Fresh weights, each node's from a key of its own."""
        shapes = self.shapes(input_shape)
        own = {
            node.name: node.layer.init(jax.random.fold_in(key, index), _read(shapes, node))
            for index, node in enumerate(self.nodes)
        }
        return {name: weights for name, weights in own.items() if weights}

    @jitted
    def forward(self, weights: Weights, x: Any) -> Array:
        values = [x]
        for node in self.nodes:
            values.append(node.layer.forward(weights.get(node.name, {}), _read(values, node)))
        return values[-1]

    def activations(self, weights: Weights, x: Any, paths: Collection[str]) -> tuple[Array, dict[str, Array]]:
        """y, and what the layers of these `paths` put out on the way; ValueError if one is none of the network's."""
        self.check_paths(paths)
        values, found = [x], dict[str, Array]()
        for node in self.nodes:
            inner = [path.removeprefix(f"{node.name}/") for path in paths if path.startswith(f"{node.name}/")]
            own, read = weights.get(node.name, {}), _read(values, node)
            if isinstance(node.layer, Composite) and inner:
                y, below = node.layer.activations(own, read, inner)
                found |= {f"{node.name}/{path}": value for path, value in below.items()}
            else:
                y = node.layer.forward(own, read)
            values.append(y)
            if node.name in paths:
                found[node.name] = y
        return values[-1], found

    def train_forward(self, weights: Weights, x: Any, context: Context) -> tuple[Array, Any]:
        values, kept = [x], []
        for index, node in enumerate(self.nodes):
            read = _read(values, node)
            y, own = node.layer.train_forward(weights.get(node.name, {}), read, context.at(index))
            values.append(y)
            kept.append((read, y, own))
        return values[-1], kept

    def train_outputs(self, kept: Any) -> Iterator[tuple[str, Array]]:
        """(path, y) of every layer at the bottom, from what `train_forward` kept."""
        for node, (_, y, own) in zip(self.nodes, kept, strict=True):
            if isinstance(node.layer, Composite):
                for path, value in node.layer.train_outputs(own):
                    yield f"{node.name}/{path}", value
            else:
                yield node.name, y

    def train_delta(self, weights: Weights, x: Any, y: Array, dy: Array, kept: Any, context: Context) -> Any:
        return self.train_backward(weights, x, y, dy, kept, context, True)[0]

    def train_gradient(self, weights: Weights, x: Any, y: Array, dy: Array, kept: Any, context: Context) -> Weights:
        return self.train_backward(weights, x, y, dy, kept, context, False)[1]

    def train_backward(
        self, weights: Weights, x: Any, y: Array, dy: Array, kept: Any, context: Context, wants_delta: bool
    ) -> tuple[Any, Weights]:
        """Up through the nodes. One with nothing learned at or below it is passed over; what several read gets the
        sum of their deltas, in the order of the nodes."""
        learned = self.learned(weights)
        wanted = [wants_delta]
        for node in self.nodes:
            wanted.append(node.name in learned or any(wanted[source] for source in node.sources))
        deltas: list[list[Any]] = [[] for _ in wanted]
        deltas[-1].append(dy)
        gradient = {}
        for index in reversed(range(len(self.nodes))):
            if not wanted[index + 1]:
                continue
            node, (read, written, own_kept) = self.nodes[index], kept[index]
            below, own = node.layer.train_backward(
                weights.get(node.name, {}),
                read,
                written,
                _sum(deltas[index + 1]),
                own_kept,
                context.at(index),
                any(wanted[source] for source in node.sources),
            )
            if node.name in learned:
                gradient[node.name] = own
            parts = below if len(node.sources) > 1 and below is not None else (below,)
            for source, part in reversed(list(zip(node.sources, parts, strict=False))):
                if wanted[source]:
                    deltas[source].insert(0, part)
        return _sum(deltas[0]) if wants_delta else None, gradient

    def learned(self, weights: Weights) -> Weights:
        parts = ((node.name, node.layer.learned(weights[node.name])) for node in self._weighty(weights))
        return {name: part for name, part in parts if part}

    def penalty(self, weights: Weights) -> Array | float:
        return sum(node.layer.penalty(weights[node.name]) for node in self._weighty(weights))

    def new_statistics(self, weights: Weights, kept: Any) -> Weights:
        own = {
            node.name: node.layer.new_statistics(weights.get(node.name, {}), kept[index][2])
            for index, node in enumerate(self.nodes)
        }
        return {name: values for name, values in own.items() if values}

    def _weighty(self, weights: Weights) -> Iterator[Node]:
        return (node for node in self.nodes if node.name in weights)

    def _subject(self, index: int) -> str:
        """How an error calls a node."""
        return f"{self.names[index]} ({type(self.nodes[index].layer).__name__})"


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
    def nodes(self) -> tuple[Node, ...]:
        return tuple(
            Node(name, layer, (index,))
            for index, (name, layer) in enumerate(zip(names_of(self.layers), self.layers, strict=True))
        )

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


def names_of(layers: Sequence[Layer]) -> tuple[str, ...]:
    """The layers' own names, or their types and positions: "conv_0"."""
    return tuple(layer.name or f"{_snake_case(layer)}_{index}" for index, layer in enumerate(layers))


def _read(values: Sequence[Any], node: Node) -> Any:
    """What a node reads, of the values (or their shapes) of x and the nodes before it."""
    return values[node.sources[0]] if len(node.sources) == 1 else tuple(values[source] for source in node.sources)


def _sum(parts: Sequence[Any]) -> Any:
    first, *others = parts
    for other in others:
        first = jax.tree.map(lambda a, b: a + b, first, other)
    return first


def _snake_case(layer: Layer) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(layer).__name__).lower()
