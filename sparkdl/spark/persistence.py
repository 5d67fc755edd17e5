"""Saving and loading: Spark ML's JSON metadata with a format version, and weights as Parquet rows; no pickle."""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from pyspark.ml.util import DefaultParamsReader, DefaultParamsWriter, MLReadable, MLReader, MLWritable, MLWriter
from pyspark.sql import SparkSession

from sparkdl.layers.base import Weights
from sparkdl.network import named_arrays, nested_weights

FORMAT = 1  # of the directory
PART_BYTES = 4 << 20  # of one Parquet cell

Stage = TypeVar("Stage", bound=Any)


class StageWriter(MLWriter):
    """Writes a stage's Params and, if it has weights, those.

    Layout: `metadata/` as Spark ML writes it, with `sparkdlFormat` and `weightsDigest`; `weights/` as Parquet rows
    (name string, dtype string, shape array<int>, part int, data binary): C order, little-endian, cut into parts.
    """

    def __init__(self, instance: Any) -> None:
        super().__init__()
        self.instance = instance

    def saveImpl(self, path: str) -> None:
        weights = getattr(self.instance, "_weights", None)
        extra: dict[str, Any] = {"sparkdlFormat": FORMAT}
        if weights is not None:
            extra["weightsDigest"] = _digest(weights)
        session = self.sparkSession
        DefaultParamsWriter.saveMetadata(self.instance, path, session, extraMetadata=extra)
        if weights is not None:
            table = _table(weights)
            session.createDataFrame(table).coalesce(1).write.parquet(f"{path}/weights")


class StageReader(MLReader[Stage]):
    """Reads what a StageWriter wrote."""

    def __init__(self, cls: type[Stage]) -> None:
        super().__init__()
        self.cls = cls

    def load(self, path: str) -> Stage:
        """The stage saved at `path`.

        Raises
        ------
        ValueError
            The directory holds another class, is of a newer format, or is damaged; the message says which.
        """
        session = self.sparkSession
        metadata = DefaultParamsReader.loadMetadata(path, session)
        expected = f"{self.cls.__module__}.{self.cls.__name__}"
        if metadata["class"] != expected:
            raise ValueError(f"{path} holds a {metadata['class']}, not a {expected}; load it with that class.")
        _check_format(path, metadata)
        stage = self.cls()
        stage._resetUid(metadata["uid"])
        DefaultParamsReader.getAndSetParams(stage, metadata)
        if "weightsDigest" in metadata:
            stage._restore(_verified(session, path, metadata))
        return stage


class Saved(MLWritable, MLReadable[Any]):
    """Gives a stage write, save, read and load."""

    _weights: Weights | None

    def write(self) -> StageWriter:
        """A writer, with save(path) and overwrite()."""
        return StageWriter(self)

    @classmethod
    def read(cls) -> StageReader[Any]:
        """A reader, with load(path)."""
        return StageReader(cls)

    def _restore(self, weights: Weights) -> None:
        """Take the weights that were saved with the stage."""
        self.getNetwork().check_weights(weights)  # type: ignore[attr-defined]
        self._weights = weights


def read_weights(path: str, session: SparkSession) -> Weights:
    """The weights of any stage of sparkdl that was saved with some.

    Raises
    ------
    ValueError
        The directory holds something else, is of a newer format, or is damaged; the message says which.
    """
    metadata = DefaultParamsReader.loadMetadata(path, session)
    if not metadata["class"].startswith("sparkdl.") or "weightsDigest" not in metadata:
        raise ValueError(f"{path} holds a {metadata['class']} without weights of its own; name a saved DeepModel.")
    _check_format(path, metadata)
    return _verified(session, path, metadata)


def _check_format(path: str, metadata: dict[str, Any]) -> None:
    version = metadata.get("sparkdlFormat")
    if version != FORMAT:
        raise ValueError(f"{path} is in format {version}, this sparkdl reads format {FORMAT}; upgrade sparkdl.")


def _verified(session: SparkSession, path: str, metadata: dict[str, Any]) -> Weights:
    weights = _weights(session, path)
    if _digest(weights) != metadata["weightsDigest"]:
        raise ValueError(f"The weights in {path} are not those that were saved; the directory is damaged.")
    return weights


def _table(weights: Weights) -> pa.Table:
    rows = []
    for name, array in named_arrays(weights):
        data = _little_endian(array).tobytes()
        for part in range(max(1, math.ceil(len(data) / PART_BYTES))):
            piece = data[part * PART_BYTES : (part + 1) * PART_BYTES]
            rows.append(
                {"name": name, "dtype": array.dtype.name, "shape": list(array.shape), "part": part, "data": piece}
            )
    schema = pa.schema(
        [
            ("name", pa.string()),
            ("dtype", pa.string()),
            ("shape", pa.list_(pa.int32())),
            ("part", pa.int32()),
            ("data", pa.binary()),
        ]
    )
    return pa.Table.from_pylist(rows, schema)


def _weights(session: SparkSession, path: str) -> Weights:
    rows = session.read.parquet(f"{path}/weights").toArrow().to_pylist()
    pieces: dict[str, list[dict[str, Any]]] = {}
    for row in sorted(rows, key=lambda row: row["part"]):
        pieces.setdefault(row["name"], []).append(row)
    arrays = {}
    for name in sorted(pieces):
        first = pieces[name][0]
        data = b"".join(piece["data"] for piece in pieces[name])
        kind = np.dtype(first["dtype"])
        if kind.kind not in "fiu" or len(data) != kind.itemsize * math.prod(first["shape"]):
            raise ValueError(f"Weight {name!r} in {path} is damaged: its bytes do not fill {first['shape']} {kind}.")
        arrays[name] = np.frombuffer(data, kind.newbyteorder("<")).astype(kind).reshape(first["shape"])
    return nested_weights(arrays)


def _digest(weights: Weights) -> str:
    """SHA-256 over names, dtypes, shapes and bytes."""
    digest = hashlib.sha256()
    for name, array in sorted(named_arrays(weights), key=lambda item: item[0]):
        digest.update(json.dumps([name, array.dtype.name, list(array.shape)]).encode())
        digest.update(_little_endian(array).tobytes())
    return digest.hexdigest()


def _little_endian(array: Any) -> np.ndarray[Any, Any]:
    return np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False)
