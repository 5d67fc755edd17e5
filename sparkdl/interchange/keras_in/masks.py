"""Masks in functional models of Keras 3: computed by operations of the graph, and handed to the calls of layers.

Here layers that mask leave steps out, so that these operations and arguments say nothing more, if they are what Keras
adds by itself: for what a Masking or an Embedding has marked, the mask of just that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sparkdl.interchange.keras_in.calls import Call, Tensor
from sparkdl.interchange.keras_in.described import Described

# By what Keras's layers make masks, and of masks further ones.
MARKS = "NotEqual"
JOINS = ("All", "Any", "BroadcastTo", "Concatenate", "ExpandDims", "LogicalAnd", "LogicalOr")


class Masks:
    """What is a mask in a model, and of which padding each mask and each array is.

    Parameters
    ----------
    layers : sequence of Described
        Of the model.
    ends : sequence of Tensor
        Its outputs.
    heeded : bool
        Whether steps are left out; if not, masks that are computed mean nothing at all.
    """

    def __init__(self, layers: Sequence[Described], ends: Sequence[Tensor], heeded: bool) -> None:
        self._heeded = heeded
        self._roots: dict[Tensor, frozenset[tuple[Tensor, Any]]] = {}  # what was masked, and the value of its padding
        operations = {layer.name for layer in layers if layer.operation and layer.kind in (MARKS, *JOINS)}
        operations -= {end.layer for end in ends}
        others = None
        while others != operations:  # until what is read as anything else is none of them, and so what that reads
            others = set(operations)
            kept = [layer for layer in layers if layer.name not in others]
            operations -= {tensor.layer for layer in kept for call in layer.calls for tensor in _read(call)}
        self.operations = operations

    def __contains__(self, tensor: Tensor) -> bool:
        return tensor.layer in self.operations and tensor in self._roots

    def add(self, operation: Described, call: Call, output: Tensor) -> None:
        """What one of the operations puts out."""
        if operation.kind == MARKS:
            self._roots[output] = frozenset((tensor, value) for tensor in call.tensors for value in call.constants)
        else:
            self._roots[output] = self._of(call.tensors)

    def follow(self, layer: Described, tensors: Sequence[Tensor], output: Tensor, any_length: bool) -> None:
        """What a layer puts out that reads tensors, and whose rows have become, or still are, of any length."""
        options: Any = layer.options
        if layer.kind == "Masking":
            self._roots[output] = frozenset((tensor, options.get("mask_value", 0.0)) for tensor in tensors)
        elif layer.kind == "Embedding" and options.get("mask_zero"):
            self._roots[output] = frozenset((tensor, 0) for tensor in tensors)
        elif any_length:
            self._roots[output] = self._of(tensors)

    def without(self, call: Call) -> Call:
        """A call without its mask, if that is Keras's own; else as it is."""
        mask = call.named.get("mask")
        own = mask in self._roots and (not self._heeded or self._roots[mask] == self._of(call.tensors))
        return call._replace(named={name: call.named[name] for name in call.named if name != "mask"}) if own else call

    def _of(self, tensors: Iterable[Tensor]) -> frozenset[tuple[Tensor, Any]]:
        return frozenset().union(*(self._roots.get(tensor, frozenset()) for tensor in tensors))


def _read(call: Call) -> list[Tensor]:
    """Tensors that a call reads otherwise than as a mask."""
    return [*call.tensors, *(tensor for name, tensor in call.named.items() if name != "mask")]
