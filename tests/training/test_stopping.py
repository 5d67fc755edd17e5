"""Early stopping: every reason there is, decided by hand on constructed values and then in a real run."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest

from sparkdl import Network, specs, training
from sparkdl.layers import Dense
from sparkdl.losses import SquaredError
from sparkdl.training import EarlyStopping, Result, Training
from sparkdl.training.stopping import Stopper
from sparkdl.weights import named_arrays

RANDOM = np.random.default_rng(37)
X = RANDOM.normal(size=(60, 3)).astype("float32")
ROWS = (X, (X.sum(axis=1) > 0).astype(int))
NETWORK = Network([Dense(2)], input_shape=(3,))


def fit(stopping: EarlyStopping | None = None, **options: Any) -> Result:
    settings = {"batch_size": 10, "step_size": 0.1, "epochs": 6, "validation": ROWS, "early_stopping": stopping}
    return training.fit(NETWORK, ROWS, **settings | options)


def followed(plan: EarlyStopping, values: list[float], metric: str = "accuracy") -> tuple[int, str | None, list[Any]]:
    """Checks until it stops, its reason, and the best check."""
    stopper = Stopper(plan, metric)
    for count, value in enumerate(values, start=1):
        stopper.check(count, 0, value)
        if reason := stopper.reason():
            return count, reason, stopper.best or []
    return len(values), None, stopper.best or []


@pytest.mark.parametrize(
    "plan, values, metric, stops, best",
    [
        (EarlyStopping(patience=2), [3.0, 2.0, 2.5, 2.1, 1.0], "accuracy", 4, 2),
        (EarlyStopping(patience=2, min_delta=0.5), [3.0, 2.6, 2.4, 2.3, 2.2], "accuracy", 5, 3),
        (EarlyStopping("metric", 1), [0.5, 0.6, 0.6], "accuracy", 3, 2),
        (EarlyStopping("metric", 1), [0.5, 0.4, 0.4], "mse", 3, 2),
        (EarlyStopping("metric", 1, mode="min"), [0.5, 0.4, 0.6], "accuracy", 3, 2),
        (EarlyStopping("loss", 1, mode="max"), [0.5, 0.4], "accuracy", 2, 1),
        (EarlyStopping(patience=2), [math.nan, math.inf, 1.0], "accuracy", 2, None),
        (EarlyStopping(patience=2), [math.nan, 1.0, 2.0, 0.5], "accuracy", None, 4),
        (EarlyStopping("metric", None, target=0.9), [0.5, 0.95, 0.99], "accuracy", 2, 2),
        (EarlyStopping(patience=None, target=0.1), [0.5, 0.1], "accuracy", 2, 2),
        (EarlyStopping(patience=None), [1.0, 2.0, 3.0], "accuracy", None, 1),
    ],
    ids=lambda value: repr(value) if isinstance(value, EarlyStopping) else None,
)
def test_it_stops_after_so_many_checks_with_that_best(
    plan: EarlyStopping, values: list[float], metric: str, stops: int | None, best: int | None
) -> None:
    count, reason, found = followed(plan, values, metric)
    assert (count if reason else None) == stops
    assert (found[0] if found else None) == best


def test_its_reason_says_what_was_watched_and_what_was_best() -> None:
    _, reason, _ = followed(EarlyStopping(patience=2), [3.0, 2.0, 2.5, 2.1])
    assert reason == ("validation_loss has not improved by more than 0 in 2 checks; it was best after epoch 2, with 2")
    assert followed(EarlyStopping("loss", target=1.5), [1.25])[1] == "loss 1.25 has reached the target 1.5"


def test_the_best_weights_come_back_unless_they_are_not_wanted() -> None:
    first = dict(named_arrays(fit(epochs=1).weights))
    for restored in (True, False):
        stopping = EarlyStopping(patience=2, min_delta=1e9, restore_best=restored)
        result = fit(stopping)
        assert len(result.history) == 3
        assert result.best == [1, 0, result.history[0].validation_loss]
        assert np.array_equal(dict(named_arrays(result.weights))["dense_0/kernel"], first["dense_0/kernel"]) == restored


def test_checks_may_come_every_few_epochs() -> None:
    result = fit(EarlyStopping(patience=1, min_delta=1e9, every=2))
    assert [check[:2] for check in result.checks] == [[2, 0], [4, 0]]
    assert [check[2] for check in result.checks] == [result.history[i].validation_loss for i in (1, 3)]


@pytest.mark.parametrize("monitor", ["validation_loss", "loss"])
@pytest.mark.parametrize("devices", [1, 3])
def test_checks_may_come_every_few_steps_and_stop_within_an_epoch(monitor: str, devices: int) -> None:
    result = fit(EarlyStopping(monitor, 2, min_delta=1e9, every=2, unit="step"), devices=devices, shuffle=False)
    assert [check[:2] for check in result.checks] == [[0, 2], [0, 4], [1, 0]]
    whole = fit(EarlyStopping(monitor, 3, min_delta=1e9, every=2, unit="step"), devices=devices, shuffle=False)
    assert [check[:2] for check in whole.checks] == [[0, 2], [0, 4], [1, 0], [1, 2]]
    assert whole.checks[:3] == result.checks
    assert [(epoch.steps, epoch.rows) for epoch in whole.history] == [(6, 60), (2, 20)]
    if monitor == "loss":  # the mean over the rows since the last check
        means = [check[2] for check in result.checks]
        assert np.mean(means) == pytest.approx(result.history[0].loss, rel=1e-5)


@pytest.mark.parametrize("devices", [1, 3])
def test_a_loss_that_is_too_large_or_no_number_stops_within_steps(devices: int) -> None:
    high = fit(EarlyStopping(max_loss=1e-3), devices=devices)
    assert high.stop_reason.startswith("the loss was ")
    assert ", above 0.001 at step 1 of epoch 1; try a smaller step size" in high.stop_reason
    assert high.history[0].steps < 6


@pytest.mark.parametrize(
    "options, reason",
    [
        ({"step_size": 1e30, "early_stopping": EarlyStopping()}, "the loss was (inf|nan) at step 2 of epoch 1"),
        ({"step_size": 1e30, "devices": 3}, "the loss was (inf|nan) at step 2 of epoch 1"),
        ({"step_size": 2e38, "batch_size": 60, "epochs": 1}, "the weights were not finite after epoch 1"),
    ],
)
def test_a_run_of_which_no_epoch_stayed_finite_is_an_error(options: dict[str, Any], reason: str) -> None:
    started = re.escape(f"No epoch of this fit stayed finite with step size {options['step_size']:g}: ")
    with pytest.raises(ValueError, match=f"^{started}{reason}; ") as raised:
        training.fit(
            NETWORK, (100 * X, ROWS[1]), **{"batch_size": 10, "validation": ROWS, **options}, loss="squared_hinge"
        )
    assert str(raised.value).endswith(
        "; standardize the features (StandardScaler, or Standardize as the first layer), lower the step size, or set "
        "clip_norm of the optimizer."
    )


@pytest.mark.parametrize("devices", [1, 3])
def test_a_run_that_diverges_ends_with_the_last_weights_that_were_any_good(devices: int) -> None:
    rows = (X, np.eye(2)[ROWS[1]])
    options: dict[str, Any] = {"loss": "squared_error", "batch_size": 10, "step_size": 2.0, "devices": devices}
    result = training.fit(NETWORK, rows, epochs=50, **options)
    found = re.match(r"the loss was (inf|nan) at step \d of epoch (\d+); try a smaller step size", result.stop_reason)
    assert found
    epochs = int(found[2]) - 1
    assert 1 < epochs + 1 == len(result.history) < 50
    assert result.notes == [
        f"Training stopped: {result.stop_reason}. The model's weights are those after epoch {epochs}."
    ]
    before = training.fit(NETWORK, rows, epochs=epochs, **options)
    for (name, array), (_, other) in zip(named_arrays(result.weights), named_arrays(before.weights), strict=True):
        assert np.isfinite(array).all()
        np.testing.assert_array_equal(array, other, err_msg=name)


def test_a_loss_above_its_bound_leaves_no_weights_of_the_steps_that_led_there() -> None:
    options: dict[str, Any] = {"step_size": 1e18, "batch_size": 10, "loss": "squared_hinge"}
    plan = EarlyStopping("loss", max_loss=1000.0)
    result = training.fit(NETWORK, ROWS, epochs=5, early_stopping=plan, **options)
    assert ", above 1000 at step 2 of epoch 1" in result.stop_reason
    assert result.notes == [f"Training stopped: {result.stop_reason}. The model's weights are the initial ones."]
    initial = training.fit(NETWORK, ROWS, epochs=0, **options)
    for (_, array), (_, other) in zip(named_arrays(result.weights), named_arrays(initial.weights), strict=True):
        np.testing.assert_array_equal(array, other)


def test_the_last_step_may_be_the_one_that_diverges() -> None:
    network = Network([Dense(2, bias=False)], input_shape=(3,))
    rows = (1e-3 * X, ROWS[1])
    result = training.fit(network, rows, epochs=2, batch_size=60, step_size=1e26, loss="squared_hinge")
    assert result.stop_reason == "the weights were not finite after epoch 2; try a smaller step size or clip_norm"
    assert result.notes == [f"Training stopped: {result.stop_reason}. The model's weights are those after epoch 1."]
    assert all(np.isfinite(array).all() for _, array in named_arrays(result.weights))


def test_a_run_that_diverges_says_so_too_where_the_best_weights_are_restored() -> None:
    result = fit(EarlyStopping("loss", None), step_size=30.0, loss="squared_hinge", epochs=30)
    assert result.stop_reason.startswith("the loss was ")
    assert result.notes == [f"Training stopped: {result.stop_reason}. The model's weights are those of the best check."]


def test_time_runs_out_within_an_epoch() -> None:
    result = fit(EarlyStopping(max_seconds=1e-9), devices=3)
    assert result.stop_reason == "max_seconds 1e-09 of training have passed"
    assert result.history[0].steps < 6


@pytest.mark.parametrize("batch_size", [60, 30])
def test_time_runs_out_in_epochs_of_a_step_or_two(batch_size: int) -> None:
    result = fit(EarlyStopping("loss", None, max_seconds=1e-9), batch_size=batch_size, epochs=9, validation=None)
    assert result.stop_reason == "max_seconds 1e-09 of training have passed"
    assert sum(epoch.steps for epoch in result.history) == 3


def test_an_epoch_of_fewer_steps_than_there_are_between_checks_is_checked_at_its_end() -> None:
    result = fit(EarlyStopping("loss", 2, min_delta=1e9, every=10, unit="step"))
    assert [check[:2] for check in result.checks] == [[1, 0], [2, 0], [3, 0]]
    assert [check[2] for check in result.checks] == pytest.approx([epoch.loss for epoch in result.history])


def test_a_run_without_it_says_that_it_was_finished() -> None:
    result = fit(epochs=2)
    assert (result.stop_reason, result.best, result.checks) == ("all 2 epochs are done", None, [])
    slow = fit(tol=0.9)
    assert slow.stop_reason == "the objective fell by less than tol 0.9 of itself in epoch 2"


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        ({"monitor": "accuracy"}, "monitor of EarlyStopping must be one of loss, metric, validation_loss"),
        ({"patience": 0}, "patience of EarlyStopping must be a positive integer, received 0."),
        ({"every": 1.5}, "every of EarlyStopping must be a positive integer, received 1.5."),
        ({"unit": "rows"}, "unit of EarlyStopping must be one of epoch, step, received 'rows'."),
        ({"mode": "best"}, "mode of EarlyStopping must be one of auto, min, max, received 'best'."),
        ({"min_delta": -1}, "min_delta of EarlyStopping must be a number in"),
        ({"max_seconds": 0}, "max_seconds of EarlyStopping must be a number in"),
    ],
)
def test_what_cannot_be_is_refused(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match="EarlyStopping") as refused:
        EarlyStopping(**arguments)
    assert sentence in str(refused.value)


def test_a_metric_that_it_does_not_know_needs_a_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(specs, "registry", specs.registry.copy())

    class Costed(SquaredError):
        metric = "cost"

    expected = (
        "mode of EarlyStopping must be 'min' or 'max' where it monitors 'validation_metric' and that is 'cost', "
        "received 'auto', which knows mse, pinball, accuracy, cosine_similarity, iou; say which is better."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(expected)}$"):
        Training(NETWORK, loss=Costed(), early_stopping=EarlyStopping("validation_metric"))
    for stopping in (EarlyStopping(), EarlyStopping("metric", mode="max")):
        Training(NETWORK, loss=Costed(), early_stopping=stopping)
    assert followed(EarlyStopping("metric", 1, mode="min"), [0.5, 0.4, 0.6], "cost")[2][:2] == [2, 0]


def test_validation_rows_must_be_there_to_be_watched() -> None:
    with pytest.raises(ValueError, match="monitors validation_loss, but there are no validation rows; give some"):
        fit(EarlyStopping(), validation=None)
