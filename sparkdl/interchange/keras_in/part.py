"""What becomes of a layer of Keras: layers of ours in a row, and how its arrays become theirs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from sparkdl.arrays import Array
from sparkdl.layers.base import Layer


def same(array: Array) -> tuple[Array, ...]:
    """The array as it is."""
    return (array,)


@dataclass(frozen=True)
class Variable:
    """An array of Keras's.

    Attributes
    ----------
    name : str
        Keras's, such as "kernel".
    ours : tuple of str
        Paths of ours that it holds, below the first layer of the part; () of what we have no use for.
    read : callable
        Ours, given Keras's.
    places : tuple of str
        Groups of a `.keras` file that it may be in, below its layer's.
    learned : bool
        Whether Keras counts it as trainable.
    layer : str
        Name of the model's layer that it is of.
    """

    name: str
    ours: tuple[str, ...]
    read: Callable[[Array], tuple[Array, ...]] = same
    places: tuple[str, ...] = ("",)
    learned: bool = True
    layer: str = ""

    def within(self, ours: str, place: str = "", learned: bool = True) -> Variable:
        """That of a part within another: below a path of ours and a group of the file."""
        return replace(
            self,
            ours=tuple(f"{ours}/{path}" for path in self.ours),
            places=tuple("/".join(filter(None, (place, own))) for own in self.places),
            learned=self.learned and learned,
        )


class Part(NamedTuple):
    """Layers of ours in a row, in place of one of Keras.

    Attributes
    ----------
    layers : tuple of Layer
        The first has all weights; none at all of what does nothing.
    variables : tuple of Variable
        In Keras's order.
    reads : tuple of int, optional
        Which of the sources the first layer reads, by default all.
    """

    layers: tuple[Layer, ...]
    variables: tuple[Variable, ...] = ()
    reads: tuple[int, ...] | None = None


def named(*names: str, place: str = "", bias: bool = False) -> tuple[Variable, ...]:
    """Variables that have the same names here and there, and perhaps a bias."""
    return tuple(Variable(name, (name,), places=(place,)) for name in (*names, *["bias"] * bias))
