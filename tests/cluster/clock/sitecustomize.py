"""The clock of Python is CLOCK_AHEAD seconds ahead of the machine's in every process with this folder on its path.

Java's and C++'s clocks are the machine's still.
"""

from __future__ import annotations

import os
import time

AHEAD = int(os.environ.get("CLOCK_AHEAD", "0"))

if AHEAD:
    seconds, nanoseconds = time.time, time.time_ns
    time.time = lambda: seconds() + AHEAD
    time.time_ns = lambda: nanoseconds() + AHEAD * 10**9
