"""Writes small files as Keras does, to be damaged: a dense layer, or any layers, without Keras."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np

KERNEL = np.arange(6, dtype="float32").reshape(3, 2)
ARRAYS = {"layers/dense/vars/0": KERNEL, "layers/dense/vars/1": np.array([1, -1], "float32")}
VERSION = {"keras_version": "3.15.1"}


def layer(kind: str, name: str = "it", **options: Any) -> dict[str, Any]:
    """As Keras 3 writes it."""
    config = {"name": name, "trainable": True, "dtype": "float32", **options}
    return {"module": "keras.layers", "class_name": kind, "config": config, "registered_name": None}


def sequential(*layers: dict[str, Any], shape: tuple[int | None, ...] = (3,)) -> dict[str, Any]:
    start = layer("InputLayer", "input_layer", batch_shape=[None, *shape])
    config = {"name": "sequential", "trainable": True, "layers": [start, *layers]}
    return {"module": "keras", "class_name": "Sequential", "config": config, "registered_name": None}


def functional(outputs: list[Any], *layers: dict[str, Any], name: str = "whole") -> dict[str, Any]:
    """A model of one input, "i"."""
    start = layer("InputLayer", "i", batch_shape=[None, 3]) | {"name": "i", "inbound_nodes": []}
    config = {"name": name, "layers": [start, *layers], "input_layers": [["i", 0, 0]], "output_layers": outputs}
    return {"module": "keras", "class_name": "Functional", "config": config, "registered_name": None, "name": name}


def array(name: str) -> dict[str, Any]:
    """What a layer of a functional model puts out, as Keras 3 writes it."""
    return {"class_name": "__keras_tensor__", "config": {"shape": [None, 3], "keras_history": [name, 0, 0]}}


def operation(
    kind: str, name: str, *args: Any, module: str | None = "keras.src.ops.numpy", kwargs: Any = None, **options: Any
) -> dict[str, Any]:
    """An operation of `keras.ops` in a functional model, called once."""
    called = {"inbound_nodes": [{"args": list(args), "kwargs": kwargs or {}}]}
    home = {"module": module, "class_name": kind, "registered_name": kind}
    return home | {"name": name, "config": {"name": name, **options}} | called


MODEL = sequential(layer("Dense", "dense", units=2, use_bias=True, activation="linear"))


def hdf5(arrays: dict[str, Any] = ARRAYS) -> bytes:
    """The weights within a `.keras` file."""
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        for path, array in arrays.items():
            file[path] = array
    return buffer.getvalue()


def write(path: Path, model: Any = MODEL, weights: bytes | None = None, **members: Any) -> Path:
    """A `.keras` file; of further `members`, None leaves one out."""
    files = {
        "metadata.json": json.dumps(VERSION),
        "config.json": json.dumps(model),
        "model.weights.h5": hdf5() if weights is None else weights,
        **members,
    }
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            if data is not None:
                archive.writestr(name, data)
    return path


def write_older(path: Path, model: Any, arrays: dict[str, dict[str, np.ndarray]], version: str = "2.15.0") -> Path:
    """An `.h5` file, by layer the arrays that are to be under its name."""
    with h5py.File(path, "w") as file:
        file.attrs["model_config"] = json.dumps(model)
        file.attrs["keras_version"] = version
        group = file.create_group("model_weights")
        group.attrs["layer_names"] = [name.encode() for name in arrays]
        for name, own in arrays.items():
            group.create_group(name).attrs["weight_names"] = [weight.encode() for weight in own]
            for weight, array in own.items():
                group[name][weight] = array
    return path
