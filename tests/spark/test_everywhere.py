"""Classic sessions, executors of their own, Spark Connect: the same weights, bit for bit, and nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from own_parts import Pinball
from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.classification import OneVsRest
from pyspark.ml.evaluation import MulticlassClassificationEvaluator
from pyspark.ml.feature import MinMaxScaler
from pyspark.ml.functions import array_to_vector, vector_to_array
from pyspark.ml.tuning import CrossValidator, CrossValidatorModel, ParamGridBuilder
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from spark_cases import LABELS, NETWORK, UNOPTIMIZED, arrays, same_bits, table

from sparkdl import (
    DeepClassificationModel,
    DeepClassifier,
    DeepEstimator,
    DeepModel,
    Featurizer,
    Graph,
    Network,
    Same,
    register_function,
)
from sparkdl.interchange import save_weights
from sparkdl.layers import Concatenate, Dense, Embedding, HashedEmbedding, Rescale
from sparkdl.layers.base import Array, Layer, Shape, Weights, jitted
from sparkdl.series import SeriesWindows
from sparkdl.spark import local_session
from sparkdl.spark.driver import columns as input_columns
from sparkdl.spark.driver.old_spark import OLD, from_arrow
from sparkdl.text import Tokenizer, TokenizerModel
from sparkdl.training.worker import PROCESS_NAME

MASTERS = {"classic": "local[2]", "cluster": "local-cluster[2,1,1024]"}
MASTERS |= {} if OLD else {"connect": "local[2]"}
OTHERS = [kind for kind in MASTERS if kind != "classic"]
SETTINGS = {
    "spark.executor.memory": "1g",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": 2,
    "spark.speculation": True,  # of other stages; Spark has no barrier task run twice, so that nothing may change
    "spark.speculation.interval": "100ms",
    "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "1s",  # while an executor is being replaced
}
OWN_SETTINGS = {"connect": {"spark.python.daemon.module": "pyspark.daemon"}}  # Spark's own, as most clusters have it
DEADLINE_SECONDS = 600.0
STREAM_SECONDS = 120
ENDLESS = 10**6
LONG = 400  # epochs: enough for an executor to die in
START = {"dense_1": {"kernel": np.ones((4, 5), np.float32), "bias": np.linspace(-1, 1, 5, dtype=np.float32)}}


@dataclass(frozen=True)
class Halved(Layer):
    """y = x / 2; a class of `__main__` in those processes, which executors have never heard of."""

    def output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        return x / 2

    @jitted
    def delta(self, weights: Weights, x: Array, y: Array, dy: Array) -> Array:
        return dy / 2


OWN = Network([Rescale(1 / 255), Dense(3), Halved(), Dense(1)], input_shape=(4,))
# Of several inputs, numbers, categories and strings, and two outputs.
GRAPH = Graph(
    inputs={"facts": (4,), "place": (), "before": (), "word": ()},
    nodes={
        "known": (Network([Rescale(1 / 255), Dense(3)]), "facts"),
        "here": (Embedding(5, 2), "place"),
        "there": (Same("here"), "before"),
        "said": (HashedEmbedding(50, 2), "word"),
        "both": (Concatenate(), "known", "here", "there", "said"),
        "kind": (Dense(2), "both"),
        "size": (Dense(1), "both"),
    },
    outputs=("kind", "size"),
)

# What a session of each kind does, in a process of its own.


def classifier(epochs: int = 2, **params: Any) -> DeepClassifier:
    return DeepClassifier(**({"network": NETWORK, "numWorkers": 2, "maxIter": epochs, "batchSize": 8} | params))


def check(kind: str, folder: Path) -> None:
    """Write to `folder` what fits, predictions and measures come to; a cluster is then struck, until it is killed."""
    input_columns.LEAST_WIDTH = 1  # as bytes, but over Connect
    session = local_session(MASTERS[kind], connect=kind == "connect", **SETTINGS | OWN_SETTINGS.get(kind, {}))
    columns = {"fold": F.col("id") % 2, "vector": array_to_vector("features")}
    rows = from_arrow(session, table()).withColumns(columns)
    told: dict[str, Any] = {}

    fitted = classifier(initialModel=START).fit(rows)
    fitted.save(str(folder / "model"))
    fitted.write().overwrite().save(str(folder / "model"))
    loaded = DeepClassificationModel.load(str(folder / "model"))
    told["loaded"] = same_bits(arrays(loaded), arrays(fitted))
    told["predictions"] = predictions(loaded.transform(rows.repartition(2)))
    told["loss"] = fitted.evaluate(rows).loss
    told["losses"] = [row.loss for row in fitted.score_rows(rows).orderBy("id").select("loss").collect()]

    scaler = MinMaxScaler(inputCol="vector", outputCol="scaled", max=255.0)
    pipeline = Pipeline(stages=[scaler, (deep := classifier(featuresCol="scaled", numWorkers=1))])
    tuning = CrossValidator(
        estimator=pipeline,
        estimatorParamMaps=ParamGridBuilder().addGrid(deep.stepSize, [0.05]).build(),
        evaluator=MulticlassClassificationEvaluator(metricName="accuracy"),
        numFolds=2,
        foldCol="fold",
    )
    tuned = tuning.fit(rows)
    tuned.save(str(folder / "tuned"))
    chosen = CrossValidatorModel.load(str(folder / "tuned")).bestModel
    assert isinstance(chosen, PipelineModel)
    told["tuned"] = predictions(chosen.transform(rows))
    told["accuracy"] = tuned.avgMetrics
    register_function(session, "classify", loaded)
    rows.createOrReplaceTempView("rows")
    classes = session.sql("SELECT classify(features) AS class FROM rows ORDER BY id")
    told["function"] = [row["class"] for row in classes.collect()]
    told["stream"] = streamed(loaded, rows, folder)
    told["windows"] = windows_of(rows)
    own = DeepEstimator(network=OWN, loss=Pinball(0.7), numWorkers=2, maxIter=2, batchSize=8).fit(rows)
    told["own"] = [row.prediction for row in own.transform(rows).orderBy("id").select("prediction").collect()]
    rest = OneVsRest(classifier=classifier(numWorkers=1)).fit(rows).transform(rows)
    told["rest"] = [row.prediction for row in rest.orderBy("id").select("prediction").collect()]
    told["tokens"] = tokens_of(rows, folder)
    told["vectors"] = vectors_of(rows, folder, fitted.weights)
    graph = graph_of(rows, folder, told)
    write(folder / "graph.npz", arrays(graph))
    write(folder / "fitted.npz", arrays(fitted))
    write(folder / "tuned.npz", arrays(chosen.stages[1]))
    write(folder / "own.npz", arrays(own))

    if kind == "classic":
        write(folder / "long.npz", arrays(classifier(LONG).fit(rows)))
    if kind == "cluster":
        long_fit_that_loses_an_executor(rows, folder)
    (folder / "told.json").write_text(json.dumps(told))
    if kind == "cluster":
        classifier(ENDLESS).fit(rows)  # killed with its driver
    session.stop()


def windows_of(rows: DataFrame) -> list[list[Any]]:
    """Windows of the two series that even and odd rows are."""
    stage = SeriesWindows(keyCols="fold", timeCol="id", valueCols="label", window=3, horizon=2, stride=4, every=2)
    return [
        [row.fold, row.id, row.history, row.future] for row in stage.transform(rows).orderBy("fold", "id").collect()
    ]


def graph_of(rows: DataFrame, folder: Path, told: dict[str, Any]) -> DeepModel:
    """A model of GRAPH, saved and loaded, and in `told` what it says."""
    columns = {
        "place": F.col("id") % 5,
        "before": (F.col("id") % 3).cast("double"),
        "word": F.concat(F.lit("w"), F.col("id") % 4),
        "size": F.when(F.col("id") % 3 > 0, F.col("id") / 10),
    }
    named = rows.withColumns(columns)
    estimator = DeepEstimator(
        network=GRAPH,
        featuresCols={"facts": "features", "place": "place", "before": "before", "word": "word"},
        labelCols={"kind": "label", "size": "size"},
        loss={"kind": "softmax_cross_entropy", "size": "squared_error"},
        lossWeights={"size": 0.1},
        optimizer="ada_grad",
        numWorkers=2,
        maxIter=2,
        batchSize=8,
    )
    estimator.fit(named).save(str(folder / "graph"))
    model = DeepModel.load(str(folder / "graph"))
    scored = model.transform(named).orderBy("id").select("prediction_size", vector_to_array("probability_kind"))
    told["graph"] = [[row[0], *row[1]] for row in scored.collect()]
    register_function(rows.sparkSession, "size_of", model, output="prediction_size")
    called = named.orderBy("id").selectExpr("size_of(features, place, before, word) AS size").collect()
    told["graph function"] = [row["size"] for row in called]
    told["graph losses"] = {name: measured.loss for name, measured in model.evaluate(named).items()}
    return model


def vectors_of(rows: DataFrame, folder: Path, weights: Any) -> list[list[float]]:
    """What a Featurizer makes of rows, by weights of a file, once it was saved and loaded."""
    save_weights(folder / "weights.safetensors", weights)
    featurizer = Featurizer(
        network=NETWORK, weights=str(folder / "weights.safetensors"), outputLayer="tanh_2", outputCol="seen"
    )
    featurizer.save(str(folder / "featurizer"))
    made = Featurizer.load(str(folder / "featurizer")).transform(rows)
    return [row.seen.toArray().tolist() for row in made.orderBy("id").select("seen").collect()]


def tokens_of(rows: DataFrame, folder: Path) -> dict[str, Any]:
    """The JSON of a tokenizer, saved and loaded, what it makes of texts and of a stream of them, and the way back."""
    texts = rows.selectExpr("id", "if(id = 3, null, concat('row ', id, ' holds ', features[0])) AS text")
    Tokenizer(inputCol="text", outputCol="tokens", vocabSize=60).fit(texts).save(str(folder / "tokenizer"))
    model = TokenizerModel.load(str(folder / "tokenizer"))
    back = model.detokenizer(outputCol="back").transform(model.transform(texts)).orderBy("id")
    texts.write.parquet(str(folder / "texts"))
    stream = rows.sparkSession.readStream.schema(texts.schema).parquet(str(folder / "texts"))
    sink = model.transform(stream).writeStream.format("memory").queryName("tokenized")
    query = sink.option("checkpointLocation", str(folder / "texts stream")).trigger(availableNow=True).start()
    assert query.awaitTermination(STREAM_SECONDS)
    tokens = rows.sparkSession.table("tokenized").orderBy("id").select("tokens")
    register_function(rows.sparkSession, "encode_text", model)
    called = texts.orderBy("id").selectExpr("encode_text(text) AS tokens")
    return {
        "json": model.tokenizerJson,
        "back": [[row.tokens, row.back] for row in back.collect()],
        "stream": [row.tokens for row in tokens.collect()],
        "function": [row.tokens for row in called.collect()],
    }


def streamed(model: DeepClassificationModel, rows: DataFrame, folder: Path) -> list[list[float]]:
    """The predictions of a stream of the rows' files."""
    rows.drop("vector").repartition(2).write.parquet(str(folder / "rows"))
    stream = rows.sparkSession.readStream.schema(rows.drop("vector").schema).parquet(str(folder / "rows"))
    sink = model.transform(stream).writeStream.format("memory").queryName("streamed")
    query = sink.option("checkpointLocation", str(folder / "stream")).trigger(availableNow=True).start()
    assert query.awaitTermination(STREAM_SECONDS)
    return predictions(rows.sparkSession.table("streamed"))


def predictions(scored: DataFrame) -> list[list[float]]:
    """Every row's class and probabilities."""
    chosen = scored.orderBy("id").select("prediction", vector_to_array("probability").alias("probability"))
    return [[row.prediction, *row.probability] for row in chosen.collect()]


def write(path: Path, weights: dict[str, Any]) -> None:
    np.savez(path, **weights)


def long_fit_that_loses_an_executor(rows: DataFrame, folder: Path) -> None:
    """Write the weights, and which step Spark's second attempt went on from."""
    kept = folder / "kept"
    threading.Thread(target=kill_an_executor, args=(kept,), daemon=True).start()
    struck = classifier(LONG).setCheckpointDir(str(kept)).setCheckpointInterval(20).fit(rows)
    write(folder / "long.npz", arrays(struck))
    (folder / "resumed.json").write_text(json.dumps(struck.summary.resumedFrom))


def kill_an_executor(kept: Path) -> None:
    """Once the fit has saved a checkpoint."""
    while not list(kept.rglob("*.ckpt")):
        time.sleep(0.01)
    os.kill(min(descendants(os.getpid(), "CoarseGrainedExecutorBackend")), signal.SIGKILL)


def descendants(ancestor: int, command: str) -> list[int]:
    """Processes under another whose name or command holds a text; Linux tells."""
    parents, found = {}, []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(process.name)] = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            if command in (process / "comm").read_text() + (process / "cmdline").read_text():
                found.append(int(process.name))
        except OSError:  # gone
            continue

    def descends(process: int | None) -> bool:
        return process is not None and (process == ancestor or descends(parents.get(process)))

    return [process for process in found if descends(process)]


# What the tests see of it.


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """What every kind of session wrote; all of them have ended, the cluster's by a kill while it trained."""
    folders = {kind: tmp_path_factory.mktemp(kind) for kind in MASTERS}
    drivers = {kind: driver(kind, folder) for kind, folder in folders.items()}
    deadline = time.monotonic() + DEADLINE_SECONDS
    try:
        while running := {kind: process for kind, process in drivers.items() if process.poll() is None}:
            assert time.monotonic() < deadline, "\n".join(log(folders[kind]) for kind in running)
            if "cluster" in running and trains_for_ever(running["cluster"], folders["cluster"]):
                running["cluster"].kill()
            time.sleep(0.2)
        for kind, process in drivers.items():
            assert process.poll() == (-signal.SIGKILL if kind == "cluster" else 0), log(folders[kind])
    finally:
        for process in drivers.values():
            process.kill()
            process.wait()
    return folders


def driver(kind: str, folder: Path) -> subprocess.Popen[bytes]:
    environment = os.environ | {
        UNOPTIMIZED[0]: UNOPTIMIZED[1],
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "JAVA_TOOL_OPTIONS": os.environ["SPARK_SUBMIT_OPTS"],  # for executors, too
    }
    if kind == "connect":
        environment["SPARK_TESTING"] = "1"  # its server then takes any free port
    command = [sys.executable, __file__, kind, str(folder)]
    with (folder / "log").open("w") as stream:
        return subprocess.Popen(command, stdout=stream, stderr=stream, cwd=folder, env=environment)


def trains_for_ever(process: subprocess.Popen[bytes], folder: Path) -> bool:
    return (folder / "told.json").exists() and len(descendants(process.pid, PROCESS_NAME)) == 2


def log(folder: Path) -> str:
    return (folder / "log").read_text()


def remains(folder: Path) -> list[str]:
    """Processes of a session, which know its local disk from their environment, and folders of its fits."""
    found = glob(f"{folder}/local/**/sparkdl-*", recursive=True)
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if str(folder).encode() in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_text())
        except OSError:  # gone, or somebody else's
            continue
    return found


@pytest.fixture(scope="module")
def told(folders: dict[str, Path]) -> dict[str, dict[str, Any]]:
    return {kind: json.loads((folder / "told.json").read_text()) for kind, folder in folders.items()}


@pytest.mark.parametrize("kind", OTHERS)
@pytest.mark.parametrize("name", ["fitted", "tuned", "own", "graph"])
def test_the_weights_are_those_of_a_classic_session(folders: dict[str, Path], kind: str, name: str) -> None:
    expected, actual = (dict(np.load(folders[each] / f"{name}.npz")) for each in ("classic", kind))
    assert same_bits(actual, expected)


@pytest.mark.parametrize("kind", OTHERS)
def test_what_a_model_tells_is_what_it_tells_in_a_classic_session(told: dict[str, Any], kind: str) -> None:
    assert told[kind] == told["classic"]


@pytest.mark.parametrize("kind", MASTERS)
def test_functions_and_streams_give_what_transform_gives(told: dict[str, Any], kind: str) -> None:
    expected = told[kind]["predictions"]
    assert told[kind]["function"] == [row[0] for row in expected]
    assert told[kind]["stream"] == expected
    assert told[kind]["graph function"] == [row[0] for row in told[kind]["graph"]]
    tokens = told[kind]["tokens"]
    assert tokens["stream"] == tokens["function"] == [row[0] for row in tokens["back"]]
    assert [row[1] for row in tokens["back"]].count(None) == 1 and "row 5 holds" in str(tokens["back"])


@pytest.mark.parametrize("kind", MASTERS)
def test_windows_are_those_of_the_rows_in_their_order(told: dict[str, Any], kind: str) -> None:
    labels = LABELS.astype(float)
    expected = [
        [fold, end, [[label] for label in labels[end - 4 : end + 1 : 2]], labels[[end + 2, end + 4]].tolist()]
        for fold in (0, 1)
        for end in range(fold + 4, 20, 8)
    ]
    assert told[kind]["windows"] == expected


def test_a_model_is_loaded_as_it_was_saved(told: dict[str, dict[str, Any]]) -> None:
    assert [kind for kind in MASTERS if not told[kind]["loaded"]] == []


@pytest.mark.skipif(OLD, reason="sparkdl takes Spark 3.5 without Connect")
def test_a_save_over_connect_logs_no_error_of_the_server(folders: dict[str, Path]) -> None:
    assert "PATH_NOT_FOUND" not in log(folders["connect"])


def test_an_executor_that_is_killed_does_not_change_the_weights(folders: dict[str, Path]) -> None:
    struck, undisturbed = (dict(np.load(folders[kind] / "long.npz")) for kind in ("cluster", "classic"))
    assert json.loads((folders["cluster"] / "resumed.json").read_text())[0] >= 20
    assert same_bits(struck, undisturbed)


@pytest.mark.parametrize("kind", MASTERS)
def test_nothing_is_left_of_a_session_that_stopped_or_was_killed(folders: dict[str, Path], kind: str) -> None:
    deadline = time.monotonic() + 20
    while left := remains(folders[kind]):
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


if __name__ == "__main__":
    check(sys.argv[1], Path(sys.argv[2]))
