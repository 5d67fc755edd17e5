"""Blocks of transformers against PyTorch's in float64, positions against their formulas, and what they refuse."""

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
from attention_peers import assert_close, block_weights, drawn, padding, ragged, valid

from sparkdl import Graph, Network
from sparkdl.layers import (
    ClassToken,
    ConcatenateSteps,
    Context,
    Embedding,
    FeatureTokens,
    FeedForward,
    Gelu,
    Layer,
    LearnedPositions,
    PRelu,
    Relu,
    Segments,
    Silu,
    SinusoidalPositions,
    TransformerDecoder,
    TransformerEncoder,
)
from sparkdl.layers.ragged import values_of

BATCH, STEPS, OTHERS, INPUTS = 3, 5, 4, 4
LENGTHS, OTHER_LENGTHS = (5, 1, 3), (2, 4, 1)
RANDOM = np.random.default_rng(6)
X = RANDOM.normal(size=(BATCH, STEPS, INPUTS))
OTHER = RANDOM.normal(size=(BATCH, OTHERS, INPUTS))
DY = valid(RANDOM.normal(size=(BATCH, STEPS, INPUTS)), LENGTHS)


@partial(jax.jit, static_argnums=0)
def trained(layer: Layer, weights: Any, x: Any, dy: Any) -> tuple[Any, Any, Any]:
    """(y, dx, dweights) of a training step."""
    context = Context(jax.random.key(1), jnp.ones(len(dy)))
    y, kept = layer.train_forward(weights, x, context)
    return values_of(y), *layer.train_backward(weights, x, y, dy, kept, context, True)


@pytest.mark.parametrize(("norm_first", "causal"), [(False, False), (True, True)])
def test_an_encoder_and_its_slopes_are_those_of_torch(norm_first: bool, causal: bool, float64: None) -> None:
    torch = pytest.importorskip("torch")
    module = drawn(torch.nn.TransformerEncoderLayer(INPUTS, 2, 6, 0, "gelu", 1e-3, True, norm_first), 1)
    inputs = torch.tensor(X, requires_grad=True)
    later = torch.ones(STEPS, STEPS, dtype=torch.bool).triu(1) if causal else None
    expected = module(inputs, src_mask=later, src_key_padding_mask=padding(X, LENGTHS))
    expected.backward(torch.from_numpy(DY))
    layer = TransformerEncoder(2, 6, norm_first=norm_first, causal=causal, epsilon=1e-3)
    y, dx, dweights = trained(layer, block_weights(module), ragged(X, LENGTHS), DY)
    assert inputs.grad is not None
    assert_close(valid(y, LENGTHS), valid(expected.detach().numpy(), LENGTHS))
    assert_close(valid(dx, LENGTHS), valid(inputs.grad.numpy(), LENGTHS))
    assert_close(dweights, block_weights(module, gradient=True))


@pytest.mark.parametrize("norm_first", [False, True])
def test_a_decoder_and_its_slopes_are_those_of_torch(norm_first: bool, float64: None) -> None:
    torch = pytest.importorskip("torch")
    module = drawn(torch.nn.TransformerDecoderLayer(INPUTS, 2, 6, 0, "relu", 1e-3, True, norm_first), 2)
    inputs, others = (torch.tensor(array, requires_grad=True) for array in (X, OTHER))
    later = torch.ones(STEPS, STEPS, dtype=torch.bool).triu(1)
    masks = {"tgt_key_padding_mask": padding(X, LENGTHS), "memory_key_padding_mask": padding(OTHER, OTHER_LENGTHS)}
    expected = module(inputs, others, tgt_mask=later, **masks)
    expected.backward(torch.from_numpy(DY))
    layer = TransformerDecoder(2, 6, activation="relu", norm_first=norm_first, epsilon=1e-3)
    x = ragged(X, LENGTHS), ragged(OTHER, OTHER_LENGTHS)
    y, dx, dweights = trained(layer, block_weights(module), x, DY)
    assert inputs.grad is not None and others.grad is not None
    assert_close(valid(y, LENGTHS), valid(expected.detach().numpy(), LENGTHS))
    assert_close(valid(dx[0], LENGTHS), valid(inputs.grad.numpy(), LENGTHS))
    assert_close(dx[1], others.grad.numpy())
    assert_close(dweights, block_weights(module, gradient=True))


def test_rows_that_all_have_as_many_steps_need_no_lengths(float64: None) -> None:
    layer = TransformerEncoder(2, 6, activation="silu", gated=True)
    shapes = jax.eval_shape(lambda: layer.init(jax.random.key(0), (STEPS, INPUTS)))
    weights = jax.tree.map(lambda array: np.random.default_rng(3).normal(size=array.shape), shapes)
    y, dx, dweights = trained(layer, weights, X, X)
    assert_close((y, dx, dweights), trained(layer, weights, ragged(X, [STEPS] * BATCH), X))


def test_a_gated_one_multiplies_what_two_products_give(float64: None) -> None:
    layer = FeedForward(6, "silu", gated=True)
    shapes = jax.eval_shape(lambda: layer.init(jax.random.key(0), (INPUTS,)))
    weights = jax.tree.map(lambda array: np.random.default_rng(3).normal(size=array.shape), shapes)
    inner, gate = (X @ weights[name]["kernel"] + weights[name]["bias"] for name in ("inner", "gate"))
    expected = gate / (1 + np.exp(-gate)) * inner @ weights["outer"]["kernel"] + weights["outer"]["bias"]
    assert_close(layer.forward(weights, X), expected)


def test_what_outer_reads_is_dropped(float64: None) -> None:
    """A kernel of ones shows how much of a thousand ones is left in each row."""
    layer = FeedForward(1000, "relu", 0.2, bias=False)
    weights = {"inner": {"kernel": np.ones((1, 1000))}, "outer": {"kernel": np.ones((1000, 1))}}
    context = Context(jax.random.key(1), jnp.ones(50))
    y = np.asarray(jax.jit(lambda x: layer.train_forward(weights, x, context)[0])(np.ones((50, 1))))
    assert abs(y.mean() - 1000) < 10 and 5 < y.std() < 30
    assert_close(layer.forward(weights, np.ones((2, 1))), np.full((2, 1), 1000.0))


# Positions


def test_a_step_has_the_vector_of_its_number_and_padding_none(float64: None) -> None:
    table = np.random.default_rng(2).normal(size=(7, INPUTS))
    y, dx, gradient = trained(LearnedPositions(7), {"table": table}, ragged(X, LENGTHS), DY + 1)
    assert_close(y, valid(X + table[None, :STEPS], LENGTHS))
    assert_close(dx, valid(DY + 1, LENGTHS))
    expected = np.concatenate([valid(DY + 1, LENGTHS).sum(axis=0), np.zeros((2, INPUTS))])
    assert_close(gradient, {"table": expected})


def test_a_step_without_a_vector_is_nan_but_padding_is_not(float64: None) -> None:
    table = np.ones((3, INPUTS))
    y, _, gradient = trained(LearnedPositions(3), {"table": table}, ragged(X, LENGTHS), DY)
    assert np.isnan(y[0, 3:]).all() and np.isfinite(y[0, :3]).all() and np.isfinite(y[1:]).all()
    assert_close(gradient, {"table": DY.sum(axis=0)[:3]})


@pytest.mark.parametrize("inputs", [4, 5])
def test_sines_and_cosines_alternate(inputs: int, float64: None) -> None:
    expected = np.zeros((STEPS, inputs))
    for step in range(STEPS):
        for number in range(inputs):
            angle = step / 10_000 ** ((number - number % 2) / inputs)
            expected[step, number] = np.cos(angle) if number % 2 else np.sin(angle)
    assert_close(SinusoidalPositions().forward({}, np.zeros((1, STEPS, inputs))), expected[None])


# In networks


def test_blocks_are_known_by_their_parts() -> None:
    block = TransformerEncoder(4, 32, 0.1)
    network = Network([Embedding(50, 16), LearnedPositions(9), block, replace(block, norm_first=True)], (None,))
    paths = {
        "transformer_encoder_2/attention",
        "transformer_encoder_2/feed_forward",
        "transformer_encoder_3/attention_norm",
    }
    assert paths <= set(network.paths)
    weights = network.abstract_weights()["transformer_encoder_3"]
    assert weights.keys() == {"attention", "attention_norm", "feed_forward", "feed_forward_norm"}
    assert block.multiply_adds((None, 16)) == 4 * 16 * 16 + 2 * 16 + 2 * 16 * 32  # of one step
    frozen = Network([replace(block, trainable=False)], input_shape=(None, 16))
    assert jax.eval_shape(lambda: frozen.learned(frozen.init(0))) == {}
    dropouts = {child.name: child.layer for child in block.children}
    assert dropouts["attention"].dropout == dropouts["feed_forward"].dropout == 0.1
    apart = {child.name: child.layer for child in replace(block, attention_dropout=0.0, inner_dropout=0.3).children}
    assert (apart["attention"].dropout, apart["feed_forward"].dropout, apart["feed_forward_dropout"].rate) == (
        0,
        0.3,
        0.1,
    )


@pytest.mark.parametrize(
    "layer", [TransformerDecoder(4, 8, 0.1, "silu", rotary=10.0, gated=True), FeedForward(3, Gelu(True), 0.1)], ids=repr
)
def test_json_holds_all_of_it(layer: Layer) -> None:
    copy = Layer.from_json(json.loads(json.dumps(layer.to_json())))
    assert copy == layer and hash(copy) == hash(layer)
    assert TransformerEncoder(2, 4, activation="relu").activation == Relu() and Silu() != Relu()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TransformerEncoder(0, 4), "heads of TransformerEncoder must be a positive integer, received 0"),
        (lambda: TransformerDecoder(2, 4.0), "feed_forward of TransformerDecoder must be a positive integer"),  # type: ignore[arg-type]
        (lambda: TransformerEncoder(2, 4, 1.0), r"dropout of TransformerEncoder must be a number in \[0, 1\)"),
        (lambda: TransformerEncoder(2, 4, norm_first=1), "norm_first of TransformerEncoder must be True or False"),  # type: ignore[arg-type]
        (lambda: TransformerEncoder(2, 4, epsilon=0), "epsilon of LayerNorm must be a positive number"),
        (lambda: TransformerEncoder(2, 4, activation="sigh"), "Layer is expected, received 'sigh'"),
        (lambda: FeedForward(0), "units of FeedForward must be a positive integer, received 0"),
        (lambda: FeedForward(2, gated=1), "gated of FeedForward must be True or False, received 1"),  # type: ignore[arg-type]
        (lambda: Network([FeedForward(2, PRelu())], (3,)), "must be a layer without weights that keeps the shape"),
        (lambda: Network([TransformerEncoder(2, 4)], (None, 3)), "attention .*a multiple of heads=2 numbers"),
        (
            lambda: Network([TransformerDecoder(2, 4)], (None, 4)),
            "a TransformerDecoder, reads 2 inputs, received 1",
        ),
        (lambda: Graph({"a": (3, 4)}, {"y": (TransformerDecoder(2, 4), "a")}, "y"), "of 2 inputs, received 1 sources"),
        (lambda: LearnedPositions(0), "length of LearnedPositions must be a positive integer, received 0"),
        (lambda: SinusoidalPositions(1), r"base of SinusoidalPositions must be a number in \(1, inf\)"),
        (lambda: Network([LearnedPositions(4)], (5, 2)), "rows of at most 4 steps, received .*raise its length"),
    ],
)
def test_what_fits_nothing_is_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


# Steps of other things


def test_parts_of_a_text_are_counted_by_their_separators() -> None:
    words = np.array([[1, 9, 5, 9, 9, 4], [9, 9, 9, 9, 9, 9], [3, 3, 3, 3, 3, 3]], "int32")
    two = jax.jit(Segments(9).forward)({}, ragged(words, (6, 2, 0)))
    np.testing.assert_array_equal(two.values, [[0, 0, 1, 1, 1, 1], [0, 1, 0, 0, 0, 0], [0] * 6])
    four = jax.jit(Segments(9, 4).forward)({}, words)
    np.testing.assert_array_equal(four, [[0, 0, 1, 1, 2, 3], [0, 1, 2, 3, 3, 3], [0] * 6])
    assert four.dtype == "int32"
    with pytest.raises(ValueError, match="separator of Segments must be an integer of at least 0, received -1"):
        Segments(-1)
    with pytest.raises(ValueError, match=r"Segments expects rows of words, .* received \(3, 4\)"):
        Network([Segments(9), Embedding(2, 3)], (3, 4))


def test_numbers_and_vectors_become_steps(float64: None) -> None:
    weights = {name: RANDOM.normal(size=(INPUTS, 2)) for name in ("kernel", "bias")}
    tokens = FeatureTokens(2).forward(weights, X[0])
    expected = [X[0, :, i : i + 1] * weights["kernel"][i] + weights["bias"][i] for i in range(INPUTS)]
    assert_close(tokens, np.stack(expected, axis=1))
    joined = ConcatenateSteps().forward({}, (X, X[:, 1]))
    assert_close(joined, np.concatenate([X, X[:, 1:2]], axis=1))
    with_class = ClassToken().forward({"token": X[0, 0]}, X)
    assert_close(with_class[1], np.concatenate([X[:1, 0], X[1]]))
    with pytest.raises(ValueError, match="ClassToken expects rows of one length, received rows of any"):
        Network([ClassToken()], (None, 4))
    with pytest.raises(ValueError, match="size of FeatureTokens must be a positive integer, received 0"):
        FeatureTokens(0)
