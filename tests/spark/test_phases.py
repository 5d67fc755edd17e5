"""The phases of a fit add up to its time, whatever the clock of its first worker's host says."""

from __future__ import annotations

import pytest

from sparkdl.spark.driver import cluster


@pytest.mark.parametrize(
    ("ahead", "spark", "back"), [(0, 2.0, 1.0), (0.5, 2.5, 0.5), (3600, 3.0, 0.0), (-0.5, 1.5, 1.5), (-3600, 0.0, 3.0)]
)
def test_a_clock_that_is_off_moves_no_more_than_what_is_before_and_after_the_workers(
    ahead: float, spark: float, back: float
) -> None:
    """A job from 100 to 110 s, workers from 102 to 109 s of the same clock, by another of which they tell."""
    workers = 102.0 + ahead, 109.0 + ahead
    began, ended = cluster._on_clock_of_workers((100.0, 110.0), workers)
    assert (workers[0] - began, ended - workers[1]) == (pytest.approx(spark), pytest.approx(back))
