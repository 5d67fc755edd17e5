"""Hosts that do not come back while a fit waits: it says which, and a later fit goes on from its checkpoint."""

from __future__ import annotations

from pathlib import Path

from long_fit import LONG, RECOVERY_SECONDS, training
from standalone import Driver, Standalone, wait_until


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
