"""Time to an accuracy on Fashion-MNIST, and accuracy after equal time, beside MLlib's MultilayerPerceptronClassifier.

    python benchmarks/mllib.py [--quick] [--json FILE] [--data DIR]

Both train a sigmoid network [784, 100, 10] on the same cached DataFrame of Vectors in one session of two slots: MLlib
by L-BFGS with its defaults, DeepClassifier on 2 workers by Adam in batches of 256, with a step size that rises to 0.04
and falls again (OneCycle), and by L-BFGS, too. The fewest iterations, or epochs, that reach the accuracy on the test
rows are searched for, each count by a fit from scratch; then those fits take turns. Seconds are of whole fits.

The rows are those of Fashion-MNIST in DIR, or in what the environment variable SPARKDL_DATA names (10,000 of the 60,000
with --quick), and the aim is 85 %. Without either they are the packaged 5,000, which are too few for that: then the aim
is 80 %, and "80" stands for "85" in the names. Figures, of medians: `seconds_to_85`, `mllib_seconds_to_85`,
`time_over_mllib` (their ratio), `lbfgs_seconds_to_85` and `lbfgs_time_over_mllib` (ours by L-BFGS),
`seconds_from_bytes` (ours, from a binary column instead of Vectors), `accuracy_at_equal_time` (ours, given MLlib's
time) and `mllib_accuracy_at_equal_time` (MLlib's, given ours), as nearly equal as whole iterations come.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JError
from pyspark.ml import Estimator
from pyspark.ml.classification import MultilayerPerceptronClassifier
from pyspark.ml.evaluation import MulticlassClassificationEvaluator
from pyspark.ml.functions import array_to_vector
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from reporting import arguments, write

from sparkdl import DeepClassifier, Network, datasets
from sparkdl.layers import Dense, Layer, Rescale, Sigmoid
from sparkdl.optimizers import LBFGS, Adam, Optimizer
from sparkdl.schedules import OneCycle
from sparkdl.spark import local_session

INPUTS, HIDDEN, CLASSES = 784, 100, 10
LAYERS = [Dense(HIDDEN), Sigmoid(), Dense(CLASSES)]
LIMIT = 1024  # iterations; who needs more does not learn


class Fit(NamedTuple):
    """How many iterations a fit took, its wall time, and the accuracy that it came to on the test rows."""

    iterations: int
    seconds: float
    accuracy: float


@dataclass(frozen=True, eq=False)  # each is itself alone, and a key
class Contestant:
    """An estimator, the rows it trains on, and the number of iterations that its search starts from."""

    name: str
    estimator: Estimator[Any]
    train: DataFrame
    test: DataFrame
    start: int

    def fit(self, iterations: int) -> Fit:
        """Fit from scratch and test."""
        began = time.perf_counter()
        model = self.estimator.fit(self.train, {self.estimator.getParam("maxIter"): iterations})
        seconds = time.perf_counter() - began
        accuracy = MulticlassClassificationEvaluator(metricName="accuracy").evaluate(model.transform(self.test))
        print(f"  {self.name:<30}{iterations:>6} iterations{seconds:9.2f} s{accuracy:9.4f}", flush=True)
        return Fit(iterations, seconds, accuracy)


def smallest_sufficient(reaches: Callable[[int], bool], start: int, precision: float = 0.0) -> int:
    """The smallest number that `reaches`, if all larger ones do: found by doubling and then by halving what is between.

    Parameters
    ----------
    reaches : callable
        Tells of a number of iterations whether they suffice; asked once for each.
    start : int
        The first to be asked, at least 1.
    precision : float, default 0
        Part of the result by which it may be too large.

    Raises
    ------
    RuntimeError
        If not even `LIMIT` suffice.
    """
    insufficient, sufficient = 0, start
    while not reaches(sufficient):
        if sufficient >= LIMIT:
            raise RuntimeError(f"{sufficient} iterations do not reach the accuracy; train on more rows.")
        insufficient, sufficient = sufficient, min(2 * sufficient, LIMIT)
    while sufficient - insufficient > max(1, precision * sufficient):
        middle = (insufficient + sufficient) // 2
        if reaches(middle):
            sufficient = middle
        else:
            insufficient = middle
    return sufficient


def iterations_in(seconds: float, fits: Iterable[Fit]) -> int:
    """How many iterations take so many seconds, at least 1, by a straight line through fits of different lengths."""
    counts, times = np.transpose([(fit.iterations, fit.seconds) for fit in fits])
    slope, fixed = np.polyfit(counts, times, 1)
    if slope <= 0:  # noise: then at least not more than the longest fit's share
        slope, fixed = times[counts.argmax()] / counts.max(), 0.0
    return max(1, round((seconds - fixed) / slope))


def images(directory: Path | None, train_rows: int) -> pa.Table:
    """Rows of image (binary), label (double) and split; all test rows."""
    table = datasets.sample() if directory is None else datasets.fashion_mnist(directory)
    train, test = (table.filter(pc.field("split") == split) for split in ("train", "test"))
    # filtering leaves empty chunks behind, at which Spark would stop reading
    table = pa.concat_tables([train.slice(0, train_rows), test]).combine_chunks()
    labels = pc.index_in(table["label"], pa.array(datasets.FASHION_CLASSES)).cast(pa.float64())
    return table.set_column(table.schema.get_field_index("label"), "label", labels)


def vectors(table: pa.Table) -> pa.Table:
    """The same rows with pixels from 0 to 1, as lists."""
    pixels = np.frombuffer(b"".join(table["image"].to_pylist()), np.uint8).astype(np.float32) / np.float32(255)
    offsets = np.arange(len(table) + 1, dtype=np.int32) * INPUTS
    return table.append_column("pixels", pa.ListArray.from_arrays(offsets, pixels)).drop_columns("image")


def frames(session: SparkSession, table: pa.Table, column: str) -> tuple[DataFrame, DataFrame]:
    """Cached training and test rows of (features, label), in a partition for each slot."""
    features = F.col(column)
    if column == "pixels":
        features = array_to_vector(features.cast("array<double>"))
    rows = session.createDataFrame(table).select(features.alias("features"), "label", "split")
    parts = [rows.where(rows.split == split).drop("split").repartition(2).cache() for split in ("train", "test")]
    for part in parts:
        part.count()
    return parts[0], parts[1]


def deep_classifier(layers: list[Layer], optimizer: Optimizer, step_size: float) -> DeepClassifier:
    """Ours; every fit sets maxIter."""
    return DeepClassifier(
        network=Network(layers, (INPUTS,)),
        optimizer=optimizer,
        stepSize=step_size,
        batchSize=256,
        numWorkers=2,
        progress="off",
    )


def blas(session: SparkSession) -> str:
    """What multiplies MLlib's matrices."""
    jvm: Any = session._jvm
    try:
        companion = getattr(jvm.org.apache.spark.ml.linalg, "BLAS$")
        name = getattr(companion, "MODULE$").nativeBLAS().getClass().getSimpleName()
    except (Py4JError, TypeError):  # it is not public, and may be elsewhere in another version
        return "a BLAS that it does not name"
    kinds = {"JNIBLAS": "a native library", "VectorBLAS": "Java with its vector instructions"}
    return f"{kinds.get(name, 'plain Java')} (netlib's {name})"


def search(contestant: Contestant, target: float, precision: float) -> list[Fit]:
    """All fits of the search for the fewest iterations that reach the accuracy, those fewest last."""
    tried: list[Fit] = []

    def reaches(iterations: int) -> bool:
        tried.append(contestant.fit(iterations))
        return tried[-1].accuracy >= target

    fewest = smallest_sufficient(reaches, contestant.start, precision)
    return sorted(tried, key=lambda fit: fit.iterations == fewest)


def in_turns(fewest: dict[Contestant, int], repeats: int) -> dict[Contestant, Fit]:
    """A fit of each, with the median of its seconds."""
    rounds = [[contestant.fit(count) for contestant, count in fewest.items()] for _ in range(repeats)]
    return {
        contestant: own[0]._replace(seconds=statistics.median(fit.seconds for fit in own))
        for contestant, own in zip(fewest, zip(*rounds, strict=True), strict=True)
    }


def main() -> None:
    """Search, compare, print, write."""
    parser = arguments(__doc__)
    parser.add_argument("--data", type=Path, metavar="DIR", help="the idx files of Fashion-MNIST")
    options = parser.parse_args()
    directory = options.data or datasets.data_directory()
    percent = 80 if directory is None else 85
    repeats, precision = (1, 0.2) if options.quick else (3, 0.0)
    if directory is None:
        print("No --data DIR and no SPARKDL_DATA: the packaged sample, too few rows to judge the time by.")
    table = images(directory, 10_000 if options.quick else 60_000)

    session = local_session("local[2]", **{"spark.driver.memory": "4g"})
    data = frames(session, vectors(table), "pixels")
    classifier = MultilayerPerceptronClassifier(layers=[INPUTS, HIDDEN, CLASSES], seed=0)
    mllib = Contestant("MLlib", classifier, *data, start=16)
    adam = Adam(schedule=OneCycle())
    ours = Contestant("DeepClassifier", deep_classifier(LAYERS, adam, 0.04), *data, start=1)
    by_lbfgs = Contestant("DeepClassifier, L-BFGS", deep_classifier(LAYERS, LBFGS(), 1.0), *data, start=16)
    with_bytes = deep_classifier([Rescale(1 / 255), *LAYERS], adam, 0.04)
    by_bytes = Contestant("DeepClassifier, bytes", with_bytes, *frames(session, table, "image"), start=1)
    print(f"{data[0].count():,} training and {data[1].count():,} test rows; MLlib multiplies by {blas(session)}.")

    print("Warm-up:")
    for contestant in (mllib, ours, by_lbfgs, by_bytes):
        contestant.fit(2)
    print(f"Search for the fewest iterations to {percent} %:")
    tried = {contestant: search(contestant, percent / 100, precision) for contestant in (mllib, ours, by_lbfgs)}
    print("These in turns:")
    fewest = {contestant: fits[-1].iterations for contestant, fits in tried.items()}
    final = in_turns({**fewest, by_bytes: fewest[ours]}, repeats)
    print("As long as the other, after a long one that tells epochs from what surrounds them:")
    tried[ours].append(ours.fit(8 * fewest[ours]))
    equal = {
        contestant: contestant.fit(iterations_in(final[other].seconds, [*tried[contestant], final[contestant]]))
        for contestant, other in ((mllib, ours), (ours, mllib))
    }

    lines = {f"{contestant.name}, to {percent} %": fit for contestant, fit in final.items()}
    lines |= {f"{contestant.name}, as long as the other": fit for contestant, fit in equal.items()}
    print(f"\n{'medians':<40}{'iterations':>12}{'seconds':>10}{'accuracy':>10}")
    for name, fit in lines.items():
        print(f"{name:<40}{fit.iterations:>12}{fit.seconds:>10.2f}{fit.accuracy:>10.4f}")
    figures = {
        "time_over_mllib": final[ours].seconds / final[mllib].seconds,
        f"seconds_to_{percent}": final[ours].seconds,
        f"mllib_seconds_to_{percent}": final[mllib].seconds,
        "lbfgs_time_over_mllib": final[by_lbfgs].seconds / final[mllib].seconds,
        f"lbfgs_seconds_to_{percent}": final[by_lbfgs].seconds,
        "seconds_from_bytes": final[by_bytes].seconds,
        "accuracy_at_equal_time": equal[ours].accuracy,
        "mllib_accuracy_at_equal_time": equal[mllib].accuracy,
    }
    for name, value in figures.items():
        print(f"{name} {value:.3f}")
    write(options.json, figures)


if __name__ == "__main__":
    main()
