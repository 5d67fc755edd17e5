"""What `model.evaluate` tells, against scikit-learn on the collected rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from sklearn import metrics
from spark_cases import FEATURES, LABELS, NETWORK, Array, a_model, arrays, softmax

from sparkdl import DeepModel, DeepRegressionModel, Network
from sparkdl.evaluation import ClassificationEvaluation, MultilabelEvaluation, RegressionEvaluation
from sparkdl.layers import Dense, Rescale
from sparkdl.spark import evaluation

ONE, THREE = (Network([Rescale(1 / 255), Dense(units)], input_shape=(4,)) for units in (1, 3))
IDS = np.arange(len(LABELS))
WEIGHTS = IDS % 4.0  # some of them 0
WEIGHED = {"weightCol": "weight"}


@pytest.fixture(scope="module")
def weighed(rows: DataFrame) -> DataFrame:
    """The rows with a weight, three classes, three labels of 0 and 1, and three numbers."""
    three = "transform(array(0, 1, 2), i -> {})".format
    columns = {
        "weight": "id % 4",
        "three": "id % 3",
        "labels": three("(id + i) % (i + 2) div (i + 1)"),
        "numbers": three("id / 24 - i"),
    }
    return rows.withColumns({name: F.expr(text) for name, text in columns.items()}).cache()


def columns_of(model: Any, rows: DataFrame, *names: str) -> list[Array]:
    """Columns that `transform` makes, in the order of ids."""
    found = model.transform(rows).orderBy("id").select(*names).collect()
    return [np.array([row[name] for row in found]) for name in names]


def near(actual: Any, expected: Any) -> None:
    np.testing.assert_allclose(np.array(actual, float), np.array(expected, float), rtol=1e-12, atol=1e-12)


def linear(model: Any) -> Array:
    """The outputs of ONE and THREE by NumPy."""
    weights = arrays(model)
    return FEATURES / 255 @ weights["dense_1/kernel"].astype(float) + weights["dense_1/bias"]


def test_one_job_gives_the_measures_of_classes_however_rows_are_parted(spark: SparkSession, weighed: DataFrame) -> None:
    model = a_model(**WEIGHED)
    chances, predicted = columns_of(model, weighed, "probability", "prediction")
    found = []
    for partitions in (1, 5, 40):
        group = f"evaluated in {partitions} partitions"
        parted = weighed.repartition(partitions).cache()
        parted.count()
        spark.sparkContext.setJobGroup(group, "")
        try:
            found.append(model.evaluate(parted, top_k=(1,)))
        finally:
            spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
        tracker = spark.sparkContext.statusTracker()
        (job,) = tracker.getJobIdsForGroup(group)
        tasks = [tracker.getStageInfo(stage).numTasks for stage in sorted(tracker.getJobInfo(job).stageIds)]
        assert tasks[-1] == min(partitions, 16)
        parted.unpersist()
    for one in found:
        assert isinstance(one, ClassificationEvaluation)
        assert (one.rows, one.weight) == (18, WEIGHTS.sum())
        assert one.confusion == found[0].confusion and one.curves == found[0].curves
        near(one.accuracy, metrics.accuracy_score(LABELS, predicted, sample_weight=WEIGHTS))
        near(one.curves[0].roc_area, metrics.roc_auc_score(LABELS, chances[:, 1], sample_weight=WEIGHTS))
        near(one.log_loss, -(WEIGHTS @ np.log(chances[IDS, LABELS])) / WEIGHTS.sum())
        assert one.loss == pytest.approx(one.log_loss, rel=1e-5)


def test_many_parts_are_merged_by_tasks_first(weighed: DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    model, parted = a_model(**WEIGHED), weighed.repartition(9)
    by_driver = model.evaluate(parted)
    monkeypatch.setattr(evaluation, "MERGED_BY_DRIVER", 2)
    by_tasks = model.evaluate(parted)
    assert by_tasks.curves == by_driver.curves
    near(by_tasks.to_pandas(), by_driver.to_pandas())
    with pytest.raises(ValueError, match="Labels must be whole numbers from 0 to 1"):
        model.evaluate(parted.withColumn("label", F.lit(2)))


def test_predictions_heed_thresholds_and_curves_do_not(weighed: DataFrame) -> None:
    plain, one_sided = a_model().evaluate(weighed), a_model(thresholds=[1.0, 0.0]).evaluate(weighed)
    near(one_sided.accuracy, LABELS.mean())
    assert np.array(one_sided.confusion)[:, 0].sum() == 0
    assert one_sided.curves == plain.curves


@pytest.mark.parametrize(
    "loss, label",
    [
        ("softmax_cross_entropy", "three"),
        ("softmax_cross_entropy", "one_hot"),
        ("sigmoid_cross_entropy", "three"),
        ("hinge", "three"),
    ],
)
def test_three_classes_are_measured_for_every_loss_of_classes(weighed: DataFrame, loss: str, label: str) -> None:
    model = a_model(network=THREE, loss=loss, labelCol=label)
    rows = weighed.withColumn("one_hot", F.expr("transform(array(0, 1, 2), i -> if(id % 3 = i, 1, 0))"))
    found = model.evaluate(rows)
    outputs, truth = linear(model), IDS % 3
    near(found.accuracy, metrics.accuracy_score(truth, outputs.argmax(axis=1)))
    scores = {
        "softmax_cross_entropy": softmax(outputs),
        "sigmoid_cross_entropy": (sigmoid := 1 / (1 + np.exp(-outputs))) / sigmoid.sum(axis=1, keepdims=True),
        "hinge": outputs,
    }[loss]
    areas = [metrics.roc_auc_score(truth == number, scores[:, number]) for number in range(3)]
    near([curve.roc_area for curve in found.curves], areas)
    assert (found.log_loss is None) == (loss == "hinge")
    signs = 2 * np.eye(3)[truth] - 1
    losses = {
        "softmax_cross_entropy": -np.log(softmax(outputs))[IDS, truth],
        "sigmoid_cross_entropy": np.log1p(np.exp(-signs * outputs)).sum(axis=1),
        "hinge": np.maximum(0, 1 - signs * outputs).sum(axis=1),
    }[loss]
    assert found.loss == pytest.approx(losses.mean(), rel=1e-5)


@pytest.mark.parametrize("kind, loss", [(None, "sigmoid_cross_entropy"), (DeepModel, "squared_hinge")])
def test_a_single_output_tells_two_classes(weighed: DataFrame, kind: Any, loss: str) -> None:
    model = a_model(**({"kind": kind} if kind else {}), network=ONE, loss=loss, **WEIGHED)
    found = model.evaluate(weighed)
    (scores,) = linear(model).T
    near(found.accuracy, metrics.accuracy_score(LABELS, scores > 0, sample_weight=WEIGHTS))
    near(found.curves[0].roc_area, metrics.roc_auc_score(LABELS, scores, sample_weight=WEIGHTS))
    assert len(found.curves) == 1


@pytest.mark.parametrize("loss", ["sigmoid_cross_entropy", "hinge"])
def test_labels_of_several_outputs_are_measured_one_by_one(weighed: DataFrame, loss: str) -> None:
    model = a_model(network=THREE, loss=loss, labelCol="labels", **WEIGHED)
    found = model.evaluate(weighed, exact_rows=100)
    assert isinstance(found, MultilabelEvaluation)
    truth = (IDS[:, None] + np.arange(3)) % (np.arange(3) + 2) // (np.arange(3) + 1)
    outputs = linear(model)
    near(found.hamming_loss, metrics.hamming_loss(truth, outputs > 0, sample_weight=WEIGHTS))
    near(found.macro.f1, metrics.f1_score(truth, outputs > 0, sample_weight=WEIGHTS, average="macro", zero_division=0))
    areas = [metrics.roc_auc_score(truth[:, i], outputs[:, i], sample_weight=WEIGHTS) for i in range(3)]
    near([curve.roc_area for curve in found.curves], areas)


@pytest.mark.parametrize("kind", [DeepRegressionModel, DeepModel])
def test_numbers_are_measured_by_output(weighed: DataFrame, kind: Any) -> None:
    model = a_model(kind, THREE, loss="huber", labelCol="numbers", **WEIGHED)
    found = model.evaluate(weighed.repartition(3))
    assert isinstance(found, RegressionEvaluation)
    truth = IDS[:, None] / 24 - np.arange(3)
    (predicted,) = columns_of(model, weighed, "prediction")
    near(
        [output.r2 for output in found.per_output],
        metrics.r2_score(truth, predicted, sample_weight=WEIGHTS, multioutput="raw_values"),
    )
    near(found.average.mae, metrics.mean_absolute_error(truth, predicted, sample_weight=WEIGHTS))
    distance = np.abs(linear(model) - truth)
    huber = np.where(distance < 1, distance**2 / 2, distance - 0.5).sum(axis=1)
    assert found.loss == pytest.approx(WEIGHTS @ huber / WEIGHTS.sum(), rel=1e-5)


def test_predictions_of_rates_are_measured_on_the_labels_scale(weighed: DataFrame) -> None:
    model = a_model(DeepRegressionModel, ONE, loss="poisson")
    found = model.evaluate(weighed)
    near(found.average.mse, metrics.mean_squared_error(LABELS, *columns_of(model, weighed, "prediction")))


def test_float64_is_measured_as_such(weighed: DataFrame) -> None:
    model = a_model(DeepRegressionModel, ONE, loss="squared_error", computeDtype="float64")
    near(model.evaluate(weighed).average.mse, ((linear(model)[:, 0] - LABELS) ** 2).mean())


@pytest.mark.parametrize(
    "params, columns, sentence",
    [
        (
            {},
            {"label": "if(id = 3, 2, label)"},
            "^Labels must be whole numbers from 0 to 1, since the network has 2 out",
        ),
        ({}, {"label": "nullif(label, 1)"}, "^labelCol 'label' holds null, as in the row .* handleInvalid to skip.$"),
        ({}, {"label": "if(id = 3, double('NaN'), label)"}, "^labelCol 'label' holds NaN, as in the row"),
        ({}, {"features": "array(1D)"}, "^featuresCol 'features' must hold 4 values a row"),
        (WEIGHED, {"weight": "-1"}, "^weightCol 'weight' must be finite and at least 0, received -1.$"),
        (
            WEIGHED,
            {"weight": "0"},
            "^There are no rows of positive weight to evaluate; check the data and its filters.$",
        ),
        ({"network": ONE, "loss": "sigmoid_cross_entropy"}, {"label": "0.5"}, "^Labels must be 0 or 1 to be evaluated"),
        ({}, {"label": "array(1, 1)"}, r"^Labels must have one 1 a row, .* received \[1.0, 1.0\]; use sigmoid_cross"),
        ({"labelCol": "x"}, {}, "^labelCol names column 'x', which is not there"),
    ],
)
def test_rows_that_do_not_fit_are_named_as_in_training(
    weighed: DataFrame, params: dict[str, Any], columns: dict[str, str], sentence: str
) -> None:
    rows = weighed.withColumns({name: F.expr(text) for name, text in columns.items()})
    with pytest.raises(ValueError, match=sentence):
        a_model(**params).evaluate(rows)


@pytest.mark.parametrize("condition", ["id < 0", "false"])
def test_no_rows_are_refused(weighed: DataFrame, condition: str) -> None:
    with pytest.raises(ValueError, match="^There are no rows of positive weight to evaluate; check the data"):
        a_model().evaluate(weighed.where(condition))


def test_options_that_do_not_fit_are_refused_before_any_job(weighed: DataFrame) -> None:
    with pytest.raises(
        ValueError, match="^bins is no option of the evaluation of numbers, where there are no options;"
    ):
        a_model(DeepRegressionModel, ONE, loss="huber").evaluate(weighed, bins=10)
    labels = a_model(network=THREE, loss="sigmoid_cross_entropy", labelCol="labels")
    with pytest.raises(ValueError, match="^top_k is no option of the evaluation of several labels a row, where the op"):
        labels.evaluate(weighed, top_k=(1, 2))
    with pytest.raises(ValueError, match="^exact_rows must be at least 0, received -1.$"):
        a_model().evaluate(weighed, exact_rows=-1)


def test_a_network_that_gives_nan_is_told_so(weighed: DataFrame) -> None:
    spoilt = Network([Rescale(1e38), *NETWORK.layers[1:2], Dense(2)], input_shape=(4,))
    with pytest.raises(ValueError, match="outputs must be finite to be evaluated, received NaN or infinity"):
        a_model(network=spoilt).evaluate(weighed)
    without = weighed.withColumn("features", F.expr("if(weight > 0, array(0D, 0D, 0D, 0D), features)"))
    assert a_model(network=spoilt, **WEIGHED).evaluate(without).rows == 18  # those of weight 0 are not there
