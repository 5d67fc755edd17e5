"""Where Spark is told to protect its connections, plain TCP between machines is said or refused."""

from __future__ import annotations

import socket
import warnings
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import DataFrame
from spark_cases import NETWORK

from sparkdl import DeepClassifier
from sparkdl.spark.driver import remote, security
from sparkdl.spark.driver.security import REQUIRED, check_encryption

SESSION: Any = SimpleNamespace()


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Those of a cluster."""
    values = {"spark.master": "spark://host:7077"}
    monkeypatch.setattr(security, "setting", lambda session, key, default: values.get(key, default))
    return values


EXCHANGED, REPORTED = "what workers exchange", "progress and logs on their way to the driver"


@pytest.mark.parametrize(
    "workers, reported, said",
    [(2, False, EXCHANGED), (1, True, REPORTED), (2, True, f"{EXCHANGED} and {REPORTED}")],
)
@pytest.mark.parametrize("asked", security.PROTECTED)
def test_whoever_has_spark_protect_connections_is_told_of_plain_ones(
    settings: dict[str, str], asked: str, workers: int, reported: bool, said: str
) -> None:
    settings[asked] = "true"
    with pytest.warns(UserWarning, match=f"{asked}=true, but {said} will be sent in plain TCP; .* {REQUIRED}=true"):
        check_encryption(SESSION, workers, reported)
    settings[REQUIRED] = "TRUE"
    with pytest.raises(
        ValueError, match=f"{REQUIRED} is true, but {said} would be sent in plain TCP; fit with numWork"
    ):
        check_encryption(SESSION, workers, reported)


@pytest.mark.parametrize(
    "changed, workers, reported",
    [
        ({}, 2, True),
        ({"spark.authenticate": "false"}, 2, True),
        ({"spark.authenticate": "true", REQUIRED: "true"}, 1, False),
        ({"spark.authenticate": "true", REQUIRED: "true", "spark.master": "local[4]"}, 2, True),
        ({"spark.ssl.enabled": "true", "spark.master": "local-cluster[2,1,1024]"}, 2, True),
    ],
)
def test_nothing_is_said_where_nothing_is_asked_or_nothing_leaves_the_machine(
    settings: dict[str, str], changed: dict[str, str], workers: int, reported: bool
) -> None:
    settings.update(changed)
    check_encryption(SESSION, workers, reported)


def test_a_fit_is_refused_before_its_job(rows: DataFrame, settings: dict[str, str]) -> None:
    settings[REQUIRED] = "true"
    with pytest.raises(ValueError, match=f"{REQUIRED} is true"):
        DeepClassifier(network=NETWORK, maxIter=1, numWorkers=2).fit(rows)


@pytest.mark.parametrize("secret", ["true", "false"])
def test_rows_stay_on_connections_that_spark_protects(
    secret: str, rows: DataFrame, settings: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings["spark.authenticate"] = secret
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = DeepClassifier(network=NETWORK, maxIter=1, numWorkers=2).fit(rows)
    first, second = (worker["rows"] for worker in model.summary.workers)
    assert first + second == rows.count()
    assert (abs(first - second) <= 1) == (secret == "false")


@pytest.mark.parametrize("server", ["127.0.0.1", "::1", "[::1]", "no such host"])
def test_over_connect_a_server_here_or_nowhere_has_workers_call_the_driver(
    monkeypatch: pytest.MonkeyPatch, server: str
) -> None:
    monkeypatch.setattr(remote, "over_connect", lambda session: True)
    monkeypatch.setattr(remote, "setting", lambda session, key, default: key)
    session: Any = SimpleNamespace(client=SimpleNamespace(host=server))
    assert remote.driver_address(session) == ("spark.driver.host", "spark.driver.bindAddress")


def test_over_connect_workers_call_the_address_from_which_the_server_is_reached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Probe(socket.socket):
        """Sets out from an address for examples."""

        def connect(self, server: Any) -> None:
            assert (self.family, server[:2]) == (socket.AF_INET6, ("2001:db8::7", 1))

        def getsockname(self) -> Any:
            return "2001:db8::5", 40000, 0, 0

    monkeypatch.setattr(remote, "over_connect", lambda session: True)
    monkeypatch.setattr(remote, "setting", lambda session, key, default: key)
    monkeypatch.setattr(remote.socket, "socket", Probe)
    session: Any = SimpleNamespace(client=SimpleNamespace(host="[2001:db8::7]"))
    assert remote.driver_address(session) == ("2001:db8::5", "2001:db8::5")
