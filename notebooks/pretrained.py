"""A network for others to start from, `make pretrained`: ResNet-18 that has learned CIFAR-10, as torchvision's file.

    python notebooks/pretrained.py [--data DIR] [--output FILE] [--epochs HALF WHOLE] [--workers N]

It takes 20 to 30 minutes on two cores for the 20,000 images of two of CIFAR-10's five training files. Most epochs see
them at half their size, which takes 0.4 of the time. They are made grey, and half of them are inverted, others in each
epoch, so that the network learns shapes, whatever is dark or bright in them. The file has torchvision's names; the
network takes bytes as `preprocess="imagenet"` prepares them. `transfer_learning.ipynb` goes on from it.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.ml.feature import StringIndexer
from pyspark.sql import SparkSession

from sparkdl import DeepClassifier, Network, datasets, models
from sparkdl.interchange import save_weights
from sparkdl.layers import RandomCrop, RandomFlip, RandomInvert, ZeroPad
from sparkdl.optimizers import Momentum
from sparkdl.schedules import OneCycle
from sparkdl.spark import local_session

OUTPUT = Path(__file__).resolve().parents[1] / "build" / "pretrained" / "resnet18.safetensors"
BATCH = 64


def pretrain(
    spark: SparkSession,
    network_of: Callable[[tuple[int, ...]], Network],
    images: pa.Table,
    path: Path,
    epochs: Sequence[int] = (5, 1),
    workers: int = 2,
) -> float:
    """Train a network on grey images, varied at random, and write its weights by torchvision's names.

    Parameters
    ----------
    spark : SparkSession
    network_of : callable
        Gives the network for an `input_shape`, from `models.resnet` or one of its kin, with `preprocess`.
    images : pyarrow.Table
        As `datasets.cifar10` gives them, as high as wide.
    path : Path
        Of the file; its folder is made.
    epochs : sequence of int, default (5, 1)
        How often images of half the size are seen, and then how often whole ones.
    workers : int, default 2

    Returns
    -------
    float
        Accuracy on the grey images of the split "test".
    """
    given: dict[str, Any] = {}
    for shrink, passes, step in zip((2, 1), epochs, (0.1, 0.02), strict=True):
        pixels, prepared = grey(images, shrink)
        rows = spark.createDataFrame(prepared)
        indexer = StringIndexer(inputCol="label", outputCol="class", stringOrderType="alphabetAsc")
        rows = indexer.fit(rows).transform(rows)
        network, edge = network_of((pixels, pixels, 3)), max(1, pixels // 8)
        varied = [
            RandomFlip(name="flipped"),
            RandomInvert(name="inverted"),
            ZeroPad(edge, name="padded"),
            RandomCrop((pixels, pixels), name="cropped"),
        ]
        learning = Network([*varied, *network.layers], network.input_shape)
        model = DeepClassifier(
            network=learning,
            featuresCol="image",
            labelCol="class",
            optimizer=Momentum(0.9, schedule=OneCycle()),
            stepSize=step,
            batchSize=BATCH,
            maxIter=passes,
            numWorkers=workers,
            **given,
        ).fit(rows.where("split = 'train'"))
        given = {"initialModel": model.weights}
    path.parent.mkdir(parents=True, exist_ok=True)
    save_weights(path, model.weights, learning, names="torchvision")
    return float(model.evaluate(rows.where("split = 'test'")).accuracy)


def grey(images: pa.Table, shrink: int) -> tuple[int, pa.Table]:
    """Height and width, and the images in shades of grey."""
    colours = np.frombuffer(b"".join(images["image"].to_pylist()), np.uint8).reshape(len(images), -1, 3)
    whole = math.isqrt(colours.shape[1])
    pixels = whole // shrink
    shades = (colours @ np.array([0.299, 0.587, 0.114], np.float32)).reshape(-1, pixels, shrink, pixels, shrink)
    shades = shades.mean(axis=(2, 4))
    bytes_of = np.repeat(shades.round().astype(np.uint8)[..., None], 3, axis=3)
    column = pa.array([image.tobytes() for image in bytes_of], pa.binary())
    return pixels, images.set_column(images.schema.get_field_index("image"), "image", column)


def main() -> int:
    """Train and write; the process's exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.environ.get("SPARKDL_DATA"), metavar="DIR", help="holds cifar10")
    parser.add_argument("--output", type=Path, default=OUTPUT, metavar="FILE", help="(default: %(default)s)")
    parser.add_argument(
        "--epochs",
        type=int,
        nargs=2,
        default=(5, 1),
        metavar=("HALF", "WHOLE"),
        help="passes over the images at half their size, and then over whole ones (default: 5 1)",
    )
    parser.add_argument("--workers", type=int, default=2, help="tasks that train together (default: %(default)s)")
    options = parser.parse_args()
    if not options.data:
        print("Name the folder of CIFAR-10's binary files with --data or in SPARKDL_DATA.", file=sys.stderr)
        return 2
    spark = local_session(f"local[{options.workers}]", "sparkdl pretrained")
    kind = partial(models.resnet18, classes=len(datasets.CIFAR10_CLASSES), preprocess="imagenet")
    images = datasets.cifar10(options.data)
    accuracy = pretrain(spark, kind, images, options.output, options.epochs, options.workers)
    print(f"{options.output}: ResNet-18 of accuracy {accuracy:.3f} on CIFAR-10's test images, made grey.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
