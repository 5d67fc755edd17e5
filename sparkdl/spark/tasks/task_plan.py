"""What the driver of a fit tells its tasks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sparkdl.spark.tasks.row_bytes import Intake
from sparkdl.training.group.addresses import ANY_PORT


@dataclass(frozen=True)
class TaskPlan:
    """What the driver tells every task; plain values only.

    Attributes
    ----------
    trainings : list of dict
        A `Training` as JSON for every run on these rows.
    fit : str
        What no other fit is called.
    workers : int
        Tasks of the stage.
    intake : Intake
        What the rows are.
    device : str
        deviceType: auto, cpu or gpu.
    progress : dict or None
        Where to send progress: host, port, token.
    worker_logs : bool
        Whether to send there what workers print.
    initial : list of callable or None
        For every run what gives, on a worker, the bytes of weights to start from (see `weights.py`).
    ports : range
        Those that a worker may listen on.
    classes : bytes
        Of the user's own layers and losses, as `shipping.py` packs them.
    even : bool
        Whether workers may hand each other rows, in plain TCP, until all hold as many.
    """

    trainings: list[dict[str, Any]]
    fit: str
    workers: int
    intake: Intake
    device: str
    progress: dict[str, Any] | None
    worker_logs: bool
    initial: list[Callable[[], bytes] | None]
    ports: range = ANY_PORT
    classes: bytes = b""
    even: bool = True
