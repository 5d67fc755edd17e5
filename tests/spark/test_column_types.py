"""Columns of every type: equal values give equal models and scores; bad rows go where handleInvalid says."""

from __future__ import annotations

import io
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from pyspark.errors import PythonException
from pyspark.ml.functions import vector_to_array
from pyspark.ml.linalg import SparseVector, Vectors, VectorUDT
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, StructField, StructType
from spark_cases import FEATURES, LABELS, LAYERS, NETWORK, Array, a_model, arrays, centred, outputs, same_bits

from sparkdl import DeepClassifier, DeepRegressionModel, Network, register_function
from sparkdl.decoding.layout import PIXELS_SETTING
from sparkdl.layers import Dense, Flatten, Rescale
from sparkdl.spark.driver import columns

Image = pytest.importorskip("PIL.Image")

NAN, INFINITY = float("nan"), float("inf")
LARGE_TYPES = "spark.sql.execution.arrow.useLargeVarTypes"
VECTORS = [StructField("features", VectorUDT()), StructField("id", IntegerType())]
PICTURE = Network([Flatten(), *LAYERS], input_shape=(2, 2, 1))
SCHEMA = (
    "id int, doubles array<double>, floats array<float>, integers array<int>, decimals array<decimal(5,1)>, "
    "nested array<array<array<float>>>, raw binary, png binary, "
    "image struct<origin:string,height:int,width:int,nChannels:int,mode:int,data:binary>, "
    "a int, bc array<double>, label int, tiny tinyint, flag boolean, decimal decimal(3,1), one array<double>, "
    "held boolean, held_number int, weight double, weight_integer int"
)


def png(pixels: Any) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.asarray(pixels, np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()


def typed_rows() -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    for at, (values, label) in enumerate(zip(FEATURES.tolist(), LABELS.tolist(), strict=True)):
        values = [values[0], 0, *values[2:]] if at % 3 else values  # so that sparse Vectors are
        raw, square = bytes(values), np.reshape(values, (2, 2))
        held, weight = at % 4 == 0, at % 2 + 1
        rows.append(
            (at, [float(x) for x in values], [float(x) for x in values], values, [Decimal(x) for x in values])
            + (square[..., None].astype(float).tolist(), raw, png(square), ("here", 2, 2, 1, 0, raw))
            + (values[0], [float(x) for x in values[1:3]], label, label, bool(label), Decimal(label), [float(label)])
            + (held, int(held), float(weight), weight)
            + (Vectors.dense(values), SparseVector(4, {i: x for i, x in enumerate(values) if x}))
            + (Vectors.dense(values[3:]),)
        )
    return rows


@pytest.fixture(scope="module")
def typed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    """The same rows in columns of every type, read from Parquet."""
    schema = spark.createDataFrame([], SCHEMA).schema
    for name in ("dense", "sparse", "d"):
        schema = schema.add(name, VectorUDT())
    path = str(tmp_path_factory.mktemp("typed") / "rows")
    spark.createDataFrame(typed_rows(), schema).coalesce(1).write.parquet(path)
    return spark.read.parquet(path)


@pytest.fixture
def as_large_types(spark: SparkSession) -> Iterator[None]:
    """Has Arrow count bytes by 64 bits."""
    spark.conf.set(LARGE_TYPES, "true")
    yield
    spark.conf.unset(LARGE_TYPES)


@pytest.fixture(params=["as_bytes", "as_large_types", "value by value"])
def sent(request: pytest.FixtureRequest) -> None:
    """Sends arrays and Vectors in one way after the other."""
    if request.param != "value by value":  # as short rows are
        request.getfixturevalue("as_bytes")
        request.getfixturevalue(request.param)


@pytest.fixture
def as_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sends arrays and Vectors as bytes."""
    monkeypatch.setattr(columns, "LEAST_WIDTH", 1)


SINGLE = ["doubles", "floats", "integers", "decimals", "nested", "raw", "png", "image", "dense", "sparse"]
TOGETHER = ["a", "bc", "d"]


@pytest.mark.usefixtures("sent")
def test_models_score_columns_of_every_type_alike_from_parquet(typed: DataFrame) -> None:
    model = a_model(network=PICTURE, probabilityCol="")
    weights = {name.replace("_2", "_1").replace("_4", "_3"): array for name, array in arrays(model).items()}
    features = np.array([row.doubles for row in typed.orderBy("id").collect()])
    for params in [*({"featuresCol": name} for name in SINGLE), {"featuresCols": TOGETHER}]:
        scored = model.copy().setParams(**params).transform(typed)
        found = [row.rawPrediction for row in scored.select("id", "rawPrediction").collect()]
        np.testing.assert_allclose(np.array(found), centred(outputs(weights, features)), rtol=1e-5, atol=1e-5)
        if params == {"featuresCol": SINGLE[0]}:
            first = found
        assert found == first


def test_sql_functions_take_columns_of_every_type(spark: SparkSession, typed: DataFrame) -> None:
    model = a_model(network=PICTURE)
    register_function(spark, "of_any_type", model)
    expected = model.setFeaturesCol("doubles").transform(typed)
    expected = [row.prediction for row in expected.orderBy("id").select("id", "prediction").collect()]
    assert set(expected) == {0.0, 1.0}
    for name in [name for name in SINGLE if name not in ("dense", "sparse")]:  # Vectors fail straight from Parquet
        found = typed.selectExpr("id", f"of_any_type({name}) AS class").orderBy("id").collect()
        assert [row["class"] for row in found] == expected


def test_one_number_is_a_row_of_one(typed: DataFrame) -> None:
    network = Network([Dense(1)], input_shape=(1,))
    model = a_model(DeepRegressionModel, network, loss="squared_error", featuresCol="a")
    weights = arrays(model)
    for row in model.transform(typed).select("a", "prediction").collect():
        assert row.prediction == pytest.approx(row.a * weights["dense_0/kernel"][0, 0] + weights["dense_0/bias"][0])


def classifier(**params: Any) -> DeepClassifier:
    defaults = {"network": PICTURE, "stepSize": 0.5, "maxIter": 1, "seed": 5, "batchSize": 8, "numWorkers": 2}
    return DeepClassifier(**(defaults | params))


@pytest.mark.usefixtures("as_bytes")
def test_fits_on_columns_of_other_types_come_to_the_same_weights_bit_for_bit(
    typed: DataFrame, request: pytest.FixtureRequest
) -> None:
    fits = [
        {"featuresCol": "doubles", "labelCol": "label", "weightCol": "weight", "validationIndicatorCol": "held"},
        {"featuresCol": "sparse", "labelCol": "decimal", "weightCol": "weight_integer"}
        | {"validationIndicatorCol": "held_number"},
        {"featuresCol": "png", "labelCol": "flag", "weightCol": "weight", "validationIndicatorCol": "held"},
        {"featuresCol": "png", "labelCol": "flag", "weightCol": "weight", "validationIndicatorCol": "held"}
        | {"imageStorage": "files"},
        {"featuresCol": "image", "labelCol": "tiny", "weightCol": "weight", "validationIndicatorCol": "held"},
        {"featuresCols": TOGETHER, "labelCol": "label", "weightCol": "weight", "validationIndicatorCol": "held"},
    ]
    first, *others = (classifier(**params).fit(typed) for params in fits[::2])
    request.getfixturevalue("as_large_types")
    others += [classifier(**params).fit(typed) for params in fits[1::2]]
    for other in others:
        assert same_bits(arrays(other), arrays(first))
        assert other.summary.validationHistory == first.summary.validationHistory
    assert first.summary.skipped == {}
    assert sum(worker["rows"] for worker in first.summary.workers) == 18


# handleInvalid

BAD = [
    ([1.0, None, 3.0, 4.0], 1.0, "null"),
    (None, 1.0, "null"),
    ([1.0, 2.0, NAN, 4.0], 1.0, "NaN"),
    ([1.0, -INFINITY, 3.0, 4.0], 1.0, "infinity"),
    ([1.0, 2.0], 1.0, "wrong width"),
]
BAD_LABELS = [([1.0, 2.0, 3.0, 4.0], None, "null"), ([1.0, 2.0, 3.0, 4.0], NAN, "NaN")]
GOOD = [(values, float(label)) for values, label in zip(FEATURES.astype(float).tolist(), LABELS, strict=True)]


def mixed(spark: SparkSession, bad: list[Any]) -> DataFrame:
    rows = [(*row[:2], at) for at, row in enumerate([*GOOD[:3], *bad, *GOOD[3:]])]
    return spark.createDataFrame(rows, "features array<double>, label double, id int").repartition(3)


@pytest.mark.usefixtures("as_bytes")
def test_a_fit_skips_and_counts_bad_rows(spark: SparkSession) -> None:
    clean = spark.createDataFrame(GOOD, "features array<double>, label double")
    fitted = classifier(network=NETWORK, handleInvalid="skip").fit(mixed(spark, BAD + BAD_LABELS))
    assert same_bits(arrays(fitted), arrays(classifier(network=NETWORK).fit(clean)))
    assert fitted.summary.skipped == {"null": 3, "NaN": 2, "infinity": 1, "wrong width": 1}
    assert "rows skipped: " in str(fitted.summary)
    nothing = clean.limit(2).withColumn("label", F.lit(NAN))
    with pytest.raises(ValueError, match="There are no rows to train on; .*; 2 were skipped, as handleInvalid says."):
        classifier(network=NETWORK, handleInvalid="skip").fit(nothing)
    with pytest.raises(ValueError, match="handleInvalid must be error or skip in fit, received 'keep'"):
        classifier(network=NETWORK, handleInvalid="keep").fit(clean)


def test_vectors_of_both_kinds_and_null_are_sent_with_lists_that_are_not_null(spark: SparkSession) -> None:
    vectors = [Vectors.dense(1, 2, 0, 4), None, Vectors.sparse(4, [3], [4.0]), Vectors.sparse(4, [], [])]
    rows = spark.createDataFrame([(vector, at) for at, vector in enumerate(vectors)], StructType(VECTORS))
    model = a_model(network=NETWORK, handleInvalid="keep")
    sent = rows.select(columns.features(rows, model).columns["features/features/0"].alias("x")).collect()
    lists = [row.x and (row.x.indices, row.x.values) for row in sent]
    assert lists == [([], [1, 2, 0, 4]), None, ([3], [4.0]), ([], [])]
    dense = rows.select("id", F.when(F.col("features").isNotNull(), vector_to_array("features")).alias("features"))
    got, expected = ([row.prediction for row in model.transform(each).collect()] for each in (rows, dense))
    assert got == expected and [value is None for value in got] == [False, True, False, False]


@pytest.mark.usefixtures("as_bytes")
def test_transform_leaves_bad_rows_out_or_gives_null_or_stops(spark: SparkSession) -> None:
    rows = mixed(spark, BAD)
    model = a_model(network=NETWORK, activationCols={"tanh_2": "hidden"})
    clean = {tuple(row.features): row for row in model.transform(mixed(spark, [])).collect()}
    names = ["rawPrediction", "probability", "prediction", "hidden"]
    kept = model.copy().setHandleInvalid("keep").transform(rows).collect()
    assert len(kept) == len(GOOD) + len(BAD)
    bad = [row for row in kept if row.prediction is None]
    assert sorted(row.id for row in bad) == [3, 4, 5, 6, 7]
    assert all(row[name] is None for row in bad for name in names)
    skipped = model.copy().setHandleInvalid("skip").transform(rows).collect()
    assert len(skipped) == len(GOOD)
    for row in [*skipped, *(row for row in kept if row.prediction is not None)]:
        assert [row[name] for name in names] == [clean[tuple(row.features)][name] for name in names]
    with pytest.raises(PythonException, match="as in the row .*set handleInvalid to skip or keep"):
        model.transform(rows).collect()


@pytest.mark.usefixtures("as_bytes")
def test_scores_and_evaluation_leave_bad_rows_out(spark: SparkSession) -> None:
    model = a_model(network=NETWORK, handleInvalid="skip")
    rows, clean = mixed(spark, BAD + BAD_LABELS), mixed(spark, [])
    found, expected = (model.evaluate(each).to_json() for each in (rows, clean))
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for value, wanted in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        # Other rows are in each partition, whose sums round otherwise.
        assert value == (wanted if isinstance(wanted, str) else pytest.approx(wanted, rel=1e-12))
    assert model.score_rows(rows).count() == len(GOOD)
    assert model.copy().setHandleInvalid("keep").score_rows(rows).where("loss is null").count() == 7
    with pytest.raises(ValueError, match="labelCol 'label' holds (null|NaN), as in the row \\(features: "):
        model.copy().setHandleInvalid("error").evaluate(mixed(spark, BAD_LABELS))
    with pytest.raises(ValueError, match="handleInvalid must be error or skip in evaluate, received 'keep'"):
        model.copy().setHandleInvalid("keep").evaluate(clean)


def test_labels_of_rows_that_cannot_be_used_are_not_looked_at(spark: SparkSession) -> None:
    lines = [(1, [1.0, 2.0, 3.0, 4.0], 1), (2, None, -1), (3, [4.0, NAN, 3.0, 2.0], 7)]  # the network has two classes
    rows = spark.createDataFrame(lines, "id int, features array<double>, label int")
    model = a_model(handleInvalid="keep")
    losses = {row.id: row.loss for row in model.score_rows(rows).collect()}
    scores = outputs(arrays(model), np.array([lines[0][1]]))[0]
    assert losses == {1: pytest.approx(np.log(np.exp(scores).sum()) - scores[1], rel=1e-5), 2: None, 3: None}
    skipping = model.copy().setHandleInvalid("skip")
    assert [row.id for row in skipping.score_rows(rows).collect()] == [1]
    assert skipping.evaluate(rows).rows == 1
    with pytest.raises(PythonException, match="features' holds (null|NaN)"):
        model.copy().setHandleInvalid("error").score_rows(rows).collect()


# Images


def test_files_that_a_fit_keeps_are_checked_and_skipped_before_it_trains(spark: SparkSession, typed: DataFrame) -> None:
    rows = typed.selectExpr("id", "label", "if(id = 3, substr(png, 1, 30), png) AS png")
    params = {"featuresCol": "png", "imageResize": "nearest", "imageStorage": "files", "numWorkers": 1}
    with pytest.raises(ValueError, match="featuresCol 'png' holds an undecodable image .* set handleInvalid to skip"):
        classifier(**params).fit(rows)
    fitted = classifier(**params, handleInvalid="skip").fit(rows)
    assert fitted.summary.skipped == {"undecodable image": 1}
    expected = classifier(**params | {"imageStorage": "pixels"}).fit(rows.where("id != 3"))
    assert same_bits(arrays(fitted), arrays(expected))


def test_a_setting_of_the_session_bounds_the_pixels_of_image_files(spark: SparkSession, typed: DataFrame) -> None:
    model = a_model(network=PICTURE, featuresCol="png", handleInvalid="skip", imageResize="nearest")
    try:
        for most, kept in ((4, 24), (3, 0)):
            spark.conf.set(PIXELS_SETTING, most)
            assert model.transform(typed).count() == kept
        spark.conf.set(PIXELS_SETTING, "1e6")
        with pytest.raises(ValueError, match="sparkdl.maxImagePixels must be a whole number above 0, received '1e6'; "):
            model.transform(typed)
    finally:
        spark.conf.unset(PIXELS_SETTING)


def test_images_that_spark_reads_are_scored_as_pillow_reads_them(spark: SparkSession, tmp_path: Path) -> None:
    rng = np.random.default_rng(8)
    sizes = {"a.png": (4, 5, 3), "b.png": (4, 5), "c.png": (4, 5, 4), "d.png": (9, 7, 3)}
    for name, size in sizes.items():
        Image.fromarray(rng.integers(0, 256, size, dtype=np.uint8)).save(tmp_path / name)
    (tmp_path / "e.png").write_bytes(b"\x89PNG\r\n\x1a\n and nothing else")
    network = Network([Rescale(1 / 255), Flatten(), Dense(2)], input_shape=(4, 5, 3))
    model = a_model(network=network, handleInvalid="keep", imageResize="bilinear", rawPredictionCol="")
    weights = arrays(model)

    def expected(name: str) -> Array | None:
        if name not in sizes:
            return None
        image = Image.open(tmp_path / name).convert("RGB").resize((5, 4), Image.Resampling.BILINEAR)
        flat = np.asarray(image).reshape(-1) / 255
        scores = flat @ weights["dense_2/kernel"].astype(float) + weights["dense_2/bias"]
        return np.exp(scores) / np.exp(scores).sum()

    images = spark.read.format("image").load(str(tmp_path)).withColumn("path", F.col("image.origin"))
    files = spark.read.format("binaryFile").load(str(tmp_path))
    for rows, column in ((images, "image"), (files, "content")):
        found = model.copy().setParams(featuresCol=column).transform(rows).collect()
        assert len(found) == 5
        for row in found:
            wanted = expected(Path(row.path).name)
            if wanted is None:
                assert row.probability is None
            else:
                np.testing.assert_allclose(row.probability, wanted, rtol=1e-5, atol=1e-6)
    strict = model.copy().setParams(featuresCol="image", imageResize="error", handleInvalid="error")
    with pytest.raises(
        PythonException, match="must hold images of 4 x 5 pixels .* received one of 9 x 7, as in the row"
    ):
        strict.transform(images.where("path like '%d.png'")).collect()
