"""What the exchange benchmark steps and learns: networks, exchanges, and a step or a training of one with another."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from contestants import ours, tutorial
from contestants.exchange_model import FREQUENCY
from jax.sharding import Mesh

from sparkdl import Network
from sparkdl.arrays import FEATURES, LABEL
from sparkdl.layers import Conv, Dense, Flatten, MaxPool, Relu, Rescale
from sparkdl.losses import SoftmaxCrossEntropy
from sparkdl.objective import Objective
from sparkdl.optimizers import SGD, Momentum, Optimizer
from sparkdl.shared_programs import kept_by_every_process
from sparkdl.training import AllReduce, Exchange, ParameterAveraging, ShardedAllReduce, Training
from sparkdl.training.data.batches import Rows, Shard
from sparkdl.training.data.placing import abstract_rows, local_workers, place, replicate, spread
from sparkdl.training.exchanges.exchange import (
    WORKERS,
    Agreed,
    Moment,
    Params,
    Sums,
    Update,
    reciprocal,
    ring_bytes,
    scaled,
)
from sparkdl.training.exchanges.threshold import ThresholdSharing
from sparkdl.training.group.collectives import meet
from sparkdl.training.loop import Share, train
from sparkdl.training.step.state import Settings, initial_state
from sparkdl.training.step.step import Program, make_step
from sparkdl.weights import count_weights

LOSS = SoftmaxCrossEntropy()
SEED = 0


@dataclass(frozen=True)
class Silent(Exchange):
    """Nobody talks: what a step takes without an exchange."""

    synchronous = False

    def apply(self, sums: Sums, params: Params, state: Any, update: Update, moment: Moment) -> Agreed:
        params = update(params, scaled(sums.gradient, reciprocal(sums.totals[2])))
        return Agreed(params, state, sums.totals, jnp.float32(0))


class Model(NamedTuple):
    """A network, its rows of both workers in a step, and the step size it learns with."""

    network: Network
    batch: int
    step_size: float

    @property
    def weights(self) -> int:
        """Numbers to agree on."""
        return count_weights(self.network.abstract_weights())

    @property
    def operations(self) -> float:
        """Floating-point operations a row: a multiplication and an addition, of which backward has twice as many."""
        return 6.0 * self.network.multiply_adds()


def _cnn() -> Network:
    hidden = [Flatten(), Dense(256), Relu(), Dense(10)]
    convolution = [Conv(32, (5, 5), padding="same"), Relu(), MaxPool(2)]
    second = [Conv(64, (5, 5), padding="same"), Relu(), MaxPool(2)]
    return Network([Rescale(1 / 255), *convolution, *second, *hidden], input_shape=(28, 28, 1))


def _mlp() -> Network:
    return Network([Rescale(1 / 255), Flatten(), Dense(1024), Relu(), Dense(10)], input_shape=(28, 28, 1))


MODELS: dict[str, Callable[[], Model]] = {
    "cnn": lambda: Model(_cnn(), 256, 0.1),
    "mlp": lambda: Model(_mlp(), 256, 0.1),
    "cifar10": lambda: Model(ours.NETWORK, tutorial.BATCH, tutorial.STEP_SIZE),
}
EXCHANGES: dict[str, tuple[Exchange, Optimizer]] = {
    "silent": (Silent(), SGD()),
    "allreduce": (AllReduce(), SGD()),
    "allreduce_bfloat16": (AllReduce("bfloat16"), SGD()),
    "sharded": (ShardedAllReduce(), SGD()),
    "averaging": (ParameterAveraging(FREQUENCY), SGD()),
    "averaging_momentum": (ParameterAveraging(FREQUENCY), Momentum(0.9)),
    "threshold_bitmap": (ThresholdSharing(form="bitmap"), SGD()),
    "threshold": (ThresholdSharing(), SGD()),
}
PROBES = 20  # all-reduces of a turn
SPARSE_WARM_UP = 4  # further turns, until the threshold has found its level


class Stepper:
    """A case, ready to step over batches that stay on the device.

    Parameters
    ----------
    model, exchange : str
        See `MODELS` and `EXCHANGES`.
    mesh : Mesh
        Of both workers.
    rank : int
    folder : Path
        With the rows of `write_rows`.
    steps : int
        Of a turn, which is an epoch; a multiple of `FREQUENCY`, so that all turns average equally often.
    counted : bool
        Whether to tell what the network's interfaces count, too: where they are the workers' alone.
    """

    def __init__(
        self, model: str, exchange: str, mesh: Mesh, rank: int, folder: Path, steps: int, counted: bool = False
    ) -> None:
        network, batch, step_size = MODELS[model]()
        agree, optimizer = EXCHANGES[exchange]
        rows = batch // mesh.size
        here = rows * local_workers(mesh)
        shard = read_rows(folder, model, "train")
        order = np.random.default_rng((SEED, rank)).integers(0, len(shard), (steps, here))
        self._batches = [place(shard.take(indices, here), mesh) for indices in order]
        self._settings = Settings.of(optimizer, step_size, SEED)
        with kept_by_every_process():
            weights = jax.jit(network.init)(jax.random.key(SEED))
            self._state = replicate(initial_state(network, weights, optimizer, agree, mesh.size), mesh)
            objective = Objective.of(LOSS, None, network.output_names)
            step = make_step(Program(network, objective, optimizer, agree, mesh, steps=steps, total_updates=steps))
            self._step = step.lower(self._state, self._settings, abstract_rows(shard, rows, mesh)).compile()
        self._mesh, self._counted = mesh, counted
        for _ in range(SPARSE_WARM_UP if exchange == "threshold" else 0):
            self.turn()

    def turn(self) -> dict[str, float]:
        """Milliseconds and bytes of a step, from when both workers are there until both are done."""
        meet(self._mesh)
        before, started, sent = counted_bytes(), time.perf_counter(), []
        for batch in self._batches:
            self._state, totals = self._step(self._state, self._settings, batch)
            sent.append(totals)
        jax.block_until_ready(self._state)
        meet(self._mesh)
        seconds = time.perf_counter() - started
        wire = {"wire": (counted_bytes() - before) / len(sent)} if self._counted else {}
        total = sum(float(totals.addressable_data(0)[3]) for totals in sent)
        return {"ms": seconds / len(sent) * 1e3, "bytes": total / len(sent) / self._mesh.size} | wire


class Prober:
    """All-reduces of so many bytes, one after the other in one program: the network's latency and rate alone."""

    def __init__(self, size: int, mesh: Mesh) -> None:
        def repeated(own: jax.Array) -> jax.Array:
            return jax.lax.fori_loop(0, PROBES, lambda _, x: jax.lax.psum(x, WORKERS) * 0.5, own)

        split = jax.sharding.PartitionSpec(WORKERS)
        mapped = jax.shard_map(repeated, mesh=mesh, in_specs=split, out_specs=split, check_vma=False)
        zeros = np.zeros((local_workers(mesh), size // 4), np.float32)
        self._array, self._mesh, self._size = spread(zeros, mesh), mesh, size
        self._program = jax.jit(mapped).lower(self._array).compile()

    def turn(self) -> dict[str, float]:
        """Milliseconds and bytes of one of them."""
        meet(self._mesh)
        started = time.perf_counter()
        jax.block_until_ready(self._program(self._array))
        seconds = (time.perf_counter() - started) / PROBES
        return {"ms": seconds * 1e3, "bytes": ring_bytes(self._size, self._mesh.size)}


def learned(model: str, exchange: str, mesh: Mesh, rank: int, folder: Path, epochs: int) -> dict[str, float]:
    """Train as a fit does; accuracy on test rows, and milliseconds and bytes of a step."""
    network, batch, step_size = MODELS[model]()
    agree, optimizer = EXCHANGES[exchange]
    plan = Training(
        network,
        loss=LOSS,
        optimizer=optimizer,
        exchange=agree,
        step_size=step_size,
        epochs=epochs,
        batch_size=batch,
        seed=SEED,
    )
    shares = []
    for split in ("train", "test"):
        shard = read_rows(folder, model, split)
        bounds = np.linspace(0, len(shard), mesh.size + 1).astype(int)
        part = shard.take(np.arange(*bounds[rank : rank + 2]), int(bounds[rank + 1] - bounds[rank]))
        shares.append(Share([Shard([part])], tuple(np.diff(bounds).tolist()), rank))
    history = train(plan, *shares, mesh).history
    steps = sum(epoch.steps for epoch in history)
    return {
        "accuracy": float(history[-1].validation_metric or 0.0),
        "ms": sum(epoch.seconds for epoch in history) / steps * 1e3,
        "bytes": sum(epoch.bytes for epoch in history) / steps / mesh.size,
    }


def write_rows(
    folder: Path, model: str, split: str, images: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]
) -> None:
    """Write uint8 images (n, height, width, channels) and their classes (n,) for `read_rows`."""
    np.save(folder / f"{model}_{split}_images.npy", images)
    np.save(folder / f"{model}_{split}_labels.npy", labels.astype(np.int32))


def read_rows(folder: Path, model: str, split: str) -> Shard:
    """What `write_rows` wrote."""
    images, labels = (np.load(folder / f"{model}_{split}_{part}.npy", mmap_mode="r") for part in ("images", "labels"))
    return Shard([Rows({FEATURES: images}, {LABEL: labels}, np.ones(len(labels), np.float32))])


def counted_bytes() -> int:
    """What all interfaces of this thread's network, the loopback aside, have sent; 0 where it is not told."""
    try:
        lines = Path("/proc/thread-self/net/dev").read_text().splitlines()
    except OSError:
        return 0
    counters = (line.split(":") for line in lines if ":" in line)
    return sum(int(numbers.split()[8]) for name, numbers in counters if name.strip() != "lo")
