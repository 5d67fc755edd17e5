"""Attention in segments: keys, values and counts of steps are kept, and give what whole rows give."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sparkdl import Graph, Network, models
from sparkdl.layers import (
    Context,
    Dense,
    Dropout,
    LayerNorm,
    LearnedPositions,
    Lstm,
    MultiHeadAttention,
    Ragged,
    Residual,
    SinusoidalPositions,
    TransformerDecoder,
    TransformerEncoder,
)
from sparkdl.layers.attention import dot_product
from sparkdl.layers.attention.rotary import rotated
from sparkdl.layers.base import CannotCarry

pytestmark = pytest.mark.usefixtures("unoptimized")

INPUTS, STEPS, ROOM = 8, 7, 9
SHAPE = (None, INPUTS)
LENGTHS = (7, 5, 3, 0)  # of which the segments end with 3, 4 and 7 steps
CUTS = ((0, 3), (3, 4), (4, 7))
VALUES = np.random.default_rng(5).normal(size=(4, STEPS, INPUTS))
GROUPED = MultiHeadAttention(4, key_size=6, key_value_heads=2, causal=True, rotary=100.0)


def ragged() -> Ragged:
    """Rows whose padding is no number."""
    own = np.where(np.arange(STEPS)[None, :, None] < np.array(LENGTHS)[:, None, None], VALUES, np.nan)
    return Ragged(jnp.asarray(own), jnp.array(LENGTHS, "int32"))


def drawn(layer: Any, shape: Any = SHAPE) -> Any:
    random = np.random.default_rng(3)
    shapes = jax.eval_shape(lambda: layer.init(jax.random.key(0), shape))
    return jax.tree.map(lambda array: jnp.asarray(random.normal(size=array.shape)), shapes)


@partial(jax.jit, static_argnums=0)
def both_ways(layer: Any, weights: Any, x: Ragged) -> Any:
    """(y of whole rows, y in segments, the last state)."""
    state, found = layer.first_state(len(x.values), SHAPE, "float64", ROOM), []
    for start, stop in CUTS:
        y, state = layer.forward_from(weights, state, x.between(start, stop))
        found.append(y.values)
    return layer.forward(weights, x).values, jnp.concatenate(found, axis=1), state


def assert_close(actual: Any, expected: Any, tolerance: float = 1e-10) -> None:
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=0, atol=tolerance), actual, expected)


CASES = {
    "attention": MultiHeadAttention(2, causal=True, bias=False),
    "grouped and rotary": GROUPED,
    "learned": LearnedPositions(STEPS),
    "sines": SinusoidalPositions(base=50.0),
    "encoder": Network([TransformerEncoder(4, 8, 0.2, causal=True, key_value_heads=1, norm_first=True)], SHAPE),
    "positions and blocks": Network(
        [
            LearnedPositions(STEPS),
            Dropout(0.5),
            TransformerEncoder(2, 8, causal=True, gated=True),
            Residual([LayerNorm(), GROUPED, Lstm(INPUTS)]),
        ],
        SHAPE,
    ),
}


@pytest.mark.parametrize("kind", CASES)
def test_segments_give_what_whole_rows_give(kind: str, float64: None) -> None:
    layer, x = CASES[kind], ragged()
    weights, valid = drawn(layer), np.asarray(x.valid)
    whole, parts, _ = both_ways(layer, weights, x)
    assert np.isfinite(whole[valid]).all()
    assert_close(parts[valid], whole[valid])


@pytest.mark.parametrize("kind", ["grouped and rotary", "positions and blocks"])
def test_steps_one_by_one_give_what_whole_rows_give(kind: str, float64: None) -> None:
    layer, x = CASES[kind], ragged()
    weights = drawn(layer)
    whole, _, after = both_ways(layer, weights, x)
    for row, length in ((1, 5), (2, 3)):
        state = layer.first_state(1, SHAPE, "float64", ROOM)
        for at in range(length):
            y, state = layer.step(weights, state, VALUES[row : row + 1, at])
            assert_close(y[0], whole[row, at])
        assert_close(jax.tree.map(lambda part, row=row: part[row : row + 1], after), state)


def test_it_keeps_keys_and_values_of_each_row_and_zeros_behind_them(float64: None) -> None:
    weights = drawn(GROUPED)
    state = both_ways(GROUPED, weights, ragged())[2]
    np.testing.assert_array_equal(state["count"], LENGTHS)
    assert state["keys"].shape == state["values"].shape == (4, 2, ROOM, 6)
    for row, length in enumerate(LENGTHS):
        made = np.einsum("ti,ihd->htd", VALUES[row, :length], weights["value"]["kernel"])
        assert_close(state["values"][row, :, :length], made + np.asarray(weights["value"]["bias"])[:, None])
        assert not state["values"][row, :, length:].any() and not state["keys"][row, :, length:].any()


def test_arrays_are_segments_that_all_rows_have(float64: None) -> None:
    layer = CASES["attention"]
    weights = drawn(layer)
    state = layer.first_state(4, SHAPE, "float64", STEPS)
    first, state = layer.forward_from(weights, state, VALUES[:, :4])
    last, state = layer.forward_from(weights, state, VALUES[:, 4:])
    assert_close(np.concatenate([first, last], axis=1), layer.forward(weights, VALUES))


def test_a_segment_of_many_scores_is_the_same_in_blocks(monkeypatch: pytest.MonkeyPatch, float64: None) -> None:
    monkeypatch.setattr(dot_product, "SCORES", 2 * ROOM)
    layer = MultiHeadAttention(2, causal=True, rotary=30.0)
    whole, parts, _ = both_ways(layer, drawn(layer), ragged())
    assert_close(parts, whole)


def test_steps_for_which_there_is_no_room_are_nan_and_no_others(float64: None) -> None:
    weights, x = drawn(GROUPED), ragged()
    state = GROUPED.first_state(4, SHAPE, "float64", longest=4)
    first, state = GROUPED.forward_from(weights, state, x.between(0, 3))
    last, state = GROUPED.forward_from(weights, state, x.between(3, 7))
    found, whole = np.concatenate([first.values, last.values], axis=1), GROUPED.forward(weights, x).values
    assert_close(found[:, :4], whole[:, :4])
    assert np.isnan(found[:, 4:][x.valid[:, 4:]]).all()
    assert not found[:, 4:][~x.valid[:, 4:]].any()


def test_a_block_that_asks_rows_of_one_length_is_given_them_whole(float64: None) -> None:
    graph = Graph(
        {"source": (5, 6), "target": SHAPE},
        {"read": (TransformerEncoder(2, 4), "source"), "y": (TransformerDecoder(2, 8, rotary=9.0), "target", "read")},
        "y",
    )
    weights, source = drawn(graph, None), np.random.default_rng(1).normal(size=(4, 5, 6))
    state = graph.first_state(4, dtype="float64", longest=STEPS)
    assert state["y"].keys() == {"attention"}
    found = []
    for at in range(STEPS):
        y, state = graph.step(weights, state, (source, VALUES[:, at]))
        found.append(y)
    whole = graph.forward(weights, (source, Ragged(VALUES, np.full(4, STEPS, "int32")))).values
    assert_close(np.stack(found, axis=1), whole)


FAR = 300_000


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_steps_far_into_a_row_are_told_apart_as_well_as_the_first(dtype: str, float64: None) -> None:
    """By the formulas in float64; of float32, a product of step and speed would be off by hundredths."""
    tolerance = {"float32": 2e-6, "float64": 2e-9}[dtype]
    at, size = FAR + np.arange(3), 6
    state = {"count": jnp.array([FAR], "int32")}
    found = SinusoidalPositions(50.0).forward_from({}, state, np.zeros((1, 3, size), dtype))[0]
    turns = at[:, None] / 50.0 ** (2 * np.arange(size // 2) / size)
    sines = np.stack([np.sin(turns), np.cos(turns)], axis=2).reshape(1, 3, size)
    assert found.dtype == dtype
    assert_close(found, sines, tolerance)
    x = np.concatenate([np.ones((1, 3, 3)), np.zeros((1, 3, 3))], axis=2).astype(dtype)
    turned = rotated(jnp.asarray(x), 50.0, at=jnp.asarray(at[None], "int32"))
    assert_close(turned, np.concatenate([np.cos(turns), np.sin(turns)], axis=1)[None], tolerance)


@pytest.mark.parametrize("layer", [LearnedPositions(7), SinusoidalPositions()], ids=["learned", "sines"])
def test_slopes_of_positions_are_those_of_the_steps_that_they_are_at(layer: Any, float64: None) -> None:
    weights, dy = drawn(layer), np.random.default_rng(6).normal(size=(4, 3, INPUTS))
    x = Ragged(jnp.asarray(VALUES[:, :3]), jnp.array([3, 2, 0, 3], "int32"))
    count = np.array([4, 0, 6, 1], "int32")
    context = Context(jax.random.key(0), jnp.ones(4), states={"count": jnp.asarray(count)})
    y, kept = layer.train_forward(weights, x, context)
    dx, gradient = layer.train_backward(weights, x, y, dy, kept, context, True)
    masked = np.where(np.asarray(x.valid)[..., None], dy, 0)
    assert_close(dx, masked)
    np.testing.assert_array_equal(layer.new_state(context.states, kept)["count"], [7, 2, 6, 4])
    if weights:
        expected = np.zeros((7, INPUTS))
        np.add.at(expected, np.minimum(count[:, None] + np.arange(3), 6), masked)  # beyond the table is padding alone
        assert_close(gradient["table"], expected)


def test_gpt2_keeps_what_each_block_needs() -> None:
    network = models.gpt2(vocabulary=20, size=8, blocks=2, heads=2, length=16)
    state = network.first_state(3, dtype="bfloat16", longest=5)
    assert state.keys() == {"positions", "block_0", "block_1"}
    assert jax.tree.map(jnp.shape, state["block_1"]) == {
        "attention": {"count": (3,), "keys": (3, 2, 5, 4), "values": (3, 2, 5, 4)}
    }
    weights = jax.tree.map(lambda array: jnp.zeros(array.shape, "bfloat16"), network.abstract_weights())
    y, after = network.step(weights, state, np.zeros(3, "int32"))
    assert y.dtype == after["block_0"]["attention"]["keys"].dtype == "bfloat16"


ACROSS = Graph({"a": (None, 4), "b": (None, 8)}, {"y": (TransformerDecoder(2, 8), "a", "b")}, "y")


@pytest.mark.parametrize(
    ("network", "sentence"),
    [
        (
            Network([Dense(4), TransformerEncoder(2, 8)], (None, 3)),
            r"Layer 1 \(TransformerEncoder\): attention \(MultiHeadAttention\): .* asks steps after .* causal=True",
        ),
        (
            Network([Dense(4), MultiHeadAttention(2, causal=True)], (None, 3)),
            "keeps the keys and values of all steps .* to be told how many .* longest=512 .* by maxLength",
        ),
        (
            ACROSS,
            r"cross_attention \(MultiHeadAttention\): .* asks all steps of other rows, \(None, 8\), .* as \(64, 8\)",
        ),
    ],
    ids=["not causal", "any number", "across"],
)
def test_what_cannot_be_carried_is_refused(network: Any, sentence: str) -> None:
    with pytest.raises(CannotCarry, match=sentence):
        network.first_state(2, longest=None if "told how" in sentence else 9)


def test_it_is_not_trained_on_segments(float64: None) -> None:
    layer = MultiHeadAttention(2, causal=True)
    states = {"multi_head_attention_0": layer.first_state(4, SHAPE, "float64", STEPS)}
    context = Context(jax.random.key(0), jnp.ones(4), states=states)
    with pytest.raises(ValueError, match="expects whole rows in training, received a segment"):
        Network([layer]).train_forward({"multi_head_attention_0": drawn(layer)}, VALUES, context)
