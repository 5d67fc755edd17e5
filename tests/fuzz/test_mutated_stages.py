"""A saved stage that was damaged, forged or booby-trapped is refused in a sentence, or is what was saved; nothing runs.

`benchmarks/fuzz_load.py` does the same for thousands of cases, each through Spark.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import verdicts
from mutations import MUTATIONS
from pyspark.sql import SparkSession

from sparkdl.spark.saving import persistence

CASES = 48  # of a kind, read without Spark
THROUGH_SPARK = 12


@pytest.fixture(scope="module")
def saved(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where stages are saved, and the canary sits."""
    folder = tmp_path_factory.mktemp("fuzz")
    verdicts.save(folder)
    return folder


@pytest.fixture
def mark(saved: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Exists when any of the canary has run."""
    monkeypatch.setattr(sys, "path", sys.path[:])
    yield verdicts.trap(saved)


@pytest.mark.parametrize("kind", MUTATIONS)
def test_mutated_stages_are_refused_or_the_same(
    kind: str, saved: Path, mark: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(persistence, "_contents", verdicts.contents)
    monkeypatch.setattr(persistence, "_files", verdicts.names)
    found = list(verdicts.cases(saved, {kind: MUTATIONS[kind]}, range(CASES)))
    assert not [case for case in found if case[2] not in ("refused", "same", "forged")]
    assert any(verdict == "refused" for _, _, verdict in found)
    assert not mark.exists()


def test_mutated_stages_are_refused_or_the_same_through_spark(saved: Path, mark: Path) -> None:
    found = list(verdicts.cases(saved, MUTATIONS, range(1000, 1000 + THROUGH_SPARK)))
    assert not [case for case in found if case[2] not in ("refused", "same", "forged")]
    assert not mark.exists()


def test_the_canary_sings(saved: Path, mark: Path) -> None:
    """Else the tests above would show nothing."""
    __import__("sparkdl_canary")
    assert mark.exists()
    mark.rmdir()
