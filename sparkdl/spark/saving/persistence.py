"""Saving and loading: Spark ML's JSON metadata with a format version, and weights as Parquet rows; no pickle."""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from pyspark.errors import PySparkException
from pyspark.ml.util import MLReadable, MLReader, MLWritable, MLWriter
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from sparkdl.layers.base import Weights
from sparkdl.scoring.saved_stage import (
    FORMAT,
    METADATA_BYTES,
    check_metadata,
    explained,
    params_digest,
    read_metadata,
    short,
    verified_weights,
)
from sparkdl.scoring.weight_rows import SCHEMA, cut, digest, read_only
from sparkdl.weights import count_weights

TEXT_BYTES = 1 << 30  # more than any tokenizer's JSON has

Stage = TypeVar("Stage", bound=Any)


class StageWriter(MLWriter):
    """Writes a stage's Params and, if it has weights, those.

    Layout: `weights/` as Parquet rows (name string, dtype string, shape array<int>, part int, data binary): C order,
    little-endian, cut into parts; of a tokenizer `tokenizer/`, its JSON; then `metadata/`, one line of JSON as Spark ML
    writes it, with `sparkdlFormat`, `weightsDigest` of the arrays, `weightsFiles` with the SHA-256 of every file,
    `textDigest` of a tokenizer's JSON, and `paramsDigest` of the rest.
    Metadata come last, so that a save that failed cannot be loaded.
    """

    def __init__(self, instance: Any) -> None:
        super().__init__()
        self.instance = instance

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the stage at `path`, which must be empty or not there unless `overwrite()` was called.

        Raises
        ------
        FileExistsError
            There are files.
        ValueError
            The path holds what Spark takes for a pattern: brackets, braces or a backslash.
        """
        path = _plain(path)
        self.instance._weights_to_save()  # an error leaves what is there
        # Not by MLWriter: on Spark Connect, its overwrite needs a JVM that is not there (SPARK-55452).
        if self.shouldOverwrite:
            _clear(self.sparkSession, path)
        elif _files(self.sparkSession, path):
            raise FileExistsError(f"{path} already exists; save elsewhere, or with write().overwrite().save(path).")
        self.saveImpl(path)

    def saveImpl(self, path: str) -> None:
        session, stage = self.sparkSession, self.instance
        metadata = {
            "class": _class_name(type(stage)),
            "timestamp": int(time.time() * 1000),
            "sparkVersion": session.version,
            "uid": stage.uid,
            "paramMap": {param.name: value for param, value in stage._paramMap.items()},
            "defaultParamMap": {param.name: value for param, value in stage._defaultParamMap.items()},
            "sparkdlFormat": FORMAT,
        }
        weights = stage._weights_to_save()
        if weights is not None:
            for rows in cut(weights):
                # As rows: from Arrow, Spark cuts none where arrow.maxRecordsPerBatch is 0, "no limit".
                frame = session.createDataFrame(rows, from_arrow_schema(SCHEMA)).coalesce(1)
                frame.write.mode("append").option("compression", "none").parquet(f"{path}/weights")
            files = session.read.format("binaryFile").load(f"{path}/weights").selectExpr("path", "sha2(content, 256)")
            metadata["weightsDigest"] = digest(weights)
            metadata["weightsFiles"] = {file.rsplit("/", 1)[1]: hashed for file, hashed in files.collect()}
        if stage._text_folder:
            text = stage._saved_text()
            line = session.createDataFrame([(text,)], "value string").coalesce(1)
            line.write.option("compression", "none").text(f"{path}/{stage._text_folder}")
            metadata["textDigest"] = hashlib.sha256(text.encode()).hexdigest()
        metadata["paramsDigest"] = params_digest(metadata)
        line = session.createDataFrame([(json.dumps(metadata),)], "value string").coalesce(1)
        line.write.option("compression", "none").text(f"{path}/metadata")


class StageReader(MLReader[Stage]):
    """Reads what a StageWriter wrote."""

    def __init__(self, cls: type[Stage]) -> None:
        super().__init__()
        self.cls = cls

    def load(self, path: str | os.PathLike[str]) -> Stage:
        """The stage saved at `path`.

        Raises
        ------
        FileNotFoundError
            There is no saved stage.
        ValueError
            The directory holds another class, is of a newer format, or is damaged, or the path is none that `save`
            takes; the message says which.
        """
        session, path = self.sparkSession, _plain(path)
        metadata = _metadata(session, path)
        found, expected = metadata["class"], _class_name(self.cls)
        if found != expected:
            raise ValueError(f"{path} holds a {short(found)}, not a {expected}; load it with that class.")
        check_metadata(path, metadata)
        with explained(path):
            stage = self.cls()
            stage._resetUid(metadata["uid"])
            _set_each(stage, metadata["defaultParamMap"], lambda name, value: stage._setDefault(**{name: value}))
            _set_each(stage, metadata["paramMap"], lambda name, value: stage._set(**{name: value}))
        if "weightsDigest" in metadata:
            with explained(path):
                most = stage._most_bytes()
            weights = _weights(session, path, metadata, most)
            with explained(path):
                stage._restore(weights)
        if stage._text_folder:
            with explained(path):
                stage._restore_text(_text(session, f"{path}/{stage._text_folder}", metadata.get("textDigest")))
        return stage


class Saved(MLWritable, MLReadable[Any]):
    """Gives a stage write, save, read and load."""

    _weights: Weights | None = None
    _text_folder: ClassVar[str] = ""  # of a line of text that is saved with the Params, if there is one

    def write(self) -> StageWriter:
        """A writer, with save(path) and overwrite()."""
        return StageWriter(self)

    @classmethod
    def read(cls) -> StageReader[Any]:
        """A reader, with load(path)."""
        return StageReader(cls)

    def _most_bytes(self) -> float:
        """What the weights that were saved with the stage have at most."""
        return 8 * count_weights(self.getNetwork().abstract_weights())  # type: ignore[attr-defined]

    def _weights_to_save(self) -> Weights | None:
        """The weights that are saved with the stage."""
        return self._weights

    def _restore(self, weights: Weights) -> None:
        """Take the weights that were saved with the stage."""
        self.getNetwork().check_weights(weights)  # type: ignore[attr-defined]
        self._weights = read_only(weights)

    def _saved_text(self) -> str:
        """The line that is saved in `_text_folder`."""
        raise NotImplementedError(f"{type(self).__name__} has no text.")

    def _restore_text(self, text: str) -> None:
        """Take the line that was saved with the stage."""
        raise NotImplementedError(f"{type(self).__name__} has no text.")


def read_weights(path: str, session: SparkSession) -> Weights:
    """The weights of any stage of sparkdl that was saved with some.

    Raises
    ------
    FileNotFoundError
        There is no saved stage.
    ValueError
        The directory holds something else, is of a newer format, or is damaged; the message says which.
    """
    path = _plain(path)
    metadata = _metadata(session, path)
    kind = metadata["class"]
    if not kind.startswith("sparkdl.") or "weightsDigest" not in metadata:
        raise ValueError(f"{path} holds a {short(kind)} without weights of its own; name a saved DeepModel.")
    check_metadata(path, metadata)
    return _weights(session, path, metadata)


def read_file(session: SparkSession, path: str) -> bytes:
    """What is in a file on any filesystem that Spark reaches.

    Raises
    ------
    FileNotFoundError
        There is no such file.
    ValueError
        The path holds what Spark takes for a pattern, or there are several files in it.
    """
    found = _contents(session, _plain(path), "*", TEXT_BYTES)
    if not found:
        raise FileNotFoundError(
            f"{path} is not there, or not a file of at most {TEXT_BYTES >> 30} GiB; check the path."
        )
    if len(found) > 1:
        raise ValueError(f"it is a folder of {len(found)} files; name one of them")
    return found[0]


def _plain(path: str | os.PathLike[str]) -> str:
    """The path as text; ValueError if Spark would take it for a pattern of other paths."""
    text = os.fspath(path)
    found = sorted(set(text) & set("[]{}\\*?"))
    if found:
        raise ValueError(f"path must not hold {' '.join(found)}, which Spark reads as a pattern, received {text!r}.")
    return text


def _class_name(cls: type[Any]) -> str:
    return f"{cls.__module__}.{cls.__name__}"


def _clear(session: SparkSession, path: str) -> None:
    """Leave an empty directory: what Spark overwrites with no rows, on any filesystem and on Spark Connect."""
    nothing = session.range(0).selectExpr("id AS part", "'' AS value").write.mode("overwrite").partitionBy("part")
    nothing = nothing.option("partitionOverwriteMode", "static")
    nothing.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false").text(path)


def _files(session: SparkSession, path: str, pattern: str = "*") -> list[str]:
    """Names of the files in and below a directory; none if it is not there."""
    files = session.read.format("binaryFile").option("recursiveFileLookup", "true").option("pathGlobFilter", pattern)
    try:
        return sorted(uri.rsplit("/", 1)[1] for uri in files.load(path).inputFiles())
    except PySparkException as error:
        if "PATH_NOT_FOUND" in str(error):
            return []
        raise


def _contents(session: SparkSession, path: str, files: str, most: int = 1 << 31) -> list[bytes]:
    """What is in the files of a directory that have at most `most` bytes; empty if there are none.

    As bytes: Spark's own readers of text and Parquet decompress and allocate as a damaged file says, and the JVM ends
    when that is too much.
    """
    reader = session.read.format("binaryFile").option("recursiveFileLookup", "true").option("pathGlobFilter", files)
    try:
        rows = reader.load(path).where(f"length <= {most}").select("content").collect()
    except Exception as error:
        if "PATH_NOT_FOUND" in str(error):
            return []
        if not isinstance(error, PySparkException) and not hasattr(error, "java_exception"):  # py4j's own errors
            raise
        lines = [line.removeprefix(": ") for line in str(error).splitlines()]
        raise ValueError(next(line for line in lines if not line.startswith("An error occurred while"))) from None
    return [bytes(row.content) for row in rows]


def _metadata(session: SparkSession, path: str) -> dict[str, Any]:
    with explained(path):
        found = _contents(session, f"{path}/metadata", "part-*", METADATA_BYTES)
    return read_metadata(path, found)


def _set_each(stage: Any, values: dict[str, Any], setter: Callable[[str, Any], Any]) -> None:
    for name, value in values.items():
        if not stage.hasParam(name):
            raise ValueError(f"{type(stage).__name__} has no Param {name!r}; a newer sparkdl may have saved it.")
        setter(name, value)


def _weights(session: SparkSession, path: str, metadata: dict[str, Any], most: float = math.inf) -> Weights:
    folder = f"{path}/weights"
    return verified_weights(
        path,
        metadata,
        lambda: _files(session, folder, "*.parquet"),
        lambda name: b"".join(_contents(session, f"{folder}/{name}", "*")),
        most,
    )


def _text(session: SparkSession, folder: str, expected: str | None) -> str:
    found = _contents(session, folder, "part-*", TEXT_BYTES)
    if len(found) != 1:
        raise ValueError(f"there should be one file in {folder}, received {len(found)}.")
    content = found[0].removesuffix(b"\n")
    if hashlib.sha256(content).hexdigest() != expected:
        raise ValueError(f"the file in {folder} is not as it was saved.")
    return content.decode()
