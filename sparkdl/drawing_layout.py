"""Where the boxes of a drawing stand: in rows by depth, near what they read, with lines that pass between boxes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

LANE = 0.3  # inches that a line takes in a row that it passes
STRAIGHT = 20.0  # how much more a row after row of one line or one box resists bends than what parts or meets
SWEEPS, ROUNDS = 8, 300


class Placed(NamedTuple):
    """Boxes and lines in place.

    Attributes
    ----------
    rows : list of int
        Of every box, from the top.
    middles : list of float
        Of every box, in inches from the left edge of the drawing.
    lines : list of (int, int, list of float)
        From a box to a box that reads it, and where the line passes the rows between.
    width : float
        Of the drawing, in inches.
    """

    rows: list[int]
    middles: list[float]
    lines: list[tuple[int, int, list[float]]]
    width: float


def placed(sources: Sequence[Sequence[int]], widths: Sequence[float], gap: float) -> Placed:
    """A row for every depth: what reads nothing on top, all else below what it reads.

    Parameters
    ----------
    sources : sequence of sequence of int
        By box the boxes above that it reads.
    widths : sequence of float
        Of the boxes, in inches.
    gap : float
        Inches between two boxes, at least.
    """
    rows: list[int] = []
    for own in sources:
        rows.append(1 + max((rows[source] for source in own), default=-1))
    levels: list[list[int]] = [[] for _ in range(max(rows) + 1)]
    for box, row in enumerate(rows):
        levels[row].append(box)
    points = list(widths)  # boxes, then places where lines pass a row
    edges: list[tuple[int, int]] = []
    passed: dict[tuple[int, int], int] = {}
    for source, last in _lanes(sources, rows).items():
        above = source
        for row in range(rows[source] + 1, last):
            passed[source, row] = len(points)
            edges.append((above, len(points)))
            levels[row].append(above := len(points))
            points.append(LANE)
    for box, own in enumerate(sources):
        edges += [(passed.get((source, rows[box] - 1), source), box) for source in own]
    levels = _ordered(levels, edges)
    middles = _spread(levels, edges, np.array(points), gap)
    lines = [
        (source, box, [middles[passed[source, row]] for row in range(rows[source] + 1, rows[box])])
        for box, own in enumerate(sources)
        for source in own
    ]
    width = max(middle + size / 2 for middle, size in zip(middles, points, strict=True))
    return Placed(rows, middles[: len(widths)], lines, width)


def _lanes(sources: Sequence[Sequence[int]], rows: Sequence[int]) -> dict[int, int]:
    """By box the last row in which another reads it; its lines run together up to where they part."""
    last: dict[int, int] = {}
    for box, own in enumerate(sources):
        last |= {source: max(rows[box], last.get(source, 0)) for source in own}
    return dict(sorted(last.items()))


def _ordered(levels: list[list[int]], edges: list[tuple[int, int]]) -> list[list[int]]:
    """The order of each row in which fewest lines cross, of those that sorting by the middle of neighbours gives."""
    beside: list[dict[int, list[int]]] = [{}, {}]  # neighbours above, and below
    for above, below in edges:
        beside[0].setdefault(below, []).append(above)
        beside[1].setdefault(above, []).append(below)
    best, fewest = levels, _crossings(levels, edges)
    for sweep in range(SWEEPS):
        levels = [list(level) for level in levels]
        side = beside[sweep % 2]
        at = {point: place for level in levels for place, point in enumerate(level)}
        for level in levels if sweep % 2 == 0 else reversed(levels):
            wanted = {p: float(np.mean([at[n] for n in side[p]])) if p in side else float(at[p]) for p in level}
            level.sort(key=wanted.__getitem__)
            at |= {point: place for place, point in enumerate(level)}
        if (count := _crossings(levels, edges)) < fewest:
            best, fewest = levels, count
    return best


def _crossings(levels: list[list[int]], edges: list[tuple[int, int]]) -> int:
    row = {point: number for number, level in enumerate(levels) for point in level}
    at = {point: place for level in levels for place, point in enumerate(level)}
    count = 0
    for number in range(len(levels) - 1):
        ends = np.array([(at[above], at[below]) for above, below in edges if row[above] == number]).reshape(-1, 2)
        apart = np.sign(ends[:, None] - ends[None])
        count += int((apart.prod(axis=2) < 0).sum()) // 2
    return count


def _spread(levels: list[list[int]], edges: list[tuple[int, int]], widths: np.ndarray, gap: float) -> list[float]:
    """Middles that lie near those of neighbours, with no two of a row closer than they may be."""
    links = np.zeros((len(widths), len(widths)))
    leaving, arriving = (Counter(edge[end] for edge in edges) for end in (0, 1))
    for above, below in edges:
        links[above, below] = STRAIGHT if leaving[above] == arriving[below] == 1 else 1.0
    links += links.T
    middles = np.zeros(len(widths))
    apart = [np.cumsum([0.0, *((widths[a] + widths[b]) / 2 + gap for a, b in pairwise(level))]) for level in levels]
    for level, offsets in zip(levels, apart, strict=True):
        middles[level] = offsets - offsets[-1] / 2
    for turn in range(ROUNDS):
        for level, offsets in list(zip(levels, apart, strict=True))[:: 1 if turn % 2 else -1]:
            weights = links[level].sum(axis=1)
            wanted = np.where(weights > 0, links[level] @ middles / np.maximum(weights, 1e-9), middles[level])
            middles[level] = _rising(wanted - offsets, np.maximum(weights, 1e-9)) + offsets
    return list(middles - (middles - widths / 2).min())


def _rising(wanted: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The numbers nearest to `wanted`, by weighted squares, none of which is less than the one before it."""
    pools: list[list[float]] = []  # value, weight and length of runs that share a value
    for value, weight in zip(wanted, weights, strict=True):
        pools.append([value, weight, 1])
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (low, one, few), (high, other, more) = pools.pop(), pools.pop()
            pools.append([(low * one + high * other) / (one + other), one + other, few + more])
    return np.repeat([pool[0] for pool in pools], [int(pool[2]) for pool in pools])
