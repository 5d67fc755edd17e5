"""Applications on hosts that are really apart: several at once, without executors, on addresses and ports of theirs."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from pathlib import Path

import pytest
from standalone import Driver, Standalone, wait_until

SHORT = {"numWorkers": 2, "maxIter": 3}


@pytest.fixture(scope="module")
def weights(laptop: Driver) -> str:
    """What `SHORT` comes to on one machine."""
    return laptop.run("fit", **SHORT)["weights"]


def test_two_applications_share_the_cluster(cluster: Standalone, laptop: Driver, weights: str) -> None:
    with ExitStack() as stack:
        large, small = (
            stack.enter_context(cluster.driver(**{"spark.cores.max": cores, "spark.driver.memory": "512m"}))
            for cores in "21"
        )
        asked = large.start("fit", **SHORT), small.start("fit", numWorkers=1, maxIter=3)
        told = large.result(asked[0])["weights"], small.result(asked[1])["weights"]
    assert told == (weights, laptop.run("fit", numWorkers=1, maxIter=3)["weights"])


def test_two_fits_of_one_driver_have_slots_of_their_own(cluster: Standalone, laptop: Driver, weights: str) -> None:
    one = {"numWorkers": 1, "maxIter": 3}
    with cluster.driver() as driver:
        told = driver.run("fit_both", first=SHORT, second=one)
    assert [each["weights"] for each in told] == [weights, laptop.run("fit", **one)["weights"]]
    assert len(set(told[0]["hosts"])) == 2


def test_executors_lost_between_two_fits_are_not_missed(cluster: Standalone, weights: str) -> None:
    with cluster.driver() as driver:
        assert driver.run("fit", **SHORT)["weights"] == weights
        for host in cluster.workers[:2]:
            assert host.kill("CoarseGrainedExecutorBackend")
        assert driver.run("fit", **SHORT)["weights"] == weights


def test_executors_lost_while_rows_are_read_are_waited_for(cluster: Standalone, weights: str, tmp_path: Path) -> None:
    """Spark's own check of a barrier stage's slots would end its context, and with it the session."""
    with cluster.driver() as driver:
        fitting = driver.start("fit_read_late", folder=str(tmp_path), **SHORT)
        wait_until((tmp_path / "waiting").exists, 60, driver.last_words)
        for host in cluster.workers[:2]:
            assert host.kill("deploy.worker.Worker", signal.SIGSTOP)  # which would start another executor at once
            assert host.kill("CoarseGrainedExecutorBackend")
        try:
            assert driver.run("await_fewer_slots", than=2, within=60) < 2
            (tmp_path / "read").touch()
            assert driver.run("await_idleness", within=60)
        finally:
            for host in cluster.workers[:2]:
                host.kill("deploy.worker.Worker", signal.SIGCONT)
        assert driver.result(fitting)["weights"] == weights
        assert driver.run("fit", **SHORT)["weights"] == weights


def test_a_fit_is_not_starved_by_small_jobs_and_speculation(cluster: Standalone, weights: str) -> None:
    settings = {"spark.scheduler.mode": "FAIR", "spark.speculation": "true", "spark.speculation.interval": "50ms"}
    with cluster.driver(**settings) as busy:
        told = busy.run("fit_in_a_flood", seconds=240, pool="training", **SHORT)
    assert told["weights"] == weights
    assert told["flood"] > 3


def test_dynamic_allocation_is_refused_before_any_job(cluster: Standalone) -> None:
    settings = {"spark.dynamicAllocation.enabled": "true", "spark.dynamicAllocation.shuffleTracking.enabled": "true"}
    with cluster.driver(**settings) as growing:
        told = growing.outcome(growing.start("fit", **SHORT), 60)
    assert told["error"] == "ValueError"
    assert "spark.dynamicAllocation.enabled is true" in told["message"]


def test_workers_listen_on_their_own_address_and_the_ports_they_are_given(
    cluster: Standalone, weights: str, tmp_path: Path
) -> None:
    """gloo's port, one a worker, is the system's choice: it has no option for it."""
    long = {"numWorkers": 2, "maxIter": 400, "checkpointInterval": 10, "checkpointDir": str(tmp_path)}
    with cluster.driver(**{"sparkdl.ports": "42000-42009"}) as bounded:
        fitting = bounded.start("fit", progress="on", **long)
        wait_until(lambda: list(tmp_path.rglob("*.ckpt")), 100, bounded.last_words)
        heard = {host.name: host.listening("python", "sparkdl") for host in [cluster.driver_host, *cluster.workers]}
        bounded.result(fitting)
    assert 42000 in {port for address, port in heard["host0"] if address == cluster.driver_host.address}  # progress
    training = [host for host in cluster.workers if heard[host.name]]
    assert len(training) == 2
    outside = 0
    for host in training:
        assert {address for address, _ in heard[host.name]} == {host.address}
        outside += sum(port not in range(42000, 42010) for _, port in heard[host.name])
    assert outside == 2, heard  # gloo's
