"""Opens a path on any file system that pyarrow or fsspec knows, for whatever reads or writes files outside Spark."""

from __future__ import annotations

import importlib
import os
import re
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyarrow import fs


def open_filesystem(uri: str) -> tuple[fs.FileSystem, str]:
    """The file system of a path or URI, and the path within it, without a slash at its end.

    Parameters
    ----------
    uri : str
        A local path, or a URI that pyarrow (file, hdfs, viewfs, s3, gs) or else fsspec (any other scheme) opens.

    Raises
    ------
    ValueError
        Neither opens it; the message says why and what to install.
    """
    parts = urlsplit(uri)
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        written = os.path.exists(parts.path)  # as Spark, which takes %20 for itself, may have made it
        return fs.LocalFileSystem(), (parts.path if written else unquote(parts.path)).rstrip("/")
    if "://" not in uri:
        return fs.LocalFileSystem(), os.path.abspath(os.path.expanduser(uri)).rstrip("/")
    try:
        filesystem, path = fs.FileSystem.from_uri(re.sub("^s3[an]:", "s3:", uri))  # Hadoop's names for S3
    except (pa.ArrowInvalid, NotImplementedError) as error:
        filesystem, path = _by_fsspec(uri, error)
    return filesystem, path.rstrip("/")


def _by_fsspec(uri: str, refusal: Exception) -> tuple[fs.FileSystem, str]:
    try:
        filesystem, path = importlib.import_module("fsspec.core").url_to_fs(uri)  # not a requirement of sparkdl
    except (ImportError, ValueError) as error:
        raise ValueError(
            f"{uri!r} is opened neither by pyarrow ({refusal}) nor by fsspec ({error}); give a local path, "
            "or install fsspec and its package for this scheme (s3fs, gcsfs, adlfs, ...)."
        ) from None
    return fs.PyFileSystem(fs.FSSpecHandler(filesystem)), path
