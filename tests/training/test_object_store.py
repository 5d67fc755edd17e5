"""Checkpoints and logs in S3: as on a disk; a server that stalls, refuses or loses writes is a sentence, soon."""

from __future__ import annotations

import re
import struct
import time
from collections.abc import Iterator

import numpy as np
import pytest
from object_store import Store, served

from sparkdl import Network
from sparkdl.layers import Dense
from sparkdl.losses import SquaredError
from sparkdl.objective import Objective
from sparkdl.training import Checkpoints, fit
from sparkdl.training.checkpoints import remote_file
from sparkdl.training.checkpoints.checkpoints import CheckpointFolder
from sparkdl.training.checkpoints.storage import open_folder
from sparkdl.training.records.logs import Logs, LogWriter

FINGERPRINT = "ab" * 32
NETWORK = Network([Dense(1)], input_shape=(4,))
OBJECTIVE = Objective.of(SquaredError(), None, NETWORK.output_names)
PLACE = "s3://bucket/runs"


@pytest.fixture(scope="module")
def server() -> Iterator[Store]:
    with pytest.MonkeyPatch.context() as patch, served(patch) as store:
        yield store


@pytest.fixture
def store(server: Store) -> Iterator[Store]:
    """An empty one, and in order again afterwards."""
    folder = open_folder("s3://bucket")
    folder._filesystem.delete_dir_contents("bucket")
    server.requests.clear()
    yield server
    server.lost, server.refuses = None, False


def saved(folder: CheckpointFolder, *epochs: int) -> None:
    for epoch in epochs:
        folder.save({"epoch": epoch, "step": 0}, {"w": np.full(100, epoch, np.float32)})


def newest() -> tuple[int | None, list[str]]:
    """The newest checkpoint's epoch as a later run finds it, and what is said."""
    with CheckpointFolder(Checkpoints(PLACE), FINGERPRINT) as folder:
        found = folder.newest()
        return (int(found.arrays["w"][0]) if found else None), folder.notes


def test_a_folder_in_s3_is_like_any_other(store: Store) -> None:
    folder = open_folder(PLACE)
    folder.write("b", b"one")
    folder.write("b", b"two")
    folder.write("a", b"")
    folder.folder("inner").write("x", b"1")
    assert (folder.names(), folder.read("b"), folder.read("a"), folder.folders()) == (
        ["a", "b"],
        b"two",
        b"",
        ["inner"],
    )
    folder.remove("a")
    assert (folder.exists("a"), folder.exists("b")) == (False, True)


def test_a_large_file_is_read_in_one_request(store: Store) -> None:
    """Each takes a round trip: by pieces of 256 KiB, as streams are read, a gigabyte takes 4,000."""
    folder = open_folder(PLACE)
    data = bytes(range(256)) * (3 << 12)
    folder.write("x", data)
    store.requests.clear()
    assert folder.read("x") == data
    assert store.requests.count("GET /bucket/runs/x") == 1


def test_a_run_goes_on_from_its_checkpoint_in_s3_and_ends_alike(store: Store) -> None:
    x = np.random.default_rng(0).normal(size=(32, 4)).astype(np.float32)
    rows = x, x.sum(1)

    def train(epochs: int, place: str | None) -> np.ndarray:
        kept = place and Checkpoints(place)
        result = fit(NETWORK, rows, loss="squared_error", epochs=epochs, batch_size=8, checkpoints=kept)
        assert (result.resumed is not None) == (place is not None and epochs == 3)
        return result.weights["dense_0"]["kernel"]

    train(2, PLACE)
    np.testing.assert_array_equal(train(3, PLACE), train(3, None))


@pytest.mark.parametrize(
    "lost, said",
    [
        (1.0, "acknowledged epoch-00003-step-00000000.ckpt, which is not there"),
        (0.5, r"but holds \d+ of its \d+ bytes"),
    ],
)
def test_a_lost_write_is_said_and_the_one_before_it_stays(store: Store, lost: float, said: str) -> None:
    with CheckpointFolder(Checkpoints(PLACE, keep=1), FINGERPRINT) as folder:
        saved(folder, 1, 2)
        folder.close()
    with CheckpointFolder(Checkpoints(PLACE, keep=1), FINGERPRINT) as folder:
        store.lost = lost
        saved(folder, 3)
        folder.close()
        (note,) = folder.notes
        assert note.startswith(f"1 of the checkpoints in {PLACE!r} could not be written")
        assert re.search(said, note), note
    epoch, notes = newest()
    assert epoch == 2, "neither the lost one nor none"
    assert len(notes) == (lost < 1) and all("truncated" in note and PLACE in note for note in notes)


def test_a_store_that_loses_all_is_refused_before_training(store: Store) -> None:
    store.lost = 1.0
    with (
        CheckpointFolder(Checkpoints(PLACE), FINGERPRINT) as folder,
        pytest.raises(ValueError, match=f"The checkpoint directory '{PLACE}' cannot be written: .* is not there"),
    ):
        folder.check()


def test_a_store_that_refuses_is_a_sentence(store: Store) -> None:
    store.refuses = True
    began = time.monotonic()
    for ask, done in ((CheckpointFolder.check, "written"), (CheckpointFolder.newest, "read")):
        with (
            CheckpointFolder(Checkpoints(PLACE), FINGERPRINT) as folder,
            pytest.raises(
                ValueError, match=f"The checkpoint directory '{PLACE}' cannot be {done}: .*ACCESS_DENIED.*; name a fold"
            ),
        ):
            ask(folder)
    assert time.monotonic() - began < 10


def test_a_store_that_stalls_ends_every_wait_with_a_sentence(store: Store) -> None:
    folder = CheckpointFolder(Checkpoints(PLACE), FINGERPRINT)
    folder.check()
    began = time.monotonic()
    with store.stalled():
        for ask, done in ((folder.check, "written"), (folder.newest, "read"), (folder.others, "read")):
            with pytest.raises(
                ValueError, match=f"The checkpoint directory '{PLACE}' cannot be {done}: the file system gave no "
            ):
                ask(0.3)
        saved(folder, 1)
        folder.close(0.3)
        assert "was not written within 0.3 s" in folder.notes[-1] and PLACE in folder.notes[-1]
        assert time.monotonic() - began < 5


# logDir


def writer() -> LogWriter:
    return LogWriter(Logs(f"{PLACE}/"), NETWORK, OBJECTIVE, lambda step: 0.1)


def losses() -> list[float]:
    """What the only file says, whose records are length, its checksum, data, and its checksum."""
    from tensorboardX.proto import event_pb2

    folder = open_folder(PLACE)
    (name,) = folder.names()
    data, found = folder.read(name), []
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        found += event_pb2.Event.FromString(data[12 : 12 + length]).summary.value
        data = data[16 + length :]
    return [value.simple_value for value in found if value.tag == "step/loss"]


def test_logs_appear_in_s3_while_a_run_goes_on(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_file, "PAUSE_SECONDS", 0.01)
    log = writer()
    log.scalars(1, {"loss": 0.5})
    deadline = time.monotonic() + 10
    while losses() != [0.5] and time.monotonic() < deadline:
        time.sleep(0.02)
    assert losses() == [0.5]
    monkeypatch.setattr(remote_file, "PAUSE_SECONDS", 60.0)
    log.scalars(2, {"loss": 0.25})
    log.scalars(3, {"loss": 0.125})
    log.close()  # which waits for no pause
    assert losses() == [0.5, 0.25, 0.125]


def test_logs_that_a_store_refuses_or_loses_end_with_a_warning_and_not_the_training(store: Store) -> None:
    for trouble, value, said in (("refuses", True, "ACCESS_DENIED"), ("lost", 0.5, "acknowledged events")):
        setattr(store, trouble, False)
        log = writer()
        log.scalars(1, {"loss": 0.5})
        setattr(store, trouble, value)
        with pytest.warns(UserWarning, match=rf"(?s)logs .*{PLACE}.*{said}"):
            log.scalars(2, {"loss": 0.25})
            log.close()
        setattr(store, trouble, None)


def test_a_store_that_refuses_logs_is_refused_before_training(store: Store) -> None:
    store.refuses = True
    with pytest.raises(ValueError, match=f"directory of Logs must be a folder .* received '{PLACE}/' .*ACCESS_DENIED"):
        writer()


def test_logs_that_a_store_stalls_are_given_up_in_time(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_file, "CLOSE_SECONDS", 0.3)
    monkeypatch.setattr(remote_file, "OPEN_SECONDS", 0.3)
    log = writer()
    with store.stalled():
        log.scalars(1, {"loss": 0.5})
        with pytest.warns(UserWarning, match=f"last logs are missing in {PLACE}/ .the file system gave no answer"):
            log.close()
        with pytest.raises(ValueError, match="directory of Logs must be a folder .*gave no answer within 0.3 s"):
            writer()
