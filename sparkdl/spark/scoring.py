"""What a model adds to a DataFrame: its outputs, activations of layers, and the loss of each row, in one pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import ClassVar

import pyarrow as pa
from pyspark.ml.functions import array_to_vector
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, DoubleType, FloatType, StructField, StructType

from sparkdl.arrays import Array
from sparkdl.decoding.layout import Layout
from sparkdl.layers.base import Weights
from sparkdl.network import BaseNetwork
from sparkdl.scoring.forward import Scoring
from sparkdl.scoring.heads import Heads, classes
from sparkdl.scoring.inference import Batch
from sparkdl.scoring.outputs import Outputs, by_step, heads_of, heads_of_several
from sparkdl.spark.driver import columns
from sparkdl.spark.driver.arrow_udf import arrow_udf
from sparkdl.spark.driver.interpreter import check_interpreter
from sparkdl.spark.driver.remote import Shipped, carried, over_connect
from sparkdl.spark.driver.shipping import packed_classes
from sparkdl.spark.params.params import DeepParams
from sparkdl.spark.saving.persistence import Saved
from sparkdl.spark.tasks.row_scores import results
from sparkdl.weights import weights_in_parts, weights_to_bytes


def output_columns(stage: DeepParams) -> list[str]:
    """The columns that a stage's model adds, in the order of its Params; its network is set."""
    if len(stage.getNetwork().output_names) > 1:
        names = [name for name, _ in heads_of_several(plain_outputs(stage))]
    else:
        likely = any(loss.gives_probabilities for loss in stage._objective().losses.values())
        params = ("rawPredictionCol", "probabilityCol", "predictionCol")
        made = [name for name in params if name != "probabilityCol" or likely]
        names = [stage.getOrDefault(name) for name in made if stage.hasParam(name)]
    return [name for name in (*names, *stage.getActivationCols().values()) if name]


def plain_outputs(stage: DeepParams) -> Outputs:
    """What a stage's Params say of the columns that its model adds; its network is set."""
    named = {
        field: stage.getOrDefault(param) if stage.hasParam(param) else ""
        for field, param in (("raw_prediction", "rawPredictionCol"), ("probability", "probabilityCol"))
    }
    limits = stage.hasParam("thresholds") and stage.isSet("thresholds")
    return Outputs(
        network=stage.getNetwork(),
        objective=stage._objective(),
        prediction=stage.getPredictionCol(),
        predictions=stage.getPredictionCols(),
        probabilities=stage.getProbabilityCols(),
        thresholds=tuple(stage.getOrDefault("thresholds")) if limits else None,
        **named,
    )


class RowScoring(DeepParams, Saved):
    """The part of a model that scores rows; the model gives weights."""

    _shipped: Shipped
    _network_of_weights: BaseNetwork | None = None  # the last one that they were found to fit
    _kind: ClassVar[str] = "DeepModel"  # of `scoring/outputs.py`

    def score_rows(self, dataset: DataFrame, lossCol: str = "loss") -> DataFrame:
        """Add the loss of each row: where the model is wrong, or the label is.

        Parameters
        ----------
        dataset : DataFrame
            With `featuresCol` and `labelCol`, as for `fit`.
        lossCol : str, default "loss"
            The new column: a double, the loss between the network's output and the row's label, without the row's
            weight and without regularization. Of several outputs there is one more for each, lossCol_OUTPUT, null where
            the row lacks its label; lossCol is then the sum by lossWeights of those it has.

        Returns
        -------
        DataFrame
            Lazy, like that of `transform`; a label that does not fit the loss fails its Spark job.

        Raises
        ------
        TypeError
            `dataset` is no DataFrame of Spark.
        ValueError
            The features or label column is missing or of another type, or `lossCol` is "" or exists already.

        Notes
        -----
        `handleInvalid` says what becomes of rows whose features or label cannot be used, as in `transform`.
        """
        columns.check_frame(dataset, "score_rows")
        self._require_loss("score_rows")
        self._objective().check(self.getNetwork())
        self._objective().check_rows_alone("score_rows")
        columns.check_outputs(dataset, list(self._scoring({}, {}, lossCol).loss_columns.values()) or [lossCol])
        return self._scored(dataset, {}, {}, lossCol)

    def _require_loss(self, method: str) -> None:
        """ValueError from a method that compares outputs with labels, of a model without a loss."""
        if not self.isDefined(self.loss):
            ends = " and ".join(map(repr, self.getNetwork().output_names))
            raise ValueError(
                f"{method} needs a loss, and this {type(self).__name__} has none: a part of a network, as up_to gives "
                f"it, ends in {ends}, before the outputs that the loss reads; call {method} of the whole model, or "
                "setLoss of one between what the part ends in and labelCol."
            )

    def _heads(self) -> Heads:
        """What the columns that `transform` adds are made of."""
        return heads_of(self._kind, plain_outputs(self))

    def _decide(self) -> Callable[[Array, Array], Array]:
        """What gives the class of each row of (outputs, predictions), where an evaluation asks for classes."""
        return partial(classes, thresholds=None)

    def _transform(self, dataset: DataFrame) -> DataFrame:
        columns.check_frame(dataset, "transform")
        activations = self.getActivationCols()
        self.getNetwork().check_paths(activations)
        columns.check_outputs(dataset, output_columns(self))
        heads = {name: head for name, head in self._heads().items() if name}
        return self._scored(dataset, heads, {path: name for path, name in activations.items() if name})

    def _scored(
        self, dataset: DataFrame, heads: Heads, activations: dict[str, str], loss_column: str = ""
    ) -> DataFrame:
        inputs = columns.features(dataset, self)
        scoring = self._scoring(inputs.layouts, activations, loss_column)
        added = [*heads, *activations.values(), *scoring.loss_columns.values()]
        read = list(inputs.columns.values())
        param = "labelCols" if len(scoring.labels) > 1 else "labelCol"
        parts = self._objective().label_parts(scoring.labels, self.getNetwork(), inputs.layouts)
        read += [columns.labels(dataset, part, param)[0] for part in parts.values()]
        if not added:
            return dataset
        vectors = {name for name, head in heads.items() if head.is_list and head.output not in scoring.by_step} | {
            name for path, name in activations.items() if path not in scoring.by_step
        }
        weights = self._sent(dataset.sparkSession, dataset.isStreaming)
        scores = f"{self.uid}_scores"
        result = columns.in_rows(dataset).withColumn(scores, scored(read, scoring, weights, heads))
        outputs = {name: F.col(scores)[name] if len(added) > 1 else F.col(scores) for name in added}
        handle = self.getHandleInvalid()
        valid = outputs[min(added, key=lambda name: name not in vectors)].isNotNull()  # a NaN may become null
        if handle == "skip":
            result = result.where(valid)
        for name in vectors:
            # Spark casts by itself, but not after an operator of a stream that keeps state.
            vector = array_to_vector(outputs[name].cast("array<double>"))
            outputs[name] = F.when(valid, vector) if handle == "keep" else vector
        return result.withColumns(outputs).drop(scores)

    def _scoring(self, layouts: dict[str, Layout], activations: dict[str, str], loss_column: str = "") -> Scoring:
        network = self.getNetwork()
        return Scoring(
            key=self._shipped.key,
            network=network.to_json(),
            objective=self._objective().to_json(),
            batch=self.getBatchSize(),
            layouts=layouts,
            dtype=self.getComputeDtype(),
            device=self.getDeviceType(),
            activations=activations,
            by_step=by_step(network, network.path_shapes(activations)),
            labels=self._label_columns() if loss_column else {},
            loss_column=loss_column,
            strict=self.getHandleInvalid() == "error",
            classes=packed_classes(network, *self._objective().losses.values()),
        )

    def _own_weights(self) -> Weights:
        """The weights; ValueError if there are none, or if a network was set since that takes others."""
        if self._weights is None:
            raise ValueError(f"This {type(self).__name__} has no weights; take one from fit or load, or give it some.")
        network = self.getNetwork()
        if network != self._network_of_weights:
            try:
                network.check_weights(self._weights)
            except ValueError as error:
                raise ValueError(
                    f"network of this {type(self).__name__} is not that of its weights: {error} Set that one again, or "
                    "make a model of the other."
                ) from None
            self._network_of_weights = network
        return self._weights

    def _weights_to_save(self) -> Weights | None:
        return None if self._weights is None else self._own_weights()

    def _sent(self, session: SparkSession, stream: bool = False) -> Callable[[], bytes]:
        """Gives the weights on a worker; sent to every executor once, however often the model and its copies score."""
        weights = self._own_weights()
        check_interpreter(session)  # whatever scores comes by here
        if stream and over_connect(session):
            return carried(weights_to_bytes(weights))
        return self._shipped.to(session, lambda: weights_in_parts(weights))


def scored(inputs: list[Column], scoring: Scoring, weights: Callable[[], bytes], heads: Heads) -> Column:
    """A struct column with a field for every head: a number, or a list of numbers.

    Fields for what `scoring` asks for besides follow: lists of activations, the row's losses. What is alone is a column
    of its own, which takes Spark less time to read than a struct does.

    Parameters
    ----------
    inputs : list of Column
        The features and, for losses, the labels (see `columns.py`).
    scoring : Scoring
    weights : callable
        Gives the weights' bytes, on the worker.
    heads : dict of callable
        See `heads.py`.
    """
    types = {name: result_type(scoring, head.is_list, head.output) for name, head in heads.items()}
    types |= {name: result_type(scoring, True, path) for path, name in scoring.activations.items()}
    types |= {name: result_type(scoring, False) for name in scoring.loss_columns.values()}
    several = StructType([StructField(name, type_) for name, type_ in types.items()])
    kind = several if len(types) > 1 else next(iter(types.values()))

    def predict(batches: Iterator[Batch]) -> Iterator[pa.Array]:
        return results(batches, scoring, weights, heads)

    # Spark takes it for random, lest a filter on its results run it twice: to filter, and to show.
    return arrow_udf(predict, kind).asNondeterministic()(*inputs)


def result_type(scoring: Scoring, is_list: bool, of: str = "") -> DataType:
    """Spark's type of a head's results: double, or a list of the floats that the model keeps; a list of such for each
    step if what they are of, an output or a layer's path, is something for each."""
    floats = DoubleType() if scoring.dtype == "float64" else FloatType()
    own = ArrayType(floats, False) if is_list else DoubleType()
    return ArrayType(own, False) if of in scoring.by_step else own
