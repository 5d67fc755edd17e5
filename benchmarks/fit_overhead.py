"""Where the wall time of `fit` goes, and what training under Spark costs beside a bare jitted loop in one process.

    python benchmarks/fit_overhead.py [--quick] [--json FILE]

Fits of one worker and runs of the loop take turns, so that a machine whose speed drifts hits both alike. The loop is a
process of its own with a worker's environment; it runs the same compiled step over batches of the same size, in memory
and unshuffled, with no prefetching, no progress and no metrics read. Its epochs take turns with those of the same step
as `collectTrainingStats` compiles it, which stamps moments of one step in ten at first and in fifty later. Figures:
`training_over_bare_loop` (ratio of the medians of an epoch's time), `statistics_over_bare_loop` (likewise),
`overhead_s` (median of a fit's time outside of compiling and training), `compile_s`.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from typing import Any

import jax
import numpy as np
import pyarrow.compute as pc
from jax.sharding import Mesh
from reporting import arguments, write

from sparkdl import DeepClassifier, Network, datasets
from sparkdl.arrays import FEATURES, LABEL
from sparkdl.layers import Conv, Dense, Flatten, MaxPool, Relu, Rescale
from sparkdl.losses import SoftmaxCrossEntropy
from sparkdl.objective import Objective
from sparkdl.optimizers import Momentum
from sparkdl.spark import local_session
from sparkdl.spark.tasks.environment import TRAINING_MEMORY, TUNABLES
from sparkdl.training import AllReduce
from sparkdl.training.data.batches import Rows, Steps
from sparkdl.training.data.placing import replicate
from sparkdl.training.exchanges.exchange import WORKERS
from sparkdl.training.records.recorder import Recorder, sampling
from sparkdl.training.step.state import Settings, initial_state
from sparkdl.training.step.step import Program, make_step

NETWORK = Network(
    [
        Rescale(1 / 255),
        Conv(32, (5, 5), padding="same"),
        Relu(),
        MaxPool(2),
        Conv(64, (5, 5), padding="same"),
        Relu(),
        MaxPool(2),
        Flatten(),
        Dense(128),
        Relu(),
        Dense(10),
    ],
    input_shape=(28, 28, 1),
)
LOSS, OPTIMIZER, STEP_SIZE, BATCH = SoftmaxCrossEntropy(), Momentum(0.9), 0.01, 128
PHASES = ("spark", "read", "start", "compile", "training", "return")


def rows() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Images (n, 28, 28, 1) and classes (n,) of the packaged sample's training part."""
    table = datasets.sample()
    table = table.filter(pc.field("split") == "train")
    images = np.frombuffer(b"".join(table["image"].to_pylist()), np.uint8).reshape(-1, 28, 28, 1)
    return images, np.array([datasets.FASHION_CLASSES.index(name) for name in table["label"].to_pylist()], np.int32)


def bare_loop(epochs: int) -> dict[str, list[float]]:
    """Seconds a row of every epoch of a plain loop over a jitted step, and over one that tells its moments."""
    images, labels = rows()
    size = Steps((len(images),), BATCH).rows
    ones, firsts = np.ones(size, np.float32), range(0, len(images) - size + 1, size)
    batches = [Rows({FEATURES: images[i : i + size]}, {LABEL: labels[i : i + size]}, ones) for i in firsts]
    settings = Settings.of(OPTIMIZER, STEP_SIZE, 0)
    mesh, exchange = Mesh(np.array(jax.devices()[:1]), (WORKERS,)), AllReduce()
    clocks = {"plain": None, "statistics": (Recorder().stamp, sampling(epochs * len(batches)))}
    program = Program(NETWORK, Objective.of(LOSS, None, NETWORK.output_names), OPTIMIZER, exchange, mesh)
    steps = {name: make_step(program, clock) for name, clock in clocks.items()}
    states = {name: replicate(initial_state(NETWORK, NETWORK.init(0), OPTIMIZER, exchange), mesh) for name in steps}
    for name, step in steps.items():
        states[name], _ = step(states[name], settings, batches[0])
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for epoch in range(epochs):
        for name in list(steps)[:: 1 if epoch % 2 else -1]:
            step, state = steps[name], states[name]
            started = time.perf_counter()
            for batch in batches:
                state, _ = step(state, settings, batch)
            states[name] = jax.block_until_ready(state)
            # per row, since the loop leaves out the rows that do not fill a batch
            seconds[name].append((time.perf_counter() - started) / (len(batches) * size))
    return seconds


def bare_loop_in_process(epochs: int) -> dict[str, list[float]]:
    """`bare_loop` in a process with one thread and the memory of a worker's."""
    environment = os.environ | {
        "PJRT_NPROC": "1",
        "JAX_PLATFORMS": "cpu",
        TUNABLES: TRAINING_MEMORY,
    }
    command = [sys.executable, __file__, "--bare", str(epochs)]
    return json.loads(subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE).stdout)


def main() -> None:
    """Measure, print, write."""
    parser = arguments(__doc__)
    parser.add_argument("--bare", type=int, metavar="EPOCHS", help="only run the loop, and print its seconds as JSON")
    options = parser.parse_args()
    if options.bare:
        print(json.dumps(bare_loop(options.bare)))
        return
    repeats, epochs = (3, 2) if options.quick else (5, 4)
    session = local_session("local[2]")
    images, labels = rows()
    data = [(image.tobytes(), int(label)) for image, label in zip(images, labels, strict=True)]
    dataset = session.createDataFrame(data, "features binary, label int").cache()
    dataset.count()
    classifier = DeepClassifier(
        network=NETWORK,
        loss=LOSS,
        optimizer=OPTIMIZER,
        stepSize=STEP_SIZE,
        batchSize=BATCH,
        maxIter=epochs,
        progress="off",
    )
    classifier.copy({classifier.maxIter: 0}).fit(dataset)  # the JVM's first job is its slowest
    summaries, walls, loops = [], [], []
    for _ in range(repeats):
        started = time.perf_counter()
        summaries.append(classifier.fit(dataset).summary)
        walls.append(time.perf_counter() - started)
        loops.append(bare_loop_in_process(epochs))

    print(f"fit of {len(images):,} rows, {epochs} epochs, 1 worker; medians of {repeats} fits, seconds")
    phases = {phase: statistics.median(summary.timings[phase] for summary in summaries) for phase in PHASES}
    for phase, seconds in phases.items():
        print(f"  {phase:<10}{seconds:8.2f}")
    print(f"  {'in all':<10}{statistics.median(walls):8.2f}")
    fit_row = statistics.median(epoch.seconds / epoch.rows for summary in summaries for epoch in summary.history)
    loop_row, told_row = (
        statistics.median(second for loop in loops for second in loop[name]) for name in ("plain", "statistics")
    )
    print(f"a step of {BATCH} rows: fit {fit_row * BATCH * 1e3:.2f} ms, bare loop {loop_row * BATCH * 1e3:.2f} ms")
    figures = {
        "training_over_bare_loop": fit_row / loop_row,
        "statistics_over_bare_loop": told_row / loop_row,
        "overhead_s": sum(phases.values()) - phases["compile"] - phases["training"],
        "compile_s": phases["compile"],
    }
    for name, value in figures.items():
        print(f"{name} {value:.3f}")
    write(options.json, figures)


if __name__ == "__main__":
    main()
