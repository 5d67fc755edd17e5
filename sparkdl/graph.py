"""A graph: layers that read inputs and one another by name; several inputs, several outputs, any shape between."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

from sparkdl.base_network import BaseNetwork
from sparkdl.layers.base import Layer, Shape
from sparkdl.layers.chain import check_shares, described
from sparkdl.layers.composite import Child, Composite
from sparkdl.layers.merge import Merge
from sparkdl.layers.ragged import is_row_shape
from sparkdl.specs import Named, Spec

FORBIDDEN = "/.`"  # in names: paths are made with slashes, and Spark reads dots and backticks in names of columns


@dataclass(frozen=True)
class Same(Spec):
    """In a graph, the layer of another node with that node's weights, which both learn.

    Parameters
    ----------
    node : str
        A node defined above, or
    layer : Layer, optional
        if the graph has no such node, as one that was cut by `up_to`, its layer; the weights bear the node's name.
    """

    node: str
    layer: Layer | None = None


@dataclass(frozen=True)
class Graph(BaseNetwork):
    """A network of any shape: every node is a layer that reads inputs or nodes above it.

    x        the array (batch, *shape) of the only input, or a tuple of them in the order of `inputs`, or a dict by name
    y        the array (batch, *shape) of the only output, or a tuple of them in the order of `outputs`
    weights  {node name: its weights} for the nodes that have weights

    Sources are defined above, so that no cycle can be written and the order of the nodes is that of computation. A
    node's name is the key of its weights, its path for freezing and activations, and, of an output, that of its label.

    Parameters
    ----------
    inputs : dict
        Shape of a row of every input by its name; () is one value, (None,) any number of them.
    nodes : dict
        (layer, source, ...) by name, a source being an input or a node defined above; a layer that merges reads several
        of them. `Same("a")` in place of a layer has the layer and the weights of node "a".
    outputs : sequence of str
        Nodes whose arrays are the outputs.

    Raises
    ------
    ValueError
        A name is unknown, doubled or used by nobody, a node reads another number of sources than its layer does, or
        their shapes do not fit it; the message names the node.

    Examples
    --------
    >>> from sparkdl import Graph, Network
    >>> from sparkdl.layers import Concatenate, Conv, Dense, Flatten, Relu
    >>> graph = Graph(
    ...     inputs={"photo": (8, 8, 3), "facts": (4,)},
    ...     nodes={
    ...         "seen": (Network([Conv(4, (3, 3)), Relu(), Flatten()]), "photo"),
    ...         "both": (Concatenate(), "seen", "facts"),
    ...         "kind": (Dense(10), "both"),
    ...         "price": (Dense(1), "both"),
    ...     },
    ...     outputs=("kind", "price"),
    ... )
    >>> graph.output_shapes
    {'kind': (10,), 'price': (1,)}
    """

    inputs: Mapping[str, tuple[Any, ...]]
    nodes: Mapping[str, tuple[Any, ...]]
    outputs: Sequence[str]

    def __post_init__(self) -> None:
        inputs = {name: _shape(name, shape) for name, shape in _by_name(self, "inputs").items()}
        nodes = {name: _node(name, node, self.trainable) for name, node in _by_name(self, "nodes").items()}
        outputs = (self.outputs,) if isinstance(self.outputs, str) else tuple(self.outputs)
        for field, value in (("inputs", Named(inputs)), ("nodes", Named(nodes)), ("outputs", outputs)):
            object.__setattr__(self, field, value)
        if doubled := [name for name in nodes if name in inputs]:
            raise ValueError(f"Names of a graph must differ, {doubled[0]!r} is an input and a node; rename one.")
        for name in outputs:
            if name not in nodes:
                raise ValueError(f"outputs names {name!r}, which is no node; the nodes are {', '.join(nodes)}.")
        if not outputs or len(set(outputs)) < len(outputs):
            raise ValueError(f"outputs must name one node or several that differ, received {outputs}.")
        super().__post_init__()
        self.shapes(self.row_shape(None))
        used = {*_read(nodes), *outputs, *(child.key for child in self.children if child.shared)}
        for name in (*inputs, *nodes):
            if name not in used:
                kind = "Input" if name in inputs else "Node"
                raise ValueError(f"{kind} {name!r} is read by no node and is no output; use it or leave it out.")

    @property
    def input_shapes(self) -> dict[str, Shape]:
        return dict(self.inputs)

    @property
    def output_names(self) -> tuple[str, ...]:
        return tuple(self.outputs)

    @property
    def entries(self) -> int:
        return len(self.inputs)

    @cached_property
    def exits(self) -> tuple[int, ...]:
        return tuple(self.entries + self.names.index(name) for name in self.outputs)

    @cached_property
    def children(self) -> tuple[Child, ...]:
        index = {name: at for at, name in enumerate(self.inputs)}
        layers: dict[str, Layer] = {}  # by the name of their weights
        children: list[Child] = []
        for name, (layer, *sources) in self.nodes.items():
            for source in sources:
                if source not in index:
                    raise ValueError(
                        f"Node {name!r} reads {source!r}, which is no input and no node above it; those are "
                        f"{', '.join(index)}."
                    )
            key = layer.node if isinstance(layer, Same) else name
            own: Any = layer.layer if isinstance(layer, Same) else layer
            if (key in layers) is (own is not None):
                found = "there is above it" if own else "is no node above it with a layer of its own"
                raise ValueError(f"Node {name!r} is to share the weights of {key!r}, which {found}; define that once.")
            layers.setdefault(key, own)
            _check_number(name, layers[key], len(sources))
            check_shares(name, layers[key], [child.name for child in children])
            read = tuple(index[source] for source in sources)
            shared = layers[key].shares or (key if isinstance(layer, Same) else "")
            children.append(Child(name, layers[key], read, shared))
            index[name] = len(index)
        return tuple(children)

    def replaced(self, layers: Mapping[str, Layer]) -> Self:
        new = {child.key: layers[child.name] for child in self.children if child.name in layers}

        def changed(name: str, layer: Layer | Same) -> Layer | Same:
            if isinstance(layer, Same):
                return replace(layer, layer=new.get(layer.node, layer.layer)) if layer.layer else layer
            return new.get(name, layer)

        nodes = {name: (changed(name, layer), *sources) for name, (layer, *sources) in self.nodes.items()}
        return replace(self, nodes=nodes)

    def up_to(self, *names: str) -> Graph:
        """What these nodes need, as a graph of which they are the outputs: it reads only the inputs that they need.

        Raises
        ------
        ValueError
            There is no such node, or none is named.
        """
        if not names:
            raise ValueError(f"up_to expects names of nodes, received none; they are {', '.join(self.names)}.")
        needed, nodes, keys = self._needed(list(names)), {}, set[str]()
        for child in self.children:
            layer, *sources = self.nodes[child.name]
            if child.name in needed:
                if isinstance(layer, Same):
                    layer = Same(child.key, None if child.key in keys else child.layer)
                nodes[child.name] = (layer, *sources)
                keys.add(child.key)
        read = _read(nodes)
        inputs = {name: shape for name, shape in self.inputs.items() if name in read}
        return replace(self, inputs=inputs, nodes=nodes, outputs=names)

    def with_head(self, nodes: Mapping[str, tuple[Any, ...]], outputs: Sequence[str] | str = ()) -> Graph:
        """The graph with new nodes, without those that its new outputs do not need; what stays keeps its weights.

        Parameters
        ----------
        nodes : dict
            As of `Graph`; they may read every node and input that there is.
        outputs : sequence of str, optional
            By default the new nodes that no other one reads.

        Raises
        ------
        ValueError
            A new node has the name of one that there is, whose weights it would take, or does not fit what it reads.
        """
        if not isinstance(nodes, Mapping) or not nodes:
            raise ValueError(
                f"nodes of with_head must be a dict of new nodes by name, as of Graph, received {nodes!r}."
            )
        for name in nodes:
            if name in self.nodes or name in self.inputs:
                raise ValueError(f"The graph has a {name!r} already, whose weights it would take; rename the new node.")
        read = _read(nodes)
        ends = [outputs] if isinstance(outputs, str) else list(outputs) or [name for name in nodes if name not in read]
        every = {**self.nodes, **nodes}
        loose = [name for name in every if name not in {*_read(every), *ends}]
        return replace(self, nodes=every, outputs=[*ends, *loose], trainable=True).up_to(*ends)

    def summary(self) -> str:
        before: list[tuple[str, ...]] = [("", name, "", str(shape), "", "") for name, shape in self.inputs.items()]
        cells: list[tuple[str, ...]] = [
            (f"{name}: {layer!r}" if isinstance(layer, Same) else f"{name}: {described(layer)}", ", ".join(sources))
            for name, (layer, *sources) in self.nodes.items()
        ]
        return self._summary(("node", "reads"), before, cells)

    def _subject(self, index: int) -> str:
        return f"Node {self.names[index]!r} ({type(self.children[index].layer).__name__})"


def _by_name(graph: Graph, field: str) -> dict[str, Any]:
    """A field of a graph as a dict; ValueError if it is no mapping by names that can be used, or an empty one."""
    value = getattr(graph, field)
    if not isinstance(value, (Mapping, tuple)) or not value:
        raise ValueError(f"{field} of Graph must be a dict by name, received {value!r}.")
    items = dict(Named(value))
    for name in items:
        if not isinstance(name, str) or not name or set(name) & set(FORBIDDEN):
            raise ValueError(
                f"Names of a graph must be strings without any of {' '.join(FORBIDDEN)}, received {name!r} in {field}; "
                "rename it."
            )
    return items


def _shape(name: str, shape: Any) -> Shape:
    sizes = (shape,) if isinstance(shape, int) else shape
    if not isinstance(sizes, (tuple, list)) or not is_row_shape(sizes):
        raise ValueError(
            f"Input {name!r} of Graph must have a shape of positive integers, as (4,), or () for one value, "
            f"received {shape!r}; only the first may be None, which is any length."
        )
    return tuple(sizes)


def _node(name: str, node: Any, trainable: bool) -> tuple[Any, ...]:
    """(layer, source, ...), frozen where the graph is."""
    if not isinstance(node, (tuple, list)) or len(node) < 2 or not isinstance(node[0], (Layer, Same)):
        raise ValueError(f"Node {name!r} must be (layer, source, ...), received {node!r}.")
    layer, *sources = node
    if not trainable and isinstance(layer, Layer):
        layer = replace(layer, trainable=False)
    if not trainable and isinstance(layer, Same) and layer.layer:
        layer = replace(layer, layer=replace(layer.layer, trainable=False))
    return layer, *sources


def _check_number(name: str, layer: Layer, sources: int) -> None:
    """ValueError if a layer reads another number of arrays than its node has sources."""
    kind = type(layer).__name__
    if isinstance(layer, Composite) and layer.entries != sources:
        raise ValueError(f"Node {name!r} is a {kind} of {layer.entries} inputs, received {sources} sources.")
    merges = isinstance(layer, (Composite, Merge)) or layer.takes_several_lengths
    if not merges and sources > 1:
        raise ValueError(
            f"Node {name!r} is a {kind}, which reads one source, received {sources}; put Concatenate, Add or another "
            "layer that merges before it."
        )


def _read(nodes: Mapping[str, tuple[Any, ...]]) -> set[str]:
    """All sources of these nodes."""
    return {source for _, *sources in nodes.values() for source in sources}
