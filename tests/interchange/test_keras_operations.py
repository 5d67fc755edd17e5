"""Operations between the layers of a model of Keras, which are read, or named where they cannot be."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("h5py")

from keras_writer import array, functional, layer, operation, write  # noqa: E402

from sparkdl.interchange import load_keras  # noqa: E402
from sparkdl.interchange.keras_in.described import all_described, groups_of  # noqa: E402
from sparkdl.layers import Layer, Mish, Multiply, Relu, Reshape, Scale, Shift  # noqa: E402
from sparkdl.layers.ragged import as_ragged  # noqa: E402

X = np.array([[1, -2, 3], [0, 1, -1]], "float32")
NN, ACTIVATIONS = "keras.src.ops.nn", "keras.src.activations.activations"
I = array("i")  # noqa: E741


def read(path: Path, *layers: dict[str, Any], shape: tuple[int | None, ...] = (3,)) -> Any:
    """A model of one input that ends in the last of the layers."""
    model = functional([[layers[-1]["name"], 0, 0]], *layers)
    model["config"]["layers"][0]["config"]["batch_shape"] = [None, *shape]
    return load_keras(write(path / "a.keras", model))


def scalar(value: Any, kind: str = "__tensor__") -> dict[str, Any]:
    return {"class_name": kind, "config": {"value": value, "dtype": "float32"}}


READ: list[tuple[dict[str, Any], tuple[Layer, ...], Any]] = [
    (operation("Subtract", "o", 1.0, I), (Scale(-1.0), Shift(1.0)), 1 - X),
    (operation("Subtract", "o", I, 1.0), (Shift(-1.0),), X - 1),
    (operation("Subtract", "o", 0, I), (Scale(-1.0),), -X),
    (operation("Add", "o", 2, I), (Shift(2.0),), X + 2),
    (operation("Multiply", "o", I, 2.0), (Scale(2.0),), 2 * X),
    (operation("Multiply", "o", I, scalar(2.0)), (Scale(2.0),), 2 * X),
    (operation("Multiply", "o", scalar(2.0, "__numpy__"), I), (Scale(2.0),), 2 * X),
    (operation("TrueDivide", "o", I, 4), (Scale(0.25),), X / 4),
    (operation("Divide", "o", I, -4.0, module="keras.ops"), (Scale(-0.25),), X / -4),
    (operation("Negative", "o", I), (Scale(-1.0),), -X),
    (operation("Power", "o", I, 2), (Multiply(),), X**2),
    (operation("Maximum", "o", 0.0, I), (Relu(),), np.maximum(X, 0)),
    (operation("Relu", "o", I, module="keras.ops.nn"), (Relu(),), np.maximum(X, 0)),
    (operation("Mish", "o", I, module=ACTIVATIONS), (Mish(),), X * np.tanh(np.log1p(np.exp(X)))),
    (operation("Reshape", "o", I, newshape=[-1, 3, 1]), (Reshape((3, 1)),), X[..., None]),
    (operation("Reshape", "o", I, newshape=[None, -1, 1]), (Reshape((-1, 1)),), X[..., None]),
]  # fmt: skip


@pytest.mark.parametrize(("one", "wanted", "y"), READ, ids=[f"{one['class_name']} {want}" for one, want, _ in READ])
def test_an_operation_becomes_layers(
    one: dict[str, Any], wanted: tuple[Layer, ...], y: np.ndarray, tmp_path: Path
) -> None:
    network, weights = read(tmp_path, one)
    assert tuple(replace(leaf.layer, name=None) for leaf in network.leaves()) == wanted
    np.testing.assert_allclose(network.forward(weights, X), y, rtol=1e-6, atol=1e-7)


def test_an_operation_without_a_module_is_known_by_its_config(tmp_path: Path) -> None:
    """As `.h5` files of Keras 3 have it."""
    less = operation("Subtract", "less", 1.0, I, module=None)
    network, weights = read(tmp_path, less, operation("Softmax", "end", array("less"), module=None, axis=-1))
    np.testing.assert_allclose(network.forward(weights, X).sum(1), 1, rtol=1e-6)
    with pytest.raises(ValueError, match="Layer 'o' is the operation Exp, which has no counterpart here"):
        read(tmp_path, operation("Exp", "o", I, module=None))
    with pytest.raises(ValueError, match=r"Layer 'o' is a mine>Exp of its own, whose code would have to run"):
        read(tmp_path, operation("mine>Exp", "o", I, module=None))


def test_what_changes_nothing_is_left_out(tmp_path: Path) -> None:
    kinds = [("Multiply", 1.0), ("Add", 0), ("Subtract", 0.0), ("TrueDivide", 1), ("Power", 1)]
    names = ["i", *(kind.lower() for kind, _ in kinds)]
    steps = [operation(kind, kind.lower(), array(before), by) for (kind, by), before in zip(kinds, names, strict=False)]
    last = operation("Concatenate", "one", [array("power")], axis=-1)
    network, _ = read(tmp_path, *steps, last, operation("Negative", "end", array("one")))
    assert network.names == ("end",)


def test_what_an_operation_puts_out_is_read_twice(tmp_path: Path) -> None:
    half, both = operation("TrueDivide", "half", I, 2), operation("Multiply", "both", array("half"), array("half"))
    network, weights = read(tmp_path, half, both, operation("Subtract", "less", array("both"), array("half")))
    np.testing.assert_allclose(network.forward(weights, X), X / 2 * X / 2 - X / 2)


def test_one_operation_called_with_two_numbers_does_both(tmp_path: Path) -> None:
    twice = operation("Multiply", "times", I, 2.0)
    twice["inbound_nodes"].append({"args": [I, 3.0], "kwargs": {}})
    second = {"class_name": "__keras_tensor__", "config": {"keras_history": ["times", 1, 0]}}
    network, weights = read(tmp_path, twice, operation("Subtract", "less", array("times"), second))
    np.testing.assert_allclose(network.forward(weights, X), -X)


def test_rows_of_any_length_are_scaled(tmp_path: Path) -> None:
    less, squared = operation("Subtract", "less", 1, I), operation("Power", "squared", array("less"), 2)
    network, weights = read(tmp_path, less, squared, shape=(None, 3))
    rows = np.stack([X, -X, X + 1])
    y = network.forward(weights, as_ragged(rows))
    np.testing.assert_allclose(y.values, (1 - rows) ** 2)


def test_operations_are_not_counted_among_the_groups_of_layers() -> None:
    """As Keras names the groups of a model's layers alone."""
    steps = [operation("Softmax", "a", I, module=NN), layer("Softmax", "b"), operation("Softmax", "c", I, module=NN)]
    assert groups_of(all_described([*steps, layer("Softmax", "d")])) == {"b": "softmax", "d": "softmax_1"}


PLAIN = r"which has no counterpart here; put layers of Keras in its place that have one, and save the model again"
REFUSED: list[tuple[dict[str, Any], str]] = [
    (operation("Exp", "o", I), f"Layer 'o' is the operation Exp, {PLAIN}"),
    (operation("Dense", "o", I), f"the operation Dense, {PLAIN}"),
    (operation("Functional", "o", I, layers=[]), f"the operation Functional, {PLAIN}"),
    (operation("Sequential", "o", I, layers=[]), f"the operation Sequential, {PLAIN}"),
    (operation("Power", "o", I, 0.5), rf"Layer 'o' is the operation Power called with \(array, 0.5\), {PLAIN}"),
    (operation("Power", "o", 2, I), rf"the operation Power called with \(2, array\), {PLAIN}"),
    (operation("TrueDivide", "o", 1.0, I), rf"the operation TrueDivide called with \(1.0, array\), {PLAIN}"),
    (operation("TrueDivide", "o", I, I), r"TrueDivide called with \(array, array\), which"),
    (operation("TrueDivide", "o", I, 0), r"TrueDivide called with \(array, 0\), which"),
    (operation("TrueDivide", "o", I, 1e-320), r"TrueDivide called with \(array, 1e-320\), which"),
    (operation("Maximum", "o", I, 1.0), r"Maximum called with \(array, 1.0\), which"),
    (operation("Maximum", "o", I, False), r"Maximum called with \(array, False\), which"),
    (operation("Minimum", "o", I, 0.0), r"Minimum called with \(array, 0.0\), which"),
    (operation("Add", "o", I, math.nan), r"Add called with \(array, nan\), which"),
    (operation("Multiply", "o", math.inf, I), r"Multiply called with \(inf, array\), which"),
    (operation("Multiply", "o", I, 10**400), r"Multiply called with \(array, 10000"),
    (operation("Multiply", "o", I, True), r"Multiply called with \(array, True\), which"),
    (operation("Add", "o", I, [1.0]), r"Add called with \(array, \[1.0\]\), which"),
    (operation("Add", "o", I, scalar([1.0, 2.0, 3.0])), r"Add called with \(array, \[1.0, 2.0, 3.0\]\), which"),
    (operation("Add", "o", 1.0, 2.0), "Layer 'o' .Add. is called with nothing"),
    (operation("Add", "o", I, 1.0, 2.0), r"Add called with \(array, 1.0, 2.0\), which"),
    (operation("Add", "o", I, I, 2.0), r"Add called with \(array, array, 2.0\), which"),
    (operation("Add", "o", I), r"Add called with \(array\), which"),
    (operation("Add", "o", I, kwargs={"x2": 1.0}), r"Add called with \(array, x2=1.0\), which"),
    (operation("Add", "o", I, I, kwargs={"key": I}), r"Add called with \(array, array, key=array\), which"),
    (operation("Add", "o", I, kwargs={"x2": I}), "Layer 'o' .Add. is called with x2"),
    (operation("Relu", "o", I, 0.5, module=NN), r"Relu called with \(array, 0.5\), which"),
    (operation("Relu", "o", I, kwargs={"x": False}, module=NN), r"Relu called with \(array, x=False\), which"),
    (operation("Relu", "o", I, slope=0.5, module=NN), "slope must be left out, received 0.5"),
    (operation("ReLU", "o", I, max_value=-1.0, module=ACTIVATIONS), "low and high of HardTanh"),
    (operation("LeakyRelu", "o", I, negative_slope="x", module=NN), "negative_slope must be a number, received 'x'"),
    (operation("Celu", "o", I, alpha=0.0, module=NN), r"Layer 'o' \(Celu\): alpha of Celu must be a finite number"),
    (operation("Gelu", "o", I, approximate="x", module=NN), "approximate must be True or False, received 'x'"),
    (operation("Softmax", "o", I, axis=0, module=NN), "axis must be the last one, -1, received 0"),
    (operation("LogSoftmax", "o", I, axis=[0, 1], module=NN), r"axis must be the last one, -1, received \[0, 1\]"),
    (operation("Concatenate", "o", [I, I], axis=0), "axis must be the last one, -1, received 0"),
    (operation("Concatenate", "o", [I, I]), "axis must be the last one, -1, received 0"),
    (operation("Concatenate", "o", [I, 1.0], axis=-1), r"Concatenate called with \(\[array, 1.0\]\), which"),
    (operation("Concatenate", "o", I, axis=-1), r"Concatenate called with \(array\), which"),
    (operation("Reshape", "o", I, newshape=[2, 3]), r"newshape must be -1 for the batch and then the shape of a row"),
    (operation("Reshape", "o", I, newshape=-1), "newshape must be -1 for the batch"),
    (operation("Reshape", "o", I, newshape=[-1, -1]), "newshape must be -1 for the batch"),
    (operation("Reshape", "o", I, newshape=[None, True]), "newshape must be -1 for the batch"),
    (operation("Reshape", "o", I, newshape=[-1, 1]), r"Layer 'o' \(Reshape\): Reshape to \(1,\) expects as many"),
    (operation("Add", "o", I, 1.0, module="mine.ops"), "Layer 'o' is a Add of mine.ops, whose code would have to run"),
    (operation("Lambda", "o", I), "Layer 'o' is a Lambda of keras.src.ops.numpy, whose code would have to run"),
    (
        operation("Add", "o", I, 1.0) | {"registered_name": "mine>Add"},
        "Layer 'o' is a Add of keras.src.ops.numpy, whose code would have to run",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("one", "told"), REFUSED, ids=[told for _, told in REFUSED])
def test_an_operation_without_a_counterpart_is_named(one: dict[str, Any], told: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=told):
        read(tmp_path, one)


@pytest.mark.parametrize("one", [operation("Softmax", "o", I, module=NN), operation("Concatenate", "o", [I], axis=-1)])
def test_the_axis_of_rows_is_no_last_one(one: dict[str, Any], tmp_path: Path) -> None:
    one["config"]["axis"] = -1
    with pytest.raises(ValueError, match="axis must be one of a row, which is a single number here, received -1"):
        read(tmp_path, one, shape=())


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (
            {"args": [I, 2.0], "kwargs": {}},
            r"Layer 'it' \(ReLU\) is called with 2.0, for which there is no counterpart",
        ),
        ({"args": [None, I], "kwargs": {}}, r"Layer 'it' \(ReLU\) is called with None, for which there is no"),
        ({"args": [I], "kwargs": {"key": [I, 2.0]}}, r"Layer 'it' \(ReLU\): key of a call must be one array alone"),
        ([["i", 0, 0, {}], ["_CONSTANT_VALUE", -1, 2.0, {}]], r"Layer 'it' \(ReLU\) is called with 2.0, for which"),
    ],
)
def test_a_constant_that_a_layer_is_given_is_not_left_out(call: Any, told: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=told):
        read(tmp_path, layer("ReLU") | {"name": "it", "inbound_nodes": [call]})


def test_what_is_off_behind_the_arrays_of_a_layer_changes_nothing(tmp_path: Path) -> None:
    call = {"args": [I, None, False], "kwargs": {"mask": None}}
    network, weights = read(tmp_path, layer("ReLU") | {"name": "it", "inbound_nodes": [call]})
    np.testing.assert_array_equal(network.forward(weights, X), np.maximum(X, 0))
