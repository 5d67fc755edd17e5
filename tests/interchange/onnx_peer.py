"""onnxruntime as the peer of networks that are written as ONNX: the same rows, and what both make of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime

from sparkdl.base_network import BaseNetwork
from sparkdl.layers import Ragged
from sparkdl.layers.ragged import is_ragged
from sparkdl.weights import named_arrays, nested_weights

LENGTHS = (4, 0, 2)


class Rows(NamedTuple):
    """Rows as our networks read them, and by the names of the inputs of ONNX."""

    x: Any
    fed: dict[str, np.ndarray]


def random_weights(network: BaseNetwork) -> Any:
    """Weights none of which is like another, and variances above 0; kernels of many inputs are smaller."""
    draw = np.random.default_rng(3)

    def drawn(path: str, shape: tuple[int, ...]) -> np.ndarray:
        if path.endswith("variance"):
            return draw.uniform(0.5, 1.5, shape)
        return draw.uniform(-1, 1.2, shape) / max(1.0, np.sqrt(np.prod(shape[:-1])) / 2)

    arrays = named_arrays(network.abstract_weights())
    return nested_weights({path: drawn(path, array.shape).astype("float32") for path, array in arrays})


def rows_of(network: BaseNetwork, lengths: Sequence[int] = LENGTHS, steps: int = 5) -> Rows:
    """As many rows as there are lengths, which those of any length have, with numbers in the padding, too."""
    draw, parts, fed = np.random.default_rng(5), [], {}
    for name, shape in network.input_shapes.items():
        size = (len(lengths), steps, *shape[1:]) if is_ragged(shape) else (len(lengths), *shape)
        if name in network.integers:
            few = draw.integers(0 if name in network.limits else -2, network.limits.get(name, 9), size, "int32")
            any_ = draw.integers(-(2**31), 2**31, size, "int64").astype("int32")
            values = few if name in network.limits else np.where(draw.random(size) < 0.5, few, any_)
            fed[name] = values.astype("int64")
        else:
            fed[name] = values = draw.normal(size=size).astype("float32")
        if is_ragged(shape):
            values, fed[f"{name}_lengths"] = Ragged(values, np.array(lengths, "int32")), np.array(lengths, "int64")
        parts.append(values)
    return Rows(parts[0] if len(parts) == 1 else tuple(parts), fed)


def session_of(model: Any) -> Any:
    """A session of onnxruntime, in which a model runs that onnx's checker found valid."""
    onnx.checker.check_model(model, full_check=True)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options)


def assert_same(found: Any, wanted: Any) -> None:
    """Equal to 1e-5 of the largest number, or of 1, but for the padding of rows of any length."""
    if isinstance(wanted, Ragged):
        valid = np.asarray(wanted.valid)
        assert found.shape == wanted.values.shape
        found, wanted = found[valid], np.asarray(wanted.values)[valid]
    wanted = np.asarray(wanted)
    assert found.shape == wanted.shape
    assert (found.dtype.kind, wanted.dtype.kind) in {("f", "f"), ("i", "i")}
    largest = float(np.abs(wanted).max(initial=1))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 * largest)


def assert_equal(network: BaseNetwork, opset: int = 17) -> None:
    """Every output of the network is that of the model made of it."""
    weights, rows = random_weights(network), rows_of(network)
    found = session_of(network.to_onnx(weights, opset)).run(list(network.output_names), rows.fed)
    wanted = network.forward(weights, rows.x)
    for one, other in zip(found, wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
        assert_same(one, other)
