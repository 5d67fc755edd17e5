"""The configuration of one layer of Keras, of which every option is understood or refused by name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# How a layer was made, trained or computed says nothing of what it is.
BESIDES = re.compile(
    r".*_initializer|.*_regularizer|.*_constraint|name|trainable|dtype|seed|unroll|implementation|synchronized"
    r"|zero_output_for_mask|batch_shape|batch_input_shape|input_length|build_input_shape|input_dim|input_shape"
)
SHOWN = 60  # characters of a value


@dataclass(frozen=True)
class LayerConfig:
    """Options of a layer.

    Attributes
    ----------
    kind, name : str
        Class and name of the layer.
    options : dict
    version : int
        Of the Keras that wrote it.
    call : dict
        What it is called with beside arrays.
    sources : tuple of str
        What it reads, by names of the graph.
    masked : bool
        Whether the model marks steps as padding, and is to be read so.
    """

    kind: str
    name: str
    options: Mapping[str, Any]
    version: int
    call: Mapping[str, Any] = field(default_factory=dict)
    sources: tuple[str, ...] = ()
    masked: bool = False
    read: set[str] = field(default_factory=set)  # names of options that somebody has asked for

    def get(self, name: str, default: Any = None) -> Any:
        """An option of any kind."""
        self.read.add(name)
        return self.options.get(name, default)

    def integer(self, name: str, default: int | None = None) -> int:
        """An option that is an integer."""
        value = self.get(name, default)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.wrong(name, value, "an integer")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """An option that is a number."""
        value = self.get(name, default)
        if not isinstance(value, (int, float)) or isinstance(value, bool) or abs(value) > 1e300:
            raise self.wrong(name, value, "a number")
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        """An option that is true or false."""
        value = self.get(name, default)
        if not isinstance(value, (bool, int)):
            raise self.wrong(name, value, "True or False")
        return bool(value)

    def sizes(self, name: str, default: Any = None) -> Any:
        """An option that is an integer, or holds some, or pairs of them; lists as tuples."""

        def frozen(value: Any) -> Any:
            return tuple(map(frozen, value)) if isinstance(value, (list, tuple)) else value

        value = frozen(self.get(name, default))
        flat = [value]
        while any(isinstance(entry, tuple) for entry in flat):
            flat = [part for entry in flat for part in (entry if isinstance(entry, tuple) else (entry,))]
        if not flat or not all(isinstance(entry, int) and not isinstance(entry, bool) for entry in flat):
            raise self.wrong(name, value, "integers")
        return value

    def only(self, name: str, *allowed: Any) -> Any:
        """An option of which no other values have a counterpart here; the first is the default."""
        value = self.get(name, allowed[0])
        if value not in allowed:
            raise self.wrong(name, value, " or ".join(map(repr, allowed)))
        return value

    def last_axis(self, rank: int, default: int = -1) -> None:
        """ValueError unless `axis` is the last of rows of this rank."""
        axis = self.get("axis", default)
        if axis not in (-1, rank, [-1], [rank]):
            raise self.wrong("axis", axis, "the last one, -1")

    def check_read(self) -> None:
        """ValueError if there is an option left that nobody has asked for and that is not off."""
        for name, value in self.options.items():
            if name not in self.read and value not in (None, False) and not BESIDES.fullmatch(name):
                raise self.wrong(name, value, "left out")
        for name, value in self.call.items():
            if name not in ("training", *self.read) and value not in (None, False):
                raise self.wrong(f"{name} of its call", value, "left out")

    def wrong(self, name: str, value: Any, expected: str) -> ValueError:
        """The sentence on an option."""
        shown = repr(value)
        shown = shown if len(shown) <= SHOWN else f"{shown[:SHOWN]}..."
        return ValueError(
            f"Layer {self.name!r} ({self.kind}) has no counterpart here: {name} must be {expected}, received {shown}; "
            "change it in Keras and save the model again."
        )
