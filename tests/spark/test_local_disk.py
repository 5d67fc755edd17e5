"""What is kept on a machine's disk is this user's alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sparkdl.spark.local_disk import programs_directory


@pytest.fixture(autouse=True)
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Spark's local disk."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/elsewhere")
    return tmp_path


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o377])
def test_compiled_programs_are_its_owner_s_alone_whatever_the_umask(umask: int) -> None:
    before = os.umask(umask)
    try:
        folders = [programs_directory() for _ in range(2)]
    finally:
        os.umask(before)
    assert folders[0] is not None and folders[0] == folders[1]
    assert os.stat(folders[0]).st_mode & 0o777 == 0o700


def test_a_folder_that_others_may_write_to_is_closed_to_them(disk: Path) -> None:
    (disk / "jax-compilation-cache").mkdir()
    (disk / "jax-compilation-cache").chmod(0o777)
    assert programs_directory() is not None
    assert (disk / "jax-compilation-cache").stat().st_mode & 0o777 == 0o700


def test_without_a_folder_of_its_own_none_is_used(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def another_s(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "chmod", another_s)
    assert programs_directory() is None
    monkeypatch.undo()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(disk / "nowhere"))
    assert programs_directory() is None
