"""Recurrent layers against PyTorch, Keras and plain loops in float64; and rows of any length against each alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sparkdl import Network
from sparkdl.layers import (
    Add,
    Average,
    Bidirectional,
    Concatenate,
    Context,
    Dense,
    GravesLstm,
    Gru,
    Layer,
    Lstm,
    Maximum,
    Multiply,
    Ragged,
    SimpleRnn,
    recurrent,
)
from sparkdl.layers.recurrent import Recurrent

BATCH, STEPS, INPUTS, UNITS = 3, 5, 4, 3
LENGTHS = (4, 0, 2)
RANDOM = np.random.default_rng(5)
X = RANDOM.normal(size=(BATCH, STEPS, INPUTS))
KINDS: list[Recurrent] = [
    SimpleRnn(UNITS),
    SimpleRnn(UNITS, activation="relu"),
    Lstm(UNITS),
    GravesLstm(UNITS),
    Gru(UNITS),
    Gru(UNITS, reset_after=False),
]
BACKWARDS: list[Recurrent] = [Lstm(UNITS, backwards=True), Gru(UNITS, backwards=True)]
OTHERS: list[Recurrent] = [
    Lstm(UNITS, activation="relu", recurrent_activation="hard_sigmoid"),
    GravesLstm(UNITS, activation="softsign", recurrent_activation="hard_sigmoid_0.2"),
    Gru(UNITS, activation="elu", recurrent_activation="softsign"),
    Gru(UNITS, reset_after=False, activation="linear", recurrent_activation="hard_sigmoid"),
    *(SimpleRnn(UNITS, name) for name in ("elu", "hard_sigmoid", "hard_sigmoid_0.2", "linear", "sigmoid", "softsign")),
]
MORE = [
    pytest.param(layer, marks=pytest.mark.slow)
    for layer in (*OTHERS, GravesLstm(UNITS, backwards=True), Gru(UNITS, reset_after=False, backwards=True))
]

each_kind = pytest.mark.parametrize("layer", KINDS, ids=repr)
each_way = pytest.mark.parametrize("layer", [*KINDS, *BACKWARDS, *MORE], ids=repr)
each_layer = pytest.mark.parametrize(
    "layer",
    [
        *(KINDS[2], KINDS[3], KINDS[4], *BACKWARDS, Bidirectional(Gru(UNITS), Average())),
        *(pytest.param(layer, marks=pytest.mark.slow) for layer in (KINDS[0], KINDS[1], KINDS[5])),
        *MORE,
    ],
    ids=repr,
)


def drawn(layer: Layer) -> Any:
    """Random weights of the layer, its shapes only being its own."""
    shapes = jax.eval_shape(lambda: layer.init(jax.random.key(0), (None, INPUTS)))
    random = np.random.default_rng(3)
    return jax.tree.map(lambda array: random.normal(size=array.shape) / 2, shapes)


@partial(jax.jit, static_argnums=0)
def kernels(layer: Layer, weights: Any, x: Any, dy: Any) -> tuple[Any, Any, Any]:
    """(y, dx, dweights)."""
    y = layer.forward(weights, x)
    return y, layer.delta(weights, x, y, dy), layer.gradient(weights, x, y, dy)


def trained(layer: Layer, weights: Any, x: Any, dy: Any) -> tuple[Any, Any, Any]:
    """The same of a training step."""
    context = Context(jax.random.key(1), jnp.ones(BATCH))
    y, kept = layer.train_forward(weights, x, context)
    return y, *layer.train_backward(weights, x, y, dy, kept, context, True)


@partial(jax.jit, static_argnums=0)
def by_loop(layer: Recurrent, weights: Any, x: Any, dy: Any) -> tuple[Any, Any, Any]:
    """What `kernels`, `trained` and JAX's derivatives of a plain loop give: one program, as compiling takes longest."""
    y, derivatives = jax.vjp(lambda *at: loop(layer, *at, xp=jnp), weights, x)
    dweights, dx = derivatives(dy)
    return kernels(layer, weights, x, dy), trained(layer, weights, x, dy), (y, dx, dweights)


@partial(jax.jit, static_argnums=0)
def by_row(layer: Layer, weights: Any, x: Ragged, dy: Any) -> tuple[Any, Any, dict[int, Any]]:
    """What `kernels` and `trained` give, and `trained` of every row that is not empty alone."""
    alone = {
        row: trained(layer, weights, x.values[row : row + 1, :length], dy[row : row + 1, :length])
        for row, length in enumerate(LENGTHS)
        if length
    }
    return kernels(layer, weights, x, dy), trained(layer, weights, x, dy), alone


def slopes_of(layer: Layer) -> Any:
    """A random dy for X."""
    return np.random.default_rng(9).normal(size=(BATCH, *layer.output_shape((STEPS, INPUTS))))


def assert_close(actual: Any, expected: Any, tolerance: float = 1e-12) -> None:
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=0, atol=tolerance), actual, expected)


# Values


def sigmoid(z: Any) -> Any:
    return 1 / (1 + np.exp(-z))


CURVES: dict[str, Callable[[Any, Any], Any]] = {
    "elu": lambda z, xp: xp.where(z > 0, z, xp.exp(z) - 1),
    "hard_sigmoid": lambda z, xp: xp.clip(z / 6 + 1 / 2, 0, 1),
    "hard_sigmoid_0.2": lambda z, xp: xp.clip(z / 5 + 1 / 2, 0, 1),
    "linear": lambda z, xp: z,
    "relu": lambda z, xp: xp.maximum(z, 0),
    "sigmoid": lambda z, xp: 1 / (1 + xp.exp(-z)),
    "softsign": lambda z, xp: z / (1 + abs(z)),
    "tanh": lambda z, xp: xp.tanh(z),
}


def loop(layer: Recurrent, weights: Any, x: Any, xp: Any = np) -> Any:
    """y of the layer by its formulas, one step after the other, of arrays of NumPy or (`xp`) JAX."""
    units, h = layer.units, xp.zeros((len(x), layer.units))
    cell, found = h, {}
    act = partial(CURVES[getattr(layer, "recurrent_activation", "sigmoid")], xp=xp)
    tanh = partial(CURVES[layer.activation], xp=xp)  # type: ignore[attr-defined]
    w, u = weights["kernel"], weights["recurrent"]
    blocks = [slice(at * units, (at + 1) * units) for at in range(4)]
    order = range(x.shape[1])
    for step in reversed(order) if layer.backwards else order:
        z = x[:, step] @ w + weights["bias"][None]
        if isinstance(layer, SimpleRnn):
            z = z + h @ u
            h = tanh(z)
        elif isinstance(layer, Gru):
            own = h @ u + (weights["recurrent_bias"][None] if layer.reset_after else 0)
            update, reset = (act(z[:, at] + own[:, at]) for at in blocks[:2])
            seen = reset * own[:, blocks[2]] if layer.reset_after else (reset * h) @ u[:, blocks[2]]
            h = update * h + (1 - update) * tanh(z[:, blocks[2]] + seen)
        else:
            z = z + h @ u
            to = weights["peephole"][:, None] if isinstance(layer, GravesLstm) else np.zeros((3, 1, units))
            i, f = act(z[:, blocks[0]] + to[0] * cell), act(z[:, blocks[1]] + to[1] * cell)
            cell = f * cell + i * tanh(z[:, blocks[2]])
            h = act(z[:, blocks[3]] + to[2] * cell) * tanh(cell)
        found[step] = h
    return xp.stack([found[step] for step in order], axis=1)


@each_way
def test_it_is_what_a_plain_loop_gives_and_so_are_its_derivatives(layer: Recurrent, float64: None) -> None:
    weights, dy = drawn(layer), slopes_of(layer)
    found, in_training, expected = by_loop(layer, weights, X, dy)
    assert_close(found, expected)
    assert_close(in_training, expected)
    assert_close(found[0], loop(layer, weights, X))


def test_a_layer_without_a_bias_is_one_with_a_bias_of_zeros(float64: None) -> None:
    for layer in (KINDS[4],):
        weights, dy = drawn(layer), slopes_of(layer)
        bare = {name: value for name, value in weights.items() if "bias" not in name}
        zeros = {name: np.zeros_like(value) for name, value in weights.items() if "bias" in name}
        expected = kernels(layer, bare | zeros, X, dy)
        found = kernels(replace(layer, bias=False), bare, X, dy)
        assert found[2].keys() == bare.keys()
        assert_close(found, (*expected[:2], {name: expected[2][name] for name in bare}))


def torch_blocks(kind: str, array: Any) -> Any:
    """Columns of ours as rows of PyTorch's, whose LSTM has our order and whose GRU has r before z."""
    if kind == "GRU":
        z, r, n = np.split(array, 3, axis=-1)
        array = np.concatenate([r, z, n], axis=-1)
    return array.T


TORCH: list[tuple[Recurrent, str]] = [(SimpleRnn(UNITS), "RNN"), (Lstm(UNITS), "LSTM"), (Gru(UNITS), "GRU")]


@pytest.mark.parametrize(("layer", "kind"), TORCH, ids=[kind for _, kind in TORCH])
@pytest.mark.parametrize("both_ways", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_it_and_its_slopes_are_those_of_pytorch(layer: Recurrent, kind: str, both_ways: bool, float64: None) -> None:
    torch = pytest.importorskip("torch")
    own: Layer = Bidirectional(layer) if both_ways else layer
    weights, dy = drawn(own), slopes_of(own)
    peer = getattr(torch.nn, kind)(INPUTS, UNITS, batch_first=True, bidirectional=both_ways, dtype=torch.float64)
    names = {
        "kernel": "weight_ih_l0",
        "recurrent": "weight_hh_l0",
        "bias": "bias_ih_l0",
        "recurrent_bias": "bias_hh_l0",
    }
    ways = {"": weights} if not both_ways else {"": weights["forward"], "_reverse": weights["backward"]}
    with torch.no_grad():
        for end, part in ways.items():
            getattr(peer, f"bias_hh_l0{end}").zero_()  # of ours only Gru has a second bias
            for name, value in part.items():
                getattr(peer, names[name] + end).copy_(torch.tensor(torch_blocks(kind, value)))
    x = torch.tensor(X, requires_grad=True)
    expected = peer(x)[0]
    expected.backward(torch.tensor(dy))
    y, dx, dweights = kernels(own, weights, X, dy)
    assert_close(y, expected.detach().numpy(), 1e-10)
    assert_close(dx, x.grad.numpy(), 1e-10)
    found = {"": dweights} if not both_ways else {"": dweights["forward"], "_reverse": dweights["backward"]}
    for end, part in found.items():
        for name, value in part.items():
            assert_close(torch_blocks(kind, np.asarray(value)), getattr(peer, names[name] + end).grad.numpy(), 1e-10)


def test_it_and_its_slopes_are_those_of_keras(float64: None) -> None:
    keras, tf = pytest.importorskip("keras"), pytest.importorskip("tensorflow")
    pairs = [
        (SimpleRnn(UNITS), keras.layers.SimpleRNN),
        (Lstm(UNITS), keras.layers.LSTM),
        (Gru(UNITS), keras.layers.GRU),
        (Gru(UNITS, reset_after=False), partial(keras.layers.GRU, reset_after=False)),
        (Lstm(UNITS, backwards=True), partial(keras.layers.LSTM, go_backwards=True)),
    ]
    for layer, make in pairs:
        weights, dy = drawn(layer), slopes_of(layer)
        peer = make(UNITS, return_sequences=True, dtype="float64")
        peer.build((None, STEPS, INPUTS))
        bias = weights["bias"]
        if "recurrent_bias" in weights:
            bias = np.stack([bias, weights["recurrent_bias"]])
        peer.set_weights([weights["kernel"], weights["recurrent"], bias])
        order = slice(None, None, -1 if layer.backwards else 1)  # Keras leaves y in the order of its steps
        with tf.GradientTape() as tape:
            x = tf.constant(X)
            tape.watch(x)
            expected = peer(x)
        slopes = tape.gradient(expected, [x, *peer.trainable_weights], tf.constant(dy[:, order].copy()))
        y, dx, dweights = kernels(layer, weights, X, dy)
        assert_close(y, expected.numpy()[:, order], 1e-10)
        found = dweights["bias"]
        if "recurrent_bias" in dweights:
            found = np.stack([found, dweights["recurrent_bias"]])
        assert_close([dx, dweights["kernel"], dweights["recurrent"], found], [part.numpy() for part in slopes], 1e-10)


# Rows of any length


@each_layer
def test_rows_of_any_length_are_what_each_is_alone_whatever_the_padding(layer: Layer, float64: None) -> None:
    weights, dy = drawn(layer), slopes_of(layer)
    values = X.copy()
    for row, length in enumerate(LENGTHS):
        values[row, length:] = dy[row, length:] = np.nan
    x = Ragged(jnp.asarray(values), jnp.array(LENGTHS, "int32"))
    (y, dx, dweights), in_training, rows = by_row(layer, weights, x, dy)
    assert isinstance(y, Ragged) and not isinstance(dx, Ragged)
    np.testing.assert_array_equal(y.lengths, LENGTHS)
    assert_close(in_training, (y, dx, dweights))
    total = jax.tree.map(np.zeros_like, weights)
    for row, length in enumerate(LENGTHS):
        assert not np.asarray(y.values)[row, length:].any() and not np.asarray(dx)[row, length:].any()
        if length:
            assert_close((y.values[row : row + 1, :length], dx[row : row + 1, :length]), rows[row][:2])
            total = jax.tree.map(np.add, total, rows[row][2])
    assert_close(dweights, total)


@pytest.mark.parametrize(
    "layer",
    [Lstm(UNITS, dropout=0.3), pytest.param(Gru(UNITS, backwards=True), marks=pytest.mark.slow)],
    ids=repr,
)
def test_steps_in_chunks_are_the_same_steps(layer: Recurrent, monkeypatch: Any, float64: None) -> None:
    """Padded to six steps, in three chunks of two or all at once."""
    weights, dy = drawn(layer), np.pad(slopes_of(layer), ((0, 0), (0, 1), (0, 0)))
    for x in (np.pad(X, ((0, 0), (0, 1), (0, 0))), Ragged(jnp.pad(X, ((0, 0), (0, 1), (0, 0))), jnp.array(LENGTHS))):
        expected = jax.jit(partial(trained, layer))(weights, x, dy)
        with monkeypatch.context() as patch:
            patch.setattr(recurrent, "CHUNK", 2 * BATCH * layer.blocks * UNITS)
            assert layer._chunks(jnp.zeros((BATCH, 6, 1))) == 3
            assert_close(jax.jit(partial(trained, layer))(weights, x, dy), expected)
    assert layer._chunks(jnp.zeros((BATCH, 7, 1))) == 1


def test_both_ways_are_the_layer_and_the_layer_backwards(float64: None) -> None:
    for merge, numpys in [
        (Concatenate(), lambda a, b: np.concatenate([a, b], axis=-1)),
        (Add(), np.add),
        (Average(), lambda a, b: (a + b) / 2),
        (Multiply(), np.multiply),
        (Maximum(), np.maximum),
    ]:
        layer = Bidirectional(Gru(UNITS), merge)
        weights = drawn(layer)
        assert weights.keys() == {"forward", "backward"}
        one = loop(Gru(UNITS), weights["forward"], X)
        other = loop(Gru(UNITS, backwards=True), weights["backward"], X)
        assert_close(jax.jit(layer.forward)(weights, X), numpys(one, other))


# One step after the other


@each_kind
def test_steps_one_by_one_give_what_all_at_once_do(layer: Recurrent, float64: None) -> None:
    weights = drawn(layer)
    state, found = layer.first_state(BATCH, (None, INPUTS), "float64"), []
    for at in range(STEPS):
        y, state = layer.step(weights, state, X[:, at])
        found.append(y)
    assert_close(np.stack(found, axis=1), layer.forward(weights, X))


# Training


@pytest.mark.parametrize("layer", [GravesLstm(UNITS), Gru(UNITS)], ids=repr)
def test_what_is_dropped_is_the_same_at_every_step_of_a_row(layer: Recurrent, float64: None) -> None:
    """Dropped of x is what is set to 0; of the state, a row of `recurrent`. Every row of the batch has its own."""
    weights = drawn(layer)
    noisy = replace(layer, dropout=0.5, recurrent_dropout=0.4)
    run = jax.jit(lambda key: noisy.train_forward(weights, X, Context(key, jnp.ones(BATCH))))
    for seed in range(3):
        y, (_, _, masks, *_) = run(jax.random.key(seed))
        assert set(np.unique(masks.x)) <= {0, 2} and masks.x.shape == (BATCH, INPUTS)
        assert masks.state.shape == (BATCH, UNITS) and set(np.unique(np.asarray(masks.state).round(9))) <= {
            0,
            1.666666667,
        }
        for row in range(BATCH):
            own = weights | {"recurrent": np.asarray(masks.state)[row][:, None] * weights["recurrent"]}
            expected = loop(layer, own, X[row : row + 1] * np.asarray(masks.x)[row])
            assert_close(y[row : row + 1], expected)
    assert_close(noisy.forward(weights, X), loop(layer, weights, X))


def test_a_forget_gate_starts_open_and_weights_as_they_are_usually_drawn() -> None:
    weights = Lstm(8).init(jax.random.key(0), (None, 3))
    np.testing.assert_array_equal(weights["bias"], np.repeat([0, 1, 0, 0], 8))
    assert not Lstm(8, unit_forget_bias=False).init(jax.random.key(0), (5, 3))["bias"].any()
    recurrent = np.asarray(weights["recurrent"])
    np.testing.assert_allclose(recurrent @ recurrent.T, np.eye(8), atol=1e-5)
    assert np.abs(weights["kernel"]).max() <= (6 / (3 + 32)) ** 0.5
    assert {name: array.shape for name, array in Gru(8).init(jax.random.key(0), (None, 3)).items()} == {
        "kernel": (3, 24),
        "recurrent": (8, 24),
        "bias": (24,),
        "recurrent_bias": (24,),
    }
    assert Gru(8, reset_after=False).init(jax.random.key(0), (None, 3)).keys() == {"kernel", "recurrent", "bias"}
    assert GravesLstm(8).init(jax.random.key(0), (None, 3))["peephole"].shape == (3, 8)


def test_penalties_and_constraints_are_of_both_kernels() -> None:
    layer = Lstm(2, l1=0.5, l2=3.0, constraint="unit_norm")
    weights = {"kernel": jnp.full((1, 8), 2.0), "recurrent": jnp.full((2, 8), -1.0), "bias": jnp.full(8, 9.0)}
    assert float(layer.penalty(weights)) == pytest.approx(0.5 * (16 + 16) + 1.5 * (32 + 16))
    projected = layer.constrained(weights)
    np.testing.assert_allclose(projected["kernel"], np.ones((1, 8)), rtol=1e-6)
    np.testing.assert_allclose(projected["recurrent"], np.full((2, 8), -(0.5**0.5)), rtol=1e-6)
    np.testing.assert_array_equal(projected["bias"], weights["bias"])


def test_a_network_of_them_knows_its_shapes_and_its_work() -> None:
    network = Network([Bidirectional(Lstm(4)), Gru(3)], input_shape=(None, 2))
    assert network.output_shape() == (None, 3)
    assert network.multiply_adds() == 2 * (2 + 4) * 16 + (8 + 3) * 9  # of one step
    assert Lstm(4).multiply_adds((7, 2)) == 7 * (2 + 4) * 16
    assert "(None, 8)" in network.summary()


@pytest.mark.parametrize(
    "layer", [Gru(3, reset_after=False, recurrent_dropout=0.1), Bidirectional(GravesLstm(3), Add())]
)
def test_json_holds_all_of_it(layer: Layer) -> None:
    assert Layer.from_json(json.loads(json.dumps(layer.to_json()))) == layer


def test_a_frozen_one_freezes_both_ways() -> None:
    for layer in (Bidirectional(Lstm(2), trainable=False), Bidirectional(Lstm(2, trainable=False))):
        assert layer.learned(layer.init(jax.random.key(0), (3, 2))) == {}
    assert Network([Bidirectional(Lstm(2), name="both")]).frozen_at(["both"]).layers[0].trainable is False


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Lstm(0), "units of Lstm must be a positive integer, received 0"),
        (lambda: Gru(2.0), "units of Gru must be a positive integer, received 2.0"),  # type: ignore[arg-type]
        (lambda: Gru(2, backwards=1), "backwards of Gru must be True or False, received 1"),  # type: ignore[arg-type]
        (lambda: Gru(2, reset_after="no"), "reset_after of Gru must be True or False, received 'no'"),  # type: ignore[arg-type]
        (lambda: Lstm(2, unit_forget_bias=1.0), "unit_forget_bias of Lstm must be True or False, received 1.0"),  # type: ignore[arg-type]
        (lambda: Lstm(2, dropout=1), r"dropout of Lstm must be a number in \[0, 1\), received 1"),
        (lambda: SimpleRnn(2, "gelu"), "activation of SimpleRnn must be one of elu, .* tanh, received 'gelu'"),
        (lambda: Gru(2, recurrent_activation=None), "recurrent_activation of Gru must be one of elu, .* received None"),  # type: ignore[arg-type]
        (
            lambda: Bidirectional(Dense(2)),
            r"layer of Bidirectional must be a recurrent layer, received Dense\(units=2\)",
        ),
        (
            lambda: Bidirectional(Lstm(2), Dense(2)),
            "merge of Bidirectional must be a layer that merges, received Dense",
        ),
        (lambda: Network([Lstm(2)], (3,)), r"Layer 0 \(Lstm\): Lstm expects rows of steps, of shape \(steps, inputs\)"),
        (lambda: Network([Bidirectional(Gru(2))], (3,)), "layer: Gru expects rows of steps"),
    ],
)
def test_what_fits_nothing_is_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
