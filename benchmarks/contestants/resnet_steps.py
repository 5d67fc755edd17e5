"""Training steps that are compiled and ready to take turns: sparkdl's, and JAX's automatic differentiation."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from contestants.resnet_plain import plain_step
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from sparkdl.arrays import FEATURES, LABEL
from sparkdl.losses import SoftmaxCrossEntropy
from sparkdl.network import Network
from sparkdl.objective import Objective
from sparkdl.optimizers import SGD
from sparkdl.training import AllReduce
from sparkdl.training.data.batches import Rows
from sparkdl.training.data.placing import place, replicate
from sparkdl.training.exchanges.exchange import WORKERS
from sparkdl.training.step.state import Settings, initial_state
from sparkdl.training.step.step import Program, make_step

STEP_SIZE = 0.01
WARM_UP = 2  # steps beyond the first, for what is set up lazily


class Case(NamedTuple):
    """What is to be timed.

    Attributes
    ----------
    network : Network
        Of images, ending in scores of classes.
    dtype : str
        "float32" or "bfloat16", to compute in.
    batch : int
        Images of a step, over all devices.
    devices : list of jax.Device
    """

    network: Network
    dtype: str
    batch: int
    devices: list[jax.Device]

    @property
    def mesh(self) -> Mesh:
        """Of the devices, over which a batch is split."""
        return Mesh(np.array(self.devices), (WORKERS,))

    @property
    def multiply_adds(self) -> int:
        """Of a step: each layer's in forward, delta and gradient, but the first has no delta to give to anybody."""
        network = self.network
        assert network.input_shape is not None
        each = zip(network.layers, network.shapes(network.input_shape), strict=False)
        counts = [layer.multiply_adds(shape) for layer, shape in each]
        return self.batch * (3 * sum(counts) - next(filter(None, counts)))


class Contestant(NamedTuple):
    """A training step of a case.

    Attributes
    ----------
    name : str
    run : function of int
        Takes so many steps, one after the other without waiting, and then waits for the last.
    compile_s : float
        Seconds of compiling; of the first steps, where a framework compiles during them.
    memory : int or None
        Bytes on a device at once, where that is known.
    bytes_accessed : float or None
        Bytes that a step's operations read and write on a device, by XLA's own count, where there is one.
    """

    name: str
    run: Callable[[int], None]
    compile_s: float
    memory: int | None
    bytes_accessed: float | None


def rows(case: Case) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Random images (batch, height, width, channels) and classes (batch,): a step's time does not depend on them."""
    generator = np.random.default_rng(0)
    assert case.network.input_shape is not None
    images = generator.normal(size=(case.batch, *case.network.input_shape)).astype(np.float32)
    return images, generator.integers(0, case.network.output_shape()[0], case.batch, np.int32)


def our_contestant(case: Case) -> Contestant:
    """sparkdl's step, which chains the layers' own delta and gradient kernels."""
    optimizer, exchange, mesh = SGD(), AllReduce(), case.mesh
    state = replicate(initial_state(case.network, case.network.init(0), optimizer, exchange), mesh)
    images, classes = rows(case)
    placed = place(Rows({FEATURES: images}, {LABEL: classes}, np.ones(case.batch, np.float32)), mesh)
    rest = (Settings.of(optimizer, STEP_SIZE, 0), placed)
    objective = Objective.of(SoftmaxCrossEntropy(), None, case.network.output_names)
    step = make_step(Program(case.network, objective, optimizer, exchange, mesh, dtype=case.dtype))
    return _contestant("sparkdl", step, lambda compiled, state: compiled(state, *rest)[0], state, rest)


def plain_contestant(case: Case) -> Contestant:
    """`jax.grad` of the plain forward pass."""
    weights = jax.device_put(case.network.init(0), NamedSharding(case.mesh, P()))
    placed = [jax.device_put(part, NamedSharding(case.mesh, P(WORKERS))) for part in rows(case)]
    step = plain_step(case.network, STEP_SIZE, case.dtype)
    return _contestant("JAX autodiff", step, lambda compiled, weights: compiled(weights, *placed), weights, placed)


def _contestant(name: str, step: Any, advance: Callable[[Any, Any], Any], state: Any, placed: Any) -> Contestant:
    started = time.perf_counter()
    compiled = step.lower(state, *placed).compile()
    seconds = time.perf_counter() - started

    def run(steps: int) -> None:
        nonlocal state
        for _ in range(steps):
            state = advance(compiled, state)
        jax.block_until_ready(state)

    run(1 + WARM_UP)
    held = compiled.memory_analysis()
    memory = held.argument_size_in_bytes + held.output_size_in_bytes + held.temp_size_in_bytes
    loops = " while(" in compiled.as_text()  # XLA counts what a loop does once, however often it does it
    bytes_accessed = None if loops else compiled.cost_analysis().get("bytes accessed")
    return Contestant(name, run, seconds, memory - held.alias_size_in_bytes, bytes_accessed)
