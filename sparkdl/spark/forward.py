"""A network's forward pass in a Python worker of Spark: compiled once a network, with one copy of a model's weights."""

from __future__ import annotations

import io
import json
import math
import os
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from pyspark import TaskContext

from sparkdl.classes import install
from sparkdl.decoding.layout import Array, Layout
from sparkdl.dtypes import kept_dtype
from sparkdl.layers.base import Weights
from sparkdl.losses import Loss
from sparkdl.network import Network, named_arrays, nested_weights
from sparkdl.spark.local_disk import programs_directory

KEPT_MODELS, KEPT_PROGRAMS = 3, 16  # in a Python worker at a time
LAYER_BYTES = 2 << 20  # of what a layer of a batch reads and writes on a CPU: a core's L2 cache
LEAST_ROWS = 8


@dataclass(frozen=True)
class Scoring:
    """What a worker needs to score rows; plain values.

    Attributes
    ----------
    key : str
        Names the weights among those a Python worker keeps.
    network, loss : dict
        As JSON.
    batch : int
        The most rows of a batch; shorter ones are padded, since every new shape would compile anew.
    layout : Layout
        Of the features.
    dtype, device : str
        computeDtype and deviceType.
    activations : dict of str
        Output column by path of a layer.
    label, loss_column : str
        The label column, for messages, and the output column of the rows' losses; "" without those.
    strict : bool
        Whether to refuse rows that cannot be used, rather than to give null for them.
    classes : bytes
        Of the user's own layers and losses, as `shipping.py` packs them.
    """

    key: str
    network: dict[str, Any]
    loss: dict[str, Any]
    batch: int
    layout: Layout
    dtype: str
    device: str
    activations: dict[str, str] = field(default_factory=dict)
    label: str = ""
    loss_column: str = ""
    strict: bool = True
    classes: bytes = b""

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise ValueError(f"batchSize must be at least 1, received {self.batch}.")

    def specs(self) -> tuple[Network, Loss]:
        """The network and the loss, on a worker."""
        install(self.classes)
        return Network.from_json(self.network), Loss.from_json(self.loss)


class Scores(NamedTuple):
    """What the network and its loss make of n rows.

    Attributes
    ----------
    outputs, predictions : array (n, outputs)
    losses : array (n,) or None
        None where no labels were given.
    activations : dict of arrays (n, values)
        By path of a layer.
    """

    outputs: Any
    predictions: Any
    losses: Any
    activations: dict[str, Any]


def packed(weights: Weights) -> bytes:
    """Weights as the bytes of an npz archive."""
    buffer = io.BytesIO()
    np.savez(buffer, **dict(named_arrays(weights)))
    return buffer.getvalue()


def unpacked(data: bytes) -> Weights:
    """The weights that `packed` packed."""
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        return nested_weights(dict(arrays))


Program = Callable[[Weights, Any, Any], Scores]


class Forward(NamedTuple):
    """A compiled forward pass.

    Attributes
    ----------
    run : callable
        Scores of (rows, labels or None), as many as `rows`.
    rows : int
        Of a batch.
    """

    run: Callable[[Array, Array | None], Scores]
    rows: int


_programs: OrderedDict[tuple[str, bytes], Program] = OrderedDict()
_models: OrderedDict[tuple[str, int, str, bytes], Forward] = OrderedDict()


def loaded(scoring: Scoring, weights: Callable[[], bytes]) -> Forward:
    """The compiled forward pass with its weights on the device, kept for the next task of this Python worker."""
    named = json.dumps([scoring.network, scoring.loss, scoring.dtype, list(scoring.activations)])
    program = named, scoring.classes  # a class may have been defined anew, or be that of another driver
    key = scoring.key, scoring.batch, *program
    if key not in _models:
        _prepare_device(scoring.device)
        with jax.enable_x64(scoring.dtype == "float64"):
            cast = jax.tree.map(lambda array: jnp.asarray(array, scoring.dtype), unpacked(weights()))
        if program not in _programs:
            _keep(_programs, program, _program(scoring), KEPT_PROGRAMS)
        _programs.move_to_end(program)
        rows = batch_rows(scoring.specs()[0], scoring.batch, scoring.dtype, jax.default_backend())
        _keep(_models, key, Forward(partial(_programs[program], cast), rows), KEPT_MODELS)
    _models.move_to_end(key)
    return _models[key]


def _keep(kept: OrderedDict[Any, Any], key: Any, value: Any, most: int) -> None:
    kept[key] = value
    if len(kept) > most:
        kept.popitem(last=False)


def _program(scoring: Scoring) -> Program:
    """Compiles once for all models of a network, for every number of rows in a batch."""
    network, loss = scoring.specs()
    kept, paths = kept_dtype(scoring.dtype), list(scoring.activations)

    @jax.jit
    def scores(weights: Weights, x: jax.Array, labels: jax.Array | None) -> Scores:
        outputs, found = network.activations(weights, x.astype(scoring.dtype), paths)
        outputs = outputs.astype(kept)
        losses = None if labels is None else loss.losses(outputs, loss.targets(outputs, labels))
        activations = {path: values.astype(kept).reshape(len(x), -1) for path, values in found.items()}
        flat, predictions = (values.reshape(len(x), -1) for values in (outputs, loss.predict(outputs)))
        return Scores(flat, predictions, losses, activations)

    return scores


def _prepare_device(device: str) -> None:
    """Choose threads, platform and a folder for compiled programs; in effect only before JAX's first use here."""
    context = TaskContext.get()
    if context is None:
        return
    os.environ.setdefault("PJRT_NPROC", str(context.cpus()))
    if device == "cpu" or (device == "auto" and "gpu" not in context.resources()):
        jax.config.update("jax_platforms", "cpu")
    # Spark ends workers that wait for a minute; the next one finds its programs on Spark's disk, beside those of fits.
    folder = programs_directory()
    if folder and getattr(jax.config, "jax_compilation_cache_dir", None) is None:
        jax.config.update("jax_compilation_cache_dir", folder)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


def batch_rows(network: Network, most: int, dtype: str, platform: str) -> int:
    """Rows of a batch: `most` or, on a CPU, so few that what a layer reads and writes stays in the cache.

    Against batches of 128, a CNN of 16 filters on (28, 28, 1) takes 0.8 of the time in batches of 32, and one of 32 and
    64 filters 0.72 in batches of 16.
    """
    if platform != "cpu":
        return most
    assert network.input_shape is not None
    fitting = LAYER_BYTES // (_largest(network, network.input_shape) * jnp.dtype(dtype).itemsize)
    return min(most, max(LEAST_ROWS, 1 << max(0, fitting.bit_length() - 1)))


def _largest(network: Network, input_shape: tuple[int, ...]) -> int:
    """The most numbers that one of the layers reads and writes for a row."""
    most = 1
    shapes = network.shapes(input_shape)
    for layer, read, written in zip(network.layers, shapes, shapes[1:], strict=False):
        here = _largest(layer, read) if isinstance(layer, Network) else math.prod(read) + math.prod(written)
        most = max(most, here)
    return most


def in_batches(rows: Array, labels: Array | None, forward: Forward) -> Iterator[Scores]:
    """Scores batch by batch, the next one running while the last is read."""
    running: deque[tuple[int, Scores]] = deque()
    size = forward.rows
    for first in range(0, len(rows), size):
        count = min(size, len(rows) - first)
        batch, targets = (
            None if part is None else _padded(part[first : first + size], size) for part in (rows, labels)
        )
        assert batch is not None
        running.append((count, forward.run(batch, targets)))
        if len(running) > 1:
            yield _read(*running.popleft())
    while running:
        yield _read(*running.popleft())


def _padded(part: Array, size: int) -> Array:
    short = size - len(part)
    return np.concatenate([part, np.zeros((short, *part.shape[1:]), part.dtype)]) if short else part


def _read(count: int, scores: Scores) -> Scores:
    return jax.tree.map(lambda array: np.asarray(array)[:count], scores)
