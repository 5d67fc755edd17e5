"""What `model.evaluate` tells, against scikit-learn on the collected rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from scipy.stats import norm
from sklearn import metrics
from spark_cases import FEATURES, LABELS, NETWORK, Array, a_model, arrays, softmax

from sparkdl import DeepModel, DeepRegressionModel, Network
from sparkdl.evaluation import (
    ClassificationEvaluation,
    MultilabelEvaluation,
    QuantileEvaluation,
    RegressionEvaluation,
)
from sparkdl.layers import Dense, EachStep, Rescale, Reshape
from sparkdl.losses import EachPosition, GaussianLikelihood, Loss, MixtureDensity, Quantile, Triplet
from sparkdl.spark import evaluation
from sparkdl.spark.tasks import measuring

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


@pytest.mark.parametrize("loss", ["sigmoid_cross_entropy", "hinge", "multi_label"])
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


POSITIONS = Network([Rescale(1 / 255), Dense(6), Reshape((2, 3))], input_shape=(4,))
CLASSES = (IDS[:, None] + np.arange(2)) % 3
NUMBERS = IDS[:, None] / 24 - np.arange(6)


@pytest.fixture(scope="module")
def positions(weighed: DataFrame) -> DataFrame:
    """Rows with a class for each of two positions, three numbers for each, and a number for each."""
    columns = {
        "classes": "transform(array(0, 1), i -> (id + i) % 3)",
        "signs": "transform(array(0, 1), i -> (id + i) % 3 div 2)",
        "six": "transform(array(0, 1, 2, 3, 4, 5), i -> id / 24 - i)",
        "two": "transform(array(0, 1), i -> id / 24 - i)",
    }
    return weighed.withColumns({name: F.expr(text) for name, text in columns.items()}).cache()


@pytest.mark.parametrize("at_a_time", [1, measuring.POSITIONS])
def test_classes_of_positions_are_measured_over_all_of_them(
    positions: DataFrame, at_a_time: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = a_model(DeepModel, POSITIONS, loss=EachPosition(), labelCol="classes", **WEIGHED)
    outputs, truth, weights = linear(model).reshape(-1, 3), CLASSES.reshape(-1), np.repeat(WEIGHTS, 2)
    if at_a_time == 1:  # as a task does it, which no patch reaches
        monkeypatch.setattr(measuring, "POSITIONS", at_a_time)
        one = measuring.ClassificationMeasures(3)
        found = {"outputs": linear(model), "predictions": softmax(outputs).reshape(24, 6), "losses": np.ones(24)}
        measuring._add_positions(one, model._decide(), found, CLASSES, WEIGHTS, (2, 3))
        measured = one.result()
        assert measured.loss == 1
    else:
        measured = model.evaluate(positions.repartition(3))
        own = -np.log(softmax(outputs))[np.arange(48), truth]
        assert measured.loss == pytest.approx(np.average(own, weights=weights), rel=1e-5)
    assert isinstance(measured, ClassificationEvaluation)
    assert (measured.rows, measured.weight) == (36, weights.sum())
    predicted = outputs.argmax(axis=1)
    near(measured.accuracy, metrics.accuracy_score(truth, predicted, sample_weight=weights))
    near(measured.confusion, metrics.confusion_matrix(truth, predicted, sample_weight=weights))
    near(
        [curve.roc_area for curve in measured.curves],
        [metrics.roc_auc_score(truth == at, softmax(outputs)[:, at], sample_weight=weights) for at in range(3)],
    )


@pytest.mark.parametrize("outputs", [3, 1])
def test_positions_of_an_ignored_class_are_not_measured(positions: DataFrame, outputs: int) -> None:
    network = Network([Rescale(1 / 255), Dense(2 * outputs), Reshape((2, outputs))], input_shape=(4,))
    loss = EachPosition("softmax_cross_entropy" if outputs > 1 else "sigmoid_cross_entropy", ignore_class=255)
    model = a_model(DeepModel, network, loss=loss, labelCol="some", **WEIGHED)
    some = F.expr(f"transform({'classes' if outputs > 1 else 'signs'}, (own, i) -> if((id + i) % 4 < 2, 255, own))")
    measured = model.evaluate(positions.withColumn("some", some))
    known = ((IDS[:, None] + np.arange(2)) % 4 >= 2).reshape(-1)
    weights = np.repeat(WEIGHTS, 2)[known]
    scores = linear(model).reshape(-1, outputs)[known]
    truth = (CLASSES if outputs > 1 else CLASSES // 2).reshape(-1)[known]
    predicted = scores.argmax(axis=1) if outputs > 1 else scores[:, 0] > 0
    assert (measured.rows, measured.weight) == ((weights > 0).sum(), weights.sum())
    near(measured.accuracy, metrics.accuracy_score(truth, predicted, sample_weight=weights))
    if outputs > 1:
        own = -np.log(softmax(scores))[np.arange(len(truth)), truth]
        assert measured.loss == pytest.approx(np.average(own, weights=weights), rel=1e-5)


def test_one_output_a_position_tells_two_classes(positions: DataFrame) -> None:
    network = Network([Rescale(1 / 255), Dense(2), Reshape((2, 1))], input_shape=(4,))
    model = a_model(DeepModel, network, loss=EachPosition("sigmoid_cross_entropy"), labelCol="signs", **WEIGHED)
    measured, weights = model.evaluate(positions), np.repeat(WEIGHTS, 2)
    scores, truth = linear(model).reshape(-1), CLASSES.reshape(-1) // 2
    near(measured.accuracy, metrics.accuracy_score(truth, scores > 0, sample_weight=weights))
    near(measured.curves[0].roc_area, metrics.roc_auc_score(truth, scores, sample_weight=weights))


def test_numbers_of_positions_are_measured_by_position(positions: DataFrame) -> None:
    model = a_model(DeepModel, POSITIONS, loss=EachPosition("squared_error"), labelCol="six", **WEIGHED)
    measured, outputs = model.evaluate(positions), linear(model)
    assert isinstance(measured, RegressionEvaluation) and measured.rows == 18
    given: dict[str, Any] = {"sample_weight": WEIGHTS, "multioutput": "raw_values"}
    expected = metrics.mean_absolute_error(NUMBERS, outputs, **given)
    np.testing.assert_allclose([own.mae for own in measured.per_output], expected, rtol=1e-5)
    assert measured.average.mae == pytest.approx(expected.mean(), rel=1e-5)
    own = ((outputs - NUMBERS) ** 2).sum(axis=1) / 2
    assert measured.loss == pytest.approx(np.average(own, weights=WEIGHTS), rel=1e-5)


@pytest.mark.parametrize("each", [True, False])
def test_quantiles_are_measured_by_position(positions: DataFrame, each: bool) -> None:
    quantiles = Quantile((0.1, 0.5, 0.9))
    network, loss, label = (POSITIONS, EachPosition(quantiles), "two") if each else (THREE, quantiles, "label")
    model = a_model(DeepModel, network, loss=loss, labelCol=label, **WEIGHED)
    measured = model.evaluate(positions)
    assert isinstance(measured, QuantileEvaluation) and measured.rows == 18
    outputs = linear(model).reshape(24, -1, 3)
    truth = NUMBERS[:, :2] if each else LABELS[:, None]
    assert len(measured.per_position) == outputs.shape[1]
    for at, row in enumerate(measured.per_position):
        for place, (own, alpha) in enumerate(zip(row, quantiles.quantiles, strict=True)):
            pair = truth[:, at], outputs[:, at, place]
            expected = metrics.mean_pinball_loss(*pair, sample_weight=WEIGHTS, alpha=alpha)
            assert own.pinball == pytest.approx(expected, rel=1e-5)
    assert measured.loss == pytest.approx(3 * measured.pinball, rel=1e-5)


@pytest.mark.parametrize(
    "loss, label, shape",
    [
        (GaussianLikelihood(), "numbers", ()),
        (EachPosition(GaussianLikelihood()), "six", (2, 6)),
        (MixtureDensity(2), "label", ()),
        (EachPosition(MixtureDensity(2)), "two", (2, 6)),
    ],
    ids=repr,
)
def test_of_distributions_the_mean_is_measured(
    positions: DataFrame, loss: Loss, label: str, shape: tuple[int, ...]
) -> None:
    layers = [Rescale(1 / 255), Dense(12), Reshape(shape)] if shape else [Rescale(1 / 255), Dense(6)]
    model = a_model(DeepRegressionModel, Network(layers, input_shape=(4,)), loss=loss, labelCol=label, **WEIGHED)
    measured = model.evaluate(positions)
    assert isinstance(measured, RegressionEvaluation) and measured.rows == 18
    (column,) = columns_of(model, positions, "prediction")
    parameters = column.reshape(-1, 6)
    normal = label in ("numbers", "six")
    means = parameters[:, :3] if normal else (parameters[:, :2] * parameters[:, 2:4]).sum(axis=1)
    means = means.reshape(24, -1)
    truth = LABELS[:, None] if label == "label" else NUMBERS[:, : means.shape[1]]
    expected = metrics.mean_squared_error(truth, means, sample_weight=WEIGHTS, multioutput="raw_values")
    np.testing.assert_allclose([own.mse for own in measured.per_output], expected, rtol=1e-5)
    if normal:
        densities = norm.logpdf(truth.reshape(-1, 3), parameters[:, :3], parameters[:, 3:])
    else:
        each = norm.pdf(truth.reshape(-1, 1), parameters[:, 2:4], parameters[:, 4:])
        densities = np.log((parameters[:, :2] * each).sum(axis=1))
    own = -densities.reshape(24, -1).sum(axis=1) / (2 if shape else 1)
    assert measured.loss == pytest.approx(np.average(own, weights=WEIGHTS), rel=1e-4)


def test_positions_of_labelled_steps_are_measured_without_those_that_lack_a_label(spark: SparkSession) -> None:
    """A step has two positions; a row weighs for all positions of all its steps."""
    steps = [[[1.0, 2.0], [0.5, -1.0]], [[-2.0, 0.3]], []]
    labels: list[Any] = [[[0, 2], None], [[1, 1]], []]
    rows = spark.createDataFrame(
        list(zip(steps, labels, [2.0, 3.0, 1.0], strict=True)),
        "features array<array<double>>, label array<array<int>>, weight double",
    )
    network = Network([EachStep([Dense(6), Reshape((2, 3))], name="each")], input_shape=(None, 2))
    model = a_model(DeepModel, network, loss=EachPosition(), computeDtype="float64", **WEIGHED)
    measured, weights = model.evaluate(rows), arrays(model)
    (kernel,), (bias,) = ([own for path, own in weights.items() if path.endswith(end)] for end in ("kernel", "bias"))
    outputs = (np.array([steps[0][0], steps[1][0]]) @ kernel + bias).reshape(4, 3)
    truth, counted = np.array([0, 2, 1, 1]), np.array([2.0, 2.0, 3.0, 3.0])
    assert (measured.rows, measured.weight) == (4, 10)
    near(measured.accuracy, metrics.accuracy_score(truth, outputs.argmax(axis=1), sample_weight=counted))
    losses = -np.log(softmax(outputs))[range(4), truth]
    assert measured.loss == pytest.approx(np.average(losses, weights=counted), rel=1e-10)


def test_a_loss_that_compares_two_outputs_has_no_measures(positions: DataFrame) -> None:
    two = Network([Dense(2)], input_shape=(4,))
    with pytest.raises(ValueError, match="^evaluate has no measures of Triplet, .* 2 outputs and 1 labels; score_rows"):
        a_model(DeepModel, two, loss=Triplet()).evaluate(positions)
    pairs = Network([Dense(4), Reshape((2, 2))], input_shape=(4,))
    with pytest.raises(ValueError, match="^evaluate has no measures of Triplet, .* 4 outputs and 2 labels; score_rows"):
        a_model(DeepModel, pairs, loss=EachPosition(Triplet()), labelCol="two").evaluate(positions)


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
    with pytest.raises(ValueError, match="^exact_rows must be an integer of at least 0, received -1.$"):
        a_model().evaluate(weighed, exact_rows=-1)


def test_a_network_that_gives_nan_is_told_so(weighed: DataFrame) -> None:
    spoilt = Network([Rescale(1e38), *NETWORK.layers[1:2], Dense(2)], input_shape=(4,))
    with pytest.raises(ValueError, match="outputs must be finite to be evaluated, received NaN or infinity"):
        a_model(network=spoilt).evaluate(weighed)
    without = weighed.withColumn("features", F.expr("if(weight > 0, array(0D, 0D, 0D, 0D), features)"))
    assert a_model(network=spoilt, **WEIGHED).evaluate(without).rows == 18  # those of weight 0 are not there
