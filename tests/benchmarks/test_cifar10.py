"""The CIFAR-10 benchmark times the same model for everybody, lets everybody have a turn, and leaves nobody behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import cifar10
from contestants import roster, turns, tutorial
from contestants.ours import NETWORK, STEP_NETWORK
from contestants.race import take_turns
from contestants.serve import Spec
from contestants.turns import Contestant, ContestantError, started

from sparkdl.weights import named_arrays

Array = np.ndarray[Any, Any]

SCRIPT = Path(cifar10.__file__)
RANDOM = np.random.default_rng(5)
IMAGES = RANDOM.integers(0, 256, (3, 32, 32, 3), np.uint8)
LABELS = np.array([3, 0, 9], np.int32)
RATE = 0.1


def test_ours_alone_takes_its_turn_and_writes_its_figure(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    command = [sys.executable, SCRIPT, "--quick", "--only", "ours_1", "--steps", "1", "--rounds", "1"]
    command += ["--json", figures]
    environment = os.environ | {"SPARKDL_DATA": "", "TMPDIR": str(tmp_path)}
    shown = subprocess.run(command, env=environment, check=True, capture_output=True, text=True, timeout=120)
    assert "the images are generated" in shown.stdout
    written = json.loads(figures.read_text())["figures"]
    assert written.keys() == {"ours_1_ms"}
    assert written["ours_1_ms"] > 0
    assert os.listdir(tmp_path) == ["figures.json"]


# The same model


def shapes() -> dict[str, tuple[int, ...]]:
    """Of our network's weights."""
    abstract = jax.eval_shape(NETWORK.init, jax.random.key(0))
    return {name: array.shape for name, array in named_arrays(abstract)}


@pytest.fixture(scope="module")
def weights() -> dict[str, Array]:
    """Weights by name, drawn here."""
    return {name: RANDOM.normal(0, 0.05, shape).astype(np.float32) for name, shape in shapes().items()}


@pytest.fixture(scope="module")
def objectives(weights: dict[str, Array]) -> list[float]:
    """Ours on the centres of IMAGES, before a step of plain gradient descent and after it."""
    nested: dict[str, Any] = {}
    for name, array in weights.items():
        layer, part = name.split("/")
        nested.setdefault(layer, {})[part] = jnp.asarray(array)
    images = jnp.asarray(tutorial.centred(IMAGES))

    def objective(weights: Any) -> jax.Array:
        scores = jax.nn.log_softmax(STEP_NETWORK.forward(weights, images))
        return STEP_NETWORK.penalty(weights) - scores[jnp.arange(3), LABELS].mean()

    derived = jax.jit(jax.value_and_grad(objective), compiler_options={"xla_backend_optimization_level": 0})
    before, slopes = derived(nested)
    after, _ = derived(jax.tree.map(lambda weight, slope: weight - RATE * slope, nested, slopes))
    return [float(before), float(after)]


def test_ours_is_the_tutorials_network() -> None:
    kernels = [shape for name, shape in shapes().items() if name.endswith("/kernel")]
    assert kernels == [(5, 5, 3, 64), (5, 5, 64, 64), (6 * 6 * 64, 384), (384, 192), (192, 10)]


def test_a_step_of_tensorflow_comes_to_our_objectives(weights: dict[str, Array], objectives: list[float]) -> None:
    tf = pytest.importorskip("tensorflow")
    from contestants import tensorflow_peer

    step = tensorflow_peer.make_step(tensorflow_peer.variables(weights), xla=False, augment=False)
    batch = tf.constant(tutorial.centred(IMAGES)), tf.constant(LABELS), tf.constant(RATE), tf.constant(0)
    assert [float(step(*batch)) for _ in range(2)] == pytest.approx(objectives, rel=1e-5)


def test_a_step_of_torch_comes_to_our_objectives(weights: dict[str, Array], objectives: list[float]) -> None:
    torch = pytest.importorskip("torch")
    from contestants import torch_peer

    model = torch_peer.Tutorial(weights)
    step = torch_peer.make_step(model, lambda x, labels: torch_peer.cross_entropy(model, x, labels))
    batch = torch_peer.channels_last(tutorial.centred(IMAGES)), torch.from_numpy(LABELS).long(), RATE
    assert [float(step(*batch)) for _ in range(2)] == pytest.approx(objectives, rel=1e-5)


def augmented_by_tensorflow(images: Array) -> Array:
    tf = pytest.importorskip("tensorflow")
    from contestants import tensorflow_peer

    return tensorflow_peer.augmented(tf.constant(images), tf.constant(7)).numpy()


def augmented_by_torch(images: Array) -> Array:
    torch = pytest.importorskip("torch")
    from contestants import torch_peer

    return torch_peer.augmented(images, torch.Generator().manual_seed(7)).permute(0, 2, 3, 1).numpy()


both = pytest.mark.parametrize("augmented", [augmented_by_tensorflow, augmented_by_torch])


@both
def test_a_peer_augments_by_some_crop_mirrored_or_not(
    augmented: Callable[[Array], Array], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tutorial, "MAX_DELTA", 0.0)
    monkeypatch.setattr(tutorial, "CONTRAST", (1.0, 1.0))
    found = set()
    for image, variation in zip(np.repeat(IMAGES, 4, axis=0), augmented(np.repeat(IMAGES, 4, axis=0)), strict=True):
        crops = {(i, j): image[i : i + 24, j : j + 24].astype(float) for i in range(9) for j in range(9)}
        standard = {place: (crop - crop.mean()) / crop.std() for place, crop in crops.items()}
        matches = [
            (*place, mirrored)
            for place, crop in standard.items()
            for mirrored in (False, True)
            if np.allclose(variation, crop[:, ::-1] if mirrored else crop, atol=1e-3)
        ]
        assert len(matches) == 1
        found.add(matches[0])
    assert len(found) > 6
    assert {mirrored for *_, mirrored in found} == {False, True}


@both
def test_what_a_peer_augments_has_mean_0_and_deviation_1(augmented: Callable[[Array], Array]) -> None:
    variations = augmented(IMAGES)
    assert variations.shape == (3, 24, 24, 3)
    np.testing.assert_allclose(variations.mean(axis=(1, 2, 3)), 0, atol=1e-4)
    np.testing.assert_allclose(variations.std(axis=(1, 2, 3)), 1, atol=1e-4)


# Rows


def test_shuffled_batches_hold_every_row_once_an_epoch_in_another_order() -> None:
    rows = np.arange(2 * tutorial.BATCH)
    batches = tutorial.shuffled(rows, rows)
    epochs = [np.concatenate([next(batches)[0] for _ in range(2)]) for _ in range(2)]
    assert all(sorted(epoch) == sorted(rows) for epoch in epochs)
    assert (epochs[0] != epochs[1]).any()


def test_an_order_comes_back_in_as_many_whole_epochs_as_hold_the_steps(tmp_path: Path) -> None:
    order = [[np.array([4, 1]), np.array([0])], [np.array([1, 0, 2]), np.array([4])]]
    tutorial.write_order(tmp_path, order)
    for steps, epochs in ((2, 1), (3, 2), (4, 2)):
        read = tutorial.read_order(tmp_path, steps)
        assert [[batch.tolist() for batch in epoch] for epoch in read] == [[[4, 1], [0]], [[1, 0, 2], [4]]][:epochs]


# Figures


def test_ratios_are_of_medians_against_the_faster_mode_and_speedups_of_rounds() -> None:
    seconds = {
        "ours_1": [1.0, 9.0, 2.0],
        "ours_pair": [3.0, 2.0, 2.5],
        "tensorflow_1": [4.0, 5.0, 8.0],
        "tensorflow_xla_1": [4.0, 4.0, 1.0],
        "ours_fit_1": [6.0, 6.0, 6.0],
        "ours_fit_2": [3.0, 4.0, 2.0],
    }
    answers = {name: [{"seconds": value, "steps": 10} for value in values] for name, values in seconds.items()}
    figures = cifar10.timings(answers)
    assert figures.pop("step_1_over_tensorflow") == pytest.approx(2 / 4)
    assert figures.pop("speedup_2") == pytest.approx(6 / 3)
    assert figures.pop("ceiling_speedup_2") == pytest.approx(2 * 2 / 2.5)
    assert figures.pop("speedup_2_over_ceiling") == pytest.approx(np.median([2 / (2 / 3), 1.5 / 9, 3 / 1.6]))
    assert figures == {f"{name}_ms": pytest.approx(100 * np.median(values)) for name, values in seconds.items()}


def test_who_is_not_installed_is_left_out_with_the_extra_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(roster, "find_spec", lambda package: package == "sparkdl")
    monkeypatch.setattr(roster, "available_cores", lambda: [0, 1])
    racers, learners = roster.chosen((), quick=True, learns=True)
    assert {one.name for one in racers} == {"ours_1", "ours_pair", "ours_fit_1", "ours_fit_2"}
    assert [one.name for one in learners] == ["ours_learn"]
    shown = capsys.readouterr().out
    assert "tensorflow_learn; tensorflow is not installed: pip install 'sparkdl-jax[benchmarks]'" in shown
    assert "torch_learn; torch is not installed" in shown


def test_who_needs_more_cores_than_there_are_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roster, "available_cores", lambda: [0])
    racers, learners = roster.chosen(("ours_1", "ours_pair", "ours_fit_2", "ours_learn"), quick=True, learns=True)
    assert [one.name for one in racers] == ["ours_1"]
    assert not learners


# Processes; their contestants are made here, in another part of the package.

MODULE = """
import os, time

def good(spec):
    return lambda steps: {"seconds": 0.5, "steps": steps, "loss": 0.0, "pid": os.getpid(), "cores": spec.cores}

def stuck(spec):
    return lambda steps: time.sleep(600)

def broken(spec):
    raise ValueError("no such kernel")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for `started`, with a module `contestants.made`."""
    (tmp_path / "contestants").mkdir()
    (tmp_path / "contestants" / "made.py").write_text(MODULE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_everybody_has_a_turn_in_every_round_in_a_process_of_its_own_that_is_gone_afterwards(folder: Path) -> None:
    contestants = [Contestant(name, "made:good") for name in ("a", "b", "c")]
    with started(contestants, folder, 3) as processes:
        taken = take_turns(processes, rounds=2, steps=3)
    assert {name: [turn["steps"] for turn in own] for name, own in taken.items()} == dict.fromkeys("abc", [3, 3])
    pids = {turn["pid"] for own in taken.values() for turn in own}
    assert len(pids) == 3
    assert not any(map(is_running, pids))


def test_copies_have_a_core_each(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    core = turns.available_cores()[0]
    monkeypatch.setattr(turns, "available_cores", lambda: [core, core])
    with started([Contestant("pair", "made:good", copies=2)], folder, 1) as processes:
        for process in processes["pair"]:
            process.ask(1)
        answers = [process.answer(30) for process in processes["pair"]]
    assert [answer["cores"] for answer in answers] == [[core], [core]]
    assert answers[0]["pid"] != answers[1]["pid"]


def test_a_contestant_that_fails_is_named_with_its_last_words(folder: Path) -> None:
    contestants = [Contestant("sound", "made:good"), Contestant("weak", "made:broken")]
    failed = pytest.raises(ContestantError, match=r"(?s)^weak ended with exit code 1; .*ValueError: no such kernel$")
    with failed, started(contestants, folder, 1):
        pass


def test_a_contestant_that_says_nothing_is_not_waited_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TURN_SECONDS", "STEP_SECONDS", "FAREWELL_SECONDS"):
        monkeypatch.setattr(turns, name, 0.2)
    began = time.monotonic()
    with (
        pytest.raises(ContestantError, match="^silent did not answer"),
        started([Contestant("silent", "made:stuck")], folder, 1) as processes,
    ):
        turns.turn(processes["silent"], 1)
    assert time.monotonic() - began < 10


def test_a_contestant_ends_when_nobody_can_ask_it_any_more(folder: Path) -> None:
    spec = Spec("made:good", turns.available_cores()[:1], str(folder), 1)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), str(SCRIPT.parent)])}
    with subprocess.Popen(
        [sys.executable, "-m", "contestants.serve", json.dumps(asdict(spec))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
    ) as process:
        assert process.stdout is not None and process.stdin is not None
        assert json.loads(process.stdout.readline()) == {"ready": True}
        process.stdin.close()
        assert process.wait(timeout=10) == 0
