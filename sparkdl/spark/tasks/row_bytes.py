"""The pass over the rows before a fit's shuffle: whatever the columns' types, equal values become equal bytes.

Worker, order and arithmetic of a fit depend on these bytes alone, so that arrays, Vectors, bytes and images of the same
values train to the same weights, bit for bit. Loaded on workers that need neither JAX nor the stages.
"""

from __future__ import annotations

import functools
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from sparkdl.arrays import Array
from sparkdl.decoding.columns import (
    decode_features,
    decode_flags,
    decode_weights,
    distinct,
    split_error,
)
from sparkdl.decoding.labels import LabelPart, decode_labels
from sparkdl.decoding.layout import KINDS, VALID, Decoded, Layout, check_rows
from sparkdl.decoding.names import quoted
from sparkdl.decoding.ragged_rows import RaggedRows
from sparkdl.spark.tasks.collector import spare_modules
from sparkdl.spark.tasks.environment import bound_threads

PART_BYTES = 8 << 20  # of features that are decoded at a time
REMEDY = "mend or drop such rows, or set handleInvalid to skip"


@dataclass(frozen=True)
class FeaturesPart:
    """A part of the features.

    Attributes
    ----------
    layout : Layout
    dtype : str
        Of its values on the way to the device: uint8, int32, float32 or float64.
    files : bool
        Whether its binary column stays the files that it holds; they are decoded here too, to be checked and for their
        keys.
    """

    layout: Layout
    dtype: str
    files: bool = False


@dataclass(frozen=True)
class Intake:
    """What the workers know of the rows to come.

    Attributes
    ----------
    features : dict of FeaturesPart
        By name.
    labels : dict of LabelPart
        By name.
    weight, validation : str
        The user's names of these columns; "" without one.
    skip : bool
        Whether rows that cannot be used are left out, instead of refused.
    """

    features: dict[str, FeaturesPart]
    labels: dict[str, LabelPart]
    weight: str = ""
    validation: str = ""
    skip: bool = False

    @property
    def parts(self) -> list[str]:
        """Names of the binary columns of prepared rows, as `Rows.each` has them."""
        return [*(f"features/{name}" for name in self.features), *(f"labels/{name}" for name in self.labels)]

    @property
    def schema(self) -> str:
        """Of prepared rows, as Spark reads it."""
        columns = ["key bigint", *(f"{quoted(name)} binary" for name in self.parts)]
        return ", ".join([*columns, "weight double", "validation boolean", "note string"])


def prepared(batches: Iterator[pa.RecordBatch], intake: Intake) -> Iterator[pa.RecordBatch]:
    """Rows of any column types as rows of `intake.schema`; what is wrong as a last row, a note, lest Spark try again.

    A note is JSON: `error`, a sentence; or `skipped`, rows by kind of what was wrong, `split`, by part of the features
    all `Decoded.widths` that there are, and `cut`, by part of the features rows that lost steps.
    """
    bound_threads()
    skipped, cut = Counter[str](), Counter[str]()
    splits: dict[str, set[tuple[int, ...]]] = {name: set() for name in intake.features}
    row = sum(part.layout.width * np.dtype(part.dtype).itemsize for part in intake.features.values())
    size = max(1, PART_BYTES // max(1, row))
    try:
        for batch in batches:
            for first in range(0, batch.num_rows, size):
                yield _rows(batch.slice(first, size), intake, skipped, splits, cut)
    except ValueError as error:
        for _ in batches:  # Spark keeps a Python worker, and what it has loaded, only if it has read all of its input
            pass
        yield _note({"error": str(error)}, intake)
    else:
        if skipped or cut or any(splits.values()):
            split = {name: sorted(found) for name, found in splits.items()}
            yield _note({"skipped": dict(skipped), "split": split, "cut": dict(cut)}, intake)
    spare_modules()


def row_keys(features: Iterable[tuple[Any, str]], numbers: Array) -> Array:
    """(n,) of int64: a hash of each row's values, not of their dtype.

    Parameters
    ----------
    features : iterable of (array (n, width) or RaggedRows, str)
        Every part with a dtype: that of its values, which are without -0.0; of uint8 the one that they are hashed as.
    numbers : array (n, k)
        Further float64 values of the rows, without -0.0.
    """
    words = [_words_of(values, dtype) for values, dtype in features]
    words.append(_words(numbers))
    ends = np.cumsum([each.shape[1] for each in words])
    factors = _factors(int(ends[-1]))
    sums = [each @ own for each, own in zip(words, np.split(factors, ends[:-1]), strict=True)]
    return _mixed(functools.reduce(np.add, sums)).view(np.int64)


def merged_notes(texts: list[str], intake: Intake) -> dict[str, int]:
    """The rows skipped, by kind, of all notes; ValueError for the first of their errors."""
    notes = [json.loads(text) for text in texts]
    errors = sorted(note["error"] for note in notes if "error" in note)
    if errors:
        raise ValueError(errors[0])
    for name, part in intake.features.items():
        splits = {tuple(split) for note in notes for split in note["split"][name]}
        if len(splits) > 1:
            raise ValueError(split_error(part.layout, splits))
    return dict(sum((Counter(note["skipped"]) for note in notes), Counter()))


def cut_rows(texts: list[str]) -> dict[str, int]:
    """By part of the features the rows that lost steps to `Layout.max_length`, of all notes; none is an error."""
    return dict(sum((Counter(json.loads(text)["cut"]) for text in texts), Counter()))


def _rows(
    batch: pa.RecordBatch,
    intake: Intake,
    skipped: Counter[str],
    splits: dict[str, set[tuple[int, ...]]],
    cut: Counter[str],
) -> pa.RecordBatch:
    read: dict[str, pa.Array] = {}  # by the user's names
    features, labels, others = {}, {}, []
    for name, part in intake.features.items():
        columns = feature_columns(batch, name, part.layout)
        read |= zip(part.layout.names, columns, strict=True)
        features[name] = decode_features(columns, part.layout)
    for name, label in intake.labels.items():
        read[label.column] = batch.column(f"labels/{name}")
        labels[name] = decode_labels(read[label.column], label, features)
    if intake.weight:
        read[intake.weight] = batch.column("weight")
        others.append(decode_weights(batch.column("weight"), intake.weight))
    if intake.validation:
        read[intake.validation] = batch.column("validation")
        others.append(decode_flags(batch.column("validation"), intake.validation))
    parts = [*features.values(), *labels.values(), *others]
    status = check_rows(parts, read, None if intake.skip else REMEDY)
    good = status == VALID
    skipped.update(KINDS[code] for code in status[~good])
    for name, decoded in features.items():
        if decoded.widths is not None:
            splits[name].update(map(tuple, distinct(decoded.widths[good]).tolist()))
        if decoded.cut and (count := int((decoded.cut.lengths > decoded.values.lengths)[good].sum())):
            cut[name] += count

    def kept(decoded: Decoded) -> Any:
        """(rows, ...) of those that are good; no -0.0, which sparse Vectors cannot hold."""
        values = decoded.values if good.all() else decoded.values[good]
        if isinstance(values, RaggedRows):
            return RaggedRows(_without_sign(values.values), values.lengths)
        return _without_sign(values)

    rest = iter(map(kept, others))
    weights = next(rest) if intake.weight else np.ones(int(good.sum()))
    validation = next(rest) if intake.validation else np.zeros(len(weights), bool)
    values = {name: _flat(kept(decoded)) for name, decoded in features.items()}
    targets = {name: _flat(kept(decoded)) for name, decoded in labels.items()}
    of_steps = [array for array in targets.values() if isinstance(array, RaggedRows)]
    of_rows = [array for array in targets.values() if not isinstance(array, RaggedRows)]
    numbers = np.concatenate([*of_rows, weights[:, None], validation[:, None]], axis=1)
    hashed = [(values[name], part.layout.dtype) for name, part in intake.features.items()]
    hashed += [(array, "float64") for array in of_steps]
    stored = {name: _binary(array) for name, array in values.items()}
    for name, part in intake.features.items():
        if part.files:
            stored[name] = read[part.layout.names[0]].filter(pa.array(good)).cast(pa.binary())
    return pa.RecordBatch.from_pydict(
        {"key": pa.array(row_keys(hashed, numbers))}
        | {f"features/{name}": column for name, column in stored.items()}
        | {f"labels/{name}": _binary(array) for name, array in targets.items()}
        | {"weight": pa.array(weights), "validation": pa.array(validation), "note": pa.nulls(len(weights), pa.string())}
    )


def feature_columns(batch: pa.RecordBatch, part: str, layout: Layout) -> list[pa.Array]:
    """The columns of which a part of the features is made, as `columns.py` names them."""
    return [batch.column(f"features/{part}/{at}") for at in range(len(layout.names))]


def _note(content: Mapping[str, Any], intake: Intake) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {"key": pa.array([0], pa.int64())}  # of all notes, so that one worker knows them all
        | {name: pa.array([b""]) for name in intake.parts}
        | {"weight": pa.array([0.0]), "validation": pa.array([False]), "note": pa.array([json.dumps(content)])}
    )


def _without_sign(values: Array) -> Array:
    return values + values.dtype.type(0) if values.dtype.kind == "f" else values  # -0.0 + 0.0 is 0.0


def _flat(values: Any) -> Any:
    if isinstance(values, RaggedRows):
        return values
    return values.reshape(len(values), math.prod(values.shape[1:]))


def _binary(values: Any) -> pa.Array:
    """(n, width), or rows of any length, as a binary column around the same memory."""
    if isinstance(values, RaggedRows):
        return values.column
    values = np.ascontiguousarray(values)
    offsets = np.arange(len(values) + 1, dtype=np.int32) * np.int32(values.shape[1] * values.itemsize)
    return pa.Array.from_buffers(pa.binary(), len(values), [None, pa.py_buffer(offsets), pa.py_buffer(values)])


def _words_of(values: Any, dtype: str) -> Array:
    """(n, width) of a part's values; (n, 1) of rows of any length."""
    if isinstance(values, RaggedRows):
        width = math.prod(values.values.shape[1:])
        words, factors = _words(_flat(values.values)), _factors(values.longest * width).reshape(-1, width)
        sums = np.append(np.uint64(0), np.cumsum((words * factors[values.places]).sum(axis=1, dtype=np.uint64)))
        ends = values.starts + values.lengths  # uint64 wraps, so that differences of sums are those of rows
        return _mixed(sums[ends] - sums[values.starts] + _mixed(values.lengths.astype(np.uint64)))[:, None]
    return _words(np.arange(256, dtype=dtype))[values] if values.dtype == np.uint8 else _words(values)


def _factors(count: int) -> Array:
    """Odd numbers by place."""
    return _mixed(np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)) | np.uint64(1)


def _words(values: Array) -> Array:
    """Numbers as uint64 whose lower bits differ too where only the upper ones of the numbers do."""
    if values.dtype.itemsize == 4:
        bits = values.view(np.uint32)
        return (bits ^ (bits >> np.uint32(16))).astype(np.uint64)
    bits = values.view(np.uint64)
    return bits ^ (bits >> np.uint64(32)) ^ (bits >> np.uint64(47))


def _mixed(values: Array) -> Array:
    """The last steps of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
