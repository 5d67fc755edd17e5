"""Spark Connect from a host to a server on another one, of a cluster of further ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from standalone import Driver, Standalone, wait_until

CONNECT_PORT = 15002


@pytest.fixture(scope="module")
def connected_driver(cluster: Standalone) -> Iterator[Driver]:
    """A client on one host, of a server of Spark Connect on another, of a cluster of all."""
    with (
        cluster.connect_server(CONNECT_PORT) as address,
        cluster.driver(host=cluster.workers[2], **{"spark.remote": f"sc://{address}:{CONNECT_PORT}"}) as client,
    ):
        yield client


def test_from_another_host_a_model_lives_as_on_one_machine(
    connected_driver: Driver, laptop: Driver, tmp_path: Path
) -> None:
    there, here = (
        each.run("live", seconds=240, folder=str(tmp_path / name), workers=2)
        for name, each in (("there", connected_driver), ("here", laptop))
    )
    assert there == here


def test_tuning_and_own_layers_do_as_on_one_machine(connected_driver: Driver, laptop: Driver) -> None:
    for job, arguments in (("cross_validate", {"workers": 1, "parallelism": 1}), ("fit_own_layer", {"workers": 2})):
        there = connected_driver.run(job, seconds=240, **arguments)
        assert there == laptop.run(job, seconds=240, **arguments)


def test_a_killed_worker_is_replaced(
    connected_driver: Driver, cluster: Standalone, laptop: Driver, tmp_path: Path
) -> None:
    long = {"numWorkers": 2, "maxIter": 400, "checkpointInterval": 10}
    fitting = connected_driver.start("fit", checkpointDir=str(tmp_path), **long)
    wait_until(lambda: list(tmp_path.rglob("*.ckpt")), 100, connected_driver.last_words)
    assert any(host.kill_trainers() for host in cluster.workers)
    told = connected_driver.result(fitting, 240)
    assert told["resumed"]
    assert told["weights"] == laptop.run("fit", seconds=240, **long)["weights"]
