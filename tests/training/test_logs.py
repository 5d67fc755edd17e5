"""What a run tells TensorBoard: the numbers, their steps, and spreads equal to NumPy's."""

from __future__ import annotations

import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from row_cases import chosen, rows_of

from sparkdl import Network, training
from sparkdl.layers import BatchNorm, Dense, Dropout, Gru, Tanh
from sparkdl.losses import SquaredError
from sparkdl.objective import Objective
from sparkdl.optimizers import SGD
from sparkdl.schedules import ExponentialDecay
from sparkdl.specs import Spec
from sparkdl.training.records.logs import PROBED_ROWS, Logs, LogWriter, NullWriter
from sparkdl.training.records.probe import BINS

pytestmark = pytest.mark.usefixtures("unoptimized")

NETWORK = Network([Dense(3, name="hidden", l2=0.1), Tanh(), Network([Dense(1)], name="head")], input_shape=(2,))
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(6, 2)).astype("float32")
Y = RANDOM.normal(size=(6, 1)).astype("float32")
ROWS = rows_of(X, Y, np.array([1, 2, 1, 0.5, 3, 0], "float32"))
RECORD = {
    "loss": 0.5,
    "metric": 0.75,
    "validation_loss": None,
    "validation_metric": None,
    "rows": 30,
    "steps": 5,
    "seconds": 2.0,
}


def weights(seed: int) -> dict[str, Any]:
    random = np.random.default_rng(seed)

    def draw(*shape: int) -> np.ndarray[Any, Any]:
        return random.normal(size=shape).astype("float32")

    return {
        "hidden": {"kernel": draw(2, 3), "bias": draw(3)},
        "head": {"dense_0": {"kernel": draw(3, 1), "bias": draw(1)}},
    }


BEFORE, AFTER = weights(1), weights(2)


def writer(directory: Path, network: Network = NETWORK, **options: Any) -> LogWriter:
    objective = Objective.of(SquaredError(), None, network.output_names)
    return LogWriter(Logs(directory, every=5), network, objective, lambda step: 0.1 / (step + 1), **options)


def events(directory: Path) -> list[Any]:
    """The events of a directory's only file, whose records are length, its checksum, data, and its checksum."""
    from tensorboardX.proto import event_pb2

    (path,) = directory.iterdir()
    data, found = path.read_bytes(), []
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        found.append(event_pb2.Event.FromString(data[12 : 12 + length]))
        data = data[16 + length :]
    return found


def shown(directory: Path) -> dict[str, tuple[int, Any]]:
    """(step, number or histogram) by tag."""
    values = [(event.step, value) for event in events(directory) for value in event.summary.value]
    assert len({value.tag for _, value in values}) == len(values)
    return {value.tag: (step, value.histo if value.HasField("histo") else value.simple_value) for step, value in values}


@pytest.fixture(scope="module")
def epoch(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, Any]]:
    """An epoch of five steps."""
    directory = tmp_path_factory.mktemp("logs")
    log = writer(directory)
    log.compile(BEFORE, ROWS)
    log.epoch(5, RECORD, BEFORE, AFTER, ROWS)
    log.close()
    return shown(directory)


def test_a_step_has_its_numbers_and_its_learning_rate(tmp_path: Path) -> None:
    log = writer(tmp_path / "made" / "here")
    assert [step for step in range(1, 12) if log.due(step)] == [5, 10]
    log.scalars(5, {"loss": 0.5, "metric": None, "bytes": 12})
    log.close()
    found = shown(tmp_path / "made" / "here")
    assert found.keys() == {"step/loss", "step/bytes", "step/learning_rate"}
    assert {step for step, _ in found.values()} == {5}
    assert [found[f"step/{name}"][1] for name in ("loss", "bytes")] == [0.5, 12]
    assert found["step/learning_rate"][1] == pytest.approx(0.02)


def test_a_step_of_several_updates_has_the_learning_rate_of_its_first(tmp_path: Path) -> None:
    """Of three segments each, in every one of which the step size halves."""
    network = Network([Gru(2), Dense(1)], (None, 1))
    data = np.ones((4, 9, 1)), np.ones((4, 9))
    options: dict[str, Any] = {"loss": "squared_error", "truncated": 3, "batch_size": 2, "epochs": 2, "step_size": 0.5}
    halves = SGD(schedule=ExponentialDecay(1, 0.5))
    training.fit(network, data, optimizer=halves, logs=Logs(tmp_path, every=1), **options)
    values = [value for event in events(tmp_path) for value in event.summary.value]
    rates = [value.simple_value for value in values if value.tag == "step/learning_rate"]
    np.testing.assert_allclose(rates, 0.5 * 0.5 ** np.array([0, 3, 6, 9]))


def test_an_epoch_has_its_means_and_its_speed(epoch: dict[str, tuple[int, Any]]) -> None:
    metric = SquaredError().metric
    expected = {"epoch/loss": 0.5, f"epoch/{metric}": 0.75, "epoch/rows_per_second": 15}
    assert {tag: number for tag, (_, number) in epoch.items() if tag.startswith("epoch/")} == expected
    assert {step for step, _ in epoch.values()} == {5}


def arrays(tree: dict[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
    return {
        "hidden/kernel": tree["hidden"]["kernel"],
        "hidden/bias": tree["hidden"]["bias"],
        "head/dense_0/kernel": tree["head"]["dense_0"]["kernel"],
        "head/dense_0/bias": tree["head"]["dense_0"]["bias"],
    }


def check_histogram(found: Any, values: np.ndarray[Any, Any]) -> None:
    bound = np.abs(values).max()
    counts, edges = np.histogram(values / bound, BINS, (-1, 1))
    assert list(found.bucket) == counts.tolist()
    np.testing.assert_allclose(found.bucket_limit, edges[1:] * bound, rtol=1e-5, atol=1e-6 * bound)
    numbers = (found.min, found.max, found.num, found.sum, found.sum_squares)
    expected = (values.min(), values.max(), values.size, values.sum(), np.square(values).sum())
    np.testing.assert_allclose(numbers, expected, rtol=1e-4, atol=1e-5 * bound)


@pytest.mark.parametrize("name", arrays(BEFORE))
def test_the_spread_of_weights_and_the_size_of_updates_are_numpys(epoch: dict[str, tuple[int, Any]], name: str) -> None:
    before, after = arrays(BEFORE)[name], arrays(AFTER)[name]
    check_histogram(epoch[f"weights/{name}"][1], after)
    ratio = np.abs(after - before).mean() / np.abs(before).mean()
    assert epoch[f"update_ratio/{name}"][1] == pytest.approx(np.log10(ratio), abs=1e-4)


def test_gradients_and_activations_are_those_of_the_rows_by_their_weights(epoch: dict[str, tuple[int, Any]]) -> None:
    parts = {name: array.astype("float64") for name, array in arrays(BEFORE).items()}
    x, labels, row_weights = (part.astype("float64") for part in ROWS.each().values())
    total = row_weights.sum()
    below = x @ parts["hidden/kernel"] + parts["hidden/bias"]
    hidden = np.tanh(below)
    y = hidden @ parts["head/dense_0/kernel"] + parts["head/dense_0/bias"]
    for name, values in (("hidden", below), ("tanh_1", hidden), ("head/dense_0", y)):
        mean = np.average(values.mean(axis=1), weights=row_weights)
        variance = np.average(np.square(values - mean).mean(axis=1), weights=row_weights)
        assert epoch[f"activations/{name}/mean"][1] == pytest.approx(mean, abs=1e-5)
        assert epoch[f"activations/{name}/standard_deviation"][1] == pytest.approx(np.sqrt(variance), rel=1e-4)
    dy = row_weights[:, None] * slope(y, labels) / total
    dbelow = dy @ parts["head/dense_0/kernel"].T * (1 - hidden**2)
    check_histogram(epoch["gradients/head/dense_0/kernel"][1], hidden.T @ dy)
    check_histogram(epoch["gradients/hidden/kernel"][1], x.T @ dbelow + 0.1 * parts["hidden/kernel"])
    check_histogram(epoch["gradients/hidden/bias"][1], dbelow.sum(axis=0))


def slope(y: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The derivative of the loss of a row by central differences of the loss itself."""
    loss, one, step = SquaredError(), np.ones(1, "float32"), 0.5  # exact for a parabola

    def value(at: float, label: float) -> float:
        return float(loss.value(np.array([[at]], "float32"), np.array([[label]], "float32"), one))

    pairs = zip(y.ravel(), labels.ravel(), strict=True)
    return np.array([[(value(at + step, label) - value(at - step, label)) / (2 * step)] for at, label in pairs])


def test_random_layers_frozen_weights_and_values_that_are_not_finite_are_borne(tmp_path: Path) -> None:
    network = Network([BatchNorm(), Dropout(0.5), Dense(1, trainable=False)], input_shape=(2,))
    norm = {"scale": np.ones(2), "bias": np.zeros(2), "mean": np.zeros(2), "variance": np.array([1, np.inf])}
    dense = {"kernel": np.ones((2, 1)), "bias": np.zeros(1)}
    before = {
        name: {key: value.astype("float32") for key, value in part.items()}
        for name, part in {"batch_norm_0": norm, "dense_2": dense}.items()
    }
    log = writer(tmp_path, network, dtype="bfloat16", seed=2**40)
    log.epoch(1, RECORD, before, before, ROWS)
    log.close()
    found = shown(tmp_path)
    assert {tag for tag in found if "gradients/" in tag} == {
        f"gradients/batch_norm_0/{name}" for name in norm if name in ("scale", "bias")
    }
    assert not [tag for tag in found if "update_ratio" in tag]  # nothing has changed
    assert found["weights/batch_norm_0/variance"][1].num == 1
    assert found["weights/batch_norm_0/bias"][1].num == 2


def test_rows_that_weigh_nothing_have_no_gradients_and_many_cost_no_more(tmp_path: Path) -> None:
    log = writer(tmp_path)
    many = chosen(ROWS, np.repeat(np.arange(6), 100))
    log.epoch(1, RECORD, BEFORE, AFTER, many._replace(weights=np.arange(600) >= PROBED_ROWS))
    log.close()
    assert {tag.split("/")[0] for tag in shown(tmp_path)} == {"epoch", "weights", "update_ratio"}


def test_a_resumed_run_hides_what_was_written_of_later_steps(tmp_path: Path) -> None:
    from tensorboardX.proto.event_pb2 import SessionLog

    writer(tmp_path, first_step=40).close()
    version, start = events(tmp_path)
    assert version.file_version == "brain.Event:2"
    assert (start.step, start.session_log.status) == (41, SessionLog.START)


def test_two_runs_in_one_directory_keep_their_files(tmp_path: Path) -> None:
    for _ in range(2):
        writer(tmp_path).close()
    assert len(list(tmp_path.iterdir())) == 2


def test_a_full_disk_ends_the_logs_but_not_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = writer(tmp_path)

    def full(*arguments: Any) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(log._file, "write_event", full)
    with pytest.warns(UserWarning, match="Logs end at step 5: .* takes no more .No space left on device"):
        log.scalars(5, {"loss": 0.5})
    log.scalars(10, {"loss": 0.4})
    log.close()


def test_the_null_writer_writes_nothing(tmp_path: Path) -> None:
    log = NullWriter()
    assert not log.active and not log.due(0)
    log.compile(BEFORE, ROWS)
    log.scalars(1, {})
    log.epoch(1, RECORD, BEFORE, AFTER, ROWS)
    log.close()


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        ({"directory": ""}, "directory of Logs must be a path or URI, received ''"),
        ({"directory": 1}, "directory of Logs must be a path or URI, received 1"),
        ({"directory": "x", "every": 0}, "every of Logs must be a positive integer, received 0."),
        ({"directory": "x", "every": True}, "every of Logs must be a positive integer, received True."),
    ],
)
def test_logs_that_cannot_be_are_refused(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Logs(**arguments)


def test_logs_travel_as_json(tmp_path: Path) -> None:
    assert Spec.from_json(Logs(tmp_path, 7).to_json()) == Logs(str(tmp_path), 7)


def test_a_directory_that_cannot_be_made_is_refused_before_training(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="directory of Logs must be a folder that workers can write, received .*file"):
        writer(tmp_path / "file")


def test_a_missing_library_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(ValueError, match=r"tensorboardX .* is not installed; install sparkdl-jax\[tensorboard\]"):
        writer(tmp_path)
