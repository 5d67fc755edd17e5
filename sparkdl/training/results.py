"""What a training run tells of itself."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from sparkdl.layers.base import Weights


class Epoch(NamedTuple):
    """What one pass over the data came to.

    Attributes
    ----------
    loss : float
        Mean over rows, by sample weight, of loss plus regularization, each row under the weights of its step.
    metric : float
        Mean likewise of the loss's metric (accuracy for classification).
    validation_loss, validation_metric : float or None
        The same over the validation rows after the epoch; None without such rows.
    rows : int
        Rows trained on, over all workers; fewer than there are in an epoch that was stopped.
    seconds, validation_seconds : float
        Wall time of the pass, and of the validation after it.
    steps : int
    bytes : float
        Sent by all workers to agree.
    outputs : dict or None
        Of a network with several outputs by output: its loss, metric, validation_loss and validation_metric, means over
        the rows that have its label; `loss` is then their sum by loss weight plus regularization, and `metric` None.
    """

    loss: float
    metric: float | None
    validation_loss: float | None
    validation_metric: float | None
    rows: int
    seconds: float
    validation_seconds: float
    steps: int = 0
    bytes: float = 0.0
    outputs: dict[str, dict[str, float | None]] | None = None


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How a run ended.

    Attributes
    ----------
    stop_reason : str
        Why: all epochs are done, or what stopped it before.
    best : list or None
        [epoch, step, value] of the best check of early stopping.
    checks : list of [epoch, step, value]
        All of its checks.
    resumed : list or None
        [epoch, step] of the checkpoint from which the run went on.
    notes : list of str
        What went otherwise than expected, a sentence each.
    failure : str or None
        Why there is nothing to use: no epoch stayed finite, and the weights are the initial ones. Not raised here,
        since the run may be one of a grid.
    programs : int
        Programs of a training step: one for each number of steps that rows of any length are padded to.
    fill : float or None
        In an epoch's padded rows of any length, the share of steps that are no padding; None without such rows.
    """

    stop_reason: str = ""
    best: list[Any] | None = None
    checks: list[list[Any]] = field(default_factory=list)
    resumed: list[int] | None = None
    notes: list[str] = field(default_factory=list)
    failure: str | None = None
    programs: int = 0
    fill: float | None = None

    def ending(self) -> Ending:
        """This without what a subclass adds."""
        return Ending(**{entry.name: getattr(self, entry.name) for entry in fields(Ending)})


@dataclass(frozen=True)
class Result(Ending):
    """What a training run returns: besides how it ended (see `Ending`) what came of it.

    Attributes
    ----------
    weights : nested dict of NumPy arrays
    history : list of Epoch
    compile_seconds : float
        Wall time spent on compiling.
    events : list of dict
        See `Recorder`; empty without `statistics`.
    seconds : float
        Wall time of the run, compiling included; of all those that took their steps together.
    """

    weights: Weights
    history: list[Epoch]
    compile_seconds: float
    events: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0
