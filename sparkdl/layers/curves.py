"""Activations of recurrent layers: those whose slopes their values tell, so that the way back needs these alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from sparkdl.layers.base import Array, Layer


class Curve(NamedTuple):
    """A function of each number.

    Attributes
    ----------
    value : callable
        y of z.
    slope : callable
        dy/dz of y.
    """

    value: Callable[[Array], Array]
    slope: Callable[[Array], Array]


def sigmoid(z: Array) -> Array:
    """1 / (1 + exp(-z)) as a tanh, which XLA vectorizes and does not compute anew for every reader."""
    return jnp.tanh(z * 0.5) * 0.5 + 0.5


def _hard_sigmoid(slope: float) -> Curve:
    return Curve(lambda z: jnp.clip(z * slope + 0.5, 0, 1), lambda y: jnp.where((y > 0) & (y < 1), slope, 0))


CURVES: dict[str, Curve] = {
    "elu": Curve(jax.nn.elu, lambda y: jnp.where(y > 0, 1, y + 1)),
    "hard_sigmoid": _hard_sigmoid(1 / 6),  # as the layer HardSigmoid
    "hard_sigmoid_0.2": _hard_sigmoid(0.2),  # as of Theano, Keras before version 3 and Deeplearning4j
    "linear": Curve(lambda z: z, jnp.ones_like),
    "relu": Curve(lambda z: jnp.maximum(z, 0), lambda y: (y > 0).astype(y.dtype)),
    "sigmoid": Curve(sigmoid, lambda y: y * (1 - y)),
    "softsign": Curve(jax.nn.soft_sign, lambda y: (1 - abs(y)) ** 2),
    "tanh": Curve(jnp.tanh, lambda y: 1 - y * y),
}


def check_curves(layer: Layer, *fields: str) -> None:
    """ValueError unless each of these fields of a layer names one."""
    for field in fields:
        name = getattr(layer, field)
        if not isinstance(name, str) or name not in CURVES:
            raise ValueError(
                f"{field} of {type(layer).__name__} must be one of {', '.join(CURVES)}, received {name!r}."
            )
