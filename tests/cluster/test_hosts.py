"""Fits, models and all that is done with them on hosts that are really apart, as on one machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from hosts import Host
from standalone import Driver, Standalone


@pytest.mark.parametrize("workers", [1, 3])
def test_a_fit_on_hosts_gives_the_weights_of_a_fit_on_one_machine(driver: Driver, laptop: Driver, workers: int) -> None:
    there = driver.run("fit", numWorkers=workers, maxIter=3)
    here = laptop.run("fit", numWorkers=workers, maxIter=3)
    assert there["weights"] == here["weights"]
    assert len(set(there["hosts"])) == workers
    assert max(there["rows"]) - min(there["rows"]) <= 1  # some came from one host to another


def test_a_model_lives_on_hosts_as_on_one_machine(driver: Driver, laptop: Driver, tmp_path: Path) -> None:
    """It is fitted by two workers, scores, is evaluated, saved in a shared folder, loaded, asked in SQL, streamed."""
    there, here = (
        each.run("live", seconds=240, folder=str(tmp_path / name), workers=2)
        for name, each in (("there", driver), ("here", laptop))
    )
    assert there == here
    assert there["loaded"] == [there["weights"], there["scored"]]
    assert there["stream"] == there["scored"]
    assert there["scored"].startswith("240 rows")


def test_cross_validation_on_hosts_finds_what_it_finds_on_one_machine(driver: Driver, laptop: Driver) -> None:
    there = driver.run("cross_validate", seconds=240, workers=1, parallelism=2)
    assert there == laptop.run("cross_validate", seconds=240, workers=1, parallelism=1)
    assert there[1] > there[0]


def test_series_of_any_length_train_on_hosts_as_on_one_machine(driver: Driver, laptop: Driver) -> None:
    """A long table becomes rows, batches are by length, steps have labels, and back-propagation is truncated."""
    there = driver.run("fit_sequences", seconds=240, workers=3)
    assert there == laptop.run("fit_sequences", seconds=240, workers=3)
    assert 0.5 < there["fill"] < 1


def test_hosts_that_know_each_other_by_ipv6_train_together(hosts: list[Host], laptop: Driver) -> None:
    with Standalone([host.over_ipv6() for host in hosts[:3]]) as cluster, cluster.driver() as driver:
        there = driver.run("fit", numWorkers=2, maxIter=3, progress="on")
    assert there["weights"] == laptop.run("fit", numWorkers=2, maxIter=3)["weights"]
    assert len(set(there["hosts"])) == 2
    assert all(host.count(":") > 1 for host in there["hosts"])
