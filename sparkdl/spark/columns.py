"""From the columns a user has to the arrays a worker trains on: Catalyst on the driver, then Arrow to NumPy.

On the driver every supported type becomes one of three Arrow types (a number, a list of numbers, raw bytes); on the
worker one decoder a type makes arrays of them and checks what only the rows can tell.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.ml.functions import vector_to_array
from pyspark.ml.linalg import VectorUDT
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType, BooleanType, DataType, NumericType

Normalise = Callable[[Column, str], Column]
Array = np.ndarray[Any, Any]


def _is_numeric_array(kind: DataType) -> bool:
    return isinstance(kind, ArrayType) and isinstance(kind.elementType, NumericType)


# Features: one entry a column type. The second part normalises the column, given the float type to compute in.
FEATURES: dict[str, tuple[Callable[[DataType], bool], Normalise]] = {
    "array<numeric>": (_is_numeric_array, lambda column, dtype: column.cast(f"array<{_sql(dtype)}>")),
    "Vector": (lambda kind: isinstance(kind, VectorUDT), lambda column, dtype: vector_to_array(column, dtype)),
    "binary (one uint8 a value)": (lambda kind: isinstance(kind, BinaryType), lambda column, dtype: column),
}

# Labels and sample weights are small: always double.
LABELS: dict[str, tuple[Callable[[DataType], bool], Normalise]] = {
    "numeric": (
        lambda kind: isinstance(kind, (NumericType, BooleanType)),
        lambda column, dtype: column.cast("double"),
    ),
    "array<numeric>": (_is_numeric_array, lambda column, dtype: column.cast("array<double>")),
    "Vector": (lambda kind: isinstance(kind, VectorUDT), lambda column, dtype: vector_to_array(column, dtype)),
}


def features(dataset: DataFrame, name: str, dtype: str) -> Column:
    """The features column as list<float>, list<double> or binary; ValueError if its type is none of `FEATURES`."""
    return _normalised(dataset, name, "featuresCol", FEATURES, dtype)


def labels(dataset: DataFrame, name: str) -> Column:
    """The label column as double or list<double>; ValueError if its type is none of `LABELS`."""
    return _normalised(dataset, name, "labelCol", LABELS, "float64")


def numbers(dataset: DataFrame, name: str, param: str) -> Column:
    """A column of sample weights as double."""
    return _normalised(dataset, name, param, {"numeric": LABELS["numeric"]}, "float64")


def flags(dataset: DataFrame, name: str, param: str) -> Column:
    """A boolean column."""
    kinds = {"boolean": (lambda kind: isinstance(kind, BooleanType), lambda column, dtype: column)}
    return _normalised(dataset, name, param, kinds, "float64")


def _normalised(
    dataset: DataFrame,
    name: str,
    param: str,
    kinds: dict[str, tuple[Callable[[DataType], bool], Normalise]],
    dtype: str,
) -> Column:
    if name not in dataset.columns:
        raise ValueError(
            f"{param} names column {name!r}, which is not there; the columns are {', '.join(dataset.columns)}."
        )
    found = dataset.schema[name].dataType
    for accepts, normalise in kinds.values():
        if accepts(found):
            return normalise(F.col(f"`{name}`"), dtype)
    raise ValueError(f"{param} {name!r} must be {' or '.join(kinds)}, received {found.simpleString()}; cast it.")


def _sql(dtype: str) -> str:
    return {"float32": "float", "float64": "double"}[dtype]


# On the worker.


def decode_features(column: pa.Array, name: str, shape: tuple[int, ...]) -> Array:
    """(n, *shape) of uint8, float32 or float64 from a normalised features column.

    Raises
    ------
    ValueError
        A row is null, has another width than the network takes, or holds a null, NaN or infinity.
    """
    _refuse_nulls(column, name)
    width = math.prod(shape)
    binary = pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)
    lengths = (pc.binary_length if binary else pc.list_value_length)(column).to_numpy(zero_copy_only=False)
    wrong = np.flatnonzero(lengths != width)
    if len(wrong):
        raise ValueError(
            f"featuresCol {name!r} must hold {width} values a row to fill the network's input_shape {shape}, "
            f"received a row of {lengths[wrong[0]]}."
        )
    values = _bytes(column) if binary else _list_values(column, name)
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise ValueError(f"featuresCol {name!r} holds NaN or infinity; remove or replace such rows.")
    return values.reshape(len(column), *shape)


def decode_labels(column: pa.Array, name: str) -> Array:
    """(n,) or (n, outputs) of float64; ValueError for null, NaN, infinity or rows of different lengths."""
    _refuse_nulls(column, name)
    if pa.types.is_floating(column.type):
        values = column.to_numpy(zero_copy_only=False)
    else:
        lengths = set(pc.list_value_length(column).unique().to_pylist())
        if len(lengths) > 1:
            raise ValueError(f"labelCol {name!r} must hold rows of one length, received {sorted(lengths)}.")
        values = _list_values(column, name).reshape(len(column), max(lengths, default=0))
    if not np.isfinite(values).all():
        raise ValueError(f"labelCol {name!r} holds NaN or infinity; remove or replace such rows.")
    return values


def decode_weights(column: pa.Array, name: str) -> Array:
    """(n,) of float64; ValueError for null, NaN, infinite or negative weights."""
    _refuse_nulls(column, name)
    values = column.to_numpy(zero_copy_only=False)
    wrong = np.flatnonzero(~(np.isfinite(values) & (values >= 0)))
    if len(wrong):
        raise ValueError(f"weightCol {name!r} must be finite and at least 0, received {values[wrong[0]]}.")
    return values


def decode_flags(column: pa.Array, name: str) -> Array:
    """(n,) of bool; ValueError for null."""
    _refuse_nulls(column, name)
    return column.to_numpy(zero_copy_only=False)


def _refuse_nulls(column: pa.Array, name: str) -> None:
    if column.null_count:
        raise ValueError(f"Column {name!r} holds {column.null_count} null rows or more; drop or fill them.")


def _list_values(column: pa.Array, name: str) -> Array:
    values = column.flatten()
    if values.null_count:
        raise ValueError(f"Column {name!r} holds rows with null values inside; drop or fill them.")
    return values.to_numpy(zero_copy_only=False)


def _bytes(column: pa.Array) -> Array:
    """The bytes of a binary column without nulls, without a copy."""
    _, offsets, data = column.buffers()
    width = np.int64 if pa.types.is_large_binary(column.type) else np.int32
    bounds = np.frombuffer(offsets, width)[column.offset : column.offset + len(column) + 1]
    if data is None or not len(column):
        return np.zeros(0, np.uint8)
    return np.frombuffer(data, np.uint8)[bounds[0] : bounds[-1]]
