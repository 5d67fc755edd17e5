"""What the layers of a functional model of Keras are called with, as versions 2 and 3 write it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple


class Tensor(NamedTuple):
    """An output of a layer: of which of its calls, and which of several."""

    layer: str
    call: int
    output: int


class Call(NamedTuple):
    """What a layer is called with: tensors in their order, others by name, and all else by name.

    `inputs` are the tensors by name, where a model is called with a mapping.
    """

    tensors: list[Tensor]
    named: dict[str, Tensor]
    options: dict[str, Any]
    inputs: dict[str, Any] | None = None

    @property
    def all(self) -> list[Tensor]:
        """Every tensor."""
        return [*self.tensors, *self.named.values()]


def calls_of(nodes: Any) -> list[Call]:
    """The calls of a layer, from its `inbound_nodes`; ValueError where they are damaged."""
    if not isinstance(nodes, list):
        raise ValueError(f"inbound_nodes must be a list, received {nodes!r:.60}.")
    return [_call(node) for node in nodes if node]


def tensors_of(value: Any) -> list[Tensor]:
    """The tensors of a nested structure, those of a mapping in the order of its names as Keras has them."""
    return list(_tensors(value))


def _call(node: Any) -> Call:
    inputs = None
    if isinstance(node, dict):
        options = node.get("kwargs") or {}
        read = tensors_of(node.get("args"))
        match node.get("args"):
            case [dict(only)] if "class_name" not in only:
                inputs = only
    else:  # Keras 2: [[layer, call, output, options], ...], or one such, or by name
        triples = list(_triples(node))
        options = {name: value for triple in triples for name, value in (triple[3] if len(triple) > 3 else {}).items()}
        read = [_tensor(triple[:3]) for triple in triples]
    if not isinstance(options, dict):
        raise ValueError(f"kwargs of a call must be a mapping, received {options!r:.60}.")
    found = {name: tensors_of(value) for name, value in options.items()}
    several = [name for name, tensors in found.items() if len(tensors) > 1]
    if several:
        raise ValueError(f"{several[0]} of a call must be one array, received {len(found[several[0]])}.")
    named = {name: tensors[0] for name, tensors in found.items() if tensors}
    return Call(read, named, {name: value for name, value in options.items() if name not in named}, inputs)


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, dict):
        if value.get("class_name") == "__keras_tensor__":
            yield _tensor(value["config"]["keras_history"])
        else:
            for name in sorted(value):
                yield from _tensors(value[name])
    elif _is_triple(value):
        yield _tensor(value[:3])
    elif isinstance(value, list):
        for part in value:
            yield from _tensors(part)


def _triples(node: Any) -> Iterator[list[Any]]:
    if _is_triple(node):
        yield node
    elif isinstance(node, (list, dict)):
        for part in [node[name] for name in sorted(node)] if isinstance(node, dict) else node:
            yield from _triples(part)


def _is_triple(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) in (3, 4)
        and isinstance(value[0], str)
        and all(type(number) is int for number in value[1:3])
        and all(isinstance(options, dict) for options in value[3:])
    )


def _tensor(history: Any) -> Tensor:
    if not _is_triple(history):
        raise ValueError(f"A tensor must be told as [layer, call, output], received {history!r:.60}.")
    return Tensor(*history[:3])
