"""What layers put out, and their slopes, against NumPy in float64 and, where it has the layer, PyTorch."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from sparkdl import Network, layers
from sparkdl.layers import (
    Add,
    Average,
    CrossCategories,
    CrossLayer,
    Distance,
    Dot,
    DotInteractions,
    GaussianSample,
    GroupNorm,
    HashedEmbedding,
    Highway,
    L2Normalize,
    Layer,
    Maximum,
    Maxout,
    Minimum,
    Multiply,
    Normalization,
    Permute,
    PRelu,
    Prototypes,
    Relu6,
    RepeatVector,
    Rescale,
    RMSNorm,
    Scale,
    Shift,
    SqueezeExcite,
    Stack,
    Subset,
    Subtract,
    Tanh,
    Unstack,
)

RANDOM = np.random.default_rng(21)
A, B, C = RANDOM.normal(size=(3, 4, 5))
IMAGE = RANDOM.normal(size=(2, 3, 4, 6))
SCALE, BIAS = RANDOM.normal(size=(2, 6))
CROSS = {"kernel": RANDOM.normal(size=(5, 5)), "bias": RANDOM.normal(size=5)}
THIN = {"down": RANDOM.normal(size=(5, 2)), "kernel": RANDOM.normal(size=(2, 5))}
GATES = {name: RANDOM.normal(size=(5, 5) if "kernel" in name else 5) for name in ("kernel", "bias", "gate_kernel")}
GATES["gate_bias"] = RANDOM.normal(size=5)
SQUEEZE = {
    "squeeze": RANDOM.normal(size=(6, 2)),
    "squeeze_bias": RANDOM.normal(size=2),
    "excite": RANDOM.normal(size=(2, 6)),
    "excite_bias": RANDOM.normal(size=6),
}
CENTERS = RANDOM.normal(size=(3, 5))
PIECES = {"kernel": RANDOM.normal(size=(5, 6)), "bias": RANDOM.normal(size=6)}


def cosine(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a * b).sum(1, keepdims=True) / np.linalg.norm(a, axis=1)[:, None] / np.linalg.norm(b, axis=1)[:, None]


def pairs(*vectors: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    return np.stack([(one * other).sum(1) for one, other in vectors], axis=1)


def grouped(x: np.ndarray, groups: int, epsilon: float) -> np.ndarray:
    parts = []
    for part in np.split(x, groups, axis=-1):
        axes = tuple(range(1, x.ndim))
        parts.append((part - part.mean(axes, keepdims=True)) / np.sqrt(part.var(axes, keepdims=True) + epsilon))
    return np.concatenate(parts, axis=-1)


def highway(x: np.ndarray) -> np.ndarray:
    gate = special.expit(x @ GATES["gate_kernel"] + GATES["gate_bias"])
    return gate * np.tanh(x @ GATES["kernel"] + GATES["bias"]) + (1 - gate) * x


def squeezed(x: np.ndarray) -> np.ndarray:
    hidden = np.maximum(x.mean((1, 2)) @ SQUEEZE["squeeze"] + SQUEEZE["squeeze_bias"], 0)
    return x * special.expit(hidden @ SQUEEZE["excite"] + SQUEEZE["excite_bias"])[:, None, None]


# A layer, its weights, what it reads, and what it is to put out.
TABLE: list[tuple[Layer, dict[str, Any], Any, np.ndarray]] = [
    (Add(), {}, (A, B, C), A + B + C),
    (Subtract(), {}, (A, B), A - B),
    (Multiply(), {}, (A, B, C), A * B * C),
    (Multiply(), {}, (IMAGE, IMAGE[:, :1, :1]), IMAGE * IMAGE[:, :1, :1]),
    (Average(), {}, (A, B, C), (A + B + C) / 3),
    (Maximum(), {}, (A, B, C), np.max([A, B, C], axis=0)),
    (Minimum(), {}, (A, B, C), np.min([A, B, C], axis=0)),
    (Stack(), {}, (A, B, C), np.stack([A, B, C], axis=1)),
    (Unstack(1), {}, np.stack([A, B, C], axis=1), B),
    (Subset(1, 4), {}, IMAGE, IMAGE[..., 1:4]),
    (GaussianSample(), {}, np.concatenate([A, B], axis=1), A),
    (Dot(), {}, (A, B), np.einsum("bi,bi->b", A, B)[:, None]),
    (Dot(normalize=True), {}, (A, B), cosine(A, B)),
    (Distance(), {}, (A, B), np.linalg.norm(A - B, axis=1)[:, None]),
    (Distance(squared=True), {}, (A, B), np.linalg.norm(A - B, axis=1)[:, None] ** 2),
    (Prototypes(3), {"centers": CENTERS}, A, -(np.linalg.norm(A[:, None] - CENTERS, axis=2) ** 2)),
    (CrossLayer(), CROSS, (A, B), A * (B @ CROSS["kernel"] + CROSS["bias"]) + B),
    (CrossLayer(rank=2, bias=False), THIN, (A, B), A * (B @ THIN["down"] @ THIN["kernel"]) + B),
    (DotInteractions(), {}, (A, B, C), pairs((B, A), (C, A), (C, B))),
    (DotInteractions(itself=True), {}, (A, B), pairs((A, A), (B, A), (B, B))),
    (L2Normalize(), {}, IMAGE, IMAGE / np.linalg.norm(IMAGE, axis=-1, keepdims=True)),
    (Scale(-2.5), {}, IMAGE, IMAGE * -2.5),
    (Scale(9.0, per_channel=True), {"scale": SCALE}, IMAGE, IMAGE * SCALE),
    (Shift(0.5), {}, IMAGE, IMAGE + 0.5),
    (Shift(9.0, per_channel=True), {"bias": BIAS}, IMAGE, IMAGE + BIAS),
    (Permute((2, 0, 1)), {}, IMAGE, IMAGE.transpose(0, 3, 1, 2)),
    (RepeatVector(3), {}, A, np.stack([A, A, A], axis=1)),
    (Relu6(), {}, 5 * A, np.clip(5 * A, 0, 6)),
    (PRelu(), {"slope": SCALE}, IMAGE, np.where(IMAGE > 0, IMAGE, SCALE * IMAGE)),
    (Highway(Tanh()), GATES, A, highway(A)),
    (SqueezeExcite(2), SQUEEZE, IMAGE, squeezed(IMAGE)),
    (Maxout(2, 3), PIECES, A, np.max(np.split(A @ PIECES["kernel"] + PIECES["bias"], 3, axis=1), axis=0)),
    (GroupNorm(3, epsilon=0.1), {"scale": SCALE, "bias": BIAS}, IMAGE, grouped(IMAGE, 3, 0.1) * SCALE + BIAS),
    (GroupNorm(2, scale=False, bias=False), {}, IMAGE, grouped(IMAGE, 2, 1e-5)),
    (
        RMSNorm(epsilon=0.1, bias=True),
        {"scale": SCALE, "bias": BIAS},
        IMAGE,
        IMAGE / np.sqrt((IMAGE**2).mean(-1, keepdims=True) + 0.1) * SCALE + BIAS,
    ),
    (
        Normalization(BIAS.tolist(), (SCALE**2).tolist()),
        {"mean": BIAS, "variance": SCALE**2},
        IMAGE,
        (IMAGE - BIAS) / np.abs(SCALE),
    ),
]


@pytest.mark.parametrize(("layer", "weights", "x", "expected"), TABLE, ids=[repr(row[0]) for row in TABLE])
def test_a_layer_gives_what_its_formula_says(
    layer: Layer, weights: dict[str, Any], x: Any, expected: np.ndarray, float64: None
) -> None:
    own, rows = jax.tree.map(jnp.asarray, (weights, x))
    y = layer.forward(own, rows)
    np.testing.assert_allclose(y, expected, rtol=1e-12, atol=1e-13)
    shape = tuple(part.shape[1:] for part in x) if isinstance(x, tuple) else x.shape[1:]
    fresh = layer.init(jax.random.key(0), shape)
    assert {name: array.shape for name, array in fresh.items()} == {name: w.shape for name, w in weights.items()}


Oracle = Callable[[Any, Any, dict[str, Any]], Any]  # torch, x and weights of its own to what the layer puts out
ORACLES: list[tuple[Layer, dict[str, Any], Oracle]] = [
    (PRelu(), {"slope": SCALE}, lambda torch, x, w: torch.nn.functional.prelu(x, w["slope"])),
    (Relu6(), {}, lambda torch, x, w: torch.nn.functional.relu6(x)),
    (
        GroupNorm(3),
        {"scale": SCALE, "bias": BIAS},
        lambda torch, x, w: torch.nn.functional.group_norm(x, 3, w["scale"], w["bias"]),
    ),
    (
        RMSNorm(),
        {"scale": SCALE},
        lambda torch, x, w: torch.nn.functional.rms_norm(x.movedim(1, -1), (6,), w["scale"], 1e-5).movedim(-1, 1),
    ),
    (L2Normalize(), {}, lambda torch, x, w: torch.nn.functional.normalize(x, dim=1)),
]


@pytest.mark.parametrize(("layer", "weights", "oracle"), ORACLES, ids=[repr(row[0]) for row in ORACLES])
def test_it_and_its_slopes_are_those_of_pytorch(
    layer: Layer, weights: dict[str, Any], oracle: Oracle, float64: None
) -> None:
    torch = pytest.importorskip("torch")
    x = 4 * IMAGE
    dy = RANDOM.normal(size=x.shape)
    first = torch.tensor(np.moveaxis(x, -1, 1), requires_grad=True)
    own = {name: torch.tensor(array, requires_grad=True) for name, array in weights.items()}
    expected = oracle(torch, first, own)
    expected.backward(torch.tensor(np.moveaxis(dy, -1, 1)))
    given, rows = jax.tree.map(jnp.asarray, (weights, x))
    y = layer.forward(given, rows)
    close: dict[str, Any] = {"rtol": 1e-10, "atol": 1e-12}
    np.testing.assert_allclose(y, np.moveaxis(expected.detach().numpy(), 1, -1), **close)
    np.testing.assert_allclose(
        layer.delta(given, rows, y, jnp.asarray(dy)), np.moveaxis(first.grad.numpy(), 1, -1), **close
    )
    gradient = layer.gradient(given, rows, y, jnp.asarray(dy))
    for name, array in own.items():
        np.testing.assert_allclose(gradient[name], array.grad.numpy(), err_msg=name, **close)


def test_a_factor_and_an_offset_are_a_rescale() -> None:
    x = jnp.asarray(A, "float32")
    network = Network([Scale(2.0), Shift(1.0)], input_shape=(5,))
    np.testing.assert_array_equal(network.forward({}, x), Rescale(2.0, 1.0).forward({}, x))
    for wrong in (float("nan"), "2"):
        with pytest.raises(ValueError, match=f"number of Scale must be a finite number, received {wrong!r}"):
            Scale(wrong)  # type: ignore[arg-type]


def test_a_factor_of_each_channel_starts_as_given_and_is_learned() -> None:
    layer = Scale(1e-4, per_channel=True)
    weights = layer.init(jax.random.key(0), (3, 4))
    np.testing.assert_array_equal(weights["scale"], np.full(4, 1e-4, "float32"))
    assert layer.learned(weights) == weights and Scale(1e-4).init(jax.random.key(0), (3, 4)) == {}
    assert not Scale(1e-4, per_channel=True, trainable=False).learned(weights)


def test_distances_far_from_the_origin_keep_their_digits() -> None:
    apart = np.arange(1.0, 6) / 128  # which with 1024 is a number of float32
    given = {"centers": jnp.full((1, 5), 1024.0)}, jnp.asarray(1024 + apart[None], "float32")
    np.testing.assert_allclose(Prototypes(1).forward(*given)[0, 0], -(apart**2).sum(), rtol=1e-6)


def test_every_combination_of_categories_is_one_of_its_own() -> None:
    ids = np.array(np.meshgrid(range(40), range(50)), "int32").reshape(2, -1)
    crossed = np.asarray(CrossCategories().forward({}, tuple(map(jnp.asarray, ids))))
    assert crossed.dtype == "int32" and len(np.unique(crossed)) == 2000
    swapped = np.asarray(CrossCategories().forward({}, tuple(map(jnp.asarray, ids[::-1]))))
    assert (crossed != swapped)[ids[0] != ids[1]].all()
    table = np.arange(64.0, dtype="float32")[:, None]
    rows = HashedEmbedding(64, 1).forward({"table": jnp.asarray(table)}, jnp.asarray(crossed))
    counts = np.bincount(np.asarray(rows)[:, 0].astype(int), minlength=64)
    assert counts.min() > 10 and counts.max() < 60  # 31 on average


def test_every_layer_is_compared_with_something_that_is_not_itself() -> None:
    """By one of the files beside this one; the tables prove derivatives, not values."""
    tables = {"layer_table.py", "layer_table_more.py", "layer_table_breadth.py", "test_layers.py"}
    text = "".join(path.read_text() for path in Path(__file__).parent.glob("*.py") if path.name not in tables)
    abstract = {layers.Layer, layers.KernelLayer, layers.Composite}
    public = {kind for kind in vars(layers).values() if inspect.isclass(kind) and issubclass(kind, Layer)} - abstract
    assert len(public) > 70
    assert [kind.__name__ for kind in public if f"{kind.__name__}(" not in text] == []


def test_pairs_come_in_the_order_that_is_promised() -> None:
    vectors = [jnp.full((1, 1), float(10**at)) for at in range(4)]
    expected = [10.0 ** (one + other) for one in range(4) for other in range(one)]
    np.testing.assert_allclose(DotInteractions().forward({}, tuple(vectors))[0], expected)
    assert len(expected) == len(list(combinations(range(4), 2)))
