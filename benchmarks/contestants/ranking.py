"""How well scores rank: the area under the ROC curve, and of recommendations the share found among the first k."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def roc_area(scores: Array, labels: Array) -> float:
    """The chance that a row of label 1 has a larger score than one of label 0; equal scores count half."""
    found, places, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[places]
    positive = labels == 1
    ones = positive.sum()
    return float((ranks[positive].sum() - ones * (ones + 1) / 2) / (ones * (len(labels) - ones)))


def recall(scores: Array, seen: Mapping[int, Array], wanted: Mapping[int, Array], k: int = 20) -> float:
    """The mean over users of the share of the items they want that is among the k best scores they have not seen.

    Parameters
    ----------
    scores : array (users, items)
    seen, wanted : dict of arrays
        Items by user. Who wants none does not count; -1 stands for an item without a score, which nobody finds.
    k : int, default 20
    """
    shares = []
    for user, items in wanted.items():
        if not len(items):
            continue
        row = scores[user].astype(np.float64)
        row[seen.get(user, np.empty(0, int))] = -np.inf
        best = np.argsort(-row, kind="stable")[:k]
        best = best[np.isfinite(row[best])]
        shares.append(np.isin(items, best).mean())
    return float(np.mean(shares))
