"""What befalls the hosts of a cluster at random, while fits train on them; the hosts are those of tests/cluster."""

from __future__ import annotations

import random
import shutil
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[2] / "tests" / "cluster"
FIT = {"numWorkers": 2, "maxIter": 1000, "checkpointInterval": 25}
FIT_SECONDS = 300.0  # in which a fit must end, whatever befalls it
CUT_SECONDS = 20.0
KINDS = ("trainer", "executor", "cut for 20 s", "cut until the end", "driver cut for 20 s")


def run(strikes: int, chance: random.Random, folder: Path) -> dict[str, float]:
    """Strike so many fits, one each; figures, and a line for each fit on standard output.

    Raises
    ------
    RuntimeError
        This machine can have no hosts.
    """
    sys.path.insert(0, str(TESTS))
    from hosts import connected, missing
    from standalone import Standalone

    if reason := missing():
        raise RuntimeError(f"--cluster makes hosts of network namespaces, but {reason}.")
    settings = {"spark.network.timeout": "60s", "spark.executor.heartbeatInterval": "5s"}
    counts: Counter[str] = Counter()
    slowest = 0.0
    with connected(4, folder / "hosts") as hosts, Standalone(hosts) as cluster, cluster.driver(**settings) as driver:
        driver.run("fit", seconds=FIT_SECONDS, numWorkers=2, maxIter=1)  # the JVM's first job is its slowest
        began = time.monotonic()
        expected = driver.run("fit", seconds=FIT_SECONDS, checkpointDir=str(folder / "first"), **FIT)["weights"]
        undisturbed = time.monotonic() - began
        print(f"an undisturbed fit takes {undisturbed:.1f} s", flush=True)
        for number in range(strikes):
            driver.run("await_slots", slots=3, within=150, seconds=160)
            kind, moment = chance.choice(KINDS), chance.uniform(0, undisturbed)
            checkpoints = folder / "struck"
            shutil.rmtree(checkpoints, ignore_errors=True)
            began = time.monotonic()
            fitting = driver.start("fit", checkpointDir=str(checkpoints), **FIT)
            time.sleep(moment)
            mended = strike(kind, cluster, chance)
            told = driver.outcome(fitting, FIT_SECONDS)
            mended()
            seconds = time.monotonic() - began
            slowest = max(slowest, seconds)
            same = told.get("value", {}).get("weights") == expected
            counts.update(completed="error" not in told, identical=same)
            outcome = "identical" if same else told.get("message", "OTHER WEIGHTS").splitlines()[0]
            print(f"{number + 1:>4}  {kind:<20}at {moment:5.2f} s, {seconds:6.1f} s: {outcome}", flush=True)
    return {
        "strikes": float(strikes),
        "completed": float(counts["completed"]),
        "identical": float(counts["identical"]),
        "slowest_s": slowest,
    }


def strike(kind: str, cluster: Any, chance: random.Random) -> Any:
    """Let it befall a host; what is returned mends it, or waits until it is mended."""
    training = [host for host in cluster.workers if host.trainers()] or cluster.workers
    host = cluster.driver_host if kind.startswith("driver") else chance.choice(training)
    if kind == "trainer":
        host.kill_trainers()
    elif kind == "executor":
        host.kill("CoarseGrainedExecutorBackend")
    if "cut" not in kind:
        return lambda: None
    host.plug(False)
    if kind.endswith("until the end"):
        return lambda: host.plug(True)
    mending = threading.Timer(CUT_SECONDS, host.plug, (True,))
    mending.start()
    return mending.join
