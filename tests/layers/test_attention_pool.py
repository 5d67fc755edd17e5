"""AttentionPool against the formula in NumPy and against PyTorch, row by row, and where a plain softmax would fail."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sparkdl.layers import AttentionPool, Ragged

LENGTHS = (4, 0, 2)
LAYER = AttentionPool(5)


def drawn() -> tuple[dict[str, Any], np.ndarray, np.ndarray]:
    """Weights, values with what is no number in the padding, and dy."""
    random = np.random.default_rng(0)
    shapes = {"kernel": (3, 5), "bias": (5,), "query": (5,)}
    weights = {name: random.standard_normal(shape) for name, shape in shapes.items()}
    values = random.standard_normal((3, 6, 3))
    for row, length in enumerate(LENGTHS):
        values[row, length:] = np.nan
    return weights, values, random.standard_normal((3, 3))


@jax.jit
def kernels(weights: Any, x: Any, dy: Any) -> Any:
    y = LAYER.forward(weights, x)
    return y, LAYER.delta(weights, x, y, dy), LAYER.gradient(weights, x, y, dy)


def test_it_is_the_formula_of_every_row_by_itself(float64: None) -> None:
    weights, values, dy = drawn()
    x = Ragged(jnp.asarray(values), jnp.array(LENGTHS, "int32"))
    y, dx, _ = kernels(jax.tree.map(jnp.asarray, weights), x, jnp.asarray(dy))
    expected = np.zeros((3, 3))
    for row, length in enumerate(LENGTHS):
        steps = values[row, :length]
        powers = np.exp(np.tanh(steps @ weights["kernel"] + weights["bias"]) @ weights["query"])
        expected[row] = powers @ steps / max(powers.sum(), 1e-300)
        np.testing.assert_array_equal(np.asarray(dx)[row, length:], 0)
    np.testing.assert_allclose(y, expected, atol=1e-13)


def test_its_slopes_are_those_of_pytorch(float64: None) -> None:
    torch = pytest.importorskip("torch")
    weights, values, dy = drawn()
    x = Ragged(jnp.asarray(values), jnp.array(LENGTHS, "int32"))
    _, dx, gradient = kernels(jax.tree.map(jnp.asarray, weights), x, jnp.asarray(dy))
    theirs = {name: torch.tensor(array, requires_grad=True) for name, array in weights.items()}
    for row, length in enumerate(LENGTHS):
        if length:
            steps = torch.tensor(values[row, :length], requires_grad=True)
            scores = torch.tanh(steps @ theirs["kernel"] + theirs["bias"]) @ theirs["query"]
            (torch.softmax(scores, 0) @ steps).backward(torch.tensor(dy[row]))
            np.testing.assert_allclose(dx[row, :length], steps.grad, atol=1e-13)
    for name, weight in theirs.items():
        np.testing.assert_allclose(gradient[name], weight.grad, atol=1e-12)


def test_scores_that_no_exponential_holds_pick_a_step() -> None:
    layer, query = AttentionPool(1, bias=False), jnp.array([1e30], "float32")
    weights = {"kernel": jnp.array([[1.0], [0.0]]), "query": query}
    x = jnp.array([[[-1.0, 5.0], [2.0, 7.0], [1.0, 9.0]]])
    y = layer.forward(weights, x)
    np.testing.assert_allclose(y, [[2.0, 7.0]])
    assert np.isfinite(layer.delta(weights, x, y, jnp.ones_like(y))).all()


def test_units_are_as_many_as_a_step_has_unless_given() -> None:
    shapes = jax.eval_shape(lambda: AttentionPool().init(jax.random.key(0), (7, 6)))
    assert {name: array.shape for name, array in shapes.items()} == {"kernel": (6, 6), "bias": (6,), "query": (6,)}
    assert AttentionPool(4).multiply_adds((7, 6)) == 7 * (6 * 4 + 4 + 6)
    with pytest.raises(ValueError, match="units of AttentionPool must be a positive integer or None, received 0"):
        AttentionPool(0)
