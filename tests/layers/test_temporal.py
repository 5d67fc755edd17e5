"""Temporal convolutional networks against one written in PyTorch: all kernels, what a step sees, rows of any length."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sparkdl import Network
from sparkdl.layers import Context, LastStep, PRelu, Ragged, SpatialDropout, TemporalConvNet
from sparkdl.weights import count_weights

pytestmark = pytest.mark.usefixtures("float64")
BLOCKS = TemporalConvNet([4, 4], 2)  # of which the second has nothing on its shortcut


def abstract_of(layer: TemporalConvNet, channels: int) -> Any:
    return jax.eval_shape(lambda: layer.init(jax.random.key(0), (7, channels)))


def weights_of(layer: TemporalConvNet, channels: int, random: np.random.Generator) -> Any:
    return jax.tree.map(lambda w: jnp.asarray(random.standard_normal(w.shape) / 2), abstract_of(layer, channels))


def in_torch(x: Any, blocks: list[Any]) -> Any:
    """Of x (batch, channels, steps) and blocks of (kernel, bias) by name, the kernels (outputs, inputs, size)."""
    from torch.nn.functional import conv1d, pad, relu

    for index, block in enumerate(blocks):
        h = x
        for name in ("conv1", "conv2"):
            kernel, bias = block[name]
            h = relu(conv1d(pad(h, ((kernel.shape[2] - 1) * 2**index, 0)), kernel, bias, dilation=2**index))
        x = relu(h + (conv1d(x, *block["match"]) if "match" in block else x))
    return x


def test_its_kernels_are_those_of_a_network_in_pytorch() -> None:
    torch = pytest.importorskip("torch")
    random = np.random.default_rng(0)
    weights, x, dy = weights_of(BLOCKS, 3, random), random.standard_normal((2, 7, 3)), random.standard_normal((2, 7, 4))
    assert ["shortcut" in weights[f"block_{index}"] for index in range(2)] == [True, False]
    layers = [
        {**weights[f"block_{index}"]["body"], **weights[f"block_{index}"].get("shortcut", {})} for index in range(2)
    ]

    def tensor(array: Any, order: tuple[int, ...]) -> Any:
        return torch.tensor(np.transpose(array, order).copy(), requires_grad=True)

    theirs = [
        {n: (tensor(w["kernel"], (2, 1, 0)), tensor(w["bias"], (0,))) for n, w in block.items()} for block in layers
    ]
    their_x = tensor(x, (0, 2, 1))
    expected = in_torch(their_x, theirs)
    expected.backward(torch.tensor(np.transpose(dy, (0, 2, 1)).copy()))

    @jax.jit
    def kernels(weights: Any, x: Any, dy: Any) -> Any:
        context = Context(jax.random.key(0), jnp.ones(2))
        y, kept = BLOCKS.train_forward(weights, x, context)
        return y, *BLOCKS.train_backward(weights, x, y, dy, kept, context, True)

    y, dx, gradient = kernels(weights, jnp.asarray(x), jnp.asarray(dy))
    np.testing.assert_allclose(y, expected.detach().permute(0, 2, 1), atol=1e-12)
    np.testing.assert_allclose(dx, their_x.grad.permute(0, 2, 1), atol=1e-11)
    for index, block in enumerate(theirs):
        sides = gradient[f"block_{index}"]
        for name, (kernel, bias) in block.items():
            found = sides["shortcut" if name == "match" else "body"][name]
            np.testing.assert_allclose(found["kernel"], kernel.grad.permute(2, 1, 0), atol=1e-11)
            np.testing.assert_allclose(found["bias"], bias.grad, atol=1e-11)


def test_a_step_sees_itself_and_as_many_before_it_as_it_says() -> None:
    layer = TemporalConvNet([1, 1, 1], 2)
    assert layer.steps_seen == 1 + 2 * (1 + 2 + 4) and TemporalConvNet([8] * 8, 2).steps_seen == 511
    weights = jax.tree.map(lambda w: jnp.ones_like(w), weights_of(layer, 1, np.random.default_rng(0)))
    slopes = jax.jit(jax.grad(lambda x: layer.forward(weights, x)[0, 17, 0]))(jnp.ones((1, 20, 1)))
    assert list(np.flatnonzero(slopes)) == list(range(17 - layer.steps_seen + 1, 18))


def test_rows_of_any_length_give_what_each_gives_alone() -> None:
    network = Network([TemporalConvNet([4, 4], 2, name="blocks"), LastStep()], input_shape=(None, 3))
    random = np.random.default_rng(1)
    weights = {"blocks": weights_of(network.layers[0], 3, random)}  # type: ignore[arg-type]
    values = random.standard_normal((3, 6, 3))
    values[0, 5:] = values[1] = values[2, 3:] = np.nan
    x = Ragged(jnp.asarray(values), jnp.array([5, 0, 3], "int32"))
    y = network.forward(weights, x)
    for row, length in ((0, 5), (2, 3)):
        alone = network.forward(weights, jnp.asarray(values[row : row + 1, :length]))
        np.testing.assert_allclose(y[row], alone[0], atol=1e-12)
    np.testing.assert_array_equal(np.asarray(y)[1], 0)


def test_dropout_takes_channels_behind_every_convolution() -> None:
    layer = TemporalConvNet([16], 2, dropout=0.5)
    body = layer.children[0].layer.layers  # type: ignore[attr-defined]
    assert [type(each).__name__ for each in body] == ["Conv", "Relu", "SpatialDropout"] * 2
    assert body[2] == SpatialDropout(0.5)
    learned = [abstract_of(TemporalConvNet([3, 3], 2, rate, PRelu()), 3) for rate in (0.0, 0.1)]
    assert learned[0] == learned[1] and {"conv1", "activation1"} <= learned[0]["block_1"]["body"].keys()
    weights, x = weights_of(layer, 16, np.random.default_rng(2)), jnp.ones((1, 5, 16))
    context = Context(jax.random.key(0), jnp.ones(1))
    y, _ = jax.jit(partial(layer.train_forward, context=context))(weights, x)
    assert not np.allclose(y, layer.forward(weights, x))


def test_its_weights_are_counted_and_frozen_as_a_whole() -> None:
    layer = TemporalConvNet([25] * 4, 7)
    abstract = jax.eval_shape(lambda: layer.init(jax.random.key(0), (784, 1)))
    first = (7 * 1 * 25 + 25) + (7 * 25 * 25 + 25) + (1 * 25 + 25)
    assert count_weights(abstract) == first + 3 * 2 * (7 * 25 * 25 + 25)
    assert layer.multiply_adds((784, 1)) == 784 * (7 * 25 + 7 * 25 * 25 + 25 + 3 * 2 * 7 * 25 * 25)
    frozen = TemporalConvNet([2, 2], trainable=False)
    assert frozen.learned(jax.eval_shape(lambda: frozen.init(jax.random.key(0), (4, 1)))) == {}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"filters": 8}, "filters of TemporalConvNet must be a list of positive integers, .*received 8"),
        ({"filters": []}, "filters of TemporalConvNet must be a list"),
        ({"filters": [4, 0]}, r"filters of TemporalConvNet must be .*received \[4, 0\]"),
        ({"size": 2.5}, "size of TemporalConvNet must be a positive integer, received 2.5"),
        ({"dropout": 1}, "dropout of TemporalConvNet must be"),
        ({"activation": "relu"}, "activation of TemporalConvNet must be a Layer, received 'relu'; write Relu"),
    ],
    ids=str,
)
def test_arguments_are_refused_in_a_sentence(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        TemporalConvNet(**{"filters": [4], **arguments})
