"""The GPU benchmark's networks are the published ones, its contestants compute one step, and its figures add up."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import gpu
from contestants.resnet_plain import plain_forward, plain_step
from contestants.resnet_rates import datasheet
from contestants.resnet_steps import Case, Contestant, our_contestant, plain_contestant

from sparkdl import models
from sparkdl.layers import (
    BatchNorm,
    Context,
    Conv,
    Dense,
    Flatten,
    GlobalAvgPool,
    LocalResponseNorm,
    MaxPool,
    Relu,
    Residual,
)
from sparkdl.network import Network
from sparkdl.weights import count_weights

SCRIPT = Path(gpu.__file__)
SMALL = Network(
    [
        Conv(4, (3, 3)),
        Residual([Conv(4, (3, 3), padding="same", l2=0.5), BatchNorm(), Relu()]),
        Residual([Conv(6, (3, 3), 2, ((1, 1), (1, 1))), BatchNorm()], [Conv(6, (1, 1), 2), BatchNorm(0.5)]),
        GlobalAvgPool(),
        Dense(3),
    ],
    input_shape=(7, 7, 2),
)
PLAIN = Network(
    [
        Conv(8, (5, 5), padding="same"),
        Relu(),
        MaxPool(3, 2, padding="same"),
        LocalResponseNorm(radius=2, alpha=0.1, beta=0.75),
        MaxPool(3, 2, padding=((1, 1), (1, 1))),
        Flatten(),
        Dense(3),
    ],
    input_shape=(24, 24, 3),
)
BOTTLENECKS = models.resnet((24, 24, 3), 3, (1, 2), filters=2, bottleneck=True, small=False)


@pytest.fixture(scope="module", autouse=True)
def unoptimized() -> Iterator[None]:
    """Compiling is most of the work of these tests."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


def close(ours: Any, theirs: Any, tolerance: float = 1e-9) -> None:
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def weights_of(network: Network) -> Any:
    """Weights in float64, none of them a round number; made without compiling the initializers."""
    draw = np.random.default_rng(3)
    shapes = jax.eval_shape(lambda: network.init(0))
    return jax.tree.map(lambda leaf: draw.uniform(0.1, 1, leaf.shape), shapes)


def images(network: Network, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Images and classes."""
    draw = np.random.default_rng(5)
    assert network.input_shape is not None
    return draw.normal(size=(rows, *network.input_shape)), draw.integers(0, network.output_shape()[0], rows, np.int32)


# Networks


@pytest.mark.parametrize(
    "build, weights, multiply_adds",
    [
        (gpu.cifar10, 1_068_298, 576 * 75 * 64 + 144 * 1600 * 64 + 2304 * 384 + 384 * 192 + 192 * 10),
        (models.resnet18, 11_689_512, 1_814_073_344),
        (models.resnet50, 25_557_032, 4_089_184_256),
    ],
)
def test_the_networks_are_of_the_published_size(build: Any, weights: int, multiply_adds: int) -> None:
    """As TensorFlow's tutorial has it, and torchvision, whose ResNet-50 is v1.5 too."""
    network = build()
    shapes = jax.eval_shape(lambda: network.init(0))
    assert count_weights(network.learned(shapes)) == weights
    assert network.multiply_adds() == multiply_adds


def test_a_residual_network_differentiates_as_jax_does_and_its_statistics_move(float64: None) -> None:
    weights, (x, _) = weights_of(SMALL), images(SMALL, 5)
    dy = np.random.default_rng(6).normal(size=(5, 3))

    def product(learned: Any, x: Any) -> tuple[Any, Any]:
        y, statistics = plain_forward(SMALL, {**weights, **merged(weights, learned)}, x)
        return (y * dy).sum(), (y, statistics)

    plain = jax.jit(jax.grad(product, (0, 1), has_aux=True))
    (gradient, dx), (y, statistics) = plain(SMALL.learned(weights), jnp.asarray(x))

    @jax.jit
    def train(weights: Any, x: Any, dy: Any) -> Any:
        context = Context(jax.random.key(0), jnp.ones(5))
        y, kept = SMALL.train_forward(weights, x, context)
        delta, gradient = SMALL.train_backward(weights, x, y, dy, kept, context, True)
        without, same = SMALL.train_backward(weights, x, y, dy, kept, context, False)
        assert without is None
        return y, delta, gradient, same, SMALL.new_statistics(weights, kept)

    close(train(weights, x, dy), (y, dx, gradient, gradient, statistics))
    for name, index in (("body", 1), ("shortcut", 1)):
        moved, old = (tree["residual_2"][name][f"batch_norm_{index}"]["mean"] for tree in (statistics, weights))
        assert (np.abs(moved - old) > 1e-6).all()
    kernel = weights["residual_1"]["body"]["conv_0"]["kernel"]
    assert SMALL.penalty(weights) == pytest.approx(0.25 * float((kernel**2).sum()))


def merged(weights: Any, part: Any) -> Any:
    return {
        name: merged(old, part.get(name, {})) if isinstance(old, dict) else part.get(name, old)
        for name, old in weights.items()
    }


# Contestants


@pytest.mark.parametrize("network", [SMALL, PLAIN, BOTTLENECKS], ids=["small", "plain", "bottlenecks"])
def test_pytorch_takes_the_same_step(network: Network, float64: None) -> None:
    torch = pytest.importorskip("torch")
    from contestants.resnet_torch import module, torch_step

    before, (x, classes) = weights_of(network), images(network, 4)
    model = module(network, before, network.input_shape).double().train()
    torch_step(model, "cpu", 0.1, "float32", compiled=False)(torch.tensor(x), torch.tensor(classes, dtype=torch.int64))
    after = plain_step(network, 0.1, "float64")(jax.tree.map(jnp.asarray, before), jnp.asarray(x), jnp.asarray(classes))
    expected = dict(module(network, after, network.input_shape).named_parameters())
    for name, value in model.named_parameters():
        np.testing.assert_allclose(value.detach(), expected[name].detach(), rtol=1e-5, atol=1e-6, err_msg=name)


def test_a_case_splits_over_devices() -> None:
    network = SMALL
    case = Case(network, "float32", 4, jax.local_devices()[:2])
    entered = {"step": our_contestant(case), "autodiff": plain_contestant(case)}
    times = gpu.take_turns(entered, 2, 0.0)
    reached = gpu.Rates({"float32": 2.0}, 10.0)
    figures = gpu.assess(case, entered, times, gpu.Rates({}, 5.0), reached)
    assert figures["step_over_autodiff"] == pytest.approx(figures["step_ms"] / figures["autodiff_ms"])
    assert figures["step_of_peak"] == figures["step_of_matmul"] == figures["step_tflops"] / 2
    assert figures["step_of_bandwidth"] == 2 * figures["step_of_copy"] > 0
    operations = 2 * case.multiply_adds / 2  # of one device
    assert figures["step_tflops"] == pytest.approx(operations / figures["step_ms"] / 1e9)
    assert figures["step_memory_gb"] * 1e9 > 4 * count_weights(network.init(0))


def test_a_step_costs_three_forward_passes_but_for_the_first_layers_delta() -> None:
    network = Network([Relu(), Conv(4, (3, 3)), Relu(), GlobalAvgPool(), Dense(5)], input_shape=(6, 6, 2))
    convolution, dense = 16 * 9 * 2 * 4, 4 * 5
    assert Case(network, "float32", 10, []).multiply_adds == 10 * (2 * convolution + 3 * dense)


def test_contestants_take_turns_in_rotating_order() -> None:
    taken: list[tuple[str, int]] = []
    names = ["step", "autodiff", "torch"]
    entered = {
        name: Contestant(name, lambda steps, name=name: taken.append((name, steps)), 0.0, None, None) for name in names
    }
    times = gpu.take_turns(entered, 3, 1e-9)
    assert [name for name, _ in taken[1:]] == names + names[1:] + names[:1] + names[2:] + names[:2]
    assert {steps for _, steps in taken} == {1}
    assert {len(values) for values in times.values()} == {3}


@pytest.mark.parametrize(
    "kind, gbs",
    [
        ("NVIDIA H100 80GB HBM3", 3350),
        ("NVIDIA H100 PCIe", 2000),
        ("NVIDIA H200", 4800),
        ("NVIDIA A100-SXM4-40GB", 1555),
        ("NVIDIA A100-SXM4-80GB", 2039),
        ("NVIDIA A100 80GB PCIe", 1935),
        ("NVIDIA L4", 300),
        ("Tesla T4", 300),
        ("Tesla V100-SXM2-16GB", 900),
    ],
)
def test_chips_are_known_by_the_name_that_jax_gives_them(kind: str, gbs: float) -> None:
    found = datasheet(kind)
    assert found is not None
    assert found.gbs == gbs


@pytest.mark.parametrize("kind", ["cpu", "NVIDIA L40S", "NVIDIA GeForce RTX 4090"])
def test_other_chips_are_not_mistaken_for_known_ones(kind: str) -> None:
    assert datasheet(kind) is None


# The script


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    """The script, on the CPU, where pyspark cannot be imported."""
    code = f"import runpy, sys; sys.modules['pyspark'] = None; runpy.run_path({str(SCRIPT)!r}, None, '__main__')"
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(SCRIPT.parent)}
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)


def test_it_runs_on_a_cpu_without_spark(tmp_path: Path) -> None:
    figures, traces = tmp_path / "figures.json", tmp_path / "traces"
    done = run("--quick", "--batch", 2, "--dtypes", "bfloat16", "--json", figures, "--profile", traces)
    assert done.returncode == 0, done.stderr
    written = json.loads(figures.read_text())["figures"]
    own = {name.removeprefix("cifar10_bfloat16_"): value for name, value in written.items()}
    assert min(written.values()) > 0
    assert own["step_over_autodiff"] == pytest.approx(own["step_ms"] / own["autodiff_ms"])
    assert own["step_of_peak"] == pytest.approx(own["step_tflops"] / own["matmul_bfloat16_tflops"])
    assert own["step_of_bandwidth"] == pytest.approx(own["step_gbs"] / own["copy_gbs"])
    assert [*traces.rglob("*.xplane.pb")]
    assert "sparkdl" in done.stdout and "JAX autodiff" in done.stdout


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        (["--networks", "vgg"], "--networks must be of cifar10, resnet18, resnet50, received 'vgg'; choose"),
        (["--dtypes", "int8"], "--dtypes must be of float32, bfloat16, received 'int8'; choose"),
        (["--devices", "4"], "--devices must be from 1 to the 3 there are, received 4; change it."),
        (["--devices", "2", "--batch", "3"], "--batch must be a multiple of --devices=2, received 3; change it."),
    ],
)
def test_options_that_do_not_fit_are_refused(
    arguments: list[str], sentence: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["gpu.py", *arguments])
    with pytest.raises(SystemExit):
        gpu.options()
    assert sentence in " ".join(capsys.readouterr().err.split())
