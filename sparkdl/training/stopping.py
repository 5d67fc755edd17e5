"""Early stopping: when a run has learned what it will, has run for too long, or has come apart."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from sparkdl.objective import Objective
from sparkdl.specs import Spec, check_integers, check_range
from sparkdl.training.records.meter import Means

MONITORS = ("loss", "metric", "validation_loss", "validation_metric")
FALLING, RISING = (
    ("mse", "pinball"),
    ("accuracy", "cosine_similarity", "iou"),
)  # metrics that are better when smaller, and larger


@dataclass(frozen=True)
class EarlyStopping(Spec):
    """When to stop before the last epoch; all workers decide alike. The reason is the summary's `stopReason`.

    Parameters
    ----------
    monitor : str, default "validation_loss"
        What to watch: "validation_loss", "validation_metric", "loss" or "metric" (of training).
    patience : int, optional
        The number of checks in a row without improvement that stop the run; None never does. Default 3.
    min_delta : float, default 0
        The least change that is an improvement.
    mode : str, default "auto"
        What is better: "min", "max", or "auto": min for a loss and for mse, max for accuracy, cosine similarity and
        iou; any other metric, as of a loss of one's own, needs one of the first two.
    target : float, optional
        Stop as soon as the monitored value is at least as good.
    max_seconds : float, optional
        Stop once a step ends after this time of training (without compiling): two steps after it, as all
        workers must learn of it.
    max_loss : float, optional
        Stop when the mean loss of one step's rows is above, as one that is not finite always does: the model then has
        the weights after the last epoch before, unless `restore_best` has others.
    every : int, default 1
        Epochs or steps from one check to the next.
    unit : str, default "epoch"
        Of `every`: "epoch" or "step". Steps are counted from the start of each epoch, and an epoch of fewer than
        `every` is checked at its end; a check after steps looks at the training rows since the last check, and scores
        the validation rows if it needs them.
    output : str, optional
        Of a network with several outputs the one whose loss or metric to watch; without it their summed loss.
    restore_best : bool, default True
        Whether the model gets the weights of the best check instead of the last ones.
    """

    monitor: str = "validation_loss"
    patience: int | None = 3
    min_delta: float = field(default=0.0, kw_only=True)
    mode: str = field(default="auto", kw_only=True)
    target: float | None = field(default=None, kw_only=True)
    max_seconds: float | None = field(default=None, kw_only=True)
    max_loss: float | None = field(default=None, kw_only=True)
    every: int = field(default=1, kw_only=True)
    unit: str = field(default="epoch", kw_only=True)
    output: str | None = field(default=None, kw_only=True)
    restore_best: bool = field(default=True, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, choices in (("monitor", MONITORS), ("mode", ("auto", "min", "max")), ("unit", ("epoch", "step"))):
            if getattr(self, name) not in choices:
                raise ValueError(
                    f"{name} of EarlyStopping must be one of {', '.join(choices)}, received {getattr(self, name)!r}."
                )
        check_integers(self, 1, "every")
        if self.patience is not None:
            check_integers(self, 1, "patience")
        check_range(self, "[0, inf)", "min_delta")
        check_range(self, "(-inf, inf)", "target", "max_loss")
        check_range(self, "(0, inf)", "max_seconds")

    @property
    def validates(self) -> bool:
        """Whether it needs validation rows."""
        return self.monitor.startswith("validation")

    def metric_of(self, objective: Objective) -> str:
        """What the metric of the output that it watches is called.

        Raises
        ------
        ValueError
            It names no output, or names none where several have metrics of their own.
        """
        names = ", ".join(map(repr, objective.losses))
        if self.output is not None and (not objective.several or self.output not in objective.losses):
            remedy = f"name one of {names}" if objective.several else "leave it out, as the network has one output"
            raise ValueError(f"output of EarlyStopping is {self.output!r}; {remedy}.")
        if self.output is None and objective.several and not self.monitor.endswith("loss"):
            raise ValueError(
                f"output of EarlyStopping must say whose {self.monitor} to watch, received None; name one of {names}."
            )
        return objective.losses[self.output].metric if self.output else objective.metric

    def falls(self, metric: str) -> bool:
        """Whether less is better of what it monitors, in training with a loss whose metric is called `metric`.

        Raises
        ------
        ValueError
            It is to tell by itself and does not know the metric.
        """
        if self.mode != "auto":
            return self.mode == "min"
        if not self.monitor.endswith("loss") and metric not in FALLING + RISING:
            raise ValueError(
                f"mode of EarlyStopping must be 'min' or 'max' where it monitors {self.monitor!r} and that is "
                f"{metric!r}, received 'auto', which knows {', '.join(FALLING + RISING)}; say which is better."
            )
        return self.monitor.endswith("loss") or metric in FALLING


class Stopper:
    """Follows one run.

    Parameters
    ----------
    plan : EarlyStopping
    metric : str
        Name of the loss's metric.

    Attributes
    ----------
    checks : list of [epoch, step, value]
        Epochs and steps done at each check, and the monitored value.
    """

    def __init__(self, plan: EarlyStopping, metric: str) -> None:
        self.plan = plan
        self._sign = 1 if plan.falls(metric) else -1
        self.checks: list[list[Any]] = []
        self._best: int | None = None  # its index among the checks

    def due(self, step: int, steps: int) -> bool:
        """Whether to check after this step of an epoch."""
        return self.plan.unit == "step" and step % min(self.plan.every, steps) == 0

    def due_after(self, epoch: int) -> bool:
        """Whether to check after this epoch."""
        return self.plan.unit == "epoch" and epoch % self.plan.every == 0

    def watched(self, means: Means) -> float | None:
        """What it watches of them."""
        output = self.plan.output
        loss, metric = means.outputs[output] if output else means[:2]
        return loss if self.plan.monitor.endswith("loss") else metric

    def check(self, epoch: int, step: int, value: float) -> bool:
        """Take the monitored value as of an epoch and a step; return whether it is the best so far."""
        self.checks.append([epoch, step, value])
        best = self._best
        gain = math.inf if best is None else self._sign * (self.checks[best][2] - value)
        if math.isfinite(value) and gain > self.plan.min_delta:
            self._best = len(self.checks) - 1
        return self._best == len(self.checks) - 1

    def reason(self) -> str | None:
        """Why to stop now, after a check."""
        plan, best = self.plan, self._best
        if not self.checks:
            return None
        value = self.checks[-1][2]
        if plan.target is not None and self._sign * (value - plan.target) <= 0:
            return f"{plan.monitor} {value:.6g} has reached the target {plan.target:g}"
        bad = len(self.checks) - 1 - (-1 if best is None else best)
        if plan.patience is not None and bad >= plan.patience:
            which = "was never finite" if best is None else f"was best after {_moment(*self.checks[best])}"
            return f"{plan.monitor} has not improved by more than {plan.min_delta:g} in {bad} checks; it {which}"
        return None

    def late(self, seconds: float) -> bool:
        """Whether the time of training is up."""
        return self.plan.max_seconds is not None and seconds > self.plan.max_seconds

    @property
    def best(self) -> list[Any] | None:
        """[epoch, step, value] of the best check."""
        return None if self._best is None else self.checks[self._best]

    def to_json(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {"checks": self.checks, "best": self._best}

    def restore(self, kept: dict[str, Any]) -> None:
        """Go on from what `to_json` gave."""
        self.checks, self._best = kept["checks"], kept["best"]


def diverged(epoch: int, step: int, loss: float, bound: float = math.inf) -> str | None:
    """Why to stop after a step with this mean loss, if there is a reason; `epoch` counts from 0, `step` from 1."""
    if math.isfinite(loss) and loss <= bound:
        return None
    limit = f", above {bound:g}" if math.isfinite(loss) else ""
    return f"the loss was {loss:g}{limit} at step {step} of epoch {epoch + 1}; try a smaller step size or clip_norm"


def _moment(epoch: int, step: int, value: float) -> str:
    return f"{f'step {step} of epoch {epoch + 1}' if step else f'epoch {epoch}'}, with {value:.6g}"
