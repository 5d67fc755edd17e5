"""Checkpoints of a run: written whole in the background, read back bit by bit, and never mixed with another run's."""

from __future__ import annotations

import contextlib
import math
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, NamedTuple, Self

from sparkdl.specs import Spec, check_integers
from sparkdl.training.checkpoints.checkpoint_file import Arrays, decode, encode
from sparkdl.training.checkpoints.storage import Folder, open_folder, temporary_name, within

WAITING, WAITING_BYTES = 16, 256 << 20  # checkpoints to be written, at most
CHECK_SECONDS, READ_SECONDS, CLOSE_SECONDS = 30.0, 300.0, 60.0


@dataclass(frozen=True)
class Checkpoints(Spec):
    """Where and how often a run saves what it needs to go on from.

    Parameters
    ----------
    directory : str
        Local path, or URI that pyarrow or fsspec opens; every worker must reach it. Runs share one without mixing.
    every : int
        Epochs or steps from one checkpoint to the next.
    unit : str
        Of `every`: "epoch" or "step".
    keep : int
        How many of the newest stay; the best stays as well.
    """

    directory: str
    every: int = field(default=1, kw_only=True)
    unit: str = field(default="epoch", kw_only=True)
    keep: int = field(default=3, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.directory, str) or not self.directory:
            raise ValueError(f"directory of Checkpoints must be a path or URI, received {self.directory!r}; name one.")
        check_integers(self, 1, "every", "keep")
        if self.unit not in ("epoch", "step"):
            raise ValueError(f"unit of Checkpoints must be 'epoch' or 'step', received {self.unit!r}.")


class Checkpoint(NamedTuple):
    """A checkpoint as it was read.

    Attributes
    ----------
    data : bytes
        The file, to be handed on to those who `decode` it themselves.
    meta : dict
        As saved, with the run's "fingerprint".
    arrays : dict of NumPy arrays
    """

    data: bytes
    meta: dict[str, Any]
    arrays: Arrays


class _File(NamedTuple):
    epoch: int
    step: int
    best: bool

    @property
    def name(self) -> str:
        return f"epoch-{self.epoch:05d}-step-{self.step:08d}{'-best' if self.best else ''}.ckpt"

    @classmethod
    def all_in(cls, folder: Folder) -> list[_File]:
        """By training progress, the newest first."""
        found = (re.fullmatch(r"epoch-(\d{5,})-step-(\d{8,})(-best)?\.ckpt", name) for name in folder.names())
        return sorted((cls(int(match[1]), int(match[2]), bool(match[3])) for match in found if match), reverse=True)


class CheckpointFolder:
    """The checkpoints of one run, in a folder of its own within `directory`; a context manager that closes.

    Files are called `epoch-00003-step-00000120.ckpt`, or `...-best.ckpt` where nothing before was better: what is
    best is thus written together with the file, and the newest such is the best of all.

    Parameters
    ----------
    checkpoints : Checkpoints
    fingerprint : str
        Hexadecimal digest of what makes this run itself: network, Params, data. Its first 16 digits name the folder,
        all of it is in every file.
    """

    def __init__(self, checkpoints: Checkpoints, fingerprint: str) -> None:
        self._plan, self._fingerprint = checkpoints, fingerprint
        self._changed = threading.Condition()  # guards all below
        self._folder: Folder | None = None
        self._waiting: list[tuple[_File, dict[str, Any], Arrays]] = []
        self._writer: threading.Thread | None = None
        self._closed = False
        self._notes: list[str] = []
        self._troubles: dict[str, tuple[int, str]] = {}  # how often, and what was said the last time

    @property
    def notes(self) -> list[str]:
        """What went otherwise than expected so far, a sentence each."""
        with self._changed:
            return self._notes + [
                f"{count} of the checkpoints in {self._plan.directory!r} {trouble}; the last: {last.rstrip('.')}."
                for trouble, (count, last) in self._troubles.items()
            ]

    def check(self, seconds: float = CHECK_SECONDS) -> None:
        """Prove that files can be written, and delete what a killed writer left; for the process that will write.

        Raises
        ------
        ValueError
            They cannot; the message says why.
        """

        def probe() -> None:
            folder = self._open()
            folder.tidy()
            name = temporary_name()
            folder.write(name, b"")
            folder.remove(name)

        try:
            within(seconds, probe)
        except Exception as error:
            raise ValueError(self._sentence("written", error)) from None

    def newest(self, seconds: float = READ_SECONDS, steps: float = math.inf) -> Checkpoint | None:
        """The newest whole checkpoint of this run with at most so many steps done.

        Each one that is newer but cannot be used gets a note.

        Raises
        ------
        ValueError
            The folder cannot be read.
        """
        return self._first(seconds, steps, best=False)

    def best(self, seconds: float = READ_SECONDS) -> Checkpoint | None:
        """As `newest`, among those that were the best when they were saved."""
        return self._first(seconds, math.inf, best=True)

    def others(self, seconds: float = CHECK_SECONDS) -> list[str]:
        """The first 16 digits of the fingerprints of other runs with checkpoints in the directory.

        Raises
        ------
        ValueError
            The directory cannot be read.
        """

        def look() -> list[str]:
            top = open_folder(self._plan.directory)
            runs = [name for name in top.folders() if re.fullmatch("[0-9a-f]{16}", name)]
            return [name for name in runs if name != self._fingerprint[:16] and _File.all_in(top.folder(name))]

        try:
            return within(seconds, look)
        except Exception as error:
            raise ValueError(self._sentence("read", error)) from None

    def save(self, meta: Mapping[str, Any], arrays: Arrays, best: bool = False) -> None:
        """Hand a checkpoint over to the thread that writes it; returns at once and never fails.

        While one is being written others wait; if they become too many, all but the newest and the best are left out.

        Parameters
        ----------
        meta : mapping
            Any JSON, with the numbers "epoch" and "step" that say how far training is.
        arrays : dict of NumPy arrays
            Copies that nobody changes any more.
        best : bool
            Whether it is better than all before.
        """
        file = _File(meta["epoch"], meta["step"], best)
        with self._changed:
            assert not self._closed, "save after close"
            backlog = [sum(array.nbytes for array in held.values()) for _, _, held in self._waiting]
            if len(backlog) < WAITING and sum(backlog) < WAITING_BYTES:
                stay = self._waiting
            else:
                stay = [one for one in self._waiting if one[0].best and not best]
            for left_out, *_ in self._waiting:
                if left_out not in [one[0] for one in stay]:
                    self._trouble("were left out, as writing was slower than training", left_out.name)
            self._waiting = [*stay, (file, {**meta, "fingerprint": self._fingerprint}, arrays)]
            if self._writer is None:
                self._writer = threading.Thread(target=self._write, name="checkpoints", daemon=True)
                self._writer.start()
            self._changed.notify_all()

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Wait until all is written, but no longer than this; what is not gets a note."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._changed.notify_all()
        if self._writer is None:
            return
        self._writer.join(seconds)
        with self._changed:
            if self._writer.is_alive():
                self._waiting = []
                self._notes.append(
                    f"The last checkpoint in {self._plan.directory!r} was not written within {seconds:g} s; "
                    "the one before it stays."
                )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open(self) -> Folder:
        folder = self._folder
        if folder is None:
            folder = self._folder = open_folder(self._plan.directory).folder(self._fingerprint[:16])
        return folder

    def _sentence(self, done: str, error: Exception) -> str:
        reason = " ".join(str(error).split()).rstrip(".")  # some have several lines
        return (
            f"The checkpoint directory {self._plan.directory!r} cannot be {done}: {reason}; "
            "name a folder that every worker can read and write."
        )

    def _trouble(self, trouble: str, said: str) -> None:
        count, _ = self._troubles.get(trouble, (0, ""))
        self._troubles[trouble] = count + 1, said

    def _first(self, seconds: float, steps: float, best: bool) -> Checkpoint | None:
        def look() -> tuple[Checkpoint | None, list[str]]:
            folder = self._open()
            notes: list[str] = []
            for file in _File.all_in(folder):
                if file.step <= steps and (file.best or not best):
                    try:
                        return self._read(folder, file), notes
                    except Exception as error:
                        notes.append(f"{file.name} in {self._plan.directory!r} is passed over: {error}")
            return None, notes

        try:
            found, notes = within(seconds, look)
        except Exception as error:
            raise ValueError(self._sentence("read", error)) from None
        with self._changed:
            self._notes += notes
        return found

    def _read(self, folder: Folder, file: _File) -> Checkpoint:
        data = folder.read(file.name)
        meta, arrays = decode(data)
        if meta.get("fingerprint") != self._fingerprint:
            raise ValueError(f"It belongs to another run, with the fingerprint {meta.get('fingerprint')!r}.")
        return Checkpoint(data, meta, arrays)

    def _write(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if not self._waiting:
                    return
                file, meta, arrays = self._waiting.pop(0)
            try:
                folder = self._open()
                folder.write(file.name, *encode(meta, arrays))
            except Exception as error:
                with self._changed:
                    self._trouble("could not be written", f"{file.name}, because of {error}")
            else:
                self._remove_old(folder, file)
            del meta, arrays  # they are as large as the network; the next may be long in coming

    def _remove_old(self, folder: Folder, latest: _File) -> None:
        try:
            # What lies ahead was passed over when this run went on; it must not count as the newest.
            behind = [file for file in _File.all_in(folder) if file <= latest]
            stay = {*behind[: self._plan.keep], *[file for file in behind if file.best][:1]}
            for file in behind:
                if file not in stay:
                    with contextlib.suppress(FileNotFoundError):  # an equal run beside this one was sooner
                        folder.remove(file.name)
        except Exception as error:
            with self._changed:
                self._trouble("could not be removed when newer ones were there", str(error))
