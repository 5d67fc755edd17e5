"""Epochs of a fit as metrics of MLflow, where the program that called fit has a run of it under way."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from sparkdl.training.results import Epoch


def log_epochs(history: Sequence[Epoch], metric: str, metrics: Mapping[str, str]) -> None:
    """Log every epoch to the active run of MLflow, if the program has imported that; what fails is a warning.

    Parameters
    ----------
    history : sequence of Epoch
    metric : str
        What the metric is: "accuracy", ...
    metrics : dict of str
        Of several outputs, what that of each is.
    """
    mlflow: Any = sys.modules.get("mlflow")
    if mlflow is None or mlflow.active_run() is None:
        return
    try:
        for step, epoch in enumerate(history):
            mlflow.log_metrics(_named(epoch, metric, metrics), step=step)
    except Exception as error:  # of a server that is gone, when the model is there
        warnings.warn(f"MLflow did not log the epochs: {' '.join(str(error).split())}", stacklevel=2)


def _named(epoch: Epoch, metric: str, metrics: Mapping[str, str]) -> dict[str, float]:
    """loss, accuracy, validation_loss, ...; of several outputs also with the name of each before."""
    found: dict[str, float | None] = {
        "loss": epoch.loss,
        metric: epoch.metric,
        "validation_loss": epoch.validation_loss,
        f"validation_{metric}": epoch.validation_metric,
    }
    for output, own in (epoch.outputs or {}).items():
        found |= {f"{output}_{name.replace('metric', metrics[output])}": value for name, value in own.items()}
    return {name: value for name, value in found.items() if value is not None}
