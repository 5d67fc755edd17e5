"""Executors that are processes of their own: the weights of one process, though one be lost; nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import DataFrame
from spark_cases import NETWORK, Remains, arrays, same_bits, table

from sparkdl import DeepClassifier
from sparkdl.spark import local_session

ENDLESS = 10**6
SETTINGS = {
    "spark.executor.memory": "1g",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": 2,
    "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "1s",  # while an executor is being replaced
}


def classifier(epochs: int = 2) -> DeepClassifier:
    return DeepClassifier(network=NETWORK, numWorkers=2, maxIter=epochs, batchSize=8)


def fit_on_two_executors(folder: Path) -> None:
    """Write weights and predictions of a fit, those of one that lost an executor, and begin one that never ends."""
    session = local_session("local-cluster[2,1,1024]", **SETTINGS)
    rows = session.createDataFrame(table())
    model = classifier().fit(rows)
    scored = model.transform(rows.repartition(2)).orderBy("id").toPandas()
    np.savez(folder / "weights.npz", **arrays(model))
    np.savez(folder / "scored.npz", prediction=scored["prediction"], id=scored["id"])

    kept = folder / "kept"
    threading.Thread(target=kill_an_executor, args=(kept,), daemon=True).start()
    struck = classifier(400).setCheckpointDir(str(kept)).setCheckpointInterval(20).fit(rows)
    np.savez(folder / "struck.npz", resumed=struck.summary.resumedFrom or [0, 0], **arrays(struck))
    classifier(ENDLESS).fit(rows)


def kill_an_executor(kept: Path) -> None:
    """Once the fit has saved a checkpoint."""
    while not list(kept.rglob("*.ckpt")):
        time.sleep(0.01)
    os.kill(min(processes_with("CoarseGrainedExecutorBackend", str(os.getpid()))), signal.SIGKILL)


def processes_with(command: str, ancestor: str) -> list[int]:
    """Descendants of a process whose command holds a text; Linux tells."""
    parents, found = {}, []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            parents[process.name] = (process / "stat").read_text().rpartition(")")[2].split()[1]
            if command.encode() in (process / "cmdline").read_bytes():
                found.append(process.name)
        except OSError:  # gone
            continue

    def descends(process: str | None) -> bool:
        return process is not None and (process == ancestor or descends(parents.get(process)))

    return [int(process) for process in found if descends(process)]


def test_two_executors_give_the_weights_of_one_process(
    rows: DataFrame, scratch: Path, remains: Remains, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when one of them is killed; and when the driver is, all its processes and files go."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(scratch))
    with (tmp_path / "log").open("w+") as log:
        driver = subprocess.Popen([sys.executable, __file__, str(tmp_path)], stdout=log, stderr=log, cwd=tmp_path)
        try:
            deadline = time.monotonic() + 300
            while not (
                (tmp_path / "struck.npz").exists() and len(processes_with("sparkdl.training", str(driver.pid))) == 2
            ):
                assert driver.poll() is None and time.monotonic() < deadline, (tmp_path / "log").read_text()
                time.sleep(0.1)
        finally:
            driver.kill()
            driver.wait()
    assert remains(20) == []
    model = classifier().fit(rows)
    assert same_bits(dict(np.load(tmp_path / "weights.npz")), arrays(model))
    expected = [row.prediction for row in model.transform(rows).orderBy("id").collect()]
    assert np.load(tmp_path / "scored.npz")["prediction"].tolist() == expected
    struck = dict(np.load(tmp_path / "struck.npz"))
    assert struck.pop("resumed")[0] >= 20
    assert same_bits(struck, arrays(classifier(400).fit(rows)))


if __name__ == "__main__":
    fit_on_two_executors(Path(sys.argv[1]))
