"""What becomes a step for attention besides words: features of a table, a step for the whole, and parts of a text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import jax
import jax.numpy as jnp

from sparkdl.arrays import INTEGERS
from sparkdl.initializers import Initializer, TruncatedNormal
from sparkdl.layers.base import Array, Layer, Shape, Weights, jitted
from sparkdl.layers.merge import Merge
from sparkdl.layers.ragged import Ragged, is_ragged, values_of, with_values
from sparkdl.specs import check_integers


@dataclass(frozen=True)
class ClassToken(Layer):
    """A learned step before those of every row, of which later layers make a vector of the row (Devlin et al. 2019).

    x  (batch, steps, inputs)            dx  (batch, steps, inputs)        dL/dx
    y  (batch, 1 + steps, inputs)        dy  (batch, 1 + steps, inputs)    dL/dy
    weights  token (inputs,)

    Rows must be of one length; of texts, whose lengths differ, the first word is to be one for all.

    Parameters
    ----------
    initializer : Initializer or str, default TruncatedNormal(0.02)

    Examples
    --------
    >>> from sparkdl import Network
    >>> from sparkdl.layers import ClassToken, FirstStep, TransformerEncoder
    >>> Network([ClassToken(), TransformerEncoder(2, 16), FirstStep()], input_shape=(9, 8)).output_shape()
    (8,)
    """

    initializer: Initializer | str = field(default=TruncatedNormal(0.02), kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "initializer", Initializer.of(self.initializer))

    def output_shape(self, input_shape: Shape) -> Shape:
        if len(input_shape) != 2 or is_ragged(input_shape):
            raise ValueError(f"ClassToken expects rows of as many steps, (steps, inputs), received {input_shape}.")
        return (input_shape[0] + 1, input_shape[1])

    def init(self, key: Array, input_shape: Shape) -> Weights:
        return {"token": Initializer.of(self.initializer).sample(key, input_shape[1:])}

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        tokens = jnp.broadcast_to(weights["token"][None, None], (len(x), 1, x.shape[2]))
        return jnp.concatenate([tokens, x], axis=1)

    @jitted
    def delta(self, weights: Weights, x: Array, y: Array, dy: Array) -> Array:
        return dy[:, 1:]

    @jitted
    def gradient(self, weights: Weights, x: Array, y: Array, dy: Array) -> Weights:
        return {"token": dy[:, 0].sum(axis=0)}


@dataclass(frozen=True)
class FeatureTokens(Layer):
    """A step of every number: y[i] = x[i] * kernel[i] + bias[i] (Gorishniy et al. 2021, section 3.3).

    x        (batch, numbers)                dx  (batch, numbers)          dL/dx
    y        (batch, numbers, size)          dy  (batch, numbers, size)    dL/dy
    weights  kernel and bias (numbers, size)

    Parameters
    ----------
    size : int
        Numbers of a step.
    initializer : Initializer or str, optional
        Of both; by default TruncatedNormal(1 / sqrt(size)).

    Examples
    --------
    >>> from sparkdl import Network
    >>> from sparkdl.layers import FeatureTokens, TimeMean, TransformerEncoder
    >>> Network([FeatureTokens(8), TransformerEncoder(2, 16), TimeMean()], input_shape=(5,)).output_shape()
    (8,)
    """

    size: int
    initializer: Initializer | str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.initializer is not None:
            object.__setattr__(self, "initializer", Initializer.of(self.initializer))
        check_integers(self, 1, "size")

    def output_shape(self, input_shape: Shape) -> Shape:
        if len(input_shape) != 1:
            raise ValueError(f"FeatureTokens expects rows of numbers, of shape (numbers,), received {input_shape}.")
        return (*input_shape, self.size)

    def init(self, key: Array, input_shape: Shape) -> Weights:
        drawn = Initializer.of(self.initializer or TruncatedNormal(1 / math.sqrt(self.size)))
        keys = zip(("kernel", "bias"), jax.random.split(key), strict=True)
        return {name: drawn.sample(own, (*input_shape, self.size)) for name, own in keys}

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        return x[..., None] * weights["kernel"][None] + weights["bias"][None]

    @jitted
    def delta(self, weights: Weights, x: Array, y: Array, dy: Array) -> Array:
        return (dy * weights["kernel"][None]).sum(axis=2)

    @jitted
    def gradient(self, weights: Weights, x: Array, y: Array, dy: Array) -> Weights:
        return {"kernel": (x[..., None] * dy).sum(axis=0), "bias": dy.sum(axis=0)}


@dataclass(frozen=True)
class ConcatenateSteps(Merge):
    """Rows of steps one after another; a vector is a row of one step.

    x  tuple of arrays (batch, steps, size) or (batch, size)     dx  tuple of their shapes    dL/dx
    y  (batch, all steps, size)                                  dy  likewise                 dL/dy

    Rows must be of one length.

    Examples
    --------
    >>> from sparkdl import Graph
    >>> from sparkdl.layers import ConcatenateSteps, Embedding, FeatureTokens
    >>> nodes = {
    ...     "tokens": (FeatureTokens(8), "numbers"),
    ...     "place": (Embedding(50, 8), "city"),
    ...     "all": (ConcatenateSteps(), "tokens", "place"),
    ... }
    >>> Graph({"numbers": (5,), "city": ()}, nodes, "all").output_shape()
    (6, 8)
    """

    each_step = False

    def output_shape(self, input_shape: Sequence[Shape]) -> Shape:  # type: ignore[override]
        self._several(input_shape)
        ranks = all(len(shape) in (1, 2) and not is_ragged(shape) for shape in input_shape)
        if not ranks or len({shape[-1] for shape in input_shape}) > 1:
            raise ValueError(
                "ConcatenateSteps expects rows of shape (steps, size) or (size,), of one size, received "
                f"{' and '.join(map(str, input_shape))}; end all in layers that give as many numbers."
            )
        return (sum(shape[0] if len(shape) == 2 else 1 for shape in input_shape), input_shape[0][-1])

    @jitted
    def forward(self, weights: Weights, x: tuple[Array, ...]) -> Array:  # type: ignore[override]
        return jnp.concatenate([_as_steps(array) for array in x], axis=1)

    @jitted
    def delta(self, weights: Weights, x: tuple[Array, ...], y: Array, dy: Array) -> tuple[Array, ...]:  # type: ignore[override]
        *ends, _ = accumulate(_as_steps(array).shape[1] for array in x)
        return tuple(part.reshape(array.shape) for part, array in zip(jnp.split(dy, ends, axis=1), x, strict=True))


@dataclass(frozen=True)
class Segments(Layer):
    """Which part of a text each word is of: how many words before it are the separator, as BERT's token types.

    x  Ragged (batch, steps) of int32, or such an array     dx  none
    y  likewise, 0 to most - 1, for an Embedding(most, size)

    Of "[CLS] a b [SEP] c d [SEP]" the words up to the first separator, and this itself, are 0, all others 1, so that
    pairs of texts need no column besides that of their words.

    Parameters
    ----------
    separator : int
        The number of the word that ends a part; 102 in the vocabulary of "bert-base-uncased".
    most : int, default 2
        Parts that are told apart; those beyond are numbered as the last.

    Examples
    --------
    >>> import numpy as np
    >>> from sparkdl.layers import Segments
    >>> Segments(102).forward({}, np.array([[101, 7, 102, 9, 8, 102]], "int32")).tolist()
    [[0, 0, 0, 1, 1, 1]]
    """

    separator: int
    most: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integers(self, 0, "separator")
        check_integers(self, 1, "most")

    @property
    def takes_integers(self) -> bool:
        return True

    @property
    def gives_integers(self) -> bool:
        return True

    @property
    def takes_ragged(self) -> bool:
        return True

    def output_shape(self, input_shape: Shape) -> Shape:
        if len(input_shape) != 1:
            raise ValueError(f"Segments expects rows of words, of shape (None,) or (n,), received {input_shape}.")
        return input_shape

    @jitted
    def forward(self, weights: Weights, x: Any) -> Any:
        values = values_of(x)
        ends = (values == self.separator).astype(INTEGERS)
        number = jnp.minimum(jnp.cumsum(ends, axis=1, dtype=INTEGERS) - ends, self.most - 1)
        return with_values(x, jnp.where(x.valid, number, 0) if isinstance(x, Ragged) else number)


def _as_steps(array: Array) -> Array:
    return array[:, None] if array.ndim == 2 else array
