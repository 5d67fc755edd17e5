"""Keras's functional models as graphs, or as networks where their layers stand in a row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sparkdl.base_network import BaseNetwork
from sparkdl.graph import Graph, Same
from sparkdl.interchange.keras_in.calls import Call, Tensor, tensors_of
from sparkdl.interchange.keras_in.described import GRAPHS, Described, Names, all_described, groups_of
from sparkdl.interchange.keras_in.masks import Masks
from sparkdl.interchange.keras_in.part import Part, Variable
from sparkdl.layers.base import Layer, Shape
from sparkdl.layers.ragged import reads_ragged
from sparkdl.network import Network

# A layer that reads rows of these shapes from these nodes when it is called so.
Convert = Callable[[Described, Sequence[Any], Sequence[str], Call], Part]
ASKED = ("query", "value", "key")  # names of arrays that a call may give by name, in the order that they are read


def functional(config: Any, convert: Convert, version: int, masks: bool) -> Part:
    """A model of any shape.

    Parameters
    ----------
    config : dict
    convert : callable
        The part that a layer becomes.
    version : int
        Of the Keras that wrote it.
    masks : bool
        Whether steps that it marks as padding are left out.

    Returns
    -------
    Part
        A Graph, or a Network where every layer reads only the one before, and the variables of all layers.
    """
    if not isinstance(config, dict):
        raise ValueError(f"config of a functional model must be a mapping, received {config!r:.60}.")
    building = _Building(config, convert, version, masks)
    building.run()
    ends = [building.node_of.get(tensor) for tensor in building.ends]
    if not ends or None in ends:
        raise ValueError("output_layers of the model names an output that no layer has; save the model again.")
    if as_it_is := [end for end in ends if end in building.inputs]:
        raise ValueError(
            f"The model {config.get('name')!r:.60} puts out its input {as_it_is[0]!r} as it is, which cannot be read; "
            "leave that output out and save the model again."
        )
    return Part((_network(building.inputs, building.nodes, ends),), building.variables)


class _Building:
    """A graph that grows by one call of a layer after the other."""

    def __init__(self, config: Mapping[str, Any], convert: Convert, version: int, masks: bool) -> None:
        self._layers = {layer.name: layer for layer in all_described(config.get("layers"))}
        ends = tensors_of(config.get("output_layers"))
        self._masks = Masks(list(self._layers.values()), ends, masks)
        counted = [*ends, *(tensor for layer in self._layers.values() for call in layer.calls for tensor in call.all)]
        # By model, the calls that are counted before the first that is listed: Keras 3 does so for outputs alone.
        self._before = _before(self._layers.values(), counted) if version < 3 else {}
        graphs = dict.fromkeys((layer.name for layer in self._layers.values() if layer.kind in GRAPHS), 1)
        self.ends = _listed(ends, self._before if version < 3 else graphs)
        self._convert, self._names, self._groups = convert, Names(), groups_of(self._layers.values())
        self._first: dict[str, tuple[list[str], Part]] = {}  # by layer, its nodes when it was first called
        self._variables: dict[str, list[Variable]] = {}
        self._shapes: dict[Tensor, Any] = {}
        self.node_of: dict[Tensor, str] = {}
        self.nodes: dict[str, tuple[Any, ...]] = {}
        self.inputs: dict[str, Shape] = {}
        for tensor in tensors_of(config.get("input_layers")):
            shape = self._layers[tensor.layer].shape if tensor.layer in self._layers else None
            if shape is None:
                raise ValueError(f"input_layers of the model names {tensor.layer!r}, which has no shape of its own.")
            self.node_of[tensor], self._shapes[tensor] = self._names.take(tensor.layer), shape
            self.inputs[self.node_of[tensor]] = shape

    @property
    def variables(self) -> tuple[Variable, ...]:
        """In the order of the model's layers."""
        return tuple(variable for name in self._layers for variable in self._variables.get(name, []))

    def run(self) -> None:
        """Every call, as soon as what it reads is there."""
        ahead = [(layer, index) for layer in self._layers.values() for index in range(len(layer.calls))]
        while ahead:
            waiting = [(layer, index) for layer, index in ahead if not self._called(layer, index)]
            if len(waiting) == len(ahead):
                raise ValueError(f"Layer {waiting[0][0].name!r} reads what no layer puts out; save the model again.")
            ahead = waiting

    def _called(self, layer: Described, index: int) -> bool:
        """Whether a call could be added."""
        call = layer.calls[index]
        asked = layer.options.get("input_layers") if call.inputs and layer.kind in GRAPHS else None
        if call.inputs and isinstance(asked, list):  # a mapping for a model that has a list: by the names of its inputs
            tensors = tensors_of([call.inputs[name] for name, *_ in tensors_of(asked)])
        else:
            tensors = [*call.tensors, *(call.named[name] for name in ASKED if name in call.named)]
        tensors = _listed(tensors, self._before)
        mask = [tensor for name, tensor in call.named.items() if name == "mask"]
        there = all(tensor in self.node_of or tensor in self._masks for tensor in (*tensors, *mask))
        if not there or (index and layer.name not in self._first):
            return False
        output, call = Tensor(layer.name, index, 0), self._masks.without(call)
        if layer.name in self._masks.operations:
            self._masks.add(layer, call, output)
            self._first.setdefault(layer.name, ([], Part(())))
            return True
        if not tensors or set(call.named) - set(ASKED):
            raise ValueError(
                f"Layer {layer.name!r} ({layer.kind}) is called with {', '.join(call.named) or 'nothing'}, for which "
                "there is no counterpart here; call it with what it reads alone and save the model again."
            )
        if call.constants and not layer.operation:
            raise ValueError(
                f"Layer {layer.name!r} ({layer.kind}) is called with {call.constants[0]!r:.60}, for which there is no "
                "counterpart here; call it with what it reads alone and save the model again."
            )
        shapes, sources = [self._shapes[tensor] for tensor in tensors], [self.node_of[tensor] for tensor in tensors]
        part = self._convert(layer, shapes, sources, call)
        model = part.layers[0] if part.layers else None
        if isinstance(model, BaseNetwork) and len(model.output_names) > 1:
            raise ValueError(
                f"Layer {layer.name!r} ({layer.kind}) is a model with {len(model.output_names)} outputs within "
                "another, where one of 1 output can be read; put its layers into the outer model, or give it 1 output, "
                "and save the model again."
            )
        chosen = range(len(tensors)) if part.reads is None else part.reads
        read: Any = tuple(shapes[at] for at in chosen) if len(chosen) > 1 else shapes[chosen[0]]
        sources = [sources[at] for at in chosen]
        made = self._names.of(layer, part)
        first, before = self._first.setdefault(layer.name, ([name for name, _ in made], part))
        alike = part.layers == before.layers
        if part.variables and not alike:
            raise ValueError(
                f"Layer {layer.name!r} ({layer.kind}) is called in two ways, for rows of other shapes or with other "
                "options, while its weights can be shared in one way only; call it alike and save the model again."
            )
        for at, (name, one) in enumerate(made):
            self.nodes[name] = (Same(first[at]) if index and alike else one, *sources)
            read, sources = layer.after(one, read), [name]
        if not index:
            group = self._groups.get(layer.name, "")
            self._variables[layer.name] = layer.placed(part, made[0][0], group) if made else []
        self.node_of[output], self._shapes[output] = sources[0], read
        self._masks.follow(layer, tensors, output, reads_ragged(read))
        return True


def _before(layers: Iterable[Described], counted: Sequence[Tensor]) -> dict[str, int]:
    """By model within a model of Keras 2, 1 if its own making counts as its first call, else 0."""
    models = [layer.name for layer in layers if layer.kind in (*GRAPHS, "Sequential")]
    return {model: min((tensor.call for tensor in counted if tensor.layer == model), default=0) for model in models}


def _listed(tensors: Sequence[Tensor], before: Mapping[str, int]) -> list[Tensor]:
    """Tensors with calls by their places in the list of them."""
    return [tensor._replace(call=tensor.call - before.get(tensor.layer, 0)) for tensor in tensors]


def _network(inputs: Mapping[str, Shape], nodes: Mapping[str, tuple[Any, ...]], outputs: Sequence[Any]) -> Layer:
    """A Network where every node reads the one before alone, else a Graph."""
    before, chain = list(inputs), list[Layer]()
    for name, (layer, *sources) in nodes.items():
        if isinstance(layer, Same) or len(before) > 1 or sources != before:
            return Graph(inputs, nodes, outputs)
        chain.append(replace(layer, name=name))
        before = [name]
    if not chain or list(outputs) != before:
        return Graph(inputs, nodes, outputs)
    return Network(chain, input_shape=next(iter(inputs.values())))
