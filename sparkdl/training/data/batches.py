"""A worker's rows as static batches: every row once an epoch, in a seeded order, padded with rows of weight 0."""

from __future__ import annotations

import functools
import queue
import threading
import zlib
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np

from sparkdl.arrays import FEATURES, INTEGERS, LABEL, Array, Parts, kept_dtype
from sparkdl.decoding.ragged_rows import RaggedRows, numbers_of
from sparkdl.layers.ragged import Ragged
from sparkdl.objective import without_label

Item = TypeVar("Item")


class Rows(NamedTuple):
    """Aligned rows, of NumPy's arrays or JAX's.

    Attributes
    ----------
    features : dict of arrays (n, *shape)
        By the name of the network's input; perhaps ImageFiles or RaggedRows, of which batches hold Ragged.
    labels : dict of arrays (n,) or (n, outputs)
        By the name of the network's output; RaggedRows of such where each step has a label, of which batches hold
        Ragged.
    weights : array (n,)
        Sample weights.
    """

    features: Parts
    labels: Parts
    weights: Any

    def each(self) -> dict[str, Any]:
        """All arrays by names that differ, always in the same order."""
        named = {f"{kind}/{name}": array for kind in Rows._fields[:2] for name, array in getattr(self, kind).items()}
        return named | {"weights": self.weights}

    @classmethod
    def of(cls, each: Mapping[str, Any]) -> Rows:
        """The inverse of `each`."""
        parts: dict[str, Parts] = {kind: {} for kind in Rows._fields[:2]}
        for name, array in each.items():
            kind, _, part = name.partition("/")
            if part:
                parts[kind][part] = array
        return cls(**parts, weights=each["weights"])


class Shard:
    """The rows of one worker, held in chunks so that a memory-mapped file serves as well as arrays.

    Parameters
    ----------
    chunks : sequence of Rows
        At least one, which may be empty; all of the same dtypes and row shapes. Features may be ImageFiles, or
        RaggedRows that all have the same `steps`.
    keys : array (n,), optional
        Row i of the shard is the one with the i-th smallest key; without keys, the i-th as they come.
    rows : int, optional
        Of rows with keys only so many, those of the smallest; by default all.
    """

    def __init__(self, chunks: Sequence[Rows], keys: Array | None = None, rows: int | None = None) -> None:
        self.chunks = list(chunks)
        self._keys = keys
        self._places = None if keys is None else np.argsort(keys, kind="stable")[:rows]
        self._starts = np.cumsum([0, *(len(chunk.weights) for chunk in self.chunks)])

    def __len__(self) -> int:
        return int(self._starts[-1]) if self._places is None else len(self._places)

    @classmethod
    def from_arrays(cls, features: Any, labels: Any, weights: Any = None) -> Shard:
        """A shard of arrays: features (n, *input_shape), labels (n,) or (n, outputs), weights (n,), by default 1.

        Features and labels may be mappings of such arrays by the names of their parts, and RaggedRows.

        Raises
        ------
        ValueError
            The arrays are not equally long, or a weight is negative or not finite.
        """
        features, labels = named_parts(features, FEATURES), named_parts(labels, LABEL)
        count = len(next(iter(features.values())))
        weights = np.ones(count) if weights is None else np.asarray(weights, np.float64)
        if weights.ndim != 1:
            raise ValueError(f"weights must have shape (n,), one number a row, received {weights.shape}.")
        rows = Rows(features, labels, weights)
        lengths = [len(array) for array in rows.each().values()]
        if len(set(lengths)) > 1:
            received = f"{', '.join(map(str, lengths[:-1]))} and {lengths[-1]}"
            raise ValueError(f"features, labels and weights must have one entry a row, received {received}.")
        if not (np.isfinite(weights) & (weights >= 0)).all():
            raise ValueError("weights must be finite and at least 0; remove or correct the rows that are not.")
        return cls([rows])

    def digest(self) -> int:
        """32 bits that tell these rows from others, order aside where there are keys."""
        if self._keys is not None and self._places is not None:
            return zlib.crc32(self._keys[self._places].tobytes())
        every = [part for chunk in self.chunks for part in chunk.each().values()]
        arrays = [own for part in every for own in (_held(part) if isinstance(part, RaggedRows) else [part])]
        parts = map(np.ascontiguousarray, arrays)
        return functools.reduce(lambda digest, part: zlib.crc32(part.tobytes(), digest), parts, 0)

    def take(self, indices: Array, rows: int) -> Rows:
        """The rows at `indices`, followed by rows of zeros (of weight 0 too) up to `rows` of them."""
        first = self.chunks[0]
        indices = indices if self._places is None else self._places[indices]
        result = {name: _zeros(part, rows) for name, part in first.each().items()}
        places = np.searchsorted(self._starts, indices, side="right") - 1
        for number in np.unique(places):
            chosen = np.flatnonzero(places == number)
            inside = indices[chosen] - self._starts[number]
            for name, source in self.chunks[number].each().items():
                jax.tree.map(partial(_put, chosen), result[name], _as_batch(source[inside]))
        return Rows.of(result)

    @property
    def padded_steps(self) -> dict[str, int]:
        """To how many steps a batch pads each part of the features whose rows are of any length, by name."""
        return {name: part.steps for name, part in self.chunks[0].features.items() if isinstance(part, RaggedRows)}

    def lengths(self, name: str) -> Array:
        """Steps of every row (n,) in the part of that name, whose rows are of any length."""
        lengths = np.concatenate([chunk.features[name].lengths for chunk in self.chunks])
        return lengths if self._places is None else lengths[self._places]

    @property
    def longest(self) -> dict[str, int]:
        """Steps of the longest row by part of the features, of those whose rows are of any length."""
        parts = [(name, part) for chunk in self.chunks for name, part in chunk.features.items()]
        found: dict[str, int] = {}
        for name, part in parts:
            if isinstance(part, RaggedRows):
                found[name] = max(found.get(name, 0), part.longest)
        return found

    def padded_to(self, steps: Mapping[str, int]) -> Shard:
        """The same rows, whose parts of any length a batch pads to so many steps, by name; labels to the most."""

        def padded(parts: Parts, steps: Mapping[str, int]) -> Parts:
            return parts | {name: parts[name].padded_to(count) for name, count in steps.items()}

        most = max(steps.values(), default=0)  # one of them is that of the input that the labels are as long as
        chunks = []
        for chunk in self.chunks:
            of_steps = {name: most for name, part in chunk.labels.items() if isinstance(part, RaggedRows)}
            chunks.append(chunk._replace(features=padded(chunk.features, steps), labels=padded(chunk.labels, of_steps)))
        return Shard(chunks, self._keys, None if self._places is None else len(self._places))


def _as_batch(part: Any) -> Any:
    """Rows as a batch has them: all equally long."""
    return Ragged(*part.padded()) if isinstance(part, RaggedRows) else part


def _held(rows: RaggedRows) -> list[Array]:
    """All that the rows hold."""
    return [rows.values, rows.lengths]


def _zeros(part: Any, rows: int) -> Any:
    """That many rows like those of a batch."""
    values = np.zeros((rows, *part.shape[1:]), part.dtype)
    return Ragged(values, np.zeros(rows, INTEGERS)) if isinstance(part, RaggedRows) else values


def _put(places: Array, whole: Array, rows: Array) -> None:
    whole[places] = rows


def named_parts(arrays: Any, name: str) -> Parts:
    """A mapping of arrays as NumPy's; one array as the part of that name."""
    parts = arrays if isinstance(arrays, Mapping) else {name: arrays}
    return {part: array if isinstance(array, RaggedRows) else np.asarray(array) for part, array in parts.items()}


def check_numbers(rows: Rows, dtype: str) -> int:
    """How many of the rows have a label, and weigh more than 0 in training.

    Parameters
    ----------
    rows : Rows
    dtype : str
        What layers compute in (see `arrays.py`).

    Raises
    ------
    ValueError
        A label or a weight is larger than what training keeps it in can hold.
    """
    kept = np.dtype(kept_dtype(dtype))
    for name, values in [*(("Labels", numbers_of(part)) for part in rows.labels.values()), ("Weights", rows.weights)]:
        largest = float(np.nanmax(np.abs(values), initial=0))  # NaN where a row lacks one of several labels
        if largest > float(np.finfo(kept).max):
            raise ValueError(f"{name} must be numbers that {kept} holds, received {largest:g}; scale or mend them.")
    labelled = [_labelled(part) for part in rows.labels.values()]
    has_label = np.logical_or.reduce(labelled) if labelled else True
    return int(np.count_nonzero(rows.weights.astype(kept) * has_label))


def _labelled(labels: Any) -> Array:
    """Of each row whether it has a label; of those of any length, at one of their steps."""
    known = ~without_label(numbers_of(labels))
    if isinstance(labels, RaggedRows):
        known = np.bincount(np.repeat(np.arange(len(labels)), labels.lengths), known, len(labels)) > 0
    return known


def lost_digits(labels: Any, dtype: str) -> str | None:
    """What becomes of a label that training cannot hold to the unit, as of seconds since 1970 in float32, if one is."""
    kept, labels = np.dtype(kept_dtype(dtype)), numbers_of(labels)
    if labels.dtype.kind != "f" or labels.dtype.itemsize <= kept.itemsize:
        return None
    changed = labels[np.abs(labels.astype(kept).astype(labels.dtype) - labels) >= 0.5]
    return f"{changed[0]:.15g}, which {kept} keeps as {float(changed[0].astype(kept)):.15g}" if len(changed) else None


def check_weights(weighing: int, rows: int, which: str = "rows") -> None:
    """ValueError if none of these rows has a label, and weighs more than 0."""
    if rows and not weighing:
        raise ValueError(f"All {which} weigh 0 or have no label; give at least one row a positive weight and a label.")


def even_shares(held: Sequence[int]) -> tuple[int, ...]:
    """As equal as can be; where some have a row more, they are those that hold most, so that the fewest rows move."""
    each, over = divmod(sum(held), len(held))
    richest = sorted(range(len(held)), key=lambda worker: -held[worker])[:over]
    return tuple(each + (worker in richest) for worker in range(len(held)))


@dataclass(frozen=True)
class Steps:
    """How the shares of all workers fall into the steps of an epoch; every worker computes the same one.

    Parameters
    ----------
    shares : tuple of int
        Rows held by each worker, at least one row in all.
    batch_size : int
        Rows of a global batch, at most.
    """

    shares: tuple[int, ...]
    batch_size: int

    @property
    def count(self) -> int:
        """Steps in an epoch: the same for every worker, however large its share."""
        return -(-sum(self.shares) // self.batch_size)

    @property
    def rows(self) -> int:
        """Rows of a worker's padded batch: what the largest share needs in one step."""
        return -(-max(self.shares) // self.count)

    def bounds(self, worker: int, step: int) -> tuple[int, int]:
        """First and last (exclusive) of the rows that `worker` takes in `step`, counted in its order of the epoch."""
        return self._taken(worker, step), self._taken(worker, step + 1)

    def _taken(self, worker: int, step: int) -> int:
        """Rows of the worker before a step; where one's spare rows end the next one's begin, so that steps are even."""
        each, spare = divmod(self.shares[worker], self.count)
        first = sum(self.shares[:worker]) % self.count
        return step * each + min(spare, max(0, step - first)) + min(step, max(0, first + spare - self.count))


def epoch_order(rows: int, seed: int, epoch: int, worker: int) -> Array:
    """The worker's order of its rows in an epoch (0, 1, ...): a permutation that depends on nothing else."""
    return np.random.default_rng((seed, epoch, worker)).permutation(rows)


def batches(shard: Shard, steps: Steps, worker: int, order: Array, skipped: int = 0) -> Iterator[Rows]:
    """One epoch of the worker's batches, each of `steps.rows` rows, but for the first `skipped`."""
    for step in range(skipped, steps.count):
        first, last = steps.bounds(worker, step)
        yield shard.take(order[first:last], steps.rows)


def prefetched(items: Iterator[Item], ahead: int = 2) -> Generator[Item]:
    """The same items, prepared in a thread up to `ahead` of the consumer; closing the iterator ends the thread."""
    ready: queue.Queue[tuple[str, Any]] = queue.Queue(ahead)
    closed = threading.Event()

    def put(kind: str, item: Any) -> None:
        while not closed.is_set():
            try:
                return ready.put((kind, item), timeout=0.1)
            except queue.Full:
                continue

    def prepare() -> None:
        try:
            for item in items:
                put("item", item)
                if closed.is_set():
                    return
            put("end", None)
        except BaseException as error:  # handed to the consumer, whatever it is
            put("error", error)

    thread = threading.Thread(target=prepare, name="sparkdl-prefetch", daemon=True)
    thread.start()
    try:
        while True:
            kind, item = ready.get()
            if kind == "error":
                raise item
            if kind == "end":
                return
            yield item
    finally:
        closed.set()
        thread.join()
