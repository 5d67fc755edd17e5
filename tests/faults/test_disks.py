"""Disks that are full, broken or out of reach: one sentence before training, and checkpoints that outlast damage."""

from __future__ import annotations

import re
import resource
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from spark_cases import NETWORK, Remains, arrays, same_bits

from sparkdl import DeepClassifier
from sparkdl.spark.driver import cluster


def classifier(checkpoints: Path) -> DeepClassifier:
    return DeepClassifier(network=NETWORK, numWorkers=2, batchSize=8, maxIter=4, checkpointDir=str(checkpoints))


def test_a_full_local_disk_is_one_sentence(
    rows: DataFrame, remains: Remains, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def on_a_full_disk(batches: Iterator[pa.RecordBatch], plan: Any) -> Iterator[pa.RecordBatch]:
        """Files end after 100 bytes, for which the system's word is another than on a full disk."""
        from sparkdl.spark.tasks import task

        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
        try:
            yield from task.run_task(batches, plan)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    monkeypatch.setattr(cluster, "run_task", on_a_full_disk)
    with pytest.raises(RuntimeError) as refused:
        classifier(tmp_path).fit(rows)
    sentence = str(refused.value)
    assert re.fullmatch(
        r"Worker 0 on \S+ cannot write its rows to .*File too large; free or add disk there\.", sentence
    )
    assert remains(10) == []


def test_rows_that_arrow_cannot_read_are_not_the_disks_fault(
    rows: DataFrame, remains: Remains, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(batches: Iterator[pa.RecordBatch], plan: Any) -> Iterator[pa.RecordBatch]:
        from sparkdl.spark.tasks import task

        def read() -> Iterator[pa.RecordBatch]:
            yield next(batches)
            pa.decompress(b"no frame", 8, codec="lz4")  # what Arrow raises for it is an OSError

        yield from task.run_task(read(), plan)

    monkeypatch.setattr(cluster, "run_task", unreadable)
    with pytest.raises(RuntimeError) as refused:
        classifier(tmp_path).fit(rows)
    assert re.fullmatch(
        r"Worker \d on \S+ cannot read the rows that Spark sends: .*LZ4.*; "
        r"check the settings spark\.sql\.execution\.arrow\.\*, such as compression\.codec\.",
        str(refused.value),
        re.IGNORECASE,
    )
    assert remains(10) == []


def test_a_checkpoint_folder_in_whose_place_a_file_stands_is_refused(
    rows: DataFrame, remains: Remains, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ValueError) as refused:
        classifier(tmp_path / "file").fit(rows)
    sentence = str(refused.value)
    assert sentence.startswith(f"The checkpoint directory '{tmp_path}/file' cannot be written: ")
    assert sentence.endswith("; name a folder that every worker can read and write.")
    assert "\n" not in sentence
    assert remains(10) == []


HANGING = """
import time
from sparkdl.training.checkpoints.checkpoints import CheckpointFolder
from sparkdl.training.checkpoints.storage import Folder
CheckpointFolder.check.__defaults__ = (2.0,)
Folder.__init__ = lambda *arguments: time.sleep(1000)
"""


def test_a_file_system_that_hangs_is_given_up(
    rows: DataFrame, remains: Remains, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def on_a_dead_mount(batches: Iterator[pa.RecordBatch], plan: Any, code: Path) -> Iterator[pa.RecordBatch]:
        import sys

        from sparkdl.launch import child
        from sparkdl.spark.tasks import task

        fork, child.fork_worker = child.fork_worker, lambda *_: None  # the child is to be an interpreter of its own,
        sys.path.insert(0, str(code))  # which runs the sitecustomize that it finds
        try:
            yield from task.run_task(batches, plan)
        finally:
            sys.path.remove(str(code))
            child.fork_worker = fork

    code = tmp_path / "code"
    code.mkdir()
    (code / "sitecustomize.py").write_text(HANGING)
    monkeypatch.setattr(cluster, "run_task", partial(on_a_dead_mount, code=code))
    with pytest.raises(ValueError) as refused:
        classifier(tmp_path / "kept").fit(rows)
    assert "cannot be written: the file system gave no answer within 2 s; name a folder that" in str(refused.value)
    assert remains(10) == []


def test_a_truncated_checkpoint_is_passed_over_for_the_one_before(
    rows: DataFrame, remains: Remains, tmp_path: Path
) -> None:
    expected = arrays(classifier(tmp_path).fit(rows))
    *_, newest = sorted(tmp_path.rglob("*.ckpt"))
    newest.write_bytes(newest.read_bytes()[:-7])
    with pytest.warns(UserWarning, match=f"{newest.name} in .* is passed over: This checkpoint is truncated"):
        again = classifier(tmp_path).fit(rows)
    assert again.summary.resumedFrom == [3, 0]
    assert same_bits(arrays(again), expected)
    assert remains(10) == []
