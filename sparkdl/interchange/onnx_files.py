"""Networks with their weights in files of ONNX, which other runtimes score rows by."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from sparkdl.base_network import BaseNetwork
from sparkdl.interchange.onnx_extra import require_onnx
from sparkdl.layers.base import Weights

LARGEST = 2_000_000_000  # bytes of arrays within a file, which as one message of protobuf ends at 2 GiB


def save_onnx(path: str | os.PathLike[str], network: BaseNetwork, weights: Weights, opset: int = 17) -> None:
    """Write a network and its weights to a file of ONNX, for inference; needs onnx, as of sparkdl-jax[onnx].

    Parameters
    ----------
    path : str or path
        Where the arrays have more than 2 GB they go into a file beside it, of its name and ".data", which readers look
        for there.
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
    beside.unlink(missing_ok=True)  # else onnx adds to what is there
    large = sum(len(array.raw_data) for array in model.graph.initializer) > LARGEST
    given = {"save_as_external_data": True, "location": beside.name} if large else {}
    require_onnx().save_model(model, path, **given)
    if large:
        shutil.copymode(path, beside)  # which onnx lets its owner alone read
