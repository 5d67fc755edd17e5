"""Reads the files of a saved stage where there is no Spark, on any file system of pyarrow or fsspec."""

from __future__ import annotations

import math
import os
from fnmatch import fnmatch
from typing import Any

from pyarrow import fs

from sparkdl.file_systems import open_filesystem
from sparkdl.layers.base import Weights
from sparkdl.scoring.saved_stage import METADATA_BYTES, explained, read_metadata, verified_weights


class StageFiles:
    """The files in a folder that Spark has written, without those that Spark hides.

    Parameters
    ----------
    filesystem : pyarrow.fs.FileSystem
    path : str
        Within the file system.
    shown : str
        The folder as messages name it.
    """

    def __init__(self, filesystem: fs.FileSystem, path: str, shown: str) -> None:
        self._filesystem, self._path, self.shown = filesystem, path, shown

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> StageFiles:
        """Those of a local path or a URI; ValueError if nothing opens it."""
        shown = os.fspath(path)
        return cls(*open_filesystem(shown), shown.rstrip("/"))

    def folder(self, name: str) -> StageFiles:
        """Those of a folder within."""
        return StageFiles(self._filesystem, f"{self._path}/{name}", f"{self.shown}/{name}")

    def metadata(self) -> dict[str, Any]:
        """The metadata of the stage.

        Raises
        ------
        FileNotFoundError
            There are none.
        ValueError
            They are damaged, or cannot be read.
        """
        with explained(self.shown):
            files = self._files("metadata", "part-*", METADATA_BYTES)
            found = [self._content(path) for path in files]
        return read_metadata(self.shown, found)

    def weights(self, metadata: dict[str, Any], most: float = math.inf) -> Weights:
        """The weights of a stage with these metadata, of at most so many bytes; ValueError if they are damaged."""
        return verified_weights(
            self.shown,
            metadata,
            lambda: [path.rsplit("/", 1)[1] for path in self._files("weights", "*.parquet")],
            lambda name: b"".join(map(self._content, self._files("weights", name))),
            most,
        )

    def _files(self, folder: str, pattern: str, most: float = math.inf) -> list[str]:
        selected = fs.FileSelector(f"{self._path}/{folder}", allow_not_found=True, recursive=True)
        return sorted(
            info.path
            for info in self._filesystem.get_file_info(selected)
            if info.type == fs.FileType.File
            and not info.base_name.startswith((".", "_"))
            and fnmatch(info.base_name, pattern)
            and info.size <= most
        )

    def _content(self, path: str) -> bytes:
        with self._filesystem.open_input_file(path) as file:
            return file.read()  # type: ignore[no-any-return]
