"""Both containers of Keras, the zip of version 3 and the HDF5 file of those before: a configuration, and arrays."""

from __future__ import annotations

import json
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sparkdl.arrays import Array
from sparkdl.interchange.keras_in.hdf5 import EXPANSION, ROOM, TEXT_BYTES, Damaged, Hdf5, opened
from sparkdl.interchange.keras_in.part import Variable

METADATA, CONFIG, WEIGHTS = "metadata.json", "config.json", "model.weights.h5"
LAYERS = "model_weights"  # in a file before version 3


@dataclass(frozen=True)
class KerasFile:
    """An open file.

    Attributes
    ----------
    config : dict
        Of the model, as Keras serializes it.
    version : int
        Of the Keras that wrote it, its first number.
    hdf5 : Hdf5
    zipped : bool
        Whether it is of the format `.keras`.
    """

    config: dict[str, Any]
    version: int
    hdf5: Hdf5
    zipped: bool

    def arrays(self, variables: Sequence[Variable]) -> Iterator[tuple[Variable, str, Array]]:
        """The array of every variable of a model, and its path in the file."""
        for variable, path in self._by_place(variables) if self.zipped else self._by_layer(variables):
            if variable.ours:
                yield variable, path, self.hdf5.array(path)

    def _by_place(self, variables: Sequence[Variable]) -> Iterator[tuple[Variable, str]]:
        """Keras 3 numbers the variables of a layer."""
        seen = Counter[str]()
        for variable in variables:
            place = next((place for place in variable.places if place in self.hdf5), variable.places[0])
            yield variable, f"{place}/vars/{seen[place]}"
            seen[place] += 1

    def _by_layer(self, variables: Sequence[Variable]) -> Iterator[tuple[Variable, str]]:
        """Keras 2 names them, by layers of the model; those that learn come first."""
        by_layer: dict[str, list[Variable]] = {}
        for variable in variables:
            by_layer.setdefault(variable.layer, []).append(variable)
        for layer, own in by_layer.items():
            own.sort(key=lambda variable: not variable.learned)
            names = self.hdf5.names(f"{LAYERS}/{layer}", "weight_names")
            kinds = [name.rpartition("/")[2].partition(":")[0] for name in names]
            if len(kinds) != len(own) or not all(
                kind.startswith(variable.name) for kind, variable in zip(kinds, own, strict=True)
            ):
                wanted = ", ".join(variable.name for variable in own)
                raise Damaged(f"layer {layer!r} has the arrays {', '.join(names) or 'none'}, not {wanted}")
            yield from ((variable, f"{LAYERS}/{layer}/{name}") for variable, name in zip(own, names, strict=True))


@contextmanager
def open_keras(path: str) -> Iterator[KerasFile]:
    """A file of Keras, by what it begins with and not by its name.

    Raises
    ------
    OSError
        The file is not there or cannot be read.
    Damaged
        It is no such file, or holds no model, or more than it has bytes for.
    """
    with open(path, "rb") as file:
        magic = file.read(8)
        if magic[:4] == b"PK\x03\x04":
            with opened(_member(file, WEIGHTS)) as hdf5:
                config, metadata = (_parsed(_member(file, name), name) for name in (CONFIG, METADATA))
                yield KerasFile(config, _major(metadata.get("keras_version")), hdf5, zipped=True)
        elif magic == b"\x89HDF\r\n\x1a\n":
            with opened(path) as hdf5:
                text = hdf5.text("", "model_config")
                if text is None:
                    raise Damaged("it holds weights without a model, so write the whole by model.save(...)")
                config = _parsed(text.encode(), "model_config")
                version = hdf5.text("", "keras_version") or hdf5.text(LAYERS, "keras_version")
                yield KerasFile(config, _major(version), hdf5, zipped=False)
        else:
            raise Damaged("it is neither a zip nor an HDF5 file")


def _member(file: Any, name: str) -> bytes:
    """A file of the zip, read to memory and never written anywhere."""
    try:
        with zipfile.ZipFile(file) as archive:
            found = Counter(info.filename for info in archive.infolist())
            if outside := [own for own in found if own.startswith("/") or "\\" in own or ".." in own.split("/")]:
                raise Damaged(f"its zip has the name {outside[0]!r}, which leads elsewhere")
            if found[name] != 1:
                raise Damaged(f"its zip has {found[name] or 'no'} files {name!r}, where Keras writes one")
            info = archive.getinfo(name)
            if info.file_size > ROOM + EXPANSION * info.compress_size:
                raise Damaged(f"{name!r} would take {info.file_size} bytes, of which {info.compress_size} are there")
            if name != WEIGHTS and info.file_size > TEXT_BYTES:
                raise Damaged(f"{name!r} has {info.file_size} bytes, more than {TEXT_BYTES}")
            if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise Damaged(f"{name!r} is packed by method {info.compress_type}, where Keras packs by none")
            return archive.read(name)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        raise Damaged(f"its zip cannot be read ({error})") from None


def _parsed(text: bytes, name: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise Damaged(f"{name!r} is no JSON") from None
    if not isinstance(found, dict):
        raise Damaged(f"{name!r} is no JSON object")
    return found


def _major(version: Any) -> int:
    first = str(version or "").partition(".")[0]
    if not first.isdecimal() or len(first) > 3:
        raise Damaged(f"it tells no version of Keras, but {version!r}")
    return int(first)
