"""Files of ONNX made of a few lines of its text form, and what onnxruntime computes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")


def written(
    path: Path,
    inputs: str,
    body: str,
    constants: dict[str, Any] | None = None,
    outputs: str = "float[] y",
    opset: int = 17,
) -> Path:
    """A file of a graph; its constants are arrays, or shapes of such that are drawn."""
    draw = np.random.default_rng(0)
    graph = onnx.parser.parse_graph(f"g ({inputs}) => ({outputs}) {{ {body} }}")
    for name, given in (constants or {}).items():
        array = draw.uniform(0.1, 0.9, given).astype("float32") if isinstance(given, tuple) else np.asarray(given)
        graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    opsets = [onnx.helper.make_opsetid("", opset)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


def computed(path: Path, *arrays: Any) -> list[np.ndarray[Any, Any]]:
    """What onnxruntime makes of the file's inputs."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return session.run(None, dict(zip([given.name for given in session.get_inputs()], arrays, strict=True)))


def rows(sizes: tuple[int, ...], below: int = 0) -> np.ndarray[Any, Any]:
    """Numbers for an input, or integers below a number."""
    draw = np.random.default_rng(1)
    return draw.integers(0, below, sizes) if below else draw.normal(size=sizes).astype("float32")


def channels_last(array: Any) -> Any:
    """An array of theirs as ours has it, if it is of images."""
    return np.moveaxis(array, 1, -1) if np.ndim(array) > 3 else array
