"""The weights of a run that it may end with, whatever its next steps do to those it trains."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from sparkdl.layers.base import Weights
from sparkdl.training.step.step import State


class KeptWeights:
    """Copies on the host.

    Attributes
    ----------
    best : nested dict of arrays or None
        Those of the best check of early stopping.
    weights : nested dict of arrays
        Those of the last epoch's end at which they were finite.
    epochs : int
        How many epochs were done then.
    """

    def __init__(self) -> None:
        self.best: Weights | None = None
        self.weights: Weights = {}
        self.epochs = 0
        self._copied: State | None = None  # of which `weights` are copies

    def keep(self, epochs: int, state: State) -> None:
        """Keep the weights of this epoch's end."""
        self.weights, self._copied = {}, None  # lest the former be in memory beside them
        self.weights, self.epochs, self._copied = self.of(state), epochs, state

    def of(self, state: State) -> Weights:
        """Copies of what this process's first worker holds, which are those kept if these are still so."""
        return self.weights if self._copied is state else jax.tree.map(np.array, of_first_worker(state.weights))


def of_first_worker(stacked: Any) -> Any:
    """What this process's first worker holds, on the host; on a CPU no copies, so that a step puts an end to them."""
    return jax.tree.map(lambda leaf: np.asarray(leaf.addressable_data(0))[0], stacked)
