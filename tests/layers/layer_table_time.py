"""The layers over time that test_layers.py proves."""

from __future__ import annotations

from layer_table import Row

from sparkdl.layers import BatchNorm, Conv, Dense, EachStep, Flatten, LastStep, TimeMax, TimeMean

OVER_TIME = [
    Row(LastStep(), (None, 3), refused=(4,)),
    Row(LastStep(), (4, 2, 3)),
    Row(TimeMean(), (None, 3), refused=(None,)),
    Row(TimeMean(), (4, 3)),
    Row(TimeMax(), (None, 3), refused=()),
    Row(TimeMax(), (4, 2)),
]

BY_STEP = [
    Row(EachStep([Conv(2, (2, 2)), Flatten(), Dense(3)]), (2, 3, 3, 1), refused=()),
    Row(EachStep(BatchNorm()), (4, 3)),
]
