"""The network of what has been assembled, with layers that bring numbers into the orders that others read them in."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sparkdl.base_network import BaseNetwork
from sparkdl.graph import Graph
from sparkdl.interchange.imported import Imported
from sparkdl.interchange.onnx_in.assembly import Assembly, Unfinished
from sparkdl.interchange.onnx_in.forms import of_output
from sparkdl.interchange.onnx_in.onnx_file import Operator
from sparkdl.interchange.onnx_in.refusal import Refused
from sparkdl.interchange.onnx_in.views import Form, Group, Part, Value, parts_of, row_shape, size_of
from sparkdl.layers import Flatten, Permute, Rescale, Reshape
from sparkdl.layers import steps as by_step
from sparkdl.layers.base import Layer, Weights
from sparkdl.network import Network


def finished(assembly: Assembly, outputs: Mapping[str, Value], as_theirs: bool = False) -> Imported:
    """The network, of the nodes that its outputs need: a Network if they are a chain, else a Graph.

    Parameters
    ----------
    assembly : Assembly
    outputs : dict of Value
        By name.
    as_theirs : bool
        Whether outputs that are images have their channels where the file has them.

    Raises
    ------
    Refused
        A node is of what is no layer.
    """
    needed, ahead = set[str](), [value.node for value in outputs.values()]
    while ahead:
        if (name := ahead.pop()) in needed or name not in assembly.nodes:
            continue
        needed.add(name)
        node = assembly.nodes[name]
        if isinstance(node, Unfinished):
            raise Refused(
                f"its node {node.operator.name!r} ({node.operator.kind}) gives {node.what}, which is no layer by "
                "itself, and what reads it is not what is known to be made of it"
            )
        ahead += [value.node for value, _ in node.sources]
    lowering = _Lowering(assembly, {name: node for name, node in assembly.nodes.items() if name in needed})
    return lowering.network({name: (value, of_output(value, as_theirs)) for name, value in outputs.items()})


class _Lowering:
    """Makes layers' sources of arrays in the orders that are wanted, by Flatten, Reshape and Permute where need be."""

    def __init__(self, assembly: Assembly, nodes: Mapping[str, Any]) -> None:
        self.shapes: dict[str, Any] = {name: row_shape(form) for name, form in assembly.inputs.items()}
        self.inputs = list(self.shapes)
        self.nodes: dict[str, tuple[Any, ...]] = {}
        self.weights: dict[str, Weights] = {}
        self.named = {name: name for name in self.inputs}
        self.laid: dict[tuple[str, Form], str] = {}
        for number, node in nodes.items():
            sources = [self.source(value, form) for value, form in node.sources]
            name = self.named[number] = self.add(legible(node.operator), node.layer, sources, row_shape(node.ours))
            if node.weights:
                self.weights[name] = node.weights

    def add(self, wanted: str, layer: Layer, sources: Sequence[str], shape: Any) -> str:
        name, shapes = unused(wanted, self.shapes), tuple(self.shapes[source] for source in sources)
        made = by_step.output_shape(layer, shapes if len(shapes) > 1 else shapes[0])
        if tuple(made) != tuple(shape):
            raise Refused(f"its node {name!r} would have rows of shape {made}, where the file has {shape}")
        self.nodes[name], self.shapes[name] = (layer, *sources), shape
        return name

    def source(self, value: Value, form: Form) -> str:
        """The node that gives the value in this form."""
        if value.ours == form:
            return self.named[value.node]
        if (value.node, form) not in self.laid:
            self.laid[value.node, form] = self._laid(value, form)
        return self.laid[value.node, form]

    def _laid(self, value: Value, form: Form) -> str:
        before, after = parts_of(value.ours), parts_of(form)
        if before[0] is not after[0] or any(part.any_length for part in after) or len(value.ours[0]) > 1:
            raise Refused(
                f"it moves or joins axes of what {self.named[value.node]!r} gives, by which rows, or steps of rows "
                "of any length, are numbered; export it with sizes that are given, and the rows first"
            )
        name = self.named[value.node]
        if set(value.ours) == set(form) and all(form):
            order = [value.ours.index(group) - 1 for group in form[1:]]
            return self.add("permute", Permute(tuple(order)), [name], row_shape(form))
        if before != after:
            runs = _runs(before[1:], after[1:])
            name = self._reshaped(name, tuple(map(size_of, runs)))
            order = sorted(range(len(runs)), key=lambda run: after.index(runs[run][0]))
            shape = tuple(self.shapes[name][run] for run in order)
            name = self.add("permute", Permute(tuple(order)), [name], shape)
        return self._reshaped(name, row_shape(form))

    def _reshaped(self, name: str, shape: tuple[Any, ...]) -> str:
        if self.shapes[name] == shape:
            return name
        flat = len(shape) == 1 and len(self.shapes[name]) > 1
        layer, kind = (Flatten(), "flatten") if flat else (Reshape(shape), "reshape")
        return self.add(kind, layer, [name], shape)

    def network(self, outputs: Mapping[str, tuple[Value, Form]]) -> Imported:
        ends: dict[str, str] = {}
        for name, (value, form) in outputs.items():
            node = self.source(value, form)
            if node not in self.nodes or node in ends.values():  # an output is a node, and one alone
                node = self.add("same", Rescale(1.0), [node], self.shapes[node])
            ends[name] = node
        network = self._chain(list(ends.values())) or self._graph(ends)
        network.check_weights(self.weights)
        return Imported(network, self.weights)

    def _chain(self, ends: list[str]) -> BaseNetwork | None:
        above = list(self.inputs)
        if len(above) > 1 or len(ends) > 1:
            return None
        for name, (_, *sources) in self.nodes.items():
            if sources != above[-1:]:
                return None
            above.append(name)
        layers = [replace(layer, name=name) for name, (layer, *_) in self.nodes.items()]
        return Network(layers, input_shape=self.shapes[above[0]]) if above[-1] == ends[0] else None

    def _graph(self, ends: Mapping[str, str]) -> BaseNetwork:
        """A Graph, whose outputs have the names of the file's."""
        new = {old: name for name, old in ends.items() if name not in {*self.nodes, *self.inputs} - {old}}
        self.weights = {new.get(name, name): weights for name, weights in self.weights.items()}
        nodes = {
            new.get(name, name): (layer, *(new.get(source, source) for source in sources))
            for name, (layer, *sources) in self.nodes.items()
        }
        inputs = {name: self.shapes[name] for name in self.inputs}
        return Graph(inputs, nodes, [new.get(old, old) for old in ends.values()])


def _runs(before: Group, after: Group) -> list[list[Part]]:
    """The parts in their order, those together that are neighbours afterwards, too."""
    runs: list[list[Part]] = []
    follows = dict(zip(after, after[1:], strict=False))
    for part in before:
        if runs and follows.get(runs[-1][-1]) is part:
            runs[-1].append(part)
        else:
            runs.append([part])
    return runs


def legible(operator: Operator) -> str:
    """A name for the layer that an operator becomes: of "/features/features.0/Conv" it is features_0."""
    kind = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", operator.kind).lower()
    parts = [part for part in operator.name.removeprefix("node_").split("/") if part]
    if parts and re.fullmatch(rf"{re.escape(operator.kind)}(_\d+)?", parts[-1]) and len(parts) > 1:
        parts.pop()
    kept = [part for part, after in zip(parts, [*parts[1:], ""], strict=True) if not after.startswith(f"{part}.")]
    return clean("_".join(kept)) or kind


def clean(name: str) -> str:
    """The name without what names of layers may not hold."""
    return re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_")


def unused(wanted: str, used: Container[str]) -> str:
    """The name, or one like it that nobody has."""
    name, count = wanted, 1
    while name in used:
        count += 1
        name = f"{wanted}_{count}"
    return name
