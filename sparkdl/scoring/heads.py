"""What a model's columns are made of: functions of the network's outputs and of what its loss makes of them.

Outputs and predictions are of shape (n, outputs); a head gives (n,) or, for a column of lists, (n, k).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from sparkdl.arrays import Array

Function = Callable[[Array, Array], Array]


class Head(NamedTuple):
    """What a column is made of.

    Attributes
    ----------
    function : callable
        Of the outputs and predictions.
    output : str
        The name of the network's output that they are of.
    is_list : bool
        Whether the column holds lists.
    """

    function: Function
    output: str
    is_list: bool = False


Heads = dict[str, Head]  # by name of the column


def raw_scores(outputs: Array, predictions: Array) -> Array:
    """One score a class. The second of two ranks rows, as Spark's evaluators and OneVsRest read no other."""
    if outputs.shape[1] > 2:
        return outputs
    margin = outputs if outputs.shape[1] == 1 else (outputs[:, 1:] - outputs[:, :1]) / 2
    return np.concatenate([-margin, margin], axis=1)


def probabilities(outputs: Array, predictions: Array) -> Array:
    """One probability a class; independent ones, as of several sigmoids, are scaled to add up to 1."""
    if predictions.shape[1] == 1:
        return np.concatenate([1 - predictions, predictions], axis=1)
    total = predictions.sum(axis=1, keepdims=True)
    return np.divide(predictions, total, out=np.full_like(predictions, 1 / predictions.shape[1]), where=total > 0)


def classes(outputs: Array, predictions: Array, thresholds: tuple[float, ...] | None) -> Array:
    """The class of each row: of the largest score or, with thresholds, of the largest probability / threshold."""
    if thresholds is None:
        return raw_scores(outputs, predictions).argmax(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.nan_to_num(probabilities(outputs, predictions) / np.asarray(thresholds), nan=0.0).argmax(axis=1)


def every_prediction(outputs: Array, predictions: Array) -> Array:
    """All of the network's outputs on the label's scale, those of all positions one after another."""
    return predictions


def first_prediction(outputs: Array, predictions: Array) -> Array:
    """The network's only output on the label's scale."""
    return predictions[:, 0]


def every_output(outputs: Array, predictions: Array) -> Array:
    """All of the network's outputs."""
    return outputs


def first_output(outputs: Array, predictions: Array) -> Array:
    """The network's only output."""
    return outputs[:, 0]
