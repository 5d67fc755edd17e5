"""What a fit tells about itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sparkdl.training.trainer import Epoch


@dataclass(frozen=True)
class TrainingSummary:
    """History and timings of a fit, as `model.summary`.

    Attributes
    ----------
    history : list of Epoch
        Loss, metric, validation loss and metric, rows and seconds of every epoch.
    metric : str
        What the metric is: "accuracy" or "mse".
    workers : list of dict
        For every worker: rank, host, device, rows.
    timings : dict of str to float
        Seconds of wall time of the fit by phase: spark, read, start, compile, training, return.
    """

    history: list[Epoch]
    metric: str
    workers: list[dict[str, Any]]
    timings: dict[str, float]

    @property
    def objectiveHistory(self) -> list[float]:
        """Mean loss plus regularization of every epoch."""
        return [epoch.loss for epoch in self.history]

    @property
    def metricHistory(self) -> list[float]:
        """Mean training metric of every epoch."""
        return [epoch.metric for epoch in self.history]

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
            lines.append(
                f"{number:>5}  {epoch.loss:>10.4f}  {epoch.metric:>10.4f}  {held_out[0]:>10}  {held_out[1]:>13}  "
                f"{epoch.rows / epoch.seconds:>9,.0f}"
            )
        lines.append("seconds: " + ", ".join(f"{phase} {seconds:.1f}" for phase, seconds in self.timings.items()))
        return "\n".join(lines)
