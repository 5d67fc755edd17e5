"""What a session over Spark Connect has instead of a SparkContext, so that the rest need not know which one it has."""

from __future__ import annotations

import hashlib
import os
import re
import socket
import tempfile
import uuid
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from sparkdl.spark.driver.old_spark import OLD, refuse_connect
from sparkdl.spark.tasks.sent_bytes import as_sent, of_broadcast, of_file
from sparkdl.training.group.addresses import without_brackets

CARRIED_BYTES = 32 << 20  # in a plan, of which a server holds several copies: 96 MiB end one with 1 GiB of memory


def over_connect(session: SparkSession) -> bool:
    """Whether the session is a client of Spark Connect; ValueError if it is one of Spark 3.5."""
    remote = type(session).__module__.startswith("pyspark.sql.connect.")
    if remote and OLD:
        refuse_connect()
    return remote


def identity(session: SparkSession) -> str:
    """Names what is shared by `shared`: the session over Spark Connect, else the application."""
    return session.session_id if over_connect(session) else session.sparkContext.applicationId  # type: ignore


def shared(session: SparkSession, parts: Iterable[bytes | memoryview]) -> Callable[[], bytes]:
    """Sends bytes, given in parts, to every executor once; what is returned gives them, in a task.

    A broadcast variable or, over Spark Connect, a file of the session, as plans there may not exceed 128 MiB. Either
    stays until the application or the session ends.
    """
    if not over_connect(session):
        return partial(of_broadcast, session.sparkContext.broadcast(b"".join(parts)))
    with tempfile.TemporaryDirectory(prefix="sparkdl-") as folder:
        digest, path = hashlib.sha256(), Path(folder, "parts")
        with path.open("wb") as stream:
            for part in parts:
                digest.update(part)
                stream.write(part)
        path = path.rename(Path(folder, f"sparkdl-{digest.hexdigest()}"))
        session.addArtifacts(str(path), file=True)
    return partial(of_file, path.name)


def release(given: Callable[[], bytes]) -> None:
    """Free what `shared` sent, once no task asks for it; over Spark Connect it stays until the session ends."""
    if isinstance(given, partial) and given.func is of_broadcast:
        given.args[0].destroy()


class Shipped:
    """What was shared with sessions: a stage's copies hold the same one, a deep copy and a pickle have a new one.

    Attributes
    ----------
    key : str
        What workers know it by, who ask for the bytes only if they have not kept what came of them.
    """

    def __init__(self) -> None:
        self.key = uuid.uuid4().hex
        self._given: dict[str, Callable[[], bytes]] = {}

    def __reduce__(self) -> tuple[type[Shipped], tuple[()]]:
        return Shipped, ()  # a broadcast variable cannot be copied, and the copy's weights may be changed

    def to(self, session: SparkSession, parts: Callable[[], Iterable[bytes | memoryview]]) -> Callable[[], bytes]:
        """What `shared` gives for these bytes, which are asked for where the session was not sent them yet."""
        where = identity(session)
        if where not in self._given:
            self._given[where] = shared(session, parts())
        return self._given[where]


def carried(data: bytes) -> Callable[[], bytes]:
    """As `shared`, but within the plan: over Spark Connect a stream runs in a session that lacks the files of this one.

    Raises
    ------
    ValueError
        That is more than Spark takes.
    """
    if len(data) > CARRIED_BYTES:
        raise ValueError(
            f"A stream over Spark Connect carries the model in its plan, which holds {CARRIED_BYTES >> 20} MiB, "
            f"received weights of {len(data) / (1 << 20):.0f} MiB; run the stream in a classic session."
        )
    return partial(as_sent, data)


def parallelism(session: SparkSession) -> int:
    """Tasks that the cluster is thought to run at once; no less than there are, if the session knows."""
    if not over_connect(session):
        return session.sparkContext.defaultParallelism
    known = setting(session, "spark.default.parallelism", "")
    slots = int(known) if known else local_slots(setting(session, "spark.master", ""), 1)
    return slots or int(setting(session, "spark.sql.shuffle.partitions", "200"))


def driver_address(session: SparkSession) -> tuple[str, str]:
    """Where workers reach this process, and the address to listen on; over Spark Connect it is not Spark's driver."""
    host = setting(session, "spark.driver.host", "localhost")
    bind = setting(session, "spark.driver.bindAddress", host)
    if not over_connect(session):
        return host, bind
    try:
        family, kind, _, _, server = socket.getaddrinfo(
            without_brackets(session.client.host), 1, type=socket.SOCK_DGRAM
        )[0]
        with socket.socket(family, kind) as probe:
            probe.connect(server)  # sends nothing, but finds the way
            own = probe.getsockname()[0]
    except OSError:
        return host, bind
    return (host, bind) if own.startswith("127.") or own == "::1" else (own, own)


def runs_in_driver(master: str) -> bool:
    """Whether a master's one executor is the driver itself, and stays."""
    return master == "local" or master.startswith("local[")


def local_slots(master: str, cpus: int) -> int | None:
    """How many tasks of `cpus` CPUs a local master can run at once; None where its name does not tell."""
    if master == "local":
        return 1
    if found := re.fullmatch(r"local\[(\d+|\*)(?:,\s*\d+)?\]", master):
        cores = os.cpu_count() or 1 if found[1] == "*" else int(found[1])
        return cores // cpus
    if found := re.fullmatch(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*\d+\s*\]", master):
        return int(found[1]) * (int(found[2]) // cpus)
    return None


def registered_slots(session: SparkSession) -> int | None:
    """Tasks that the executors there are by now can run at once; None over Spark Connect, which does not tell."""
    if over_connect(session):
        return None
    context = session.sparkContext._jsc.sc()  # type: ignore[union-attr]
    return context.maxNumConcurrentTasks(context.resourceProfileManager().defaultResourceProfile())


def setting(session: SparkSession, key: str, default: str) -> str:
    """A setting of the session, or of its server over Spark Connect.

    One of sparkdl's own may also be given behind "spark.", as spark-submit passes on no others.
    """
    if key.startswith("sparkdl."):
        return session.conf.get(key, None) or session.conf.get(f"spark.{key}", None) or default
    if over_connect(session) or key.startswith("spark.sql."):
        return session.conf.get(key, default) or default
    # The session's own may be what a later builder asked for, which no running application takes.
    return session.sparkContext._conf.get(key, default) or default  # getConf() copies all of them, which takes 6 ms


def count_setting(session: SparkSession, key: str, default: int) -> int:
    """A setting that is a whole number above 0; ValueError for another."""
    told = setting(session, key, str(default)).strip()
    if not re.fullmatch("0*[1-9][0-9]*", told):
        raise ValueError(f"{key} must be a whole number above 0, received {told!r}; set it to one or unset it.")
    return int(told)
