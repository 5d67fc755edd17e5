"""The main job, `python -m sparkdl.quickstart`: a CNN trained, tested, saved and reloaded in a Spark ML Pipeline."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.evaluation import MulticlassClassificationEvaluator
from pyspark.ml.feature import StringIndexer
from pyspark.sql import DataFrame, SparkSession

from sparkdl import DeepClassifier, Network, datasets
from sparkdl.layers import Conv, Dense, Dropout, Flatten, MaxPool, Relu, Rescale
from sparkdl.optimizers import Adam
from sparkdl.schedules import OneCycle
from sparkdl.spark import local_session
from sparkdl.spark.driver.old_spark import from_arrow, to_arrow


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the whole job; the process's exit code."""
    options = parsed(arguments)
    began = time.perf_counter()
    try:
        run(options)
    except (FileNotFoundError, ValueError) as error:
        print(f"quickstart: {error}", file=sys.stderr)
        return 1
    print(f"Done in {time.perf_counter() - began:.0f} s.")
    return 0


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line's options."""
    parser = argparse.ArgumentParser("python -m sparkdl.quickstart", description=__doc__)
    parser.add_argument("--data", type=Path, metavar="DIR", help="the idx files of Fashion-MNIST (default: a sample)")
    parser.add_argument("--master", default="local[2]", help="Spark's master (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=2, help="tasks that train together (default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=8, help="passes over the data (default: %(default)s)")
    parser.add_argument("--batch-size", type=int, default=64, help="images of a step (default: %(default)s)")
    parser.add_argument("--output", type=Path, default=Path("quickstart-output"), metavar="DIR", help="for the results")
    parser.add_argument("--seed", type=int, default=0, help="of weights and order (default: %(default)s)")
    return parser.parse_args(arguments)


def run(options: argparse.Namespace) -> None:
    """Train, test, save, load, compare, draw."""
    spark = local_session(options.master, "sparkdl quickstart")
    train, test = images(spark, options.data)
    classifier = DeepClassifier(
        network=lenet(),
        featuresCol="image",
        labelCol="class",
        optimizer=Adam(schedule=OneCycle()),
        stepSize=0.003,
        maxIter=options.epochs,
        batchSize=options.batch_size,
        numWorkers=options.workers,
        seed=options.seed,
        progress="on",
    )
    print(classifier.getNetwork().summary())

    indexer = StringIndexer(inputCol="label", outputCol="class", stringOrderType="alphabetAsc")
    model = Pipeline(stages=[indexer, classifier]).fit(train)
    names, summary = model.stages[0].labels, model.stages[1].summary  # type: ignore[attr-defined]
    print(summary)

    scored = model.transform(test).cache()
    accuracy = MulticlassClassificationEvaluator(labelCol="class", metricName="accuracy").evaluate(scored)
    print(f"Test accuracy: {accuracy:.4f} on {scored.count():,} images.")

    saved = str(options.output.resolve() / "model")
    model.write().overwrite().save(saved)
    check_equal(scored, PipelineModel.load(saved).transform(test))
    print(f"Saved the pipeline to {options.output / 'model'}; loaded again, it gives the same predictions.")
    draw(options.output / "report.png", summary.objectiveHistory, names, scored)


def lenet() -> Network:
    """Two convolutions and two dense layers over images of 28 x 28 bytes, ending in a raw score for each class."""
    layers = [
        Rescale(1 / 255),
        Conv(32, (3, 3)),
        Relu(),
        MaxPool(2),
        Conv(64, (3, 3)),
        Relu(),
        MaxPool(2),
        Flatten(),
        Dense(128),
        Relu(),
        Dropout(0.4),
        Dense(10),
    ]
    return Network(layers, input_shape=(28, 28, 1))


def images(spark: SparkSession, directory: Path | None) -> tuple[DataFrame, DataFrame]:
    """Training and test rows of (image: binary, label: string); those of the packaged sample if directory is None."""
    table = datasets.sample() if directory is None else datasets.fashion_mnist(directory)
    rows = from_arrow(spark, table)
    train, test = (rows.where(rows.split == split).drop("split") for split in ("train", "test"))
    return train, test


def check_equal(scored: DataFrame, again: DataFrame) -> None:
    """RuntimeError unless two models gave the same predictions and probabilities, bit for bit."""
    first, second = (frame.select("prediction", "probability").collect() for frame in (scored, again))
    if first != second:
        raise RuntimeError("The loaded model predicts otherwise than the saved one; please report this.")


def draw(path: Path, losses: list[float], names: list[str], scored: DataFrame) -> None:
    """Write a picture of the training and its outcome, if matplotlib is there."""
    try:
        from sparkdl.report import classifier_report
    except ImportError:
        print("No picture: matplotlib is missing; pip install 'sparkdl-jax[plot]' brings it.")
        return
    rows = to_arrow(scored.select("image", "class", "prediction"))
    pixels = np.frombuffer(b"".join(rows["image"].to_pylist()), np.uint8)
    truth, predicted = (rows[column].to_numpy().astype(int) for column in ("class", "prediction"))
    classifier_report(path, losses, pixels.reshape(-1, 28, 28), truth, predicted, names)
    print(f"Drew loss, confusion matrix and some images to {path}.")


if __name__ == "__main__":
    sys.exit(main())
