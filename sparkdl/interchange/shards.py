"""Weights in several safetensors files that an index lists, as Hugging Face's libraries cut large models."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from sparkdl.arrays import Array
from sparkdl.tensor_file import read_tensors

INDEX = ".safetensors.index.json"
MOST_BYTES = 1 << 26  # of an index, which has some hundred for an array


def read_arrays(path: str | os.PathLike[str]) -> Mapping[str, Array]:
    """The arrays of a safetensors file, or of the files beside an index that it lists, mapped to memory.

    Raises
    ------
    OSError
        A file is not there or cannot be read.
    ValueError
        One is no safetensors file, or damaged, or holds other arrays than the index says.
    """
    path = os.fspath(path)
    if os.path.isdir(path):
        names = [name for name in sorted(os.listdir(path)) if name.endswith((".safetensors", INDEX))]
        named = next((name for name in names if name.endswith(INDEX)), ", ".join(names) or "a safetensors file")
        raise IsADirectoryError(f"{path!r} is a folder; name the file in it that holds the weights, {named}.")
    if not path.endswith(INDEX):
        return read_tensors(path).arrays
    files, arrays = _files(path), dict[str, Array]()
    for file in sorted(set(files.values())):
        found = read_tensors(os.path.join(os.path.dirname(path), file)).arrays
        listed = {name for name, place in files.items() if place == file}
        if strange := sorted(found.keys() ^ listed):
            raise ValueError(
                f"{path!r} does not fit {file!r}: {strange[0]!r} is in only one of them; take the model's files anew."
            )
        arrays |= found
    return arrays


def _files(path: str) -> dict[str, str]:
    """By array the name of the file that holds it, in the folder of the index."""
    with open(path, "rb") as file:
        content = file.read(MOST_BYTES + 1)
    try:
        index = json.loads(content) if len(content) <= MOST_BYTES else None
    except (ValueError, RecursionError):
        index = None
    files = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(files, dict) or not files or not all(isinstance(name, str) for name in files.values()):
        raise ValueError(f"{path!r} is no index of safetensors files: it has no weight_map of names to files.")
    outside = [name for name in files.values() if os.path.basename(name) != name or not name.endswith(".safetensors")]
    if outside:
        raise ValueError(f"{path!r} lists {outside[0]!r}, which is no safetensors file in its folder; do not trust it.")
    return files
