"""Executors that are processes of their own: the same weights as in one process, and nothing left behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import DataFrame
from spark_cases import NETWORK, Remains, arrays, same_bits, table

from sparkdl import DeepClassifier
from sparkdl.spark import local_session


def classifier() -> DeepClassifier:
    return DeepClassifier(network=NETWORK, numWorkers=2, maxIter=2, batchSize=8)


def fit_on_two_executors(folder: Path) -> None:
    """Write the weights and predictions of a fit; the body of the test's own process."""
    settings = {"spark.executor.memory": "1g", "spark.driver.memory": "1g", "spark.sql.shuffle.partitions": 2}
    session = local_session("local-cluster[2,1,1024]", **settings)
    rows = session.createDataFrame(table())
    model = classifier().fit(rows)
    scored = model.transform(rows.repartition(2)).orderBy("id").toPandas()
    np.savez(folder / "weights.npz", **arrays(model))
    np.savez(folder / "scored.npz", prediction=scored["prediction"], id=scored["id"])
    session.stop()


def test_two_executors_give_the_weights_of_one_process(
    rows: DataFrame, scratch: Path, remains: Remains, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(scratch))
    process = subprocess.run(
        [sys.executable, __file__, str(tmp_path)], capture_output=True, text=True, timeout=180, cwd=tmp_path
    )
    assert process.returncode == 0, process.stderr
    assert remains(10) == []
    model = classifier().fit(rows)
    assert same_bits(dict(np.load(tmp_path / "weights.npz")), arrays(model))
    expected = [row.prediction for row in model.transform(rows).orderBy("id").collect()]
    assert np.load(tmp_path / "scored.npz")["prediction"].tolist() == expected


if __name__ == "__main__":
    fit_on_two_executors(Path(sys.argv[1]))
