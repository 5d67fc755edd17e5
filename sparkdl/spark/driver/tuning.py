"""Many fits of one DataFrame, as a CrossValidator asks for: those that can share a Spark job do."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.ml.base import _FitMultipleIterator
from pyspark.sql import DataFrame

from sparkdl.network import BaseNetwork
from sparkdl.spark.driver.result_bytes import most_bytes, returned_bytes

# Params in which fits that share a job may differ: they train on the same rows, with the same workers and labels.
MAY_DIFFER = {
    *("network", "exchange", "optimizer", "batchSize", "maxIter", "stepSize", "tol", "seed", "earlyStopping"),
    *("lengthBuckets", "stepSizeFactors", "unfreezeAfter"),
    *("checkpointDir", "checkpointInterval", "checkpointUnit", "checkpointKeep"),
    *("collectTrainingStats", "logDir", "logInterval"),
    *("predictionCol", "rawPredictionCol", "probabilityCol", "thresholds", "activationCols"),
}
JOB_BYTES = 1 << 30  # of weights that a job brings to the driver, unless one fit has more
LIMIT_SHARE = 0.5  # of what Spark lets a job bring, histories and statistics besides


def shared_fits(stages: Sequence[Any], dataset: DataFrame) -> Iterator[tuple[int, Any]]:
    """An iterator of (index, model) for any number of threads; a job runs when the first of its models is asked for."""
    most = min(JOB_BYTES, LIMIT_SHARE * most_bytes(dataset.sparkSession))
    jobs = [_Job([stages[index] for index in indices], indices, dataset) for indices in _groups(stages, most)]
    of_index = {index: job for job in jobs for index in job.indices}
    return _FitMultipleIterator(lambda index: of_index[index].model(index), len(stages))


def given(model: Any) -> Any:
    """The model of one fit; raised, if it is the reason why there is none."""
    if isinstance(model, Exception):
        raise model
    return model


def _groups(stages: Sequence[Any], most: float) -> list[list[int]]:
    """The indices of stages that can share a job, in parts of at most `most` bytes."""
    groups: dict[str, list[list[int]]] = {}
    sizes: dict[str, int] = {}
    for index, stage in enumerate(stages):
        network = stage.getNetwork()
        values = {
            param.name: stage.getOrDefault(param)
            for param in stage.params
            if param.name not in MAY_DIFFER and stage.isDefined(param)
        }
        shapes = _shapes(network)
        key = json.dumps([values, shapes], sort_keys=True)
        size = returned_bytes(network, stage.getComputeDtype()) if shapes else 0
        if key not in groups or sizes[key] + size > most:
            groups.setdefault(key, []).append([])
            sizes[key] = 0
        groups[key][-1].append(index)
        sizes[key] += size
    return [indices for parts in groups.values() for indices in parts]


def _shapes(network: BaseNetwork) -> list[Any] | None:
    """What the rows of a network are, and which it can use; None if it does not say, which its fit will refuse."""
    try:
        steps = sorted(network.step_outputs.items())
        shapes = [*network.input_shapes.items()], [*network.output_shapes.items()], steps
        strings = [[name, how.to_json()] for name, how in sorted(network.strings.items())]
        return [
            *shapes,
            sorted(network.integers),
            sorted(network.limits.items()),
            sorted(network.most_steps.items()),
            strings,
        ]
    except ValueError:
        return None


class _Job:
    """Fits that share one Spark job."""

    def __init__(self, stages: list[Any], indices: list[int], dataset: DataFrame) -> None:
        self.indices = indices
        self._stages, self._dataset = stages, dataset
        self._models: dict[int, Any] | None = None
        self._error: Exception | None = None
        self._lock = threading.Lock()

    def model(self, index: int) -> Any:
        """The model of one of the indices, once; whoever comes first trains them all while the others wait."""
        with self._lock:
            if self._error:
                raise self._error
            if self._models is None:
                try:
                    fitted = self._stages[0]._fit_all(self._stages, self._dataset)
                except Exception as error:  # an interrupted fit may be asked for again
                    self._error = error
                    raise
                self._models = dict(zip(self.indices, fitted, strict=True))
            return given(self._models.pop(index))
