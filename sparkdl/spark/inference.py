"""Distributed inference: one Arrow UDF from the features column to a struct of what the model was asked for."""

from __future__ import annotations

import io
import json
import os
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

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
from sparkdl.spark.columns import decode_features
from sparkdl.training.step import kept_dtype

Array = np.ndarray[Any, Any]
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
    """

    key: str
    network: dict[str, Any]
    loss: dict[str, Any]
    batch: int
    column: str
    dtype: str
    device: str


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


def scored(features: Column, scoring: Scoring, weights: Callable[[], bytes], heads: Heads, lists: set[str]) -> Column:
    """A struct column with a field for every head: a number, or a list of numbers for those in `lists`.

    Parameters
    ----------
    features : Column
        Normalised (see `columns.py`).
    scoring : Scoring
    weights : callable
        Gives the packed weights, on the worker.
    heads : dict of callable
        Module-level functions or partials of such.
    lists : set of str
    """
    number = DoubleType()
    element = DoubleType() if scoring.dtype == "float64" else FloatType()
    schema = StructType([StructField(name, ArrayType(element, False) if name in lists else number) for name in heads])

    def predict(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        forward = _loaded(scoring, weights)
        for batch in batches:
            yield _struct(batch, forward, scoring, heads, lists)

    return _arrow_udf(predict, schema)(features)


def _arrow_udf(
    predict: Callable[[Iterator[pa.Array]], Iterator[pa.Array]], schema: StructType
) -> Callable[..., Column]:
    """A UDF that Spark takes for random, lest a filter on its results run it twice: to filter, and to show."""
    if hasattr(F, "arrow_udf"):  # pyspark 4.1

        def over_arrow(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
            return predict(batches)

        over_arrow.__annotations__ = {"batches": Iterator[pa.Array], "return": Iterator[pa.Array]}
        return F.arrow_udf(over_arrow, schema).asNondeterministic()  # type: ignore

    import pandas as pd

    def over_pandas(batches: Iterator[pd.Series]) -> Iterator[pd.DataFrame]:
        for struct in predict(pa.Array.from_pandas(series) for series in batches):
            yield pa.Table.from_struct_array(struct).to_pandas()

    over_pandas.__annotations__ = {"batches": Iterator[pd.Series], "return": Iterator[pd.DataFrame]}
    return F.pandas_udf(over_pandas, schema).asNondeterministic()  # type: ignore


# On the worker.

Forward = Callable[[Array], Any]
_models: OrderedDict[str, Forward] = OrderedDict()


def _loaded(scoring: Scoring, weights: Callable[[], bytes]) -> Forward:
    """The jitted forward pass with its weights on the device, kept for the next task of this Python worker."""
    key = json.dumps([scoring.key, scoring.network, scoring.loss, scoring.dtype])
    if key not in _models:
        _prepare_device(scoring.device)
        network = Network.from_json(scoring.network)
        loss = Loss.from_json(scoring.loss)
        with jax.enable_x64(scoring.dtype == "float64"):
            placed = jax.device_put(unpacked(weights()))

            @jax.jit
            def outputs_and_predictions(weights: Weights, x: jax.Array) -> tuple[jax.Array, jax.Array]:
                cast = jax.tree.map(lambda array: array.astype(scoring.dtype), weights)
                outputs = network.forward(cast, x.astype(scoring.dtype)).astype(kept_dtype(scoring.dtype))
                return outputs, loss.predict(outputs)

        _models[key] = lambda rows: outputs_and_predictions(placed, rows)
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


def _struct(column: pa.Array, forward: Forward, scoring: Scoring, heads: Heads, lists: set[str]) -> pa.Array:
    rows = decode_features(column, scoring.column, tuple(scoring.network["input_shape"]))
    dtype = kept_dtype(scoring.dtype)
    with jax.enable_x64(scoring.dtype == "float64"):
        parts = list(_in_batches(rows, forward, scoring.batch))
    outputs, predictions = (
        np.concatenate(part).astype(dtype) if parts else np.zeros((0, 1), dtype)
        for part in (zip(*parts, strict=True) if parts else ((), ()))
    )
    fields = []
    for name, head in heads.items():
        values = head(outputs, predictions)
        if name in lists:
            flat = pa.array(values.astype(dtype).reshape(-1))
            offsets = np.arange(0, values.size + 1, max(values.shape[1], 1), dtype=np.int32)[: len(values) + 1]
            fields.append(pa.ListArray.from_arrays(pa.array(offsets), flat))
        else:
            fields.append(pa.array(values.astype(np.float64)))
    return pa.StructArray.from_arrays(fields, list(heads))


def _in_batches(rows: Array, forward: Forward, size: int) -> Iterator[tuple[Array, Array]]:
    """Outputs and predictions batch by batch, the next one running while the last is read."""
    running: deque[tuple[int, Any]] = deque()
    for first in range(0, len(rows), size):
        batch = rows[first : first + size]
        count = len(batch)
        if count < size:
            batch = np.concatenate([batch, np.zeros((size - count, *batch.shape[1:]), batch.dtype)])
        running.append((count, forward(batch)))
        if len(running) > 1:
            yield _read(*running.popleft())
    while running:
        yield _read(*running.popleft())


def _read(count: int, results: Any) -> tuple[Array, Array]:
    outputs, predictions = results
    return np.asarray(outputs)[:count].reshape(count, -1), np.asarray(predictions)[:count].reshape(count, -1)
