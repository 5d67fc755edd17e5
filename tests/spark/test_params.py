"""The stages as Spark ML's: Params that explain, copy and refuse, and estimators that validators can tune."""

from __future__ import annotations

import json
import pickle
from typing import Any

import numpy as np
import pytest
from pyspark.ml.evaluation import MulticlassClassificationEvaluator
from pyspark.ml.tuning import CrossValidatorModel, ParamGridBuilder, TrainValidationSplit
from pyspark.sql import DataFrame
from spark_cases import NETWORK, a_model, arrays, same_bits

from sparkdl import DeepClassifier, DeepEstimator, DeepRegressor, losses, optimizers, specs, synonyms
from sparkdl.losses import EvidenceLowerBound, Loss, MixtureDensity, Yolo
from sparkdl.optimizers import Optimizer
from sparkdl.spark.driver.old_spark import OLD
from sparkdl.specs import Spec
from sparkdl.training import AllReduce, EarlyStopping

ESTIMATORS = [DeepEstimator, DeepClassifier, DeepRegressor]
VALUES: dict[str, Any] = {
    "network": NETWORK,
    "loss": losses.SquaredHinge(),
    "lossWeights": {"kind": 0.5},
    "optimizer": optimizers.Adam(),
    "exchange": AllReduce(),
    "featuresCol": "a",
    "featuresCols": ["h", "i"],
    "binaryFormat": "image",
    "imageResize": "bilinear",
    "imageStorage": "files",
    "maxLength": {"history": 4},
    "truncationSide": "left",
    "handleInvalid": "skip",
    "labelCol": "b",
    "labelCols": {"kind": "k"},
    "predictionCols": {"kind": "l"},
    "probabilityCols": {"kind": ""},
    "predictionCol": "c",
    "probabilityCol": "d",
    "rawPredictionCol": "e",
    "weightCol": "f",
    "validationIndicatorCol": "g",
    "thresholds": [0.5, 0.25],
    "maxIter": 3,
    "batchSize": 4,
    "numWorkers": 5,
    "seed": 6,
    "stepSize": 0.7,
    "stepSizeFactors": {"dense_0": 0.5},
    "unfreezeAfter": {"dense_0": 2},
    "tol": 0.8,
    "lengthBuckets": 3,
    "truncated": [8, 4],
    "computeDtype": "float64",
    "deviceType": "cpu",
    "progress": "off",
    "activationCols": {"tanh_2": "h"},
    "workerLogs": "on",
    "earlyStopping": EarlyStopping("loss", 2, unit="step"),
    "checkpointDir": "h",
    "checkpointInterval": 7,
    "checkpointUnit": "step",
    "checkpointKeep": 8,
    "collectTrainingStats": True,
    "logDir": "i",
    "logInterval": 9,
}


@pytest.fixture(autouse=True)
def _session(spark: Any) -> None:
    """pyspark builds stages of a running session only."""


def capital(name: str) -> str:
    return name[0].upper() + name[1:]


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_every_param_has_setter_getter_keyword_and_json(kind: Any) -> None:
    estimator, names = kind(), [param.name for param in kind().params]
    for name in names:
        assert getattr(estimator, f"set{capital(name)}")(VALUES[name]) is estimator
        assert getattr(estimator, f"get{capital(name)}")() == VALUES[name]
    given = kind(**{name: VALUES[name] for name in names})
    assert {param.name: value for param, value in given._paramMap.items()} == {
        param.name: value for param, value in estimator._paramMap.items()
    }
    for value in given._paramMap.values():
        assert json.loads(json.dumps(value)) == value


@pytest.mark.parametrize(
    "param, value, kept",
    [
        *(("batchSize", kind(16), 16) for kind in (np.int64, np.int32, np.uint8, np.float32)),
        ("maxIter", np.array(3, np.int32), 3),
        ("stepSize", np.float32(0.5), 0.5),
        ("stepSize", np.int16(2), 2.0),
        ("tol", np.float16(0.25), 0.25),
        ("collectTrainingStats", np.bool_(True), True),
        ("thresholds", np.array([0.25, 0.5], np.float32), [0.25, 0.5]),
        ("thresholds", (np.float32(1), 2), [1.0, 2.0]),
        ("featuresCols", np.array(["a", "b"]), ["a", "b"]),
        ("labelCol", np.str_("a"), "a"),
        ("lossWeights", {"kind": np.float32(0.5)}, {"kind": 0.5}),
        ("deviceType", np.str_("cpu"), "cpu"),
    ],
)
def test_numpy_s_values_are_taken_and_kept_as_python_s(param: str, value: Any, kept: Any) -> None:
    estimator = DeepClassifier(**{param: value})  # type: ignore[misc]
    of_grid = ParamGridBuilder().addGrid(estimator.getParam(param), [value]).build()[0]
    for held in (estimator, estimator.copy(of_grid), DeepClassifier().setParams(**{param: value})):
        found = held.getOrDefault(param)
        assert (found, type(found)) == (kept, type(kept))
        if isinstance(kept, list):
            assert [type(item) for item in found] == [type(item) for item in kept]
    assert json.loads(json.dumps(list(of_grid.values()))) == [kept]


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_every_param_is_explained_with_its_default(kind: Any) -> None:
    estimator = kind()
    lines = dict(line.split(": ", 1) for line in estimator.explainParams().splitlines())
    assert lines.keys() == {param.name for param in estimator.params}
    for param in estimator.params:
        assert lines[param.name].startswith(param.doc)
        assert len(param.doc.split()) > 1
        if estimator.hasDefault(param):
            assert f"default: {estimator.getOrDefault(param)}" in lines[param.name]
        else:
            assert "undefined" in lines[param.name]


# What has no default.
NEEDED: dict[Any, dict[str, Any]] = {
    MixtureDensity: {"components": 3},
    EvidenceLowerBound: {"latent": 2},
    Yolo: {"anchors": ((0.2, 0.3),)},
}


@pytest.mark.parametrize("family, param", [(Optimizer, "optimizer"), (Loss, "loss")])
def test_a_spec_is_given_as_object_name_or_json(family: type[Spec], param: str) -> None:
    kinds = [kind for kind in specs.registry.values() if issubclass(kind, family) and not kind.__subclasses__()]
    assert len(kinds) > 8
    for kind in kinds:
        if not kind.__module__.startswith("sparkdl."):
            continue
        needed = NEEDED.get(kind, {})
        spec = kind(**needed)
        ways = [spec, *[kind.__name__] * (not needed), spec.to_json(), json.dumps(spec.to_json())]
        for way in ways:
            assert getattr(DeepEstimator(**{param: way}), f"get{capital(param)}")() == spec


@pytest.mark.parametrize(
    "params, sentence",
    [
        ({"batchsize": 3}, "DeepClassifier has no Param 'batchsize'; did you mean batchSize?"),
        ({"batch_size": 3}, "has no Param 'batch_size'; did you mean batchSize.$"),
        ({"learning_rate": 3}, "has no Param 'learning_rate'; did you mean stepSize.$"),
        ({"learningRate": 3}, "did you mean stepSize.$"),
        ({"lr": 3}, "did you mean stepSize.$"),
        ({"epochs": 3}, "did you mean maxIter.$"),
        ({"pretrained": 3}, "did you mean initialModel.$"),
        ({"loss": "cross_entropy"}, 'param "loss".*is called .softmax_cross_entropy. here; choose one of'),
        ({"loss": "class_loss"}, 'param "loss".*Loss is expected, received .class_loss.; choose one of'),
        ({"xyzzy": 3}, "DeepClassifier has no Param 'xyzzy'; explainParams"),
        ({"maxIter": np.float32(2.5)}, 'Invalid param value given for param "maxIter"'),
        ({"batchSize": np.array([2, 3])}, 'Invalid param value given for param "batchSize"'),
        ({"batchSize": np.bool_(True)}, 'Invalid param value given for param "batchSize"'),
        ({"maxIter": 2.5}, 'Invalid param value given for param "maxIter"'),
        ({"stepSize": "fast"}, 'Invalid param value given for param "stepSize"'),
        pytest.param(
            {"labelCol": 3},
            'Invalid param value given for param "labelCol"',
            marks=pytest.mark.skipif(OLD, reason="Spark 3.5 asks NumPy for np.string_, which NumPy 2 has not"),
        ),
        ({"optimizer": "sdg"}, 'param "optimizer".*Optimizer is expected, received .sdg.; choose one of'),
        ({"loss": NETWORK}, 'param "loss".*Loss is expected'),
        ({"network": {"type": "Dense", "units": 2}}, 'param "network".*Dense is another kind of spec than BaseNetwork'),
        ({"computeDtype": "float16"}, "computeDtype must be one of float32, bfloat16, float64, received 'float16'"),
        ({"deviceType": "tpu"}, "deviceType must be one of auto, cpu, gpu, received 'tpu'"),
        ({"progress": True}, "progress must be one of auto, on, off, received True"),
        ({"workerLogs": "auto"}, "workerLogs must be one of on, off, received 'auto'"),
    ],
)
def test_a_wrong_param_is_a_type_error_that_names_it(params: dict[str, Any], sentence: str) -> None:
    with pytest.raises(TypeError, match=sentence):
        DeepClassifier(**params)
    with pytest.raises(TypeError, match=sentence):
        DeepClassifier().setParams(**params)


def test_what_params_are_called_elsewhere_is_the_name_of_one() -> None:
    estimator = DeepEstimator()
    for name, meant in synonyms.PARAMS.items():
        assert name == synonyms.bare(name) and not estimator.hasParam(name)
        assert estimator.hasParam(meant) or meant == "initialModel"


def test_a_copy_is_independent() -> None:
    estimator = DeepClassifier(network=NETWORK, maxIter=2)
    copy = estimator.copy({estimator.maxIter: 7})
    assert (copy.getMaxIter(), copy.uid, copy.getNetwork()) == (7, estimator.uid, NETWORK)
    assert estimator.getMaxIter() == 2
    copy.setSeed(9)
    assert estimator.getSeed() == 0


def test_none_takes_a_param_back() -> None:
    stopping = EarlyStopping("loss", 2)
    estimator = DeepClassifier(network=NETWORK, earlyStopping=stopping, maxIter=2, thresholds=[0.3, 0.7])
    without = estimator.copy({estimator.earlyStopping: None, estimator.maxIter: None})
    assert without.getEarlyStopping() is None
    assert without.getMaxIter() == DeepClassifier().getMaxIter()
    assert estimator.getEarlyStopping() == stopping
    assert not estimator.setThresholds(None).isSet("thresholds")  # type: ignore[arg-type]


@pytest.mark.parametrize("param", ["checkpointDir", "earlyStopping", "logDir", "maxLength", "truncated"])
def test_what_is_not_set_is_none(param: str) -> None:
    estimator = DeepClassifier(**{param: VALUES[param]})  # type: ignore[misc]
    assert getattr(estimator, f"get{capital(param)}")() == VALUES[param]
    assert getattr(estimator, f"set{capital(param)}")(None) is estimator
    assert getattr(estimator, f"get{capital(param)}")() is None


def test_stages_can_be_pickled() -> None:
    estimator = DeepClassifier(network=NETWORK, maxIter=2)
    again = pickle.loads(pickle.dumps(estimator))
    assert (again.uid, again.getNetwork(), again.getMaxIter()) == (estimator.uid, NETWORK, 2)


def test_what_a_caller_does_to_initial_weights_afterwards_changes_nothing() -> None:
    given = {"dense_1": {"bias": np.ones(2)}}
    estimator = DeepClassifier(initialModel=given)
    given["dense_1"]["bias"][:] = 7
    kept = estimator.getInitialWeights()
    assert kept is not None and (kept["dense_1"]["bias"] == 1).all()


def test_a_copied_model_keeps_its_weights_and_changes_alone() -> None:
    model = a_model()
    copy = model.copy({model.predictionCol: "guess"})
    assert copy.weights is model.weights
    assert (copy.getPredictionCol(), model.getPredictionCol()) == ("guess", "prediction")


def test_fit_takes_params_for_this_once_and_the_model_keeps_them(rows: DataFrame) -> None:
    estimator = DeepClassifier(network=NETWORK, maxIter=0, weightCol="weight")
    weighted = rows.selectExpr("*", "1 as weight")
    models = estimator.fit(weighted, [{estimator.seed: 1}, {estimator.seed: 2, estimator.predictionCol: "guess"}])
    assert [model.getSeed() for model in models] == [1, 2]
    assert [model.getPredictionCol() for model in models] == ["prediction", "guess"]
    assert [model.uid for model in models] == [estimator.uid] * 2
    assert [model.getWeightCol() for model in models] == ["weight"] * 2
    assert not estimator.isSet("seed")
    assert estimator.getPredictionCol() == "prediction"


def test_cross_validation_picks_the_network_that_learns(cross_validated: CrossValidatorModel) -> None:
    assert cross_validated.bestModel.getNetwork() == NETWORK
    frozen, learning = cross_validated.avgMetrics
    assert frozen < learning


def test_a_train_validation_split_tunes_the_step_size(rows: DataFrame) -> None:
    estimator = DeepClassifier(network=NETWORK, optimizer="adam", maxIter=60, batchSize=24)
    grid = ParamGridBuilder().addGrid(estimator.stepSize, [1e-6, 0.05]).build()
    evaluator = MulticlassClassificationEvaluator(metricName="logLoss")
    split = TrainValidationSplit(estimator=estimator, estimatorParamMaps=grid, evaluator=evaluator, seed=1)
    model, at_once = split.fit(rows), split.copy().setParallelism(4).fit(rows)
    assert model.bestModel.getStepSize() == 0.05
    assert model.validationMetrics[1] < model.validationMetrics[0]
    assert at_once.validationMetrics == pytest.approx(model.validationMetrics)  # Spark adds up in any order
    assert same_bits(arrays(at_once.bestModel), arrays(model.bestModel))
