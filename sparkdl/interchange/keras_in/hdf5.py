"""Arrays and texts of an HDF5 file, without following what it points to and without being led to large memory."""

from __future__ import annotations

import io
import math
import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from sparkdl.arrays import Array
from sparkdl.interchange.keras_in.heaps import damaged_heap

TEXT_BYTES = 1 << 26  # of the longest text, or table of names, that is read
TEXTS = 1 << 16  # in an attribute; HDF5 has room for as many bytes
ROOM, EXPANSION = 1 << 20, 100  # an array may have this many bytes, and this many times those that the file has of it
FILTERS = (1, 2, 3)  # of HDF5 itself: deflate, shuffle, Fletcher's checksum; others are plug-ins
DTYPES = ("float16", "float32", "float64")


class Damaged(Exception):
    """What is wrong with a file, as the middle of a sentence."""


def require_h5py() -> Any:
    """The package h5py, an extra; ImportError where it is missing."""
    try:
        import h5py
    except ImportError:
        raise ImportError("Files of Keras need the package h5py; pip install 'sparkdl-jax[keras]'.") from None
    return h5py


class Hdf5:
    """An open file.

    Parameters
    ----------
    root : h5py.File
    """

    def __init__(self, root: Any) -> None:
        self._h5py, self._root = require_h5py(), root

    def __contains__(self, path: str) -> bool:
        try:
            self._at(path)
        except Damaged:
            return False
        return True

    def array(self, path: str) -> Array:
        """The floats of a dataset, those of half precision as float32.

        Raises
        ------
        Damaged
            There is none, it lies in another file, or it is of another kind or larger than what the file has of it.
        """
        found = self._at(path)
        if not isinstance(found, self._h5py.Dataset):
            raise Damaged(f"{path!r} is no array")
        if found.external or found.is_virtual:
            raise Damaged(f"{path!r} lies in another file")
        plan = found.id.get_create_plist()
        if any(plan.get_filter(index)[0] not in FILTERS for index in range(plan.get_nfilters())):
            raise Damaged(f"{path!r} is packed by a plug-in of HDF5")
        brain = found.dtype == np.dtype("V2") and found.attrs.get("dtype") == "bfloat16"
        if not brain and found.dtype.newbyteorder("=") not in map(np.dtype, DTYPES):
            raise Damaged(f"{path!r} is of {found.dtype}, where floats are expected")
        size, stored = math.prod(found.shape) * found.dtype.itemsize, found.id.get_storage_size()
        if size > ROOM + EXPANSION * stored:
            raise Damaged(f"{path!r} of shape {found.shape} would take {size} bytes, of which {stored} are there")
        array = np.asarray(found[()])
        if brain:
            return (array.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
        return array.astype(np.promote_types(array.dtype.newbyteorder("="), np.float32))

    def text(self, path: str, name: str) -> str | None:
        """An attribute of a group; None if there is none."""
        value = self._attribute(path, name)
        if value is None:
            return None
        text = value.decode() if isinstance(value, bytes) else value
        if not isinstance(text, str) or len(text) > TEXT_BYTES:
            raise Damaged(f"its attribute {name!r} is no text of at most {TEXT_BYTES} characters")
        return text

    def names(self, path: str, name: str) -> list[str]:
        """An attribute of a group that holds texts; a long one is cut into `name`0, `name`1, and so on."""
        parts = [self._attribute(path, name)]
        if parts[0] is None:
            parts = list(self._pieces(path, name))
        values = [value for part in parts for value in np.asarray(part).reshape(-1)]
        texts = [value.decode() if isinstance(value, bytes) else value for value in values]
        if not all(isinstance(text, str) for text in texts):
            raise Damaged(f"{name!r} of {path!r} holds what is no text")
        return texts

    def _pieces(self, path: str, name: str) -> Iterator[Any]:
        index = 0
        while (piece := self._attribute(path, f"{name}{index}")) is not None:
            yield piece
            index += 1

    def _attribute(self, path: str, name: str) -> Any:
        attributes = self._at(path).attrs
        if name not in attributes:
            return None
        found = attributes.get_id(name)
        count = math.prod(found.shape or ())
        if count > TEXTS or count * found.dtype.itemsize > TEXT_BYTES:
            raise Damaged(f"its attribute {name!r} has {count} texts of {found.dtype.itemsize} bytes")
        return attributes[name]

    def _at(self, path: str) -> Any:
        """A group or dataset, step by step from the root and never by a link."""
        place = self._root
        for part in path.split("/") if path else []:
            if part in ("", ".", ".."):
                raise Damaged(f"it has the name {path!r}, which leads elsewhere")
            if not isinstance(place, self._h5py.Group) or part not in place:
                raise Damaged(f"it lacks {path!r}")
            if not isinstance(place.get(part, getlink=True), self._h5py.HardLink):
                raise Damaged(f"{path!r} is a link")
            place = place[part]
        return place


@contextmanager
def opened(source: bytes | str) -> Iterator[Hdf5]:
    """An HDF5 file, given its bytes or its path; Damaged where HDF5 says that it is."""
    h5py = require_h5py()
    if _leads_nowhere(source):
        raise Damaged("it has a heap of texts that leads nowhere")
    try:
        with h5py.File(io.BytesIO(source) if isinstance(source, bytes) else source, "r") as root:
            yield Hdf5(root)
    except (OSError, RuntimeError, KeyError, TypeError, UnicodeDecodeError, OverflowError, MemoryError) as error:
        raise Damaged(f"HDF5 cannot read it ({str(error).splitlines()[0] if str(error) else type(error)})") from None


def _leads_nowhere(source: bytes | str) -> bool:
    if isinstance(source, bytes):
        return damaged_heap(source)
    with open(source, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        return damaged_heap(mapped)
