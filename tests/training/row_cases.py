"""Rows with one part of features and one of labels, as tests make and choose them."""

from __future__ import annotations

from typing import Any

import jax

from sparkdl.training.data.batches import Rows


def rows_of(features: Any, labels: Any, weights: Any) -> Rows:
    """Rows of a network with one input and one output."""
    return Rows({"features": features}, {"label": labels}, weights)


def chosen(rows: Rows, which: Any) -> Rows:
    """Some of the rows, as NumPy indexes them."""
    return jax.tree.map(lambda part: part[which], rows)
