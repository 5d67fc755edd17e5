"""A run goes on where an earlier one stopped, if it is the same run, and says so where it is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import Mesh

from sparkdl import Network, training
from sparkdl.layers import Dense, Dropout, Tanh
from sparkdl.optimizers import Adam, Momentum, Nesterov, Optimizer
from sparkdl.schedules import CosineDecay, ExponentialDecay, PolynomialDecay, StepDecay
from sparkdl.training import Checkpoints, EarlyStopping, Result
from sparkdl.training.exchanges.exchange import WORKERS
from sparkdl.training.group.collectives import FRAME_BYTES, from_worker
from sparkdl.weights import named_arrays

RANDOM = np.random.default_rng(31)
X = RANDOM.normal(size=(40, 3)).astype("float32")
ROWS = (X, (X.sum(axis=1) > 0).astype(int))
NETWORK = Network([Dense(4), Tanh(), Dropout(0.2), Dense(2)], input_shape=(3,))
OPTIONS: dict[str, Any] = {"optimizer": "adam", "batch_size": 10, "step_size": 0.05, "epochs": 4}


def fit(folder: Path | None = None, rows: Any = ROWS, **options: Any) -> Result:
    checkpoints = {"checkpoints": Checkpoints(str(folder), keep=9)} if folder else {}
    return training.fit(NETWORK, rows, **OPTIONS | checkpoints | options)


def same(one: Result, other: Result) -> bool:
    pairs = zip(named_arrays(one.weights), named_arrays(other.weights), strict=True)
    return all(np.array_equal(array, expected) for (_, array), (_, expected) in pairs)


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*/*.ckpt"))


@pytest.fixture(scope="module")
def whole() -> Result:
    return fit()


def test_more_epochs_go_on_and_a_finished_run_is_not_trained_again(tmp_path: Path, whole: Result) -> None:
    assert fit(tmp_path, epochs=2).resumed is None
    longer = fit(tmp_path)
    assert longer.resumed == [2, 0]
    assert same(longer, whole)
    assert len(longer.history) == 4
    times = [path.stat().st_mtime_ns for path in files(tmp_path)]
    again = fit(tmp_path)
    assert same(again, whole)
    assert (again.resumed, again.compile_seconds) == ([4, 0], 0.0)
    assert [path.stat().st_mtime_ns for path in files(tmp_path)] == times


def test_the_newest_stay_and_the_best(tmp_path: Path) -> None:
    """Validation rows of the opposite classes make every epoch worse than the one before."""
    checkpoints = Checkpoints(str(tmp_path), keep=2)
    result = fit(checkpoints=checkpoints, validation=(X, 1 - ROWS[1]), epochs=5)
    losses = [epoch.validation_loss for epoch in result.history]
    assert losses == sorted(losses)  # type: ignore[type-var]
    assert [path.name for path in files(tmp_path)] == [
        "epoch-00001-step-00000004-best.ckpt",
        "epoch-00004-step-00000016.ckpt",
        "epoch-00005-step-00000020.ckpt",
    ]


def test_fewer_epochs_never_take_the_weights_of_more(tmp_path: Path) -> None:
    fit(tmp_path)
    shorter = fit(tmp_path, epochs=2)
    assert shorter.resumed == [2, 0]
    assert same(shorter, fit(epochs=2))


def test_fewer_epochs_never_take_the_weights_of_steps_after_them(tmp_path: Path) -> None:
    """Checkpoints after steps 3, 6, 9, ... of epochs of 4: the first after 2 epochs is one step into the third."""
    options: dict[str, Any] = {"checkpoints": Checkpoints(str(tmp_path), every=3, unit="step", keep=9)}
    fit(epochs=3, **options)
    shorter = fit(epochs=2, **options)
    assert shorter.resumed == [1, 2]
    assert same(shorter, fit(epochs=2))
    assert [epoch.steps for epoch in shorter.history] == [4, 4]


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 1},
        {"step_size": 0.04},
        {"rows": (X, 1 - ROWS[1])},
        {"devices": 2},
        {"initial": True},
    ],
    ids=lambda change: next(iter(change)),
)
def test_another_run_starts_anew_beside_it_and_says_so(tmp_path: Path, change: dict[str, Any]) -> None:
    first = fit(tmp_path, epochs=1)
    change = {"initial": first.weights} if "initial" in change else change
    other = fit(tmp_path, epochs=1, **change)
    assert other.resumed is None
    assert len(other.notes) == 1
    assert "holds checkpoints of other runs only" in other.notes[0]
    assert fit(tmp_path, epochs=1).resumed == [1, 0]
    assert fit(tmp_path, epochs=1, **change).notes == []


@pytest.mark.parametrize(
    "optimizer",
    [Adam(schedule=CosineDecay()), Momentum(momentum_schedule=CosineDecay())],
    ids=["step size", "momentum"],
)
def test_a_schedule_of_another_length_is_another_run(tmp_path: Path, optimizer: Optimizer) -> None:
    fit(tmp_path, epochs=2, optimizer=optimizer)
    other = fit(tmp_path, epochs=3, optimizer=optimizer)
    assert other.resumed is None
    assert "another number of epochs where a schedule depends on it" in other.notes[0]


@pytest.mark.parametrize(
    "optimizer",
    [
        Adam(schedule=StepDecay(1, 0.5)),
        Adam(schedule=ExponentialDecay(3, 0.5)),
        Adam(schedule=CosineDecay(length=30)),
        Adam(schedule=PolynomialDecay(length=2, unit="epoch")),
        Nesterov(momentum_schedule=ExponentialDecay(3, 0.5)),
    ],
    ids=repr,
)
def test_a_schedule_that_knows_no_end_goes_on_with_more_epochs(tmp_path: Path, optimizer: Optimizer) -> None:
    fit(tmp_path, epochs=2, optimizer=optimizer)
    longer = fit(tmp_path, epochs=3, optimizer=optimizer)
    assert longer.resumed == [2, 0]
    assert same(longer, fit(epochs=3, optimizer=optimizer))


def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(tmp_path: Path, whole: Result) -> None:
    fit(tmp_path, epochs=3)
    newest = files(tmp_path)[-1]
    newest.write_bytes(newest.read_bytes()[:-10])
    result = fit(tmp_path)
    assert result.resumed == [2, 0]
    assert same(result, whole)
    assert len(result.notes) == 1
    assert newest.name in result.notes[0] and "truncated" in result.notes[0]


def test_a_folder_that_cannot_be_written_is_refused_before_anything_is_compiled(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="The checkpoint directory '.*/file' cannot be written: .*; name a folder"):
        fit(tmp_path / "file")


def test_early_stopping_remembers_its_best_across_an_interruption(tmp_path: Path) -> None:
    stopping = EarlyStopping("validation_loss", 3, min_delta=1e9)  # the first check stays the best
    options = {"validation": ROWS, "early_stopping": stopping, "epochs": 9}
    undisturbed = fit(**options)

    def interrupt(message: dict[str, Any]) -> None:
        if message["epoch"] == 2 and "history" in message:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(tmp_path, report=interrupt, **options)
    resumed = fit(tmp_path, **options)
    assert resumed.resumed == [2, 0]
    assert len(resumed.history) == 4
    assert same(resumed, undisturbed) and same(resumed, fit(epochs=1))
    assert (resumed.stop_reason, resumed.best, resumed.checks) == (
        undisturbed.stop_reason, undisturbed.best, undisturbed.checks,
    )  # fmt: skip
    assert fit(tmp_path, **options).stop_reason == undisturbed.stop_reason  # and is not trained on


def test_a_run_that_was_out_of_time_goes_on_when_it_is_given_more(tmp_path: Path, whole: Result) -> None:
    short = fit(tmp_path, early_stopping=EarlyStopping("loss", None, max_seconds=1e-9))
    assert short.stop_reason == "max_seconds 1e-09 of training have passed"
    assert sum(epoch.steps for epoch in short.history) < 16
    longer = fit(tmp_path, early_stopping=EarlyStopping("loss", None, max_seconds=1e9, restore_best=False))
    assert longer.resumed is None  # restore_best decides what the run comes to
    longer = fit(tmp_path, early_stopping=EarlyStopping("loss", None, max_seconds=1e9))
    assert longer.resumed is not None
    assert [epoch.steps for epoch in longer.history] == [4] * 4
    assert [epoch.loss for epoch in longer.history] == [epoch.loss for epoch in whole.history]


LARGE = np.random.default_rng(0).bytes(2 * FRAME_BYTES + 5)


@pytest.mark.parametrize("data", [None, b"", b"x", LARGE[: FRAME_BYTES - 8], LARGE[: FRAME_BYTES - 7], LARGE])
@pytest.mark.parametrize("giver", [0, 2])
def test_every_process_receives_the_bytes_of_one(giver: int, data: bytes | None) -> None:
    mesh = Mesh(np.array(jax.local_devices()[:3]), (WORKERS,))
    assert from_worker(data, giver, mesh) == data
