"""Networks with their weights in files of ONNX, which other runtimes score rows by."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from sparkdl.base_network import BaseNetwork
from sparkdl.interchange.onnx_extra import require_onnx
from sparkdl.layers.base import Weights

LARGEST = 2_000_000_000  # bytes of arrays within a file, which as one message of protobuf ends at 2 GiB


def save_onnx(path: str | os.PathLike[str], network: BaseNetwork, weights: Weights, opset: int = 17) -> None:
    """Write a network and its weights to a file of ONNX, for inference; needs onnx, as of sparkdl-jax[onnx].

    The file appears whole or not at all, in place of what was there.

    Parameters
    ----------
    path : str or path
        Where the arrays have more than 2 GB they go into a file beside it, of its name and ".data", which readers look
        for there. That of a file which is replaced goes with it, and no other.
    network : Network or Graph
    weights : dict of dict of arrays
    opset : int, default 17
        Version of the operators; see `to_onnx` of networks, which tells of inputs and outputs, too.

    Raises
    ------
    ImportError
        The package onnx is missing.
    OSError
        The file cannot be written.
    ValueError
        The weights are not those of the network, `opset` is out of range, or a layer cannot be written.
    """
    model, path = network.to_onnx(weights, opset), Path(path)
    beside = path.with_name(f"{path.name}.data")
    large = sum(len(array.raw_data) for array in model.graph.initializer) > LARGEST
    given = {"save_as_external_data": True, "location": beside.name} if large else {}
    stale = not large and beside.exists() and _keeps_arrays_in(path, beside.name)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f"{path.name}.partial") as folder:
        partial = Path(folder, path.name)
        require_onnx().save_model(model, partial, **given)
        if large:
            made = partial.with_name(beside.name)
            shutil.copymode(partial, made)  # which onnx lets its owner alone read
            os.replace(made, beside)
        os.replace(partial, path)
    if stale:
        beside.unlink()


def _keeps_arrays_in(path: Path, name: str) -> bool:
    """Whether there is a file of ONNX that keeps arrays in the one of this name beside it."""
    try:
        graph = require_onnx().load_model(path, load_external_data=False).graph
    except Exception:  # protobuf's own, of which more than one kind, or the system's
        return False
    entries = [entry for tensor in graph.initializer for entry in tensor.external_data]
    return any((entry.key, entry.value) == ("location", name) for entry in entries)
