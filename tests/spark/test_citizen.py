"""Everywhere Spark ML goes: the stages within Spark's pipelines, meta-estimators and evaluators, from many threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.classification import OneVsRest
from pyspark.ml.evaluation import (
    BinaryClassificationEvaluator,
    MulticlassClassificationEvaluator,
    RegressionEvaluator,
)
from pyspark.ml.feature import SQLTransformer, StandardScaler, StringIndexer, VectorAssembler
from pyspark.ml.tuning import CrossValidator, CrossValidatorModel, ParamGridBuilder
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from sklearn.metrics import log_loss, roc_auc_score
from spark_cases import (
    FEATURES,
    FROZEN,
    LABELS,
    NETWORK,
    Array,
    a_model,
    arrays,
    outputs,
    same_bits,
    softmax,
    table,
)

from sparkdl import DeepClassificationModel, DeepClassifier, DeepRegressionModel, DeepRegressor, Network
from sparkdl.layers import Dense, Rescale, Tanh
from sparkdl.losses import SoftmaxCrossEntropy
from sparkdl.optimizers import Adam, Momentum
from sparkdl.schedules import CosineDecay

SECONDS = 300.0  # for what should end at once, on a machine that is busy
THREE = (FEATURES[:, 0] > 128).astype(int) + (FEATURES[:, 0] > 64)


def network(outputs: int) -> Network:
    return Network([Rescale(1 / 255), Dense(6), Tanh(), Dense(outputs)], input_shape=(4,))


def learner(**params: Any) -> DeepClassifier:
    """A classifier whose fit is short; the same as that of the fixture `cross_validated`."""
    return DeepClassifier(**{"network": NETWORK, "optimizer": "adam", "maxIter": 60, "batchSize": 24} | params)


def params(stage: Any) -> dict[str, Any]:
    return {param.name: value for param, value in stage._paramMap.items()}


def test_a_pipeline_within_a_pipeline_is_fitted_on_what_its_stages_make(rows: DataFrame) -> None:
    named = rows.selectExpr("id", "if(label = 1, 'yes', 'no') as answer", "features")
    spread = SQLTransformer(
        statement="SELECT *, features[0] a, features[1] b, features[2] c, features[3] d FROM __THIS__"
    )
    assembler = VectorAssembler(inputCols=["a", "b", "c", "d"], outputCol="joined")
    scaler = StandardScaler(inputCol="joined", outputCol="scaled", withMean=True)
    classifier = learner(featuresCol="scaled", labelCol="index", stepSize=0.1)
    before = params(classifier)
    inner = Pipeline(stages=[assembler, scaler, classifier])
    indexer = StringIndexer(inputCol="answer", outputCol="index", stringOrderType="alphabetAsc")
    model = Pipeline(stages=[indexer, spread, inner]).fit(named)
    assert isinstance(model.stages[2], PipelineModel)
    found = model.transform(named).orderBy("id").select("prediction").collect()
    assert np.mean([row.prediction for row in found] == LABELS) > 0.9
    assert params(classifier) == before


@pytest.mark.parametrize(
    "labels, units, loss", [(LABELS, 2, "softmax_cross_entropy"), (THREE, 1, "sigmoid_cross_entropy")]
)
def test_one_versus_rest_takes_the_class_whose_classifier_scores_highest(
    spark: SparkSession, labels: Array, units: int, loss: str
) -> None:
    rows = spark.createDataFrame(table(labels=labels)).cache()
    several = {"featuresCols": ["features"]} if units == 1 else {}  # beside the featuresCol that OneVsRest sets
    classifier = learner(network=network(units), loss=loss, stepSize=0.1, **several)
    before = params(classifier)
    model = OneVsRest(classifier=classifier, parallelism=3).fit(rows)
    scores = []
    for each in model.models:
        weights = arrays(each)
        hidden = np.tanh(FEATURES / 255 @ weights["dense_1/kernel"] + weights["dense_1/bias"])
        raw = hidden @ weights["dense_3/kernel"] + weights["dense_3/bias"]
        scores.append(raw[:, 0] if units == 1 else softmax(raw)[:, 1])
    scored = model.transform(rows)
    predicted = [row.prediction for row in scored.orderBy("id").select("prediction").collect()]
    assert predicted == np.argmax(scores, axis=0).tolist()
    assert np.mean(predicted == labels) > 0.8
    assert params(classifier) == before


def test_cross_validation_with_several_workers_and_fits_at_once_finds_the_same(
    rows: DataFrame, cross_validated: CrossValidatorModel
) -> None:
    estimator = learner(numWorkers=2)  # in three slots, of which four fits want two each
    grid = ParamGridBuilder().baseOn({estimator.stepSize: 0.05}).addGrid(estimator.network, [FROZEN, NETWORK]).build()
    evaluator = MulticlassClassificationEvaluator(metricName="accuracy")
    validator = CrossValidator(
        estimator=estimator, estimatorParamMaps=grid, evaluator=evaluator, numFolds=2, seed=1, parallelism=4
    )
    found = validator.fit(rows)
    assert found.avgMetrics == pytest.approx(cross_validated.avgMetrics)
    assert found.bestModel.getNetwork() == NETWORK


def test_every_map_of_fit_multiple_comes_once_to_whichever_thread_asks(
    rows: DataFrame, workers_as_for_users: None
) -> None:
    estimator = learner(maxIter=2)
    maps = [{estimator.seed: 1}, {estimator.seed: 2, estimator.stepSize: 0.1}, {estimator.network: network(2)}]
    iterator = estimator.fitMultiple(rows, maps)
    found: dict[int, Any] = {}

    def ask(_: int) -> int:
        count = 0
        for index, model in iterator:
            assert index not in found
            found[index] = model
            count += 1
        return count

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(ask, range(4), timeout=SECONDS)) == len(maps)
    assert sorted(found) == [0, 1, 2]
    assert [found[index].getSeed() for index in range(3)] == [1, 2, 0]
    assert [found[index].getNetwork() for index in range(3)] == [NETWORK, NETWORK, network(2)]
    assert [found[index].uid for index in range(3)] == [estimator.uid] * 3
    assert "seed" not in params(estimator)
    for index in (1, 2):
        assert same_bits(arrays(found[index]), arrays(estimator.fit(rows, maps[index])))


def test_a_grid_of_numbers_networks_optimizers_and_losses_is_saved_and_loaded(rows: DataFrame, tmp_path: Path) -> None:
    estimator = learner()
    choices: dict[Any, list[Any]] = {
        estimator.stepSize: [0.1, 1],
        estimator.network: [FROZEN, NETWORK],
        estimator.optimizer: ["adam", Momentum(0.5, schedule=CosineDecay())],
        estimator.loss: [SoftmaxCrossEntropy()],
    }
    builder = ParamGridBuilder()
    for param, values in choices.items():
        builder = builder.addGrid(param, values)
    evaluator = MulticlassClassificationEvaluator(metricName="logLoss")
    CrossValidator(estimator=estimator, estimatorParamMaps=builder.build(), evaluator=evaluator).save(
        str(tmp_path / "s")
    )
    loaded = CrossValidator.load(str(tmp_path / "s"))
    found = [loaded.getEstimator().copy(choice) for choice in loaded.getEstimatorParamMaps()]
    assert len(found) == 8
    assert {each.getStepSize() for each in found} == {0.1, 1.0}
    assert {each.getNetwork() for each in found} == {FROZEN, NETWORK}
    assert [each.getOptimizer() for each in found[:2]] == [Adam(), Momentum(0.5, schedule=CosineDecay())]
    assert {each.getLoss() for each in found} == {SoftmaxCrossEntropy()}


def test_a_copy_of_a_pipeline_and_of_its_model_changes_alone(rows: DataFrame) -> None:
    estimator = learner(thresholds=[0.5, 0.5], activationCols={"tanh_2": "hidden"})
    model = a_model(thresholds=[0.5, 0.5], activationCols={"tanh_2": "hidden"})
    for whole, stage in [(Pipeline(stages=[estimator]), estimator), (PipelineModel([model]), model)]:
        before = params(stage)
        copy = whole.copy({stage.predictionCol: "guess"})
        part = (copy.getStages() if isinstance(copy, Pipeline) else copy.stages)[0]
        part.setThresholds([0.1, 0.9])
        part.getActivationCols().clear()
        assert (part.getPredictionCol(), part.uid) == ("guess", stage.uid)
        assert params(stage) == before
        assert part.getActivationCols() == {"tanh_2": "hidden"}


def test_rows_on_their_way_to_a_fit_are_observed_once(rows: DataFrame) -> None:
    observation = Observation("read")
    learner(maxIter=1, numWorkers=2).fit(rows.observe(observation, F.count("*").alias("rows")))
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(lambda: observation.get).result(SECONDS) == {"rows": rows.count()}


def test_what_is_set_is_explained_beside_the_default(spark: SparkSession) -> None:
    estimator = DeepRegressor(network=NETWORK, optimizer=Momentum(0.5), stepSize=0.25, maxIter=7)
    for name, shown in [
        ("stepSize", "(default: 0.01, current: 0.25)"),
        ("maxIter", "(default: 10, current: 7)"),
        ("optimizer", '(default: {"type": "SGD"}, current: {"momentum": 0.5, "type": "Momentum"})'),
        ("network", '{"type": "Dense", "units": 5}, {"type": "Tanh"}'),
        ("loss", '(default: {"type": "SquaredError"})'),
    ]:
        assert shown in estimator.explainParam(name)


def test_batches_of_arrow_may_have_one_row_or_no_limit(spark: SparkSession, rows: DataFrame, tmp_path: Path) -> None:
    found = []
    for most in ("1", "0"):
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", most)
        try:
            learner(maxIter=2).fit(rows).write().overwrite().save(str(tmp_path))
            model = DeepClassificationModel.load(str(tmp_path))
            scored = model.transform(rows).orderBy("id").select("probability").collect()
        finally:
            spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
        found.append((arrays(model), np.array([row.probability for row in scored]).tobytes()))
    (one, by_ones), (other, at_once) = found
    assert same_bits(one, other)
    assert by_ones == at_once


def test_evaluators_of_classes_read_what_a_classifier_puts_out(rows: DataFrame) -> None:
    model = a_model()
    scored = model.transform(rows).cache()
    scores = outputs(arrays(model), FEATURES)
    for evaluator, expected in [
        (BinaryClassificationEvaluator(metricName="areaUnderROC"), roc_auc_score(LABELS, scores[:, 1] - scores[:, 0])),
        (MulticlassClassificationEvaluator(metricName="accuracy"), (scores.argmax(axis=1) == LABELS).mean()),
        (MulticlassClassificationEvaluator(metricName="logLoss"), log_loss(LABELS, softmax(scores))),
    ]:
        assert evaluator.evaluate(scored) == pytest.approx(expected, abs=1e-5)


def test_evaluators_of_numbers_read_what_a_regressor_puts_out(rows: DataFrame) -> None:
    model = a_model(DeepRegressionModel, Network([Rescale(1 / 255), Dense(1)], input_shape=(4,)), loss="squared_error")
    weights = arrays(model)
    expected = (FEATURES / 255 @ weights["dense_1/kernel"].astype(float) + weights["dense_1/bias"])[:, 0]
    rmse = RegressionEvaluator(metricName="rmse").evaluate(model.transform(rows))
    assert rmse == pytest.approx(np.sqrt(np.mean((expected - LABELS) ** 2)), rel=1e-5)
