"""Kinds of bad input, each with a part of the sentence that it must get: the tables of `test_bad_input.py`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from pyspark.ml.linalg import Vectors
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from spark_cases import NETWORK, Array, a_model

from sparkdl import DeepClassificationModel, DeepClassifier, DeepEstimator, DeepRegressor, Network
from sparkdl.layers import Conv, Dense, Flatten, Layer, Relu
from sparkdl.layers.base import Weights
from sparkdl.training import EarlyStopping

Change = Callable[[DataFrame], DataFrame]
Act = Callable[[DataFrame], Any]


def same(rows: DataFrame) -> DataFrame:
    return rows


def having(**columns: str) -> Change:
    """Rows with columns of these SQL expressions."""
    return lambda rows: rows.withColumns({name: F.expr(text) for name, text in columns.items()})


def once(name: str, bad: str) -> Change:
    """Rows of which one holds this SQL expression in a column that there is."""
    return having(**{name: f"if(id = 3, {bad}, {name})"})


def named_classes(rows: DataFrame) -> DataFrame:
    return rows.withMetadata("label", {"ml_attr": {"type": "nominal", "vals": ["a", "b", "c"]}})


def twin(rows: DataFrame) -> DataFrame:
    return rows.withColumnRenamed("id", "Features")


def stream(rows: DataFrame) -> DataFrame:
    rates = rows.sparkSession.readStream.format("rate").load()
    return rates.selectExpr("array(1D, 2D, 3D, 4D) features", "value % 2 label")


def unsendable() -> Network:
    lock = threading.Lock()

    @dataclass(frozen=True)
    class Locked(Dense):
        def forward(self, weights: Weights, x: Array) -> Array:
            with lock:
                return super().forward(weights, x)

        delta, gradient, train_gradient = Layer.delta, Layer.gradient, Layer.train_gradient

    return Network([Locked(2)], input_shape=(4,))


ONE = Network([Dense(1)], input_shape=(4,))
ROW = Vectors.dense(1, 2, 3, 4)
ONE = Network([Dense(1)], input_shape=(4,))
OTHER = {"dense_1": {"kernel": np.ones((3, 5), "float32"), "bias": np.ones(5, "float32")}}
THERE_ARE = "which is not there; the columns are features, label, id."
NUMBERS = "must be numeric or array<numeric> or Vector"
NAN = float("nan")
GRAY = "named_struct('origin', '', 'height', 2, 'width', 2, 'nChannels', 1, 'mode', 0, 'data', X'01020304')"
PIXELS, SQUARE, LARGE = ([Flatten(), Dense(2)], (2, 2), (3, 3))
PICTURE, LARGER = (Network(PIXELS, input_shape=shape) for shape in (SQUARE, LARGE))


def grid(rows: DataFrame, step_size: Any) -> Any:
    estimator = DeepClassifier(network=NETWORK)
    return next(estimator.fitMultiple(rows, [{estimator.stepSize: step_size}]))


# What the driver finds: by fits of a DeepClassifier, and by whatever else.

FITS: list[tuple[dict[str, Any], Change, str]] = [
    # columns
    ({"featuresCol": "x"}, same, f"featuresCol names column 'x', {THERE_ARE}"),
    ({"featuresCol": "Features"}, same, f"featuresCol names column 'Features', {THERE_ARE}"),
    ({"labelCol": "x"}, same, f"labelCol names column 'x', {THERE_ARE}"),
    ({"weightCol": "x"}, same, f"weightCol names column 'x', {THERE_ARE}"),
    ({"validationIndicatorCol": "x"}, same, f"validationIndicatorCol names column 'x', {THERE_ARE}"),
    ({"featuresCols": ["features", "x"]}, same, f"featuresCols names column 'x', {THERE_ARE}"),
    ({}, twin, "'features', for which Spark finds 'features' and 'Features'; rename or drop one."),
    ({"featuresCols": ["id"], "featuresCol": "label"}, same, "featuresCol is 'label' but featuresCols is"),
    ({"predictionCol": "id"}, same, "Output column 'id' exists already; drop it or name another."),
    ({"predictionCol": "ID"}, same, "Output column 'ID' exists already as 'id'; drop it or name another."),
    ({"probabilityCol": "p", "predictionCol": "P"}, same, "Output column 'P' is asked for twice; give each output a"),
    ({"activationCols": {"tanh_2": "prediction"}}, same, "Output column 'prediction' is asked for twice"),
    # types
    ({}, having(features="'1 2'"), "featuresCol 'features' must be numeric or array<numeric> or Vector or nested"),
    ({}, having(features="array('1')"), "received array<string>; cast it."),
    ({}, having(features="map('a', 1)"), "received map<string,int>; cast it."),
    ({}, having(features="null"), "received void; cast it."),
    ({}, having(label="'cat'"), f"labelCol 'label' {NUMBERS}, received string; cast it."),
    ({}, having(label="current_date()"), f"labelCol 'label' {NUMBERS}, received date; cast it."),
    ({}, having(label="array(array(1))"), "received array<array<int>>; cast it."),
    ({"weightCol": "w"}, having(w="'1'"), "weightCol 'w' must be numeric, received string; cast it."),
    ({"weightCol": "w"}, having(w="array(1)"), "weightCol 'w' must be numeric, received array<int>; cast it."),
    ({"validationIndicatorCol": "v"}, having(v="'1'"), "'v' must be numeric, received string"),
    ({"featuresCols": ["id", "f"]}, having(f="X'01'"), "featuresCols 'f' must be numeric or array<numeric> or"),
    ({}, having(features="array(features)"), "must hold arrays nested at most 1 deep to fill the network's"),
    ({"featuresCol": "id"}, same, "featuresCol 'id' must hold 4 values a row to fill the network's input_shape (4,), "
     "received bigint; name as many columns in featuresCols, or one of arrays."),
    ({"featuresCols": ["id", "label"]}, same, "received 2 columns of one value; name as many columns"),
    ({}, having(features=GRAY), "(height, width, channels) with 1, 3 or 4 channels, received (4,); begin"),
    ({"binaryFormat": "image"}, having(features="X'01'"), "featuresCol 'features' holds images, for which"),
    ({"imageStorage": "files"}, same, "must be binary and hold JPEG or PNG files, received array<double>; set it to"),
    ({"imageStorage": "files", "binaryFormat": "raw"}, having(features="X'01'"), "received binaryFormat 'raw'; set it"),
    ({"imageStorage": "files"}, having(features="X'01'"), "received a network of input_shape (4,); set it to 'pixels'"),
    ({}, stream, "fit takes a DataFrame whose rows come to an end, received a stream; store its rows"),
    # values of Params
    ({"handleInvalid": "keep"}, same, "handleInvalid must be error or skip in fit, received 'keep'"),
    ({"numWorkers": 4}, same, "numWorkers is 4 but local[3] can run 3 tasks at once; lower numWorkers or use"),
    ({"numWorkers": 0}, same, "numWorkers must be at least 1, received 0."),
    ({"numWorkers": -2}, same, "numWorkers must be at least 1, received -2."),
    ({"batchSize": 0}, same, "batchSize must be at least 1, received 0."),
    ({"maxIter": -1}, same, "maxIter must be at least 0, received -1."),
    ({"seed": -1}, same, "seed must be at least 0, received -1."),
    ({"seed": 2**63}, same, "seed must be at least 0 and at most 9223372036854775807, received 9223372036854775808."),
    ({"batchSize": 2**31}, same, "batchSize must be at least 1 and at most 2147483647, received 2147483648."),
    ({"stepSize": NAN}, same, "stepSize must be a number in (0, inf), received nan; choose one there."),
    ({"stepSize": 0.0}, same, "stepSize must be a number in (0, inf), received 0.0; choose one there."),
    ({"tol": -0.1}, same, "tol must be a number in [0, inf), received -0.1; choose one there."),
    ({"checkpointInterval": 0}, same, "checkpointInterval must be at least 1, received 0."),
    ({"earlyStopping": EarlyStopping()}, same, "but validationIndicatorCol is not set; set it or monitor 'loss'"),
    ({"thresholds": [1.0]}, same, "thresholds must hold one number a class, 2 of them, received 1."),
    ({"thresholds": [0.0, 0.0]}, same, "thresholds must be at least 0 with at most one 0 among them"),
    ({"thresholds": [0.5, 0.5], "loss": "hinge"}, same, "need probabilities, which Hinge does not give"),
    ({"activationCols": {"tanh": "h"}}, same, "The network has no layer 'tanh'; its layers are rescale_0, dense_1,"),
    ({"initialModel": OTHER}, same, "Layer 'dense_1': the network has (4, 5) as its kernel, the initial weights have"),
    ({"initialModel": {"x": OTHER["dense_1"]}}, same, "The initial weights are of layers x, none of which the network"),
    # network and loss
    ({}, named_classes, "has 3 classes but the network ends in 2 outputs; end it in Dense(3)."),
    ({"network": None}, same, "network of DeepClassifier is not set; pass network=Network("),
    ({"network": Network([Dense(2)])}, same, "input_shape of Network is not set"),
    ({"network": Network([Relu()], input_shape=(2, 2))}, same, "put Flatten() and Dense(classes) at its end"),
    ({"network": ONE}, same, "with at least 2 classes, this one ends in (1,); put Dense(classes)"),
    ({"loss": "huber"}, same, "loss of DeepClassifier must take classes, Huber does not"),
]  # fmt: skip

CALLS: list[tuple[type[Exception], Act, str]] = [
    # a model that is none
    (
        ValueError,
        lambda rows: DeepClassificationModel().setParams(network=NETWORK).transform(rows),
        "loss of DeepClassificationModel is not set; pass loss='squared_error' or another.",
    ),
    (
        ValueError,
        lambda rows: DeepClassificationModel().setParams(network=NETWORK, loss="hinge").transform(rows),
        "This DeepClassificationModel has no weights; take one from fit or load, or give it some.",
    ),
    # Params that take no such value
    (TypeError, lambda rows: DeepClassifier(handleInvalid="eror"), "one of error, skip, keep, received 'eror'."),
    (TypeError, lambda rows: DeepClassifier(loss="cross"), "Loss is expected, received 'cross'; choose one of Abs"),
    (TypeError, lambda rows: DeepClassifier(optimizer="adamm"), "Optimizer is expected, received 'adamm'; choose one"),
    (TypeError, lambda rows: DeepClassifier(network="{"), "Network is read from JSON, but this is not JSON"),
    (TypeError, lambda rows: DeepClassifier(network=[Dense(2)]), "Network is expected, received [Dense(units=2)]"),
    (TypeError, lambda rows: DeepClassifier(stepSize="0.1"), '"stepSize". Could not convert 0.1 to float'),
    (TypeError, lambda rows: DeepClassifier(featuresCols="x"), "Could not convert x to list of strings"),
    (TypeError, lambda rows: DeepClassifier(maxIter=2.5), '"maxIter". Could not convert 2.5 to int'),
    (TypeError, lambda rows: DeepClassifier(stepsize=1), "has no Param 'stepsize'; did you mean step"),
    (TypeError, lambda rows: grid(rows, "a"), '"stepSize". Could not convert a to float'),
    (ValueError, lambda rows: grid(rows, NAN), "stepSize must be a number in (0, inf), received nan;"),
    # networks and losses
    (
        ValueError, lambda rows: Network([Conv(2, (3, 3))], input_shape=(4,)).output_shape(),
        "expects rows of shape (height, width, channels), received (4,)",
    ),
    (
        ValueError, lambda rows: DeepRegressor(network=NETWORK, loss="hinge").fit(rows),
        "loss of DeepRegressor must take numbers, Hinge takes classes",
    ),
    (
        ValueError, lambda rows: DeepEstimator(network=NETWORK).fit(rows),
        "loss of DeepEstimator is not set; pass loss='squared_error' or another.",
    ),
    (ValueError, lambda rows: DeepClassifier(network=unsendable()).fit(rows), "cannot pickle '_thread.lock' object"),
    (TypeError, lambda rows: DeepClassifier(network=NETWORK).fit([1]), "DataFrame of Spark, received a builtins.list"),
    # models
    (ValueError, lambda rows: a_model().transform(rows.drop("features")), "featuresCol names column 'features', which"),
    (ValueError, lambda rows: a_model().transform(having(features="'1'")(rows)), "received string; cast it."),
    (ValueError, lambda rows: a_model().transform(twin(rows)), "for which Spark finds 'features' and 'Features'"),
    (ValueError, lambda rows: a_model(predictionCol="ID").transform(rows), "Output column 'ID' exists already as 'id'"),
    (ValueError, lambda rows: a_model(predictionCol="rawPrediction").transform(rows), "is asked for twice"),
    (ValueError, lambda rows: a_model(thresholds=[1.0]).transform(rows), "thresholds must hold one number a class, 2"),
    (ValueError, lambda rows: a_model(batchSize=0).transform(rows), "batchSize must be an integer of at least 1"),
    (ValueError, lambda rows: a_model(batchSize=0).evaluate(rows), "batchSize must be an integer of at least 1"),
    (TypeError, lambda rows: a_model().transform(None), "transform takes a DataFrame of Spark, received a builtins"),
    (TypeError, lambda rows: a_model().score_rows([1]), "score_rows takes a DataFrame of Spark, received a builtins.l"),
    (TypeError, lambda rows: a_model().evaluate(None), "evaluate takes a DataFrame of Spark, received a builtins.None"),
    (
        ValueError, lambda rows: a_model(predictionCol="").predict(ROW),
        "predictionCol must be one of the columns that transform adds (rawPrediction, probability), received ''; name",
    ),
    (ValueError, lambda rows: a_model(rawPredictionCol="").predictRaw(ROW), "rawPredictionCol must be one of the col"),
    (ValueError, lambda rows: a_model(loss="hinge").predictProbability(ROW), "prediction), received 'probability'; na"),
    (ValueError, lambda rows: a_model().evaluate(rows.drop("label")), "labelCol names column 'label', which is"),
    (ValueError, lambda rows: a_model().evaluate(stream(rows)), "evaluate takes a DataFrame whose rows come to an end"),
    (ValueError, lambda rows: a_model(handleInvalid="keep").evaluate(rows), "must be error or skip in evaluate, "),
    (ValueError, lambda rows: a_model().score_rows(rows, "id"), "Output column 'id' exists already; drop it or name"),
    (ValueError, lambda rows: a_model().score_rows(rows, ""), "An output column must have a name, received ''; give"),
    (ValueError, lambda rows: a_model().evaluate(rows, top=3), "top is no option of the evaluation of exclusive"),
]  # fmt: skip

# What only rows can tell: to fits, and to the evaluation of a model.

FITTED: dict[str, tuple[dict[str, Any], Change, str]] = {
    "rows of differing width": (
        {"numWorkers": 2}, once("features", "array(1D)"),
        "must hold 4 values a row to fill the network's input_shape (4,), received a row of 1, as in the row (",
    ),
    "NaN": (
        {}, once("features", "array(1D, 2D, 3D, double('NaN'))"),
        "featuresCol 'features' holds NaN, as in the row (features: [1.0, 2.0, 3.0, nan], label: ",
    ),
    "label too large": (
        {}, once("label", "2"), "Labels must be whole numbers from 0 to 1, since the network has 2 outputs, received 2",
    ),
    "label between the classes of one output": (
        {"network": ONE, "loss": "sigmoid_cross_entropy"}, once("label", "0.3D"),
        "labelCol 'label' must hold classes from 0 to 1, since the network has one output, received 0.3; index the cl",
    ),
    "label between the classes of a margin": (
        {"network": ONE, "loss": "hinge"}, once("label", "-0.5D"),
        "labelCol 'label' must hold classes from -1 to 1, since the network has one output, received -0.5; index the",
    ),
    "negative weight": (
        {"weightCol": "w"}, having(w="if(id = 3, -1, 1)"), "weightCol 'w' must be finite and at least 0, received -1.",
    ),
    "columns that share out otherwise": (
        {"featuresCols": ["a", "b"], "handleInvalid": "skip"},
        having(a="if(id = 3, array(1, 2), array(1))", b="if(id = 3, array(1, 2), array(1, 2, 3))"),
        "received rows of 1 + 3 and of 2 + 2; make each column's arrays equally long.",
    ),
    "no weight": (
        {"weightCol": "w"},
        having(w="0"),
        "All rows weigh 0 or have no label; give at least one row a positive weight and a label.",
    ),
    "validation rows without weight": (
        {"weightCol": "w", "validationIndicatorCol": "v"}, having(w="if(id < 5, 0, 1)", v="id < 5"),
        "All rows marked for validation weigh 0 or have no label; give at least one row a positive weight and a label.",
    ),
    "weight beyond float32": (
        {"weightCol": "w"}, having(w="if(id = 3, 1e300D, 1)"),
        "Weights must be numbers that float32 holds, received 1e+300; scale or mend them.",
    ),
    "validation of 2": (
        {"validationIndicatorCol": "v"}, having(v="id"),
        "validationIndicatorCol 'v' must be true or false, or 1 or 0, received ",
    ),
    "only validation rows": (
        {"validationIndicatorCol": "v"}, having(v="true"),
        "There are no rows to train on; all 24 are marked for validation.",
    ),
    "no rows": (
        {}, lambda rows: rows.where("id < 0"), "There are no rows to train on; check the data and its filters.",
    ),
    "no epoch that stays finite": (
        {"loss": "squared_hinge", "stepSize": 1e38, "batchSize": 12, "numWorkers": 2}, same,
        "No epoch of this fit stayed finite with step size 1e+38: the loss was ",
    ),
    "no folder for checkpoints": (
        {"checkpointDir": "/proc/nowhere"}, same, "The checkpoint directory '/proc/nowhere' cannot be written: ",
    ),
}  # fmt: skip

EVALUATED: dict[str, tuple[dict[str, Any], Change, str]] = {
    "label with a fraction": ({}, once("label", "0.5"), "received 0.5; index the classes"),
    "null label": (
        {}, once("label", "null"), "label: None); mend or drop such rows, or set handleInvalid to skip.",
    ),
    "other number of labels": (
        {}, having(label="array(1, 2, 3)"),
        "labelCol 'label' must hold 2 labels a row, since the network has 2 outputs, received a row of 3, as in",
    ),
    "NaN weight": (
        {"weightCol": "w"}, having(w="if(id = 3, double('NaN'), 1)"), "weightCol 'w' holds NaN, as in the row (",
    ),
    "null row": ({}, once("features", "null"), "featuresCol 'features' holds null, as in the row (features: None, "),
    "null within": ({}, once("features", "array(1D, null, 3D, 4D)"), "holds null, as in the row (features: [1.0, N"),
    "infinity": (
        {}, once("features", "array(1D, 2D, 3D, double('-Infinity'))"),
        "featuresCol 'features' holds infinity, as in the row (features: [1.0, 2.0, 3.0, -inf], label: ",
    ),
    "more than float32 holds": ({}, once("features", "array(1D, 2D, 3D, 1e300D)"), "number too large for float32, as"),
    "empty": ({}, once("features", "array()"), "received a row of 0, as in the row (features: [], label: "),
    "label of NaN": ({}, once("label", "double('NaN')"), "labelCol 'label' holds NaN, as in the row ("),
    "only null labels": ({}, having(label="cast(null as int)"), "labelCol 'label' holds null, as in the row ("),
    "negative label": ({}, once("label", "-1"), "must be whole numbers from 0 to 1, since the network has 2"),
    "large decimal": ({}, having(label="cast(1e37 as decimal(38, 0))"), "received 1e+37; index the classes"),
    "bytes": (
        {"network": PICTURE}, having(features="X'0102'"),
        "must hold 4 values a row to fill the network's input_shape (2, 2) or a JPEG or PNG, received a row of 2",
    ),
    "columns of other widths": (
        {"featuresCols": ["features", "id"]}, same,
        "featuresCols features, id must hold 4 values a row to fill the network's input_shape (4,), received a row of",
    ),
    "image of another size": (
        {"network": LARGER}, having(features=GRAY),
        "unless imageResize is set, received one of 2 x 2, as in the row (features: image of 2 x 2, 1 channels, ",
    ),
    "no rows to evaluate": ({}, lambda rows: rows.where("id < 0"), "There are no rows of positive weight to"),
    "all rows weigh 0": ({"weightCol": "w"}, having(w="0"), "There are no rows of positive weight to evaluate; check"),
}  # fmt: skip
