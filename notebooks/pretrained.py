"""A network for others to start from, `make pretrained`: ResNet-18 that has learned CIFAR-10, as torchvision's file.

    python notebooks/pretrained.py [--data DIR] [--output FILE] [--epochs N] [--workers N]

It takes some 20 minutes on two cores for the 20,000 images and 4 epochs that the defaults and two of CIFAR-10's five
training files come to. The file has torchvision's names; the network takes bytes as `preprocess="imagenet"` prepares
them. `transfer_learning.ipynb` goes on from it.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from pyspark.ml.feature import StringIndexer
from pyspark.sql import SparkSession

from sparkdl import DeepClassifier, Network, datasets, models
from sparkdl.interchange import save_weights
from sparkdl.layers import RandomCrop, RandomFlip, ZeroPad
from sparkdl.optimizers import Momentum
from sparkdl.schedules import OneCycle
from sparkdl.spark import local_session

OUTPUT = Path(__file__).resolve().parents[1] / "build" / "pretrained" / "resnet18.safetensors"
BATCH = 64


def pretrain(spark: SparkSession, network: Network, images: Any, path: Path, epochs: int, workers: int = 2) -> float:
    """Train the network on the images, shifted and flipped at random, and write its weights by torchvision's names.

    Parameters
    ----------
    spark : SparkSession
    network : Network
        From `models.resnet` or one of its kin, with `preprocess`.
    images : pyarrow.Table
        As `datasets.cifar10` gives them, with images of the network's height and width.
    path : Path
        Of the file; its folder is made.
    epochs, workers : int

    Returns
    -------
    float
        Accuracy on the images of the split "test".
    """
    height, width, _ = network.input_shape
    varied = [RandomFlip(name="flipped"), ZeroPad(4, name="padded"), RandomCrop((height, width), name="cropped")]
    learning = Network([*varied, *network.layers], network.input_shape)
    rows = spark.createDataFrame(images)
    rows = StringIndexer(inputCol="label", outputCol="class", stringOrderType="alphabetAsc").fit(rows).transform(rows)
    classifier = DeepClassifier(
        network=learning,
        featuresCol="image",
        labelCol="class",
        optimizer=Momentum(0.9, schedule=OneCycle()),
        stepSize=0.1,
        batchSize=BATCH,
        maxIter=epochs,
        numWorkers=workers,
    )
    model = classifier.fit(rows.where("split = 'train'"))
    path.parent.mkdir(parents=True, exist_ok=True)
    save_weights(path, model.weights, learning, names="torchvision")
    return float(model.evaluate(rows.where("split = 'test'")).accuracy)


def main() -> int:
    """Train and write; the process's exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.environ.get("SPARKDL_DATA"), metavar="DIR", help="holds cifar10")
    parser.add_argument("--output", type=Path, default=OUTPUT, metavar="FILE", help="(default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=4, help="passes over the images (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=2, help="tasks that train together (default: %(default)s)")
    options = parser.parse_args()
    if not options.data:
        print("Name the folder of CIFAR-10's binary files with --data or in SPARKDL_DATA.", file=sys.stderr)
        return 2
    spark = local_session(f"local[{options.workers}]", "sparkdl pretrained")
    network = models.resnet18((32, 32, 3), classes=len(datasets.CIFAR10_CLASSES), preprocess="imagenet")
    images = datasets.cifar10(options.data)
    accuracy = pretrain(spark, network, images, options.output, options.epochs, options.workers)
    print(f"{options.output}: ResNet-18 of accuracy {accuracy:.3f} on CIFAR-10's test images.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
