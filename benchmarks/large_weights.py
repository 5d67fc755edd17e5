"""The memory that large weights take on their way through a fit and its model, in multiples of the weights.

    python benchmarks/large_weights.py [--quick] [--json FILE] [--megabytes N]

A network of wide dense layers, 100 MB of float32 (--megabytes up to 550; 8 with --quick), goes through a fit by two
workers of one epoch on 64 rows, the same with a checkpoint, save, load, and transform, in one session of two slots. Of
every kind of process the largest is watched, 50 times a second: the driver's Python, the JVM, Spark's Python workers
("task"), and the processes in which workers train ("training"). All is done by a network of 0.1 MB first: figures are
what the large one takes above that, divided by its weights.

The JVM's heap may grow to 4 GB before its collector must clear it, so what it holds is no measure of what it needs.

Figures: `driver_fit`, `jvm_fit`, `task_fit`, `training_fit`, and so on for checkpoint, save, load and transform.
`training` holds by plain SGD the weights, their gradient, what is exchanged of it, and the results.
"""

from __future__ import annotations

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
from sparkdl.weights import count_weights

INPUTS, ROWS = 64, 64
SMALL = 0.1


def network(megabytes: float) -> Network:
    """Two layers as wide as their weights are to be large, between two narrow ones."""
    width = max(8, math.isqrt(int(megabytes * 1e6 / 4 / 2)))
    return Network([Dense(width), Relu(), Dense(width), Relu(), Dense(width), Dense(1)], input_shape=(INPUTS,))


def measured(rows: DataFrame, megabytes: float, folder: Path) -> dict[str, dict[str, int]]:
    """Peaks by what is done and by role."""
    estimator = DeepRegressor(network=network(megabytes), numWorkers=2, maxIter=1, batchSize=32, stepSize=1e-4)
    path, made = str(folder / "model"), dict[str, Any]()
    done: dict[str, Callable[[], Any]] = {
        "fit": lambda: estimator.fit(rows),
        "checkpoint": lambda: estimator.setCheckpointDir(str(folder / "checkpoints")).fit(rows),
        "save": lambda: made["fit"].save(path),
        "load": lambda: DeepRegressionModel.load(path),
        "transform": lambda: made["load"].transform(rows).select("prediction").collect(),
    }
    found = {}
    for name, act in done.items():
        with peaks() as found[name]:
            made[name] = act()
        if name == "checkpoint":
            del made[name]
    return found


def main() -> None:
    """Measure, print, write."""
    parser = arguments(__doc__)
    parser.add_argument("--megabytes", type=float, metavar="N", help="of weights")
    options = parser.parse_args()
    megabytes = options.megabytes or (8 if options.quick else 100)
    session = local_session("local[2]", "sparkdl-benchmark", **{"spark.driver.memory": "4g"})
    features = np.random.default_rng(0).normal(size=(ROWS, INPUTS))
    table = pa.table({"features": features.tolist(), "label": features.sum(axis=1)})
    rows = session.createDataFrame(table).repartition(2).cache()
    rows.count()
    peaks_of = []
    for size in (SMALL, megabytes):
        with tempfile.TemporaryDirectory() as folder:
            peaks_of.append(measured(rows, size, Path(folder)))
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
