"""A step writes new weights over the old: its memory besides them is that of the gradient and of few rows."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import Mesh
from row_cases import Shares, rows_of, trained

from sparkdl import Network
from sparkdl.layers import Dense, Relu
from sparkdl.training import Training
from sparkdl.training.data.batches import Shard
from sparkdl.training.data.placing import abstract_rows, replicate
from sparkdl.training.exchanges import all_reduce
from sparkdl.training.exchanges.exchange import WORKERS
from sparkdl.training.step.programs import compiled_step, program_of
from sparkdl.training.step.state import Settings, initial_state

RANDOM = np.random.default_rng(3)
WIDTH = 512
WIDE = Network([Dense(WIDTH), Relu(), Dense(WIDTH), Relu(), Dense(WIDTH)], input_shape=(WIDTH,))
WEIGHT_BYTES = 3 * (WIDTH + 1) * WIDTH * 4


def rows(count: int, inputs: int, outputs: int) -> Any:
    features, labels = (RANDOM.normal(size=(count, size)).astype("float32") for size in (inputs, outputs))
    return rows_of(features, labels, np.ones(count))


def temporary_bytes(plan: Training, workers: int, batch: int) -> int:
    mesh = Mesh(np.array(jax.local_devices()[:workers]), (WORKERS,))
    weights = plan.network.init(0)
    state = replicate(initial_state(plan.network, weights, plan.optimizer, plan.exchange, workers), mesh)
    shapes = abstract_rows(Shard.from_arrays(*rows(1, WIDTH, WIDTH)), batch, mesh)
    settings = Settings.of(plan.optimizer, 0.1, 0)
    step = compiled_step(program_of(plan, 1, mesh), state, settings, shapes)
    return int(step.memory_analysis().temp_size_in_bytes)


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
@pytest.mark.parametrize("workers", [1, 2])
def test_it_takes_the_memory_of_the_gradient_whatever_the_optimizer_keeps(optimizer: str, workers: int) -> None:
    plan = Training(WIDE, loss="squared_error", optimizer=optimizer)
    assert temporary_bytes(plan, workers, 4) < 1.05 * WEIGHT_BYTES + 100 * 4 * WIDTH * 4


def test_so_it_does_where_gradients_are_summed_in_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(all_reduce, "MESSAGE_BYTES", 1 << 17)
    plan = Training(WIDE, loss="squared_error")  # of more rows than a gradient's factors would be worth
    assert temporary_bytes(plan, 2, WIDTH) < 1.5 * WEIGHT_BYTES + 20 * 4 * WIDTH * WIDTH


@pytest.mark.parametrize("shares", [(12, 12), (15, 0, 9)], ids=str)
def test_messages_of_few_bytes_come_to_the_weights_of_one(shares: Shares, monkeypatch: pytest.MonkeyPatch) -> None:
    network = Network([Dense(7), Relu(), Dense(5), Dense(3)], input_shape=(4,))
    plan = Training(network, loss="squared_error", epochs=2, batch_size=8, step_size=0.1, dtype="float64")
    whole = trained(plan, data := rows(24, 4, 3), shares)
    monkeypatch.setattr(all_reduce, "MESSAGE_BYTES", 100)
    parted = trained(plan, data, shares)
    for name, layer in whole.weights.items():
        for array, values in layer.items():
            np.testing.assert_allclose(parted.weights[name][array], values, rtol=1e-12, atol=1e-14)
    assert parted.history[0].bytes == whole.history[0].bytes
