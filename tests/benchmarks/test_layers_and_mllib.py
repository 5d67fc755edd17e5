"""The kernels that benchmarks/layers.py compares compute the same, and benchmarks/mllib.py searches as it says."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import layers
import mllib
from contestants import layers_plain

from sparkdl import datasets
from sparkdl.layers import BatchNorm, Conv, Dense, GlobalAvgPool, Layer, LocalResponseNorm, MaxPool, Relu

SMALL: list[tuple[Layer, tuple[int, ...]]] = [
    (Conv(4, (5, 5), padding="same"), (6, 6, 3)),
    (layers.resnet_conv(4, 7, 2), (8, 8, 3)),
    (layers.resnet_conv(8, 1, 2), (6, 6, 8)),  # of 2 channels PyTorch 2.13 has wrong gradients on some CPUs
    (Dense(4), (5,)),
    (Relu(), (3, 3, 2)),
    (MaxPool(2), (6, 6, 2)),
    (MaxPool(3, 2, padding="same"), (6, 6, 2)),
    (MaxPool(3, 2, ((1, 1), (1, 1))), (6, 6, 2)),
    (LocalResponseNorm(radius=2, bias=1.5, alpha=0.3, beta=0.75), (2, 2, 7)),
    (BatchNorm(), (4, 4, 3)),
    (GlobalAvgPool(), (4, 4, 3)),
]


def inputs(layer: Layer, shape: tuple[int, ...]) -> tuple[dict[str, Any], np.ndarray, np.ndarray]:
    """Weights, x and dy of three rows."""
    draw = np.random.default_rng(1)
    x, dy = (draw.normal(size=(3, *size)).astype(np.float32) for size in (shape, layer.output_shape(shape)))
    weights = layer.init(jax.random.key(1), shape)
    return {name: np.array(value) + np.float32(0.1) for name, value in weights.items()}, x, dy


def results(calls: dict[str, Callable[[], Any]]) -> dict[str, Any]:
    """What the kernels return; of forward only y, which comes before what it keeps."""
    found = {kernel: call() for kernel, call in calls.items()}
    return found | {"forward": found["forward"][0]}


@pytest.mark.parametrize(("layer", "shape"), SMALL, ids=[repr(layer) for layer, _ in SMALL])
def test_the_plain_kernels_compute_what_ours_do(layer: Layer, shape: tuple[int, ...]) -> None:
    weights, x, dy = jax.tree.map(jnp.asarray, inputs(layer, shape))
    ours, plain = (results(make(layer, weights, x, dy)) for make in (layers.our_kernels, layers_plain.kernels))
    assert jax.tree.structure(ours) == jax.tree.structure(plain)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(plain), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("layer", "shape"), SMALL, ids=[repr(layer) for layer, _ in SMALL])
def test_the_kernels_of_pytorch_compute_what_ours_do(layer: Layer, shape: tuple[int, ...]) -> None:
    pytest.importorskip("torch")
    from contestants import layers_torch

    weights, x, dy = inputs(layer, shape)
    ours = results(layers.our_kernels(layer, *jax.tree.map(jnp.asarray, (weights, x, dy))))
    theirs = {kernel: call() for kernel, call in layers_torch.kernels(layer, weights, x, dy).items()}
    for kernel in ("forward", "delta"):
        np.testing.assert_allclose(layers_torch.channels_last(theirs[kernel]), ours[kernel], rtol=1e-4, atol=1e-5)
    assert theirs.keys() == ours.keys()
    for name, gradient in zip(layer.learned(weights), theirs.get("gradient", ()), strict=True):
        order = {4: (2, 3, 1, 0), 2: (1, 0), 1: (0,)}[gradient.ndim]
        np.testing.assert_allclose(gradient.permute(*order), ours["gradient"][name], rtol=1e-4, atol=1e-5)


def test_every_layer_of_the_benchmark_fits_its_rows_and_moves_bytes_or_multiplies() -> None:
    """Bytes by hand: float32 of x and y, and for max pooling one byte an output."""
    assert len({case.name for case in layers.CASES}) == len(layers.CASES)
    by_name = {case.name: case for case in layers.CASES}
    pool, norm = by_name["cifar10_max_pool"], by_name["cifar10_lrn"]
    x, y = 128 * 24 * 24 * 64, 128 * 12 * 12 * 64
    assert [pool.moved(kernel) for kernel in ("forward", "delta")] == [4 * x + 5 * y, 4 * x + 5 * y]
    assert [norm.moved(kernel) for kernel in ("forward", "delta")] == [8 * y, 12 * y]
    assert by_name["resnet18_global_avg_pool"].moved("delta") == 4 * 8 * 512 * (49 + 1)
    assert by_name["cifar10_dense_1"].operations == 2 * 128 * 2304 * 384
    shapes = [by_name[name].layer.output_shape(by_name[name].shape) for name in ("resnet18_conv_7x7", "lenet_conv_1")]
    assert shapes == [(112, 112, 64), (28, 28, 32)]


def test_layers_writes_the_figures_it_promises(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    command = [sys.executable, layers.__file__, "--quick", "--only", "cifar10_lrn", "--json", figures]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    written = json.loads(figures.read_text())
    found = written["figures"]
    assert min(found.values()) > 0
    rates = {"matmul_gflops", "jax_matmul_gflops", "copy_gbs"}
    own = {f"cifar10_lrn_{kernel}_{kind}" for kernel in ("forward", "delta") for kind in ("ms", "of_rate", "over_vjp")}
    aims = {"lrn_delta_over_vjp", "lrn_delta_of_copy_rate", "lrn_over_vjp"}
    beside = {name for name in found if "torch" in name}
    assert found.keys() - beside == rates | own | aims
    assert found["lrn_delta_of_copy_rate"] == found["cifar10_lrn_delta_of_rate"]
    gbs = 12 * 128 * 12 * 12 * 64 / found["cifar10_lrn_delta_ms"] / 1e6
    assert found["lrn_delta_of_copy_rate"] == pytest.approx(gbs / found["copy_gbs"])
    assert "cifar10_lrn delta" in done.stdout


def test_forward_and_delta_together_are_compared_by_their_sums() -> None:
    figures = {
        "cifar10_lrn_forward_ms": 1.0,
        "cifar10_lrn_forward_over_vjp": 0.1,
        "cifar10_lrn_delta_ms": 3.0,
        "cifar10_lrn_delta_over_vjp": 1.5,
        "cifar10_lrn_delta_of_rate": 0.2,
    }
    assert layers.headlines(figures)["lrn_over_vjp"] == pytest.approx((1 + 3) / (10 + 2))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--only", "lstm"], "--only must be part of a case's name, received 'lstm'; the cases are cifar10_conv_1,"),
        (["--threads", "0"], "--threads must be from 1 to the"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    arguments: list[str], sentence: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["layers.py", *arguments])
    with pytest.raises(SystemExit):
        layers.chosen(layers.__doc__, layers.CASES)
    assert sentence in capsys.readouterr().err


# MLlib


@pytest.mark.parametrize("start", [1, 16])
@pytest.mark.parametrize("fewest", [1, 2, 15, 16, 17, 63, 64, 100])
def test_the_search_finds_the_fewest_iterations_and_tries_none_twice(fewest: int, start: int) -> None:
    asked: list[int] = []

    def reaches(iterations: int) -> bool:
        asked.append(iterations)
        return 1 - 1 / (1 + iterations) >= 1 - 1 / (1 + fewest)  # an accuracy that only rises

    assert mllib.smallest_sufficient(reaches, start) == fewest
    assert len(set(asked)) == len(asked) <= 15


def test_a_rough_search_is_shorter_and_never_too_low() -> None:
    asked: list[int] = []

    def reaches(iterations: int) -> bool:
        asked.append(iterations)
        return iterations >= 90

    assert mllib.smallest_sufficient(reaches, 16, precision=0.2) == 96
    assert asked == [16, 32, 64, 128, 96, 80]


def test_a_search_without_success_ends_with_a_sentence() -> None:
    with pytest.raises(RuntimeError, match="1024 iterations do not reach the accuracy; train on more rows."):
        mllib.smallest_sufficient(lambda iterations: False, 1)


def test_equal_time_is_read_off_a_line_through_the_fits() -> None:
    """Two seconds around the iterations, a quarter for each."""
    fits = [mllib.Fit(count, 2 + count / 4, 0.8) for count in (4, 16, 40)]
    assert mllib.iterations_in(7.1, fits) == 20
    assert mllib.iterations_in(1.0, fits) == 1
    noise = [mllib.Fit(1, 3.0, 0.8), mllib.Fit(8, 2.0, 0.8)]
    assert mllib.iterations_in(10.0, noise) == 40


def test_both_sides_see_the_same_rows() -> None:
    table = mllib.images(None, 200)
    assert len(table) == 200 + 1000
    assert table["split"].to_pylist() == ["train"] * 200 + ["test"] * 1000
    lists = mllib.vectors(table)
    whole = datasets.sample()
    first = next(row for row in whole.to_pylist() if row["split"] == "train")
    assert datasets.FASHION_CLASSES[int(lists["label"][0].as_py())] == first["label"]
    pixels = np.frombuffer(first["image"], np.uint8) / np.float32(255)
    assert lists["pixels"][0].as_py() == pixels.tolist()
    assert [column.num_chunks for column in table.columns] == [1, 1, 1]
