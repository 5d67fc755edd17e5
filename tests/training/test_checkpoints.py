"""Checkpoints come back bit by bit or not at all; training neither waits for them nor fails with them."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparkdl.specs import Spec
from sparkdl.training.checkpoints import checkpoints, storage
from sparkdl.training.checkpoints import checkpoints as module
from sparkdl.training.checkpoints.checkpoints import CheckpointFolder, Checkpoints, decode, encode
from sparkdl.training.checkpoints.storage import LocalFolder

pytestmark = pytest.mark.usefixtures("unoptimized")

RUN, OTHER = "0123456789abcdef" * 4, "fedcba9876543210" * 4


# The spec


def test_a_spec_travels_as_json() -> None:
    spec = Checkpoints("hdfs://name/folder", every=100, unit="step", keep=1)
    assert Spec.from_json(json.loads(json.dumps(spec.to_json()))) == spec


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"directory": ""}, "directory of Checkpoints must be a path or URI, received ''"),
        ({"directory": None}, "directory of Checkpoints must be a path or URI, received None"),
        ({"every": 0}, "every of Checkpoints must be a positive integer, received 0"),
        ({"keep": True}, "keep of Checkpoints must be a positive integer, received True"),
        ({"keep": 1.5}, "keep of Checkpoints must be a positive integer, received 1.5"),
        ({"unit": "hours"}, "unit of Checkpoints must be 'epoch' or 'step', received 'hours'"),
    ],
)
def test_a_wrong_field_is_a_sentence(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Checkpoints(**{"directory": "x", **wrong})


# The folder


def opened(directory: Path, fingerprint: str = RUN, **options: Any) -> CheckpointFolder:
    return CheckpointFolder(Checkpoints(str(directory), **options), fingerprint)


def save(directory: Path, *steps: int, best: tuple[int, ...] = (), fingerprint: str = RUN, keep: int = 9) -> list[str]:
    """Save one after the other, waiting for each; gives the notes."""
    notes = []
    for step in steps:
        with opened(directory, fingerprint, keep=keep) as folder:
            folder.save({"epoch": 0, "step": step}, {"x": np.full(3, step)}, best=step in best)
        notes += folder.notes
    return notes


def steps(directory: Path, fingerprint: str = RUN) -> list[int]:
    return sorted(int(path.name[17:25]) for path in (directory / fingerprint[:16]).glob("*.ckpt"))


def path_of(directory: Path, step: int) -> Path:
    (path,) = (directory / RUN[:16]).glob(f"epoch-00000-step-{step:08d}*.ckpt")
    return path


def newest_step(folder: CheckpointFolder) -> int | None:
    found = folder.newest()
    return found and found.meta["step"]


def test_the_newest_is_found_by_training_progress(tmp_path: Path) -> None:
    assert opened(tmp_path).newest() is None
    with opened(tmp_path) as folder:
        folder.save({"epoch": 3, "step": 120, "more": [1]}, {"a/b": np.arange(3)})
    assert (tmp_path / RUN[:16] / "epoch-00003-step-00000120.ckpt").exists()
    save(tmp_path, 5, 200)
    found = opened(tmp_path).newest()
    assert found is not None
    assert found.meta == {"epoch": 3, "step": 120, "more": [1], "fingerprint": RUN}
    assert found.arrays["a/b"].tolist() == [0, 1, 2]
    assert decode(found.data)[0] == found.meta


def test_numbers_may_outgrow_their_zeros(tmp_path: Path) -> None:
    save(tmp_path, 99_999_999, 100_000_000)
    assert newest_step(opened(tmp_path)) == 100_000_000


def test_the_newest_and_the_best_stay(tmp_path: Path) -> None:
    assert save(tmp_path, 1, 2, 3, 4, 5, 6, best=(1, 2), keep=2) == []
    assert steps(tmp_path) == [2, 5, 6]
    best = opened(tmp_path).best()
    assert best is not None and best.meta["step"] == 2
    save(tmp_path, 7, best=(7,), keep=2)
    assert steps(tmp_path) == [6, 7]


def test_nothing_is_best_where_nothing_was_called_so(tmp_path: Path) -> None:
    save(tmp_path, 1)
    assert opened(tmp_path).best() is None


def test_runs_in_one_directory_do_not_mix(tmp_path: Path) -> None:
    save(tmp_path, 1, 2)
    save(tmp_path, 7, fingerprint=OTHER, keep=1)
    (tmp_path / ("ab" * 8)).mkdir()
    (tmp_path / "somebody's").mkdir()
    assert (steps(tmp_path), steps(tmp_path, OTHER)) == ([1, 2], [7])
    assert newest_step(opened(tmp_path)) == 2
    assert opened(tmp_path).others() == [OTHER[:16]]
    assert opened(tmp_path, "00" * 32).others() == [RUN[:16], OTHER[:16]]


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-5]), "This checkpoint is truncated"),
        (lambda path: path.write_bytes(b""), "This checkpoint is truncated"),
        (lambda path: path.write_bytes(path.read_bytes()[:-5] + b"wrong"), "This checkpoint is damaged"),
        (lambda path: path.write_bytes(b"something else"), "This is no checkpoint of sparkdl"),
        (
            lambda path: path.write_bytes(b"".join(encode({"fingerprint": OTHER}, {}))),
            "It belongs to another run, with the fing",
        ),
    ],
)
def test_what_cannot_be_used_is_passed_over_with_a_note(tmp_path: Path, spoil: Any, reason: str) -> None:
    save(tmp_path, 1, 2, 3)
    for step in (2, 3):
        spoil(path_of(tmp_path, step))
    folder = opened(tmp_path)
    assert newest_step(folder) == 1
    starts = [f"{path_of(tmp_path, step).name} in {str(tmp_path)!r} is passed over: {reason}" for step in (3, 2)]
    assert all(note.startswith(start) for note, start in zip(folder.notes, starts, strict=True))


def test_what_cannot_be_read_is_passed_over_with_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path, 1, 2)
    read = LocalFolder.read

    def failing(self: LocalFolder, name: str) -> bytes:
        if name == path_of(tmp_path, 2).name:
            raise OSError(5, "Input/output error")
        return read(self, name)

    monkeypatch.setattr(LocalFolder, "read", failing)
    folder = opened(tmp_path)
    assert newest_step(folder) == 1
    assert "00000002.ckpt" in folder.notes[0] and "Input/output error" in folder.notes[0]


def test_a_run_that_went_on_behind_a_damaged_checkpoint_keeps_its_own(tmp_path: Path) -> None:
    save(tmp_path, 1, 2, 4, 6, best=(6,))
    path_of(tmp_path, 6).write_bytes(b"")
    save(tmp_path, 5, keep=1)
    assert steps(tmp_path) == [5, 6]
    assert newest_step(opened(tmp_path)) == 5
    save(tmp_path, 7, keep=1)
    assert newest_step(opened(tmp_path)) == 7


def test_a_writer_killed_before_the_renaming_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path, 1)
    killed, never = threading.Event(), threading.Event()

    def stop(*_: Any) -> None:
        killed.set()
        never.wait()

    with monkeypatch.context() as patch:
        patch.setattr(LocalFolder, "_move", stop)
        folder = opened(tmp_path)
        folder.save({"epoch": 0, "step": 2}, {"x": np.zeros(2)})
        assert killed.wait(5)
        folder.close(0.01)
    left = {path.name for path in (tmp_path / RUN[:16]).iterdir()} - {path_of(tmp_path, 1).name}
    assert len(left) == 1
    assert newest_step(opened(tmp_path)) == 1
    opened(tmp_path).check()
    assert len(os.listdir(tmp_path / RUN[:16])) == 2  # its process lives, and might be writing still
    monkeypatch.setattr(storage, "_is_alive", lambda process: process != os.getpid())
    opened(tmp_path).check()
    assert os.listdir(tmp_path / RUN[:16]) == [path_of(tmp_path, 1).name]
    never.set()
    assert folder._writer is not None
    folder._writer.join(5)


def test_a_checked_folder_is_left_clean(tmp_path: Path) -> None:
    save(tmp_path, 1)
    (tmp_path / RUN[:16] / "mine.tmp").write_bytes(b"somebody's")
    opened(tmp_path).check()
    assert sorted(os.listdir(tmp_path / RUN[:16])) == [path_of(tmp_path, 1).name, "mine.tmp"]


@pytest.mark.parametrize("asked", ["check", "newest", "best", "others"])
def test_a_folder_that_cannot_be_is_a_sentence(tmp_path: Path, asked: str) -> None:
    (tmp_path / "file").write_text("")
    done = "written" if asked == "check" else "read"
    with pytest.raises(
        ValueError, match=f"The checkpoint directory '.*file/x' cannot be {done}: .*; name a folder that every"
    ):
        getattr(opened(tmp_path / "file" / "x"), asked)()
    with pytest.raises(ValueError, match=f"The checkpoint directory 'nosuch://x' cannot be {done}: .*install fsspec"):
        getattr(CheckpointFolder(Checkpoints("nosuch://x"), RUN), asked)()


def test_an_equal_run_that_starts_leaves_alone_what_the_first_one_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing, go_on, move = threading.Event(), threading.Event(), LocalFolder._move

    def slow(self: LocalFolder, source: str, target: str) -> None:
        writing.set()
        assert go_on.wait(10)
        move(self, source, target)

    with opened(tmp_path) as first:
        with monkeypatch.context() as patch:
            patch.setattr(LocalFolder, "_move", slow)
            first.save({"epoch": 0, "step": 2}, {"x": np.zeros(2)})
            assert writing.wait(10)
        opened(tmp_path).check()
        go_on.set()
    assert (steps(tmp_path), first.notes) == ([2], [])


# Storage that hangs or fails


class Hanging:
    """Every call of a folder waits until it is released."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached, self.released = threading.Semaphore(0), threading.Event()
        for name in ("write", "names", "folders"):
            monkeypatch.setattr(LocalFolder, name, self.slow(getattr(LocalFolder, name)))

    def slow(self, call: Any) -> Any:
        def wait(*arguments: Any) -> Any:
            self.reached.release()
            assert self.released.wait(30)
            return call(*arguments)

        return wait


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hanging]:
    before = set(threading.enumerate())
    storage = Hanging(monkeypatch)
    yield storage
    storage.released.set()
    for thread in set(threading.enumerate()) - before:
        thread.join(5)


@pytest.mark.parametrize("asked", ["check", "newest", "best", "others"])
def test_storage_that_gives_no_answer_is_a_sentence(tmp_path: Path, hanging: Hanging, asked: str) -> None:
    with pytest.raises(ValueError, match=r"cannot be (read|written): the file system gave no answer within 0\.05 s; "):
        getattr(opened(tmp_path), asked)(0.05)


def test_training_does_not_wait_for_slow_storage(
    tmp_path: Path, hanging: Hanging, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "WAITING", 1)
    with opened(tmp_path) as folder:
        folder.save({"epoch": 0, "step": 1}, {})
        assert hanging.reached.acquire(timeout=5)
        for step in range(2, 7):
            folder.save({"epoch": 0, "step": step}, {}, best=step in (2, 4))
        hanging.released.set()
    assert steps(tmp_path) == [1, 4, 6]
    (note,) = folder.notes
    assert note == (
        f"3 of the checkpoints in {str(tmp_path)!r} were left out, as writing was slower than training; "
        "the last: epoch-00000-step-00000005.ckpt."
    )


def test_the_end_does_not_wait_for_ever(tmp_path: Path, hanging: Hanging) -> None:
    with opened(tmp_path) as folder:
        folder.save({"epoch": 0, "step": 1}, {})
        folder.close(0.05)
    assert folder.notes == [
        f"The last checkpoint in {str(tmp_path)!r} was not written within 0.05 s; the one before it stays."
    ]


def test_a_failed_write_is_a_note_and_the_next_is_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failures, put = chain([True, True], iter(lambda: False, True)), LocalFolder._put

    def full(self: LocalFolder, path: str, data: bytes) -> None:
        if next(failures):
            put(self, path, data[: len(data) // 2])
            raise OSError(28, "No space left on device")
        put(self, path, data)

    monkeypatch.setattr(LocalFolder, "_put", full)
    notes = save(tmp_path, 1, 2, 3)
    assert notes == [
        f"1 of the checkpoints in {str(tmp_path)!r} could not be written; the last: "
        f"epoch-00000-step-0000000{step}.ckpt, because of [Errno 28] No space left on device."
        for step in (1, 2)
    ]
    assert os.listdir(tmp_path / RUN[:16]) == [path_of(tmp_path, 3).name]


def test_what_cannot_be_removed_is_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise PermissionError("Not yours")

    monkeypatch.setattr(LocalFolder, "remove", refuse)
    (note,) = save(tmp_path, 1, 2, keep=1)
    assert "could not be removed when newer ones were there; the last: Not yours." in note
    assert steps(tmp_path) == [1, 2]


def test_any_file_system_will_do() -> None:
    pytest.importorskip("fsspec")
    plan = Checkpoints("memory://checkpoints-of-test", keep=1)
    with CheckpointFolder(plan, RUN) as folder:
        folder.check()
        folder.save({"epoch": 1, "step": 1}, {"x": np.ones(2)}, best=True)
    with CheckpointFolder(plan, RUN) as folder:
        folder.save({"epoch": 2, "step": 2}, {"x": np.zeros(2)})
    assert newest_step(folder) == 2
    assert folder.best() is not None and folder.notes == []
    assert CheckpointFolder(plan, OTHER).others() == [RUN[:16]]


def test_the_deadlines_leave_time_for_a_slow_network() -> None:
    assert (module.CHECK_SECONDS, module.READ_SECONDS, module.CLOSE_SECONDS) == (30, 300, 60)
