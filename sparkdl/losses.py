"""What training minimises, as sums over rows of weight times loss; a row's loss is the sum over its outputs."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import xlogy

from sparkdl.specs import Spec, check_range, refuse_stale


def _weighted(values: Array, weights: Array) -> Array:
    """Each row times its weight, and exactly 0 where that is 0, even if the row overflowed."""
    weights = weights.astype(values.dtype).reshape(-1, *(1,) * (values.ndim - 1))
    return jnp.where(weights != 0, weights * values, 0)


@dataclass(frozen=True)
class Loss(Spec):
    """A loss of rows of outputs against labels.

    outputs  (batch, outputs)
    labels   (batch, outputs); or (batch,), one label a row for one output, and for a loss that `takes_classes` the
             number of the row's class, 0, 1, ... of any dtype; classes beyond the outputs are the caller's to refuse
    weights  (batch,) sample weights; a row that weighs 0 contributes exactly 0

    Subclasses write `losses`; `slopes` is derived from it unless written. A class that overrides the `losses` of a loss
    but inherits its `slopes` is refused with a TypeError. t below stands for a row's targets and o for its outputs.
    """

    takes_classes: ClassVar[bool] = False
    label_range: ClassVar[tuple[float, float]] = (-math.inf, math.inf)  # of labels that are not classes
    gives_probabilities: ClassVar[bool] = False  # whether `predict` does
    metric: ClassVar[str] = "mse"
    least_outputs: ClassVar[int] = 1

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        refuse_stale(cls, Loss, "losses", "slopes")

    def check(self, output_shape: tuple[int, ...]) -> None:
        """ValueError when a network whose rows come out with `output_shape` cannot be trained with this loss."""
        if len(output_shape) == 1 and output_shape[0] >= self.least_outputs:
            return
        axis = "classes" if self.takes_classes else "outputs"
        least = f" with at least {self.least_outputs} {axis}" if self.least_outputs > 1 else ""
        remedy = f"Dense({axis})" if len(output_shape) == 1 else f"Flatten() and Dense({axis})"
        raise ValueError(
            f"{type(self).__name__} needs a network ending in rows of shape ({axis},){least}, "
            f"this one ends in {tuple(output_shape)}; put {remedy} at its end."
        )

    def encode(self, labels: np.ndarray[Any, Any], output_shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        """Labels as `value` takes them, checked on the host.

        Parameters
        ----------
        labels : array (n,) or (n, outputs)
            Numbers of any dtype.
        output_shape : tuple of int
            Of a row of the network's output.

        Returns
        -------
        array
            int32 classes (n,), or float64 (n, outputs).

        Raises
        ------
        ValueError
            A class is fractional, a label is out of range, or there is another number of labels a row than of outputs.
        """
        count = math.prod(output_shape)
        if labels.ndim == 1 and self.takes_classes and count > 1:
            wrong = labels[(labels != np.floor(labels)) | (labels < 0) | (labels >= count)]
            if len(wrong):
                raise ValueError(
                    f"Labels must be whole numbers from 0 to {count - 1}, since the network has {count} outputs, "
                    f"received {wrong[0]:.15g}; index the classes, or end the network in one output a class."
                )
            return labels.astype(np.int32)
        labels = labels[:, None] if labels.ndim == 1 else labels
        if labels.shape[1:] != (count,):
            raise ValueError(
                f"{type(self).__name__} takes {count} labels a row, since the network has {count} outputs, "
                f"received {math.prod(labels.shape[1:])}; give one label an output."
            )
        least, most = self.label_range
        wrong = labels[(labels < least) | (labels > most)]
        if len(wrong):
            raise ValueError(
                f"Labels of {type(self).__name__} must be between {least:g} and {most:g}, received {wrong[0]:.15g}; "
                "scale or map them."
            )
        return labels.astype(np.float64)

    @partial(jax.jit, static_argnums=0)
    def value(self, outputs: Array, labels: Array, weights: Array) -> Array:
        """The sum over rows of weight times loss, a scalar of the outputs' dtype."""
        return _weighted(self.losses(outputs, self.targets(outputs, labels)), weights).sum()

    @partial(jax.jit, static_argnums=0)
    def delta(self, outputs: Array, labels: Array, weights: Array) -> Array:
        """The derivative of `value` by the outputs, of their shape."""
        return _weighted(self.slopes(outputs, self.targets(outputs, labels)), weights)

    @partial(jax.jit, static_argnums=0)
    def metric_sum(self, outputs: Array, labels: Array, weights: Array) -> Array:
        """The sum over rows of weight times `metric`, a scalar of the outputs' dtype."""
        return _weighted(self.metrics(outputs, labels), weights).sum()

    def predict(self, outputs: Array) -> Array:
        """What the outputs mean to a user: probabilities, rates, or themselves; of their shape."""
        return outputs

    def targets(self, outputs: Array, labels: Array) -> Array:
        """The labels as what each output should be, of the outputs' shape and dtype."""
        if labels.shape == outputs.shape:
            return labels.astype(outputs.dtype)
        if labels.ndim == 1 and outputs.shape[1] == 1:
            return labels[:, None].astype(outputs.dtype)
        if labels.ndim == 1 and self.takes_classes:
            return jax.nn.one_hot(labels.astype(jnp.int32), outputs.shape[1], dtype=outputs.dtype)
        classes = " or (batch,) classes" if self.takes_classes else ""
        raise ValueError(
            f"{type(self).__name__} expects labels of the outputs' shape {outputs.shape}{classes}, "
            f"received {labels.shape}; give one label for each output."
        )

    @abstractmethod
    def losses(self, outputs: Array, targets: Array) -> Array:
        """The loss of each row, shape (batch,)."""
        raise NotImplementedError(f"{type(self).__name__} has no losses.")

    def slopes(self, outputs: Array, targets: Array) -> Array:
        """The derivative of each row's loss by its outputs, of their shape."""
        losses, pullback = jax.vjp(lambda rows: self.losses(rows, targets), outputs)
        return pullback(jnp.ones_like(losses))[0]

    def metrics(self, outputs: Array, labels: Array) -> Array:
        """The metric of each row, shape (batch,): here the sum of squared differences of prediction and label."""
        return ((self.predict(outputs) - self.targets(outputs, labels)) ** 2).sum(axis=1)


@dataclass(frozen=True)
class SquaredError(Loss):
    """(o - t) ** 2, without a half."""

    def losses(self, outputs: Array, targets: Array) -> Array:
        return ((outputs - targets) ** 2).sum(axis=1)

    def slopes(self, outputs: Array, targets: Array) -> Array:
        return 2 * (outputs - targets)


@dataclass(frozen=True)
class AbsoluteError(Loss):
    """|o - t|."""

    def losses(self, outputs: Array, targets: Array) -> Array:
        return jnp.abs(outputs - targets).sum(axis=1)

    def slopes(self, outputs: Array, targets: Array) -> Array:
        return jnp.sign(outputs - targets)


@dataclass(frozen=True)
class Huber(Loss):
    """(o - t) ** 2 / 2 up to |o - t| = threshold, continued by its tangent (Huber 1964)."""

    threshold: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "(0, inf)", "threshold")

    def losses(self, outputs: Array, targets: Array) -> Array:
        distance = jnp.abs(outputs - targets)
        near = jnp.minimum(distance, self.threshold)
        return (near * (distance - near / 2)).sum(axis=1)

    def slopes(self, outputs: Array, targets: Array) -> Array:
        return jnp.clip(outputs - targets, -self.threshold, self.threshold)


@dataclass(frozen=True)
class Poisson(Loss):
    """rate - t * log(rate), the negative log-likelihood of counts t without the constant log(t!).

    Parameters
    ----------
    log_rate : bool, default True
        Whether the outputs are logarithms of rates, which overflow past 88 in float32, or rates. Rates below 1e-8
        continue the loss by its tangent, so that it stays finite and leads back.
    """

    log_rate: bool = True
    label_range = (0.0, math.inf)

    def predict(self, outputs: Array) -> Array:
        return jnp.exp(outputs) if self.log_rate else outputs

    def losses(self, outputs: Array, targets: Array) -> Array:
        if self.log_rate:
            return (jnp.exp(outputs) - targets * outputs).sum(axis=1)
        rate = jnp.maximum(outputs, 1e-8)
        return (outputs - targets * (jnp.log(rate) + (outputs - rate) / rate)).sum(axis=1)

    def slopes(self, outputs: Array, targets: Array) -> Array:
        if self.log_rate:
            return jnp.exp(outputs) - targets
        return 1 - targets / jnp.maximum(outputs, 1e-8)


@dataclass(frozen=True)
class CosineSimilarity(Loss):
    """1 - cos(o, t); the metric is the cosine.

    A zero vector has cosine 0 with every other, and its delta is -t / |t|: the way to the label.
    """

    metric = "cosine_similarity"
    least_outputs = 2

    def losses(self, outputs: Array, targets: Array) -> Array:
        return 1 - self.metrics(outputs, targets)

    def slopes(self, outputs: Array, targets: Array) -> Array:
        (unit_outputs, norms), (unit_targets, _) = _unit(outputs), _unit(targets)
        cosine = (unit_outputs * unit_targets).sum(axis=1, keepdims=True)
        return (cosine * unit_outputs - unit_targets) / norms

    def metrics(self, outputs: Array, labels: Array) -> Array:
        return (_unit(outputs)[0] * _unit(self.targets(outputs, labels))[0]).sum(axis=1)


def _unit(rows: Array) -> tuple[Array, Array]:
    """(rows of length 1, what they were divided by); zero rows are divided by 1."""
    largest = jnp.abs(rows).max(axis=1, keepdims=True)
    largest = jnp.where(largest > 0, largest, 1)  # else the squares of long rows overflow
    norms = largest * jnp.sqrt(((rows / largest) ** 2).sum(axis=1, keepdims=True))
    norms = jnp.where(norms > 0, norms, 1)
    return rows / norms, norms


@dataclass(frozen=True)
class ClassLoss(Loss):
    """Base of the losses of classifiers: a class is met by the largest output, or by the sign of the only one."""

    takes_classes = True
    metric = "accuracy"

    def metrics(self, outputs: Array, labels: Array) -> Array:
        targets = self.targets(outputs, labels)
        if outputs.shape[1] == 1:
            return _share_right(outputs > 0, targets > 0.5, outputs.dtype)
        return (outputs.argmax(axis=1) == targets.argmax(axis=1)).astype(outputs.dtype)


def _share_right(decisions: Array, truth: Array, dtype: jnp.dtype) -> Array:
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
    """

    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "[0, 1)", "label_smoothing")

    def targets(self, outputs: Array, labels: Array) -> Array:
        sharp = super().targets(outputs, labels)
        return (1 - self.label_smoothing) * sharp + self.label_smoothing / outputs.shape[1]


@dataclass(frozen=True)
class KLDivergence(SoftmaxLoss):
    """sum(t * log(t / softmax(o))), the divergence of the predicted distribution from distributions t."""

    takes_classes = False

    def losses(self, outputs: Array, targets: Array) -> Array:
        return super().losses(outputs, targets) + xlogy(targets, targets).sum(axis=1)

    slopes = SoftmaxLoss.slopes


@dataclass(frozen=True)
class SigmoidCrossEntropy(ClassLoss):
    """-t * log(sigmoid(o)) - (1 - t) * log(1 - sigmoid(o)) of independent labels t in [0, 1].

    Classes of several outputs are met one against all. Of labels (batch, outputs) the accuracy is the share of outputs
    whose sign is right.

    Parameters
    ----------
    label_smoothing : float, default 0
        Share in [0, 1) by which each label moves towards 1/2.
    """

    label_smoothing: float = 0.0
    label_range = (0.0, 1.0)
    gives_probabilities = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "[0, 1)", "label_smoothing")

    def targets(self, outputs: Array, labels: Array) -> Array:
        return (1 - self.label_smoothing) * super().targets(outputs, labels) + self.label_smoothing / 2

    def predict(self, outputs: Array) -> Array:
        return jax.nn.sigmoid(outputs)

    def losses(self, outputs: Array, targets: Array) -> Array:
        linear = jnp.maximum(outputs, 0) - outputs * targets
        return (linear + jnp.log1p(jnp.exp(-jnp.abs(outputs)))).sum(axis=1)

    def slopes(self, outputs: Array, targets: Array) -> Array:
        return jax.nn.sigmoid(outputs) - targets

    def metrics(self, outputs: Array, labels: Array) -> Array:
        if labels.shape != outputs.shape:
            return super().metrics(outputs, labels)
        return _share_right(outputs > 0, self.targets(outputs, labels) > 0.5, outputs.dtype)


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
