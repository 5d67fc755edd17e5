"""A batch cut into parts gives the sums of the whole, and is cut only where that is right and pays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from row_cases import rows_of

from sparkdl import Network, training
from sparkdl.layers import BatchNorm, Conv, Dense, Dropout, Flatten, Layer, Normalization, Relu, TransformerEncoder
from sparkdl.layers.factored import Factored
from sparkdl.training.data.batches import Rows
from sparkdl.training.step import micro_batches, step
from sparkdl.training.step.micro_batches import number_of_parts, summed_over_parts
from sparkdl.weights import named_arrays

pytestmark = pytest.mark.usefixtures("unoptimized")

RANDOM = np.random.default_rng(5)
IMAGES = RANDOM.normal(size=(40, 6, 6, 2)).astype("float32"), RANDOM.integers(0, 3, 40), RANDOM.uniform(0, 2, 40)


def network(*extra: Any) -> Network:
    return Network([Conv(4, (3, 3)), *extra, Relu(), Flatten(), Dense(3, l2=0.1)], input_shape=(6, 6, 2))


def parts(network: Network, rows: int, platform: str = "cpu") -> int:
    weights = jax.eval_shape(lambda key: network.init(key), jax.random.key(0))
    row = jax.ShapeDtypeStruct((1, *(network.input_shape or ())), "float32")
    return number_of_parts(network, weights, row, rows, platform)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_training_in_parts_equals_training_on_whole_batches(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {"batch_size": 18, "epochs": 2, "step_size": 0.05, "dtype": dtype}
    whole = training.fit(network(), IMAGES, **options)
    monkeypatch.setattr(step, "number_of_parts", lambda *_: 4)  # 18 rows do not fall into 4: two are added
    cut = training.fit(network(), IMAGES, **options)
    tolerance = 1e-12 if dtype == "float64" else 1e-6
    for (name, one), (_, other) in zip(named_arrays(whole.weights), named_arrays(cut.weights), strict=True):
        np.testing.assert_allclose(one, other, atol=tolerance, err_msg=name)
    assert cut.history[-1].loss == pytest.approx(whole.history[-1].loss, rel=tolerance * 10)
    assert cut.history[-1].metric == pytest.approx(whole.history[-1].metric)


@dataclass(frozen=True)
class Seen(Layer):
    """Its rows as they are; their mean is a running statistic."""

    def output_shape(self, input_shape: Any) -> Any:
        return input_shape

    def init(self, key: Any, input_shape: Any) -> Any:
        return {"mean": jnp.zeros(input_shape)}

    def statistics(self) -> frozenset[str]:
        return frozenset({"mean"})

    def forward(self, weights: Any, x: Any) -> Any:
        return x

    def train_forward(self, weights: Any, x: Any, context: Any) -> tuple[Any, Any]:
        return x, x.mean(axis=0)

    def delta(self, weights: Any, x: Any, y: Any, dy: Any) -> Any:
        return dy

    def gradient(self, weights: Any, x: Any, y: Any, dy: Any) -> Any:
        return {}

    def new_statistics(self, weights: Any, kept: Any) -> Any:
        return {"mean": kept}


def test_statistics_of_parts_are_averaged_and_what_training_leaves_alone_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Means and variances learned before, which a step of five parts once gave back five times as large."""
    monkeypatch.setattr(step, "number_of_parts", lambda *_: 5)
    mean, variance = (0.1, -0.2, 5.0), (1.7, 0.3, 0.0)
    seen = Network([Seen(), Normalization(mean, variance), BatchNorm(trainable=False), Dense(1)], input_shape=(3,))
    x = RANDOM.normal(size=(40, 3)).astype("float32")
    weights = training.fit(seen, (x, x[:, :1]), loss="squared_error", batch_size=40, epochs=2).weights
    np.testing.assert_allclose(weights["seen_0"]["mean"], x.mean(axis=0), rtol=1e-5)
    np.testing.assert_array_equal(weights["normalization_1"]["mean"], np.float32(mean))
    np.testing.assert_array_equal(weights["normalization_1"]["variance"], np.float32(variance))
    np.testing.assert_array_equal(weights["batch_norm_2"]["variance"], np.ones(3))


def test_sums_of_parts_add_arrays_and_collect_factored_rows() -> None:
    x, dy = (jnp.asarray(RANDOM.integers(-3, 4, (7, n)), "float32") for n in (2, 3))

    def sums(part: jax.Array, rows: Rows) -> dict[str, Any]:
        x, dy = rows.features["features"], rows.labels["label"]
        return {"bias": dy.sum(axis=0), "kernel": Factored(x, dy), "parts": jnp.ones_like(part)}

    result = jax.jit(lambda rows: summed_over_parts(sums, 3, rows))(rows_of(x, dy, jnp.ones(7)))
    assert result["parts"] == 3
    np.testing.assert_array_equal(result["bias"], dy.sum(axis=0))
    assert result["kernel"].rows.shape == (9, 2)
    np.testing.assert_array_equal(result["kernel"].product(), np.asarray(x).T @ np.asarray(dy))


def test_random_layers_draw_anew_in_every_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step, "number_of_parts", lambda *_: 4)
    noisy = Network([Dropout(0.5), Dense(1, bias=False, kernel_initializer="ones")], input_shape=(1,))
    rows = np.ones((64, 1), "float32"), np.zeros((64, 1))
    result = training.fit(noisy, rows, loss="absolute_error", batch_size=64, epochs=1, step_size=1e-9, seed=1)
    kept = result.history[0].loss * 64 / 2  # rows whose 1 was not dropped, but doubled
    assert kept == pytest.approx(round(kept))
    assert round(kept) % 4 != 0  # as it would be if every part drew the same


def test_parts_leave_to_backward_what_a_cache_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = Network([Conv(64, (5, 5), padding="same"), Relu(), Flatten(), Dense(10)], input_shape=(24, 24, 3))
    row = 4 * (24 * 24 * 3 + 5 * 24 * 24 * 64 + 10)  # x and y of every layer; Flatten's y is Dense's x
    count = parts(wide, 128)
    assert count > 1
    assert 128 % count == 0
    assert 128 // count * row < 2 * micro_batches.CACHE_BYTES
    monkeypatch.setattr(micro_batches, "CACHE_BYTES", 10**12)
    assert parts(wide, 128) == 1


def test_small_rows_and_heavy_weights_stay_whole() -> None:
    assert parts(network(), 64) == 1
    heavy = Network([Dense(4000), Relu(), Dense(4000)], input_shape=(4000,))
    assert parts(heavy, 1000) == 1
    blocks = Network([TransformerEncoder(12, 1536)] * 6, input_shape=(128, 384))
    assert 4 <= parts(blocks, 32) <= 16  # 0.95 to 0.97 of the time of the whole batch, where parts of a row take 1.08


def test_accelerators_take_whole_batches() -> None:
    wide = Network([Conv(64, (5, 5), padding="same"), Flatten(), Dense(10)], input_shape=(24, 24, 3))
    assert parts(wide, 4096, "cpu") > 1
    assert parts(wide, 4096, "gpu") == 1


def test_a_network_that_looks_at_the_whole_batch_is_given_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(micro_batches, "CACHE_BYTES", 1)
    nested = Network([network(), Dense(2)], input_shape=(6, 6, 2))
    assert parts(nested, 512) > 1
    nested = Network([network(BatchNorm()), Dense(2)], input_shape=(6, 6, 2))
    assert parts(nested, 512) == 1
