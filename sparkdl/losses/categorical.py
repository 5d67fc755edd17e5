"""Losses of classes: likelihoods and margins."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.scipy.special import xlogy

from sparkdl.arrays import INTEGERS
from sparkdl.losses.loss import Loss
from sparkdl.specs import check_range, take_arrays


@dataclass(frozen=True)
class ClassLoss(Loss):
    """Base of the losses of classifiers: a class is met by the largest output, or by the sign of the only one."""

    takes_classes = True
    metric = "accuracy"

    def metrics(self, outputs: Array, labels: Array) -> Array:
        targets = self.targets(outputs, labels)
        if outputs.shape[1] == 1:
            return share_right(outputs > 0, targets > 0.5, outputs.dtype)
        return (outputs.argmax(axis=1) == targets.argmax(axis=1)).astype(outputs.dtype)


def share_right(decisions: Array, truth: Array, dtype: jnp.dtype) -> Array:
    """Of each row, the share of outputs of which it was decided rightly whether they are there."""
    return (decisions == truth).astype(dtype).mean(axis=1)


@dataclass(frozen=True)
class SoftmaxLoss(ClassLoss):
    """Base of the losses whose outputs are unnormalised log-probabilities of exclusive classes."""

    least_outputs = 2
    label_range = (0.0, 1.0)
    gives_probabilities = True

    def predict(self, outputs: Array) -> Array:
        return jax.nn.softmax(outputs)

    def losses(self, outputs: Array, targets: Array) -> Array:
        return -(targets * jax.nn.log_softmax(outputs)).sum(axis=1)

    def slopes(self, outputs: Array, targets: Array) -> Array:
        return targets.sum(axis=1, keepdims=True) * jax.nn.softmax(outputs) - targets


@dataclass(frozen=True)
class SoftmaxCrossEntropy(SoftmaxLoss):
    """-sum(t * log(softmax(o))) of classes, one-hot labels or probabilities t.

    Parameters
    ----------
    label_smoothing : float, default 0
        Share in [0, 1) of each label that is spread evenly over the classes (Szegedy et al. 2016, section 7).
    class_weights : sequence of float, or array (classes,), optional
        What the term of each class is multiplied by, as by PyTorch's `weight`; the mean is still over the rows' own
        weights, as Keras' `class_weight` has it.
    """

    label_smoothing: float = 0.0
    class_weights: Sequence[float] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "[0, 1)", "label_smoothing")
        hold_class_weights(self)

    def check(self, output_shape: tuple[int, ...]) -> None:
        super().check(output_shape)
        check_class_weights(self, output_shape)

    def targets(self, outputs: Array, labels: Array) -> Array:
        sharp = super().targets(outputs, labels)
        return (1 - self.label_smoothing) * sharp + self.label_smoothing / outputs.shape[1]

    def losses(self, outputs: Array, targets: Array) -> Array:
        return super().losses(outputs, balanced(self, targets))

    def slopes(self, outputs: Array, targets: Array) -> Array:
        return super().slopes(outputs, balanced(self, targets))


@dataclass(frozen=True)
class SoftmaxFocal(SoftmaxLoss):
    """-sum(t * (1 - p) ** gamma * log(p)) of p = softmax(o): what is easy counts less (Lin et al. 2017).

    Parameters
    ----------
    gamma : float, default 2
        How much less; with 0 it is SoftmaxCrossEntropy.
    class_weights : sequence of float, or array (classes,), optional
        As of SoftmaxCrossEntropy; the paper's alpha.
    """

    gamma: float = 2.0
    class_weights: Sequence[float] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "[0, inf)", "gamma")
        hold_class_weights(self)

    def check(self, output_shape: tuple[int, ...]) -> None:
        super().check(output_shape)
        check_class_weights(self, output_shape)

    def losses(self, outputs: Array, targets: Array) -> Array:
        logarithms = jax.nn.log_softmax(outputs)
        return -(balanced(self, targets) * _missed(logarithms, self.gamma) * logarithms).sum(axis=1)

    slopes = Loss.slopes


def hold_class_weights(loss: SoftmaxCrossEntropy | SoftmaxFocal) -> None:
    """Check the field, and make its numbers floats."""
    take_arrays(loss, "class_weights")
    if loss.class_weights is None:
        return
    given = loss.class_weights if isinstance(loss.class_weights, tuple) else ()
    if len(given) < 2 or not all(isinstance(weight, (int, float)) and 0 <= weight < math.inf for weight in given):
        raise ValueError(
            f"class_weights of {type(loss).__name__} must be a number of at least 0 for every class, received "
            f"{loss.class_weights!r}."
        )
    object.__setattr__(loss, "class_weights", tuple(map(float, given)))


def check_class_weights(loss: SoftmaxCrossEntropy | SoftmaxFocal, output_shape: tuple[int, ...]) -> None:
    """ValueError unless there is one for every output."""
    if loss.class_weights is not None and len(loss.class_weights) != output_shape[0]:
        raise ValueError(
            f"class_weights of {type(loss).__name__} must be as many as the {output_shape[0]} outputs of the network, "
            f"received {len(loss.class_weights)}."
        )


def balanced(loss: SoftmaxCrossEntropy | SoftmaxFocal, targets: Array) -> Array:
    """Targets times the weights of classes."""
    return targets if loss.class_weights is None else targets * jnp.asarray(loss.class_weights, targets.dtype)[None]


def _missed(logarithms: Array, gamma: float) -> Array:
    """(1 - p) ** gamma of the logarithms of p, with a derivative of 0 where p is 1."""
    missed = -jnp.expm1(logarithms)
    return jnp.where(missed > 0, jnp.where(missed > 0, missed, 1) ** gamma, 0.0 if gamma else 1.0)


@dataclass(frozen=True)
class LabelledOutput(SoftmaxLoss):
    """-sum(t * o) of classes, one-hot labels or probabilities t: the output of a row's class is to be large.

    Of log-probabilities, as `LogSoftmax` puts out, it is the negative log-likelihood, PyTorch's `NLLLoss`. Of
    `Prototypes` it is center loss (Wen et al. 2016), without the half: it only pulls, and the least of it is all rows
    in one place, so it goes beside a loss that tells classes apart.
    """

    def losses(self, outputs: Array, targets: Array) -> Array:
        return -(targets * outputs).sum(axis=1)

    def slopes(self, outputs: Array, targets: Array) -> Array:
        return -targets


@dataclass(frozen=True)
class KLDivergence(SoftmaxLoss):
    """sum(t * log(t / softmax(o))), the divergence of the predicted distribution from distributions t."""

    takes_classes = False

    def losses(self, outputs: Array, targets: Array) -> Array:
        return super().losses(outputs, targets) + xlogy(targets, targets).sum(axis=1)

    slopes = SoftmaxLoss.slopes


@dataclass(frozen=True)
class SigmoidLoss(ClassLoss):
    """Base of the losses whose outputs are log-odds of independent labels t in [0, 1].

    Classes of several outputs are met one against all. Of labels (batch, outputs) the accuracy is the share of outputs
    whose sign is right.
    """

    label_range = (0.0, 1.0)
    gives_probabilities = True

    def predict(self, outputs: Array) -> Array:
        return jax.nn.sigmoid(outputs)

    def metrics(self, outputs: Array, labels: Array) -> Array:
        if labels.shape != outputs.shape:
            return super().metrics(outputs, labels)
        return share_right(outputs > 0, self.targets(outputs, labels) > 0.5, outputs.dtype)


@dataclass(frozen=True)
class SigmoidCrossEntropy(SigmoidLoss):
    """-t * log(sigmoid(o)) - (1 - t) * log(1 - sigmoid(o)) of independent labels t in [0, 1].

    Parameters
    ----------
    label_smoothing : float, default 0
        Share in [0, 1) by which each label moves towards 1/2.
    positive_weight : float, default 1
        What the first term is multiplied by, as by PyTorch's `pos_weight`: above 1, a missed positive costs more.
    """

    label_smoothing: float = 0.0
    positive_weight: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "[0, 1)", "label_smoothing")
        check_range(self, "(0, inf)", "positive_weight")

    def targets(self, outputs: Array, labels: Array) -> Array:
        return (1 - self.label_smoothing) * super().targets(outputs, labels) + self.label_smoothing / 2

    def losses(self, outputs: Array, targets: Array) -> Array:
        linear = jnp.maximum(outputs, 0) - outputs * targets
        if self.positive_weight == 1:
            return (linear + jnp.log1p(jnp.exp(-jnp.abs(outputs)))).sum(axis=1)
        positive, negative = jax.nn.softplus(-outputs), jax.nn.softplus(outputs)
        return (self.positive_weight * targets * positive + (1 - targets) * negative).sum(axis=1)

    def slopes(self, outputs: Array, targets: Array) -> Array:
        if self.positive_weight == 1:
            return jax.nn.sigmoid(outputs) - targets
        missed = self.positive_weight * targets
        return (missed + 1 - targets) * jax.nn.sigmoid(outputs) - missed


@dataclass(frozen=True)
class SigmoidFocal(SigmoidLoss):
    """SigmoidCrossEntropy in which what is easy counts less (Lin et al. 2017, as torchvision's sigmoid_focal_loss).

    -alpha * t * (1 - p) ** gamma * log(p) - (1 - alpha) * (1 - t) * p ** gamma * log(1 - p) of p = sigmoid(o).

    Parameters
    ----------
    gamma : float, default 2
        How much less; with 0 it is SigmoidCrossEntropy.
    alpha : float, optional
        Weight of positive labels, between 0 and 1; by default both kinds weigh 1.
    """

    gamma: float = 2.0
    alpha: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "[0, inf)", "gamma")
        check_range(self, "[0, 1]", "alpha")

    def losses(self, outputs: Array, targets: Array) -> Array:
        hit, missed = jax.nn.log_sigmoid(outputs), jax.nn.log_sigmoid(-outputs)
        positive = -targets * _missed(hit, self.gamma) * hit
        negative = -(1 - targets) * _missed(missed, self.gamma) * missed
        if self.alpha is not None:
            positive, negative = self.alpha * positive, (1 - self.alpha) * negative
        return (positive + negative).sum(axis=1)


@dataclass(frozen=True)
class HingeLoss(ClassLoss):
    """Base of the losses of margins: s * o below 1 costs, where s is 1 for a label above 0 and else -1.

    Labels may thus be written 0 and 1 or -1 and 1; classes of several outputs are met one against all.
    """

    label_range = (-1.0, 1.0)

    def targets(self, outputs: Array, labels: Array) -> Array:
        return jnp.where(super().targets(outputs, labels) > 0, 1, -1).astype(outputs.dtype)


@dataclass(frozen=True)
class Hinge(HingeLoss):
    """max(0, 1 - s * o)."""

    def losses(self, outputs: Array, targets: Array) -> Array:
        return jnp.maximum(0, 1 - targets * outputs).sum(axis=1)

    def slopes(self, outputs: Array, targets: Array) -> Array:
        return jnp.where(targets * outputs < 1, -targets, 0)


@dataclass(frozen=True)
class SquaredHinge(HingeLoss):
    """max(0, 1 - s * o) ** 2."""

    def losses(self, outputs: Array, targets: Array) -> Array:
        return (jnp.maximum(0, 1 - targets * outputs) ** 2).sum(axis=1)

    def slopes(self, outputs: Array, targets: Array) -> Array:
        return -2 * targets * jnp.maximum(0, 1 - targets * outputs)


@dataclass(frozen=True)
class MultiLabel(ClassLoss):
    """The mean of exp(b - a) over pairs of an output a of a label that a row has and b of one that it lacks: BP-MLL.

    The labels of a row are to have larger outputs than all others (Zhang and Zhou 2006). A row that has all labels or
    none costs nothing. "accuracy" is the share of pairs in the right order, 1 where there are none.

    Only differences of outputs count. Their signs, by which `evaluate` tells which labels are there, mean something if
    the network ends in Tanh(), as the paper's does; without it, exp overflows past 88 in float32, too.
    """

    label_range = (0.0, 1.0)
    least_outputs = 2

    def losses(self, outputs: Array, targets: Array) -> Array:
        has, lacks, pairs = _sides(targets)
        counts = (has.sum(axis=1) * lacks.sum(axis=1)).astype(outputs.dtype)
        lag = jax.nn.logsumexp(_only(-outputs, has), axis=1) + jax.nn.logsumexp(_only(outputs, lacks), axis=1)
        return jnp.where(pairs, jnp.exp(lag - jnp.log(counts)), 0)

    def slopes(self, outputs: Array, targets: Array) -> Array:
        has, lacks, pairs = _sides(targets)
        up, down = jax.nn.softmax(_only(-outputs, has)), jax.nn.softmax(_only(outputs, lacks))
        return jnp.where(pairs[:, None], self.losses(outputs, targets)[:, None] * (down - up), 0)

    def metrics(self, outputs: Array, labels: Array) -> Array:
        has, lacks, pairs = _sides(self.targets(outputs, labels))
        # From the smallest output on, of equal ones those of labels that the row has first, which are then not above.
        _, lacking = lax.sort((outputs, lacks.astype(INTEGERS)), num_keys=2)
        ordered = (jnp.cumsum(lacking, axis=1) * (1 - lacking)).sum(axis=1)
        share = ordered / (has.sum(axis=1) * lacks.sum(axis=1))
        return jnp.where(pairs, share, 1).astype(outputs.dtype)


def _sides(targets: Array) -> tuple[Array, Array, Array]:
    """(labels that a row has, those that it lacks, whether there are both); of rows without both all labels twice."""
    has = targets > 0.5
    pairs = has.any(axis=1) & ~has.all(axis=1)
    return has | ~pairs[:, None], ~has | ~pairs[:, None], pairs


def _only(outputs: Array, chosen: Array) -> Array:
    return jnp.where(chosen, outputs, -jnp.inf)
