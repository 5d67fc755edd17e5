"""A fit long enough for something to befall its hosts, and how long it may take to be over it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hosts import Host
from standalone import Driver, Standalone, wait_until

LONG = {"numWorkers": 2, "maxIter": 1000, "checkpointInterval": 25}
RECOVERY_SECONDS = 240.0


@contextmanager
def training(driver: Driver, cluster: Standalone, folder: Path) -> Iterator[tuple[str, list[Host]]]:
    """A fit that has written its first checkpoint, and the hosts that train.

    Hosts cut off before may come back only a minute later, as TCP tries again ever more seldom, and the master
    then ends executors that the driver still counts: a fit begun on one of them would be disturbed by that.
    """
    wait_until(cluster.is_whole, 150, driver.last_words)
    wait_until(lambda: not any(host.trainers() for host in cluster.workers), 20, driver.last_words)
    assert driver.run("await_slots", slots=3, within=100, steady=5) == 3
    fitting = driver.start("fit", checkpointDir=str(folder), **LONG)
    wait_until(lambda: list(folder.rglob("*.ckpt")), 100, driver.last_words)
    yield fitting, [host for host in cluster.workers if host.trainers()]
