"""Operations of Keras that take positions of rows or move their axes; test_keras_in.py compares them with Keras."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("h5py")

from keras_writer import array, functional, operation, write  # noqa: E402

from sparkdl.interchange import load_keras  # noqa: E402
from sparkdl.layers.ragged import Ragged  # noqa: E402

STEPS = (3, 4)
I = array("i")  # noqa: E741
X = np.arange(24, dtype="float32").reshape(2, *STEPS)
ALL: dict[str, Any] = {"class_name": "__slice__", "config": {"start": None, "stop": None, "step": None}}
ELLIPSIS: dict[str, Any] = {"class_name": "__ellipsis__", "config": {}}


def read(path: Path, one: dict[str, Any], shape: tuple[int | None, ...] = STEPS) -> Any:
    model = functional([["o", 0, 0]], one)
    model["config"]["layers"][0]["config"]["batch_shape"] = [None, *shape]
    return load_keras(write(path / "a.keras", model))


def cut(start: int | None, stop: int | None, step: Any = None) -> dict[str, Any]:
    return {"class_name": "__slice__", "config": {"start": start, "stop": stop, "step": step}}


def item(*keys: Any) -> dict[str, Any]:
    return operation("GetItem", "o", I, list(keys))


READ = [
    (item(ALL, 0), X[:, 0]),
    (item(ALL, -1), X[:, -1]),
    (item(ALL, -2), X[:, -2]),
    (item(ALL, 1, ALL), X[:, 1]),
    (item(ALL, cut(1, None, 1)), X[:, 1:]),
    (item(ALL, cut(-2, -1), cut(None, 3)), X[:, -2:-1, :3]),
    (item(ELLIPSIS, cut(1, 3)), X[..., 1:3]),
    (item(ALL, ELLIPSIS, cut(1, 99)), X[..., 1:]),
    (operation("Mean", "o", I, axis=1, keepdims=False), X.mean(1)),
    (operation("Mean", "o", I, axis=[-2], keepdims=True), X.mean(1, keepdims=True)),
    (operation("Max", "o", I, axis=1, keepdims=False, initial=None), X.max(1)),
    (operation("Sum", "o", I, axis=1, keepdims=False), X.sum(1)),
    (operation("Flip", "o", I, axis=1), X[:, ::-1]),
    (operation("ExpandDims", "o", I, axis=2), X[:, :, None]),
    (operation("Transpose", "o", I, axes=[0, 2, 1]), X.transpose(0, 2, 1)),
    (operation("Stack", "o", [I, I], axis=1), np.stack([X, X], 1)),
]


@pytest.mark.parametrize(("one", "y"), READ, ids=[f"{one['class_name']} {n}" for n, (one, _) in enumerate(READ)])
def test_positions_of_rows_are_taken_and_moved(one: dict[str, Any], y: np.ndarray, tmp_path: Path) -> None:
    network, weights = read(tmp_path, one)
    np.testing.assert_allclose(network.forward(weights, X), y)


@pytest.mark.parametrize("one", [item(ALL, cut(0, 99), ELLIPSIS), operation("Cast", "o", I, dtype="float32")])
def test_what_changes_nothing_is_left_out(one: dict[str, Any], tmp_path: Path) -> None:
    model = functional([["end", 0, 0]], one, operation("Negative", "end", array("o")))
    model["config"]["layers"][0]["config"]["batch_shape"] = [None, *STEPS]
    network, weights = load_keras(write(tmp_path / "a.keras", model))
    assert network.names == ("end",)
    np.testing.assert_array_equal(network.forward(weights, X), -X)


def test_of_rows_of_any_length_the_last_step_is_their_own(tmp_path: Path) -> None:
    rows = Ragged(X, np.array([2, 3]))
    network, weights = read(tmp_path, item(ALL, -1), (None, 4))
    np.testing.assert_array_equal(network.forward(weights, rows), [X[0, 1], X[1, 2]])
    network, weights = read(tmp_path, operation("Mean", "o", I, axis=1, keepdims=False), (None, 4))
    np.testing.assert_allclose(network.forward(weights, rows), [X[0, :2].mean(0), X[1].mean(0)])


REFUSED = [
    (item(ALL, 3), STEPS, "GetItem called with"),
    (item(ALL, -4), STEPS, "GetItem called with"),
    (item(ALL, ALL, 0), STEPS, "GetItem called with"),
    (item(0), STEPS, "GetItem called with"),
    (item(cut(1, None)), STEPS, "GetItem called with"),
    (item(ALL, cut(None, None, -1)), STEPS, "GetItem called with"),
    (item(ALL, cut(None, None, 2)), STEPS, "GetItem called with"),
    (item(ALL, cut(2, 1)), STEPS, "GetItem called with"),
    (item(ALL, cut(None, "1")), STEPS, "GetItem called with"),
    (item(ALL, True), STEPS, "GetItem called with"),
    (item(ALL, None), STEPS, "GetItem called with"),
    (item(ALL, ALL, ALL, ALL), STEPS, "GetItem called with"),
    (operation("GetItem", "o", I, 0), STEPS, "GetItem called with"),
    (operation("GetItem", "o", I, [ALL, I]), STEPS, "GetItem called with"),
    (item(ALL, 0), (3,), "GetItem called with"),
    (item(ALL, 1), (None, 4), "GetItem called with"),
    (item(ALL, cut(1, None)), (None, 4), "GetItem called with"),
    (operation("Mean", "o", I, axis=None, keepdims=False), STEPS, "Mean called with"),
    (operation("Mean", "o", I, axis=2, keepdims=False), STEPS, "Mean called with"),
    (operation("Mean", "o", I, axis=[0, 1], keepdims=False), STEPS, "Mean called with"),
    (operation("Mean", "o", I, axis=1, keepdims=False), (4, 4, 2), "Mean called with"),
    (operation("Mean", "o", I, axis=1, keepdims=False), (3,), "Mean called with"),
    (operation("Mean", "o", I, axis="1"), STEPS, "axis must be integers"),
    (operation("Max", "o", I, axis=1, initial=0.0), STEPS, "initial must be None"),
    (operation("Sum", "o", I, axis=2), STEPS, "Sum called with"),
    (operation("Flip", "o", I, axis=2), STEPS, "Flip called with"),
    (operation("Flip", "o", I, axis=None), STEPS, "Flip called with"),
    (operation("Flip", "o", I, axis=0), STEPS, "Flip called with"),
    (operation("Flip", "o", I, axis=1), (3,), "Flip called with"),
    (operation("ExpandDims", "o", I, axis=0), STEPS, "ExpandDims called with"),
    (operation("ExpandDims", "o", I, axis=9), STEPS, "ExpandDims called with"),
    (operation("ExpandDims", "o", I, axis=-9), STEPS, "ExpandDims called with"),
    (operation("ExpandDims", "o", I, axis=1), (None, 4), "ExpandDims called with"),
    (operation("Squeeze", "o", I, axis=1), STEPS, "Squeeze called with"),
    (operation("Squeeze", "o", I, axis=[0]), STEPS, "Squeeze called with"),
    (operation("Squeeze", "o", I, axis=9), STEPS, "Squeeze called with"),
    (operation("Transpose", "o", I, axes=None), STEPS, "Transpose called with"),
    (operation("Transpose", "o", I, axes=[1, 0, 2]), STEPS, "Transpose called with"),
    (operation("Transpose", "o", I, axes=[0, 1, 1]), STEPS, "axes of Permute must hold each number"),
    (operation("Stack", "o", [I, I], axis=0), STEPS, "Stack called with"),
    (operation("Stack", "o", [I, I], axis=2), STEPS, "Stack called with"),
    (operation("Stack", "o", [I, 1.0], axis=1), STEPS, "Stack called with"),
    (operation("Cast", "o", I, dtype="int32"), STEPS, "Cast called with"),
    (operation("Cast", "o", I), STEPS, "Cast called with"),
]


@pytest.mark.parametrize(
    ("one", "shape", "told"), REFUSED, ids=[f"{n} {told}" for n, (_, _, told) in enumerate(REFUSED)]
)
def test_what_has_no_counterpart_is_named(one: Any, shape: Any, told: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=told) as refused:
        read(tmp_path, one, shape)
    assert "'o'" in str(refused.value)
