"""Three hosts with a Spark cluster, started once for all tests of this folder, and gone afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hosts import Host, connected, missing
from long_fit import LONG, RECOVERY_SECONDS
from standalone import Driver, Standalone

WHY_NOT = missing()
LONGEST = "test_host_faults.py", "test_cut_off_hosts.py", "test_applications.py"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what takes hosts where there can be none; the files that take longest come first."""
    items.sort(key=lambda item: LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST))
    for item in items:
        if WHY_NOT and item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.skip(reason=WHY_NOT))


@pytest.fixture(scope="session")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Host]]:
    """host0, of the master and of drivers, and three hosts of workers; nothing of ours runs there in the end."""
    with connected(4, tmp_path_factory.mktemp("hosts")) as made:
        yield made


@pytest.fixture(scope="session")
def cluster(hosts: list[Host]) -> Iterator[Standalone]:
    """Spark's standalone cluster on these hosts, of one slot each."""
    with Standalone(hosts) as made:
        yield made


@pytest.fixture(scope="module")
def driver(cluster: Standalone) -> Iterator[Driver]:
    """An application that has all slots, so that no other one runs until its tests are over."""
    with cluster.driver() as made:
        yield made


@pytest.fixture(scope="session")
def laptop(cluster: Standalone) -> Iterator[Driver]:
    """A session of local[3], for what a cluster's results are compared with."""
    with cluster.driver("local[3]") as made:
        yield made


@pytest.fixture(scope="module")
def patient(cluster: Standalone) -> Iterator[Driver]:
    """An application that has all slots, and loses executors after a minute, which is half of Spark's usual time."""
    settings = {"spark.network.timeout": "60s", "spark.executor.heartbeatInterval": "5s"}
    with cluster.driver(**settings) as made:
        yield made


@pytest.fixture(scope="session")
def undisturbed(laptop: Driver) -> str:
    """The weights that fits come to whatever befalls their hosts."""
    return laptop.run("fit", seconds=RECOVERY_SECONDS, **LONG)["weights"]
