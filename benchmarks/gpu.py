"""A training step of the CIFAR-10 tutorial's network on whatever device JAX has, beside plain autodiff. No Spark in it.

    python benchmarks/gpu.py [--quick] [--json FILE] [--batch N]

Both steps are jitted programs on the same weights and rows, which stay on the device: ours chains the layers' own delta
and gradient kernels, the other takes `jax.grad` of the network's forward pass with XLA's max pooling. They take turns.
Figures: `step_ms`, `autodiff_ms` (medians), `step_over_autodiff`.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh
from reporting import arguments, write

from sparkdl.layers import Conv, Dense, Flatten, LocalResponseNorm, MaxPool, Relu
from sparkdl.losses import SoftmaxCrossEntropy
from sparkdl.network import Network
from sparkdl.optimizers import SGD
from sparkdl.training.batches import Rows
from sparkdl.training.exchange import WORKERS, AllReduce
from sparkdl.training.step import initial_state, make_step, place, replicate

LRN = LocalResponseNorm(radius=4, bias=1.0, alpha=0.001 / 9, beta=0.75)
POOL = MaxPool(3, 2, padding="same")
NETWORK = Network(
    [
        Conv(64, (5, 5), padding="same"),
        Relu(),
        POOL,
        LRN,
        Conv(64, (5, 5), padding="same"),
        Relu(),
        LRN,
        POOL,
        Flatten(),
        Dense(384),
        Relu(),
        Dense(192),
        Relu(),
        Dense(10),
    ],
    input_shape=(24, 24, 3),
)
LOSS, STEP_SIZE = SoftmaxCrossEntropy(), 0.01
STEPS = 20  # between two looks at the clock, so that starting a program costs nothing


def our_step(batch: int) -> Callable[[], None]:
    """A function that takes `STEPS` of our training steps."""
    mesh = Mesh(np.array(jax.devices()[:1]), (WORKERS,))
    transformation = SGD().transformation(STEP_SIZE, STEPS, STEPS)
    exchange = AllReduce()
    state = replicate(initial_state(NETWORK, NETWORK.init(0), transformation, exchange), mesh)
    images, labels = rows(batch)
    placed = place(Rows(images, labels, np.ones(batch, np.float32)), mesh)
    step = make_step(NETWORK, LOSS, transformation, exchange, mesh, seed=0)

    def run() -> None:
        nonlocal state
        for _ in range(STEPS):
            state, totals = step(state, *placed)
        totals.block_until_ready()

    return run


def autodiff_step(batch: int) -> Callable[[], None]:
    """A function that takes `STEPS` steps of SGD by `jax.grad`."""
    images, labels = (jax.device_put(part) for part in rows(batch))
    weights = NETWORK.init(0)

    def forward(weights: Any, x: jax.Array) -> jax.Array:
        for name, layer in zip(NETWORK.names, NETWORK.layers, strict=True):
            x = max_pool(x) if layer is POOL else layer.forward(weights.get(name, {}), x)
        return x

    def loss(weights: Any) -> jax.Array:
        return optax.softmax_cross_entropy_with_integer_labels(forward(weights, images), labels).mean()

    @jax.jit
    def step(weights: Any) -> Any:
        return jax.tree.map(lambda weight, slope: weight - STEP_SIZE * slope, weights, jax.grad(loss)(weights))

    def run() -> None:
        nonlocal weights
        for _ in range(STEPS):
            weights = step(weights)
        jax.block_until_ready(weights)

    return run


def max_pool(x: jax.Array) -> jax.Array:
    """XLA's own, whose gradient is its select-and-scatter."""
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")


def rows(batch: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Random images and classes: a step's time does not depend on them."""
    generator = np.random.default_rng(0)
    return generator.normal(size=(batch, 24, 24, 3)).astype(np.float32), generator.integers(0, 10, batch, np.int32)


def main() -> None:
    """Measure, print, write."""
    parser = arguments(__doc__)
    parser.add_argument("--batch", type=int, default=128, help="rows of a step (default: %(default)s)")
    options = parser.parse_args()
    runs = {"step_ms": our_step(options.batch), "autodiff_ms": autodiff_step(options.batch)}
    times: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        run()  # compiles
    for _ in range(3 if options.quick else 15):
        for name, run in runs.items():
            started = time.perf_counter()
            run()
            times[name].append((time.perf_counter() - started) / STEPS * 1e3)
    figures = {name: statistics.median(values) for name, values in times.items()}
    figures["step_over_autodiff"] = figures["step_ms"] / figures["autodiff_ms"]
    print(f"CIFAR-10 network, batch {options.batch}, {jax.devices()[0].device_kind}, medians")
    for name, value in figures.items():
        print(f"{name} {value:.3f}")
    write(options.json, figures)


if __name__ == "__main__":
    main()
