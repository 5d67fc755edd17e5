"""benchmarks/texts.py: PyTorch's networks are ours, no message is on both sides, and its figures come out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from sparkdl import Network, models
from sparkdl.layers import Embedding, Ragged

FOLDER = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(FOLDER))

import texts  # noqa: E402

RANDOM = np.random.default_rng(4)
NETWORKS = {
    "Transformer": models.transformer_classifier(9, 2, size=8, blocks=2, heads=2),
    "TextCnn": models.text_cnn((None,), 2, embedding=Embedding(9, 4, unknown=True), sizes=(2, 3, 6), filters=5),
}


@pytest.mark.parametrize("kind", NETWORKS)
def test_torch_computes_what_our_networks_do(kind: str) -> None:
    pytest.importorskip("torch")
    from contestants import texts_torch

    network: Network = NETWORKS[kind]
    weights = jax.tree.map(lambda array: RANDOM.normal(size=array.shape).astype("float32"), network.init(0))
    rows = [RANDOM.integers(0, 9, length) for length in (1, 7, 4)]
    values = np.zeros((3, 8), "int32")
    for row, ids in enumerate(rows):
        values[row, : len(ids)] = ids
    expected = network.forward(weights, Ragged(jnp.asarray(values), jnp.asarray([1, 7, 4], "int32")))
    found = texts_torch.scored(getattr(texts_torch, kind)(network, weights).eval(), rows)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_torch_keeps_the_last_layer_within_its_bound() -> None:
    pytest.importorskip("torch")
    from contestants import texts_torch

    network = NETWORKS["TextCnn"]
    weights = jax.tree.map(lambda array: 5 * RANDOM.normal(size=array.shape), network.init(0))
    model = texts_torch.TextCnn(network, weights)
    model.constrain()
    kernel = np.asarray(network.constrained(weights)["dense_3"]["kernel"])
    assert np.linalg.norm(weights["dense_3"]["kernel"], axis=0).min() > 3
    np.testing.assert_allclose(model.dense.weight.detach().numpy().T, kernel, rtol=1e-5)


def messages(count: int) -> pd.DataFrame:
    """Of which every fourth is spam, and every third is there twice."""
    lines = [f"{'win cash now' if i % 4 == 0 else 'see you at home'} {'!' * (i % 5)} {i}" for i in range(count)]
    frame = pd.DataFrame({"text": lines, "label": [int(i % 4 == 0) for i in range(count)]})
    return pd.concat([frame, frame[::3]], ignore_index=True)


def test_equal_messages_lie_on_one_side_and_classes_are_as_frequent_on_both() -> None:
    given = messages(200)
    train, test = texts.split(given)
    assert sorted(map(tuple, pd.concat([train, test]).to_numpy())) == sorted(map(tuple, given.to_numpy()))
    assert not set(train["text"]) & set(test["text"])
    for label, count in ((0, 150), (1, 50)):
        assert test.drop_duplicates()["label"].eq(label).sum() == count / 5
    assert texts.split(given)[1].equals(test) and not texts.split(given, seed=1)[1].equals(test)


def test_f1_is_of_the_class_one() -> None:
    found, labels = np.array([1, 1, 1, 0, 0]), np.array([1, 0, 1, 1, 0])
    assert texts.f1(found, labels) == pytest.approx(2 / 3)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(FOLDER / "texts.py"), "--quick", *arguments]
    # Programs run a few times each.
    environment: dict[str, Any] = os.environ | {"SPARKDL_DATA": "", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)


def test_its_figures_come_out(tmp_path: Path) -> None:
    lines = [f"{'spam' if row.label else 'ham'}\t{row.text}" for row in messages(2000).itertuples()]
    (tmp_path / "SMSSpamCollection").write_text("\n".join(lines) + "\n")
    done = run("--data", str(tmp_path), "--json", str(tmp_path / "figures.json"))
    assert done.returncode == 0, done.stderr
    figures = json.loads((tmp_path / "figures.json").read_text())["figures"]
    for name in ("transformer", "cnn"):
        own = {f"spam_{name}_{each}" for each in ("f1", "fill")}
        assert own <= figures.keys()
        assert all(0 <= figures[each] <= 1 for each in own)
        assert figures[f"spam_{name}_f1"] > 0.9


def test_without_data_nothing_is_measured(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("SPARKDL_DATA", raising=False)
    monkeypatch.setattr(sys, "argv", ["texts.py", "--quick"])
    texts.main()
    assert "nothing is measured" in capsys.readouterr().out
