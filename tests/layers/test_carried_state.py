"""Rows in segments: they give what whole rows give, and training from a state derives nothing by that state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sparkdl import Graph, Network, Same
from sparkdl.layers import (
    Add,
    Bidirectional,
    Context,
    Conv,
    Dense,
    DepthwiseConv,
    DropConnect,
    Dropout,
    EachStep,
    Embedding,
    EmbeddingBag,
    GravesLstm,
    Gru,
    LastStep,
    Layer,
    LayerNorm,
    Lstm,
    Ragged,
    Reshape,
    Residual,
    SimpleRnn,
    SpatialDropout,
    TemporalConvNet,
    TimeMean,
    jitted,
)
from sparkdl.layers.base import CannotCarry
from sparkdl.layers.ragged import values_of, with_values
from sparkdl.layers.recurrent import Recurrent
from sparkdl.weights import updated

INPUTS, UNITS, STEPS = 3, 2, 7
LENGTHS = (7, 5, 3, 0)  # of which the segments end with 3, 5 and 7 steps
CUTS = (0, 3, 5, 7)
RANDOM = np.random.default_rng(8)
VALUES = RANDOM.normal(size=(4, STEPS, INPUTS))
KINDS: list[Recurrent] = [SimpleRnn(UNITS), Lstm(UNITS), GravesLstm(UNITS), Gru(UNITS)]

each_kind = pytest.mark.parametrize(
    "layer",
    [KINDS[1], *(pytest.param(layer, marks=pytest.mark.slow) for layer in (KINDS[0], KINDS[2], KINDS[3]))],
    ids=lambda layer: type(layer).__name__,
)


def ragged(values: Any = VALUES) -> Ragged:
    """Rows whose padding is no number."""
    own = np.array(values)
    for row, length in enumerate(LENGTHS):
        own[row, length:] = np.nan
    return Ragged(jnp.asarray(own), jnp.array(LENGTHS, "int32"))


def drawn(layer: Layer, shape: Any = (None, INPUTS)) -> Any:
    random = np.random.default_rng(3)
    shapes = jax.eval_shape(lambda: layer.init(jax.random.key(0), shape))
    return jax.tree.map(lambda array: jnp.asarray(random.normal(size=array.shape) / 2), shapes)


def parts_of(x: Any) -> list[Any]:
    cuts = zip(CUTS, CUTS[1:], strict=False)
    return [x.between(*cut) if isinstance(x, Ragged) else x[:, cut[0] : cut[1]] for cut in cuts]


@partial(jax.jit, static_argnums=0)
def in_segments(layer: Any, weights: Any, x: Any) -> tuple[Any, Any, Any]:
    """(values of y of the whole, of y in segments, the last state)."""
    state, found = layer.first_state(len(values_of(x)), (None, *values_of(x).shape[2:]), "float64"), []
    for part in parts_of(x):
        y, state = layer.forward_from(weights, state, part)
        found.append(values_of(y))
    whole = x if isinstance(x, Ragged) else Ragged(x, jnp.full(len(x), STEPS, "int32"))
    return layer.forward(weights, whole).values, jnp.concatenate(found, axis=1), state


def assert_close(actual: Any, expected: Any, tolerance: float = 1e-12) -> None:
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=0, atol=tolerance), actual, expected)


# Forward


@each_kind
def test_segments_give_what_whole_rows_give_and_a_row_that_ended_keeps_its_state(
    layer: Recurrent, float64: None
) -> None:
    weights = drawn(layer)
    whole, parts, state = in_segments(layer, weights, ragged())
    assert_close(parts, whole)
    for row, length in enumerate(LENGTHS):
        alone = layer.first_state(1, (None, INPUTS), "float64")
        for at in range(length):
            _, alone = layer.step(weights, alone, VALUES[row : row + 1, at])
        assert_close([part[row : row + 1] for part in state], list(alone))


NETWORK = Network(
    [
        Dense(4),
        Residual([Lstm(4, name="within"), LayerNorm()]),
        DropConnect(Gru(3), 0.5),
        EachStep([Reshape((1, 3)), Lstm(2), LastStep()]),  # over steps of their own, within each step
        Network([SimpleRnn(2), Dropout(0.5)], name="last"),
    ],
    input_shape=(None, INPUTS),
)
GRAPH = Graph(
    {"x": (None, INPUTS)},
    {"one": (Gru(INPUTS), "x"), "two": (Same("one"), "one"), "sum": (Add(), "one", "two"), "y": (LastStep(), "sum")},
    "y",
)


@pytest.mark.parametrize(
    ("network", "whole"),
    [
        (NETWORK, False),
        pytest.param(GRAPH.up_to("sum"), True, marks=pytest.mark.slow),
        pytest.param(GRAPH.up_to("sum"), False, marks=pytest.mark.slow),
    ],
    ids=["network", "graph of arrays", "graph"],
)
def test_a_network_carries_what_the_layers_within_it_do(network: Any, whole: bool, float64: None) -> None:
    expected, parts, _ = in_segments(network, drawn(network, None), np.asarray(VALUES) if whole else ragged())
    assert_close(parts, expected)


CONVOLVED = Network(
    [
        Conv(4, 3, padding="causal", dilation=2),
        SpatialDropout(0.3),
        TemporalConvNet([3, 2], size=2),
        DepthwiseConv(2, padding="causal"),
        Conv(2, 1),
    ],
    input_shape=(None, INPUTS),
)


@pytest.mark.slow
def test_causal_convolutions_carry_what_their_windows_reach_back_to(float64: None) -> None:
    expected, parts, state = in_segments(CONVOLVED, drawn(CONVOLVED, None), ragged())
    assert_close(parts, expected)
    assert state.keys() == {"conv_0", "temporal_conv_net_2", "depthwise_conv_3"}
    before = np.concatenate([np.zeros((4, 4, INPUTS)), VALUES], axis=1)
    for row, length in enumerate(LENGTHS):
        assert_close(state["conv_0"]["before"][row], before[row, length : length + 4])


@pytest.mark.parametrize(
    "layer",
    [
        Conv(2, 3, padding="causal", dilation=2),
        pytest.param(DepthwiseConv(2, padding="causal"), marks=pytest.mark.slow),
    ],
    ids=["Conv", "Depthwise"],
)
def test_slopes_of_a_convolved_segment_are_those_of_steps_behind_others(layer: Layer, float64: None) -> None:
    weights, states = drawn(layer), a_state(layer)
    reach = states["before"].shape[1]
    dy = np.random.default_rng(5).normal(size=(4, STEPS, layer.output_shape((None, INPUTS))[-1]))
    (y, dx, gradient, after), _ = trained(layer, weights, VALUES, dy, states)
    whole, behind = np.concatenate([states["before"], VALUES], axis=1), np.pad(dy, ((0, 0), (reach, 0), (0, 0)))
    expected = layer.forward(weights, whole)
    assert_close(y, expected[:, reach:])
    assert_close(dx, layer.delta(weights, whole, expected, behind)[:, reach:], 1e-10)
    assert_close(gradient, layer.gradient(weights, whole, expected, behind), 1e-10)
    assert_close(after["before"], whole[:, STEPS:])


def test_the_state_of_a_network_is_by_name_and_by_place_even_where_weights_are_shared() -> None:
    state = NETWORK.first_state(5)
    assert jax.tree.map(jnp.shape, state) == {
        "residual_1": {"body": {"within": ((5, 4), (5, 4))}},
        "drop_connect_2": {"layer": ((5, 3),)},
        "last": {"simple_rnn_0": ((5, 2),)},
    }
    assert GRAPH.up_to("sum").first_state(2, dtype="bfloat16").keys() == {"one", "two"}
    assert GRAPH.up_to("sum").first_state(2, dtype="bfloat16")["two"][0].dtype == "bfloat16"
    assert Network([Embedding(4, 2), LayerNorm(), Dense(3)], input_shape=(None,)).first_state(2) == {}


REVERSED = Lstm(2, backwards=True)


@pytest.mark.parametrize(
    ("layers", "sentence"),
    [
        ([Bidirectional(Lstm(2))], r"Layer 0 \(Bidirectional\): Bidirectional goes .* use its layer alone, Lstm\("),
        ([Dense(2), REVERSED], r"Layer 1 \(Lstm\): Lstm\(backwards=True\) begins at the end .* without backwards"),
        ([Residual([Lstm(3), LastStep()], [TimeMean()])], r"layers: Layer 1 \(LastStep\): LastStep needs the whole of"),
        ([Conv(3, 2, padding="same")], "Conv reads steps after those that it stands at, .* give it padding='causal'"),
        ([TimeMean()], "TimeMean needs the whole of every row and so cannot go from one segment of it to the next; go"),
    ],
)
def test_what_needs_the_whole_of_a_row_is_refused_by_name(layers: list[Layer], sentence: str) -> None:
    with pytest.raises(CannotCarry, match=sentence):
        Network(layers, input_shape=(None, 3)).first_state(2)


def test_bags_and_rows_of_one_length_are_refused_unless_they_arrive_whole() -> None:
    with pytest.raises(CannotCarry, match="EmbeddingBag needs the whole of every row"):
        Network([EmbeddingBag(5, 2)], input_shape=(None,)).first_state(2)
    with pytest.raises(ValueError, match=r"expects a network over rows of any length, received \(7, 3\); write None"):
        Network([Lstm(2)], input_shape=(7, 3)).first_state(2)
    both = Graph(
        {"x": (None, 3), "facts": (4, 2)},
        {"tags": (Gru(2), "x"), "past": (Lstm(3), "facts"), "kind": (LastStep(), "past")},
        ("tags", "kind"),
    )
    assert both.first_state(2).keys() == {"tags"}


# One step at a time


def test_a_step_is_a_segment_of_one(float64: None) -> None:
    network = Network([Dense(4), Residual([Gru(4)])], input_shape=(None, INPUTS))
    weights = drawn(network, None)
    state, found = network.first_state(4, dtype="float64"), []
    for at in range(STEPS):
        y, state = network.step(weights, state, VALUES[:, at])
        found.append(y)
    assert_close(np.stack(found, axis=1), network.forward(weights, full(VALUES)).values)


def full(values: Any) -> Ragged:
    return Ragged(jnp.asarray(values), jnp.full(len(values), STEPS, "int32"))


@pytest.mark.slow
def test_a_graph_steps_through_what_is_of_any_length_and_reads_the_rest_whole(float64: None) -> None:
    graph = Graph(
        {"words": (None,), "facts": (2,)},
        {"word": (Embedding(5, 3), "words"), "tags": (Gru(2), "word"), "kind": (Dense(2), "facts")},
        ("tags", "kind"),
    )
    weights, facts = drawn(graph, None), RANDOM.normal(size=(4, 2))
    words = RANDOM.integers(0, 5, (4, STEPS), "int32")
    expected, kind = graph.forward(weights, (full(words), facts))
    state = graph.first_state(4, dtype="float64")
    for at in range(STEPS):
        (y, own), state = graph.step(weights, state, (words[:, at], facts))
        assert_close(y, expected.values[:, at])
        assert_close(own, kind)


# Training


def context(states: Any = None) -> Context:
    return Context(jax.random.key(4), jnp.asarray([1.0, 0.5, 2.0, 1.0]), states=states)


@partial(jax.jit, static_argnums=0)
def trained(layer: Any, weights: Any, x: Any, dy: Any, states: Any) -> tuple[Any, Any]:
    """(y, dx, dweights, state) of a step, and (y, dx, dweights) by JAX with the state as a constant."""
    y, kept = layer.train_forward(weights, x, context(states))
    dx, gradient = layer.train_backward(weights, x, y, dy, kept, context(states), True)
    state = None if states is None else layer.new_state(states, kept)

    def forward(learned: Any, values: Any) -> Any:
        own = context(jax.lax.stop_gradient(states))
        return values_of(layer.train_forward(updated(weights, learned), with_values(x, values), own)[0])

    expected, derivatives = jax.vjp(forward, layer.learned(weights), values_of(x))
    by_weights, by_x = derivatives(dy)
    return (values_of(y), dx, gradient, state), (expected, by_x, by_weights)


def a_state(layer: Any) -> Any:
    """Other than zeros."""
    random = np.random.default_rng(2)
    zeros = layer.first_state(4, (None, INPUTS), "float64")
    return jax.tree.map(lambda part: jnp.asarray(random.normal(size=part.shape)), zeros)


@pytest.mark.parametrize(
    "layer",
    [
        pytest.param(KINDS[1], marks=pytest.mark.slow),
        *(pytest.param(replace(layer, dropout=0.3, recurrent_dropout=0.4), marks=pytest.mark.slow) for layer in KINDS),
        Network([Lstm(2, recurrent_dropout=0.4, trainable=False), Gru(2)]),
        pytest.param(NETWORK.frozen("residual_1"), marks=pytest.mark.slow),
        pytest.param(Network([Gru(2)], trainable=False), marks=pytest.mark.slow),
    ],
    ids=["plain", "SimpleRnn", "Lstm", "GravesLstm", "Gru", "below a frozen one", "network", "frozen"],
)
def test_slopes_of_a_segment_are_those_from_a_constant_state(layer: Any, float64: None) -> None:
    weights, x = drawn(layer), Ragged(jnp.asarray(VALUES[:, :4]), jnp.asarray([4, 2, 1, 0], "int32"))
    dy = np.random.default_rng(5).normal(size=(4, 4, layer.output_shape((None, INPUTS))[-1]))
    states = a_state(layer)
    (*found, state), expected = trained(layer, weights, x, dy, states)
    assert_close(found, list(expected), 1e-10)
    jax.tree.map(lambda new, old: np.testing.assert_array_equal(new[3], old[3]), state, states)
    assert not any(np.allclose(new, old) for new, old in zip(*map(jax.tree.leaves, (state, states)), strict=True))


@pytest.mark.parametrize(
    "layer",
    [Lstm(UNITS, dropout=0.3, recurrent_dropout=0.4), pytest.param(NETWORK, marks=pytest.mark.slow)],
    ids=["Lstm", "network"],
)
def test_a_segment_of_the_whole_row_is_training_without_truncation(layer: Any, float64: None) -> None:
    weights, x = drawn(layer), ragged()
    dy = np.random.default_rng(5).normal(size=(4, STEPS, layer.output_shape((None, INPUTS))[-1]))

    @jax.jit
    def step(weights: Any, x: Any, states: Any) -> Any:
        y, kept = layer.train_forward(weights, x, context(states))
        return y.values, layer.train_backward(weights, x, y, dy, kept, context(states), True)

    states = layer.first_state(4, (None, INPUTS), "float64")
    jax.tree.map(np.testing.assert_array_equal, step(weights, x, states), step(weights, x, None))


@pytest.mark.slow
def test_training_in_segments_goes_on_from_where_the_one_before_ended(float64: None) -> None:
    """With one key all segments of a row drop the same, so that what they put out is what the whole row does."""
    layer = Lstm(UNITS, dropout=0.3, recurrent_dropout=0.4)
    weights = drawn(layer)

    @jax.jit
    def both(weights: Any) -> tuple[Any, Any]:
        states, found = layer.first_state(4, (None, INPUTS), "float64"), []
        for part in parts_of(ragged()):
            y, kept = layer.train_forward(weights, part, context(states))
            states = layer.new_state(states, kept)
            found.append(y.values)
        return layer.train_forward(weights, ragged(), context())[0].values, jnp.concatenate(found, axis=1)

    whole, parts = both(weights)
    assert_close(parts, whole)


# Layers of one's own


@dataclass(frozen=True)
class RunningSum(Layer):
    """y is the sum of scale * x over the steps so far; it writes nothing but how it goes forward."""

    @property
    def takes_ragged(self) -> bool:
        return True

    def output_shape(self, input_shape: Any) -> Any:
        return input_shape

    def init(self, key: Any, input_shape: Any) -> Any:
        return {"scale": jnp.ones(input_shape[-1:])}

    def first_state(self, rows: int, input_shape: Any, dtype: Any = float, longest: int | None = None) -> Any:
        return {"sum": jnp.zeros((rows, *input_shape[1:]), dtype)}

    @jitted
    def forward(self, weights: Any, x: Ragged) -> Ragged:
        return self.forward_from(weights, {"sum": jnp.zeros_like(x.values[:, 0])}, x)[0]

    @jitted
    def forward_from(self, weights: Any, state: Any, x: Ragged) -> tuple[Ragged, Any]:
        steps = jnp.where(x.valid[..., None], x.values * weights["scale"][None, None], 0)
        sums = state["sum"][:, None] + steps.cumsum(axis=1)
        return replace(x, values=jnp.where(x.valid[..., None], sums, 0)), {"sum": state["sum"] + steps.sum(axis=1)}


def test_a_layer_of_ones_own_carries_what_it_says_and_its_slopes_are_derived(float64: None) -> None:
    layer = RunningSum()
    weights, x = {"scale": jnp.asarray([2.0, -1.0, 0.5])}, ragged()
    whole, parts, state = in_segments(Network([layer], input_shape=(None, INPUTS)), {"running_sum_0": weights}, x)
    expected = np.where(np.asarray(x.valid)[..., None], (VALUES * [2, -1, 0.5]).cumsum(axis=1), 0)
    assert_close((whole, parts), (expected, expected))
    assert_close(state["running_sum_0"]["sum"], np.nansum(np.asarray(x.values) * [2, -1, 0.5], axis=1))
    dy = np.random.default_rng(5).normal(size=VALUES.shape)
    states = a_state(layer)
    (y, dx, gradient, after), _ = trained(layer, weights, full(VALUES), dy, states)
    assert_close(y, np.asarray(states["sum"])[:, None] + (VALUES * [2, -1, 0.5]).cumsum(axis=1))
    later = dy[:, ::-1].cumsum(axis=1)[:, ::-1]  # of every step, all that come after it
    assert_close((dx, gradient["scale"]), (later * [2, -1, 0.5], (later * VALUES).sum(axis=(0, 1))), 1e-10)
    assert_close(after["sum"], np.asarray(states["sum"]) + (VALUES * [2, -1, 0.5]).sum(axis=1))


@dataclass(frozen=True)
class Forgetful(RunningSum):
    """Trains in a way of its own, of which it does not say what is carried."""

    def train_forward(self, weights: Any, x: Any, context: Context) -> tuple[Any, Any]:
        return self.forward(weights, x), "something"


def test_a_layer_that_does_not_say_what_training_carries_is_told_to() -> None:
    layer = Forgetful()
    _, kept = layer.train_forward({"scale": jnp.ones(3)}, full(VALUES.astype("float32")), context())
    with pytest.raises(NotImplementedError, match="Forgetful writes train_forward, and so must write new_state"):
        layer.new_state({}, kept)


@pytest.mark.parametrize(
    ("members", "named"),
    [
        ({"forward": lambda self, weights, x: x}, "overrides forward, but inherits .*first_state, forward_from"),
        ({"train_forward": lambda self, weights, x, context: (x, None)}, "inherits .*new_state"),
    ],
    ids=["forward", "train_forward"],
)
def test_kernels_of_another_forward_are_not_taken_for_ones_own(members: dict[str, Any], named: str) -> None:
    derived: dict[str, Callable[..., Any]] = {"delta": Layer.delta, "gradient": Layer.gradient}
    training = {name: getattr(Layer, name) for name in ("train_delta", "train_gradient", "train_forward")}
    with pytest.raises(TypeError, match=named):
        type("Own", (Gru,), {**derived, **training, **members})
