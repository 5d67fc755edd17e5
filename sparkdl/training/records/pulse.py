"""When a worker last got on with its job, which its heart-beat, being of another thread, cannot feel by itself."""

from __future__ import annotations

import time

_last: float | None = None  # of this process, which has one job


def beat() -> None:
    """Note that the job gets on: that it starts, that a step is done, that a phase such as compiling begins or ends."""
    global _last
    _last = time.monotonic()


def idle() -> float:
    """Seconds since the last beat; 0 before the first, while there is no job yet."""
    return 0.0 if _last is None else time.monotonic() - _last
