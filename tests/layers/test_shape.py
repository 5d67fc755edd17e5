"""Flatten and Reshape beyond what every layer is held to: order, the inferred size, and sizes that do not fit."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from sparkdl.layers.base import Layer, Shape
from sparkdl.layers.shape import Flatten, Reshape


@pytest.mark.parametrize(
    "layer, input_shape, expected",
    [
        (Flatten(), (2, 3, 2), (12,)),
        (Flatten(), (), (1,)),
        (Reshape((4, 3)), (2, 3, 2), (4, 3)),
        (Reshape((2, -1, 2)), (12,), (2, 3, 2)),
        (Reshape((-1,)), (3, 4), (12,)),
        (Reshape(()), (1,), ()),
    ],
)
@pytest.mark.parametrize("batch", [0, 2])
def test_rows_keep_their_row_major_order(layer: Layer, input_shape: Shape, expected: Shape, batch: int) -> None:
    x = np.arange(batch * np.prod(input_shape), dtype=np.float32).reshape(batch, *input_shape)
    y = layer.forward({}, jnp.asarray(x))
    assert layer.output_shape(input_shape) == expected
    np.testing.assert_array_equal(y, x.reshape(batch, *expected))
    np.testing.assert_array_equal(layer.delta({}, jnp.asarray(x), y, 2 * y), 2 * x)


@pytest.mark.parametrize("shape, input_shape", [((5, 3), (16,)), ((-1, 3), (16,)), ((32, -1), (16,))])
def test_numbers_that_do_not_fit_are_an_error(shape: Shape, input_shape: Shape) -> None:
    with pytest.raises(
        ValueError, match=r"Reshape to .* received rows of shape \(16,\); choose sizes whose product is 16"
    ):
        Reshape(shape).output_shape(input_shape)


@pytest.mark.parametrize("shape", [(-1, -1), (0, 3), (-2,), (2.5,), 4])
def test_a_shape_of_other_things_than_sizes_is_an_error(shape: Shape) -> None:
    with pytest.raises(ValueError, match="shape of Reshape must be a tuple of positive sizes"):
        Reshape(shape)
