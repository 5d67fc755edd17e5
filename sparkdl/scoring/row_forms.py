"""Rows as programs hold them, dicts of NumPy arrays, pandas frames or Arrow tables, and columns added to them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkdl.arrays import Array
from sparkdl.decoding.arrow_types import is_list

if TYPE_CHECKING:
    import pandas as pd

NUMBERS = "biuf"  # kinds of dtypes
NO_LISTS = (str, bytes, bytearray, Mapping, Set, pa.Table, pa.RecordBatch)  # though they have a length
MOST_OFFSET = (1 << 31) - 1  # that Arrow's lists of 32 bits reach


def names_of(rows: Any) -> list[str]:
    """Names of the columns.

    Raises
    ------
    TypeError
        These are no rows of a kind that is known.
    """
    if isinstance(rows, Mapping):
        return list(rows)
    if isinstance(rows, (pa.Table, pa.RecordBatch)):
        return list(rows.schema.names)
    if _is_frame(rows):
        return list(rows.columns)
    kind = f"{type(rows).__module__}.{type(rows).__qualname__}"
    raise TypeError(
        "rows must be a dict of arrays or lists, a pandas DataFrame, or a pyarrow Table or RecordBatch, received a "
        f"{kind}; give {{'features': ...}} with a value for each row."
    )


def record_batches(rows: Any, names: Sequence[str]) -> list[pa.RecordBatch]:
    """These columns of the rows, in this order, as Spark would hand them over.

    Raises
    ------
    ValueError
        A column of a dict, read or not, is no list of values or is of another length than the others, or one that is
        read is of values that Arrow has no one type for.
    """
    if isinstance(rows, pa.RecordBatch):
        rows = pa.Table.from_batches([rows])
    if isinstance(rows, pa.Table):
        found = rows.select(names).combine_chunks().to_batches()
        return [_batch(names, batch.columns) for batch in found]
    if isinstance(rows, Mapping):
        lengths = {name: _length(name, values) for name, values in rows.items()}
        if len(set(lengths.values())) > 1:
            received = ", ".join(f"{length} of {name!r}" for name, length in lengths.items())
            raise ValueError(f"rows must hold as many values in every column, received {received}; give one for each.")
        columns = [_of_values(name, rows[name]) for name in names]
    else:
        columns = [_of_series(name, rows[name]) for name in names]
    return [_batch(names, columns)]


def with_columns(
    rows: Any,
    added: Mapping[str, pa.Array],
    widths: Mapping[str, int],
    of_steps: Collection[str],
    kept: Array | None,
) -> Any:
    """The rows with further columns, in their own form.

    Parameters
    ----------
    rows : dict, pd.DataFrame, pa.Table or pa.RecordBatch
    added : dict of pa.Array (n,)
        Numbers, and lists of one length; null where a row could not be used.
    widths : dict of int
        The lengths of those lists.
    of_steps : collection of str
        Those that hold lists of such, one for each step of rows of any length.
    kept : array (n,) of bool or None
        Which rows to keep; None for all.
    """
    chosen = dict(added) if kept is None else {name: column.filter(pa.array(kept)) for name, column in added.items()}
    if isinstance(rows, (pa.Table, pa.RecordBatch)):
        result = rows if kept is None else _filtered_rows(rows, kept)
        for name, column in chosen.items():
            result = result.append_column(name, column)
        return result
    forms = {name: _steps_to_numpy if name in of_steps else _to_numpy for name in chosen}
    arrays = {name: forms[name](column, widths.get(name)) for name, column in chosen.items()}
    if isinstance(rows, Mapping):
        return {name: values if kept is None else _filtered(values, kept) for name, values in rows.items()} | arrays
    result = rows if kept is None else rows[kept]
    return result.assign(**{name: array if array.ndim == 1 else list(array) for name, array in arrays.items()})


def _to_numpy(column: pa.Array, width: int | None) -> Array:
    """Numbers as an array (n,), lists of one length as (n, width), both NaN for null."""
    if width is None:
        return column.to_numpy(zero_copy_only=False)
    values = column.flatten().to_numpy(zero_copy_only=False)
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    result = np.full((len(column), width), np.nan, values.dtype)
    result[valid] = values.reshape(-1, width)
    return result


def _steps_to_numpy(column: pa.Array, width: int | None) -> Array:
    """(n,) of arrays with one number, or one row of numbers, for each step; None for null."""
    values = _to_numpy(column.flatten(), width)
    ends = np.cumsum(column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False))
    result = np.empty(len(column), object)
    for at in np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False)):
        result[at] = values[ends[at - 1] if at else 0 : ends[at]]
    return result


def _is_frame(rows: Any) -> bool:
    """Whether it is one of pandas, which is not imported to tell."""
    return hasattr(rows, "columns") and hasattr(rows, "iloc") and hasattr(rows, "assign")


def _filtered(values: Any, kept: Array) -> Any:
    if isinstance(values, np.ndarray):
        return values[kept]
    return [value for value, keep in zip(values, kept, strict=True) if keep]


def _filtered_rows(rows: Any, kept: Array) -> Any:
    """Those of a Table or RecordBatch that are kept, in slices where Arrow cannot filter a type, as it cannot views."""
    try:
        return rows.filter(pa.array(kept))
    except pa.ArrowNotImplementedError:
        bounds = np.flatnonzero(np.diff(kept, prepend=False, append=False)).reshape(-1, 2)
        runs = [rows.slice(0, 0), *(rows.slice(first, end - first) for first, end in bounds)]
        if isinstance(rows, pa.Table):
            return pa.concat_tables(runs)
        columns = [pa.concat_arrays([run.column(at) for run in runs]) for at in range(rows.num_columns)]
        return pa.RecordBatch.from_arrays(columns, schema=rows.schema)


def _batch(names: Sequence[str], columns: Sequence[pa.Array]) -> pa.RecordBatch:
    for name, column in zip(names, columns, strict=True):
        axes = getattr(column.type, "permutation", None) or []  # of tensors, which pyarrow and Arrow read differently
        if axes != sorted(axes):
            raise ValueError(
                f"column {name!r} must hold tensors whose values lie in the order of their axes, received some "
                f"permuted by {axes}; make them of np.ascontiguousarray(array)."
            )
    return pa.RecordBatch.from_arrays([_plain(column) for column in columns], list(names))


def _plain(column: pa.Array) -> pa.Array:
    """The column in a type that Spark has; decimals become doubles as Spark rounds them, which Arrow does otherwise."""
    kind = column.type
    if isinstance(column, pa.ExtensionArray):
        return _plain(column.storage)
    if pa.types.is_dictionary(kind):
        return _plain(column.dictionary_decode())
    if pa.types.is_decimal(kind):
        return pa.array([None if value is None else float(value) for value in column.to_pylist()], pa.float64())
    if pa.types.is_float16(kind):
        return column.cast(pa.float32())
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        return column.cast(pa.large_string() if pa.types.is_string_view(kind) else pa.large_binary())
    if is_list(kind) and (items := _plain(flat := column.flatten())).type != flat.type:
        lengths = pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False)
        offsets = pa.array(np.append(0, np.cumsum(lengths))).cast(pa.int32())
        return pa.ListArray.from_arrays(offsets, items, mask=column.is_null() if column.null_count else None)
    return column


def _length(name: str, values: Any) -> int:
    """Of a dict's column; ValueError for what a loop would go over otherwise than by rows, or not at all."""
    if not (isinstance(values, NO_LISTS) or _is_frame(values)):
        try:
            return len(values)
        except TypeError:  # of a number, an array of no axes or an iterator
            pass
    raise ValueError(
        f"column {name!r} must be a list or array of values, one for each row, received a {type(values).__name__}; "
        f"write {{{name!r}: [...]}}, also for one row, or to_dict('list') of a frame."
    )


def _of_values(name: str, values: Any) -> pa.Array:
    if isinstance(values, np.ndarray) and values.dtype.kind in NUMBERS:
        values = _native(values)
        if not np.ma.is_masked(values):
            return _of_numbers(values)
    return _of_objects(name, list(values))


def _of_series(name: str, series: pd.Series[Any]) -> pa.Array:
    if series.dtype == object or str(series.dtype).startswith("period["):  # of which Arrow keeps but numbers
        return _of_objects(name, list(series))
    try:
        found = pa.Array.from_pandas(_native(series.to_numpy()) if isinstance(series.dtype, np.dtype) else series)
    except pa.ArrowException:  # of a type that Arrow lacks, as pandas' sparse and complex numbers
        return _of_objects(name, list(series))
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


def _native(values: Array) -> Array:
    """Numbers in a dtype that Arrow has: in this machine's byte order, of 64 bits at most; other values as they are."""
    if values.dtype.kind not in NUMBERS:
        return values
    return values.astype(np.float64 if values.itemsize > 8 else values.dtype.newbyteorder("="), copy=False)


def _of_numbers(values: Array) -> pa.Array:
    """Numbers (n,), or lists as deep as there are further axes, around one copy at most."""
    if values.ndim < 2:
        return pa.array(values)
    rows = len(values) * values.shape[1]
    flat = _of_numbers(np.ascontiguousarray(values).reshape(rows, *values.shape[2:]))
    offsets = np.arange(len(values) + 1, dtype=np.int64) * values.shape[1]
    if offsets[-1] > MOST_OFFSET:
        return pa.LargeListArray.from_arrays(pa.array(offsets), flat)
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), flat)


def _of_objects(name: str, values: list[Any]) -> pa.Array:
    try:
        return pa.array([_of_object(value) for value in values], from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        reason = str(error).rstrip(".")
        raise ValueError(
            f"column {name!r} must hold values of one type, as numbers, lists of numbers, strings or bytes, received "
            f"some that make no Arrow column ({reason}); convert them."
        ) from None


def _of_object(value: Any) -> Any:
    """A row's value as Arrow takes it: arrays of one axis, and of more as lists, with None for what is masked."""
    if not isinstance(value, np.ndarray):
        return value
    native = _native(value)
    return native.tolist() if native.ndim > 1 or np.ma.is_masked(native) else native
