"""What the driver of a fit tells its tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class TaskPlan:
    """What the driver tells every task; plain values only.

    Attributes
    ----------
    training : dict
        A `Training` as JSON.
    workers : int
        Tasks of the stage.
    names : dict
        The user's column names, for messages: features, label, and, where they exist, weight and validation.
    features_dtype : str
        Of the features on the way to the device: uint8, float32 or float64.
    label_list : bool
        Whether the label column holds lists.
    device : str
        deviceType: auto, cpu or gpu.
    progress : dict or None
        Where to send progress: host, port, token.
    worker_logs : bool
        Whether to send there what workers print.
    initial : bytes or None
        Packed weights to start from (see `inference.py`).
    """

    training: dict[str, Any]
    workers: int
    names: dict[str, str]
    features_dtype: str
    label_list: bool
    device: str
    progress: dict[str, Any] | None
    worker_logs: bool
    initial: bytes | None
