"""Every loss against formulas in NumPy's float64, its delta against derivatives, and the rule that rows add up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, special, stats
from sklearn import metrics
from sklearn.utils.class_weight import compute_class_weight

from sparkdl import losses
from sparkdl.losses import Loss

pytestmark = pytest.mark.usefixtures("unoptimized")

RANDOM = np.random.default_rng(5)
OUTPUTS = RANDOM.normal(scale=2, size=(4, 3))
OTHERS = RANDOM.normal(size=(4, 3))
CLASSES = np.array([2, 0, 1, 2])
ONE_HOT = np.eye(3)[CLASSES]
PROBABILITIES = special.softmax(OTHERS, axis=1) * [[1], [1], [1], [0]] + [[0], [0], [0], [1]] * np.array([1.0, 0, 0])
COUNTS = np.array([[0.0, 1, 3], [2, 0, 0], [7, 1, 1], [0, 0, 5]])
BITS = np.array([[0.0, 1, 1], [1, 0, 0], [1, 1, 1], [0, 0, 0]])
WEIGHTS = np.array([1.0, 0.5, 2.0, 3.0])
SOFTMAX = special.softmax(OUTPUTS, axis=1)
DISTANCES = np.abs(OTHERS)
STRENGTHS = special.expit(OUTPUTS)
SIX = np.concatenate([OUTPUTS, OTHERS], axis=1)
IGNORED = np.array([[False, True], [True, True], [False, False], [True, False]])  # by row and position
EIGHT = np.concatenate([OUTPUTS, OTHERS, OUTPUTS[:, ::-1]], axis=1)[:, :8]


def cross_entropy(o: np.ndarray, t: np.ndarray) -> np.ndarray:
    return -(t * (o - special.logsumexp(o, axis=1, keepdims=True))).sum(1)


def binary(o: np.ndarray, t: np.ndarray) -> np.ndarray:
    return -(t * np.log(special.expit(o)) + (1 - t) * np.log(special.expit(-o))).sum(1)


def divergence(o: np.ndarray, t: np.ndarray) -> np.ndarray:
    return special.rel_entr(t, special.softmax(o, axis=1)).sum(1)


def hinge(o: np.ndarray, t: np.ndarray) -> np.ndarray:
    return np.where(t, 1 - o, 1 + o).clip(0).sum(1)


def squared_hinge(o: np.ndarray, t: np.ndarray) -> np.ndarray:
    return (np.where(t, 1 - o, 1 + o).clip(0) ** 2).sum(1)


def margins(o: np.ndarray, t: np.ndarray, upper: float = 0.9, lower: float = 0.1, absent: float = 0.5) -> np.ndarray:
    return np.where(t, (upper - o).clip(0) ** 2, absent * (o - lower).clip(0) ** 2).sum(1)


def mean_of_known(each: list[np.ndarray]) -> np.ndarray:
    """Of losses by position and row the mean over those that are not ignored; 0 where all are."""
    known = ~IGNORED
    return (np.stack(each, axis=1) * known).sum(1) / known.sum(1).clip(1)


def dice(p: Any, t: Any, known: np.ndarray, smoothing: float) -> np.ndarray:
    """Of probabilities and classes by position, row and class."""
    found = []
    for row in range(4):
        own = [at for at in range(2) if known[row, at]]
        both = sum((p[at][row] * t[at][row] for at in own), np.zeros(3))
        either = sum((p[at][row] + t[at][row] for at in own), np.zeros(3))
        found.append(1 - ((2 * both + smoothing) / (either + smoothing)).mean())
    return np.array(found)


def pinball(outputs: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """By hand, for the quantiles 0.25, 0.5 and 0.75."""
    apart = labels - outputs
    return (np.abs(apart) * np.where(apart > 0, [0.25, 0.5, 0.75], [0.75, 0.5, 0.25])).sum(1)


def cosine(o: np.ndarray, t: np.ndarray) -> np.ndarray:
    return 1 - (o * t).sum(1) / np.linalg.norm(o, axis=1) / np.linalg.norm(t, axis=1)


def scales(raw: np.ndarray, least: float = 1e-3) -> np.ndarray:
    return np.logaddexp(0, raw) + least


def normal(means: np.ndarray, raw: np.ndarray, labels: np.ndarray, least: float = 1e-3) -> np.ndarray:
    return -stats.norm.logpdf(labels, means, scales(raw, least)).sum(1)


def code(means: np.ndarray, raw: np.ndarray) -> np.ndarray:
    """The divergence from the standard normal distribution, as the integral that it is."""
    places = np.linspace(-60, 60, 200_001)
    own = stats.norm.pdf(places, means[..., None], scales(raw)[..., None])
    apart = stats.norm.logpdf(places, means[..., None], scales(raw)[..., None]) - stats.norm.logpdf(places)
    return integrate.trapezoid(own * apart, places).sum(1)


def mixture(logits: np.ndarray, means: np.ndarray, raw: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Of means (batch, components, labels), by densities."""
    densities = stats.norm.pdf(labels[:, None], means, scales(raw)[..., None]).prod(2)
    return -np.log((special.softmax(logits, axis=1) * densities).sum(1))


def in_pairs(o: np.ndarray, t: np.ndarray) -> np.ndarray:
    """The mean of exp(b - a) over pairs, by loops."""
    pairs = [[np.exp(b - a) for a in row[has == 1] for b in row[has == 0]] for row, has in zip(o, t, strict=True)]
    return np.array([np.mean(each) if each else 0.0 for each in pairs])


ANCHORS = ((0.2, 0.3), (0.5, 0.25))
GRID = RANDOM.normal(size=(4, 2, 3, 2 * (5 + 3)))
TRUE_BOXES = np.array(  # two in one cell, one that a prediction of another cell overlaps, on an edge, none at all
    [
        [[2, 0.1, 0.1, 0.35, 0.45], [0, 0.12, 0.2, 0.3, 0.4], [-1, 0, 0, 0, 0]],
        [[1, 0.4, 0.3, 0.98, 0.6], [-1, 0.5, 0.5, 0.6, 0.6], [1, 0, 0, 0.3, 1]],
        [[-1, 0, 0, 0, 0]] * 3,
        [[0, 0.9, 0.9, 1, 1], [2, 0.3, 0.5, 0.7, 0.9], [2, 0.6, 0.1, 0.65, 0.3]],
    ]
)


def intersection_over_union(one: np.ndarray, other: np.ndarray) -> float:
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    both = max(width, 0) * max(height, 0)
    return both / (np.prod(one[2:] - one[:2]) + np.prod(other[2:] - other[:2]) - both)


def boxes_of(row: np.ndarray) -> np.ndarray:
    """Corners of every box, (rows, columns, anchors, 4), of outputs (rows, columns, anchors, 5 + classes)."""
    found = np.zeros((*row.shape[:3], 4))
    for y, x, a in np.ndindex(row.shape[:3]):
        center = (special.expit(row[y, x, a, :2]) + [x, y]) / [row.shape[1], row.shape[0]]
        half = np.exp(row[y, x, a, 2:4]) * ANCHORS[a] / 2
        found[y, x, a] = [*(center - half), *(center + half)]
    return found


def yolo(outputs: np.ndarray, labels: np.ndarray, box: float, empty: float, threshold: float) -> np.ndarray:
    """By loops."""
    losses = []
    for row, truth in zip(outputs.reshape(*outputs.shape[:3], 2, -1), labels, strict=True):
        total, found, taken = 0.0, boxes_of(row), set()
        truth = [each for each in truth if each[0] >= 0]
        for kind, *corners in truth:
            corner, far = np.array(corners[:2]), np.array(corners[2:])
            size, place = far - corner, (corner + far) / 2 * [row.shape[1], row.shape[0]]
            x, y = place.astype(int)
            both = [np.minimum(size, anchor).prod() for anchor in ANCHORS]
            a = int(np.argmax([b / (size.prod() + np.prod(c) - b) for b, c in zip(both, ANCHORS, strict=True)]))
            taken.add((y, x, a))
            own, wanted = row[y, x, a], [*(place - [x, y]), *np.log(size / ANCHORS[a])]
            total += box * ((np.append(special.expit(own[:2]), own[2:4]) - wanted) ** 2).sum()
            total -= np.log(special.expit(own[4])) + special.log_softmax(own[5:])[int(kind)]
        for at in np.ndindex(row.shape[:3]):
            near = [intersection_over_union(found[at], each[1:]) > threshold for each in truth]
            if at not in taken and not any(near):
                total -= empty * np.log(special.expit(-row[at][4]))
        losses.append(total)
    return np.array(losses)


# A loss, outputs, labels, and the loss of each row.
TABLE: dict[str, tuple[Loss, np.ndarray, np.ndarray, np.ndarray]] = {
    "softmax, classes": (losses.SoftmaxCrossEntropy(), OUTPUTS, CLASSES, cross_entropy(OUTPUTS, ONE_HOT)),
    "softmax, one-hot": (losses.SoftmaxCrossEntropy(), OUTPUTS, ONE_HOT, cross_entropy(OUTPUTS, ONE_HOT)),
    "softmax, probabilities": (
        losses.SoftmaxCrossEntropy(),
        OUTPUTS,
        PROBABILITIES,
        cross_entropy(OUTPUTS, PROBABILITIES),
    ),
    "softmax, unnormalised": (losses.SoftmaxCrossEntropy(), OUTPUTS, COUNTS, cross_entropy(OUTPUTS, COUNTS)),
    "softmax, smoothed": (
        losses.SoftmaxCrossEntropy(label_smoothing=0.3),
        OUTPUTS,
        CLASSES,
        0.7 * cross_entropy(OUTPUTS, ONE_HOT) + 0.3 * cross_entropy(OUTPUTS, np.full((4, 3), 1 / 3)),
    ),
    "kl": (losses.KLDivergence(), OUTPUTS, PROBABILITIES, divergence(OUTPUTS, PROBABILITIES)),
    "sigmoid, one": (losses.SigmoidCrossEntropy(), OUTPUTS[:, :1], BITS[:, 0], binary(OUTPUTS[:, :1], BITS[:, :1])),
    "sigmoid, many": (losses.SigmoidCrossEntropy(), OUTPUTS, BITS, binary(OUTPUTS, BITS)),
    "sigmoid, classes": (losses.SigmoidCrossEntropy(), OUTPUTS, CLASSES, binary(OUTPUTS, ONE_HOT)),
    "sigmoid, probabilities": (losses.SigmoidCrossEntropy(), OUTPUTS, PROBABILITIES, binary(OUTPUTS, PROBABILITIES)),
    "sigmoid, smoothed": (
        losses.SigmoidCrossEntropy(label_smoothing=0.2),
        OUTPUTS,
        BITS,
        0.8 * binary(OUTPUTS, BITS) + 0.2 * binary(OUTPUTS, np.full((4, 3), 0.5)),
    ),
    "squared error": (losses.SquaredError(), OUTPUTS, OTHERS, np.linalg.norm(OUTPUTS - OTHERS, axis=1) ** 2),
    "squared error, one": (losses.SquaredError(), OUTPUTS[:, :1], OTHERS[:, 0], (OUTPUTS - OTHERS)[:, 0] ** 2),
    "absolute error": (losses.AbsoluteError(), OUTPUTS, OTHERS, np.abs(OUTPUTS - OTHERS).sum(1)),
    "absolute percentage error": (
        losses.AbsolutePercentageError(),
        OUTPUTS[:, :1],
        np.append(OTHERS[:3, 0], 0),
        100 * np.abs(OUTPUTS[:, 0] - np.append(OTHERS[:3, 0], 0)) / np.append(np.abs(OTHERS[:3, 0]), 1e-7),
    ),
    "squared logarithmic error": (
        losses.SquaredLogarithmicError(),
        OUTPUTS,
        COUNTS,
        ((np.where(OUTPUTS > 0, np.log1p(OUTPUTS.clip(0)), OUTPUTS) - np.log1p(COUNTS)) ** 2).sum(1),
    ),
    "log cosh": (losses.LogCosh(), OUTPUTS, OTHERS, np.log(np.cosh(OUTPUTS - OTHERS)).sum(1)),
    "gaussian": (
        losses.GaussianLikelihood(),
        OUTPUTS[:, :2],
        OTHERS[:, 0],
        normal(OUTPUTS[:, :1], OUTPUTS[:, 1:2], OTHERS[:, :1]),
    ),
    "gaussian, many": (
        losses.GaussianLikelihood(least_scale=0.1),
        SIX,
        COUNTS,
        normal(OUTPUTS, OTHERS, COUNTS, 0.1),
    ),
    "evidence": (
        losses.EvidenceLowerBound(1),
        OUTPUTS,
        OTHERS[:, 0],
        (OUTPUTS - OTHERS)[:, 0] ** 2 + code(OUTPUTS[:, 1:2], OUTPUTS[:, 2:]),
    ),
    "evidence of a likelihood": (
        losses.EvidenceLowerBound(2, losses.GaussianLikelihood(), beta=0.5),
        EIGHT,
        OTHERS[:, :2],
        normal(EIGHT[:, :2], EIGHT[:, 2:4], OTHERS[:, :2]) + 0.5 * code(EIGHT[:, 4:6], EIGHT[:, 6:]),
    ),
    "evidence of bits": (
        losses.EvidenceLowerBound(1, "sigmoid_cross_entropy", beta=2),
        SIX[:, :5],
        BITS,
        binary(SIX[:, :3], BITS) + 2 * code(SIX[:, 3:4], SIX[:, 4:5]),
    ),
    "mixture": (
        losses.MixtureDensity(2),
        SIX,
        OTHERS[:, 0],
        mixture(SIX[:, :2], SIX[:, 2:4, None], SIX[:, 4:], OTHERS[:, :1]),
    ),
    "mixture, many": (
        losses.MixtureDensity(2),
        EIGHT,
        COUNTS[:, :2],
        mixture(EIGHT[:, :2], EIGHT[:, 2:6].reshape(4, 2, 2), EIGHT[:, 6:], COUNTS[:, :2]),
    ),
    "mixture of one": (
        losses.MixtureDensity(1),
        OUTPUTS,
        OTHERS[:, 0],
        normal(*np.split(OUTPUTS[:, 1:], 2, 1), OTHERS[:, :1]),
    ),
    "multi label": (losses.MultiLabel(), OUTPUTS, BITS, in_pairs(OUTPUTS, BITS)),
    "multi label, classes": (losses.MultiLabel(), OUTPUTS, CLASSES, in_pairs(OUTPUTS, ONE_HOT)),
    "labelled output": (losses.LabelledOutput(), OUTPUTS, CLASSES, -OUTPUTS[range(4), CLASSES]),
    "labelled output, probabilities": (
        losses.LabelledOutput(),
        OUTPUTS,
        PROBABILITIES,
        -np.einsum("bo,bo->b", OUTPUTS, PROBABILITIES),
    ),
    "margin loss": (losses.MarginLoss(), STRENGTHS, CLASSES, margins(STRENGTHS, ONE_HOT)),
    "margin loss, any of them": (
        losses.MarginLoss(0.8, 0.3, 2.0),
        STRENGTHS,
        BITS,
        margins(STRENGTHS, BITS, 0.8, 0.3, 2),
    ),
    "huber": (losses.Huber(0.7), OUTPUTS, OTHERS, special.huber(0.7, OUTPUTS - OTHERS).sum(1)),
    "hinge, 0 and 1": (losses.Hinge(), OUTPUTS[:, :1], BITS[:, 0], hinge(OUTPUTS[:, :1], BITS[:, :1])),
    "hinge, -1 and 1": (losses.Hinge(), OUTPUTS[:, :1], 2 * BITS[:, 0] - 1, hinge(OUTPUTS[:, :1], BITS[:, :1])),
    "hinge, classes": (losses.Hinge(), OUTPUTS, CLASSES, hinge(OUTPUTS, ONE_HOT)),
    "one class": (
        losses.OneClassHinge(0.2),
        OUTPUTS[:, :1],
        BITS[:, 0],
        (np.where(BITS[:, :1], -OUTPUTS[:, :1], OUTPUTS[:, :1]).clip(0) / 0.2).sum(1),
    ),
    "squared hinge": (losses.SquaredHinge(), OUTPUTS, CLASSES, squared_hinge(OUTPUTS, ONE_HOT)),
    "poisson": (losses.Poisson(), OUTPUTS, COUNTS, (np.exp(OUTPUTS) - COUNTS * OUTPUTS).sum(1)),
    "poisson, rates": (
        losses.Poisson(log_rate=False),
        OUTPUTS**2,
        COUNTS,
        (OUTPUTS**2 - 2 * COUNTS * np.log(np.abs(OUTPUTS))).sum(1),
    ),
    "wasserstein": (losses.Wasserstein(), OUTPUTS, 2 * BITS - 1, (OUTPUTS * np.where(BITS, 1, -1)).sum(1)),
    "cosine": (losses.CosineSimilarity(), OUTPUTS, OTHERS, cosine(OUTPUTS, OTHERS)),
    "softmax, class weights": (
        losses.SoftmaxCrossEntropy(class_weights=(0.5, 1, 3)),
        OUTPUTS,
        CLASSES,
        np.array([0.5, 1, 3])[CLASSES] * cross_entropy(OUTPUTS, ONE_HOT),
    ),
    "sigmoid, positive weight": (
        losses.SigmoidCrossEntropy(positive_weight=3),
        OUTPUTS,
        BITS,
        -(3 * BITS * np.log(special.expit(OUTPUTS)) + (1 - BITS) * np.log(special.expit(-OUTPUTS))).sum(1),
    ),
    "softmax focal": (
        losses.SoftmaxFocal(1.5, class_weights=(2, 1, 0)),
        OUTPUTS,
        CLASSES,
        (-np.array([2, 1, 0]) * ONE_HOT * (1 - SOFTMAX) ** 1.5 * np.log(SOFTMAX)).sum(1),
    ),
    "softmax focal, gamma 0": (losses.SoftmaxFocal(0), OUTPUTS, CLASSES, cross_entropy(OUTPUTS, ONE_HOT)),
    "sigmoid focal": (
        losses.SigmoidFocal(alpha=0.25),
        OUTPUTS,
        BITS,
        -(
            0.25 * BITS * special.expit(-OUTPUTS) ** 2 * np.log(special.expit(OUTPUTS))
            + 0.75 * (1 - BITS) * special.expit(OUTPUTS) ** 2 * np.log(special.expit(-OUTPUTS))
        ).sum(1),
    ),
    "sigmoid focal, classes, gamma 0": (losses.SigmoidFocal(0), OUTPUTS, CLASSES, binary(OUTPUTS, ONE_HOT)),
    "quantile": (
        losses.Quantile((0.1, 0.5, 0.9)),
        OUTPUTS,
        OTHERS[:, 0],
        np.where(
            OTHERS[:, :1] > OUTPUTS,
            np.array([0.1, 0.5, 0.9]) * (OTHERS[:, :1] - OUTPUTS),
            np.array([0.9, 0.5, 0.1]) * (OUTPUTS - OTHERS[:, :1]),
        ).sum(1),
    ),
    "contrastive": (
        losses.Contrastive(1.5),
        DISTANCES[:, :1],
        BITS[:, 0],
        np.where(BITS[:, 0] > 0, DISTANCES[:, 0] ** 2, (1.5 - DISTANCES[:, 0]).clip(0) ** 2),
    ),
    "triplet": (
        losses.Triplet(0.5),
        DISTANCES[:, :2],
        BITS[:, 1],
        (0.5 + np.where(BITS[:, 1] > 0, 1, -1) * (DISTANCES[:, 0] - DISTANCES[:, 1])).clip(0),
    ),
    "each position": (
        losses.EachPosition(),
        np.stack([OUTPUTS, OTHERS], axis=1),
        np.stack([CLASSES, CLASSES[::-1]], axis=1),
        (cross_entropy(OUTPUTS, ONE_HOT) + cross_entropy(OTHERS, ONE_HOT[::-1])) / 2,
    ),
    "each position, many": (
        losses.EachPosition("sigmoid_cross_entropy"),
        np.stack([OUTPUTS, OTHERS], axis=1),
        np.stack([BITS, 1 - BITS], axis=1),
        (binary(OUTPUTS, BITS) + binary(OTHERS, 1 - BITS)) / 2,
    ),
    "each position, quantiles": (
        losses.EachPosition(losses.Quantile((0.25, 0.5, 0.75))),
        np.stack([OUTPUTS, OTHERS], axis=1),
        np.stack([OTHERS[:, 0], OUTPUTS[:, 1]], axis=1),
        (pinball(OUTPUTS, OTHERS[:, :1]) + pinball(OTHERS, OUTPUTS[:, 1:2])) / 2,
    ),
    "each position, gaussians": (
        losses.EachPosition(losses.GaussianLikelihood()),
        np.stack([SIX, SIX[::-1]], axis=1),
        np.stack([COUNTS, BITS], axis=1),
        (normal(OUTPUTS, OTHERS, COUNTS) + normal(OUTPUTS[::-1], OTHERS[::-1], BITS)) / 2,
    ),
    "each position, some without a class": (
        losses.EachPosition(ignore_class=255),
        np.stack([OUTPUTS, OTHERS], axis=1),
        np.where(IGNORED, -1, np.stack([CLASSES, CLASSES[::-1]], axis=1)),
        mean_of_known([cross_entropy(OUTPUTS, ONE_HOT), cross_entropy(OTHERS, ONE_HOT[::-1])]),
    ),
    "each position, many, some without labels": (
        losses.EachPosition("sigmoid_cross_entropy", ignore_class=-1),
        np.stack([OUTPUTS, OTHERS], axis=1),
        np.where(IGNORED[..., None], np.nan, np.stack([BITS, 1 - BITS], axis=1)),
        mean_of_known([binary(OUTPUTS, BITS), binary(OTHERS, 1 - BITS)]),
    ),
    "dice": (
        losses.Dice(ignore_class=9),
        np.stack([OUTPUTS, OTHERS], axis=1),
        np.where(IGNORED, -1, np.stack([CLASSES, CLASSES[::-1]], axis=1)),
        dice(special.softmax([OUTPUTS, OTHERS], axis=-1), [ONE_HOT, ONE_HOT[::-1]], ~IGNORED, 1.0),
    ),
    "dice and cross-entropy, many": (
        losses.Dice("sigmoid_cross_entropy", smoothing=0.1, loss_weight=0.5),
        np.stack([OUTPUTS, OTHERS], axis=1),
        np.stack([BITS, 1 - BITS], axis=1),
        dice(special.expit([OUTPUTS, OTHERS]), [BITS, 1 - BITS], np.ones((4, 2)), 0.1)
        + (binary(OUTPUTS, BITS) + binary(OTHERS, 1 - BITS)) / 4,
    ),
    "yolo": (
        losses.Yolo(ANCHORS, max_boxes=3),
        GRID,
        TRUE_BOXES.reshape(4, -1),
        yolo(GRID, TRUE_BOXES, 5, 0.5, 0.6),
    ),
    "yolo, weighed otherwise": (
        losses.Yolo(ANCHORS, max_boxes=3, box_weight=2, empty_weight=1.5, ignore_threshold=0.2),
        GRID,
        TRUE_BOXES.reshape(4, -1),
        yolo(GRID, TRUE_BOXES, 2, 1.5, 0.2),
    ),
    "pairwise logistic": (
        losses.PairwiseLogistic(),
        OUTPUTS[:, :2],
        BITS[:, 1] / 2 + 0.25,
        binary(OUTPUTS[:, :1] - OUTPUTS[:, 1:2], BITS[:, 1:2] / 2 + 0.25),
    ),
}
CASES = pytest.mark.parametrize(("loss", "outputs", "labels", "rows"), TABLE.values(), ids=TABLE.keys())


def test_every_loss_is_in_the_table() -> None:
    public = {found for found in vars(losses).values() if isinstance(found, type) and issubclass(found, Loss)}
    leaves = {found for found in public if not public & {*found.__subclasses__()}} | {losses.EachPosition}
    assert {type(case[0]) for case in TABLE.values()} == leaves - {losses.FMeasure, losses.InBatchSoftmax}  # of batches


@CASES
@pytest.mark.usefixtures("float64")
def test_value_is_the_weighted_sum_of_the_rows(
    loss: Loss, outputs: np.ndarray, labels: np.ndarray, rows: np.ndarray
) -> None:
    value = loss.value(jnp.array(outputs), jnp.array(labels), jnp.array(WEIGHTS))
    assert value.shape == ()
    np.testing.assert_allclose(value, WEIGHTS @ rows, rtol=1e-12)


@CASES
@pytest.mark.usefixtures("float64")
def test_delta_is_the_derivative_of_value(
    loss: Loss, outputs: np.ndarray, labels: np.ndarray, rows: np.ndarray
) -> None:
    def value(values: jax.Array) -> jax.Array:
        return loss.value(values, jnp.array(labels), jnp.array(WEIGHTS))

    delta = loss.delta(jnp.array(outputs), jnp.array(labels), jnp.array(WEIGHTS))
    np.testing.assert_allclose(delta, jax.grad(value)(jnp.array(outputs)), rtol=1e-12, atol=1e-12)
    direction, step = np.random.default_rng(1).normal(size=outputs.shape), 1e-6
    difference = (
        (value(jnp.array(outputs + step * direction)) - value(jnp.array(outputs - step * direction))) / 2 / step
    )
    np.testing.assert_allclose((delta * direction).sum(), difference, rtol=1e-6, atol=1e-7)


@CASES
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_dtype_of_outputs_is_kept(
    loss: Loss, outputs: np.ndarray, labels: np.ndarray, rows: np.ndarray, dtype: str
) -> None:
    rounded, weights = jnp.array(outputs, dtype), jnp.array(WEIGHTS, "float32")
    kernels = loss.value, loss.delta, loss.metric_sum
    dtypes = {jax.eval_shape(kernel, rounded, jnp.array(labels), weights).dtype for kernel in kernels}
    assert dtypes | {jax.eval_shape(loss.predict, rounded).dtype} == {jnp.dtype(dtype)}


@CASES
@pytest.mark.usefixtures("float64")
def test_a_weight_repeats_its_row_and_weight_zero_drops_it(
    loss: Loss, outputs: np.ndarray, labels: np.ndarray, rows: np.ndarray
) -> None:
    times = np.array([2, 0, 1, 3])
    along = times.reshape(-1, *(1,) * (outputs.ndim - 1))
    wild = np.where(along > 0, outputs, 1e200)  # overflows in every loss that can
    repeated = jnp.repeat(outputs, times, axis=0), jnp.repeat(jnp.array(labels), times, axis=0), jnp.ones(6)
    weighted = jnp.array(wild), jnp.array(labels), jnp.array(times, float)
    np.testing.assert_allclose(loss.value(*weighted), loss.value(*repeated), rtol=1e-12)
    np.testing.assert_allclose(loss.metric_sum(*weighted), loss.metric_sum(*repeated), rtol=1e-12)
    delta = np.asarray(loss.delta(*weighted))
    assert not delta[1].any()
    once = loss.delta(jnp.array(outputs), jnp.array(labels), jnp.ones(4))
    np.testing.assert_allclose(delta[times > 0], (np.asarray(once) * along)[times > 0], rtol=1e-12)


EXTREMES = jnp.array([[1e4, -1e4, 0], [-1e4, 1e4, 0], [0, 0, 0], [1e4, 1e4, 1e4]], "float32")


@pytest.mark.parametrize(
    ("loss", "labels", "value"),
    [
        (losses.SoftmaxCrossEntropy(), CLASSES, 1e4 + 2e4 + 2 * np.log(3)),
        (losses.KLDivergence(), ONE_HOT, 1e4 + 2e4 + 2 * np.log(3)),
        (losses.SigmoidCrossEntropy(), BITS, 2e4 + 1e4 + np.log(2) + 1e4 + np.log(2) + 3 * np.log(2) + 3e4),
        (losses.Hinge(), BITS, 20002 + 20003 + 3 + 30003),
        (losses.Huber(), BITS, 1e4 - 0.5 + 1e4 + 0.5 + 0.5 + 2 * (1e4 + 0.5 - 1) + 1.5 + 3 * (1e4 - 0.5)),
        (losses.CosineSimilarity(), BITS, 1 + 1 / 2 + 1 + 1 / np.sqrt(2) + 1 + 1),
        (losses.AbsolutePercentageError(), BITS + 1, 1e6 * (1 + 0.5 + 0.5 + 1 + 3) + 100 * 5),
        (
            losses.SquaredLogarithmicError(),
            BITS,
            ((np.where(EXTREMES > 0, np.log1p(np.abs(EXTREMES)), EXTREMES) - np.log1p(BITS)) ** 2).sum(),
        ),
        (losses.LogCosh(), BITS, 7e4 + 2 - 7 * np.log(2) + 4 * np.log(np.cosh(1))),
        (losses.MixtureDensity(1), BITS[:, 0], normal(EXTREMES[:, 1:2], EXTREMES[:, 2:], BITS[:, :1]).sum()),
    ],
    ids=lambda case: type(case).__name__ if isinstance(case, Loss) else "",
)
def test_large_outputs_and_zero_rows_are_finite(loss: Loss, labels: np.ndarray, value: float) -> None:
    arguments = EXTREMES, jnp.array(labels, "float32"), jnp.ones(4)
    np.testing.assert_allclose(loss.value(*arguments), value, rtol=1e-4)
    assert np.isfinite(loss.delta(*arguments)).all()


def test_likelihoods_are_finite_however_far_and_sure_the_outputs_are() -> None:
    """Means, or labels, off by 1e4, and scales at their least, next to none and large."""
    means, raw = np.array([[1e4], [-1e4], [0], [3]], "float32"), np.array([[-1e4], [-1e4], [-90], [1e4]], "float32")
    labels = np.array([-1e4, -1e4, 0, 7], "float32")
    rows = np.concatenate([means, raw], axis=1)
    alike = np.concatenate([means * 0 + 1e4, means * 0, means, means, raw, raw], axis=1)  # of one that has no share
    for loss, outputs in ((losses.GaussianLikelihood(), rows), (losses.MixtureDensity(2), alike)):
        arguments = jnp.array(outputs), jnp.array(labels), jnp.ones(4)
        found = loss.losses(arguments[0], arguments[1][:, None])
        np.testing.assert_allclose(found, normal(means, raw, labels[:, None]), rtol=1e-4)
        assert np.isfinite(loss.delta(*arguments)).all()


def test_log_cosh_keeps_the_digits_of_small_distances() -> None:
    distances = np.array([[1e-3], [0.01], [0.5], [1.0], [5.0]])
    found = losses.LogCosh().losses(jnp.array(distances, "float32"), jnp.zeros((5, 1), "float32"))
    np.testing.assert_allclose(found, np.log1p(2 * np.sinh(distances[:, 0] / 2) ** 2), rtol=1e-6)


def test_outputs_below_zero_are_led_back_to_labels_of_which_logarithms_are_taken() -> None:
    arguments = jnp.array([[-5.0], [-0.5], [0.0]]), jnp.zeros(3), jnp.ones(3)
    np.testing.assert_allclose(losses.SquaredLogarithmicError().delta(*arguments)[:, 0], [-10, -1, 0])


@pytest.mark.usefixtures("float64")
def test_percentages_and_logarithms_are_scikit_learns_of_outputs_above_zero() -> None:
    outputs, labels, count = np.exp(OUTPUTS), np.exp(OTHERS), OUTPUTS.size
    arguments = jnp.array(outputs), jnp.array(labels), jnp.ones(4)
    percentage = losses.AbsolutePercentageError().value(*arguments) / count
    np.testing.assert_allclose(percentage, 100 * metrics.mean_absolute_percentage_error(labels, outputs), rtol=1e-12)
    logarithmic = losses.SquaredLogarithmicError().value(*arguments) / count
    np.testing.assert_allclose(logarithmic, metrics.mean_squared_log_error(labels, outputs), rtol=1e-12)


def test_pairs_far_in_order_cost_nothing_and_neither_do_rows_without_any() -> None:
    bits = jnp.array([[1, 0, 0], [0, 1, 0], [0, 0, 0], [1, 1, 1]])
    loss = losses.MultiLabel()
    arguments = EXTREMES, bits.astype("float32"), jnp.ones(4)
    assert loss.value(*arguments) == 0 and not np.asarray(loss.delta(*arguments)).any()


def test_the_accuracy_of_pairs_is_what_scikit_learns_ranking_loss_leaves() -> None:
    for labels, bits in ((BITS, BITS), (CLASSES, ONE_HOT)):
        found = losses.MultiLabel().metric_sum(jnp.array(OUTPUTS), jnp.array(labels), jnp.array(WEIGHTS))
        missed = metrics.label_ranking_loss(bits, OUTPUTS, sample_weight=WEIGHTS)
        np.testing.assert_allclose(found / WEIGHTS.sum(), 1 - missed, rtol=1e-6)


def test_of_many_labels_pairs_are_counted_without_an_array_of_all() -> None:
    random, loss = np.random.default_rng(0), losses.MultiLabel()
    outputs, bits = random.integers(0, 50, (40, 300)).astype("float32"), random.integers(0, 2, (40, 300))  # many alike
    above = (outputs[:, :, None] > outputs[:, None]) & (bits[:, :, None] > bits[:, None])
    wanted = above.sum(axis=(1, 2)) / (bits.sum(axis=1) * (1 - bits).sum(axis=1))
    np.testing.assert_allclose(loss.metrics(jnp.array(outputs), jnp.array(bits)), wanted, rtol=1e-6)
    compiled = jax.jit(loss.metrics).lower(jnp.array(outputs), jnp.array(bits)).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 20 * outputs.nbytes


@pytest.mark.parametrize("gamma", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("kind", [losses.SoftmaxFocal, losses.SigmoidFocal])
def test_focal_losses_are_finite_however_sure_the_outputs_are(kind: type[Loss], gamma: float) -> None:
    loss = kind.from_json({"type": kind.__name__, "gamma": gamma})
    assert isinstance(loss, Loss)
    arguments = EXTREMES, jnp.array(ONE_HOT, "float32"), jnp.ones(4)
    assert np.isfinite(loss.value(*arguments)) and np.isfinite(loss.delta(*arguments)).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: losses.Quantile((0.5, 1.0)), r"quantiles of Quantile must be between 0 and 1, received \(0.5, 1.0\)"),
        (lambda: losses.Quantile((0.1, 0.9)).check((3,)), "needs a network of as many outputs, this one has 3"),
        (lambda: losses.SoftmaxCrossEntropy(class_weights=(1, -1)), "class_weights of SoftmaxCrossEntropy must be"),
        (lambda: losses.SoftmaxFocal(class_weights=(1, 1)).check((3,)), "must be as many as the 3 outputs"),
        (lambda: losses.Triplet().check((3,)), r"Triplet needs a network ending in rows of shape \(2,\)"),
        (lambda: losses.EachPosition().check((3,)), "EachPosition needs a network ending in rows of shape"),
        (lambda: losses.EachPosition().encode(np.zeros((2, 3)), (4, 5)), r"takes labels of shape \(4,\)"),
        (
            lambda: losses.EachPosition(ignore_class=255).encode(np.full((2, 4), 9), (4, 5)),
            "from 0 to 4, .* received 9",
        ),
        (
            lambda: losses.EachPosition(ignore_class=1.5),
            "ignore_class of EachPosition must be an integer, .* received 1.5",
        ),
        (
            lambda: losses.EachPosition("squared_error", ignore_class=0),
            "of losses of classes, which SquaredError.* is not",
        ),
        (
            lambda: losses.Dice("squared_error"),
            "loss of Dice must be one of classes and probabilities, .* SquaredError",
        ),
        (lambda: losses.Dice(smoothing=0), r"smoothing of Dice must be a number in \(0, inf\)"),
        (lambda: losses.EvidenceLowerBound(0), "latent of EvidenceLowerBound must be a positive integer, received 0"),
        (lambda: losses.EvidenceLowerBound(1, beta=-1), r"beta of EvidenceLowerBound must be a number in \[0, inf\)"),
        (lambda: losses.EvidenceLowerBound(1, losses.InBatchSoftmax()), "a loss of each row by itself"),
        (lambda: losses.EvidenceLowerBound(2).check((4,)), "needs a network of more than 4 outputs.*this one has 4"),
        (
            lambda: losses.EvidenceLowerBound(1, losses.GaussianLikelihood()).check((5,)),
            "two outputs for each label, this one has 3",
        ),
        (lambda: losses.GaussianLikelihood().check((3,)), r"two outputs for each label, this one has 3; put Dense\(2"),
        (lambda: losses.MixtureDensity(2).check((7,)), r"network of 2 \* \(labels \+ 2\) outputs, this one has 7; put"),
        (lambda: losses.MixtureDensity(2).check((4,)), r"outputs, this one has 4; put Dense\(6\) at its end for one"),
        (lambda: losses.MixtureDensity(0), "components of MixtureDensity must be a positive integer, received 0"),
        (lambda: losses.GaussianLikelihood(least_scale=0), r"least_scale of GaussianLikelihood must be .* \(0, inf\)"),
        (
            lambda: losses.GaussianLikelihood().encode(np.zeros((2, 2)), (6,)),
            "takes 3 .*; give a row 3 labels",
        ),
        (lambda: losses.SquaredLogarithmicError().encode(np.array([-0.5]), (1,)), "must be between 0 and inf"),
        (
            lambda: losses.Wasserstein().encode(np.array([1.0, 0]), (1,)),
            "Labels of Wasserstein must be -1 or 1, received 0",
        ),
        (lambda: losses.MultiLabel().encode(np.array([[2.0, 0]]), (2,)), "must be between 0 and 1, received 2"),
        (lambda: losses.PairwiseLogistic().encode(np.zeros((2, 2)), (2,)), "takes 1 labels a row, .* give a row one"),
    ],
)
def test_what_fits_no_loss_is_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("kind", [losses.SoftmaxCrossEntropy, losses.SoftmaxFocal])
def test_class_weights_may_come_as_scikit_learn_computes_them(kind: type[Loss]) -> None:
    weights = compute_class_weight("balanced", classes=np.unique(CLASSES), y=CLASSES)
    loss = kind(class_weights=weights)  # type: ignore[call-arg]
    assert loss == kind(class_weights=tuple(weights.tolist()))  # type: ignore[call-arg]
    assert Loss.from_json(loss.to_json()) == loss


def test_confident_and_right_is_not_rounded_to_zero() -> None:
    far = jnp.array([[25.0]]), jnp.ones(1), jnp.ones(1)
    np.testing.assert_allclose(losses.SigmoidCrossEntropy().value(*far), np.log1p(np.exp(-25)), rtol=1e-5)


def test_a_zero_vector_has_cosine_zero_and_turns_towards_its_label() -> None:
    arguments = jnp.zeros((2, 2)), jnp.array([[3.0, 4.0], [0.0, 0.0]]), jnp.ones(2)
    loss = losses.CosineSimilarity()
    assert loss.value(*arguments) == 2
    np.testing.assert_allclose(loss.delta(*arguments), np.array([[-0.6, -0.8], [0, 0]]), rtol=1e-6)


def test_rates_that_are_not_positive_cost_finitely_and_lead_back() -> None:
    arguments = jnp.array([[0.0, -1.0]]), jnp.array([[1.0, 0.0]]), jnp.ones(1)
    loss = losses.Poisson(log_rate=False)
    assert np.isfinite(loss.value(*arguments))
    assert loss.delta(*arguments)[0, 0] < 0
    assert loss.delta(jnp.array([[-1.0, -1.0]]), *arguments[1:])[0, 0] < 0


@pytest.mark.parametrize(
    ("loss", "labels", "score"),
    [
        (losses.SoftmaxCrossEntropy(0.1), [2, 1, 1], 1.0),
        (losses.SoftmaxCrossEntropy(), [[0, 0, 1], [0, 0.4, 0.6], [0, 1, 0]], 3.0),
        (losses.KLDivergence(), [[0.2, 0.2, 0.6], [0, 1, 0], [1, 0, 0]], 5.0),
        (losses.SigmoidCrossEntropy(), [2, 2, 0], 7.0),
        (losses.SigmoidCrossEntropy(), [[0, 1, 1], [0, 0, 1], [1, 1, 1]], 1 * 2 / 3 + 2 * 1 + 4 * 0),
        (losses.Hinge(), [2, 1, 0], 5.0),
        (losses.LabelledOutput(), [2, 1, 0], 5.0),
        (losses.MarginLoss(), [2, 1, 0], 1 + 4.0),
        (losses.MarginLoss(), [[0, 1, 1], [0, 0, 1], [1, 1, 1]], 1 * 2 / 3 + 2 * 1 + 4 * 0),
        (losses.SquaredError(), [[-1, -2, 3], [0, 0, 1], [0, 0, 0]], 1 * 0 + 2 * (4 + 4 + 1) + 4 * (1 + 4 + 9)),
        (losses.AbsoluteError(), [[-1, -2, 5], [-2, -2, 2], [-1, -2, -3]], 1 * 4),
        (losses.CosineSimilarity(), [[-2, -4, 6], [2, 2, -2], [0, 0, 1]], 1 - 2 + 4 * -3 / np.sqrt(14)),
        (losses.Poisson(), [[0, 0, 0], [0, 0, 0], [1, 1, 1]], None),
        (losses.MixtureDensity(1), [-2, 1, 0], 2 * 9 + 4 * 4),
        (losses.Wasserstein(), [[1, 1, 1], [-1, 1, 1], [-1, -1, 1]], 0 + 2 * 2 + 4 * 0),
    ],
    ids=lambda case: type(case).__name__ if isinstance(case, Loss) else "",
)
def test_score_is_the_weighted_sum_of_the_metric(loss: Loss, labels: list[Any], score: float | None) -> None:
    outputs = np.array([[-1.0, -2.0, 3.0], [-2.0, -2.0, 2.0], [-1.0, -2.0, -3.0]])
    weights = np.array([1.0, 2.0, 4.0])
    if score is None:
        score = weights @ ((np.exp(outputs) - labels) ** 2).sum(1)
    np.testing.assert_allclose(
        loss.metric_sum(jnp.array(outputs), jnp.array(labels), jnp.array(weights)), score, rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("loss", [losses.SigmoidCrossEntropy(), losses.SquaredHinge()])
def test_one_output_decides_by_its_sign(loss: Loss) -> None:
    outputs = jnp.array([[-3.0], [-0.1], [0.1], [3.0]])
    score = loss.metric_sum(outputs, jnp.array([0, 1, 1, 0]), jnp.array([1.0, 2.0, 4.0, 8.0]))
    assert (loss.metric, score) == ("accuracy", 5)


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (losses.SoftmaxCrossEntropy(), special.softmax(OUTPUTS, axis=1)),
        (losses.KLDivergence(), special.softmax(OUTPUTS, axis=1)),
        (losses.SigmoidCrossEntropy(), special.expit(OUTPUTS)),
        (losses.Poisson(), np.exp(OUTPUTS)),
        (losses.Poisson(log_rate=False), OUTPUTS),
        (losses.SquaredError(), OUTPUTS),
        (losses.Hinge(), OUTPUTS),
        (losses.MultiLabel(), OUTPUTS),
        (losses.LabelledOutput(), special.softmax(OUTPUTS, axis=1)),
        (losses.MarginLoss(), np.clip(OUTPUTS, 0, 1)),
    ],
    ids=repr,
)
def test_predict_is_what_outputs_mean(loss: Loss, expected: np.ndarray) -> None:
    np.testing.assert_allclose(loss.predict(jnp.array(OUTPUTS)), expected, rtol=1e-5)


def test_predictions_of_distributions_are_their_parameters_and_have_a_mean() -> None:
    normal, mixed = losses.GaussianLikelihood(), losses.MixtureDensity(2)
    found = np.asarray(normal.predict(jnp.array(SIX)))
    np.testing.assert_allclose(found, np.concatenate([OUTPUTS, scales(OTHERS)], axis=1), rtol=1e-5)
    np.testing.assert_allclose(normal.mean(found), OUTPUTS, rtol=1e-6)
    shares, means = special.softmax(EIGHT[:, :2], axis=1), EIGHT[:, 2:6]
    found = np.asarray(mixed.predict(jnp.array(EIGHT)))
    np.testing.assert_allclose(found, np.concatenate([shares, means, scales(EIGHT[:, 6:])], axis=1), rtol=1e-5)
    expected = shares[:, :1] * means[:, :2] + shares[:, 1:] * means[:, 2:]
    np.testing.assert_allclose(mixed.mean(found), expected, rtol=1e-5, atol=1e-6)


def test_predictions_of_an_autoencoder_are_what_it_reconstructs_and_the_code() -> None:
    outputs = jnp.array(EIGHT)
    bits = losses.EvidenceLowerBound(2, "sigmoid_cross_entropy")
    found = np.asarray(bits.predict(outputs))
    np.testing.assert_allclose(
        found, np.concatenate([special.expit(EIGHT[:, :4]), EIGHT[:, 4:6], scales(EIGHT[:, 6:])], axis=1), rtol=1e-5
    )
    np.testing.assert_array_equal(bits.mean(found), found[:, :4])
    likely = losses.EvidenceLowerBound(2, losses.GaussianLikelihood())
    np.testing.assert_allclose(likely.mean(likely.predict(outputs)), EIGHT[:, :2], rtol=1e-6)
    squares = ((EIGHT[:, :2] - OTHERS[:, :2]) ** 2).sum(1)
    np.testing.assert_allclose(likely.metrics(outputs, jnp.array(OTHERS[:, :2])), squares, rtol=1e-5)


@pytest.mark.parametrize("dtype", ["uint8", "int32", "float32"])
def test_class_numbers_may_have_any_dtype(dtype: str) -> None:
    arguments = jnp.array(OUTPUTS), jnp.array(CLASSES, dtype), jnp.ones(4)
    expected = cross_entropy(OUTPUTS, ONE_HOT).sum()
    np.testing.assert_allclose(losses.SoftmaxCrossEntropy().value(*arguments), expected, rtol=1e-5)


@pytest.mark.parametrize("name", ["CrossEntropyLoss", "BCEWithLogitsLoss", "HuberLoss", "PoissonNLLLoss", "KLDivLoss"])
@pytest.mark.usefixtures("float64")
def test_value_and_delta_agree_with_pytorch(name: str) -> None:
    torch = pytest.importorskip("torch")
    outputs = torch.tensor(OUTPUTS, requires_grad=True)
    loss, labels, options = {
        "CrossEntropyLoss": (losses.SoftmaxCrossEntropy(0.1), CLASSES, {"label_smoothing": 0.1}),
        "BCEWithLogitsLoss": (losses.SigmoidCrossEntropy(), BITS, {}),
        "HuberLoss": (losses.Huber(0.5), OTHERS, {"delta": 0.5}),
        "PoissonNLLLoss": (losses.Poisson(), COUNTS, {}),
        "KLDivLoss": (losses.KLDivergence(), PROBABILITIES, {}),
    }[name]
    rows = torch.log_softmax(outputs, 1) if name == "KLDivLoss" else outputs
    value = getattr(torch.nn, name)(reduction="sum", **options)(rows, torch.tensor(labels))
    value.backward()
    arguments = jnp.array(OUTPUTS), jnp.array(labels), jnp.ones(4)
    np.testing.assert_allclose(loss.value(*arguments), value.item(), rtol=1e-10)
    np.testing.assert_allclose(loss.delta(*arguments), outputs.grad.numpy(), rtol=1e-10, atol=1e-12)


@pytest.mark.usefixtures("float64")
def test_normal_likelihoods_are_those_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    outputs = torch.tensor(SIX, requires_grad=True)
    means, raw = outputs.split(3, dim=1)
    variances = (torch.nn.functional.softplus(raw) + 1e-3) ** 2
    value = torch.nn.GaussianNLLLoss(full=True, reduction="sum")(means, torch.tensor(COUNTS), variances)
    value.backward()
    arguments = jnp.array(SIX), jnp.array(COUNTS), jnp.ones(4)
    np.testing.assert_allclose(losses.GaussianLikelihood().value(*arguments), value.item(), rtol=1e-10)
    np.testing.assert_allclose(losses.GaussianLikelihood().delta(*arguments), outputs.grad.numpy(), rtol=1e-9)


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        (
            "softmax_cross_entropy",
            (24, 24, 64),
            r"SoftmaxCrossEntropy needs a network ending in rows of shape \(classes,\) with at least 2 classes, "
            r"this one ends in \(24, 24, 64\); put Flatten\(\) and Dense\(classes\) at its end.",
        ),
        ("softmax_cross_entropy", (1,), r"at least 2 classes, this one ends in \(1,\); put Dense\(classes\) at"),
        ("squared_error", (5, 2), r"rows of shape \(outputs,\), this one ends in \(5, 2\); put Flatten\(\)"),
        ("kl_divergence", (1,), "at least 2 outputs"),
    ],
)
def test_check_says_how_the_network_should_end(name: str, shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Loss.of(name).check(shape)


@pytest.mark.parametrize(("name", "outputs"), [("hinge", 1), ("squared_error", 1), ("softmax_cross_entropy", 2)])
def test_check_accepts_what_fits(name: str, outputs: int) -> None:
    Loss.of(name).check((outputs,))


@pytest.mark.parametrize("loss", [losses.SquaredError(), losses.KLDivergence(), losses.Poisson()])
def test_a_label_a_row_does_not_fit_several_outputs(loss: Loss) -> None:
    with pytest.raises(ValueError, match=r"labels of shape \(4, 3\), received \(4,\)"):
        loss.value(jnp.array(OUTPUTS), jnp.array(CLASSES), jnp.ones(4))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: losses.SoftmaxCrossEntropy(1.0), r"label_smoothing of SoftmaxCrossEntropy must be .* \[0, 1\)"),
        (lambda: losses.SigmoidCrossEntropy(-0.1), "label_smoothing"),
        (lambda: losses.MarginLoss(0.5, 0.5), "lower of MarginLoss must be below upper, 0.5, received 0.5"),
        (lambda: losses.MarginLoss(1.5), r"upper of MarginLoss must be a number in \[0, 1\], received 1.5"),
        (lambda: losses.Huber(0), r"threshold of Huber must be a number in \(0, inf\), received 0"),
    ],
)
def test_fields_are_checked(make: Callable[[], Loss], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_a_loss_written_by_its_rows_alone_trains() -> None:
    class Quartic(Loss):
        def losses(self, outputs: jax.Array, targets: jax.Array) -> jax.Array:
            return ((outputs - targets) ** 4).sum(axis=1)

    delta = Quartic().delta(jnp.array(OUTPUTS), jnp.array(OTHERS), jnp.array(WEIGHTS))
    np.testing.assert_allclose(delta, WEIGHTS[:, None] * 4 * (OUTPUTS - OTHERS) ** 3, rtol=1e-5)


@pytest.mark.usefixtures("float64")
def test_a_detector_predicts_boxes_and_its_metric_is_how_far_they_meet_the_true_ones() -> None:
    loss = losses.Yolo(ANCHORS, max_boxes=3)
    found = np.asarray(loss.predict(jnp.array(GRID))).reshape(4, 2, 3, 2, 8)
    for row, own in zip(GRID.reshape(4, 2, 3, 2, 8), found, strict=True):
        np.testing.assert_allclose(own[..., :4], boxes_of(row), rtol=1e-12)
        np.testing.assert_allclose(own[..., 4], special.expit(row[..., 4]), rtol=1e-12)
        np.testing.assert_allclose(own[..., 5:], special.softmax(row[..., 5:], axis=-1), rtol=1e-12)
    # The box of row 3 in the last corner, the one in the middle and the one of cell (0, 1), by the anchor of its shape.
    in_charge = [(1, 2, 0), (1, 1, 1), (0, 1, 0)]
    expected = [
        intersection_over_union(found[3][at][:4], box[1:]) for at, box in zip(in_charge, TRUE_BOXES[3], strict=True)
    ]
    metric = loss.metric_sum(jnp.array(GRID), jnp.array(TRUE_BOXES.reshape(4, -1)), jnp.array([0.0, 0, 1, 1]))
    np.testing.assert_allclose(metric, 1 + np.mean(expected), rtol=1e-12)


def test_boxes_of_a_detector_may_be_fewer_and_are_checked() -> None:
    loss, shape = losses.Yolo(ANCHORS, max_boxes=3), GRID.shape[1:]
    encoded = loss.encode(TRUE_BOXES[:, :1], shape)
    assert encoded.shape == (4, 15)
    np.testing.assert_array_equal(encoded.reshape(4, 3, 5)[:, :1], TRUE_BOXES[:, :1])
    assert (encoded.reshape(4, 3, 5)[:, 1:, 0] == -1).all()
    assert loss.encode(np.array([[0, -5e-4, 0, 0.5, 1.0005]]), shape)[0, 1:5].tolist() == [0, 0, 0.5, 1]
    for labels, sentence in (
        (np.zeros((1, 4)), r"takes labels of shape \(boxes, 5\), or as many numbers, received \(4,\)"),
        (np.zeros((1, 5, 4)), r"received \(5, 4\)"),
        (np.zeros((1, 20)), "takes 3 boxes a row, received 4; raise max_boxes"),
        (np.array([[3, 0, 0, 0.5, 0.5]]), "whole numbers from 0 to 2, or -1 for no box, .* received 3"),
        (np.array([[0.5, 0, 0, 0.5, 0.5]]), "received 0.5; index"),
        (np.array([[0, 12, 8, 200, 100]]), r"received \[12.0, 8.0, 200.0, 100.0\]; divide pixels"),
        (np.array([[0, 0.5, 0, 0.4, 1]]), "left before right"),
        (np.array([[0, 0.5, 0, 0.5, 1]]), "left before right"),
        (np.array([[0, np.nan, 0, 0.5, 1]]), "left before right"),
    ):
        with pytest.raises(ValueError, match=sentence):
            loss.encode(labels, shape)
    for anchors in ((), 0.5, (0.5, 0.5), ((0.5,),), ((0.5, 0),), ((0.5, "a"),)):
        with pytest.raises(ValueError, match="anchors of Yolo must be pairs"):
            losses.Yolo(anchors)
    for wrong in ((2, 3, 15), (2, 3, 10), (16,)):
        with pytest.raises(ValueError, match=r"needs a network ending in rows of shape \(rows, columns, 2 \* \(5"):
            loss.check(wrong)
