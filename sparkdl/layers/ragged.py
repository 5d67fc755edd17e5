"""Rows of any length on the device: what a layer is given of an input whose shape begins with None."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from sparkdl.arrays import INTEGERS, STEPS
from sparkdl.specs import is_integer


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)  # arrays have no single answer to ==
class Ragged:
    """Rows that have a length each, such as the words of a text: a pytree.

    Attributes
    ----------
    values : array (batch, steps, ...)
        Of every row its steps and, up to the length of the others, padding, which layers must not look at.
    lengths : array (batch,) of int32
        Steps of every row; 0 is a length, too.

    Examples
    --------
    >>> import numpy as np
    >>> from sparkdl import Network
    >>> from sparkdl.layers import EmbeddingBag, Ragged
    >>> network = Network([EmbeddingBag(10, 4)], input_shape=(None,))
    >>> x = Ragged(np.array([[3, 7, 7], [5, 0, 0]], "int32"), np.array([3, 1], "int32"))
    >>> network.forward(network.init(0), x).shape
    (2, 4)
    """

    values: Any
    lengths: Any

    @property
    def valid(self) -> Array:
        """(batch, steps) of bool: what is no padding."""
        lengths = jnp.asarray(self.lengths)
        return jnp.arange(self.values.shape[1], dtype=lengths.dtype)[None] < lengths[:, None]

    def between(self, start: int, stop: int) -> Ragged:
        """A segment of every row: its steps from `start` on, up to `stop`, of which a row that ends before has fewer.

        Examples
        --------
        >>> import numpy as np
        >>> from sparkdl.layers import Ragged
        >>> x = Ragged(np.array([[3, 7, 7, 1], [5, 4, 6, 0]], "int32"), np.array([4, 3], "int32"))
        >>> x.between(2, 4).lengths.tolist(), x.between(2, 4).values.tolist()
        ([2, 1], [[7, 1], [6, 0]])
        """
        values = self.values[:, start:stop]
        return Ragged(values, jnp.clip(jnp.asarray(self.lengths) - start, 0, values.shape[1]))

    def cleared(self) -> Ragged:
        """The same with zeros for padding, whatever there was."""
        valid = self.valid
        return replace(self, values=jnp.where(jnp.expand_dims(valid, range(2, self.values.ndim)), self.values, 0))

    def astype(self, dtype: Any) -> Ragged:
        """The same with values of another dtype."""
        return replace(self, values=self.values.astype(dtype))


def values_of(x: Any) -> Any:
    """The array of x, which may be Ragged, or those of a tuple of such: what a derivative by x has the shape of."""
    if isinstance(x, tuple):
        return tuple(map(values_of, x))
    return x.values if isinstance(x, Ragged) else x


def cast(x: Any, dtype: Any) -> Any:
    """x, or each of a tuple of such, of another dtype; lengths stay integers."""
    return tuple(cast(part, dtype) for part in x) if isinstance(x, tuple) else x.astype(dtype)


def with_values(x: Any, values: Any) -> Any:
    """x with other values in their place."""
    if isinstance(x, tuple):
        return tuple(map(with_values, x, values))
    return replace(x, values=values) if isinstance(x, Ragged) else values


def as_ragged(x: Any) -> Ragged:
    """x, or an array (batch, steps, ...) as rows that all have all of its steps."""
    return x if isinstance(x, Ragged) else Ragged(x, jnp.full(x.shape[0], x.shape[1], INTEGERS))


def row_shape_of(x: Any, expected: Sequence[Any]) -> tuple[Any, ...] | None:
    """The shape of a row of x, which is to be `expected`; an array may stand for rows of any length. None: no rows."""
    shape = getattr(values_of(x), "shape", ())
    if isinstance(x, Ragged) or is_ragged(expected):
        return (None, *shape[2:]) if len(shape) > 1 else None
    return tuple(shape[1:]) if shape else None


def is_row_shape(shape: Sequence[Any]) -> bool:
    """Whether it is one of an input's rows: positive integers; None in place of the first is any length."""
    rest = shape[1:] if is_ragged(shape) else shape
    return all(is_integer(size, 1) for size in rest)


def is_ragged(shape: Sequence[Any]) -> bool:
    """Whether rows of that shape are of any length."""
    return len(shape) > 0 and shape[0] is None


def step_shape(shape: Sequence[Any]) -> tuple[Any, ...]:
    """The shape of what has one label: of a step of rows of any length, of a row of others."""
    return tuple(shape[1:] if is_ragged(shape) else shape)


def abstract_rows(count: int, shape: Sequence[Any], dtype: Any) -> Any:
    """Shapes and dtypes of that many rows, as a layer is given them."""
    if not is_ragged(shape):
        return jax.ShapeDtypeStruct((count, *shape), dtype)
    lengths = jax.ShapeDtypeStruct((count,), INTEGERS)
    return Ragged(jax.ShapeDtypeStruct((count, STEPS, *shape[1:]), dtype), lengths)


def reads_ragged(shapes: Any) -> bool:
    """Whether rows of that shape, or of one of several shapes, are of any length."""
    return any(map(is_ragged, _several(shapes)))


def check_vectors(kind: str, shape: Sequence[Any]) -> None:
    """ValueError for a layer of that type unless rows of the shape are a vector for each step."""
    if len(shape) != 2:
        raise ValueError(
            f"{kind} expects rows of steps, of shape (steps, inputs) or (None, inputs), received {tuple(shape)}; put a "
            "layer before it that gives every step a vector, such as Embedding."
        )


def refuse_ragged(kind: str, shapes: Any) -> None:
    """Raise for a layer that does not take rows of any length.

    Parameters
    ----------
    kind : str
        Its type.
    shapes : tuple
        That of the rows it is to read or, of a layer that reads several arrays, theirs.

    Raises
    ------
    ValueError
        Rows of one of the shapes are of any length.
    """
    for shape in _several(shapes):
        if is_ragged(shape):
            raise ValueError(
                f"{kind} expects rows of one length, received rows of any, {shape}; put LastStep, TimeMean or "
                "TimeMax before it, or EmbeddingBag where they are categories, which make one vector of each row, or "
                "write EachStep([...]) around it if it is meant for each step."
            )


def _several(shapes: Any) -> Sequence[Any]:
    """The shapes of a layer that reads several arrays, or the one of another."""
    return shapes if any(isinstance(shape, tuple) for shape in shapes) else (shapes,)
