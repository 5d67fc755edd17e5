"""benchmarks/characters.py gives PyTorch the network, rows and updates that we train by, and writes its figures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import characters
from contestants import characters_case
from contestants.characters_case import STEP_SIZE, TRUNCATED, Cut

from sparkdl import training
from sparkdl.layers import Ragged

TEXT = "ROMEO:\nTo be, or not to be, that is the question.\n" * 40
LETTERS = sorted(set(TEXT))
IDS = np.array([LETTERS.index(letter) for letter in TEXT], "int32")


def test_rows_are_the_text_and_labels_the_character_after() -> None:
    rows = characters_case.cut(IDS, 100)
    assert rows.features.shape == rows.labels.shape == ((len(IDS) - 1) // 100, 100)
    text = "".join(LETTERS[each] for each in rows.features.ravel())
    assert text == TEXT[: len(text)]
    assert "".join(LETTERS[each] for each in rows.labels.ravel()) == TEXT[1 : len(text) + 1]
    longer = characters_case.cut(IDS, 500, 5)
    assert longer.features.shape == (5, 500)
    np.testing.assert_array_equal(longer.features.ravel()[len(IDS) - 1 :], IDS[: 2500 - len(IDS) + 1])


def test_the_text_is_divided_as_the_data_set_says(tmp_path: Path) -> None:
    speeches = [f"SPEAKER {number}:\nWords of {number}." for number in range(30)]
    (tmp_path / "input.txt").write_text("\n\n".join(speeches) + "\n")
    text = characters_case.read_text(tmp_path)
    train, test = ("".join(text.characters.entries[each] for each in own) for own in (text.train, text.test))
    assert f"{train}\n\n{test}" == "\n\n".join(speeches)
    assert test.startswith("SPEAKER") and len(test) < 0.15 * len(train)


def test_pytorch_takes_our_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two batches of three segments each, the state handed on within a batch and begun anew with the next."""
    torch = pytest.importorskip("torch")
    from contestants import characters_torch

    monkeypatch.setattr(characters_case, "UNITS", (8, 8))
    monkeypatch.setattr(characters_torch, "UNITS", (8, 8))
    network = characters_case.network_of(len(LETTERS))
    weights: Any = jax.tree.map(np.asarray, network.init(3))
    rows = characters_case.cut(IDS, 3 * TRUNCATED, 8)
    given: dict[str, Any] = {"optimizer": "adam", "step_size": STEP_SIZE, "batch_size": 4, "epochs": 1}
    given |= {"initial": weights, "truncated": TRUNCATED, "shuffle": False}
    ours = training.fit(network, (rows.features.tolist(), rows.labels.tolist()), **given)
    batches = [Cut(rows.features[at : at + 4], rows.labels[at : at + 4]) for at in (0, 4)]
    model = characters_torch.Characters(weights)
    losses = torch.stack(list(characters_torch.updates(model, model, iter(batches))))
    assert len(losses) == 6
    assert float(losses.mean()) == pytest.approx(ours.history[0].loss, rel=1e-5)
    with torch.no_grad():
        scores = model(torch.from_numpy(rows.features).long(), None)[0].transpose(1, 2)
    texts = Ragged(rows.features, np.full(len(rows.features), rows.features.shape[1], "int32"))
    other = np.asarray(network.forward(ours.weights, texts).values)
    np.testing.assert_allclose(scores.numpy(), other, rtol=1e-3, atol=1e-4)


def test_it_writes_the_figures_it_promises(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "input.txt").write_text("\n\n".join([TEXT] * 20))
    command = [sys.executable, characters.__file__, "--quick", "--learn", "2", "--data", str(tmp_path)]
    command += ["--json", str(tmp_path / "figures.json")]
    environment = os.environ | {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}  # programs that run a few times
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "it writes: ROMEO:" in done.stdout
    figures = json.loads((tmp_path / "figures.json").read_text())["figures"]
    assert figures["characters_loss_over_torch"] == pytest.approx(1, abs=0.01)
    assert figures["characters_training_loss"] == pytest.approx(figures["characters_training_loss_torch"], rel=1e-3)
    ours, theirs = (figures[f"char_model_{name}_fit_2_ms"] for name in ("ours", "torchdistributor"))
    assert figures["char_model_fit_2_over_torchdistributor"] == pytest.approx(ours / theirs)


def test_without_data_nothing_is_measured(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["characters.py", "--quick"])
    monkeypatch.delenv("SPARKDL_DATA", raising=False)
    characters.main()
    assert "nothing is measured" in capsys.readouterr().out
