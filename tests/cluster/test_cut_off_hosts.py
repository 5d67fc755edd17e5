"""Hosts cut off in the middle of a fit and plugged in again: noticed soon, and the weights are those without.

Every test states within how many seconds; workers are to notice a silent host within 15.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hosts import Host
from long_fit import RECOVERY_SECONDS, training
from standalone import Driver, Standalone

NOTICE_SECONDS = 15 + 5  # 5 for Spark to hear of it, and for this machine to be busy


@pytest.mark.parametrize(
    ("rank", "strike", "undo"),
    [
        (0, lambda host: host.plug(False), lambda host: host.plug(True)),
        (1, lambda host: host.link(False), lambda host: host.link(True)),
    ],
    ids=["the packets of rank 0's host vanish", "the link of another is down"],
)
def test_a_host_that_is_cut_off_is_noticed_soon_and_replaced(
    patient: Driver,
    cluster: Standalone,
    undisturbed: str,
    tmp_path: Path,
    rank: int,
    strike: Callable[[Host], None],
    undo: Callable[[Host], None],
) -> None:
    with training(patient, cluster, tmp_path) as (fitting, there):
        watching = patient.start("await_failure", within=60)
        struck = time.time()
        strike(there[rank])
        try:
            noticed = patient.result(watching)
            told = patient.result(fitting, RECOVERY_SECONDS)
        finally:
            undo(there[rank])
    assert noticed - struck < NOTICE_SECONDS
    assert told["weights"] == undisturbed
    assert told["resumed"]


@pytest.mark.parametrize("who", ["worker", "driver"])
def test_a_host_cut_off_for_20_seconds_changes_nothing(
    patient: Driver, cluster: Standalone, undisturbed: str, tmp_path: Path, who: str
) -> None:
    with training(patient, cluster, tmp_path) as (fitting, there):
        host = there[0] if who == "worker" else cluster.driver_host
        host.plug(False)
        time.sleep(20)
        host.plug(True)
        told = patient.result(fitting, RECOVERY_SECONDS)
    assert told["weights"] == undisturbed
