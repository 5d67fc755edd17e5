"""Hosts slow, full, killed or lost for good: a fit ends with the weights of one undisturbed, or says which and why."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

import pytest
from hosts import LOCAL
from long_fit import LONG, RECOVERY_SECONDS, training
from standalone import Driver, Standalone, wait_until

QUOTAS = Path("/sys/fs/cgroup/cpu")


def test_a_killed_executor_is_replaced(patient: Driver, cluster: Standalone, undisturbed: str, tmp_path: Path) -> None:
    with training(patient, cluster, tmp_path) as (fitting, there):
        assert there[1].kill("CoarseGrainedExecutorBackend")
        told = patient.result(fitting, RECOVERY_SECONDS)
    assert told["weights"] == undisturbed
    assert told["resumed"]


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
    assert patient.run("await_slots", seconds=RECOVERY_SECONDS, slots=3, within=150, steady=10) == 3
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
