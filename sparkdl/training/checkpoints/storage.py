"""One folder on any file system, with atomic writes, so that checkpoints need not know where they lie."""

from __future__ import annotations

import contextlib
import os
import queue
import re
import secrets
import socket
import threading
import time
import zlib
from collections.abc import Callable, Sequence
from typing import TypeVar

from pyarrow import fs

from sparkdl.file_systems import open_filesystem

Value = TypeVar("Value")
Bytes = bytes | memoryview

# Names with a leading dot are hidden from Spark and Hadoop too. They tell the writer: its machine and its process id.
TEMPORARY = re.compile(r"\.sparkdl-(?:([0-9a-f]{8})-(\d+)-[0-9a-f]{12}|.+)\.tmp")
LEFT_SECONDS = 86_400.0  # since a file was last written to by one of another machine, after which it is taken for dead
# An object appears whole or not at all when its upload ends, and renaming it would be a copy.
OBJECT_STORES = {"s3", "gcs"}


class Folder:
    """The files directly in one folder of a pyarrow file system.

    Errors are those of the file system: OSError as a rule, and whatever the package behind fsspec raises.

    Parameters
    ----------
    filesystem : pyarrow.fs.FileSystem
    path : str
        Within the file system; created if it is not there.
    """

    def __init__(self, filesystem: fs.FileSystem, path: str) -> None:
        self._filesystem, self._folder = filesystem, path
        filesystem.create_dir(path, recursive=True)

    def read(self, name: str) -> bytes:
        """All bytes of a file."""
        # Not as a stream, which is read in pieces of 256 KiB, for each of which an object store is asked anew.
        with self._filesystem.open_input_file(self._path(name)) as file:
            return file.read()

    def write(self, name: str, *parts: Bytes) -> None:
        """Put a file of these parts in place as a whole, over one of that name: others see all of it or none of it.

        Raises
        ------
        OSError
            The file system acknowledged it but does not have all of it, or the file system's own.
        """
        self._place(name, parts)
        info = self._filesystem.get_file_info(self._path(name))
        if info.type == fs.FileType.NotFound:
            raise OSError(f"the file system acknowledged {name}, which is not there")
        size = sum(map(len, parts))
        if info.size is not None and info.size != size:
            raise OSError(f"the file system acknowledged {name}, but holds {info.size} of its {size} bytes")

    def names(self) -> list[str]:
        """Names of the files, sorted, without temporary ones."""
        return [name for name in self._list(fs.FileType.File) if not TEMPORARY.fullmatch(name)]

    def folders(self) -> list[str]:
        """Names of the folders in this one, sorted."""
        return self._list(fs.FileType.Directory)

    def folder(self, name: str) -> Folder:
        """A folder in this one, created if it is not there."""
        return type(self)(self._filesystem, self._path(name))

    def exists(self, name: str) -> bool:
        """Whether there is a file of that name."""
        return self._filesystem.get_file_info(self._path(name)).type == fs.FileType.File

    def remove(self, name: str) -> None:
        """Delete a file."""
        self._filesystem.delete_file(self._path(name))

    def tidy(self) -> None:
        """Delete the temporary files that writers left who were killed, and none of one that may be writing still."""
        for info in self._filesystem.get_file_info(fs.FileSelector(self._folder)):
            if (temporary := TEMPORARY.fullmatch(info.base_name)) and _is_left(temporary, info.mtime_ns):
                with contextlib.suppress(FileNotFoundError):  # it was writing still, or another one tidies too
                    self.remove(info.base_name)

    def _place(self, name: str, parts: Sequence[Bytes]) -> None:
        if self._filesystem.type_name in OBJECT_STORES:
            self._put(self._path(name), parts)
            return
        temporary = self._path(temporary_name())
        try:
            self._put(temporary, parts)
            self._move(temporary, self._path(name))
        except BaseException:
            with contextlib.suppress(Exception):
                self._filesystem.delete_file(temporary)
            raise

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}"

    def _list(self, kind: fs.FileType) -> list[str]:
        found = self._filesystem.get_file_info(fs.FileSelector(self._folder))
        return sorted(info.base_name for info in found if info.type == kind)

    def _put(self, path: str, parts: Sequence[Bytes]) -> None:
        with self._filesystem.open_output_stream(path, compression=None) as stream:
            for part in parts:
                stream.write(part)

    def _move(self, source: str, target: str) -> None:
        self._filesystem.move(source, target)


class LocalFolder(Folder):
    """A folder of this machine, whose files are on the disk before they get their names."""

    def _put(self, path: str, parts: Sequence[Bytes]) -> None:
        with open(path, "wb") as file:
            file.writelines(parts)
            file.flush()
            os.fsync(file.fileno())

    def _move(self, source: str, target: str) -> None:
        os.replace(source, target)
        folder = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(folder)  # else a power cut may undo the renaming
        finally:
            os.close(folder)


def open_folder(uri: str) -> Folder:
    """Open a folder, and create it if it is not there.

    Parameters
    ----------
    uri : str
        A local path, or a URI that pyarrow (file, hdfs, viewfs, s3, gs) or else fsspec (any other scheme) opens.

    Raises
    ------
    ValueError
        Neither opens it; the message says why and what to install.
    """
    filesystem, path = open_filesystem(uri)
    return (LocalFolder if isinstance(filesystem, fs.LocalFileSystem) else Folder)(filesystem, path)


def temporary_name() -> str:
    """A new name that `names` hides, and `tidy` deletes once this process is gone."""
    return f".sparkdl-{_place()}-{os.getpid()}-{secrets.token_hex(6)}.tmp"


def _is_left(temporary: re.Match[str], written: int | None) -> bool:
    """Whether nobody writes a temporary file any more, by its name and when it was last written to, in ns."""
    place, process = temporary.groups()
    if place == _place():
        return not _is_alive(int(process))
    return written is not None and time.time() - written / 1e9 > LEFT_SECONDS


def _place() -> str:
    """Eight digits of the machine, or of the part of it that has process ids of its own."""
    name = socket.gethostname()
    with contextlib.suppress(OSError):
        name += os.readlink("/proc/self/ns/pid")
    return f"{zlib.crc32(name.encode()):08x}"


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # somebody else's
        return True
    return True


def within(seconds: float, function: Callable[[], Value]) -> Value:
    """`function()`, given up after some time: a file system that cannot be reached may block for ever.

    Raises
    ------
    TimeoutError
        It gave no answer; its daemon thread is left behind.
    """
    answers: queue.SimpleQueue[Value | Exception] = queue.SimpleQueue()

    def run() -> None:
        try:
            answers.put(function())
        except Exception as error:
            answers.put(error)

    threading.Thread(target=run, name="storage", daemon=True).start()
    try:
        answer = answers.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError(f"the file system gave no answer within {seconds:g} s") from None
    if isinstance(answer, Exception):
        raise answer
    return answer
