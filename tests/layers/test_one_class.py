"""The one-class output: what it converges to is scikit-learn's one-class support vector machine."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score
from sklearn.svm import OneClassSVM

from sparkdl import Network, training
from sparkdl.initializers import Normal, Uniform
from sparkdl.layers import Dense, OneClass, Tanh
from sparkdl.losses import OneClassHinge
from sparkdl.optimizers import Adam
from sparkdl.schedules import CosineDecay


def objective(x: np.ndarray, kernel: np.ndarray, threshold: float, nu: float) -> float:
    """Equation 3 of Schölkopf et al. 2001, whose slack is what a row lacks to the threshold."""
    slack = np.maximum(0, threshold - x @ kernel)
    return float(kernel @ kernel / 2 + slack.mean() / nu - threshold)


@pytest.mark.parametrize("nu", [0.1, 0.4])
def test_alone_it_is_the_linear_one_class_support_vector_machine(float64: None, nu: float) -> None:
    x = np.random.default_rng(0).normal((2, 1, -1), (1, 2, 0.5), (150, 3))
    network, adam = Network([OneClass()], input_shape=(3,)), Adam(schedule=CosineDecay())
    result = training.fit(
        network, (x, np.ones(150)), loss=OneClassHinge(nu), optimizer=adam, step_size=0.03, batch_size=150, epochs=1500
    )
    ((kernel, threshold),) = ((own["kernel"][:, 0], own["threshold"][0]) for own in result.weights.values())
    machine = OneClassSVM(kernel="linear", nu=nu, tol=1e-8).fit(x)
    scale = nu * len(x)  # its problem is ours times that
    found, wanted = machine.coef_[0] / scale, -machine.intercept_[0] / scale
    assert objective(x, kernel, threshold, nu) == pytest.approx(objective(x, found, wanted, nu), rel=1e-4)
    np.testing.assert_allclose(kernel, found, rtol=0, atol=0.01 * np.abs(found).max())
    assert threshold == pytest.approx(wanted, rel=0.01)
    assert result.history[-1].loss == pytest.approx(objective(x, kernel, threshold, nu), rel=1e-3)


def test_behind_layers_that_are_held_fixed_it_tells_rows_from_elsewhere() -> None:
    random, nu = np.random.default_rng(1), 0.1
    usual, elsewhere = random.normal((2, -1), (0.5, 0.3), (400, 2)), random.uniform(-4, 4, (400, 2))
    hidden = Dense(64, trainable=False, kernel_initializer=Normal(1), bias_initializer=Uniform(-3, 3))
    network = Network([hidden, Tanh(), OneClass()], input_shape=(2,))
    result = training.fit(
        network,
        (usual, np.ones(400)),
        loss=OneClassHinge(nu),
        optimizer=Adam(schedule=CosineDecay()),
        step_size=0.1,
        batch_size=100,
        epochs=500,
    )
    above = [np.asarray(network.forward(result.weights, x.astype("float32")))[:, 0] for x in (usual, elsewhere)]
    assert (above[0] < 0).mean() == pytest.approx(nu, abs=0.03)
    assert roc_auc_score(np.repeat([1, 0], 400), np.concatenate(above)) > 0.97
