"""`make pretrained` writes a network that others start from."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from sparkdl import models

sys.path.insert(0, str(Path(__file__).parents[2] / "notebooks"))

from pretrained import grey, pretrain


def test_its_file_has_what_was_learned(spark: SparkSession, tmp_path: Path) -> None:
    """To tell stripes that stand from stripes that lie, which its network then does in another program."""
    draw, count = np.random.default_rng(0), 80
    standing = draw.integers(0, 2, count)
    stripes = np.broadcast_to(np.repeat([0, 150, 0, 150], 4), (16, 16))
    shades = np.where(standing[:, None, None], stripes, stripes.T)[..., None] + draw.integers(0, 50, (count, 16, 16, 1))
    images = np.repeat(shades.astype("uint8"), 3, axis=3)
    table = pa.table(
        {
            "image": pa.array([image.tobytes() for image in images], pa.binary()),
            "label": np.where(standing, "standing", "lying"),
            "split": ["train"] * 60 + ["test"] * 20,
        }
    )
    kind = partial(models.resnet, classes=2, blocks=(1,), filters=4, preprocess="imagenet")
    file = tmp_path / "made" / "a.safetensors"
    accuracy = pretrain(spark, kind, table, file, (10, 10))
    assert accuracy > 0.9
    network, weights = kind((16, 16, 3), weights=file)
    found = np.asarray(network.forward(weights, images[60:].astype("float32"))).argmax(1)
    assert np.mean(found == standing[60:]) == accuracy  # "standing" is class 1


def test_images_are_made_grey_and_small() -> None:
    """Luminance by ITU-R BT.601, and means of squares of pixels."""
    images = np.random.default_rng(0).integers(0, 256, (5, 4, 4, 3)).astype("uint8")
    table = pa.table(
        {
            "image": pa.array([image.tobytes() for image in images], pa.binary()),
            "label": list("abcde"),
            "split": ["train", "train", "test", "test", "train"],
        }
    )
    pixels, made = grey(table, 2)
    assert pixels == 2
    assert made.drop_columns("image") == table.drop_columns("image")
    found = np.frombuffer(b"".join(made["image"].to_pylist()), np.uint8).reshape(5, 2, 2, 3)
    red, green, blue = images.astype("float64").transpose(3, 0, 1, 2)
    shades = 0.299 * red + 0.587 * green + 0.114 * blue
    small = (shades[:, ::2, ::2] + shades[:, ::2, 1::2] + shades[:, 1::2, ::2] + shades[:, 1::2, 1::2]) / 4
    np.testing.assert_allclose(found, np.repeat(small[..., None], 3, axis=3), atol=0.51)
