"""Matrix products of layers: in bfloat16 rounded once, of sums in float32; of gradients as fast as CPUs make them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sparkdl.layers import Conv, Dense, FeedForward, Gru, Lstm, MultiHeadAttention
from sparkdl.layers.base import Layer, Shape
from sparkdl.layers.products import matmul, transposed_product

RANDOM = np.random.default_rng(8)


def drawn(*shape: int, dtype: str = "bfloat16") -> jax.Array:
    return jnp.asarray(RANDOM.normal(size=shape), dtype)


@pytest.mark.parametrize("shape", [(33, 300, 17), (1, 4000, 1), (64, 1, 5)], ids=str)
def test_it_is_the_product_rounded_once(shape: tuple[int, int, int]) -> None:
    one, other = drawn(*shape[:2]), drawn(*shape[1:])
    found = matmul(one, other)
    assert found.dtype == jnp.bfloat16
    a, b, y = (np.asarray(array, np.float64) for array in (one, other, found))
    # Half a unit of 8 bits, and what sums in float32 differ by.
    assert (np.abs(y - a @ b) <= np.abs(a @ b) * 2.0**-8 + 1e-5 * (np.abs(a) @ np.abs(b))).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_other_dtypes_are_multiplied_as_they_are(dtype: str) -> None:
    with jax.enable_x64(True):
        one, other = drawn(9, 20, dtype=dtype), drawn(20, 3, dtype=dtype)
        np.testing.assert_array_equal(matmul(one, other), one @ other)


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (Dense(8), (16,)),
        (FeedForward(24), (6, 16)),
        (MultiHeadAttention(2), (6, 16)),
        (Lstm(8), (6, 16)),
        (Gru(8), (6, 16)),
        (Conv(8, (1, 1)), (4, 4, 16)),
        (Conv(8, (3, 3), padding="same"), (2, 2, 16)),
        (Conv(128, (3, 3), padding="same"), (8, 8, 128)),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Layer) else str(value),
)
def test_forward_and_delta_multiply_no_float32_made_of_bfloat16_on_a_cpu(layer: Layer, shape: Shape) -> None:
    weights = jax.tree.map(lambda array: array.astype("bfloat16"), layer.init(jax.random.key(0), shape))
    x = drawn(2, *shape)
    y = layer.forward(weights, x)
    for lowered in (jax.jit(layer.forward).lower(weights, x), jax.jit(layer.delta).lower(weights, x, y, y)):
        products = [line for line in lowered.as_text().splitlines() if "stablehlo.dot_general" in line]
        assert products
        for line in products:
            read, made = line.split(" : ")[-1].split(" -> ")
            assert "xf32>" not in read and "xf32>" in made, line


def test_a_gpu_has_kernels_of_bfloat16_for_products_in_bfloat16() -> None:
    lowered = jax.jit(matmul).trace(drawn(4, 6), drawn(6, 3)).lower(lowering_platforms=("cuda",))
    (line,) = [line for line in lowered.as_text().splitlines() if "stablehlo.dot_general" in line]
    assert line.endswith("(tensor<4x6xbf16>, tensor<6x3xbf16>) -> tensor<4x3xbf16>")


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
@pytest.mark.parametrize(
    "shape", [(40, 30, 7), (40, 7, 30), (5, 30, 7), (6, 30, 1), (1, 1, 1), (9, 64, 512), (80, 512, 70)], ids=str
)
def test_a_gradient_is_the_sum_over_rows_of_their_products(shape: tuple[int, int, int], dtype: str) -> None:
    batch, inputs, outputs = shape
    with jax.enable_x64(True):
        rows, slopes = drawn(batch, inputs, dtype=dtype), drawn(batch, outputs, dtype=dtype)
        found = jax.jit(transposed_product)(rows, slopes)
        assert found.dtype == dtype and found.shape == (inputs, outputs)
        a, b = (np.asarray(array, np.float64) for array in (rows, slopes))
        rounding = {"bfloat16": 2.0**-8, "float32": 1e-6, "float64": 1e-15}[dtype]
        bound = rounding * (np.abs(a).T @ np.abs(b))
        assert (np.abs(np.asarray(found, np.float64) - np.einsum("bi,bo->io", a, b)) <= bound + 1e-15).all()


@pytest.mark.parametrize(("batch", "turned"), [(128, True), (8, False)])
def test_a_cpu_makes_a_gradient_of_few_outputs_the_other_way_round(batch: int, turned: bool) -> None:
    """Which takes a fraction of the time, unless the rows are fewer than the outputs."""
    lowered = jax.jit(transposed_product).lower(drawn(batch, 784, dtype="float32"), drawn(batch, 10, dtype="float32"))
    (line,) = [line for line in lowered.as_text().splitlines() if "stablehlo.dot_general" in line]
    assert line.endswith("tensor<10x784xf32>" if turned else "tensor<784x10xf32>"), line


@pytest.mark.parametrize(
    ("inputs", "outputs", "written"), [(64, 512, True), (512, 64, True), (64, 500, False), (12, 512, False)]
)
def test_a_cpu_writes_the_transposed_out_where_rows_begin_in_the_same_lines_of_its_cache(
    inputs: int, outputs: int, written: bool
) -> None:
    rows, slopes = drawn(100, inputs, dtype="float32"), drawn(100, outputs, dtype="float32")
    lines = jax.jit(transposed_product).lower(rows, slopes).as_text().splitlines()
    assert any("optimization_barrier" in line and "tensor<6400xf32>" in line for line in lines) == written


def test_a_gpu_transposes_as_it_multiplies() -> None:
    rows, slopes = drawn(100, 64, dtype="float32"), drawn(100, 512, dtype="float32")
    lowered = jax.jit(transposed_product).trace(rows, slopes).lower(lowering_platforms=("cuda",)).as_text()
    assert "dot_general" in lowered and "optimization_barrier" not in lowered
