"""A network's forward pass over rows to be scored: compiled once a network, with one copy of a model's weights."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from sparkdl.arrays import STEPS, Parts, kept_dtype, size_of
from sparkdl.classes import install
from sparkdl.compiler import OPTIONS
from sparkdl.decoding.layout import Layout
from sparkdl.decoding.ragged_rows import RaggedRows, rounded_steps
from sparkdl.layers.base import Weights, map_shapes
from sparkdl.layers.ragged import Ragged, cast
from sparkdl.network import BaseNetwork
from sparkdl.objective import Objective
from sparkdl.shared_programs import compiling_once, shares_programs
from sparkdl.specs import is_integer
from sparkdl.weights import weights_from_bytes

KEPT_MODELS, KEPT_PROGRAMS = 3, 16  # in a process at a time
# On a CPU:
LAYER_BYTES = 4 << 20  # of what a layer reads and writes for the rows of a part
LEAST_ROWS = 8
CALL_BYTES, CALL_ROWS = 4 << 20, 1024  # of what a call takes and gives, and of its rows; it costs some 20 microseconds


@dataclass(frozen=True)
class Scoring:
    """What a worker needs to score rows; plain values.

    Attributes
    ----------
    key : str
        Names the weights among those a Python worker keeps.
    network, objective : dict
        As JSON.
    batch : int
        The most rows that go through the network at a time; fewer are padded, as every new shape would compile anew.
    layouts : dict of Layout
        Of the features, by part.
    dtype, device : str
        computeDtype and deviceType.
    activations : dict of str
        Output column by path of a layer.
    by_step : tuple of str
        The outputs, and the paths of `activations`, that are something for each step of rows of any length.
    labels : dict of str
        The label column of every output, for messages; {} without those.
    loss_column : str
        The column of the rows' losses, if these are wanted. Of several outputs there is one more for each.
    strict : bool
        Whether to refuse rows that cannot be used, rather than to give null for them.
    classes : bytes
        Of the user's own layers and losses, as `shipping.py` packs them.
    """

    key: str
    network: dict[str, Any]
    objective: dict[str, Any]
    batch: int
    layouts: dict[str, Layout]
    dtype: str
    device: str
    activations: dict[str, str] = field(default_factory=dict)
    by_step: tuple[str, ...] = ()
    labels: dict[str, str] = field(default_factory=dict)
    loss_column: str = ""
    strict: bool = True
    classes: bytes = b""

    def __post_init__(self) -> None:
        if not is_integer(self.batch, 1):
            raise ValueError(f"batchSize must be an integer of at least 1, received {self.batch!r}.")

    @property
    def columns(self) -> tuple[str, ...]:
        """The user's names of the columns of features."""
        return tuple(name for layout in self.layouts.values() for name in layout.names)

    @property
    def row_bytes(self) -> int:
        """Of a row's decoded features, if these are no pixels."""
        return sum(layout.row_bytes for layout in self.layouts.values())

    @property
    def loss_columns(self) -> dict[str, str]:
        """The columns of the rows' losses by output, and of several that of their weighted sum by ""."""
        if not self.loss_column:
            return {}
        if len(self.labels) == 1:
            return dict.fromkeys(self.labels, self.loss_column)
        return {"": self.loss_column} | {name: f"{self.loss_column}_{name}" for name in self.labels}

    def specs(self) -> tuple[BaseNetwork, Objective]:
        """The network and what it is trained to, on a worker."""
        install(self.classes)
        return BaseNetwork.from_json(self.network), Objective.from_json(self.objective)


class Scores(NamedTuple):
    """What the network and its losses make of n rows; RaggedRows, Ragged on the device, of what is for each step.

    Attributes
    ----------
    outputs, predictions : dict of arrays (n, numbers)
        By output.
    losses : dict of arrays (n,) or None
        By output, as of `Objective.losses_of_rows`; None where no labels were given.
    activations : dict of arrays (n, values)
        By path of a layer.
    """

    outputs: Parts
    predictions: Parts
    losses: Any
    activations: dict[str, Any]


Program = Callable[..., Scores]


class Forward(NamedTuple):
    """A compiled forward pass.

    Attributes
    ----------
    run : callable
        Scores of (features, labels or None, parts): of that number of parts of the rows; the scores of others are
        zeros. `part` may be given as a keyword.
    rows : int
        Of a call.
    part : int
        Rows that go through the network at a time, a divisor of `rows`.
    """

    run: Callable[..., Scores]
    rows: int
    part: int


_programs: OrderedDict[tuple[str, bytes, str], Program] = OrderedDict()
_models: OrderedDict[tuple[str, int, str, bytes, str], Forward] = OrderedDict()
_changing = threading.Lock()  # guards the programs


def loaded(scoring: Scoring, weights: Callable[[], bytes]) -> Forward:
    """The compiled forward pass with its weights on JAX's device, kept for the next rows of this process."""
    key = scoring.key, scoring.batch, *_program_key(scoring, jax.default_backend())
    if key not in _models:
        keep(_models, key, compiled(scoring, on_device(scoring, weights), jax.default_backend()), KEPT_MODELS)
    _models.move_to_end(key)
    return _models[key]


def compiled(scoring: Scoring, weights: Weights, platform: str) -> Forward:
    """The compiled forward pass with weights that are on a device of that platform, as of `computed`."""
    program = _program_key(scoring, platform)
    with _changing:
        if program not in _programs:
            new = _program(scoring, platform)
            if shares_programs():  # of the Python workers of an executor, each of which scores rows of equal shapes
                new = partial(_called, new, str(program), set())
            keep(_programs, program, new, KEPT_PROGRAMS)
        _programs.move_to_end(program)
        run = _programs[program]
    rows, part = call_rows(scoring, platform)
    return Forward(partial(run, weights, part=part), rows, part)


def _program_key(scoring: Scoring, platform: str) -> tuple[str, bytes, str]:
    named = json.dumps([scoring.network, scoring.objective, scoring.dtype, list(scoring.activations)])
    return named, scoring.classes, platform  # a class may have been defined anew, or be that of another driver


def on_device(scoring: Scoring, weights: Callable[[], bytes]) -> Weights:
    """The weights in the dtype of computation, on JAX's device."""
    return computed(scoring, weights_from_bytes(weights()))


def computed(scoring: Scoring, weights: Weights, device: jax.Device | None = None) -> Weights:
    """The weights in the dtype of computation, on a device to which what is computed of them is bound, or on JAX's."""
    with jax.enable_x64(scoring.dtype == "float64"):
        own = jax.tree.map(lambda array: jnp.asarray(array, scoring.dtype), weights)
        return own if device is None else jax.device_put(own, device)


def keep(kept: OrderedDict[Any, Any], key: Any, value: Any, most: int) -> None:
    """Put a value into what is kept, of which the oldest goes where it is more than so many."""
    kept[key] = value
    if len(kept) > most:
        kept.popitem(last=False)


def _program(scoring: Scoring, platform: str) -> Program:
    """Compiles once for all models of a network, for every number of rows in a call and in a part."""
    network, objective = scoring.specs()
    kept, paths = kept_dtype(scoring.dtype), list(scoring.activations)

    def of_part(weights: Weights, features: Parts, labels: Parts | None) -> Scores:
        y, found = network.activations(weights, network.read(features, scoring.dtype), paths)
        outputs = network.named(cast(y, kept))
        losses = None if labels is None else objective.losses_of_rows(outputs, labels)
        activations = {path: values.astype(kept) for path, values in found.items()}
        each = outputs, objective.predictions(outputs), activations
        flat, predictions, activations = jax.tree.map(_flat, each, is_leaf=lambda part: isinstance(part, Ragged))
        return Scores(flat, predictions, losses, activations)

    @partial(jax.jit, static_argnames="part", compiler_options=OPTIONS.get(platform))
    def scores(weights: Weights, features: Parts, labels: Parts | None, parts: jax.Array, part: int) -> Scores:
        size = _rows_of(features)
        if size == part:
            return of_part(weights, features, labels)

        def rows(first: Any) -> tuple[Any, Any]:
            return jax.tree.map(lambda whole: lax.dynamic_slice_in_dim(whole, first, part), (features, labels))

        def add(at: Any, found: Scores) -> Scores:
            new = of_part(weights, *rows(at * part))
            return jax.tree.map(
                lambda whole, own: lax.dynamic_update_slice_in_dim(whole, own, at * part, 0), found, new
            )

        shapes = jax.eval_shape(lambda: of_part(weights, *rows(0)))
        empty = jax.tree.map(lambda own: jnp.zeros((size, *own.shape[1:]), own.dtype), shapes)
        return lax.fori_loop(0, parts, add, empty)

    return scores


def _called(scores: Program, name: str, met: set[Any], *given: Any, part: int) -> Scores:
    """What the program gives; its first call for rows of these shapes, in which it is compiled, goes by turns."""
    leaves, structure = jax.tree.flatten(given[1:-1])
    shapes = part, structure, *((leaf.shape, leaf.dtype) for leaf in leaves)
    if shapes in met:
        return scores(*given, part=part)
    with compiling_once(f"{name} {shapes}"):
        found = scores(*given, part=part)
    met.add(shapes)
    return found


def _flat(values: Any) -> Any:
    """(n, numbers); of rows of any length the numbers of each step."""
    if isinstance(values, Ragged):
        return replace(values, values=values.values.reshape(*values.values.shape[:2], -1))
    return values.reshape(len(values), -1)


def call_rows(scoring: Scoring, platform: str) -> tuple[int, int]:
    """Rows of a call, and rows of it that go through the network at a time: `batch`, or what suits a CPU's cache.

    CNNs on (28, 28, 1), one of 16 filters and one of 32 and 64, take 0.6 of the time of calls of 128 rows at once.
    """
    if platform != "cpu":
        return scoring.batch, scoring.batch
    network, itemsize = scoring.specs()[0], jnp.dtype(scoring.dtype).itemsize
    largest = _largest(network)
    fitting = LAYER_BYTES // (largest * itemsize)
    part = min(scoring.batch, max(LEAST_ROWS, 1 << max(0, fitting.bit_length() - 1)))
    ends = sum(map(size_of, (*network.input_shapes.values(), *network.output_shapes.values())))
    held = ends + len(scoring.activations) * largest
    return part * max(1, min(CALL_ROWS, CALL_BYTES // (held * itemsize)) // part), part


def _largest(network: BaseNetwork) -> int:
    """The most numbers that one of the layers reads and writes for a row."""

    def numbers(shapes: Any) -> int:
        return sum(jax.tree.leaves(map_shapes(size_of, shapes)))

    return max(numbers(before) + numbers(after) for _, _, before, after in network.leaves())


def in_batches(features: Parts, labels: Parts | None, forward: Forward) -> Iterator[Scores]:
    """Scores call by call, the next one running while the last is read."""
    running: deque[tuple[int, Scores]] = deque()
    first, rows = 0, _rows_of(features)
    while first < rows:
        part = _part_of_long_rows(features, slice(first, first + forward.rows), forward.part)
        size = part * (forward.rows // forward.part)
        count, chosen = min(size, rows - first), slice(first, first + size)
        batch, targets = jax.tree.map(lambda array: _padded(array[chosen], size), (features, labels))  # noqa: B023
        running.append((count, forward.run(batch, targets, -(-count // part), part=part)))
        first += size
        if len(running) > 1:
            yield _read(*running.popleft())
    while running:
        yield _read(*running.popleft())


def _part_of_long_rows(features: Parts, chosen: slice, part: int) -> int:
    """Rows that go through the network at a time: fewer where some of these have more steps than it is planned for."""
    longest = [array[chosen].longest for array in features.values() if isinstance(array, RaggedRows)]
    times = (max([1, *longest]) - 1) // STEPS
    return max(1, part >> times.bit_length())


def _rows_of(features: Parts) -> int:
    return len(jax.tree.leaves(features)[0])


def _padded(part: Any, size: int) -> Any:
    """The rows followed by zeros up to `size` of them; of rows of any length Ragged ones."""
    if isinstance(part, RaggedRows):
        values, lengths = part.padded_to(rounded_steps(part.longest)).padded()
        return Ragged(_padded(values, size), _padded(lengths, size))
    short = size - len(part)
    return np.concatenate([part, np.zeros((short, *part.shape[1:]), part.dtype)]) if short else part


def _read(count: int, scores: Scores) -> Scores:
    def read(part: Any) -> Any:
        if not isinstance(part, Ragged):
            return np.asarray(part)[:count]
        values, lengths = np.asarray(part.values)[:count], np.asarray(part.lengths)[:count]
        return RaggedRows(values[np.arange(values.shape[1]) < lengths[:, None]], lengths)

    return jax.tree.map(read, scores, is_leaf=lambda part: isinstance(part, Ragged))


def joined(parts: Sequence[Scores]) -> Scores:
    """The scores of all rows, as those of some at a time have them."""

    def join(*each: Any) -> Any:
        if not isinstance(each[0], RaggedRows):
            return np.concatenate(each)
        return RaggedRows(
            np.concatenate([rows.values for rows in each]), np.concatenate([rows.lengths for rows in each])
        )

    return jax.tree.map(join, *parts)
