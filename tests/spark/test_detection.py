"""Detectors through Spark: boxes as labels, as predictions, selected, measured and saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.functions import array_to_vector
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from spark_cases import arrays, same_bits

from sparkdl import DeepRegressionModel, DeepRegressor, Network, load, training
from sparkdl.boxes import overlaps, select_boxes
from sparkdl.evaluation import DetectionEvaluation
from sparkdl.layers import Conv, MaxPool, Relu, Rescale
from sparkdl.losses import Yolo
from sparkdl.spark import BoxSelector

COUNT, SIZE, MOST = 160, 24, 3
LOSS = Yolo(((0.2, 0.2), (0.4, 0.3)), max_boxes=MOST)
NETWORK = Network(
    [
        Rescale(1 / 255),
        *(layer for filters in (8, 16, 16) for layer in (Conv(filters, (3, 3), padding="same"), Relu(), MaxPool(2))),
        Conv(2 * (5 + 2), (1, 1)),
    ],
    input_shape=(SIZE, SIZE, 3),
)


def pictures() -> tuple[np.ndarray, list[list[list[float]]]]:
    """Dark images with up to two bright rectangles, red ones of class 0 and green ones of class 1, and their boxes."""
    random = np.random.default_rng(4)
    images = random.integers(0, 30, (COUNT, SIZE, SIZE, 3)).astype("uint8")
    boxes: list[list[list[float]]] = []
    for image in images:
        own = []
        for half in range(random.integers(0, 3)):  # one in each half, so that none lies on another
            kind, width, height = random.integers(2), random.integers(4, 11), random.integers(4, 9)
            left, top = random.integers(SIZE - width), half * SIZE // 2 + random.integers(SIZE // 2 - height + 1)
            image[top : top + height, left : left + width, kind] = 220
            corners = np.array([left, top, left + width, top + height]) / SIZE
            own.append([float(kind), *corners.tolist()])
        boxes.append(own)
    return images, boxes


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    images, boxes = pictures()
    values = [(n, bytearray(image.tobytes()), own) for n, (image, own) in enumerate(zip(images, boxes, strict=True))]
    frame = spark.createDataFrame(values, "id int, image binary, boxes array<array<double>>")
    return frame.withColumn("flat", F.flatten("boxes")).repartition(3).cache()


def detector(**params: Any) -> DeepRegressor:
    given = {"network": NETWORK, "loss": LOSS, "featuresCol": "image", "labelCol": "boxes", "optimizer": "adam"}
    return DeepRegressor(**{**given, "stepSize": 0.01, "batchSize": 32, "maxIter": 90, "numWorkers": 2, **params})


@pytest.fixture(scope="module")
def model(rows: DataFrame) -> DeepRegressionModel:
    return detector().fit(rows)


def test_it_finds_what_it_was_shown(rows: DataFrame, model: DeepRegressionModel) -> None:
    measured = model.evaluate(rows)
    assert isinstance(measured, DetectionEvaluation) and measured.rows == COUNT
    assert measured.average.average_precision_50 > 0.9
    assert sum(scores.objects for scores in measured.per_class) == sum(map(len, pictures()[1]))
    assert model.summary.metric == "iou" and model.summary.history[-1].metric > 0.6
    selected = BoxSelector(classes=2, outputCol="found").transform(model.transform(rows))
    right, seen = 0, 0
    for row in selected.select("boxes", "found").collect():
        truth = np.array(row.boxes).reshape(-1, 5)
        for box in row.found:
            seen += 1
            own = np.array([[box.left, box.top, box.right, box.bottom]])
            near = overlaps(own, truth[truth[:, 0] == box["class"]][:, 1:])
            right += bool((near > 0.5).any())
    assert right > 0.9 * seen > 0


def test_workers_learn_what_one_process_learns(rows: DataFrame) -> None:
    images, boxes = pictures()
    labels = np.full((COUNT, MOST, 5), -1.0)
    for row, own in zip(labels, boxes, strict=True):
        row[: len(own)] = np.array(own).reshape(-1, 5)
    alone = training.fit(
        NETWORK, (images, labels), loss=LOSS, batch_size=COUNT, step_size=0.01, epochs=2, shuffle=False
    )
    spread = detector(optimizer="sgd", batchSize=COUNT, maxIter=2).fit(rows)
    found = arrays(spread)
    for name, array in arrays(alone).items():
        np.testing.assert_allclose(found[name], array, rtol=1e-3, atol=1e-4, err_msg=name)
    flat = detector(optimizer="sgd", batchSize=COUNT, maxIter=2, labelCol="flat").fit(rows)
    assert same_bits(arrays(flat), found)


def test_boxes_are_selected_as_without_spark(rows: DataFrame, model: DeepRegressionModel, tmp_path: Path) -> None:
    images, _ = pictures()
    options = {"scoreThreshold": 0.05, "overlapThreshold": 0.3, "maxBoxes": 4}
    pipeline = PipelineModel([model, BoxSelector(classes=2, outputCol="found", **options)])
    pipeline.write().overwrite().save(str(tmp_path / "pipeline"))
    loaded = PipelineModel.load(str(tmp_path / "pipeline"))
    assert loaded.stages[1].extractParamMap().keys() == pipeline.stages[1].extractParamMap().keys()
    found = loaded.transform(rows.where("id < 40")).orderBy("id").select("prediction", "found").collect()
    model.save(str(tmp_path / "model"))
    predictions = load(tmp_path / "model").predict({"image": images[:40].reshape(40, -1)})["prediction"]
    expected = select_boxes(np.stack(list(predictions)), 2, score_threshold=0.05, overlap_threshold=0.3, max_boxes=4)
    assert max(map(len, expected)) > 1
    for row, own in zip(found, expected, strict=True):
        np.testing.assert_allclose([*row.found], own.tolist(), rtol=1e-5, atol=1e-6)


def test_a_selector_takes_arrays_and_vectors_and_keeps_nulls(spark: SparkSession) -> None:
    box = [0.1, 0.1, 0.5, 0.5, 0.9, 0.2, 0.8]
    rows = spark.createDataFrame([(box * 2,), (None,), ([0.0] * 7,)], "prediction array<float>").coalesce(1)
    for frame in (
        rows,
        rows.withColumn("prediction", F.when(F.col("prediction").isNotNull(), array_to_vector("prediction"))),
    ):
        found = [row.boxes for row in BoxSelector(classes=2).transform(frame).collect()]
        assert found[1] is None and found[2] == [] and len(found[0]) == 1
        assert found[0][0]["class"] == 1 and found[0][0].score == pytest.approx(0.72)
    schema = BoxSelector(classes=2).transform(rows).schema["boxes"].dataType.simpleString()
    assert schema == "array<struct<class:int,score:double,left:double,top:double,right:double,bottom:double>>"


def test_what_a_selector_cannot_take_is_told(spark: SparkSession) -> None:
    rows = spark.createDataFrame([([1.0] * 7, "a")], "prediction array<double>, name string")
    for selector, sentence in (
        (BoxSelector(), "classes of BoxSelector is not set"),
        (BoxSelector(classes=0), "classes must be a whole number of at least 1, received 0"),
        (BoxSelector(classes=2, scoreThreshold=2), "score_threshold must be between 0 and 1, received 2"),
        (BoxSelector(classes=2, inputCol="name"), "inputCol 'name' must be"),
        (BoxSelector(classes=2, inputCol="boxes"), "which is not there"),
        (BoxSelector(classes=2, outputCol="name"), "exists already"),
    ):
        with pytest.raises(ValueError, match=sentence):
            selector.transform(rows)
    with pytest.raises(Exception, match="must hold boxes of 5 \\+ classes = 8 numbers each, received a row of 7"):
        BoxSelector(classes=3).transform(rows).collect()
    with pytest.raises(TypeError, match="has no Param 'scorethreshold'; did you mean scoreThreshold"):
        BoxSelector(scorethreshold=0.5)  # type: ignore[call-arg]


def test_labels_that_are_no_boxes_are_told_before_training(rows: DataFrame, spark: SparkSession) -> None:
    with pytest.raises(
        ValueError, match="labelCol 'id' must be array<numeric> or Vector or array<array<numeric>>, received int"
    ):
        detector(labelCol="id").fit(rows)
    pixels = rows.withColumn("boxes", F.expr("transform(boxes, box -> transform(box, x -> 24 * x))"))
    with pytest.raises(ValueError, match="divide pixels by the image's size|Classes of boxes"):
        detector().fit(pixels)
    many = rows.withColumn("boxes", F.expr("array_repeat(array(0D, 0D, 0D, 0.5D, 0.5D), 4)"))
    with pytest.raises(ValueError, match="must hold up to 3 times 5 labels a row, received a row of 20"):
        detector().fit(many)


def test_a_pipeline_of_a_detector_is_fitted(rows: DataFrame) -> None:
    stages = [detector(maxIter=1, numWorkers=1), BoxSelector(classes=2, outputCol="found", scoreThreshold=0)]
    found = Pipeline(stages=stages).fit(rows).transform(rows.limit(3)).select("found").collect()
    assert [len(row.found) > 0 for row in found] == [True] * 3
