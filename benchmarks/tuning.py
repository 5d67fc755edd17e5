"""Time of a CrossValidator whose fits share their work, beside that of one whose fits are each their own job.

    python benchmarks/tuning.py [--quick] [--json FILE] [--data DIR]

Both cross-validate (2 folds, parallelism 1, accuracy) the same grid of 3 x 4 on 10,000 rows of Fashion-MNIST (2,000
with --quick, or without data) in one session of two slots, in turns. "Separate" is the same estimator with the
`fitMultiple` that Spark gives every estimator: one fit after the other. Two grids: three networks (two of dense layers
and a small convolutional one) by four step sizes, where rows and programs are shared and a dense network's step sizes
train in one program; and three weight decays by four step sizes of the small network, which all train in one.

Figures, of medians: `tuning_over_separate` (the first grid; the aim is 0.5), `settings_over_separate` (the second), and
`avg_metrics_difference` and `settings_metrics_difference`, the largest between the two in avgMetrics.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.ml import Estimator
from pyspark.ml.evaluation import MulticlassClassificationEvaluator
from pyspark.ml.tuning import CrossValidator, ParamGridBuilder
from pyspark.sql import DataFrame
from reporting import arguments, write

from sparkdl import DeepClassifier, Network, datasets
from sparkdl.layers import Conv, Dense, Flatten, MaxPool, Relu, Rescale
from sparkdl.optimizers import Adam
from sparkdl.spark import local_session

SHAPE = (28, 28, 1)
SMALL = Network([Rescale(1 / 255), Flatten(), Dense(32), Relu(), Dense(10)], input_shape=SHAPE)
WIDE = Network([Rescale(1 / 255), Flatten(), Dense(128), Relu(), Dense(10)], input_shape=SHAPE)
CONVOLUTIONAL = Network(
    [Rescale(1 / 255), Conv(8, (5, 5)), Relu(), MaxPool(2), Conv(16, (5, 5)), Relu(), MaxPool(2), Flatten(), Dense(10)],
    input_shape=SHAPE,
)
STEP_SIZES = [3e-4, 1e-3, 3e-3, 1e-2]
EPOCHS, BATCH, FOLDS = 2, 128, 2


class SeparateClassifier(DeepClassifier):
    """A DeepClassifier that fits map after map, as Spark's estimators do."""

    def fitMultiple(self, dataset: DataFrame, paramMaps: Sequence[dict[Any, Any]]) -> Iterator[tuple[int, Any]]:
        return Estimator.fitMultiple(self, dataset, paramMaps)


def validator(kind: type[DeepClassifier], grid: str) -> CrossValidator:
    """One that compares the twelve settings of the grid."""
    estimator = kind(
        network=SMALL, optimizer="adam", maxIter=EPOCHS, batchSize=BATCH, featuresCol="image", numWorkers=2, seed=1
    )
    maps = ParamGridBuilder().addGrid(estimator.stepSize, STEP_SIZES)
    if grid == "networks":
        maps = maps.addGrid(estimator.network, [SMALL, WIDE, CONVOLUTIONAL])
    else:
        maps = maps.addGrid(estimator.optimizer, [Adam(weight_decay=decay) for decay in (0.0, 1e-3, 1e-2)])
    evaluator = MulticlassClassificationEvaluator(metricName="accuracy")
    return CrossValidator(
        estimator=estimator, estimatorParamMaps=maps.build(), evaluator=evaluator, numFolds=FOLDS, seed=3
    )


def images(directory: Path | None) -> pa.Table:
    """Training rows of image (binary) and label (double)."""
    table = datasets.sample() if directory is None else datasets.fashion_mnist(directory)
    table = table.filter(pc.field("split") == "train")
    labels = pc.index_in(table["label"].combine_chunks(), pa.array(datasets.FASHION_CLASSES)).cast(pa.float64())
    return pa.table({"image": table["image"].combine_chunks(), "label": labels})


def main() -> None:
    """Measure, print, write."""
    parser = arguments(__doc__)
    parser.add_argument("--data", type=Path, metavar="DIR", help="the idx files of Fashion-MNIST")
    options = parser.parse_args()
    session = local_session("local[2]", **{"spark.driver.memory": "2g"})
    directory = options.data or datasets.data_directory()
    count = 2_000 if options.quick or directory is None else 10_000
    table = images(directory).slice(0, count).combine_chunks()
    rows = session.createDataFrame(table).repartition(2).cache()
    print(f"{rows.count():,} rows")
    figures = {}
    for grid, prefix in (("networks", "tuning"), ("settings", "settings")):
        seconds: dict[str, list[float]] = {"shared": [], "separate": []}
        metrics = {}
        for turn in range(1 if options.quick else 3):
            names = list(seconds)[:: 1 if turn % 2 else -1]
            for name in names:
                chosen = validator(DeepClassifier if name == "shared" else SeparateClassifier, grid)
                started = time.perf_counter()
                metrics[name] = chosen.fit(rows).avgMetrics
                seconds[name].append(time.perf_counter() - started)
        medians = {name: statistics.median(own) for name, own in seconds.items()}
        difference = float(np.abs(np.subtract(*metrics.values())).max())
        print(f"{grid}: shared {medians['shared']:.1f} s, separate {medians['separate']:.1f} s; avgMetrics")
        for name, values in metrics.items():
            print(f"  {name:<9}{' '.join(f'{value:.4f}' for value in values)}")
        figures[f"{prefix}_over_separate"] = medians["shared"] / medians["separate"]
        figures["avg_metrics_difference" if prefix == "tuning" else "settings_metrics_difference"] = difference
    for name, value in figures.items():
        print(f"{name} {value:.4f}")
    write(options.json, figures)


if __name__ == "__main__":
    main()
