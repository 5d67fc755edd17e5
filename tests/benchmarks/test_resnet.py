"""The benchmark of residual networks times one network for all, and writes the figures of whoever takes part."""

from __future__ import annotations

import functools
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

import resnet
from contestants import network_cases

from sparkdl import models
from sparkdl.layers import Context
from sparkdl.weights import named_arrays

NETWORK = models.mobilenet_v2((64, 64, 3), 4, width=0.25, dropout=0.0)
X = np.random.default_rng(0).normal(size=(16, 64, 64, 3)).astype(np.float32)


def test_ours_alone_takes_its_turn_and_writes_its_figures(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    command = [sys.executable, resnet.__file__, "--quick", "--only", "resnet18_32_ours_1", "--steps", "1"]
    command += ["--rounds", "1", "--learn", "1", "--json", str(figures)]
    environment = os.environ | {"SPARKDL_DATA": "", "TMPDIR": str(tmp_path)}
    environment["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"  # the step runs twice
    shown = subprocess.run(command, env=environment, check=True, capture_output=True, text=True, timeout=300)
    assert "the images are generated" in shown.stdout
    written = json.loads(figures.read_text())["figures"]
    assert written.keys() == {"resnet18_32_ours_1_ms", "resnet18_32_ours_1_compile_s"}
    assert min(written.values()) > 0
    assert os.listdir(tmp_path) == ["figures.json"]


def test_ratios_are_of_medians_and_of_the_faster_mode() -> None:
    def turns(*seconds: float) -> list[dict[str, Any]]:
        return [{"seconds": each, "steps": 2, "loss": 0.0, "losses": [2.0, 4.0]} for each in seconds]

    raced = {"ours_1": turns(1, 3, 2), "torch_1": turns(5, 5, 5), "torch_compiled_1": turns(4, 4, 9)}
    lessons = {"ours_1": turns(1), "torch_1": turns(1)}
    figures = resnet.assess("resnet18_32", lessons, raced)
    assert figures["resnet18_32_ours_1_ms"] == 1000
    assert figures["resnet18_step_1_over_torch"] == 0.5
    assert figures["resnet18_loss_over_torch"] == 1
    assert "mobilenet_loss_over_torch" not in resnet.assess("mobilenet_64", lessons, raced)


def test_all_read_the_same_batches_and_weights(tmp_path: Path) -> None:
    resnet.write_images(tmp_path, None)
    network_cases.write_case(tmp_path, "mobilenet_64")
    batches = network_cases.read_batches(tmp_path, "mobilenet_64")
    assert len(batches) == network_cases.BATCHES and batches[0][0].shape == (64, 64, 64, 3)
    assert -1 <= batches[0][0].min() < batches[0][0].max() <= 1
    read = dict(named_arrays(network_cases.read_weights(tmp_path, "mobilenet_64")))
    for name, array in named_arrays(network_cases.network_of("mobilenet_64").init(network_cases.SEED)):
        np.testing.assert_array_equal(read[name], array)


@functools.cache
def trained_output() -> tuple[Any, np.ndarray[Any, Any]]:
    """Weights, and what the network puts out in training."""
    weights = NETWORK.init(0)
    context = Context(jax.random.key(0), jax.numpy.ones(len(X)))
    forward = jax.jit(lambda weights, x: NETWORK.train_forward(weights, x, context)[0])
    return weights, np.asarray(forward(weights, X))


def test_pytorch_computes_the_same_network() -> None:
    torch = pytest.importorskip("torch")
    from contestants.resnet_torch import module

    weights, y = trained_output()
    assert NETWORK.input_shape is not None
    model = module(NETWORK, weights, NETWORK.input_shape).train()
    found = model(torch.from_numpy(X).permute(0, 3, 1, 2)).detach().numpy()
    np.testing.assert_allclose(found, y, atol=1e-3)


def test_tensorflow_computes_the_same_network() -> None:
    tf = pytest.importorskip("tensorflow")
    from contestants.network_tensorflow import forward

    weights, y = trained_output()
    moved: list[Any] = []
    found = forward(NETWORK, tf.nest.map_structure(lambda a: tf.Variable(np.asarray(a)), weights), X, moved)
    np.testing.assert_allclose(found, y, atol=1e-3)
    assert len(moved) == 2 * 52  # running values of 52 normalizations
