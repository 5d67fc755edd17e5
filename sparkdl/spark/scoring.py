"""What a model adds to a DataFrame: its outputs, activations of layers, and the loss of each row, in one pass."""

from __future__ import annotations

from functools import partial
from typing import Any

from pyspark import Broadcast
from pyspark.ml.functions import array_to_vector
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sparkdl.spark import columns
from sparkdl.spark.inference import Heads, Scoring, in_rows, packed, scored
from sparkdl.spark.params import DeepParams
from sparkdl.spark.persistence import Saved
from sparkdl.training.step import kept_dtype

Outputs = dict[str, tuple[Any, bool]]  # by output column: its head (see `inference.py`), and whether it is a Vector


class RowScoring(DeepParams, Saved):
    """The part of a model that scores rows; the model gives weights and heads."""

    _shipped: tuple[str, Broadcast[bytes]] | None
    _key: str

    def score_rows(self, dataset: DataFrame, lossCol: str = "loss") -> DataFrame:
        """Add the loss of each row: where the model is wrong, or the label is.

        Parameters
        ----------
        dataset : DataFrame
            With `featuresCol` and `labelCol`, as for `fit`.
        lossCol : str, default "loss"
            The new column: a double, the loss between the network's output and the row's label, without the row's
            weight and without regularization.

        Returns
        -------
        DataFrame
            Lazy, like that of `transform`; a label that does not fit the loss fails its Spark job.

        Raises
        ------
        ValueError
            The features or label column is missing or of another type, or `lossCol` exists already.
        """
        self.getLoss().check(self.getNetwork().output_shape())
        return self._scored(dataset, {}, {}, lossCol)

    def _heads(self) -> Outputs:
        raise NotImplementedError(f"{type(self).__name__} has no heads.")

    def _transform(self, dataset: DataFrame) -> DataFrame:
        activations = self.getActivationCols()
        self.getNetwork().check_paths(activations)
        return self._scored(dataset, {name: head for name, head in self._heads().items() if name}, activations)

    def _scored(
        self, dataset: DataFrame, heads: Outputs, activations: dict[str, str], loss_column: str = ""
    ) -> DataFrame:
        added = [*heads, *activations.values(), *([loss_column] if loss_column else [])]
        taken = sorted({name for name in added if name in dataset.columns or added.count(name) > 1})
        if taken:
            raise ValueError(f"Output column {taken[0]!r} exists already; drop it or name another.")
        inputs = [columns.features(dataset, self.getFeaturesCol(), kept_dtype(self.getComputeDtype()))]
        if loss_column:
            inputs.append(columns.labels(dataset, self.getLabelCol()))
        if not added:
            return dataset
        scoring = Scoring(
            key=self._key,
            network=self.getNetwork().to_json(),
            loss=self.getLoss().to_json(),
            batch=self.getBatchSize(),
            column=self.getFeaturesCol(),
            dtype=self.getComputeDtype(),
            device=self.getDeviceType(),
            activations=activations,
            label=self.getLabelCol() if loss_column else "",
            loss_column=loss_column,
        )
        functions: Heads = {name: head for name, (head, _) in heads.items()}
        vectors = {name for name, (_, is_vector) in heads.items() if is_vector}
        weights = partial(_broadcast_value, self._broadcast(dataset.sparkSession))
        struct = f"{self.uid}_scores"
        scores = scored(inputs, scoring, weights, functions, vectors)
        vectors |= set(activations.values())
        outputs = {
            name: array_to_vector(F.col(struct)[name]) if name in vectors else F.col(struct)[name] for name in added
        }
        return in_rows(dataset).withColumn(struct, scores).withColumns(outputs).drop(struct)

    def _broadcast(self, session: SparkSession) -> Broadcast[bytes]:
        """The weights, sent to every executor once, however often transform is called."""
        context = session.sparkContext
        if self._shipped is None or self._shipped[0] != context.applicationId:
            assert self._weights is not None
            self._shipped = context.applicationId, context.broadcast(packed(self._weights))
        return self._shipped[1]


def _broadcast_value(broadcast: Broadcast[bytes]) -> bytes:
    return broadcast.value
