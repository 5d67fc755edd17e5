"""Recurrent operators of ONNX files compute what onnxruntime computes of them, in all directions."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from onnx_graphs import computed, rows, written

from sparkdl.interchange import load_onnx
from sparkdl.layers import Ragged

pytestmark = pytest.mark.usefixtures("unoptimized")

UNITS, INPUTS, ROWS, STEPS = 3, 4, 3, 5
BLOCKS = {"LSTM": 4, "GRU": 3, "RNN": 1}
MORE = {"GRU": "linear_before_reset=1, "}
DIRECTIONS = ("forward", "reverse", "bidirectional")


def weights(kind: str, ways: int = 1) -> dict[str, Any]:
    return {
        "w": (ways, BLOCKS[kind] * UNITS, INPUTS),
        "r": (ways, BLOCKS[kind] * UNITS, UNITS),
        "b": (ways, 2 * BLOCKS[kind] * UNITS),
    }


@pytest.mark.parametrize(("kind", "direction"), [*product(BLOCKS, DIRECTIONS)])
def test_all_steps_and_the_last_state(kind: str, direction: str, tmp_path: Path) -> None:
    """As written by PyTorch: steps first within, with a transpose before and one behind."""
    ways = 2 if direction == "bidirectional" else 1
    body = (
        "t = Transpose<perm=[1, 0, 2]>(x) o, h = "
        f'{kind}<hidden_size={UNITS}, {MORE.get(kind, "")}direction="{direction}">(t, w, r, b) '
        "q = Transpose<perm=[0, 2, 1, 3]>(o) m = Reshape(q, every) y = Transpose<perm=[1, 0, 2]>(m) "
        "p = Transpose<perm=[1, 0, 2]>(h) z = Reshape(p, last)"
    )
    shapes = {"every": np.array([0, 0, -1]), "last": np.array([0, -1])}
    path = written(tmp_path / "a.onnx", "float[N, 5, 4] x", body, weights(kind, ways) | shapes, "float[] y, float[] z")
    x = rows((ROWS, STEPS, INPUTS))
    network, found = load_onnx(path)
    for y, expected in zip(network.forward(found, jnp.asarray(x)), computed(path, x), strict=True):
        np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("kind", "direction"), [*product(BLOCKS, DIRECTIONS)])
def test_a_last_state_that_is_an_output_itself(kind: str, direction: str, tmp_path: Path) -> None:
    """As PyTorch writes of a layer alone, which gives all steps and the states."""
    body = f'y, h = {kind}<hidden_size={UNITS}, {MORE.get(kind, "")}direction="{direction}">(x, w, r, b)'
    given = weights(kind, 2 if direction == "bidirectional" else 1)
    path = written(tmp_path / "a.onnx", "float[5, N, 4] x", body, given, "float[] y, float[] h")
    x = rows((STEPS, ROWS, INPUTS))
    network, found = load_onnx(path)
    every, last = network.forward(found, jnp.asarray(x.swapaxes(0, 1)))
    all_steps, states = computed(path, x)
    ways_last = np.moveaxis(all_steps, (0, 2), (-1, 0))  # (rows, ways, units, steps)
    np.testing.assert_allclose(every, ways_last, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(last, states.swapaxes(0, 1), rtol=1e-5, atol=1e-5)


CASES = {
    "gru that resets before": ("GRU", "", weights("GRU")),
    "relu": ("RNN", 'activations=["Relu"], ', weights("RNN")),
    "hard gates": ("LSTM", 'activations=["HardSigmoid", "Softsign", "Softsign"], ', weights("LSTM")),
    "gates of sixths": (
        "GRU",
        'activations=["HardSigmoid", "Affine"], activation_alpha=[0.16666667, 1.0], activation_beta=[0.5, 0.0], ',
        weights("GRU"),
    ),
    "without biases": ("LSTM", "", {name: shape for name, shape in weights("LSTM").items() if name != "b"}),
    "peepholes": ("LSTM", "", weights("LSTM") | {"p": (1, 3 * UNITS)}),
}


@pytest.mark.parametrize("name", CASES)
def test_variants(name: str, tmp_path: Path) -> None:
    kind, told, constants = CASES[name]
    bias, peepholes = ("b" if "b" in constants else ""), ", , , , p" if "p" in constants else ""
    body = (
        f"t = Transpose<perm=[1, 0, 2]>(x) o = {kind}<hidden_size={UNITS}, {told}>(t, w, r, {bias}{peepholes}) "
        "s = Squeeze(o, axes) y = Transpose<perm=[1, 0, 2]>(s)"
    ).replace(", >", ">")
    path = written(tmp_path / "a.onnx", "float[N, 5, 4] x", body, constants | {"axes": np.array([1])})
    x = rows((ROWS, STEPS, INPUTS))
    network, found = load_onnx(path)
    np.testing.assert_allclose(network.forward(found, jnp.asarray(x)), computed(path, x)[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "told",
    [
        'activations=["Sigmoid", "Tanh", "Relu"]',  # of what enters the cell, and of what leaves it
        'activations=["Sigmoid", "ScaledTanh", "ScaledTanh"]',
        'activations=["HardSigmoid", "Tanh", "Tanh"], activation_alpha=[0.3]',
        'activations=["Sigmoid", "Tanh", "Tanh", "HardSigmoid", "Tanh", "Tanh"], direction="bidirectional"',
    ],
)
def test_activations_that_no_layer_has_are_refused(told: str, tmp_path: Path) -> None:
    given = weights("LSTM", 2 if "bidirectional" in told else 1)
    body = f"y = LSTM<hidden_size={UNITS}, {told}>(x, w, r, b)"
    path = written(tmp_path / "a.onnx", "float[5, N, 4] x", body, given, "float[] y")
    with pytest.raises(ValueError, match=r"\(LSTM\) has activations \('\w*Sigmoid', .* which are not known so"):
        load_onnx(path)


def test_rows_whose_lengths_are_told_are_of_any_length(tmp_path: Path) -> None:
    body = (
        "n = Cast<to=6>(lengths) t = Transpose<perm=[1, 0, 2]>(x) "
        f"o, h = LSTM<hidden_size={UNITS}>(t, w, r, b, n) y = Squeeze(h, first)"
    )
    inputs = "float[N, T, 4] x, int64[N] lengths"
    path = written(tmp_path / "a.onnx", inputs, body, weights("LSTM") | {"first": np.array([0])})
    x, lengths = rows((ROWS, STEPS, INPUTS)), np.array([5, 2, 3])
    network, found = load_onnx(path)
    assert network.input_shapes == {"features": (None, INPUTS)}
    y = network.forward(found, Ragged(jnp.asarray(x), jnp.asarray(lengths, "int32")))
    np.testing.assert_allclose(y, computed(path, x, lengths)[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("steps_first", [True, False])
def test_rows_are_turned_round_by_the_lengths_that_are_told(steps_first: bool, tmp_path: Path) -> None:
    sizes, axes = ("T, N", "") if steps_first else ("N, T", "<batch_axis=0, time_axis=1>")
    path = written(tmp_path / "a.onnx", f"float[{sizes}, 4] x, int64[N] l", f"y = ReverseSequence{axes}(x, l)")
    network, weights = load_onnx(path)
    assert [type(child.layer).__name__ for child in network.children] == ["ReverseSteps"]
    x, lengths = rows((ROWS, STEPS, INPUTS)), np.array([5, 2, 3])
    y = network.forward(weights, Ragged(jnp.asarray(x), jnp.asarray(lengths, "int32")))
    order = (1, 0, 2) if steps_first else (0, 1, 2)
    expected = computed(path, x.transpose(order).copy(), lengths)[0].transpose(order)
    valid = np.asarray(y.valid)
    np.testing.assert_array_equal(np.asarray(y.values)[valid], expected[valid])


def test_steps_of_others_than_of_rows_are_not_turned_round(tmp_path: Path) -> None:
    for body, match in (
        ("a = ReverseSequence<batch_axis=0, time_axis=1>(x, l) y = ReverseSequence(a, l)", "else than of rows"),
        ("m = Sub(l, one) y = ReverseSequence<batch_axis=0, time_axis=1>(x, m)", "turns round other steps than all"),
    ):
        path = written(tmp_path / "a.onnx", "float[N, T, 4] x, int64[N] l", body, {"one": np.array([1])})
        with pytest.raises(ValueError, match=match):
            load_onnx(path)


def test_states_of_zeros_are_those_that_rows_start_from(tmp_path: Path) -> None:
    """However many rows there are, as the file works out by itself."""
    body = (
        "s = Shape(x) i = Slice(s, zero, one, zero) n = Concat<axis=0>(one, i, units) z = ConstantOfShape(n) "
        "t = Transpose<perm=[1, 0, 2]>(x) o = GRU<hidden_size=3, linear_before_reset=1>(t, w, r, b, , z) "
        "q = Squeeze(o, one) y = Gather<axis=0>(q, end)"
    )
    numbers = {"zero": np.array([0]), "one": np.array([1]), "units": np.array([UNITS]), "end": np.int64(-1)}
    path = written(tmp_path / "a.onnx", "float[N, 5, 4] x", body, weights("GRU") | numbers)
    x = rows((ROWS, STEPS, INPUTS))
    network, found = load_onnx(path)
    assert [type(child.layer).__name__ for child in network.children] == ["Gru", "LastStep"]
    np.testing.assert_allclose(network.forward(found, jnp.asarray(x)), computed(path, x)[0], rtol=1e-5, atol=1e-5)
    body = body.replace("n = Concat<axis=0>(one, i, units) z = ConstantOfShape(n) ", "")
    given = written(tmp_path / "b.onnx", "float[N, 5, 4] x", body, weights("GRU") | numbers | {"z": (1, 1, UNITS)})
    with pytest.raises(ValueError, match="'o' .GRU. starts from a given state"):
        load_onnx(given)
