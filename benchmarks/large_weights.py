"""The memory that large weights take on their way through a fit and its model, in multiples of the weights.

    python benchmarks/large_weights.py [--quick] [--json FILE] [--megabytes N] [--connect]

A network of wide dense layers, 100 MB of float32 (--megabytes up to 550; 8 with --quick), goes through a fit by two
workers of one epoch on 64 rows, the same with a checkpoint, save, load, transform, and a stream's transform, in one
session of two slots, classic or of Spark Connect. Of every kind of process the largest is watched, 50 times a second:
the driver's Python, the JVM, Spark's Python workers ("task"), and the processes in which workers train ("training").
All is done by a network of 0.1 MB first: figures are what the large one takes above that, divided by its weights. Pages
of files that are mapped do not count, as the system takes them back when it likes. What is not needed for the next is
let go before: save has the model of the fit, transform that of load.

The JVM's heap is held to 500 MB and once the weights. What it takes of that is up to its collector, so the
JVM's figures are an upper bound of what it needs.

Figures: `driver_fit`, `jvm_fit`, `task_fit`, `training_fit`, and so on for checkpoint, save, load, transform, stream.
`training` holds by plain SGD the weights, a copy of them after the last good epoch, and the gradient.
"""

from __future__ import annotations

import gc
import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from contestants.resident import ROLES, peaks
from pyspark.sql import DataFrame
from reporting import arguments, write

from sparkdl import DeepRegressionModel, DeepRegressor, Network
from sparkdl.layers import Dense, Relu
from sparkdl.spark import local_session
from sparkdl.spark.driver.remote import CARRIED_BYTES, over_connect
from sparkdl.weights import count_weights

INPUTS, ROWS = 64, 64
SMALL = 0.1
HEAP_MEGABYTES = 500  # with which Spark starts


def network(megabytes: float) -> Network:
    """Two layers as wide as their weights are to be large, between two narrow ones."""
    width = max(8, math.isqrt(int(megabytes * 1e6 / 4 / 2)))
    return Network([Dense(width), Relu(), Dense(width), Relu(), Dense(width), Dense(1)], input_shape=(INPUTS,))


def measured(rows: DataFrame, files: Path, megabytes: float, folder: Path) -> dict[str, dict[str, int]]:
    """Peaks by what is done and by role."""
    estimator = DeepRegressor(network=network(megabytes), numWorkers=2, maxIter=1, batchSize=32, stepSize=1e-4)
    path, held = str(folder / "model"), list[DeepRegressionModel]()

    def checkpoint() -> None:
        estimator.copy().setCheckpointDir(str(folder / "checkpoints")).fit(rows)

    def save() -> None:
        held.pop().save(path)

    def stream() -> None:
        source = rows.sparkSession.readStream.schema(rows.schema).parquet(str(files))
        scored = held.pop().transform(source).select("prediction").writeStream.format("noop")
        scored.option("checkpointLocation", str(folder / "stream")).trigger(
            availableNow=True
        ).start().awaitTermination()

    done: dict[str, Callable[[], Any]] = {
        "checkpoint": checkpoint,
        "fit": lambda: held.append(estimator.fit(rows)),
        "save": save,
        "load": lambda: held.append(DeepRegressionModel.load(path)),
        "transform": lambda: held[0].transform(rows).select("prediction").collect(),
        "stream": stream,
    }
    if over_connect(rows.sparkSession) and 1e6 * megabytes > CARRIED_BYTES:
        del done["stream"]  # which sparkdl refuses
    found = {}
    for name, act in done.items():
        gc.collect()
        with peaks() as found[name]:
            act()
    return found


def main() -> None:
    """Measure, print, write."""
    parser = arguments(__doc__)
    parser.add_argument("--megabytes", type=float, metavar="N", help="of weights")
    parser.add_argument("--connect", action="store_true", help="over Spark Connect")
    options = parser.parse_args()
    megabytes = options.megabytes or (8 if options.quick else 100)
    heap = f"{HEAP_MEGABYTES + math.ceil(megabytes)}m"
    session = local_session("local[2]", "sparkdl-benchmark", connect=options.connect, **{"spark.driver.memory": heap})
    features = np.random.default_rng(0).normal(size=(ROWS, INPUTS))
    table = pa.table({"features": features.tolist(), "label": features.sum(axis=1)})
    peaks_of = []
    with tempfile.TemporaryDirectory() as folder:
        files = Path(folder, "rows")
        session.createDataFrame(table).repartition(2).write.parquet(str(files))
        rows = session.read.parquet(str(files))
        for size in (SMALL, megabytes):
            peaks_of.append(measured(rows, files, size, Path(folder, f"{size}")))
    session.stop()
    small, large = peaks_of
    weights = 4 * count_weights(network(megabytes).abstract_weights())
    print(
        f"\n{weights / 1e6:.0f} MB of weights; in multiples of them what peaks are above a small network's (and in MB)"
    )
    print(f"{'':12}" + "".join(f"{role:>18}" for role in ROLES))
    figures = {}
    for name, held in large.items():
        times = {role: max(0, held[role] - small[name][role]) / weights for role in ROLES}
        figures |= {f"{role.lower()}_{name}": value for role, value in times.items()}
        print(f"{name:12}" + "".join(f"{times[role]:9.2f} {f'({held[role] / 1e6:.0f})':>8}" for role in ROLES))
    write(options.json, figures)


if __name__ == "__main__":
    main()
