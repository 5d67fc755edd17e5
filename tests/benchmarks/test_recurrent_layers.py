"""The layers that benchmarks/recurrent.py compares compute the same, and it writes the figures that it promises."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import recurrent

from sparkdl import Network
from sparkdl.layers import Gru, Lstm, TransformerEncoder
from sparkdl.layers.recurrent import Recurrent


@pytest.mark.parametrize("layer", [Lstm(4), Gru(4)], ids=repr)
def test_the_layers_of_pytorch_compute_what_ours_do(layer: Recurrent) -> None:
    pytest.importorskip("torch")
    from contestants import recurrent_torch

    draw = np.random.default_rng(1)
    x, dy = (draw.normal(size=(3, 5, size)).astype(np.float32) for size in (2, 4))
    weights = {
        name: draw.normal(size=value.shape).astype(np.float32)
        for name, value in layer.init(jax.random.key(1), (5, 2)).items()
    }
    ours = recurrent.our_kernels(layer, jax.tree.map(jnp.asarray, weights), jnp.asarray(x), jnp.asarray(dy))
    theirs = recurrent_torch.kernels(recurrent_torch.module(layer, weights), x, dy, compiled=False)
    np.testing.assert_allclose(theirs["forward"](), ours["forward"](), rtol=1e-4, atol=1e-5)
    y, (dx, dweights) = ours["train"]()
    other, (other_dx, kernel, state, *biases) = theirs["train"]()
    np.testing.assert_allclose(other, y, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(other_dx, dx, rtol=1e-4, atol=1e-5)
    named = {"kernel": kernel, "recurrent": state} | dict(zip(("bias", "recurrent_bias"), biases, strict=True))
    for name, gradient in dweights.items():
        expected = recurrent_torch.in_its_order(layer, np.asarray(gradient))
        np.testing.assert_allclose(named[name], expected, rtol=1e-4, atol=1e-5)


def test_the_blocks_of_pytorch_compute_what_ours_do() -> None:
    pytest.importorskip("torch")
    from contestants import encoder_torch, recurrent_torch

    network = Network([TransformerEncoder(2, 8), TransformerEncoder(2, 8, norm_first=True)], input_shape=(5, 4))
    draw = np.random.default_rng(1)
    x, dy = (draw.normal(size=(3, 5, 4)).astype(np.float32) for _ in range(2))
    weights = jax.tree.map(
        lambda value: draw.normal(size=value.shape).astype(np.float32), network.init(jax.random.key(1), (5, 4))
    )
    ours = recurrent.our_kernels(network, jax.tree.map(jnp.asarray, weights), jnp.asarray(x), jnp.asarray(dy))
    theirs = recurrent_torch.kernels(encoder_torch.module(network, weights), x, dy, compiled=False)
    np.testing.assert_allclose(theirs["forward"](), ours["forward"](), rtol=1e-4, atol=1e-4)
    y, (dx, dweights) = ours["train"]()
    other, (other_dx, *gradients) = theirs["train"]()
    np.testing.assert_allclose(other, y, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(other_dx, dx, rtol=1e-3, atol=1e-4)
    assert len(gradients) == 2 * 12
    first = dweights[network.names[0]]["feed_forward"]["inner"]["kernel"]
    np.testing.assert_allclose(gradients[4].T, first, rtol=1e-3, atol=1e-4)


def test_it_writes_the_figures_it_promises(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    figures = tmp_path / "figures.json"
    command = [sys.executable, recurrent.__file__, "--quick", "--only", "gru_small", "--json", figures]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found = json.loads(figures.read_text())["figures"]
    ends = ("ms", "torch_ms", "torch_compiled_ms", "over_torch")
    assert found.keys() == {f"gru_small_{kernel}_{end}" for kernel in ("forward", "train") for end in ends}
    fastest = min(found["gru_small_train_torch_ms"], found["gru_small_train_torch_compiled_ms"])
    assert found["gru_small_train_over_torch"] == pytest.approx(found["gru_small_train_ms"] / fastest)
