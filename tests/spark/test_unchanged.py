"""Short fits come to the bits that version 0.1 gave them, and what it saved is read as it was.

`unchanged.json` holds of each fit the root mean square of its weights, which holds everywhere, and by platform the
SHA-256 of the weights, as compilers and processors round each in their way. To add a platform, at a commit that passes:

    SPARKDL_RECORD=1 python -m pytest tests/spark/test_unchanged.py

Fits that a later commit changed on purpose, and why:

- of two workers from columns: workers with more rows hand some to the others, so that rows are in other batches.
- by optimizers with a state: arrays are updated in place, by loops in which other products and sums are rounded as one.
- of networks with batch normalization: on a CPU variances are means of squares less squares of means.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import re
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from pyspark.ml.evaluation import MulticlassClassificationEvaluator
from pyspark.ml.linalg import Vectors
from pyspark.ml.tuning import CrossValidator, ParamGridBuilder
from pyspark.sql import DataFrame, SparkSession
from spark_cases import FEATURES, LABELS, LAYERS, NETWORK, arrays, same_bits

from sparkdl import DeepClassificationModel, DeepClassifier, Network, training
from sparkdl.layers import BatchNorm, Conv, Dense, Dropout, Flatten, MaxPool, Relu
from sparkdl.training import AllReduce, Exchange, ParameterAveraging, ShardedAllReduce, ThresholdSharing
from sparkdl.training.checkpoints.checkpoint_file import decode
from sparkdl.weights import named_arrays

RECORD = Path(__file__).with_name("unchanged.json")
SAVED = Path(__file__).parents[1] / "saved_by_0.1"
CONVOLUTIONAL = Network(
    [Conv(4, (3, 3)), BatchNorm(), Relu(), MaxPool((2, 2)), Flatten(), Dropout(0.2), Dense(3)], input_shape=(8, 8, 1)
)
EXCHANGES = {
    "all_reduce": AllReduce(),
    "sharded_all_reduce": ShardedAllReduce(),
    "parameter_averaging": ParameterAveraging(frequency=2),
    "threshold_sharing": ThresholdSharing(),
}
Check = Callable[[str, Any], None]


def this_platform() -> str:
    """What decides how results are rounded: processor, cores, the versions of what computes, and XLA's flags."""
    processor = platform.processor()
    if (told := Path("/proc/cpuinfo")).exists():
        found = dict(re.findall(r"^(vendor_id|cpu family|model|model name|flags)\s*: (.*)$", told.read_text(), re.M))
        flags = hashlib.sha256(found.pop("flags", "").encode()).hexdigest()[:8]
        processor = f"{' '.join(found.values())} {flags}"
    versions = " ".join(f"{name} {version(name)}" for name in ("jaxlib", "jax", "optax", "numpy"))
    return f"{processor}, {os.cpu_count()} cores, {versions}, {os.environ.get('XLA_FLAGS', '').strip()}"


@pytest.fixture(scope="module")
def unchanged() -> Iterator[Check]:
    """`unchanged(name, weights)`: compares the weights of a fit with those of the record, or takes them down."""
    record: dict[str, dict[str, Any]] = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    recording, here = bool(os.environ.get("SPARKDL_RECORD")), this_platform()

    def check(name: str, weights: Any) -> None:
        whole, squares, count = hashlib.sha256(), 0.0, 0
        for path, array in named_arrays(weights):
            whole.update(f"{path} {array.dtype} {array.shape}".encode() + np.ascontiguousarray(array).tobytes())
            squares += float(np.sum(np.square(array, dtype=np.float64)))
            count += array.size
        size = (squares / count) ** 0.5
        if recording:
            record.setdefault(name, {"size": size, "sha256": {}})["sha256"][here] = whole.hexdigest()
        assert size == pytest.approx(record[name]["size"], rel=1e-3)
        assert whole.hexdigest() == record[name]["sha256"].get(here, whole.hexdigest())

    yield check
    if recording:
        RECORD.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")


@pytest.fixture(params=["float32", "float64"])
def dtype(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def unoptimized() -> Iterator[None]:
    """Fewer rewritings by the compiler, which a change of how a program is written could turn another way."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.mark.usefixtures("unoptimized")
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("name", EXCHANGES)
def test_every_exchange(unchanged: Check, name: str, workers: int, dtype: str) -> None:
    unchanged(f"{name}, {workers} workers, {dtype}", trained(EXCHANGES[name], workers, dtype))


@pytest.mark.parametrize("workers", [1, 2])
def test_programs_that_are_optimized(unchanged: Check, workers: int) -> None:
    unchanged(f"optimized, {workers} workers", trained(AllReduce(), workers, "float32"))


def trained(exchange: Exchange, workers: int, dtype: str) -> Any:
    """A network with all that a layer can be, after two epochs of rows that weigh 0 to 2."""
    random = np.random.default_rng(3)
    rows = random.normal(size=(50, 8, 8, 1)), random.integers(0, 3, 50), random.integers(0, 3, 50)
    settings = {"optimizer": "momentum", "step_size": 0.1, "epochs": 2, "batch_size": 16, "seed": 1}
    return training.fit(CONVOLUTIONAL, rows, devices=workers, exchange=exchange, dtype=dtype, **settings).weights


# On Spark.


def classifier(**params: Any) -> DeepClassifier:
    fixed = {"network": NETWORK, "optimizer": "adam", "stepSize": 0.1, "batchSize": 8, "maxIter": 2, "seed": 5}
    return DeepClassifier(**(fixed | {"numWorkers": 2} | params))


@pytest.fixture(scope="module")
def typed(spark: SparkSession) -> DataFrame:
    """The same rows in columns of several types."""
    image = pytest.importorskip("PIL.Image")

    def png(row: Any) -> bytes:
        stream = io.BytesIO()
        image.fromarray(np.reshape(row, (2, 2)).astype(np.uint8)).save(stream, "PNG")
        return stream.getvalue()

    rows = [
        (
            *(row.astype(float).tolist(), Vectors.dense(row), bytes(row.tolist()), png(row)),
            *(float(row[0]), row[1:].astype(float).tolist(), int(label), at % 4 == 0, float(at % 3)),
        )
        for at, (row, label) in enumerate(zip(FEATURES, LABELS, strict=True))
    ]
    names = ["array", "vector", "bytes", "png", "first", "others", "label", "held", "weight"]
    return spark.createDataFrame(rows, names).cache()


COLUMNS = {
    "array": {"featuresCol": "array"},
    "vector": {"featuresCol": "vector"},
    "bytes": {"featuresCol": "bytes"},
    "images": {"featuresCol": "png", "network": Network([Flatten(), *LAYERS], input_shape=(2, 2, 1))},
    "several": {"featuresCols": ["first", "others"]},
    "weighted": {"featuresCol": "array", "weightCol": "weight", "validationIndicatorCol": "held"},
}


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("workers", [1, 2])
def test_columns(unchanged: Check, typed: DataFrame, name: str, workers: int) -> None:
    model = classifier(numWorkers=workers, **COLUMNS[name]).fit(typed)
    unchanged(f"column {name}, {workers} workers", model.weights)


def test_a_fit_in_float64(unchanged: Check, rows: DataFrame) -> None:
    unchanged("fit in float64", classifier(computeDtype="float64").fit(rows).weights)


def test_a_resumed_fit(unchanged: Check, rows: DataFrame, tmp_path: Path) -> None:
    first = classifier(checkpointDir=str(tmp_path), maxIter=1).fit(rows)
    second = classifier(checkpointDir=str(tmp_path), maxIter=3).fit(rows)
    assert second.summary.resumedFrom
    unchanged("one epoch", first.weights)
    unchanged("one epoch and two more", second.weights)


def test_a_tuned_grid(unchanged: Check, rows: DataFrame) -> None:
    estimator = classifier()
    grid = ParamGridBuilder().addGrid(estimator.stepSize, [0.01, 0.1]).addGrid(estimator.seed, [1, 2]).build()
    evaluator = MulticlassClassificationEvaluator(metricName="logLoss")
    tuner = CrossValidator(estimator=estimator, estimatorParamMaps=grid, evaluator=evaluator, numFolds=2, seed=1)
    unchanged("tuned", tuner.fit(rows).bestModel.weights)
    for number, model in sorted(estimator.fitMultiple(rows, grid)):
        unchanged(f"of a grid, {number}", model.weights)


def test_a_warm_start(unchanged: Check, rows: DataFrame) -> None:
    start = DeepClassificationModel.load(str(SAVED / "model"))
    unchanged("warm start", classifier(initialModel=start).fit(rows).weights)


# What 0.1 saved, and told.json, what it predicted for the rows of spark_cases.


def test_a_saved_model_predicts_what_it_did(spark: SparkSession) -> None:
    model = DeepClassificationModel.load(str(SAVED / "model"))
    told = json.loads((SAVED / "told.json").read_text())
    rows = spark.createDataFrame([(row.astype(float).tolist(),) for row in FEATURES], ["features"])
    found = [row.rawPrediction.toArray() for row in model.transform(rows).collect()]
    np.testing.assert_allclose(found, told["raw predictions"], rtol=1e-5, atol=1e-6)
    assert model.getNetwork() == NETWORK
    assert model.getThresholds() == told["params"]["thresholds"]


def test_a_saved_estimator_is_what_it_was() -> None:
    estimator = DeepClassifier.load(str(SAVED / "estimator"))
    told = json.loads((SAVED / "told.json").read_text())["params"]
    params = {param.name: value for param, value in estimator.extractParamMap().items() if param.name in told}
    assert params == told
    assert same_bits(
        dict(named_arrays(estimator.getInitialWeights())), arrays(DeepClassificationModel.load(str(SAVED / "model")))
    )


def test_a_saved_checkpoint_holds_the_weights_of_its_epoch() -> None:
    """No run goes on from it, as versions are part of a run's fingerprint; what it holds is there all the same."""
    (file,) = (SAVED / "checkpoints").rglob("*.ckpt")
    meta, found = decode(file.read_bytes())
    model = DeepClassificationModel.load(str(SAVED / "model"))
    assert meta["epoch"] == model.getMaxIter()
    best = {name.removeprefix("best/"): array for name, array in found.items() if name.startswith("best/")}
    assert same_bits(best, arrays(model))
