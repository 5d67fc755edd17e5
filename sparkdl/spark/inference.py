"""Distributed inference: one Arrow UDF from the features column to a struct of what the model was asked for."""

from __future__ import annotations

import io
import json
import os
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DoubleType, FloatType, StructField, StructType

from sparkdl.layers.base import Weights
from sparkdl.losses import Loss
from sparkdl.network import Network, named_arrays, nested_weights
from sparkdl.spark.columns import decode_features, decode_labels
from sparkdl.training.step import kept_dtype

Array = np.ndarray[Any, Any]
Batch = tuple[pa.Array, ...]  # the columns of some rows
Heads = dict[str, Callable[[Array, Array], Array]]  # by field name, of (outputs, predictions), to (n,) or (n, k)

KEPT_MODELS = 3  # in a Python worker at a time


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
        Rows of a batch; shorter ones are padded, since every new shape would compile anew.
    column : str
        The features column, for messages.
    dtype, device : str
        computeDtype and deviceType.
    activations : dict of str
        Output column by path of a layer.
    label, loss_column : str
        The label column, for messages, and the output column of the rows' losses; "" without those.
    """

    key: str
    network: dict[str, Any]
    loss: dict[str, Any]
    batch: int
    column: str
    dtype: str
    device: str
    activations: dict[str, str] = field(default_factory=dict)
    label: str = ""
    loss_column: str = ""


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


def in_rows(dataset: DataFrame) -> DataFrame:
    """The dataset, as rows if it holds Vectors: Spark 4.3 fails to hand those of a Parquet file to an Arrow UDF.

    Its vectorized reader feeds the UDF's columns directly, and has no Arrow type for a user-defined one. A filter
    between them that is always true, and that Spark cannot know to be, makes rows of the columns.
    """
    return dataset.where(F.spark_partition_id() >= 0) if '"type":"udt"' in dataset.schema.json() else dataset


def scored(
    inputs: list[Column], scoring: Scoring, weights: Callable[[], bytes], heads: Heads, lists: set[str]
) -> Column:
    """A struct column with a field for every head: a number, or a list of numbers for those in `lists`.

    Fields for what `scoring` asks for besides follow: lists of activations, the row's loss.

    Parameters
    ----------
    inputs : list of Column
        The features and, for losses, the labels; normalised (see `columns.py`).
    scoring : Scoring
    weights : callable
        Gives the packed weights, on the worker.
    heads : dict of callable
        Module-level functions or partials of such.
    lists : set of str
    """
    number = DoubleType()
    element = DoubleType() if scoring.dtype == "float64" else FloatType()
    names = [*heads, *scoring.activations.values(), *([scoring.loss_column] if scoring.loss_column else [])]
    wide = lists | set(scoring.activations.values())
    schema = StructType([StructField(name, ArrayType(element, False) if name in wide else number) for name in names])

    def predict(batches: Iterator[Batch]) -> Iterator[pa.Array]:
        forward = loaded(scoring, weights)
        for batch in batches:
            for part in _bounded(batch, scoring):
                yield _struct(part, forward, scoring, heads, wide)

    return _arrow_udf(predict, schema)(*inputs)


def _arrow_udf(predict: Callable[[Iterator[Batch]], Iterator[pa.Array]], schema: StructType) -> Callable[..., Column]:
    """A UDF that Spark takes for random, lest a filter on its results run it twice: to filter, and to show."""
    if hasattr(F, "arrow_udf"):  # pyspark 4.1

        def over_arrow(batches: Iterator[Any]) -> Iterator[pa.Array]:  # Spark hands over a single column bare
            return predict(batch if isinstance(batch, tuple) else (batch,) for batch in batches)

        over_arrow.__annotations__ = {"batches": Iterator[tuple[pa.Array, ...]], "return": Iterator[pa.Array]}
        return F.arrow_udf(over_arrow, schema).asNondeterministic()  # type: ignore

    import pandas as pd

    def over_pandas(batches: Iterator[Any]) -> Iterator[pd.DataFrame]:
        columns = (batch if isinstance(batch, tuple) else (batch,) for batch in batches)
        for struct in predict(tuple(pa.Array.from_pandas(series) for series in batch) for batch in columns):
            yield pa.Table.from_struct_array(struct).to_pandas()

    over_pandas.__annotations__ = {"batches": Iterator[tuple[pd.Series, ...]], "return": Iterator[pd.DataFrame]}
    return F.pandas_udf(over_pandas, schema).asNondeterministic()  # type: ignore


# On the worker.

Forward = Callable[[Array, Array | None], Scores]
_models: OrderedDict[str, Forward] = OrderedDict()


def loaded(scoring: Scoring, weights: Callable[[], bytes]) -> Forward:
    """The jitted forward pass with its weights on the device, kept for the next task of this Python worker."""
    paths = list(scoring.activations)
    key = json.dumps([scoring.key, scoring.network, scoring.loss, scoring.dtype, paths])
    if key not in _models:
        _prepare_device(scoring.device)
        network = Network.from_json(scoring.network)
        loss = Loss.from_json(scoring.loss)
        with jax.enable_x64(scoring.dtype == "float64"):
            placed = jax.device_put(unpacked(weights()))

            @jax.jit
            def scores(weights: Weights, x: jax.Array, labels: jax.Array | None) -> Scores:
                kept = kept_dtype(scoring.dtype)
                cast = jax.tree.map(lambda array: array.astype(scoring.dtype), weights)
                outputs, found = network.activations(cast, x.astype(scoring.dtype), paths)
                outputs = outputs.astype(kept)
                losses = None if labels is None else loss.losses(outputs, loss.targets(outputs, labels))
                activations = {path: values.astype(kept).reshape(len(x), -1) for path, values in found.items()}
                flat, predictions = (values.reshape(len(x), -1) for values in (outputs, loss.predict(outputs)))
                return Scores(flat, predictions, losses, activations)

        _models[key] = lambda rows, labels: scores(placed, rows, labels)
        if len(_models) > KEPT_MODELS:
            _models.popitem(last=False)
    _models.move_to_end(key)
    return _models[key]


def _prepare_device(device: str) -> None:
    """Choose threads and platform; in effect only before this process's first use of JAX."""
    context = TaskContext.get()
    if context is None:
        return
    os.environ.setdefault("PJRT_NPROC", str(context.cpus()))
    if device == "cpu" or (device == "auto" and "gpu" not in context.resources()):
        jax.config.update("jax_platforms", "cpu")


def _bounded(batch: Batch, scoring: Scoring) -> Iterator[Batch]:
    """Spark's batch in parts of ours if activations are asked for, which can be many times as large as the features."""
    size = scoring.batch if scoring.activations else max(len(batch[0]), 1)
    for first in range(0, max(len(batch[0]), 1), size):
        yield tuple(column.slice(first, size) for column in batch)


def _struct(batch: Batch, forward: Forward, scoring: Scoring, heads: Heads, lists: set[str]) -> pa.Array:
    rows = decode_features(batch[0], scoring.column, tuple(scoring.network["input_shape"]))
    labels = None
    if scoring.loss_column:
        shape = Network.from_json(scoring.network).output_shape()
        labels = Loss.from_json(scoring.loss).encode(decode_labels(batch[1], scoring.label), shape)
    dtype = kept_dtype(scoring.dtype)
    with jax.enable_x64(scoring.dtype == "float64"):
        parts = list(in_batches(rows, labels, forward, scoring.batch))
    if parts:
        scores = jax.tree.map(lambda *part: np.concatenate(part).astype(dtype), *parts)
    else:
        none = np.zeros((0, 1), dtype)
        scores = Scores(none, none, none[:, 0], dict.fromkeys(scoring.activations, none))
    columns = {name: head(scores.outputs, scores.predictions) for name, head in heads.items()}
    columns |= {scoring.activations[path]: values for path, values in scores.activations.items()}
    if scoring.loss_column:
        columns[scoring.loss_column] = scores.losses
    fields = []
    for name, values in columns.items():
        if name in lists:
            flat = pa.array(values.astype(dtype).reshape(-1))
            offsets = np.arange(0, values.size + 1, max(values.shape[1], 1), dtype=np.int32)[: len(values) + 1]
            fields.append(pa.ListArray.from_arrays(pa.array(offsets), flat))
        else:
            fields.append(pa.array(values.astype(np.float64)))
    return pa.StructArray.from_arrays(fields, list(columns))


def in_batches(rows: Array, labels: Array | None, forward: Forward, size: int) -> Iterator[Scores]:
    """Scores batch by batch, the next one running while the last is read."""
    running: deque[tuple[int, Scores]] = deque()
    for first in range(0, len(rows), size):
        count = min(size, len(rows) - first)
        batch, targets = (
            None if part is None else _padded(part[first : first + size], size) for part in (rows, labels)
        )
        assert batch is not None
        running.append((count, forward(batch, targets)))
        if len(running) > 1:
            yield _read(*running.popleft())
    while running:
        yield _read(*running.popleft())


def _padded(part: Array, size: int) -> Array:
    short = size - len(part)
    return np.concatenate([part, np.zeros((short, *part.shape[1:]), part.dtype)]) if short else part


def _read(count: int, scores: Scores) -> Scores:
    return jax.tree.map(lambda array: np.asarray(array)[:count], scores)
