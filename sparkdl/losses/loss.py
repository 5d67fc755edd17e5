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

from sparkdl.moves import Move
from sparkdl.specs import Spec, refuse_stale


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
    one_class: ClassVar[bool] = False  # whether rows of one class are enough to learn from
    whole_batch: ClassVar[bool] = False  # whether a row's loss depends on the other rows, of all workers
    label_group: ClassVar[int] = 0  # labels come so many together, and a row may have fewer: -1 fills it up

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        refuse_stale(cls, Loss, "losses", "slopes")

    def labels_a_row(self, output_shape: tuple[int, ...]) -> int:
        """How many labels a row has, unless it is one class: by default one for each output."""
        return math.prod(output_shape)

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

    def mask_shape(self, output_shape: tuple[int, ...]) -> tuple[int, int] | None:
        """Height and width of an image whose pixels are the labels of a row, where such will do; None elsewhere."""
        return None

    def names_places(self, output_shape: tuple[int, ...]) -> bool:
        """Whether the labels say where in an image something is, and so follow layers that move what is in it."""
        return False

    def check_moved(self, output_shape: tuple[int, ...], size: tuple[int, int], fill: str) -> None:
        """ValueError if labels that name places cannot follow a move of what is in images.

        Parameters
        ----------
        output_shape : tuple of int
        size : tuple of int
            Height and width of the images.
        fill : str
            What is shown from beyond their edges, of `moves.FILLS`; "" if nothing is.
        """

    def moved(self, labels: Array, output_shape: tuple[int, ...], move: Move) -> Array:
        """Encoded labels that name places, as they are after a move."""
        raise NotImplementedError(f"{type(self).__name__} has labels that name no places.")

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
        labels, taken = labels[:, None] if labels.ndim == 1 else labels, self.labels_a_row(output_shape)
        if labels.shape[1:] != (taken,):
            wanted = "one label" if taken == 1 else f"{taken} labels"
            remedy = "give one label an output" if taken == count else f"give a row {wanted}"
            raise ValueError(
                f"{type(self).__name__} takes {taken} labels a row, since the network has {count} outputs, "
                f"received {math.prod(labels.shape[1:])}; {remedy}."
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
        """The labels as what each output should be: (batch, outputs) of the outputs' dtype; one column of one label."""
        taken = self.labels_a_row(outputs.shape[1:])
        if labels.shape == (len(outputs), taken):
            return labels.astype(outputs.dtype)
        if labels.ndim == 1 and taken == 1:
            return labels[:, None].astype(outputs.dtype)
        if labels.ndim == 1 and self.takes_classes:
            return jax.nn.one_hot(labels.astype(jnp.int32), outputs.shape[1], dtype=outputs.dtype)
        classes = " or (batch,) classes" if self.takes_classes else ""
        raise ValueError(
            f"{type(self).__name__} expects labels of shape {(len(outputs), taken)}{classes}, received {labels.shape}."
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
