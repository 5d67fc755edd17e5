"""What befalls hosts in the middle of a fit: it ends with the weights of a fit undisturbed, or says which host and why.

Every test states within how many seconds. Spark itself counts an executor as lost after `spark.network.timeout`, which
is half of its usual two minutes here; workers are to notice a silent host within 15 seconds.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hosts import LOCAL, Host
from standalone import Driver, Standalone, wait_until

LONG = {"numWorkers": 2, "maxIter": 1000, "checkpointInterval": 25}
NOTICE_SECONDS = 15 + 5  # 5 for Spark to hear of it, and for this machine to be busy
RECOVERY_SECONDS = 240.0
QUOTAS = Path("/sys/fs/cgroup/cpu")


@pytest.fixture(scope="module")
def patient(cluster: Standalone) -> Iterator[Driver]:
    """An application that has all slots, and loses executors after a minute."""
    settings = {"spark.network.timeout": "60s", "spark.executor.heartbeatInterval": "5s"}
    with cluster.driver(**settings) as made:
        yield made


@pytest.fixture(scope="module")
def undisturbed(laptop: Driver) -> str:
    """The weights that all are to come to."""
    return laptop.run("fit", seconds=RECOVERY_SECONDS, **LONG)["weights"]


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


def test_a_killed_executor_is_replaced(patient: Driver, cluster: Standalone, undisturbed: str, tmp_path: Path) -> None:
    with training(patient, cluster, tmp_path) as (fitting, there):
        assert there[1].kill("CoarseGrainedExecutorBackend")
        told = patient.result(fitting, RECOVERY_SECONDS)
    assert told["weights"] == undisturbed
    assert told["resumed"]


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(
    ("strike", "undo"),
    [
        (lambda host: host.link(False), lambda host: host.link(True)),
        (lambda host: host.plug(False), lambda host: host.plug(True)),
    ],
    ids=["its link is down", "its packets vanish"],
)
def test_a_host_that_is_cut_off_is_noticed_soon_and_replaced(
    patient: Driver,
    cluster: Standalone,
    undisturbed: str,
    tmp_path: Path,
    strike: Callable[[Host], None],
    undo: Callable[[Host], None],
    rank: int,
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


def test_a_driver_cut_off_for_good_leaves_nothing_that_trains(
    patient: Driver, cluster: Standalone, undisturbed: str, tmp_path: Path
) -> None:
    with training(patient, cluster, tmp_path) as (fitting, there):
        cluster.driver_host.plug(False)
        before = cluster.registrations()
        try:
            wait_until(lambda: not any(host.trainers() for host in there), RECOVERY_SECONDS, patient.last_words)
            told = patient.outcome(fitting, RECOVERY_SECONDS)
        finally:
            cluster.driver_host.plug(True)
    assert told["error"] == "RuntimeError"
    assert "numWorkers is 2 but the cluster has 0 slots since Spark lost its executors on" in told["message"]
    assert [host.address for host in there if host.address not in told["message"]] == [], told["message"]
    # The master was cut off too: workers register with it again one by one, and it ends the executors they then have.
    wait_until(lambda: all(map(int.__gt__, cluster.registrations(), before)), 100, patient.last_words)
    assert patient.run("await_slots", slots=3, within=100, steady=10) == 3
    resumed = patient.run("fit", seconds=RECOVERY_SECONDS, checkpointDir=str(tmp_path), **LONG)
    assert resumed["weights"] == undisturbed
    assert resumed["resumed"]


def test_without_a_host_to_replace_it_the_fit_says_which_is_lost(
    patient: Driver, cluster: Standalone, undisturbed: str, tmp_path: Path
) -> None:
    with training(patient, cluster, tmp_path) as (fitting, there):
        lost = [there[1], next(host for host in cluster.workers if host not in there)]
        for host in lost:
            host.plug(False)
        try:
            told = patient.outcome(fitting, RECOVERY_SECONDS)
        finally:
            for host in lost:
                host.plug(True)
    assert told["error"] == "RuntimeError"
    assert "numWorkers is 2 but the cluster has 1 slots since Spark lost its executors on" in told["message"]
    assert [host.address for host in lost if host.address not in told["message"]] == [], told["message"]
    resumed = patient.run("fit", seconds=RECOVERY_SECONDS, checkpointDir=str(tmp_path), **LONG)
    assert resumed["weights"] == undisturbed
    assert resumed["resumed"]


@pytest.mark.skipif(
    not os.access(QUOTAS, os.W_OK), reason="this machine has no control group of processors to write to"
)
def test_a_slow_host_is_waited_for(patient: Driver, cluster: Standalone, undisturbed: str, tmp_path: Path) -> None:
    group = QUOTAS / f"sparkdl-{os.getpid()}"
    with training(patient, cluster, tmp_path) as (fitting, there):
        group.mkdir()
        try:
            (group / "cpu.cfs_quota_us").write_text("10000")  # of 100,000
            for pid in there[1].processes():
                with suppress(OSError):
                    (group / "cgroup.procs").write_text(str(pid))
            time.sleep(20)
            (group / "cpu.cfs_quota_us").write_text("-1")
            told = patient.result(fitting, RECOVERY_SECONDS)
        finally:
            for pid in (group / "cgroup.procs").read_text().split():
                with suppress(OSError):
                    (QUOTAS / "cgroup.procs").write_text(pid)
            group.rmdir()
    assert told["weights"] == undisturbed
    assert not told["resumed"]


def test_a_full_disk_is_one_sentence_with_its_host(patient: Driver, cluster: Standalone, undisturbed: str) -> None:
    full = cluster.workers[-1]
    assert patient.run("await_slots", slots=3, within=100) == 3
    filling = full.folder / LOCAL / "filling"
    try:
        with pytest.raises(OSError, match="No space left"), filling.open("wb", buffering=0) as stream:
            while True:
                stream.write(bytes(1 << 20))
        told = patient.outcome(patient.start("fit", numWorkers=3, maxIter=3), RECOVERY_SECONDS)
    finally:
        filling.unlink()
    assert told["error"] == "RuntimeError"
    assert full.address in told["message"]
    assert "free or add disk there" in told["message"]
    assert "\n\tat " not in told["message"]
