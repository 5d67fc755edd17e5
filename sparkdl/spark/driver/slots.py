"""Lets concurrent fits of an application take turns: each waits for its slots in the order in which they came."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from pyspark.sql import SparkSession

LOGGER = logging.getLogger("sparkdl.slots")
WAKE_SECONDS = 0.5


class Queue:
    """Slots handed out first in, first out: a small request does not overtake a large one, which would starve."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: list[Ticket] = []
        self._running: list[Ticket] = []

    @contextlib.contextmanager
    def taken(self, slots: int, total: int) -> Iterator[None]:
        """A context that holds `slots` of `total`, entered once all that came before hold or held theirs.

        There is no deadline, since those before may train for days. Whatever interrupts the waiting thread, such as a
        KeyboardInterrupt, gives up its place.
        """
        ticket = Ticket(min(slots, total))
        try:
            with self._changed:
                self._waiting.append(ticket)
                if not self._fits(ticket, total):
                    LOGGER.info(
                        "This fit waits for %d of %d slots; before it: %d running, %d waiting.",
                        *(ticket.slots, total, len(self._running), len(self._waiting) - 1),
                    )
                # In pieces, as a signal that another thread received is handled only when this one wakes up.
                while not self._changed.wait_for(lambda: self._fits(ticket, total), WAKE_SECONDS):
                    pass
                self._waiting.remove(ticket)
                self._running.append(ticket)
                self._changed.notify_all()
            yield
        finally:
            with self._changed:
                for tickets in (self._waiting, self._running):
                    if ticket in tickets:
                        tickets.remove(ticket)
                self._changed.notify_all()

    def _fits(self, ticket: Ticket, total: int) -> bool:
        used = sum(other.slots for other in self._running)
        return self._waiting[0] is ticket and used + ticket.slots <= total


@dataclass(eq=False)
class Ticket:
    """One fit's place in the queue."""

    slots: int


_queues: defaultdict[str, Queue] = defaultdict(Queue)  # by application


def taken(session: SparkSession, workers: int, total: int | None) -> contextlib.AbstractContextManager[None]:
    """A context in which a fit may start its barrier job: it holds that many slots of the session's application.

    Spark runs a barrier stage when all of its slots are free at once, in no promised order, and logs each failed try;
    a fit that waits here has not read its rows yet, and its deadlines have not begun.

    Parameters
    ----------
    session : SparkSession
        Sessions of one application share its slots.
    workers : int
        Slots to take; more than there are are taken for all there are.
    total : int or None
        Slots that the application has. None, where nobody knows: then nothing waits.
    """
    if total is None:
        return contextlib.nullcontext()
    return _queues[session.conf.get("spark.app.id") or ""].taken(workers, total)
