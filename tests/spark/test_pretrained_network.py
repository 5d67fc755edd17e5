"""`make pretrained` writes a network that others start from."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from sparkdl import models

sys.path.insert(0, str(Path(__file__).parents[2] / "notebooks"))

from pretrained import pretrain


def test_its_file_has_what_was_learned(spark: SparkSession, tmp_path: Path) -> None:
    """To tell dark images from bright ones, which its network then does in another program."""
    draw, count = np.random.default_rng(0), 80
    bright = draw.integers(0, 2, count)
    images = (draw.integers(0, 100, (count, 8, 8, 3)) + 150 * bright[:, None, None, None]).astype("uint8")
    table = pa.table(
        {
            "image": pa.array([image.tobytes() for image in images], pa.binary()),
            "label": np.where(bright, "bright", "dark"),
            "split": ["train"] * 60 + ["test"] * 20,
        }
    )
    sizes = {"blocks": (1,), "filters": 4, "preprocess": "imagenet"}
    accuracy = pretrain(spark, models.resnet((8, 8, 3), 2, **sizes), table, tmp_path / "made" / "a.safetensors", 20)
    assert accuracy > 0.9
    network, weights = models.resnet((8, 8, 3), 2, **sizes, weights=tmp_path / "made" / "a.safetensors")
    found = np.asarray(network.forward(weights, images[60:].astype("float32"))).argmax(1)
    assert np.mean(found == 1 - bright[60:]) == accuracy  # "bright" is class 0
