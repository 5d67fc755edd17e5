"""Whether probabilities mean what they say: reliability by bins of confidence, and the expected calibration error."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sparkdl.arrays import Array
from sparkdl.specs import Spec

BINS = 15  # as in Guo et al. 2017
EDGES = np.linspace(0, 1, BINS + 1)


@dataclass(frozen=True)
class Calibration(Spec):
    """A reliability diagram of 15 equally wide bins (low, high] of probability (Guo et al. 2017).

    Of two classes the probability is the positive class's and the event that class; of more, the largest probability
    and that its class is right; of labels, each label's own.

    Attributes
    ----------
    weight : tuple of float
        Weight of the rows in each bin.
    confidence, frequency : tuple of float or None
        Mean probability of the rows in each bin, and how often the event came true; None for empty bins.
    expected_error : float
        Expected calibration error: the mean of |confidence - frequency| over bins, by weight.
    """

    weight: tuple[float, ...]
    confidence: tuple[float | None, ...]
    frequency: tuple[float | None, ...]
    expected_error: float


def calibration_sums(probabilities: Array, events: Array, weights: Array) -> Array:
    """(3, 15) sums by bin of weight, weight * probability and weight * event, of arrays (n,)."""
    bins = np.searchsorted(EDGES[1:-1], probabilities)
    return np.stack([np.bincount(bins, weights * part, BINS) for part in (1.0, probabilities, events)])


def calibration(sums: Array) -> Calibration:
    """The diagram that `calibration_sums` add up to."""
    weight, probability, event = sums
    used = weight > 0
    safe = np.where(used, weight, 1)
    return Calibration(
        tuple(weight.tolist()),
        tuple(float(value) if there else None for value, there in zip(probability / safe, used, strict=True)),
        tuple(float(value) if there else None for value, there in zip(event / safe, used, strict=True)),
        float(np.abs(probability - event).sum() / weight.sum()),
    )
