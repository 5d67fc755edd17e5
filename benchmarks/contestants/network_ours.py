"""sparkdl's side of the benchmark of residual networks: the step alone, and a fit on Spark."""

from __future__ import annotations

import itertools
import time
from functools import cache
from pathlib import Path

import jax
import numpy as np
from contestants.network_cases import BATCH, SEED, STEP_SIZE, network_of, read_batches, read_weights
from contestants.ours_fit import frame
from contestants.serve import Spec, Taker, Turn
from jax.sharding import Mesh
from pyspark.sql import DataFrame

from sparkdl import DeepClassifier, Network
from sparkdl.arrays import FEATURES, LABEL
from sparkdl.layers import Rescale
from sparkdl.losses import SoftmaxCrossEntropy
from sparkdl.objective import Objective
from sparkdl.optimizers import SGD
from sparkdl.spark import local_session
from sparkdl.training import AllReduce
from sparkdl.training.data.batches import Rows
from sparkdl.training.data.placing import place, replicate
from sparkdl.training.exchanges.exchange import WORKERS
from sparkdl.training.free_memory import Pieces
from sparkdl.training.step.state import Settings, initial_state
from sparkdl.training.step.step import Program, make_step


def step(spec: Spec) -> Taker:
    """Training steps on prepared batches, as a worker takes them; every turn goes on from the last."""
    case, folder = spec.settings["case"], Path(spec.folder)
    network, optimizer, exchange = network_of(case), SGD(), AllReduce()
    mesh = Mesh(np.array(jax.devices()[:1]), (WORKERS,))
    weights = jax.tree.map(jax.numpy.asarray, read_weights(folder, case))
    state = replicate(initial_state(network, weights, optimizer, exchange), mesh)
    placed = [
        place(Rows({FEATURES: images}, {LABEL: labels}, np.ones(BATCH, np.float32)), mesh)
        for images, labels in read_batches(folder, case)
    ]
    settings = Settings.of(optimizer, STEP_SIZE, SEED)
    objective = Objective.of(SoftmaxCrossEntropy(), None, network.output_names)
    started = time.perf_counter()
    program = make_step(Program(network, objective, optimizer, exchange, mesh))
    advance = program.lower(state, settings, placed[0]).compile()
    Pieces().hold()
    compile_s = time.perf_counter() - started
    batches = itertools.cycle(placed)

    def take(steps: int) -> Turn:
        nonlocal state
        sums = []
        started = time.perf_counter()
        for _ in range(steps):
            state, totals = advance(state, settings, next(batches))
            sums.append(totals)
        jax.block_until_ready(sums)
        seconds = time.perf_counter() - started
        losses = [float(part[0] / part[2]) for part in sums]
        return {"seconds": seconds, "steps": steps, "loss": losses[-1], "losses": losses, "compile": compile_s}

    return take


def fit(spec: Spec) -> Taker:
    """Fits of two epochs on Spark, a worker for each core; a turn's seconds are those of the second."""
    workers, case = len(spec.cores), spec.settings["case"]
    network = network_of(case)
    scaled = Network([Rescale(1 / 127.5, -1.0), *network.layers], input_shape=network.input_shape)
    session = local_session(f"local[{workers}]", "sparkdl-benchmark")
    images, labels = (np.load(Path(spec.folder) / f"{kind}.npy") for kind in ("images", "labels"))

    @cache
    def dataset(steps: int) -> DataFrame:
        chosen = np.arange(steps * BATCH) % len(labels)
        return frame(session, images[chosen], labels[chosen])

    def take(steps: int) -> Turn:
        started = time.perf_counter()
        model = DeepClassifier(
            network=scaled,
            stepSize=STEP_SIZE,
            batchSize=BATCH,
            maxIter=2,
            seed=SEED,
            numWorkers=workers,
            deviceType="cpu",
            progress="off",
        ).fit(dataset(steps))
        epoch = model.summary.history[1]
        wall = time.perf_counter() - started
        return {"seconds": epoch.seconds, "steps": steps, "loss": epoch.loss, "wall": wall}

    take(spec.steps)
    return take
