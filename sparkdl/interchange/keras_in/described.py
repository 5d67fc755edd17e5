"""One layer in the configuration of a model of Keras: its class, its options, what calls it; no code of a user's."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from sparkdl.graph import FORBIDDEN
from sparkdl.interchange.keras_in.calls import Call, calls_of
from sparkdl.interchange.keras_in.part import Part, Variable
from sparkdl.layers.base import Layer, Shape
from sparkdl.layers.chain import snake_case
from sparkdl.layers.ragged import is_row_shape
from sparkdl.layers.steps import output_shape

HOMES = re.compile(r"(tf_)?keras|(tf_)?keras(\.src)?\.(layers|models|engine|applications)(\..*)?")
OPERATIONS = re.compile(r"keras(\.src)?\.(ops|activations)(\..*)?")  # homes of what stands between layers, as x + y
# Classes that Keras exports, and writes in some files, by another name than their own.
OWN_NAMES = {"GroupQueryAttention": "GroupedQueryAttention"}
GRAPHS = ("Functional", "Model")
CODE = ("Lambda", "TFOpLambda", "SlicingOpLambda", "TensorFlowOpLayer")


@dataclass(frozen=True)
class Described:
    """A layer, or a model within a model.

    Attributes
    ----------
    kind, name : str
    options : dict
        Of a model, its whole configuration.
    calls : list of Call
    operation : bool
        Whether it is one of `keras.ops` or `keras.activations`, and no layer.
    """

    kind: str
    name: str
    options: Any
    calls: list[Call] = field(default_factory=list)
    operation: bool = False

    @property
    def shape(self) -> Shape | None:
        """Of a row, if it is told."""
        for option in ("batch_shape", "batch_input_shape"):
            if isinstance(self.options, dict) and self.options.get(option) is not None:
                return row_shape(self.options[option], f"Layer {self.name!r}")
        return None

    def fixed(self, part: Part) -> Part:
        """The part, held fixed in training where the layer is."""
        if not part.variables or not isinstance(self.options, dict) or self.options.get("trainable", True):
            return part
        first, *others = part.layers
        variables = tuple(replace(variable, learned=False) for variable in part.variables)
        return part._replace(layers=(replace(first, trainable=False), *others), variables=variables)

    def after(self, layer: Layer, shape: Any) -> Any:
        """The shape that one layer of the part makes of another; ValueError, which names Keras's."""
        try:
            return output_shape(layer, shape)
        except ValueError as error:
            raise ValueError(f"Layer {self.name!r} ({self.kind}): {error}") from None

    def placed(self, part: Part, name: str, group: str) -> list[Variable]:
        """The part's variables within the model, where its first layer is called `name`."""
        return [replace(variable.within(name, f"layers/{group}"), layer=self.name) for variable in part.variables]


class Names:
    """Names for layers of a model, which differ and which paths can hold."""

    def __init__(self) -> None:
        self._used: set[str] = set()

    def take(self, name: str) -> str:
        """The name, or one like it."""
        clean = re.sub(f"[{re.escape(FORBIDDEN)}]", "_", name) or "_"
        found, count = clean, 1
        while found in self._used:
            found, count = f"{clean}_{count}", count + 1
        self._used.add(found)
        return found

    def of(self, layer: Described, part: Part) -> list[tuple[str, Layer]]:
        """The layers of a part: the first is called as Keras's, those behind it besides by what they are."""
        ends = ["", *(f"_{snake_case(one)}" for one in part.layers[1:])]
        return [(self.take(f"{layer.name}{end}"), one) for end, one in zip(ends, part.layers, strict=False)]


def described(entry: Any) -> Described:
    """A layer of Keras's own; ValueError, which names it, of a class or code of somebody else's."""
    if not isinstance(entry, dict) or not isinstance(entry.get("class_name"), str):
        raise ValueError(f"A layer must be told by class_name and config, received {entry!r:.60}.")
    kind, options, module = entry["class_name"], entry.get("config"), entry.get("module")
    name = entry.get("name") or (options.get("name") if isinstance(options, dict) else None) or kind
    operation = _is_operation(entry)
    own = operation or module is None or (isinstance(module, str) and HOMES.fullmatch(module))
    if not isinstance(name, str) or not isinstance(options, (dict, list)):
        raise ValueError(f"Layer {name!r:.60} ({kind}) must have a name and a config, received {options!r:.60}.")
    if kind in CODE or not own or ">" in str(entry.get("registered_name")) or ">" in kind:
        raise ValueError(
            f"Layer {name!r} is a {kind} of {module or 'its own'}, whose code would have to run, and loading runs "
            "none; put layers of Keras in its place and save the model again."
        )
    try:
        calls = calls_of(entry.get("inbound_nodes") or [])
    except ValueError as error:
        raise ValueError(f"Layer {name!r} ({kind}): {error}") from None
    return Described(OWN_NAMES.get(kind) or kind, name, options, calls, operation)


def _is_operation(entry: dict[str, Any]) -> bool:
    """By its module or, where Keras 3 writes none, as in `.h5` files, by what the configs of all layers have."""
    match entry:
        case {"module": str(module)}:
            return OPERATIONS.fullmatch(module) is not None
        case {"config": dict(options), "inbound_nodes": [dict(), *_]}:
            return entry.get("module") is None and not {"trainable", "layers"} & set(options)
    return False


def all_described(entries: Any) -> list[Described]:
    """Those of a model, whose names differ."""
    if not isinstance(entries, list):
        raise ValueError(f"layers of a model must be a list, received {entries!r:.60}.")
    layers = [described(entry) for entry in entries]
    if len({layer.name for layer in layers}) < len(layers):
        raise ValueError("Two layers of the model have one name; name them apart and save the model again.")
    return layers


def groups_of(layers: Iterable[Described]) -> dict[str, str]:
    """By layer, its group in a `.keras` file, which numbers the layers of a class; an operation has none."""
    seen: dict[str, int] = {}
    groups = {}
    for layer in layers:
        if layer.operation:
            continue
        name = re.sub("(.)([A-Z][a-z]+)", r"\1_\2", re.sub(r"\W+", "", layer.kind))
        name = re.sub("([a-z])([A-Z])", r"\1_\2", name).lower()
        count = seen.setdefault(name, 0)
        seen[name] += 1
        groups[layer.name] = f"{name}_{count}" if count else name
    return groups


def row_shape(shape: Any, subject: str) -> Shape:
    """Of a row, from one with an axis of rows before it."""
    if not isinstance(shape, list) or not shape or not is_row_shape(shape[1:]):
        raise ValueError(
            f"{subject} reads rows of shape {shape!r:.60}, of which only the first axis, the batch, and over time the "
            "second may be None; build the model with a fixed shape, such as input_shape=(224, 224, 3), and save it."
        )
    return tuple(shape[1:])
