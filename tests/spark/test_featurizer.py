"""A Featurizer makes Vectors by weights that are there, from whatever they are in, wherever a model scores."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.classification import LogisticRegression
from pyspark.sql import DataFrame, SparkSession
from spark_cases import FEATURES, LAYERS, NETWORK, a_model, arrays, table

from sparkdl import DeepClassifier, DeepModel, Featurizer, Graph, Network, models, register_function
from sparkdl.interchange import save_weights
from sparkdl.layers import Add, Conv, Dense, Flatten, Normalization, Relu
from sparkdl.tensor_file import write_tensors
from sparkdl.weights import named_arrays, nested_weights

DENSE = Network([*LAYERS[:1], Dense(5, name="first"), *LAYERS[2:]], input_shape=(4,))


@pytest.fixture(scope="module", autouse=True)
def _session(spark: SparkSession) -> None:
    """pyspark builds stages of a running session only."""


def drawn(network: Network | Graph) -> Any:
    draw, shapes = np.random.default_rng(3), named_arrays(network.abstract_weights())
    return nested_weights({name: draw.uniform(-0.5, 1, array.shape).astype("float32") for name, array in shapes})


def vectors(scored: DataFrame, column: str = "vector") -> Any:
    return np.array([row[column].toArray() for row in scored.orderBy("id").select(column).collect()])


def hidden(weights: Any, layer: str = "dense_1") -> Any:
    """What NETWORK's tanh puts out, by NumPy in float64."""
    return np.tanh(FEATURES / 255 @ weights[layer]["kernel"].astype(float) + weights[layer]["bias"])


def test_rows_become_what_a_layer_puts_out(rows: DataFrame) -> None:
    weights = drawn(NETWORK)
    featurizer = Featurizer(network=NETWORK, weights=weights, outputLayer="tanh_2", outputCol="seen", batchSize=7)
    np.testing.assert_allclose(vectors(featurizer.transform(rows), "seen"), hidden(weights), atol=1e-6)
    assert featurizer.getOutputCol() == "seen" and set(featurizer.weights or {}) == {"dense_1"}
    whole = Featurizer(network=NETWORK, weights=weights).setOutputCol("all").transform(rows)
    expected = hidden(weights) @ weights["dense_3"]["kernel"] + weights["dense_3"]["bias"]
    np.testing.assert_allclose(vectors(whole, "all"), expected, rtol=1e-4)


def test_a_layer_of_one_number_gives_vectors_too(rows: DataFrame) -> None:
    network = Network([Dense(1)], input_shape=(4,))
    weights = drawn(network)
    found = vectors(Featurizer(network=network, weights=weights).transform(rows))
    np.testing.assert_allclose(found, FEATURES @ weights["dense_0"]["kernel"] + weights["dense_0"]["bias"], rtol=1e-5)


@pytest.mark.parametrize("source", ["dict", "model", "saved", "file"])
def test_weights_come_from_wherever_they_are(source: str, rows: DataFrame, tmp_path: Path) -> None:
    model = a_model()
    weights: Any = {
        "dict": model.weights,
        "model": model,
        "saved": tmp_path / "saved",
        "file": tmp_path / "a.safetensors",
    }
    model.save(str(tmp_path / "saved"))
    save_weights(tmp_path / "a.safetensors", model.weights)
    featurizer = Featurizer(network=NETWORK, weights=weights[source], outputLayer="tanh_2")
    np.testing.assert_allclose(vectors(featurizer.transform(rows)), hidden(model.weights), atol=1e-6)


def test_files_of_torchvision_make_vectors_of_images(spark: SparkSession, tmp_path: Path) -> None:
    """The network prepares bytes itself; the file has 1,000 classes, and is asked for no more than the layer needs."""
    plain = models.resnet((8, 8, 3), 1000, (1,), 4)
    weights = plain.init(3)
    save_weights(tmp_path / "a.safetensors", weights, plain, names="torchvision")
    few = models.resnet((8, 8, 3), 2, (1,), 4)
    prepared = Network([Normalization((99.0, 98, 97), (50.0, 60, 70)), *few.layers], input_shape=(8, 8, 3))
    pixels = np.random.default_rng(0).integers(0, 256, (5, 8, 8, 3)).astype("uint8")
    dataset = spark.createDataFrame(
        [(number, bytearray(row.tobytes())) for number, row in enumerate(pixels)], ["id", "image"]
    )
    featurizer = Featurizer(
        network=prepared, weights=tmp_path / "a.safetensors", outputLayer="avgpool", featuresCol="image"
    )
    scaled = (pixels - np.array([99.0, 98, 97])) / np.sqrt([50.0, 60, 70])
    expected = plain.up_to("avgpool").forward(weights, scaled.astype("float32"))
    np.testing.assert_allclose(vectors(featurizer.transform(dataset)), expected, rtol=1e-3)


def test_it_is_a_stage_of_pipelines_that_is_saved_and_loaded(rows: DataFrame, tmp_path: Path) -> None:
    featurizer = Featurizer(network=NETWORK, weights=drawn(NETWORK), outputLayer="tanh_2", outputCol="seen")
    fitted = Pipeline(stages=[featurizer, LogisticRegression(featuresCol="seen", maxIter=5)]).fit(rows)
    fitted.save(str(tmp_path / "pipeline"))
    loaded = PipelineModel.load(str(tmp_path / "pipeline"))
    assert isinstance(loaded.stages[0], Featurizer)
    np.testing.assert_array_equal(vectors(loaded.transform(rows), "seen"), vectors(featurizer.transform(rows), "seen"))
    assert (
        loaded.transform(rows).select("prediction").collect() == fitted.transform(rows).select("prediction").collect()
    )
    copied = featurizer.copy({featurizer.predictionCol: "other"})
    np.testing.assert_array_equal(vectors(copied.transform(rows), "other"), vectors(featurizer.transform(rows), "seen"))


def test_it_is_a_function_of_sql_and_scores_streams(spark: SparkSession, rows: DataFrame, tmp_path: Path) -> None:
    featurizer = Featurizer(network=NETWORK, weights=drawn(NETWORK), outputLayer="tanh_2")
    expected = vectors(featurizer.transform(rows))
    register_function(spark, "featurize", featurizer)
    asked = rows.orderBy("id").selectExpr("featurize(features) AS found").collect()
    np.testing.assert_allclose([row.found for row in asked], expected)
    rows.write.parquet(str(tmp_path / "rows"))
    stream = spark.readStream.schema(rows.schema).parquet(str(tmp_path / "rows"))
    query = featurizer.transform(stream).writeStream.format("memory").queryName("featurized").trigger(availableNow=True)
    assert query.start().awaitTermination(60)
    np.testing.assert_array_equal(vectors(spark.table("featurized")), expected)


def test_graphs_end_at_a_node_and_read_what_it_needs(spark: SparkSession) -> None:
    nodes: Any = {"a": (Dense(3), "left"), "b": (Dense(3), "right"), "sum": (Add(), "a", "b"), "out": (Dense(2), "sum")}
    graph = Graph({"left": (2,), "right": (1,)}, nodes, "out")
    weights = drawn(graph)
    dataset = spark.createDataFrame([(0, [1.0, 2.0], 3.0), (1, [4.0, 5.0], 6.0)], ["id", "pair", "one"])
    columns = {"left": "pair", "right": "one"}
    both = Featurizer(network=graph, weights=weights, outputLayer="sum", featuresCols=columns)
    left, right = np.array([[1.0, 2.0], [4.0, 5.0]]), np.array([[3.0], [6.0]])
    a = left @ weights["a"]["kernel"] + weights["a"]["bias"]
    b = right @ weights["b"]["kernel"] + weights["b"]["bias"]
    np.testing.assert_allclose(vectors(both.transform(dataset)), a + b, rtol=1e-5)
    alone = Featurizer(network=graph, weights=weights, outputLayer="a", featuresCols={"left": "pair"})
    np.testing.assert_allclose(vectors(alone.transform(dataset.drop("one"))), a, rtol=1e-5)


@pytest.mark.parametrize(("handle", "left"), [("keep", 25), ("skip", 24)])
def test_rows_that_cannot_be_used_are_handled(handle: str, left: int, spark: SparkSession) -> None:
    whole = spark.createDataFrame(table()).select("id", "features")
    dataset = whole.union(spark.createDataFrame([(99, None)], whole.schema))
    featurizer = Featurizer(network=NETWORK, weights=drawn(NETWORK), outputLayer="tanh_2", handleInvalid=handle)
    found = {row.id: row.vector for row in featurizer.transform(dataset).collect()}
    assert len(found) == left and found.get(99) is None and found[3].size == 5


def test_what_it_cannot_do_is_told_in_a_sentence(rows: DataFrame, tmp_path: Path) -> None:
    weights = drawn(NETWORK)
    with pytest.raises(TypeError, match="Featurizer has no argument 'maxIter'; those there are: network, weights"):
        Featurizer(network=NETWORK, weights=weights, maxIter=3)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="weights of Featurizer are not given"):
        Featurizer(network=NETWORK)
    with pytest.raises(ValueError, match="network of Featurizer is not set"):
        Featurizer(weights=weights)
    with pytest.raises(ValueError, match="network of Featurizer is not set"):
        Featurizer(outputLayer="tanh_2", outputCol="z")
    with pytest.raises(ValueError, match="nowhere"):
        Featurizer(network=NETWORK, weights=weights, outputLayer="nowhere")
    with pytest.raises(ValueError, match="weights of Featurizer lack dense_3, which the network needs; take weights"):
        Featurizer(network=NETWORK, weights={"dense_1": weights["dense_1"]})
    with pytest.raises(ValueError, match="weights must be a model of sparkdl .* received 3"):
        Featurizer(network=NETWORK, weights=3)
    with pytest.raises(ValueError, match="first"):
        Featurizer(
            network=DENSE, weights=drawn(Network([Dense(5, name="first")], input_shape=(9,))), outputLayer="first"
        )
    write_tensors(tmp_path / "a.safetensors", {"x": np.zeros(2)})
    with pytest.raises(ValueError, match="has none of the names that are known for this network's weights: it has 'x'"):
        Featurizer(network=NETWORK, weights=tmp_path / "a.safetensors")
    featurizer = Featurizer(network=NETWORK, weights=weights)
    with pytest.raises(ValueError, match="evaluate needs a loss, and this Featurizer has none"):
        featurizer.evaluate(rows)
    with pytest.raises(ValueError, match="vector"):
        featurizer.transform(featurizer.transform(rows))


def test_a_network_that_the_weights_do_not_fit_is_refused_before_any_job(rows: DataFrame, tmp_path: Path) -> None:
    weights = drawn(NETWORK)
    other = Network([Dense(3)], input_shape=(4,))
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "kept").touch()
    for model in (Featurizer(network=NETWORK, weights=weights), DeepModel(weights).setParams(network=NETWORK)):
        before = vectors(model.transform(rows), model.getPredictionCol())
        changed = [
            model.copy({model.network: other}),
            model.copy().setNetwork(other),
            model.copy().setParams(network=other),
            model.copy(),
        ]
        changed[-1].set(model.network, other.to_json())
        uses: list[Callable[[Any], Any]] = [
            lambda one: one.transform(rows),
            lambda one: one.up_to("dense_1"),
            lambda one: one.save_onnx(str(tmp_path / "a.onnx")),
            lambda one: one.write().overwrite().save(str(tmp_path / "model")),
        ]
        for one, use in itertools.product(changed, uses):
            with pytest.raises(
                ValueError, match=f"network of this {type(model).__name__} is not that of its weights: "
            ):
                use(one)
        assert [path.name for path in tmp_path.glob("**/*")] == ["model", "kept"]
        again = changed[1].setNetwork(Network(NETWORK.layers, input_shape=NETWORK.input_shape))
        np.testing.assert_array_equal(vectors(again.transform(rows), model.getPredictionCol()), before)
    later = Featurizer(outputCol="z").setNetwork(other)
    with pytest.raises(ValueError, match="This Featurizer has no weights"):
        later.transform(rows)


# Training that starts from a file


def test_a_fit_starts_from_a_file_of_others_names_and_draws_its_own_head(rows: DataFrame, tmp_path: Path) -> None:
    def network(classes: int) -> Network:
        return Network([Conv(3, (1, 1)), Relu(), Flatten(), Dense(4), Relu(), Dense(classes)], input_shape=(2, 2, 1))

    theirs = drawn(network(7))
    save_weights(tmp_path / "a.safetensors", theirs, network(7), names="torchvision")
    fitted = DeepClassifier(network=network(2), initialModel=tmp_path / "a.safetensors", maxIter=0, seed=4).fit(rows)
    afresh = DeepClassifier(network=network(2), maxIter=0, seed=4).fit(rows)
    for name, array in arrays(fitted).items():
        wanted = arrays(afresh)[name] if name.startswith("dense_5") else dict(named_arrays(theirs))[name]
        np.testing.assert_array_equal(array, wanted, err_msg=name)
    with pytest.raises(ValueError, match="network of DeepClassifier is not set"):
        DeepClassifier(initialModel=tmp_path / "a.safetensors")


def test_the_driver_reads_a_file_without_starting_jax(tmp_path: Path) -> None:
    plain = models.resnet((8, 8, 3), 5, (1,), 4)
    save_weights(tmp_path / "a.safetensors", drawn(plain), plain, names="torchvision")
    code = f"""
from sparkdl import Network, models
from sparkdl.interchange.weight_files import file_weights
from sparkdl.layers import Normalization
few = models.resnet((8, 8, 3), 2, (1,), 4)
network = Network([Normalization((99.0, 98, 97), (50.0, 60, 70)), *few.layers], input_shape=(8, 8, 3))
assert "fc" not in file_weights({str(tmp_path / "a.safetensors")!r}, network)
from jax._src import xla_bridge
print(xla_bridge.backends_are_initialized())
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
