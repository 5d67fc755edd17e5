"""Networks over rows of any length that go through them in segments, or step by step, and hand on a state."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from sparkdl.layers.base import Shape, Weights, jitted
from sparkdl.layers.composite import Composite
from sparkdl.layers.ragged import Ragged, as_ragged, is_ragged, values_of


@dataclass(frozen=True)
class Stepped(Composite):
    """Base of networks: what those of rows of any length do with a part of each row at a time.

    All steps of a row in segments give what the whole row gives. Layers over time carry what they need from one to the
    next: a recurrent layer its state, causal attention the keys and values of all steps so far. A layer that needs the
    whole of a row, as Bidirectional or TimeMean, cannot.

    Examples
    --------
    >>> import numpy as np
    >>> from sparkdl import Network
    >>> from sparkdl.layers import Dense, Lstm
    >>> network = Network([Lstm(8), Dense(1)], input_shape=(None, 2))
    >>> weights, x = network.init(0), np.ones((3, 10, 2), "float32")
    >>> state = network.first_state(rows=3)
    >>> y, state = network.forward_from(weights, state, x[:, :9])
    >>> y.shape
    (3, 9, 1)
    >>> y, state = network.step(weights, state, x[:, 9])
    >>> y.shape
    (3, 1)
    """

    @property
    @abstractmethod
    def input_shapes(self) -> dict[str, Shape]:
        """Shape of a row of every part of the features that the network reads, by name."""

    def row_shape(self, given: Any = None) -> Any:
        """Shape of a row of x: the given one, or that of the network's own inputs."""
        if given is not None:
            return given
        shapes = tuple(self.input_shapes.values())
        return shapes[0] if len(shapes) == 1 else shapes

    def first_state(self, rows: int, input_shape: Any = None, dtype: Any = float, longest: int | None = None) -> Any:
        """The state before the first step.

        Parameters
        ----------
        rows : int
            In a batch.
        input_shape : tuple, optional
            By default that of the network's own inputs.
        dtype : dtype, default float
            Of the computation: that of weights and x.
        longest : int, optional
            Steps that will come at most, which layers need to know that keep all of them.

        Returns
        -------
        nested dict of arrays
            By layer, of those that carry something.

        Raises
        ------
        ValueError
            A layer needs the whole of a row; the message names it. Or the network's rows are of one length.
        """
        shapes = self.input_shapes.values() if input_shape is None else ()
        if shapes and not any(map(is_ragged, shapes)):
            raise ValueError(
                f"first_state expects a network over rows of any length, received {', '.join(map(str, shapes))}; write "
                "None in place of the number of steps, as in input_shape=(None, 3), which changes no weights."
            )
        return super().first_state(rows, self.row_shape(input_shape), dtype, longest)

    @jitted
    def forward_from(self, weights: Weights, state: Any, x: Any) -> tuple[Any, Any]:
        """(y, the state after it) of the next segment of every row.

        Parameters
        ----------
        weights : nested dict of arrays
        state : nested dict of arrays
            After the segment before, or `first_state`. Where a row has ended, it stays as it is.
        x : Ragged, or array (batch, steps, ...) of rows that all have all of these steps
            Or a tuple of those of all inputs. An input of rows of one length is given whole each time.
        """
        parts = self._entered(x)
        if any(isinstance(part, Ragged) for part in parts):
            return super().forward_from(weights, state, x)
        y, state = super().forward_from(weights, state, self._with_lengths(parts))
        return values_of(y), state

    @jitted
    def step(self, weights: Weights, state: Any, x: Any) -> tuple[Any, Any]:
        """(y, the state after it) of one more step of every row.

        Parameters
        ----------
        weights : nested dict of arrays
        state : nested dict of arrays
            After the step before, or `first_state`.
        x : array (batch, ...)
            The step of every row, without an axis of steps; or a tuple of those of all inputs.

        Returns
        -------
        y : array (batch, ...)
            Without an axis of steps, too; or a tuple of those of all outputs.
        state : nested dict of arrays
        """
        shapes = self.input_shapes.values()
        parts = [
            jnp.expand_dims(part, 1) if is_ragged(shape) else part
            for part, shape in zip(self._entered(x), shapes, strict=True)
        ]
        y, state = self.forward_from(weights, state, self._with_lengths(parts))
        several = len(self.exits) > 1
        outputs = [part.values[:, 0] if isinstance(part, Ragged) else part for part in (y if several else (y,))]
        return tuple(outputs) if several else outputs[0], state

    def _with_lengths(self, parts: list[Any]) -> Any:
        """x of these arrays, of which those of any length have all of their steps."""
        shapes = self.input_shapes.values()
        whole = [as_ragged(part) if is_ragged(shape) else part for part, shape in zip(parts, shapes, strict=True)]
        return whole[0] if self.entries == 1 else tuple(whole)
