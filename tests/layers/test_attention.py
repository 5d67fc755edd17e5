"""MultiHeadAttention against PyTorch and a plain loop in float64; in blocks, in training, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from attention_peers import assert_close, attention_weights, drawn, padding, ragged, valid

from sparkdl import Graph, Network
from sparkdl.layers import Add, Context, Dense, Layer, MultiHeadAttention, Ragged
from sparkdl.layers.attention import dot_product
from sparkdl.layers.ragged import values_of

BATCH, STEPS, OTHERS, INPUTS = 4, 5, 7, 4
LENGTHS, OTHER_LENGTHS = (5, 1, 0, 3), (2, 7, 3, 0)
RANDOM = np.random.default_rng(5)
X = RANDOM.normal(size=(BATCH, STEPS, INPUTS))
OTHER = RANDOM.normal(size=(BATCH, OTHERS, INPUTS))
DY = RANDOM.normal(size=(BATCH, STEPS, INPUTS))


def weights_of(layer: Layer, shape: Any = (None, INPUTS)) -> Any:
    shapes = jax.eval_shape(lambda: layer.init(jax.random.key(0), shape))
    random = np.random.default_rng(3)
    return jax.tree.map(lambda array: random.normal(size=array.shape) / 2, shapes)


@partial(jax.jit, static_argnums=0)
def trained(layer: Layer, weights: Any, x: Any, dy: Any) -> tuple[Any, Any, Any]:
    """(y, dx, dweights) of a training step."""
    context = Context(jax.random.key(1), jnp.ones(len(dy)))
    y, kept = layer.train_forward(weights, x, context)
    return values_of(y), *layer.train_backward(weights, x, y, dy, kept, context, True)


def loop(layer: MultiHeadAttention, weights: Any, asking: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """Of one row without padding: each step of each head by itself."""
    own = {name: part["kernel"] for name, part in weights.items()}
    biases = {name: part.get("bias", np.zeros(part["kernel"].shape[1:])) for name, part in weights.items()}
    y = np.zeros((len(asking), own["output"].shape[-1]))
    if len(asked) == 0:
        return y
    y += weights["output"].get("bias", 0)
    for head in range(layer.heads):
        shared = head // (layer.heads // own["key"].shape[1])
        keys, values = (asked @ own[name][:, shared] + biases[name][shared] for name in ("key", "value"))
        queries = asking @ own["query"][:, head] + biases["query"][head]
        size = queries.shape[1]
        if layer.rotary:
            keys, queries = (turned(vectors, layer.rotary) for vectors in (keys, queries))
        for step, query in enumerate(queries):
            seen = step + 1 if layer.causal else len(asked)
            powers = np.exp(keys[:seen] @ query / size**0.5)
            y[step] += (powers / powers.sum()) @ values[:seen] @ own["output"][head]
    return y


def turned(vectors: np.ndarray, base: float) -> np.ndarray:
    """Rotated as complex numbers, of which the halves are the parts."""
    half = vectors.shape[1] // 2
    numbers = vectors[:, :half] + 1j * vectors[:, half:]
    angles = np.outer(np.arange(len(vectors)), base ** (-np.arange(half) / half))
    numbers = numbers * np.exp(1j * angles)
    return np.concatenate([numbers.real, numbers.imag], axis=1)


KINDS = [
    MultiHeadAttention(2),
    MultiHeadAttention(4, 2, 2, causal=True, rotary=50.0),
    MultiHeadAttention(3, 6, 1, bias=False),
]


@pytest.mark.parametrize("layer", KINDS, ids=repr)
def test_it_is_what_a_plain_loop_gives_of_each_row_alone(layer: MultiHeadAttention, float64: None) -> None:
    weights = weights_of(layer)
    rows = [loop(layer, weights, x[:length], x[:length]) for x, length in zip(X, LENGTHS, strict=True)]
    y = np.asarray(jax.jit(layer.forward)(weights, ragged(X, LENGTHS)).values)
    for row, expected, length in zip(y, rows, LENGTHS, strict=True):
        assert_close(row[:length], expected)
        assert not row[length:].any()
    whole = np.stack([loop(layer, weights, x, x) for x in X])
    assert_close(jax.jit(layer.forward)(weights, X), whole)


def test_rows_may_ask_rows_of_other_lengths(float64: None) -> None:
    layer = MultiHeadAttention(2, 3)
    weights = weights_of(layer, ((None, INPUTS), (None, INPUTS)))
    y = np.asarray(jax.jit(layer.forward)(weights, (ragged(X, LENGTHS), ragged(OTHER, OTHER_LENGTHS))).values)
    for row in range(BATCH):
        expected = loop(layer, weights, X[row, : LENGTHS[row]], OTHER[row, : OTHER_LENGTHS[row]])
        assert_close(y[row, : LENGTHS[row]], expected)
        assert not y[row, LENGTHS[row] :].any()


@pytest.mark.parametrize("causal", [False, True])
def test_it_and_its_slopes_are_those_of_torch(causal: bool, float64: None) -> None:
    torch = pytest.importorskip("torch")
    module = drawn(torch.nn.MultiheadAttention(INPUTS, 2, batch_first=True), 1)
    lengths = (5, 1, 2, 3)  # of an empty row PyTorch gives NaN
    inputs = torch.tensor(X, requires_grad=True)
    later = torch.ones(STEPS, STEPS, dtype=torch.bool).triu(1) if causal else None
    expected, _ = module(inputs, inputs, inputs, key_padding_mask=padding(X, lengths), attn_mask=later)
    expected.backward(torch.from_numpy(valid(DY, lengths)))
    layer, x, weights = MultiHeadAttention(2, causal=causal), ragged(X, lengths), attention_weights(module)
    y, dx, dweights = trained(layer, weights, x, DY)
    assert inputs.grad is not None
    assert_close(y, valid(expected.detach().numpy(), lengths))
    assert_close(dx, inputs.grad.numpy())
    assert_close(dweights, attention_weights(module, gradient=True))
    assert_close(jax.jit(layer.delta)(weights, x, x, DY), dx)
    assert_close(jax.jit(layer.gradient)(weights, x, x, DY), dweights)


def test_asking_other_rows_it_and_its_slopes_are_those_of_torch(float64: None) -> None:
    torch = pytest.importorskip("torch")
    wide, lengths = 6, (2, 7, 3, 1)
    other = np.random.default_rng(8).normal(size=(BATCH, OTHERS, wide))
    module = drawn(torch.nn.MultiheadAttention(INPUTS, 2, kdim=wide, vdim=wide, batch_first=True), 2)
    asking, asked = (torch.tensor(array, requires_grad=True) for array in (X, other))
    expected, _ = module(asking, asked, asked, key_padding_mask=padding(other, lengths))
    expected.backward(torch.from_numpy(valid(DY, LENGTHS)))
    given = ragged(X, LENGTHS), ragged(other, lengths)
    y, dx, dweights = trained(MultiHeadAttention(2), attention_weights(module), given, DY)
    assert asking.grad is not None and asked.grad is not None
    assert_close(y, valid(expected.detach().numpy(), LENGTHS))
    assert_close(dx, (asking.grad.numpy(), asked.grad.numpy()))
    assert_close(dweights, attention_weights(module, gradient=True))


# In blocks


@pytest.mark.parametrize(
    ("layer", "across"),
    [(MultiHeadAttention(4, 2, 2, causal=True, dropout=0.4, rotary=9.0), False), (MultiHeadAttention(2), True)],
    ids=repr,
)
def test_blocks_change_nothing(
    layer: MultiHeadAttention, across: bool, float64: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even what is dropped; the steps are no multiple of a block's."""
    x: Any = (ragged(X, LENGTHS), ragged(OTHER, OTHER_LENGTHS)) if across else ragged(X, LENGTHS)
    weights = weights_of(layer, ((None, INPUTS), (None, INPUTS)) if across else (None, INPUTS))
    whole = trained(layer, weights, x, DY)
    others = OTHERS if across else STEPS
    monkeypatch.setattr(dot_product, "SCORES", 2 * others)
    trained.clear_cache()
    blocked = trained(layer, weights, x, DY)
    kept = jax.eval_shape(lambda x: layer.train_forward(weights, x, Context(jax.random.key(1), jnp.ones(BATCH)))[1], x)
    assert not [array for array in jax.tree.leaves(kept) if array.shape[-2:] == (STEPS, others)]
    trained.clear_cache()
    assert_close(blocked, whole, 1e-14)


def test_memory_of_long_rows_grows_with_their_steps() -> None:
    layer = MultiHeadAttention(2, 8)

    def bytes_needed(steps: int) -> int:
        shapes = jax.eval_shape(lambda: (layer.init(jax.random.key(0), (steps, 16)), jnp.zeros((1, steps, 16))))
        step = jax.jit(partial(trained.__wrapped__, layer)).lower(*shapes, shapes[1]).compile()
        analysis = step.memory_analysis()
        assert analysis is not None
        return analysis.temp_size_in_bytes

    assert bytes_needed(4096) < 1.5 * 4 * bytes_needed(1024)


# Training


def test_what_is_dropped_is_what_a_step_takes_of_another(float64: None) -> None:
    """With kernels that leave one-hot vectors as they are, y shows the shares: even ones, of which some are dropped."""
    layer, steps = MultiHeadAttention(1, dropout=0.25), 6
    unit = {"kernel": np.eye(steps).reshape(steps, 1, steps), "bias": np.zeros((1, steps))}
    none = {name: np.zeros_like(array) for name, array in unit.items()}
    output = {"kernel": np.eye(steps)[None], "bias": np.zeros(steps)}
    weights = {"query": none, "key": none, "value": unit, "output": output}
    x = np.broadcast_to(np.eye(steps), (500, steps, steps))
    shares = np.asarray(trained(layer, weights, x, x)[0])
    assert set(np.unique(shares.round(9))) == {0, round(1 / 6 / 0.75, 9)}
    assert abs((shares == 0).mean() - 0.25) < 0.02
    assert len(np.unique(shares.reshape(500, -1), axis=0)) == 500
    assert_close(layer.forward(weights, x), np.full(x.shape, 1 / 6))


def test_a_row_without_steps_gives_zeros_and_no_slopes(float64: None) -> None:
    layer = MultiHeadAttention(2, 3)
    weights, x = weights_of(layer), Ragged(np.full((2, 3, INPUTS), np.nan), np.zeros(2, "int32"))
    y, dx, dweights = trained(layer, weights, x, DY[:2, :3])
    assert not any(np.any(array) for array in jax.tree.leaves((y, dx, dweights)))


def test_penalties_and_constraints_are_of_all_kernels() -> None:
    layer = MultiHeadAttention(2, 3, l1=0.5, l2=3.0, constraint="unit_norm")
    weights = jax.tree.map(lambda array: jnp.full(array.shape, 2.0), weights_of(layer))
    numbers = 4 * INPUTS * 6
    assert float(jax.jit(layer.penalty)(weights)) == pytest.approx(0.5 * 2 * numbers + 1.5 * 4 * numbers)
    projected = jax.jit(layer.constrained)(weights)
    np.testing.assert_allclose(projected["query"]["kernel"], np.full((INPUTS, 2, 3), INPUTS**-0.5), rtol=1e-6)
    np.testing.assert_allclose(projected["output"]["kernel"], np.full((2, 3, INPUTS), 6**-0.5), rtol=1e-6)
    np.testing.assert_array_equal(projected["value"]["bias"], weights["value"]["bias"])


# In networks


def test_a_network_knows_its_shapes_and_its_work() -> None:
    assert MultiHeadAttention(2).multiply_adds((5, 4)) == 4 * 5 * 4 * 4 + 2 * 5 * 5 * 4
    across = MultiHeadAttention(4, 2, key_value_heads=2)
    assert across.multiply_adds(((5, 4), (7, 3))) == 2 * 5 * 4 * 8 + 2 * 7 * 3 * 4 + 2 * 5 * 7 * 8
    shapes = jax.eval_shape(lambda: across.init(jax.random.key(0), ((5, 4), (7, 3))))
    assert {name: part["kernel"].shape for name, part in shapes.items()} == {
        "query": (4, 4, 2),
        "key": (3, 2, 2),
        "value": (3, 2, 2),
        "output": (4, 2, 4),
    }
    assert shapes["key"]["bias"].shape == (2, 2) and shapes["output"]["bias"].shape == (4,)
    drawn_whole = jax.jit(lambda: MultiHeadAttention(4).init(jax.random.key(0), (None, 64))["query"]["kernel"])()
    assert 0.9 < np.abs(drawn_whole).max() / (6 / (64 + 64)) ** 0.5 <= 1


def test_a_graph_may_have_rows_of_two_lengths_meet_in_it() -> None:
    inputs = {"asking": (None, 4), "asked": (None, 3)}
    nodes = {"met": (MultiHeadAttention(2), "asking", "asked"), "both": (Add(), "met", "asking")}
    graph = Graph(inputs, nodes, "both")
    assert graph.output_shape() == (None, 4)
    with pytest.raises(ValueError, match="Node 'both' .*Add expects rows of the same lengths"):
        Graph(inputs, {"met": (MultiHeadAttention(3), "asked", "asking"), "both": (Add(), "met", "asking")}, "both")
    x = ragged(X, LENGTHS), ragged(OTHER[..., :3], OTHER_LENGTHS)
    y = jax.eval_shape(lambda x: graph.forward(graph.init(0), x), x)
    assert y.values.shape == X.shape and y.lengths.shape == (BATCH,)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MultiHeadAttention(0), "heads of MultiHeadAttention must be a positive integer, received 0"),
        (lambda: MultiHeadAttention(2, 1.5), "key_size of MultiHeadAttention must be a positive integer"),  # type: ignore[arg-type]
        (lambda: MultiHeadAttention(4, key_value_heads=3), "must be a divisor of heads=4, received 3"),
        (lambda: MultiHeadAttention(2, causal=1), "causal of MultiHeadAttention must be True or False, received 1"),  # type: ignore[arg-type]
        (lambda: MultiHeadAttention(2, dropout=1), r"dropout of MultiHeadAttention must be a number in \[0, 1\)"),
        (lambda: MultiHeadAttention(2, rotary=True), r"rotary of MultiHeadAttention must be a number in \(1, inf\)"),
        (
            lambda: Network([MultiHeadAttention(2)], (None, 3)),
            "a multiple of heads=2 numbers, received 3; set key_size",
        ),
        (lambda: Network([MultiHeadAttention(2, 3, rotary=9.0)], (None, 4)), "expects an even key_size, received 3"),
        (lambda: Network([Dense(4), MultiHeadAttention(2)], (3,)), "expects rows of steps, of shape"),
        (
            lambda: Graph({"a": (2, 4), "b": (3, 4)}, {"y": (MultiHeadAttention(2, causal=True), "a", "b")}, "y"),
            "to other rows expects neither causal nor rotary",
        ),
        (lambda: Graph({"a": (2, 4)}, {"y": (MultiHeadAttention(2), "a", "a", "a")}, "y"), "or two of them"),
    ],
)
def test_what_fits_nothing_is_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
