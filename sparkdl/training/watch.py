"""What ends a run before its last epoch, and the weights that it ends with."""

from __future__ import annotations

import math
import time
from collections import deque
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from sparkdl.arrays import Array
from sparkdl.layers.base import Weights
from sparkdl.training.data.placing import local_workers
from sparkdl.training.group.collectives import summed
from sparkdl.training.options import Training
from sparkdl.training.resumption import Position
from sparkdl.training.step.state import State
from sparkdl.training.stopping import Stopper, diverged


class Watch:
    """Looks at a run's losses, weights and time, and stops it where these say so: all workers at the same step.

    Several runs that take every step together are not stopped: it notes which of them stay finite.

    Parameters
    ----------
    plan : Training
        Of the run, the first of several.
    runs : int
    mesh : Mesh
    at : Position
        How far the run is. Why it has ended is written here, in `stopped` and `late`.

    Attributes
    ----------
    stopper : Stopper or None
        Of early stopping.
    kept : KeptWeights
    finite : array (runs,) of bool
        Which of several have not diverged.
    diverged : bool
        Whether the run alone has.
    """

    def __init__(self, plan: Training, runs: int, mesh: Mesh, at: Position) -> None:
        stopping = plan.early_stopping
        self.stopper = Stopper(stopping, stopping.metric_of(plan.objective)) if stopping else None
        self.kept = KeptWeights()
        self.finite = np.ones(runs, bool)
        self.diverged = False
        self._plan, self._several, self._mesh, self._at = plan, runs > 1, mesh, at
        self._overflowed = False  # which a loss that is only above its bound did not
        self._votes: deque[Any] = deque()  # of late workers, on their way
        self._earlier = self._began = 0.0

    def begin(self) -> None:
        """Training begins, or goes on from where `resume` has put it."""
        self._began = time.perf_counter()

    def leave_out(self, seconds: float) -> None:
        """Of the time since it began, as they were none of training."""
        self._began += seconds

    def seconds(self) -> float:
        """Of training, by every process that has taken a part in it."""
        return self._earlier + time.perf_counter() - self._began

    def resume(self, at: Position, best: Weights | None) -> None:
        """Go on from there, with these weights of the best check."""
        self._at, self.kept.best, self._earlier = at, best, at.seconds
        if self.stopper and at.stopper:
            self.stopper.restore(at.stopper)
            if at.late and not self.stopper.late(at.seconds):  # it is given more time than before
                at.stopped, at.late = None, False
                if at.step:
                    at.history.pop()

    def see_totals(self, step: int, totals: Array) -> None:
        """Look at the totals of a step, which is done: whether it was led astray."""
        if self._several:
            self.finite &= np.isfinite(totals[:, 0])
            return
        if totals[2] == 0:  # of an exchange that holds its totals back; NaN is no weight that one could miss
            return
        loss, bound = float(totals[0] / totals[2]), self.stopper.plan.max_loss if self.stopper else None
        if reason := diverged(self._at.epoch, step, loss, math.inf if bound is None else bound):
            self._overflowed = self._overflowed or (not self.diverged and not math.isfinite(loss))
            self.diverged = True
            self._stop(reason)

    def see_time(self) -> None:
        """Stop all workers once one of them finds that time is up; votes are read two steps late."""
        if not self.stopper or self.stopper.plan.max_seconds is None:
            return
        vote = self.stopper.late(self.seconds())
        votes = self._votes
        votes.append(summed(np.full(local_workers(self._mesh), vote, np.int32), self._mesh))
        if len(votes) > 2 and int(np.asarray(votes.popleft().addressable_data(0))) and not self._at.stopped:
            self._at.late = True
            self._stop(f"max_seconds {self.stopper.plan.max_seconds:g} of training have passed")

    def see_weights(self, state: State) -> None:
        """Keep the weights after an epoch, when workers hold equal ones, unless it led them astray."""
        if self._several:
            return
        # Its last step may have led them astray, whose loss was of those before.
        if not self.diverged and not are_finite(of_first_worker(state.weights)):
            self.diverged = self._overflowed = True
            self._stop(
                f"the weights were not finite after epoch {self._at.epoch}; try a smaller step size or clip_norm"
            )
        if not self.diverged:
            self.kept.keep(self._at.epoch, state)

    def see_fall(self) -> None:
        """Stop where the objective fell by no more than `tol` says in the last epoch, of which all steps are done."""
        tol, history = self._plan.tol, self._at.history
        if not tol or len(history) < 2:
            return
        previous = history[-2].loss
        if previous - history[-1].loss < tol * abs(previous):
            self._stop(f"the objective fell by less than tol {tol:g} of itself in epoch {self._at.epoch}")

    def check(self, value: float | None, state: State) -> bool:
        """Take what early stopping monitors; whether it is the best so far, the weights of which are then kept."""
        assert self.stopper is not None and value is not None
        improved = self.stopper.check(self._at.epoch, self._at.step, value)
        if improved and self.stopper.plan.restore_best:
            self.kept.best = self.kept.of(state)
        if reason := self.stopper.reason():
            self._stop(reason)
        return improved

    def ending(self, state: State) -> tuple[Weights, list[str], str | None]:
        """The weights that the run ends with, a note of how it came apart, and why there is nothing to use of it."""
        kept, restores = self.kept, self.stopper is not None and self.stopper.plan.restore_best
        if restores and kept.best is not None:
            weights, which, failure = kept.best, "those of the best check", None
        elif self.diverged:
            which = f"those after epoch {kept.epochs}" if kept.epochs else "the initial ones"
            weights, failure = kept.weights, self._failure()
        else:
            weights, which, failure = kept.of(state), "", None
        notes = [f"Training stopped: {self._at.stopped}. The model's weights are {which}."] if self.diverged else []
        return weights, notes, failure

    def _failure(self) -> str | None:
        if not self._overflowed or self.kept.epochs:
            return None
        return (
            f"No epoch of this fit stayed finite with step size {self._plan.step_size:g}: "
            f"{str(self._at.stopped).partition(';')[0]}; standardize the features (StandardScaler, or "
            "Standardize as the first layer), lower the step size, or set clip_norm of the optimizer."
        )

    def _stop(self, reason: str) -> None:
        """For this reason, unless it has stopped for another."""
        self._at.stopped = self._at.stopped or reason


def are_finite(weights: Any) -> bool:
    """Whether all arrays of a tree hold finite numbers only."""
    return all(np.isfinite(array).all() for array in jax.tree.leaves(weights))


class KeptWeights:
    """The weights that a run may end with, whatever its next steps do to those it trains: copies on the host.

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
