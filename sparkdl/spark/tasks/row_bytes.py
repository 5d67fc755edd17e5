"""The pass over the rows before a fit's shuffle: whatever the columns' types, equal values become equal bytes.

Worker, order and arithmetic of a fit depend on these bytes alone, so that arrays, Vectors, bytes and images of the same
values train to the same weights, bit for bit. Loaded on workers that need neither JAX nor the stages.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from sparkdl.arrays import Array
from sparkdl.decoding.columns import (
    decode_features,
    decode_flags,
    decode_labels,
    decode_weights,
    distinct,
    split_error,
)
from sparkdl.decoding.layout import KINDS, VALID, Decoded, Layout, check_rows
from sparkdl.spark.tasks.collector import spare_modules
from sparkdl.spark.tasks.environment import bound_threads

SCHEMA = "key bigint, features binary, label binary, weight double, validation boolean, note string"
PART_BYTES = 8 << 20  # of features that are decoded at a time
REMEDY = "mend or drop such rows, or set handleInvalid to skip"


@dataclass(frozen=True)
class Intake:
    """What the workers know of the rows to come.

    Attributes
    ----------
    layout : Layout
        Of the features.
    features_dtype : str
        Theirs, on the way to the device: uint8, float32 or float64.
    label : str
        The user's name of the label column.
    label_list : bool
        Whether it holds a list of labels a row.
    outputs : int
        Of the network; as many labels are in a list.
    weight, validation : str
        The user's names of these columns; "" without one.
    skip : bool
        Whether rows that cannot be used are left out, instead of refused.
    files : bool
        Whether features, a binary column, stay the files that they are; they are decoded here too, to be checked and
        for their keys.
    classes : tuple of int or None
        The least and the greatest label where only classes will do and the loss takes other numbers too.
    """

    layout: Layout
    features_dtype: str
    label: str
    label_list: bool
    outputs: int
    weight: str = ""
    validation: str = ""
    skip: bool = False
    files: bool = False
    classes: tuple[int, int] | None = None


def prepared(batches: Iterator[pa.RecordBatch], intake: Intake) -> Iterator[pa.RecordBatch]:
    """Rows of any column types as rows of `SCHEMA`; what is wrong as a last row with a note, lest Spark try again.

    A note is JSON: `error`, a sentence; or `skipped`, rows by kind of what was wrong, and `split`, all
    `Decoded.widths` that there are.
    """
    bound_threads()
    skipped: Counter[str] = Counter()
    splits: set[tuple[int, ...]] = set()
    size = max(1, PART_BYTES // max(1, intake.layout.width * np.dtype(intake.features_dtype).itemsize))
    try:
        for batch in batches:
            for first in range(0, batch.num_rows, size):
                yield _rows(batch.slice(first, size), intake, skipped, splits)
    except ValueError as error:
        for _ in batches:  # Spark keeps a Python worker, and what it has loaded, only if it has read all of its input
            pass
        yield _note({"error": str(error)})
    else:
        if skipped or splits:
            yield _note({"skipped": dict(skipped), "split": sorted(splits)})
    spare_modules()


def row_keys(features: Array, numbers: Array, dtype: str) -> Array:
    """(n,) of int64: a hash of each row's values, not of their dtype.

    Parameters
    ----------
    features : array (n, width)
        Of `dtype` and without -0.0, or uint8, which are hashed as the floats of `dtype` that they become.
    numbers : array (n, k)
        Further float64 values of the rows, without -0.0.
    dtype : str
        float32 or float64.
    """
    words = _words(np.arange(256, dtype=dtype))[features] if features.dtype == np.uint8 else _words(features)
    others = _words(numbers)
    count = words.shape[1] + others.shape[1]
    factors = _mixed(np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)) | np.uint64(1)
    return _mixed(words @ factors[: words.shape[1]] + others @ factors[words.shape[1] :]).view(np.int64)


def merged_notes(texts: list[str], layout: Layout) -> dict[str, int]:
    """The rows skipped, by kind, of all notes; ValueError for the first of their errors."""
    notes = [json.loads(text) for text in texts]
    errors = sorted(note["error"] for note in notes if "error" in note)
    if errors:
        raise ValueError(errors[0])
    splits = {tuple(split) for note in notes for split in note["split"]}
    if len(splits) > 1:
        raise ValueError(split_error(layout, splits))
    return dict(sum((Counter(note["skipped"]) for note in notes), Counter()))


def _rows(batch: pa.RecordBatch, intake: Intake, skipped: Counter[str], splits: set[tuple[int, ...]]) -> pa.RecordBatch:
    layout = intake.layout
    inputs = [batch.column(f"features{number}") for number in range(len(layout.names))]
    read = dict(zip(layout.names, inputs, strict=True)) | {intake.label: batch.column("label")}
    features = decode_features(inputs, layout)
    label = decode_labels(batch.column("label"), intake.label, intake.outputs, intake.classes)
    parts = [features, label]
    if intake.weight:
        read[intake.weight] = batch.column("weight")
        parts.append(decode_weights(batch.column("weight"), intake.weight))
    if intake.validation:
        read[intake.validation] = batch.column("validation")
        parts.append(decode_flags(batch.column("validation"), intake.validation))
    status = check_rows(parts, read, None if intake.skip else REMEDY)
    bad = status != VALID
    skipped.update(KINDS[code] for code in status[bad])
    if features.widths is not None:
        splits.update(map(tuple, distinct(features.widths[~bad]).tolist()))
    arrays = _arrays(parts, intake)
    good = _batch(layout.dtype, *((array[~bad] for array in arrays) if bad.any() else arrays))
    if intake.files:
        good = good.set_column(1, "features", inputs[0].filter(pa.array(~bad)).cast(pa.binary()))
    return good


def _arrays(parts: list[Decoded], intake: Intake) -> tuple[Array, ...]:
    """Features (n, width), labels (n, k), weights (n,), validation (n,); no -0.0, which sparse Vectors cannot hold."""
    values = iter([part.values for part in parts])
    features, labels = (array.reshape(len(array), -1) for array in (next(values), next(values)))
    weights = next(values) if intake.weight else np.ones(len(features))
    validation = next(values) if intake.validation else np.zeros(len(features), bool)
    if features.dtype != np.uint8:
        features = features + features.dtype.type(0)  # -0.0 + 0.0 is 0.0
    return features, labels + 0.0, weights + 0.0, validation


def _batch(dtype: str, features: Array, labels: Array, weights: Array, validation: Array) -> pa.RecordBatch:
    numbers = np.concatenate([labels, weights[:, None], validation[:, None]], axis=1)
    columns: Mapping[str, pa.Array] = {
        "key": pa.array(row_keys(features, numbers, dtype)),
        "features": _binary(features),
        "label": _binary(labels),
        "weight": pa.array(weights),
        "validation": pa.array(validation),
        "note": pa.nulls(len(weights), pa.string()),
    }
    return pa.RecordBatch.from_pydict(columns)


def _note(content: Mapping[str, Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array([0], pa.int64()),  # of all notes, so that one worker knows them all
            "features": pa.array([b""]),
            "label": pa.array([b""]),
            "weight": pa.array([0.0]),
            "validation": pa.array([False]),
            "note": pa.array([json.dumps(content)]),
        }
    )


def _binary(values: Array) -> pa.Array:
    """(n, width) as a binary column around the same memory."""
    values = np.ascontiguousarray(values)
    offsets = np.arange(len(values) + 1, dtype=np.int32) * np.int32(values.shape[1] * values.itemsize)
    return pa.Array.from_buffers(pa.binary(), len(values), [None, pa.py_buffer(offsets), pa.py_buffer(values)])


def _words(values: Array) -> Array:
    """Floats as uint64 whose lower bits differ too where only the upper ones of the floats do."""
    if values.dtype == np.float32:
        bits = values.view(np.uint32)
        return (bits ^ (bits >> np.uint32(16))).astype(np.uint64)
    bits = values.view(np.uint64)
    return bits ^ (bits >> np.uint64(32)) ^ (bits >> np.uint64(47))


def _mixed(values: Array) -> Array:
    """The last steps of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
