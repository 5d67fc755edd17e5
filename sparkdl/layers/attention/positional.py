"""What tells the steps of a row apart: vectors that are added to them, learned or made of sines."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np

from sparkdl.initializers import Initializer, TruncatedNormal
from sparkdl.layers.attention.carried import angles, counted, first_count, steps_from
from sparkdl.layers.base import Array, Layer, Shape, Weights, jitted
from sparkdl.layers.normalization import wide
from sparkdl.layers.ragged import Ragged, as_ragged, check_vectors, values_of, with_values
from sparkdl.specs import check_integers, check_range


@dataclass(frozen=True)
class Positions(Layer):
    """Base of the layers that add a vector to every step, the same for all rows.

    x  Ragged (batch, steps, inputs), or such an array     dx  array (batch, steps, inputs)   dL/dx
    y  likewise, 0 beyond the end of a row                 dy  array (batch, steps, inputs)   dL/dy
    """

    @property
    def takes_ragged(self) -> bool:
        return True

    def output_shape(self, input_shape: Shape) -> Shape:
        check_vectors(type(self).__name__, input_shape)
        return input_shape

    @abstractmethod
    def vectors(self, weights: Weights, like: Array) -> Array:
        """Those of as many steps as `like` (batch, steps, inputs) has, (steps, inputs), in its dtype."""

    @abstractmethod
    def vectors_at(self, weights: Weights, at: Array, like: Array) -> Array:
        """Those of the steps of these numbers, (batch, steps), in the shape and the dtype of `like`."""

    def first_state(self, rows: int, input_shape: Any, dtype: Any = float, longest: int | None = None) -> Any:
        return first_count(rows)

    @jitted
    def forward(self, weights: Weights, x: Any) -> Any:
        values = values_of(x)
        return with_values(x, self._valid(x, values + self.vectors(weights, values)[None]))

    @jitted
    def forward_from(self, weights: Weights, state: Any, x: Any) -> tuple[Any, Any]:
        rows = as_ragged(x)
        vectors = self.vectors_at(weights, steps_from(state, rows), rows.values)
        return with_values(x, self._valid(rows, rows.values + vectors)), counted(state, rows)

    @jitted
    def delta(self, weights: Weights, x: Any, y: Any, dy: Array) -> Array:
        return self._valid(x, dy)

    def _valid(self, x: Any, values: Array) -> Array:
        return jnp.where(x.valid[..., None], values, 0) if isinstance(x, Ragged) else values


@dataclass(frozen=True)
class LearnedPositions(Positions):
    """y = x + table[step]: a learned vector for every step (Gehring et al. 2017; Devlin et al. 2019, "BERT").

    x, y, dx and dy are as of rows of steps, (batch, steps, inputs); y is 0 beyond the end of a row.
    weights  table (length, inputs)

    Parameters
    ----------
    length : int
        Steps that a row may have. Longer rows of a fixed length are refused when the network is built. Of an input of
        rows of any length, if the network has one such alone, longer ones are refused by `training.fit`, and go where
        `handleInvalid` says in Spark, unless they are cut, by `maxLength`. Else the steps that have no vector give
        NaN, as nothing better can be told while a program runs.
    initializer : Initializer or str, default TruncatedNormal(0.02)
        Of the table.

    Examples
    --------
    >>> from sparkdl import Network
    >>> from sparkdl.layers import Embedding, LearnedPositions
    >>> Network([Embedding(100, 8), LearnedPositions(512)], input_shape=(None,)).output_shape()
    (None, 8)
    """

    length: int
    initializer: Initializer | str = field(default=TruncatedNormal(0.02), kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "initializer", Initializer.of(self.initializer))
        check_integers(self, 1, "length")

    @property
    def step_limit(self) -> int:
        return self.length

    def output_shape(self, input_shape: Shape) -> Shape:
        steps = super().output_shape(input_shape)[0]
        if steps is not None and steps > self.length:
            raise ValueError(
                f"LearnedPositions expects rows of at most {self.length} steps, received {input_shape}; raise its "
                "length."
            )
        return input_shape

    def init(self, key: Array, input_shape: Shape) -> Weights:
        return {"table": Initializer.of(self.initializer).sample(key, (self.length, input_shape[1]))}

    def vectors(self, weights: Weights, like: Array) -> Array:
        table, more = weights["table"], max(0, like.shape[1] - self.length)
        return jnp.pad(table[: like.shape[1]], [(0, more), (0, 0)], constant_values=np.nan)

    def vectors_at(self, weights: Weights, at: Array, like: Array) -> Array:
        return weights["table"].at[at].get(mode="fill", fill_value=np.nan)

    @jitted
    def gradient(self, weights: Weights, x: Any, y: Any, dy: Array) -> Weights:
        slopes = self._valid(x, dy).sum(axis=0)[: self.length]
        return {"table": jnp.pad(slopes, [(0, self.length - len(slopes)), (0, 0)])}


@dataclass(frozen=True)
class SinusoidalPositions(Positions):
    """y = x + vectors of sines and cosines of the step (Vaswani et al. 2017, section 3.5); nothing is learned.

    Numbers 2 i and 2 i + 1 of the vector of step t are the sine and the cosine of t / base ** (2 i / inputs). x, y, dx
    and dy are as of rows of steps, (batch, steps, inputs); y is 0 beyond the end of a row.

    Parameters
    ----------
    base : float, default 10000
        How many steps the slowest of them takes for a turn, over 2 pi.

    Examples
    --------
    >>> import numpy as np
    >>> from sparkdl.layers import SinusoidalPositions
    >>> SinusoidalPositions().forward({}, np.zeros((1, 2, 4), "float32"))[0].round(4).tolist()[0]
    [0.0, 1.0, 0.0, 1.0]
    """

    base: float = 10_000.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "(1, inf)", "base")

    def vectors(self, weights: Weights, like: Array) -> Array:
        steps, inputs = like.shape[1:]
        turns = np.arange(steps)[:, None] * self._speeds(inputs)
        return jnp.asarray(np.where(np.arange(inputs) % 2, np.cos(turns), np.sin(turns)), like.dtype)

    def vectors_at(self, weights: Weights, at: Array, like: Array) -> Array:
        inputs = like.shape[2]
        turns = angles(at, self._speeds(inputs), wide(like).dtype)
        odd = np.broadcast_to(np.arange(inputs) % 2 == 1, turns.shape)
        return jnp.where(odd, jnp.cos(turns), jnp.sin(turns)).astype(like.dtype)

    def _speeds(self, inputs: int) -> np.ndarray[Any, Any]:
        """Radians that each number of a vector goes on by with a step."""
        return self.base ** (-2 * (np.arange(inputs) // 2) / inputs)
