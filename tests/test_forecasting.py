"""The network that forecasts: its shapes and weights, the order of its outputs, and that it learns a series."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sparkdl import Graph, models, training
from sparkdl.layers import HashedEmbedding, Normalization, TemporalConvNet
from sparkdl.losses import EachPosition, Quantile
from sparkdl.optimizers import Adam
from sparkdl.schedules import CosineDecay
from sparkdl.weights import count_weights, named_arrays, nested_weights

MEAN, VARIANCE = (10.0, -2.0, 0.5), (4.0, 0.25, 0.0)
ALL: dict[str, Any] = {"values": 3, "horizon": 4, "targets": (2, 0), "known": 5, "series": 6, "quantiles": 3}


def learned(network: Graph) -> int:
    return count_weights(network.learned(jax.eval_shape(lambda: network.init(0))))


@pytest.mark.parametrize(
    ("given", "inputs", "output", "count"),
    [
        # An LSTM of u units and n inputs has 4 u (n + u + 1) weights, Dense(m) of n inputs (n + 1) m.
        ({"values": 1, "horizon": 7}, {"history": (None, 1)}, (7,), 4 * 64 * 66 + 65 * 64 + 65 * 7),
        (
            ALL | {"window": 8, "lstm_units": (6, 5), "units": (9,)},
            {"history": (8, 3), "known": (4, 5), "series": ()},
            (8, 3),
            4 * 6 * 10 + 4 * 5 * 12 + 7 * 4 + (5 + 20 + 4 + 1) * 9 + 10 * 24,
        ),
        (
            {
                "values": Normalization(MEAN, VARIANCE),
                "horizon": 2,
                "known": Normalization((0.0,), (1.0,)),
                "units": (),
            },
            {"history": (None, 3), "known": (2, 1)},
            (2,),
            4 * 64 * 68 + (64 + 2 + 1) * 2,
        ),
        (
            {"values": 2, "horizon": 3, "targets": [0, 1], "series": HashedEmbedding(50, 2), "from_last": False},
            {"history": (None, 2), "series": ()},
            (6,),
            4 * 64 * 67 + 50 * 2 + 67 * 64 + 65 * 6,
        ),
        # A block of f filters of size 3 has (3 n + 1) f + (3 f + 1) f weights, and (n + 1) f more where n is not f.
        (
            ALL | {"window": 8, "filters": [6, 6], "units": (9,)},
            {"history": (8, 3), "known": (4, 5), "series": ()},
            (8, 3),
            (10 + 19 + 4) * 6 + (19 + 19) * 6 + 7 * 4 + (6 + 20 + 4 + 1) * 9 + 10 * 24,
        ),
        (
            {"values": 2, "horizon": 3, "filters": TemporalConvNet([4], size=2, dropout=0.5), "units": ()},
            {"history": (None, 2)},
            (3,),
            (5 + 9 + 3) * 4 + 5 * 3,
        ),
    ],
    ids=["alone", "of many series, with all it may have", "normalized", "of strings", "convolutional", "of a layer"],
)
def test_shapes_and_weights(given: dict[str, Any], inputs: dict[str, Any], output: tuple[int, ...], count: int) -> None:
    network = models.forecaster(**given)
    assert network.input_shapes == inputs
    assert network.output_shapes == {"future": output}
    assert learned(network) == count
    assert Graph.from_json(network.to_json()) == network
    for loss in ("squared_error",) if len(output) == 1 else (EachPosition(Quantile((0.1, 0.5, 0.9))),):
        training.Training(network, loss=loss)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("quantiles", [0, 1, 3])
@pytest.mark.parametrize("normalized", [False, True])
def test_what_it_adds_is_added_to_the_last_step_in_the_order_of_its_outputs(quantiles: int, normalized: bool) -> None:
    """A network whose last layer gives its bias alone forecasts the last step, moved by the bias in units of scale."""
    values = Normalization(MEAN, VARIANCE) if normalized else 3
    network = models.forecaster(
        values, 4, targets=(2, 0), quantiles=quantiles, lstm_units=(2,), units=(2,), series=9, window=5
    )
    weights = dict(named_arrays(network.init(0)))
    weights["change/dense_2/kernel"] = jnp.zeros_like(weights["change/dense_2/kernel"])
    bias = np.random.default_rng(0).normal(size=weights["change/dense_2/bias"].shape)
    weights["change/dense_2/bias"] = jnp.asarray(bias)
    history = np.random.default_rng(1).normal(size=(6, 5, 3))
    found = jax.jit(network.forward)(nested_weights(weights), (history, np.arange(6, dtype="int32")))
    scale = np.array([1, 2.0]) if normalized else np.ones(2)  # of targets 2 and 0: 0 counts as variance 1
    moved = history[:, -1][:, None, [2, 0], None] + bias.reshape(4, 2, max(1, quantiles)) * scale[:, None]
    np.testing.assert_allclose(found, moved.reshape(6, 8, quantiles) if quantiles else moved.reshape(6, 8), atol=1e-12)


def test_convolutions_see_of_the_window_what_they_say() -> None:
    network = models.forecaster(2, 3, window=16, filters=(4, 4), units=(5,), from_last=False)
    weights = network.init(0)
    history = np.random.default_rng(0).normal(size=(1, 16, 2)).astype("float32")
    moved = np.repeat(history, 16, axis=0) + np.eye(16, dtype="float32")[..., None]  # each row at another step
    found = np.asarray(jax.jit(network.forward)(weights, moved) - jax.jit(network.forward)(weights, history))
    assert TemporalConvNet((4, 4)).steps_seen == 13
    assert (np.abs(found).max(axis=1) > 1e-5).tolist() == [False] * 3 + [True] * 13


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("window", [8, None])
def test_a_relative_forecast_moves_with_the_level_of_its_targets_alone(window: int | None) -> None:
    network = models.forecaster(3, 4, targets=(2, 0), window=window, lstm_units=(3,), units=(5,), relative=True)
    weights, history = network.init(0), np.random.default_rng(0).normal(size=(2, 8, 3))
    forward = jax.jit(network.forward)
    found = np.asarray(forward(weights, history)).reshape(2, 4, 2)
    higher = np.asarray(forward(weights, history + [7.0, 0, -3])).reshape(2, 4, 2)
    np.testing.assert_allclose(higher, found + [-3.0, 7], atol=1e-12)
    other = np.asarray(forward(weights, history + [0, 1.0, 0])).reshape(2, 4, 2)
    assert np.abs(other - found).max() > 1e-3


@pytest.mark.parametrize(
    "reading", [{"lstm_units": (12,)}, {"filters": (16, 16, 16)}], ids=["recurrent", "convolutional"]
)
def test_quantiles_of_waves_are_told_better_than_by_the_last_step(reading: dict[str, Any]) -> None:
    """Three waves of a period of 12, at levels and of heights of their own, with noise of deviation 1."""
    random, at, window, horizon = np.random.default_rng(0), np.arange(220), 16, 4
    waves = np.stack([100 * (each + 1) + 10 * (each + 1) * np.sin(np.pi * at / 6 + each) for each in range(3)])
    waves += random.normal(size=waves.shape)
    ends = np.arange(window - 1, len(at) - horizon)
    history = np.stack([waves[:, end - window + 1 : end + 1] for end in ends], axis=1)[..., None].astype("float32")
    future = np.stack([waves[:, end + 1 : end + 1 + horizon] for end in ends], axis=1)
    series = np.broadcast_to(np.arange(3, dtype="int32")[:, None], history.shape[:2])
    train, test = (slice(None), ends < 150), (slice(None), ends >= 150 + horizon)
    network = models.forecaster(
        Normalization((waves.mean(),), (waves.var(),)), horizon, series=3, quantiles=3, window=window, **reading
    )
    features = {"history": history[train].reshape(-1, window, 1), "series": series[train].reshape(-1)}
    result = training.fit(
        network,
        (features, future[train].reshape(-1, horizon)),
        loss=EachPosition(Quantile((0.1, 0.5, 0.9))),
        optimizer=Adam(schedule=CosineDecay()),  # else the medians sway with the last steps
        step_size=0.01,
        epochs=25,
        batch_size=32,
    )
    rows = history[test].reshape(-1, window, 1), series[test].reshape(-1)
    found = np.asarray(network.forward(result.weights, rows)).reshape(3, -1, horizon, 3)
    truth = future[test]
    naive = np.abs(truth - history[test][:, :, -1]).mean()
    assert np.abs(truth - found[..., 1]).mean() < naive / 6
    below = (truth[..., None] < found).mean(axis=(0, 1, 2))
    np.testing.assert_allclose(below, [0.1, 0.5, 0.9], atol=0.15)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"horizon": 0}, "horizon of forecaster must be an integer of at least 1, received 0"),
        ({"values": 0}, "values of forecaster must be an integer of at least 1, received 0"),
        ({"targets": (0, 3)}, r"targets must be from 0 to 2, as a step has 3 values, received \(0, 3\)"),
        ({"targets": ()}, r"targets must be from 0 to 2, .*, received \(\)"),
        ({"known": -1}, "known of forecaster must be an integer of at least 0, received -1"),
        ({"series": -2}, "series of forecaster must be an integer of at least 1, received -2"),
        ({"quantiles": 0.5}, "quantiles of forecaster must be an integer of at least 0, received 0.5"),
        ({"lstm_units": ()}, "lstm_units must be of one LSTM or more, received none"),
        ({"lstm_units": (4,), "filters": (5,)}, r"filters are in place of lstm_units, received both, \(5,\) and"),
        (
            {"relative": True, "from_last": False},
            "relative is of changes against the last step, but from_last is False",
        ),
        ({"filters": (0,)}, "filters of TemporalConvNet must be a list of positive integers"),
    ],
)
def test_what_forecasts_nothing_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        models.forecaster(**({"values": 3, "horizon": 2} | given))
