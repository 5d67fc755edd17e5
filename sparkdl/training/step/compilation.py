"""Compiled programs, kept on disk so that the next fit of equal shapes need not compile again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

try:
    from jax._src import distributed  # there is no public name for what `kept_by_every_process` changes
except ImportError:  # of a JAX that keeps it elsewhere: programs of the first process alone are kept
    distributed = None  # type: ignore[assignment]


@contextmanager
def kept_by_every_process() -> Iterator[None]:
    """Have all processes of a group write to JAX's compilation cache while they compile, not only the first.

    JAX spares shared file systems the others' copies. But a worker's cache is on its own machine's disk, and its keys
    differ from rank to rank, so that without this every rank but the first would compile anew in every fit while the
    first waits for them.
    """
    state: Any = getattr(distributed, "global_state", None)
    rank = getattr(state, "process_id", 0)
    if not rank:
        yield
        return
    state.process_id = 0
    try:
        yield
    finally:
        state.process_id = rank
