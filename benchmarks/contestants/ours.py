"""sparkdl's side of the CIFAR-10 benchmark without Spark: the network, its initial weights, and the step alone."""

from __future__ import annotations

import time
from pathlib import Path

import jax
import numpy as np
from contestants import tutorial
from contestants.serve import Spec, Taker, Turn
from contestants.tutorial import ALPHA, BATCH, BETA, BIAS, CONTRAST, CROP, DECAY, MAX_DELTA, RADIUS, SEED, SIDE
from jax.sharding import Mesh

from sparkdl import Network
from sparkdl.arrays import FEATURES, LABEL
from sparkdl.initializers import Constant, TruncatedNormal
from sparkdl.layers import (
    Conv,
    Dense,
    Flatten,
    LocalResponseNorm,
    MaxPool,
    RandomBrightness,
    RandomContrast,
    RandomCrop,
    RandomFlip,
    Relu,
    Standardize,
)
from sparkdl.losses import SoftmaxCrossEntropy
from sparkdl.objective import Objective
from sparkdl.optimizers import SGD
from sparkdl.schedules import ExponentialDecay
from sparkdl.training import AllReduce
from sparkdl.training.data.batches import Rows
from sparkdl.training.data.placing import place, replicate
from sparkdl.training.exchanges.exchange import WORKERS
from sparkdl.training.step.state import Settings, initial_state
from sparkdl.training.step.step import Program, make_step
from sparkdl.weights import named_arrays, nested_weights


def conv(name: str, bias: float) -> Conv:
    """One of the two convolutions."""
    kernel = TruncatedNormal(0.05)
    return Conv(64, (5, 5), padding="same", kernel_initializer=kernel, bias_initializer=Constant(bias), name=name)


def dense(name: str, units: int, stddev: float, bias: float, decay: float) -> Dense:
    """One of the three dense layers."""
    kernel = TruncatedNormal(stddev)
    return Dense(units, kernel_initializer=kernel, bias_initializer=Constant(bias), l2=decay, name=name)


AUGMENTATION = [
    RandomCrop((CROP, CROP)),
    RandomFlip(),
    RandomBrightness(MAX_DELTA),
    RandomContrast(*CONTRAST),
    Standardize(),
]
POOL, LRN = MaxPool(3, 2, padding="same"), LocalResponseNorm(RADIUS, BIAS, ALPHA, BETA)
# Layers with weights have names, which thus are the same with and without the augmentation.
LAYERS = [
    conv("conv_1", 0.0),
    Relu(),
    POOL,
    LRN,
    conv("conv_2", 0.1),
    Relu(),
    LRN,
    POOL,
    Flatten(),
    dense("dense_1", 384, 0.04, 0.1, DECAY),
    Relu(),
    dense("dense_2", 192, 0.04, 0.1, DECAY),
    Relu(),
    dense("dense_3", 10, 1 / 192, 0.0, 0.0),
]
NETWORK = Network([*AUGMENTATION, *LAYERS], input_shape=(SIDE, SIDE, 3))
STEP_NETWORK = Network(LAYERS, input_shape=(CROP, CROP, 3))
LOSS = SoftmaxCrossEntropy()
OPTIMIZER = SGD(schedule=ExponentialDecay(every=tutorial.PERIOD, factor=tutorial.FACTOR, staircase=True, unit="epoch"))


def write_weights(folder: Path) -> None:
    """Write NETWORK's initial weights, which are also those of a fit with this seed."""
    init = jax.jit(NETWORK.init, compiler_options={"xla_backend_optimization_level": 0})  # faster, as in a fit
    np.savez(folder / "weights.npz", **dict(named_arrays(init(jax.random.key(SEED)))))


def step(spec: Spec) -> Taker:
    """Training steps on one prepared batch, as a worker takes them."""
    images, labels = tutorial.read_rows(Path(spec.folder), "train", BATCH)
    weights = nested_weights(tutorial.read_weights(Path(spec.folder)))
    mesh = Mesh(np.array(jax.devices()[:1]), (WORKERS,))
    exchange, settings = AllReduce(), Settings.of(OPTIMIZER, tutorial.STEP_SIZE, SEED)
    state = replicate(initial_state(STEP_NETWORK, weights, OPTIMIZER, exchange), mesh)
    batch = place(Rows({FEATURES: tutorial.centred(images)}, {LABEL: labels}, np.ones(BATCH, np.float32)), mesh)
    objective = Objective.of(LOSS, None, STEP_NETWORK.output_names)
    advance = make_step(Program(STEP_NETWORK, objective, OPTIMIZER, exchange, mesh, steps=50_000 // BATCH))

    def take(steps: int) -> Turn:
        nonlocal state
        sums = []
        started = time.perf_counter()
        for _ in range(steps):
            state, totals = advance(state, settings, batch)
            sums.append(totals)
        jax.block_until_ready(sums)
        seconds = time.perf_counter() - started
        return {"seconds": seconds, "steps": steps, "loss": float(np.mean([part[0] / part[2] for part in sums]))}

    take(2)
    return take
