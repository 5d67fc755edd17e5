"""Compiled programs, kept on disk for the next fit and, while several processes of a machine need one, for these."""

from __future__ import annotations

import os
import platform
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache
from hashlib import sha256
from typing import Any, BinaryIO

import jax

try:
    import fcntl
except ImportError:  # Windows, where each process compiles for itself
    fcntl = None  # type: ignore[assignment]
try:
    from jax._src import cache_key, distributed  # there are no public names for what is changed here
except ImportError:  # of a JAX that keeps them elsewhere: each process compiles, and the first alone keeps programs
    cache_key = distributed = None  # type: ignore[assignment]

HASH_OF_DEVICES = "_hash_accelerator_config"
LONGEST_WAIT = 300.0  # seconds for another process to compile, after which it counts as stuck
POLL = 0.01


def compile_once(lowered: Any) -> Any:
    """Compile a lowered program, or load it where another process of this machine compiles or has compiled it.

    Processes find each other, and the program, in the folder of JAX's compilation cache. Without one, and for all but
    CPUs, each compiles for itself. The first to come compiles; the others wait for it, as they would compile what it
    does, and slow it.
    """
    if not shares_programs():
        return lowered.compile()
    with kept_by_every_process(), _equal_keys, compiling_once(lowered.as_text()):
        return lowered.compile()


def shares_programs() -> bool:
    """Whether processes of this machine can find each other's programs."""
    is_cached = bool(getattr(jax.config, "jax_compilation_cache_dir", None))
    return is_cached and hasattr(cache_key, HASH_OF_DEVICES) and jax.default_backend() == "cpu"


def compiling_once(program: str) -> AbstractContextManager[None]:
    """For what compiles within, and keeps in the cache, a program that this text tells from others.

    It runs first in one process, which leaves a byte in a file, and then in all that have waited. Should it end without
    a result, the next one is the first. Where files or locks cannot be had, none waits.
    """
    name = sha256(f"{_machine()} {program}".encode()).hexdigest()
    return _first_to_come(os.path.join(jax.config.jax_compilation_cache_dir, f"{name}.compiled"))  # type: ignore[attr-defined]


@contextmanager
def kept_by_every_process() -> Iterator[None]:
    """Have all processes of a group write to JAX's compilation cache while they compile, not only the first.

    JAX spares shared file systems the others' copies. But a worker's cache is on its own machine's disk, and keys of
    programs that are not compiled by `compile_once` differ from rank to rank, so that without this every rank but the
    first would compile anew in every fit while the first waits for them.
    """
    state: Any = getattr(distributed, "global_state", None)
    rank = getattr(state, "process_id", 0)
    if not rank:
        yield
        return
    state.process_id = 0
    try:
        yield
    finally:
        state.process_id = rank


@contextmanager
def _first_to_come(path: str) -> Iterator[None]:
    try:
        file = open(path, "ab")  # noqa: SIM115 - what is within may fail by an OSError of its own
    except OSError:  # a full or strange disk, or no disk at all, as of cloud storage
        yield
        return
    with file:  # closing it unlocks it
        if not _is_done(file) and _lock(file) and not _is_done(file):
            yield
            with suppress(OSError):  # of a full disk; then the next one is the first, too
                os.ftruncate(file.fileno(), 1)
            return
    yield


def _is_done(file: BinaryIO) -> bool:
    return os.fstat(file.fileno()).st_size > 0


def _lock(file: BinaryIO) -> bool:
    """Whether the file is this process's own now."""
    end = time.monotonic() + LONGEST_WAIT
    while fcntl and time.monotonic() < end:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            time.sleep(POLL)
        except OSError:  # a file system without locks
            break
    return False


class _EqualKeys:
    """Has JAX's cache tell programs for CPUs apart by machine, not by which of a group's devices are this process's.

    A program for several processes is the same in all of them: it asks for the rank when it runs. Several threads may
    be within at once.
    """

    def __init__(self) -> None:
        self._changing, self._within, self._of_devices = threading.Lock(), 0, None

    def __enter__(self) -> None:
        with self._changing:
            if not self._within:
                self._of_devices = getattr(cache_key, HASH_OF_DEVICES)
                setattr(cache_key, HASH_OF_DEVICES, lambda hashed, *_: hashed.update(_machine().encode()))
            self._within += 1

    def __exit__(self, *error: object) -> None:
        with self._changing:
            self._within -= 1
            if not self._within:
                setattr(cache_key, HASH_OF_DEVICES, self._of_devices)


_equal_keys = _EqualKeys()


@cache
def _machine() -> str:
    """This machine's name and what its processors can do, as code for one may not run on another."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            abilities = sorted({line for line in file if line.startswith(("flags", "Features", "model name"))})
    except OSError:  # not Linux
        abilities = [platform.processor()]
    return "".join([platform.node(), *abilities])
