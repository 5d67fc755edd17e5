"""Categories: layers that read integers, and what makes integers of numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from sparkdl.arrays import INTEGERS
from sparkdl.constraints import Constraint
from sparkdl.initializers import Initializer, TruncatedNormal
from sparkdl.layers.base import Array, Context, Layer, Shape, Weights, jitted
from sparkdl.layers.factored import MOST_ROWS, TableRows, rows_at
from sparkdl.layers.merge import Merge
from sparkdl.layers.ragged import Ragged, values_of, with_values
from sparkdl.specs import check_integers, check_range
from sparkdl.strings import Hashing, Strings, Vocabulary, check_split


@dataclass(frozen=True)
class Categories(Layer):
    """A layer that reads categories numbered from 0, as StringIndexer does; x is (batch, *input_shape) of int32.

    Parameters
    ----------
    rows : int
        The number of categories. A row of data with another number counts as one that cannot be used.
    unknown : bool, default False
        Whether all other numbers are a category of their own, the last, as StringIndexer's `handleInvalid="keep"`
        numbers it.
    vocabulary : Vocabulary or list of str, optional
        The strings of which these are the numbers, `rows` of them. The layer's column may then hold strings, which
        workers look up; one that is not among them is an unknown category.
    """

    each_step = True

    rows: int
    unknown: bool = field(default=False, kw_only=True)
    vocabulary: Vocabulary | Sequence[str] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integers(self, 1, "rows")
        if self.vocabulary is None:
            return
        if not isinstance(self.vocabulary, Vocabulary):
            object.__setattr__(self, "vocabulary", Vocabulary(self.vocabulary))
        if len(self.vocabulary) != self.rows:
            raise ValueError(
                f"rows of {type(self).__name__} must be {len(self.vocabulary)}, as many as its vocabulary has entries, "
                f"received {self.rows}; an unknown string has a row besides with unknown=True."
            )

    @property
    def takes_integers(self) -> bool:
        return True

    @property
    def integer_limit(self) -> int | None:
        return None if self.unknown else self.rows

    @property
    def takes_strings(self) -> Strings | None:
        return self.vocabulary if isinstance(self.vocabulary, Vocabulary) else super().takes_strings

    @property
    def _every_row(self) -> int:
        return self.rows + self.unknown

    def _ids(self, x: Array) -> Array:
        """The categories; those that are none are numbered beyond the last, or as it is where it is for them."""
        return jnp.where((x < 0) | (x >= self.rows), self.rows, x)


@dataclass(frozen=True)
class OneHot(Categories):
    """1 at the category in a row of zeros.

    x  (batch, *input_shape) of int32         dx  none
    y  (batch, *input_shape, rows), one longer with `unknown`
    """

    def output_shape(self, input_shape: Shape) -> Shape:
        return (*input_shape, self._every_row)

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        return jax.nn.one_hot(self._ids(x), self._every_row)


@dataclass(frozen=True)
class Embedding(Categories):
    """A learned vector for every category: the rows of a table.

    x  (batch, *input_shape) of int32         dx  none
    y  (batch, *input_shape, size)            dy  (batch, *input_shape, size)      dL/dy
       table (rows, size), one row more with `unknown`

    Parameters
    ----------
    size : int
        Numbers in a vector.
    initializer : Initializer or str
        Of the table.
    l2 : float, default 0
        The objective gains l2 / 2 * sum(table * table).
    constraint : Constraint or str, optional
        What every update leaves of the table's vectors, such as `UnitNorm()`.
    unknown_rate : float, default 0
        Probability of reading, in training, a category as an unknown one, which needs `unknown=True` ("word dropout",
        Bowman et al. 2016). So the vector of unknown categories is learned, and no category is relied on too much.

    Notes
    -----
    `forward` gives NaN for a category that is not in the table; training and scoring refuse it before.

    Where an optimizer moves rows with a gradient only (SGD and AdaGrad without weight decay, or `lazy=True`), a step
    of the exchange AllReduce sends, and touches, only the rows of the table that its batch names, unless the table has
    an l2 or a constraint.
    """

    size: int
    initializer: Initializer | str = field(default=TruncatedNormal(0.05), kw_only=True)
    l2: float = field(default=0.0, kw_only=True)
    constraint: Constraint | str | None = field(default=None, kw_only=True)
    unknown_rate: float = field(default=0.0, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "initializer", Initializer.of(self.initializer))
        if self.constraint is not None:
            object.__setattr__(self, "constraint", Constraint.of(self.constraint))
        check_integers(self, 1, "size")
        check_range(self, "[0, inf)", "l2")
        check_range(self, "[0, 1)", "unknown_rate")
        if self.unknown_rate and not self.unknown:
            raise ValueError(
                f"unknown_rate of {type(self).__name__} must be 0 where unknown categories have no row, received "
                f"{self.unknown_rate!r}; {'leave it out' if self.takes_hashes else 'set unknown=True'}."
            )

    def output_shape(self, input_shape: Shape) -> Shape:
        return (*input_shape, self.size)

    def penalties(self) -> dict[str, tuple[float, float]]:
        return {"table": (0.0, self.l2)} if self.l2 else {}

    def constrained(self, weights: Weights) -> Weights:
        if self.constraint is None or not self.trainable:
            return weights
        return {"table": Constraint.of(self.constraint).project(weights["table"], (1,))}

    def init(self, key: Array, input_shape: Shape) -> Weights:
        return {"table": Initializer.of(self.initializer).sample(key, (self._every_row, self.size))}

    @jitted
    def forward(self, weights: Weights, x: Any) -> Any:
        read = self._read(x)
        y = with_values(read, rows_at(weights["table"], self._ids(values_of(read))))
        return y.cleared() if isinstance(y, Ragged) else y

    @jitted
    def gradient(self, weights: Weights, x: Array, y: Array, dy: Array) -> Weights:
        return {"table": self._rows_of(x, dy).product()}

    def train_forward(self, weights: Weights, x: Any, context: Context) -> tuple[Array, Any]:
        """(y, what was read, if that is not x)."""
        if not self.unknown_rate:
            return self.forward(weights, x), None
        read = self._read(x)
        hidden = jax.random.bernoulli(context.key, self.unknown_rate, values_of(read).shape)
        read = with_values(read, jnp.where(hidden, self.rows, values_of(read)))
        return self.forward(weights, read), read

    def train_gradient(self, weights: Weights, x: Any, y: Array, dy: Array, kept: Any, context: Context) -> Weights:
        x = x if kept is None else kept
        if not context.apart or self.l2 or self.constraint is not None or self._every_row > MOST_ROWS:
            return self.gradient(weights, x, y, dy)
        return {"table": self._rows_of(x, dy)}

    def _read(self, x: Any) -> Any:
        """Of x what the table is asked for."""
        return x

    def _rows_of(self, x: Any, dy: Array) -> TableRows:
        return TableRows(self._ids(x).reshape(-1), dy.reshape(-1, self.size), self._every_row)


@dataclass(frozen=True)
class HashedEmbedding(Embedding):
    """An Embedding of any integers, or of strings, each hashed to one of the rows, which several may share.

    A column of strings needs no StringIndexer: workers hash its values to the integers that the layer reads. A column
    of integers beyond int32, as ids may be, is to be cast to string. Beside a layer with a vocabulary that reads the
    same input it hashes the numbers that this gives, so that strings which are no entries are one.

    Parameters
    ----------
    split : {"word", "character"}, optional
        Into what a column's strings are cut before, as of `Vocabulary`, for an input of rows of any length.

    Notes
    -----
    The hash is the finalizer of MurmurHash3 (Appleby 2011), so that neighbours are spread over the table. On the trick
    see Weinberger et al. 2009, "Feature hashing for large scale multitask learning".
    """

    split: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        kind = type(self).__name__
        if self.unknown:
            raise ValueError(f"unknown of {kind} must be False, as every integer has a row; leave it out.")
        if self.vocabulary is not None:
            raise ValueError(f"vocabulary of {kind} must be None, as every string has a row; leave it out.")
        check_split(self, self.split)

    @property
    def integer_limit(self) -> int | None:
        return None

    @property
    def takes_hashes(self) -> bool:
        return True

    @property
    def takes_strings(self) -> Strings | None:
        return Hashing(split=self.split)

    def _ids(self, x: Array) -> Array:
        return (_mixed(lax.bitcast_convert_type(x, jnp.uint32)) % jnp.uint32(self.rows)).astype(INTEGERS)


def _mixed(bits: Array) -> Array:
    """The finalizer of MurmurHash3, of arrays of uint32."""
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        bits = (bits ^ (bits >> shift)) * jnp.uint32(factor)
    return bits ^ (bits >> 16)


@dataclass(frozen=True)
class CrossCategories(Merge):
    """One category for every combination of categories: a hash, for a HashedEmbedding.

    x  tuple of arrays (batch,) of int32      dx  none
    y  (batch,) of int32
    """

    @property
    def takes_integers(self) -> bool:
        return True

    @property
    def takes_hashes(self) -> bool:
        return True

    @property
    def gives_integers(self) -> bool:
        return True

    def output_shape(self, input_shape: Sequence[Shape]) -> Shape:  # type: ignore[override]
        self._several(input_shape)
        if len(set(input_shape)) > 1:
            raise ValueError(
                f"CrossCategories expects rows of one shape, received {' and '.join(map(str, input_shape))}."
            )
        return input_shape[0]

    @jitted
    def forward(self, weights: Weights, x: tuple[Array, ...]) -> Array:  # type: ignore[override]
        first, *others = (lax.bitcast_convert_type(array, jnp.uint32) for array in x)
        for other in others:
            first = _mixed(first) * jnp.uint32(31) + other
        return lax.bitcast_convert_type(first, INTEGERS)


@dataclass(frozen=True)
class Bucketize(Layer):
    """The number of boundaries that a number has reached: categories of numbers, for an Embedding or OneHot.

    x  (batch, *input_shape)         dx  zeros, as y is constant between boundaries
    y  (batch, *input_shape) of int32, 0 to len(boundaries)

    Parameters
    ----------
    boundaries : sequence of float
        Ascending; a number equal to one belongs to the bucket above it, as in Spark's Bucketizer.
    """

    each_step = True

    boundaries: Sequence[float]

    def __post_init__(self) -> None:
        super().__post_init__()
        given = tuple(self.boundaries) if isinstance(self.boundaries, Iterable) else (self.boundaries,)
        numbers = all(isinstance(value, (int, float, np.number)) and math.isfinite(value) for value in given)
        if not numbers or not len(given) or any(low >= high for low, high in zip(given, given[1:], strict=False)):
            raise ValueError(f"boundaries of Bucketize must be ascending finite numbers, received {self.boundaries!r}.")
        object.__setattr__(self, "boundaries", tuple(map(float, given)))

    @property
    def gives_integers(self) -> bool:
        return True

    def output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        found = jnp.searchsorted(jnp.asarray(self.boundaries, x.dtype), x, side="right")
        return found.astype(INTEGERS)

    @jitted
    def delta(self, weights: Weights, x: Array, y: Array, dy: Array) -> Array:
        return jnp.zeros_like(x)
