"""Which array of theirs is which of ours: the rows of a table of names, layer by layer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from sparkdl.arrays import Array
from sparkdl.interchange.layouts import (
    CONV,
    LINEAR,
    PLAIN,
    PLAIN_TO_HEADS,
    TO_HEADS,
    VECTOR,
    Layout,
)
from sparkdl.layers.base import Shape


class Link(NamedTuple):
    """An array of theirs, and ours by path.

    Attributes
    ----------
    theirs : str
    ours : tuple of str
        Several, equally large, if theirs is these, one behind the other along `axis`.
    layout : Layout, default VECTOR
        Of each of ours.
    axis : int, default 0
    """

    theirs: str
    ours: tuple[str, ...]
    layout: Layout = VECTOR
    axis: int = 0

    def shape(self, shapes: Mapping[str, Shape]) -> Shape:
        """Theirs, given those of ours by path."""
        first, *others = (self.layout.shape(shapes[path]) for path in self.ours)
        along = sum(other[self.axis] for other in others)
        return tuple(size + along * (axis == self.axis) for axis, size in enumerate(first))

    def read(self, array: Array, shapes: Mapping[str, Shape]) -> dict[str, Array]:
        """Ours by path, given theirs."""
        parts = np.split(array, len(self.ours), self.axis) if len(self.ours) > 1 else [array]
        return {path: self.layout.read(part, shapes[path]) for path, part in zip(self.ours, parts, strict=True)}

    def write(self, arrays: Mapping[str, Array]) -> Array:
        """Theirs, given ours by path."""
        parts = [self.layout.write(arrays[path]) for path in self.ours]
        return np.concatenate(parts, self.axis) if len(parts) > 1 else parts[0]


@dataclass(frozen=True)
class Table:
    """The names of all arrays of a network in somebody's files.

    Attributes
    ----------
    links : list of Link
        Those of all arrays, and perhaps of biases that the network lacks.
    head : str
        The path of the layer of the classes, which starts afresh where a file has others or none; "" without one.
    prefix : str
        That of the names in files of a network with a head; those of one without lack it.
    besides : str
        A regular expression of names that files have beside these, and that count nothing.
    again : mapping of str to str
        Such of them as must be equal to an array of `links`, which the network uses in their place, too.
    """

    links: list[Link]
    head: str = ""
    prefix: str = ""
    besides: str = field(default=r"$^")
    again: Mapping[str, str] = field(default_factory=dict)

    def of_head(self, link: Link) -> bool:
        """Whether the link is of the layer of the classes."""
        return bool(self.head) and link.ours[0].startswith(f"{self.head}/")


def conv(ours: str, theirs: str) -> Iterator[Link]:
    """Of a Conv or DepthwiseConv."""
    return linear(ours, theirs, CONV)


def linear(ours: str, theirs: str, layout: Layout = LINEAR) -> Iterator[Link]:
    """Of a Dense, or of another layer with a kernel and perhaps a bias."""
    yield Link(f"{theirs}.weight", (f"{ours}/kernel",), layout)
    yield Link(f"{theirs}.bias", (f"{ours}/bias",))


def norm(ours: str, theirs: str) -> Iterator[Link]:
    """Of a LayerNorm."""
    yield Link(f"{theirs}.weight", (f"{ours}/scale",))
    yield Link(f"{theirs}.bias", (f"{ours}/bias",))


def batch_norm(ours: str, theirs: str) -> Iterator[Link]:
    """Of a BatchNorm."""
    yield from norm(ours, theirs)
    yield Link(f"{theirs}.running_mean", (f"{ours}/mean",))
    yield Link(f"{theirs}.running_var", (f"{ours}/variance",))


def embedding(ours: str, theirs: str) -> Iterator[Link]:
    """Of an Embedding or of LearnedPositions."""
    yield Link(f"{theirs}.weight", (f"{ours}/table",), PLAIN)


def encoder_block(ours: str, theirs: str, names: Mapping[str, str], plain: bool = False) -> Iterator[Link]:
    """Of a TransformerEncoder.

    Parameters
    ----------
    ours, theirs : str
        The path of the block, and what all of their names begin with.
    names : mapping
        Theirs of `query`, `key` and `value`, or of all three as `qkv`, up to "weight"; and of `output`, `inner`,
        `outer`, `attention_norm` and `feed_forward_norm`.
    plain : bool
        Whether their matrices are (in, out), as those of GPT-2.
    """
    dense, to_heads = (PLAIN, PLAIN_TO_HEADS) if plain else (LINEAR, TO_HEADS)
    stacked: Iterable[tuple[str, tuple[str, ...]]] = [(name, (name,)) for name in ("query", "key", "value")]
    if "qkv" in names:
        stacked = [("qkv", ("query", "key", "value"))]
    for name, parts in stacked:
        paths = [f"{ours}/attention/{part}" for part in parts]
        kernels, biases = tuple(f"{path}/kernel" for path in paths), tuple(f"{path}/bias" for path in paths)
        yield Link(f"{theirs}{names[name]}weight", kernels, to_heads, int(plain))
        yield Link(f"{theirs}{names[name]}bias", biases)
    yield from linear(f"{ours}/attention/output", f"{theirs}{names['output']}", dense)
    for part in ("inner", "outer"):
        yield from linear(f"{ours}/feed_forward/{part}", f"{theirs}{names[part]}", dense)
    for part in ("attention_norm", "feed_forward_norm"):
        yield from norm(f"{ours}/{part}", f"{theirs}{names[part]}")
