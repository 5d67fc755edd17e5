"""A host whose clock is an hour ahead: no checkpoint and no file is taken for an old one, and no time is told wrong.

It is the clock of Python, by which sparkdl goes, that is ahead; Spark's Java keeps the machine's.
"""

from __future__ import annotations

from pathlib import Path

from standalone import AHEAD, CLOCK, REPOSITORY, Driver, Standalone, wait_until

LONG = {"numWorkers": 3, "maxIter": 200, "checkpointInterval": 25}
SECONDS = 240.0


def test_a_clock_an_hour_ahead_changes_nothing(cluster: Standalone, laptop: Driver, tmp_path: Path) -> None:
    other, early, _ = cluster.workers
    with cluster.driver(**{"spark.executorEnv.PYTHONPATH": f"{CLOCK}:{REPOSITORY}"}) as driver:
        assert driver.run("await_slots", slots=3, within=100) == 3
        clocks = driver.run("clocks", slots=3)
        ahead = {address for address in clocks if clocks[address] - clocks[other.address] > AHEAD - 60}
        assert ahead == {early.address}
        fitting = driver.start("fit", checkpointDir=str(tmp_path), collectTrainingStats=True, **LONG)
        wait_until(lambda: list(tmp_path.rglob("*.ckpt")), 100, driver.last_words)
        assert early.kill_trainers()
        told = driver.result(fitting, SECONDS)
    assert told["weights"] == laptop.run("fit", seconds=SECONDS, **LONG)["weights"]
    assert told["resumed"]
    assert all(0 <= seconds < SECONDS for seconds in told["timings"].values()), told["timings"]
    assert 0 < told["span"] < SECONDS
