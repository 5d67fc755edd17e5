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

    `inputs` are the tensors by name, where a model is called with a mapping. `args` is what it is called with by place,
    as it is nested.
    """

    tensors: list[Tensor]
    named: dict[str, Tensor]
    options: dict[str, Any]
    inputs: dict[str, Any] | None = None
    args: tuple[Any, ...] = ()

    @property
    def all(self) -> list[Tensor]:
        """Every tensor."""
        return [*self.tensors, *self.named.values()]

    @property
    def constants(self) -> list[Any]:
        """What it is called with by place beside tensors; None and False behind all else leave things as they are."""
        leaves = list(_leaves(list(self.args)))
        while leaves and (leaves[-1] is None or leaves[-1] is False):
            leaves.pop()
        return [leaf for leaf in leaves if not isinstance(leaf, Tensor)]


def calls_of(nodes: Any) -> list[Call]:
    """The calls of a layer, from its `inbound_nodes`; ValueError where they are damaged."""
    if not isinstance(nodes, list):
        raise ValueError(f"inbound_nodes must be a list, received {nodes!r:.60}.")
    return [_call(node) for node in nodes if node]


def tensors_of(value: Any) -> list[Tensor]:
    """The tensors of a nested structure, those of a mapping in the order of its names as Keras has them."""
    return [leaf for leaf in _leaves(_with_tensors(value)) if isinstance(leaf, Tensor)]


def _call(node: Any) -> Call:
    inputs = None
    if isinstance(node, dict):
        options = node.get("kwargs") or {}
        args = _with_tensors(node.get("args"))
        match node.get("args"):
            case [dict(only)] if "class_name" not in only:
                inputs = only
    else:  # Keras 2: [[layer, call, output, options], ...], or one such, or by name
        triples = list(_triples(node))
        options = {name: value for triple in triples for name, value in (triple[3] if len(triple) > 3 else {}).items()}
        args = _with_tensors(node)
    if not isinstance(options, dict):
        raise ValueError(f"kwargs of a call must be a mapping, received {options!r:.60}.")
    named: dict[str, Tensor] = {}
    for name, value in options.items():
        leaves = list(_leaves(_with_tensors(value)))
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        if len(tensors) > 1:
            raise ValueError(f"{name} of a call must be one array, received {len(tensors)}.")
        if tensors and len(leaves) > 1:
            raise ValueError(f"{name} of a call must be one array alone, received {value!r:.60}.")
        if tensors:
            named[name] = tensors[0]
    args = args if isinstance(args, list) else [args]
    read = [leaf for leaf in _leaves(args) if isinstance(leaf, Tensor)]
    rest = {name: value for name, value in options.items() if name not in named}
    return Call(read, named, rest, inputs, tuple(args))


def _with_tensors(value: Any) -> Any:
    """The structure, with tensors and constants for what stands for them, and mappings in the order of their names."""
    match value:
        case {"class_name": "__keras_tensor__"}:
            return _tensor(value["config"]["keras_history"])
        case {"class_name": "__tensor__" | "__numpy__", "config": {"value": constant}}:
            return constant
        case ["_CONSTANT_VALUE", _, constant, *_]:  # of Keras 2
            return constant
        case dict():
            return {name: _with_tensors(value[name]) for name in sorted(value)}
        case list():
            return _tensor(value[:3]) if _is_triple(value) else [_with_tensors(part) for part in value]
    return value


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, (dict, list)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _leaves(part)
    else:
        yield value


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
