"""What is kept on a machine's disk is this user's alone."""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from sparkdl.spark.tasks.local_disk import check_free, full_disk_in, programs_directory


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


@pytest.mark.parametrize(("free", "refused"), [(1 << 20, True), (1 << 30, False)])
def test_a_disk_that_is_as_good_as_full_is_refused(
    disk: Path, monkeypatch: pytest.MonkeyPatch, free: int, refused: bool
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=free))
    with pytest.raises(OSError, match="1.0 MiB are left there") if refused else nullcontext():
        check_free(str(disk))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("Job aborted due to stage failure: division by zero", None),
        (
            "Lost task 0.3 in stage 1.0 (TID 6) (10.0.0.5 executor 2): java.io.IOException: No space left on device\n",
            "Spark cannot write to the local disk of 10.0.0.5: no space is left; free or add disk there.",
        ),
        (
            "barrier task ShuffleMapTask(5, 2) finished unsuccessfully.\njava.io.IOException: No space left on device",
            "Spark cannot write to the local disk of one of its machines: no space is left; free or add disk there.",
        ),
    ],
)
def test_spark_s_own_word_of_a_full_disk_becomes_a_sentence(text: str, sentence: str | None) -> None:
    assert full_disk_in(text) == sentence
