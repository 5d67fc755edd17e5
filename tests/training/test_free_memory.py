"""Memory that was freed in pieces, in a process whose malloc keeps all, as a worker's does."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sparkdl.spark.tasks.environment import TRAINING_MEMORY, TUNABLES

glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")

# Blocks of 2 to 100 kB, every other one freed; `low` is how many of as many new ones lie where the old ones did.
PROGRAM = """
import ctypes, json, random
from pathlib import Path
from sparkdl.training.free_memory import Pieces

library = ctypes.CDLL(None)
library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
library.free.argtypes = [ctypes.c_void_p]
draw = random.Random(1)
sizes = [draw.randrange(2_000, 100_000) for _ in range(4_000)]

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

def low(count):
    taken = [library.malloc(draw.randrange(2_000, 100_000)) for _ in range(count)]
    found = sum(block < top for block in taken)
    for block in taken:
        library.free(block)
    return found

blocks = [library.malloc(size) for size in sizes]
for block, size in zip(blocks, sizes):
    ctypes.memset(block, 1, size)
top = max(blocks)
for block in blocks[::2]:
    library.free(block)
seen = {"low": [low(500)], "resident": [resident()], "freed": sum(sizes[::2])}
pieces = Pieces()
for change in (pieces.hold, pieces.hold, pieces.close, pieces.close):
    change()
    seen["low"].append(low(500))
    seen["resident"].append(resident())
kept = [ctypes.string_at(block, size) == bytes([1]) * size for block, size in zip(blocks[1::2], sizes[1::2])]
print(json.dumps(seen | {"kept": all(kept)}))
"""


def run(tunables: str) -> dict[str, Any]:
    environment = os.environ | {TUNABLES: tunables, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-c", PROGRAM]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


@pytest.fixture(scope="module")
def seen() -> dict[str, Any]:
    return run(TRAINING_MEMORY)


@glibc
def test_no_allocation_finds_pieces_that_are_held(seen: dict[str, Any]) -> None:
    before, held, held_again, closed, closed_again = seen["low"]
    assert min(before, closed, closed_again) > 490
    assert held == held_again == 0


@glibc
def test_pieces_that_are_held_take_no_memory(seen: dict[str, Any]) -> None:
    before, held, *_ = seen["resident"]
    assert before - held > 0.4 * seen["freed"]  # what is on a page with something else stays


@glibc
def test_what_is_in_use_stays_as_it_is(seen: dict[str, Any]) -> None:
    assert seen["kept"]


@glibc
def test_nothing_is_held_where_malloc_has_several_arenas() -> None:
    seen = run(TRAINING_MEMORY.replace("arena_max=1:", "arena_max=16:"))
    assert min(seen["low"]) > 490
    assert seen["kept"]
