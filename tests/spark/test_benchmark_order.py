"""The CIFAR-10 benchmark knows which rows a fit takes in every step, so that others can learn from the same batches."""

from __future__ import annotations

import sys
from itertools import chain
from pathlib import Path

import pytest
from pyspark.sql import DataFrame
from spark_cases import FEATURES, LABELS, NETWORK, arrays, assert_close, descended, initial

from sparkdl import DeepClassifier

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from contestants import order

SEED, BATCH, EPOCHS, STEP_SIZE = 5, 5, 2, 0.5


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_a_plain_loop_over_the_rebuilt_batches_comes_to_the_weights_of_a_fit(rows: DataFrame, workers: int) -> None:
    shares = order.shares(rows, "features", "label", workers)
    epochs = order.global_batches(shares, BATCH, SEED, EPOCHS)
    classifier = DeepClassifier(
        network=NETWORK, batchSize=BATCH, maxIter=EPOCHS, stepSize=STEP_SIZE, seed=SEED, numWorkers=workers
    )
    fitted = arrays(classifier.fit(rows))

    def loop(epochs: list) -> dict:
        weights = initial(NETWORK, SEED, "float32")
        for batch in chain.from_iterable(epochs):
            weights, _ = descended(weights, FEATURES[batch], LABELS[batch], STEP_SIZE, 1)
        return weights

    assert_close(fitted, loop(epochs), 1e-5)
    with pytest.raises(AssertionError):
        assert_close(fitted, loop([epochs[0][::-1], epochs[1]]), 1e-4)  # an order's every step matters


def test_every_row_is_in_one_batch_of_an_epoch(rows: DataFrame) -> None:
    shares = order.shares(rows, "features", "label", 3)
    for epoch in order.global_batches(shares, BATCH, SEED, EPOCHS):
        assert len(epoch) == 5
        assert sorted(chain.from_iterable(epoch)) == list(range(len(LABELS)))
