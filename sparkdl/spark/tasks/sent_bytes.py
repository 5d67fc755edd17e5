"""Bytes that the driver has sent to tasks, in each of the ways in which it may (see `spark/driver/remote.py`)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark import Broadcast


def of_broadcast(broadcast: Broadcast[bytes]) -> bytes:
    """Those of a broadcast variable."""
    return broadcast.value


def of_file(name: str) -> bytes:
    """Those of a file of a session over Spark Connect; RuntimeError if this session has no such file."""
    from pyspark import SparkFiles  # which a client without a Spark of its own has not

    try:
        return Path(SparkFiles.get(name)).read_bytes()
    except FileNotFoundError:
        raise RuntimeError(
            "The weights of a model are missing in this session; over Spark Connect, a stream runs in one of its own, "
            "where a model's transform works but not its registered function."
        ) from None


def as_sent(data: bytes) -> bytes:
    """Those of the plan itself."""
    return data
