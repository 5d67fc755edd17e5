"""Tables of series, a row for each step, gathered into windows or whole series: what networks of sequences read."""

from __future__ import annotations

from sparkdl.spark.series_windows import SeriesWindows as SeriesWindows
