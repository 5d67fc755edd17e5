"""Models that others start from or learn features of: warm start, new heads, activations, and the loss of each row."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.errors import PythonException
from pyspark.ml.feature import VectorAssembler
from pyspark.sql import DataFrame, SparkSession
from scipy.stats import norm
from spark_cases import FEATURES, LABELS, NETWORK, Array, a_model, arrays, initial, outputs, same_bits, softmax, table

from sparkdl import (
    DeepClassificationModel,
    DeepClassifier,
    DeepModel,
    DeepRegressionModel,
    DeepRegressor,
    Network,
    specs,
)
from sparkdl.layers import Dense, Rescale, Tanh
from sparkdl.losses import (
    Dice,
    EvidenceLowerBound,
    FMeasure,
    InBatchSoftmax,
    Loss,
    MixtureDensity,
    Quantile,
    Wasserstein,
    Yolo,
)
from sparkdl.weights import named_arrays

HEADED = NETWORK.with_head([Dense(2, name="head")], after="tanh_2").frozen(until="tanh_2")
BLOCKS = Network([Rescale(1 / 255), Network([Dense(5), Tanh()], name="block"), Dense(2)], input_shape=(4,))
TARGETS = np.random.default_rng(3).dirichlet([1.0, 1.0], 24)  # rows that add up to 1


@pytest.fixture(scope="module", autouse=True)
def _session(spark: SparkSession) -> None:
    """pyspark builds stages of a running session only."""


def collected(scored: DataFrame, *columns: str) -> list[Array]:
    """The columns' values in the order of ids."""
    found = scored.orderBy("id").select(*columns).collect()
    return [np.array([row[column] for row in found]) for column in columns]


def hidden(weights: dict[str, Array]) -> Array:
    """NETWORK's second layer by NumPy in float64."""
    return FEATURES / 255 @ weights["dense_1/kernel"].astype(float) + weights["dense_1/bias"]


# Warm start


def test_without_epochs_every_worker_returns_the_initial_weights(rows: DataFrame, tmp_path: Path) -> None:
    model = a_model()
    model.save(str(tmp_path / "saved"))
    estimator = DeepClassifier(network=NETWORK, maxIter=0, numWorkers=2, initialModel=str(tmp_path / "saved"))
    assert same_bits(arrays(estimator.fit(rows)), arrays(model))


def test_a_frozen_body_keeps_its_bits_while_a_new_head_learns_from_scratch(rows: DataFrame) -> None:
    model = a_model()
    estimator = DeepClassifier(network=HEADED, maxIter=3, batchSize=24, stepSize=0.5, seed=9, initialModel=model)
    sent = Path(rows.sparkSession.sparkContext._temp_dir)  # where a driver keeps what it broadcasts
    before = len(list(sent.iterdir()))
    fitted = arrays(estimator.fit(rows))
    assert len(list(sent.iterdir())) == before
    assert fitted.keys() == {"dense_1/kernel", "dense_1/bias", "head/kernel", "head/bias"}
    for path in ("dense_1/kernel", "dense_1/bias"):
        assert fitted[path].tobytes() == arrays(model)[path].tobytes()
    features, fresh = np.tanh(hidden(arrays(model))), initial(HEADED, 9, "float32")
    kernel, bias = fresh["head/kernel"].astype(float), fresh["head/bias"].astype(float)
    for _ in range(3):
        slope = (softmax(features @ kernel + bias) - np.eye(2)[LABELS]) / len(LABELS)
        kernel, bias = kernel - 0.5 * features.T @ slope, bias - 0.5 * slope.sum(axis=0)
    np.testing.assert_allclose(fitted["head/kernel"], kernel, atol=1e-5)
    np.testing.assert_allclose(fitted["head/bias"], bias, atol=1e-5)


def test_an_estimator_copies_saves_and_forgets_its_initial_weights(tmp_path: Path) -> None:
    model = a_model()
    estimator = DeepRegressor().setInitialModel(model.weights)  # a network may follow
    estimator.save(str(tmp_path / "saved"))
    loaded = DeepRegressor.load(str(tmp_path / "saved"))
    copy = estimator.copy({estimator.seed: 4})
    estimator.setParams(initialModel=None, seed=5)  # None leaves what there is
    for each in (estimator, loaded, copy):
        weights = each.getInitialWeights()
        assert weights is not None
        assert same_bits(dict(named_arrays(weights)), arrays(model))
    assert estimator.setInitialModel(None).getInitialWeights() is None
    assert copy.getInitialWeights() is not None
    estimator.write().overwrite().save(str(tmp_path / "saved"))
    assert DeepRegressor.load(str(tmp_path / "saved")).getInitialWeights() is None


@pytest.mark.parametrize(
    "value, sentence",
    [
        (
            {},
            "initialModel must be a model of sparkdl with weights, the path of one or of .* received {}",
        ),
        (lambda: DeepModel(), "with weights, the path of one or of a safetensors file, or nested"),
        (7, "or nested weights, received 7; a pipeline's model is among its stages"),
        (
            {"dense_1": {"kernel": [1.0, np.nan]}},
            "must hold finite numbers, received nan in 'dense_1/kernel'; take weigh",
        ),
        ({"dense_1": {"kernel": ["a"]}}, "must hold arrays of numbers, received <U1 as 'dense_1/kernel'"),
    ],
)
def test_what_holds_no_weights_is_refused_as_a_start(value: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        DeepClassifier(initialModel=value() if callable(value) else value)


def test_a_foreign_directory_is_refused_as_a_start(tmp_path: Path) -> None:
    VectorAssembler(inputCols=["label"], outputCol="vector").save(str(tmp_path / "saved"))
    with pytest.raises(ValueError, match="VectorAssembler without weights of its own; name a saved DeepModel"):
        DeepClassifier(initialModel=str(tmp_path / "saved"))


def test_a_start_and_activations_are_checked_before_any_job(spark: SparkSession, rows: DataFrame) -> None:
    wider = Network([Rescale(1 / 255), Dense(6), Tanh(), Dense(2)], input_shape=(4,))
    refused = [
        (DeepClassifier(network=wider, initialModel=a_model()), r"Layer 'dense_1': the network has \(6,\) as its bias"),
        (DeepClassifier(network=NETWORK, activationCols={"dense_0": "h"}), "no layer 'dense_0'; its layers are resc"),
    ]
    spark.sparkContext.setJobGroup("refused start", "")
    try:
        for estimator, sentence in refused:
            with pytest.raises(ValueError, match=sentence):
                estimator.fit(rows)
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
    assert list(spark.sparkContext.statusTracker().getJobIdsForGroup("refused start")) == []


# Activations


@pytest.mark.parametrize("kind", [DeepClassificationModel, DeepRegressionModel, DeepModel])
def test_activations_of_named_layers_come_with_the_prediction_in_one_pass(
    rows: DataFrame, tmp_path: Path, kind: Any
) -> None:
    a_model(kind, activationCols={"tanh_2": "features_2", "dense_1": "before"}).save(str(tmp_path / "saved"))
    model = kind.load(str(tmp_path / "saved"))
    scored = model.transform(rows.coalesce(1))  # three batches
    assert scored.columns[-3:] == ["prediction", "features_2", "before"]
    assert dict(scored.dtypes)["before"] == "vector"
    assert scored._jdf.queryExecution().executedPlan().toString().count("ArrowEvalPython") == 1
    after, before, prediction = collected(scored, "features_2", "before", "prediction")
    np.testing.assert_allclose(before, hidden(arrays(model)), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(after, np.tanh(hidden(arrays(model))), rtol=1e-5, atol=1e-5)
    expected = outputs(arrays(model), FEATURES)
    expected = expected.argmax(axis=1) if kind is DeepClassificationModel else expected
    if kind is not DeepRegressionModel:  # whose predictions are the loss's, here probabilities
        np.testing.assert_allclose(prediction, expected, rtol=1e-5, atol=1e-5)


def test_activations_reach_into_nested_networks_and_may_be_all_there_is(rows: DataFrame) -> None:
    model = a_model(DeepModel, BLOCKS, predictionCol="", activationCols={"block/dense_0": "h"}, computeDtype="float64")
    scored = model.transform(rows)
    assert scored.columns == [*rows.columns, "h"]
    weights = {path.replace("block/dense_0", "dense_1"): array for path, array in arrays(model).items()}
    np.testing.assert_allclose(*collected(scored, "h"), hidden(weights), rtol=1e-12)
    assert model.setActivationCols({}).transform(rows).columns == rows.columns


@pytest.mark.parametrize(
    "columns, sentence",
    [
        ({"tanh": "h"}, "The network has no layer 'tanh'; its layers are rescale_0, dense_1, tanh_2, dense_3"),
        ({"tanh_2": "label"}, "Output column 'label' exists already"),
        ({"tanh_2": "prediction"}, "Output column 'prediction' is asked for twice"),
        ({"tanh_2": "h", "dense_1": "h"}, "Output column 'h' is asked for twice"),
    ],
)
def test_activations_that_cannot_be_given_are_refused(rows: DataFrame, columns: dict[str, str], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        a_model(activationCols=columns).transform(rows)


@pytest.mark.parametrize("value", ["h", ["tanh_2"], {"tanh_2": 3}, {"tanh_2": None}, "[1]"])
def test_activation_columns_are_a_dict_of_names(value: Any) -> None:
    with pytest.raises(TypeError, match="activationCols must be a dict from layer to column names, received"):
        DeepClassifier(activationCols=value)


# The loss of each row, of outputs o and labels: classes, or numbers t


def margins(o: Array, t: Array) -> Array:
    return np.maximum(0, 1 - (2 * t - 1) * o)


CLASS_LOSSES: dict[str, Callable[[Array, Array], Array]] = {
    "softmax_cross_entropy": lambda o, t: -(t * np.log(softmax(o))).sum(axis=1),
    "sigmoid_cross_entropy": lambda o, t: np.log1p(np.exp(-(2 * t - 1) * o)).sum(axis=1),
    "hinge": lambda o, t: margins(o, t).sum(axis=1),
    "one_class_hinge": lambda o, t: (margins(o, t) - 1).clip(0).sum(axis=1) / 0.05,
    "squared_hinge": lambda o, t: (margins(o, t) ** 2).sum(axis=1),
    "softmax_focal": lambda o, t: -(t * (1 - softmax(o)) ** 2 * np.log(softmax(o))).sum(axis=1),
    "sigmoid_focal": lambda o, t: (np.log1p(np.exp(-(2 * t - 1) * o)) / (1 + np.exp((2 * t - 1) * o)) ** 2).sum(axis=1),
    "labelled_output": lambda o, t: -(t * o).sum(axis=1),
    "margin_loss": lambda o, t: np.where(t, np.maximum(0, 0.9 - o) ** 2, np.maximum(0, o - 0.1) ** 2 / 2).sum(axis=1),
    "multi_label": lambda o, t: np.exp(((1 - 2 * t) * o).sum(axis=1)),
}
PAIR_LOSSES: dict[str, Callable[[Array, Array], Array]] = {
    "triplet": lambda o, t: np.maximum(0, 1 + (2 * t - 1) * (o[:, 0] - o[:, 1])),
    "pairwise_logistic": lambda o, t: np.log1p(np.exp(-(2 * t - 1) * (o[:, 0] - o[:, 1]))),
    "gaussian_likelihood": lambda o, t: -norm.logpdf(t, o[:, 0], np.log1p(np.exp(o[:, 1])) + 1e-3),
}
NUMBER_LOSSES: dict[str, Callable[[Array, Array], Array]] = {
    "kl_divergence": lambda o, t: (t * np.log(t / softmax(o))).sum(axis=1),
    "squared_error": lambda o, t: ((o - t) ** 2).sum(axis=1),
    "absolute_error": lambda o, t: abs(o - t).sum(axis=1),
    "absolute_percentage_error": lambda o, t: 100 * (abs(o - t) / t).sum(axis=1),
    "squared_logarithmic_error": lambda o, t: ((np.where(o < 0, o, np.log1p(abs(o))) - np.log1p(t)) ** 2).sum(axis=1),
    "log_cosh": lambda o, t: np.log(np.cosh(o - t)).sum(axis=1),
    "huber": lambda o, t: np.where(abs(o - t) < 1, (o - t) ** 2 / 2, abs(o - t) - 0.5).sum(axis=1),
    "contrastive": lambda o, t: (t * o**2 + (1 - t) * np.maximum(0, 1 - o) ** 2).sum(axis=1),
    "poisson": lambda o, t: (np.exp(o) - t * o).sum(axis=1),
    "cosine_similarity": lambda o, t: 1 - (o * t).sum(axis=1) / np.linalg.norm(o, axis=1) / np.linalg.norm(t, axis=1),
}


@pytest.mark.parametrize(
    "losses, label, targets",
    [
        (CLASS_LOSSES, "label", np.eye(2)[LABELS]),
        (NUMBER_LOSSES, "targets", TARGETS),
        (PAIR_LOSSES, "label", np.asarray(LABELS)),
    ],
)
def test_the_loss_of_each_row_is_that_of_numpy_without_weight_or_regularization(
    spark: SparkSession, losses: dict[str, Callable[[Array, Array], Array]], label: str, targets: Array
) -> None:
    layers = [Rescale(1 / 255), Dense(5, l2=1.0), Tanh(), Dense(2)]
    network = Network(layers, input_shape=(4,))
    scored = spark.createDataFrame(table(targets=TARGETS.tolist())).coalesce(1)
    for loss in losses:
        model = a_model(DeepModel, network, loss=loss, labelCol=label, weightCol="id")
        before = scored.columns
        scored = model.score_rows(scored, loss)
        assert scored.columns == [*before, loss]
    o = outputs(arrays(model), FEATURES)
    for found, (loss, formula) in zip(collected(scored, *losses), losses.items(), strict=True):
        np.testing.assert_allclose(found, formula(o, targets), rtol=1e-5, atol=1e-6, err_msg=loss)


def test_every_loss_is_scored_here() -> None:
    """Or in test_more_losses.py, and Dice in test_segmentation.py."""
    kinds = {kind for kind in specs.registry.values() if issubclass(kind, Loss) and kind.is_packaged()}
    own = {kind for kind in kinds if not kinds & {*kind.__subclasses__()}}
    here = {type(Loss.of(name)) for name in CLASS_LOSSES | NUMBER_LOSSES | PAIR_LOSSES}
    elsewhere = {Dice, EvidenceLowerBound, FMeasure, InBatchSoftmax, MixtureDensity, Quantile}
    assert own == here | elsewhere | {Wasserstein, Yolo}


def test_the_loss_of_each_row_needs_a_label_that_fits(spark: SparkSession, rows: DataFrame) -> None:
    model = a_model()
    with pytest.raises(ValueError, match="labelCol names column 'label', which is not there"):
        model.score_rows(rows.drop("label"))
    with pytest.raises(ValueError, match="Output column 'id' exists already"):
        model.score_rows(rows, "id")
    with pytest.raises(PythonException, match="Labels must be whole numbers from 0 to 1, .* received 7"):
        model.score_rows(rows.selectExpr("features", "7 as label")).collect()
    assert model.score_rows(rows.limit(0)).collect() == []
