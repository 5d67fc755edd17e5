"""A class for every pixel through Spark: masks as files, bytes or arrays train to the same bits, and are measured."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pyspark.sql import DataFrame, SparkSession
from scipy import special
from sklearn import metrics
from spark_cases import arrays, same_bits

from sparkdl import DeepEstimator, DeepModel, Network
from sparkdl.layers import Conv, RandomCrop, RandomFlip, Relu, Rescale
from sparkdl.losses import Dice, EachPosition, Loss

COUNT, HEIGHT, WIDTH, CLASSES, IGNORED = 40, 8, 12, 3, 255


def network(*first: Any) -> Network:
    body = [Rescale(1 / 255), Conv(8, (3, 3), padding="same"), Relu(), Conv(CLASSES, (1, 1))]
    return Network([*first, *body], input_shape=(HEIGHT, WIDTH, 3))


def scenes() -> tuple[np.ndarray, np.ndarray]:
    """Dark images with a red and a green rectangle, and the class of each pixel; those at the rim have none."""
    draw = np.random.default_rng(1)
    images, masks = np.zeros((COUNT, HEIGHT, WIDTH, 3), np.uint8), np.zeros((COUNT, HEIGHT, WIDTH), np.uint8)
    for image, mask in zip(images, masks, strict=True):
        for kind in (0, 1):
            top, left = draw.integers(1, 4), 1 + 5 * kind + draw.integers(0, 2)
            place = slice(top, top + draw.integers(2, 4)), slice(left, left + draw.integers(2, 4))
            image[place][..., kind], mask[place] = 220, kind + 1
        mask[0], mask[:, -1] = IGNORED, IGNORED
    images += draw.integers(0, 30, images.shape).astype(np.uint8)
    return images, masks


IMAGES, MASKS = scenes()


def file_of(classes: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    image = Image.fromarray(classes, "P")
    image.putpalette([3 * n % 256 for n in range(768)])
    image.save(buffer, "PNG")
    return buffer.getvalue()


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    values = [
        (n, bytearray(image.tobytes()), bytearray(file_of(mask)), bytearray(mask.tobytes()), mask.tolist())
        for n, (image, mask) in enumerate(zip(IMAGES, MASKS, strict=True))
    ]
    frame = spark.createDataFrame(values, "id int, photo binary, file binary, raw binary, nested array<array<int>>")
    image = "named_struct('origin', '', 'height', 8, 'width', 12, 'nChannels', 1, 'mode', 0, 'data', raw)"
    return frame.selectExpr("*", "flatten(nested) as flat", f"{image} as image").repartition(3).cache()


def segmenter(label: str, own: Network | None = None, **params: Any) -> DeepEstimator:
    settings = {"optimizer": "adam", "stepSize": 0.02, "batchSize": 8, "maxIter": 2, "numWorkers": 2, "seed": 3}
    params = {"loss": EachPosition(ignore_class=IGNORED), **params}
    columns = {"featuresCol": "photo", "labelCol": label}
    return DeepEstimator(network=own or network(), **columns, **{**settings, **params})


def test_masks_of_any_form_train_to_the_same_bits(rows: DataFrame) -> None:
    expected = segmenter("flat").fit(rows)
    for form in ("file", "raw", "nested", "image"):
        same_bits(arrays(segmenter(form).fit(rows)), arrays(expected))


@pytest.mark.parametrize("loss_weight", [None, 0.5])
def test_a_segmenter_learns_from_mirrored_images_and_is_measured_by_its_mean_iou(
    rows: DataFrame, tmp_path: Path, loss_weight: float | None
) -> None:
    loss: Loss = EachPosition(ignore_class=IGNORED)
    if loss_weight is not None:
        loss = Dice(ignore_class=IGNORED, loss_weight=loss_weight)
    varied = network(RandomFlip(), RandomFlip("vertical"))
    model = segmenter("file", varied, loss=loss, maxIter=60).fit(rows)
    model.write().overwrite().save(str(tmp_path / "model"))
    found = DeepModel.load(str(tmp_path / "model"))
    measured = found.evaluate(rows)
    predicted = np.array([row[0].toArray() for row in found.transform(rows).sort("id").select("prediction").collect()])
    logs = special.log_softmax(predicted.reshape(COUNT, HEIGHT, WIDTH, CLASSES), axis=-1)
    chosen, known = logs.argmax(axis=-1), MASKS != IGNORED
    scores = metrics.jaccard_score(MASKS[known], chosen[known], average=None)
    assert [own.iou for own in measured.per_class] == pytest.approx(scores.tolist(), rel=1e-12)
    assert measured.macro.iou == pytest.approx(scores.mean(), rel=1e-12) and scores.mean() > 0.8
    assert measured.rows == known.sum()

    own = -np.take_along_axis(logs, np.where(known, MASKS, 0)[..., None], -1)[..., 0]
    expected = (own * known).sum(axis=(1, 2)) / known.sum(axis=(1, 2))
    if loss_weight is not None:
        p, t = np.exp(logs) * known[..., None], np.arange(CLASSES) == MASKS[..., None]
        coefficients = (2 * (p * t).sum(axis=(1, 2)) + 1) / ((p + t).sum(axis=(1, 2)) + 1)
        expected = 1 - coefficients.mean(axis=-1) + loss_weight * expected
    losses = [row["loss"] for row in found.score_rows(rows).sort("id").collect()]
    np.testing.assert_allclose(losses, expected, rtol=1e-3, atol=1e-6)


SMALLER = Network([*network().layers[:-1], Conv(2, (2, 2))], input_shape=(HEIGHT, WIDTH, 3))


@pytest.mark.parametrize(
    ("label", "own", "message"),
    [
        ("file", network(RandomCrop((HEIGHT, WIDTH))), "shows another part of the image, which the labels"),
        ("file", SMALLER, "must hold images of 7 x 11 pixels for the 7 x 11 positions .* received one of 8 x 12"),
        ("raw", SMALLER, "must hold 77 values a row for the 7 x 11 positions .* received a row of 96"),
    ],
)
def test_what_cannot_be_learned_from_is_refused(rows: DataFrame, label: str, own: Network, message: str) -> None:
    with pytest.raises((ValueError, RuntimeError), match=message):
        segmenter(label, own).fit(rows)


def test_a_mask_with_a_class_too_many_is_named(rows: DataFrame) -> None:
    with pytest.raises((ValueError, RuntimeError), match="must be whole numbers from 0 to 2, .* received 255"):
        segmenter("file", loss=EachPosition()).fit(rows)
