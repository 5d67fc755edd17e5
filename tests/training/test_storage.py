"""A folder is the same wherever it lies: files are whole or absent, names are listed, leftovers are swept."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from pyarrow import fs

from sparkdl.training.checkpoints import storage
from sparkdl.training.checkpoints.storage import Folder, open_folder, temporary_name, within


@pytest.fixture(params=["path", "file:", "file://", "subtree", "memory://"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    place = tmp_path / "not there" / "yet"
    if request.param == "subtree":
        return Folder(fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()), "not there/yet")
    if request.param == "memory://":
        pytest.importorskip("fsspec")
        return open_folder(f"memory://{place}/")
    return open_folder({"path": "", "file:": "file:", "file://": "file://"}[request.param] + f"{place}/")


def test_what_is_written_is_read_listed_replaced_and_removed(folder: Folder) -> None:
    assert folder.names() == []
    folder.write("b", b"one")
    folder.write("a", b"")
    folder.write("b", b"two")
    assert (folder.names(), folder.read("a"), folder.read("b")) == (["a", "b"], b"", b"two")
    folder.remove("a")
    assert (folder.names(), folder.exists("a"), folder.exists("b")) == (["b"], False, True)
    with pytest.raises(FileNotFoundError):
        folder.read("a")


def test_folders_lie_within_folders(folder: Folder) -> None:
    folder.folder("inner").write("x", b"1")
    folder.write("y", b"2")
    assert (folder.folders(), folder.names(), folder.folder("inner").read("x")) == (["inner"], ["y"], b"1")


def test_temporary_files_are_not_listed_and_are_swept_and_nothing_else_is(folder: Folder) -> None:
    others = [".sparkdl", "sparkdl-1.tmp", ".other-1.tmp", "x"]
    for name in [*others, name_of_the_dead(), name_of_the_dead()]:
        folder.write(name, b"")
    assert folder.names() == sorted(others)
    folder.tidy()
    assert folder._list(fs.FileType.File) == sorted(others)


def name_of_the_dead() -> str:
    """A temporary name of a process of this machine that is gone."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return temporary_name().replace(f"-{os.getpid()}-", f"-{process.pid}-")


def test_what_another_may_be_writing_still_is_not_swept(tmp_path: Path) -> None:
    """Of a process that lives, and of another machine's unless it has not been written to for a day."""
    folder, other = open_folder(str(tmp_path)), ".sparkdl-{}-1-0123456789ab.tmp".format
    kept = {temporary_name(): 90_000, other("00000001"): 80_000}
    swept = {name_of_the_dead(): 0, other("00000002"): 90_000}
    swept[".sparkdl-7-0123456789ab.tmp"] = 90_000  # as sparkdl 0.1 named them
    now = time.time()
    for name, age in (kept | swept).items():
        (tmp_path / name).write_bytes(b"half a checkpoint")
        os.utime(tmp_path / name, (now - age, now - age))
    folder.tidy()
    assert sorted(os.listdir(tmp_path)) == sorted(kept)


@pytest.mark.parametrize("moment", ["_put", "_move"])
def test_a_write_that_fails_leaves_what_was_there(folder: Folder, moment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.write("x", b"before")

    def full(*_: object) -> None:
        raise OSError("No space left on device")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space left"):
        patch.setattr(folder, moment, full)
        folder.write("x", b"after")
    assert folder._list(fs.FileType.File) == ["x"]
    assert folder.read("x") == b"before"


def test_a_local_file_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, synced = open_folder(str(tmp_path)), []
    monkeypatch.setattr(storage.os, "fsync", lambda file: synced.append([p.name for p in tmp_path.iterdir()]))
    folder.write("x", b"1")
    (before,), after = synced
    assert storage.TEMPORARY.fullmatch(before) and after == ["x"]


def test_an_object_store_writes_under_the_name_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pyarrow's own S3 and Google file systems make an object visible when its upload ends."""
    folder = Folder(fs.LocalFileSystem(), str(tmp_path))
    monkeypatch.setattr(storage, "OBJECT_STORES", {"local"})
    monkeypatch.setattr(folder, "_move", None)
    folder.write("x", b"1")
    assert (os.listdir(tmp_path), folder.read("x")) == (["x"], b"1")


def test_a_relative_path_and_a_home_are_local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    open_folder("here").write("x", b"1")
    open_folder("~/there").write("y", b"2")
    assert (tmp_path / "here" / "x").read_bytes() + (tmp_path / "home" / "there" / "y").read_bytes() == b"12"


def test_a_file_uri_may_have_encoded_characters(tmp_path: Path) -> None:
    open_folder((tmp_path / "a b").as_uri()).write("x", b"1")
    assert (tmp_path / "a b" / "x").exists()


def test_a_scheme_that_nothing_opens_is_a_sentence() -> None:
    with pytest.raises(ValueError, match=r"'nosuch://x/y' is opened neither by pyarrow .*; give a local path, or inst"):
        open_folder("nosuch://x/y")


def test_without_fsspec_its_schemes_are_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(ValueError, match=r"nor by fsspec \(.*\); give a local path, or install fsspec"):
        open_folder("memory://x")


def test_hadoops_name_for_s3_is_s3(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []

    def from_uri(uri: str) -> None:
        opened.append(uri)
        raise OSError("no network")

    monkeypatch.setattr(storage.fs, "FileSystem", type("FileSystem", (), {"from_uri": staticmethod(from_uri)}))
    for scheme in ("s3", "s3a", "s3n"):
        with pytest.raises(OSError, match="no network"):
            open_folder(f"{scheme}://bucket/folder")
    assert set(opened) == {"s3://bucket/folder"}


def test_a_deadline_ends_waiting_and_passes_answers_and_errors_on() -> None:
    never = threading.Event()
    with pytest.raises(TimeoutError, match=r"gave no answer within 0\.01 s"):
        within(0.01, never.wait)
    never.set()
    assert within(5, lambda: 7) == 7
    with pytest.raises(FileNotFoundError):
        within(5, lambda: os.stat("/nowhere"))
