"""Workers talk in plain TCP: who has told Spark to encrypt or authenticate is told so, or has such fits refused."""

from __future__ import annotations

import warnings

from pyspark.sql import SparkSession

from sparkdl.spark.driver.remote import over_connect, setting

PROTECTED = ("spark.authenticate", "spark.network.crypto.enabled", "spark.ssl.enabled", "spark.ssl.rpc.enabled")
REQUIRED = "sparkdl.requireEncryption"


def check_encryption(session: SparkSession, workers: int, reported: bool) -> None:
    """Warn of, or refuse, plain TCP between machines where Spark is told to protect its own connections.

    Parameters
    ----------
    session : SparkSession
    workers : int
        One alone talks to no other.
    reported : bool
        Whether progress or logs are sent to the driver.

    Raises
    ------
    ValueError
        `sparkdl.requireEncryption` is "true".
    """
    asked = asked_to_protect(session)
    what = ["what workers exchange"] * (workers > 1) + ["progress and logs on their way to the driver"] * reported
    if not asked or not what:
        return
    plain = " and ".join(what)
    if REQUIRED in asked:
        raise ValueError(
            f"{REQUIRED} is true, but {plain} would be sent in plain TCP; fit with numWorkers=1, progress='off' and "
            "workerLogs='off', or trust the network between the machines and set it to false."
        )
    warnings.warn(
        f"Spark has {' and '.join(f'{key}=true' for key in asked)}, but {plain} will be sent in plain TCP; "
        f"keep strangers off the network between the machines, or set {REQUIRED}=true to refuse such fits.",
        stacklevel=2,
    )


def asked_to_protect(session: SparkSession) -> list[str]:
    """The settings that ask for protected connections; none where all is on one machine."""
    if setting(session, "spark.master", "").startswith("local") and not over_connect(session):
        return []
    return [key for key in (REQUIRED, *PROTECTED) if setting(session, key, "false").lower() == "true"]
