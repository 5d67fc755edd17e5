"""What a fit tells about itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from sparkdl.training.records.scaling import scaling_report
from sparkdl.training.records.timeline import Timeline
from sparkdl.training.results import Ending, Epoch

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class TrainingSummary:
    """History and timings of a fit, as `model.summary`.

    Attributes
    ----------
    history : list of Epoch
        Loss, metric, validation loss and metric, rows and seconds of every epoch.
    metric : str
        What the metric is: "accuracy", "mse", or another that the loss names; "metric" of several outputs, which have
        one each (see `metrics` and `Epoch.outputs`).
    workers : list of dict
        For every worker: rank, host, device, rows.
    timings : dict of str to float
        Seconds of wall time of the fit by phase: spark, read, start, compile, training, return.
    ending : Ending
        How the run ended: see stopReason, bestCheck, checks, resumedFrom, notes.
    events : list of list of dict
        What every worker did when, with collectTrainingStats.
    skipped : dict of str to int
        Rows that were left out, by what is wrong with them, with handleInvalid="skip".
    metrics : dict of str
        Of several outputs, what the metric of each is.
    truncated : dict of str to int
        Rows that were cut to maxLength, validation rows too, by the network's input; {} where none was.
    """

    history: list[Epoch]
    metric: str
    workers: list[dict[str, Any]]
    timings: dict[str, float]
    ending: Ending = field(default_factory=Ending)
    events: list[list[dict[str, Any]]] = field(default_factory=list)
    skipped: dict[str, int] = field(default_factory=dict)
    metrics: dict[str, str] = field(default_factory=dict)
    truncated: dict[str, int] = field(default_factory=dict)

    @property
    def stopReason(self) -> str:
        """Why training ended."""
        return self.ending.stop_reason

    @property
    def bestCheck(self) -> list[Any] | None:
        """[epochs, steps of the next epoch, monitored value] at the best check of earlyStopping; None without."""
        return self.ending.best

    @property
    def checks(self) -> list[list[Any]]:
        """The same of all checks of earlyStopping."""
        return self.ending.checks

    @property
    def resumedFrom(self) -> list[int] | None:
        """[epochs, steps of the next epoch] that were done at the checkpoint from which the fit went on, if it did."""
        return self.ending.resumed

    @property
    def notes(self) -> list[str]:
        """What went otherwise than expected, a sentence each; fit warned of them."""
        return self.ending.notes

    @property
    def fill(self) -> float | None:
        """What share of the steps in padded batches of rows of any length were rows' own; None without such rows."""
        return self.ending.fill

    @property
    def programs(self) -> int:
        """How many programs of a training step were compiled: one for each length that rows were padded to."""
        return self.ending.programs

    @property
    def bytesPerStep(self) -> float:
        """Bytes that a worker sent in a step to agree with the others, on average."""
        steps = sum(epoch.steps for epoch in self.history) * len(self.workers)
        return sum(epoch.bytes for epoch in self.history) / steps if steps else 0.0

    @cached_property
    def timeline(self) -> Timeline:
        """What every worker did when: a pandas frame with save_html and save_trace; empty without collectTrainingStats.

        The steps' own events are those of some steps, each standing for `steps` of them.
        """
        events = self.events or [[] for _ in self.workers]
        return Timeline.of(
            [worker | {"events": own} for worker, own in zip(self.workers, events, strict=True)], self.history
        )

    def scaling_report(self) -> str:
        """Where the time went and what another worker would bring, in plain words."""
        report = scaling_report(self.timeline, self.history, self.timings, len(self.workers))
        return report if any(self.events) else f"{report}\nFit with collectTrainingStats=True to collect them."

    def plot(self) -> Figure:
        """Loss and metric, in training and validation, with the best check marked, as a matplotlib Figure."""
        from sparkdl.training.records.learning_curves import learning_figure

        return learning_figure(self.history, self.metrics or self.metric, self.ending.best)

    @property
    def objectiveHistory(self) -> list[float]:
        """Mean loss plus regularization of every epoch."""
        return [epoch.loss for epoch in self.history]

    @property
    def metricHistory(self) -> list[float]:
        """Mean training metric of every epoch; empty for a network of several outputs, which have one each."""
        return [epoch.metric for epoch in self.history if epoch.metric is not None]

    @property
    def validationHistory(self) -> list[float]:
        """Mean loss plus regularization on the validation rows after every epoch; empty without such rows."""
        return [epoch.validation_loss for epoch in self.history if epoch.validation_loss is not None]

    @property
    def validationMetricHistory(self) -> list[float]:
        """Mean metric on the validation rows after every epoch; empty without such rows."""
        return [epoch.validation_metric for epoch in self.history if epoch.validation_metric is not None]

    @property
    def totalIterations(self) -> int:
        """Epochs trained."""
        return len(self.history)

    @property
    def rowsPerSecond(self) -> float:
        """Rows trained on a second, over all workers and epochs; 0 without any epoch."""
        seconds = sum(epoch.seconds for epoch in self.history)
        return sum(epoch.rows for epoch in self.history) / seconds if seconds else 0.0

    def __str__(self) -> str:
        header = ("epoch", "loss", self.metric, "val. loss", f"val. {self.metric}", "rows/s")
        lines = ["{:>5}  {:>10}  {:>10}  {:>10}  {:>13}  {:>9}".format(*header)]
        for number, epoch in enumerate(self.history, start=1):
            held_out = [
                "-" if value is None else f"{value:.4f}" for value in (epoch.validation_loss, epoch.validation_metric)
            ]
            metric = "-" if epoch.metric is None else f"{epoch.metric:.4f}"
            lines.append(
                f"{number:>5}  {epoch.loss:>10.4f}  {metric:>10}  {held_out[0]:>10}  {held_out[1]:>13}  "
                f"{epoch.rows / epoch.seconds:>9,.0f}"
            )
        for name, own in ((self.history and self.history[-1].outputs) or {}).items():
            named = {what: what.replace("_", " ").replace("metric", self.metrics[name]) for what in own}
            told = (f"{named[what]} {value:.4f}" for what, value in own.items() if value is not None)
            lines.append(f"{name}: {', '.join(told)}")
        if self.stopReason:
            lines.append(f"ended: {self.stopReason}")
        if self.skipped:
            lines.append("rows skipped: " + ", ".join(f"{count} {kind}" for kind, count in self.skipped.items()))
        if self.truncated:
            lines.append("rows cut: " + ", ".join(f"{count} of {name!r}" for name, count in self.truncated.items()))
        lines.append("seconds: " + ", ".join(f"{phase} {seconds:.1f}" for phase, seconds in self.timings.items()))
        return "\n".join(lines)
