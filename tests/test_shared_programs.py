"""Proves that processes of one machine compile a program once: who is first, who waits, and what ends a wait."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sparkdl import shared_programs
from sparkdl.scoring import forward
from sparkdl.shared_programs import compile_once

TWO_OF_A_GROUP = """
import sys
import jax, jax.monitoring, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from sparkdl.scoring import forward
from sparkdl.shared_programs import compile_once

rank, port = int(sys.argv[1]), sys.argv[2]
loaded = []
jax.monitoring.register_event_listener(lambda name, **_: loaded.append(name) if name.endswith("cache_hits") else None)
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.distributed.initialize(f"127.0.0.1:{port}", 2, rank)
mesh = Mesh(np.array(jax.devices()), ("workers",))

def total(x):
    return jax.lax.psum(x * (1 + jax.lax.axis_index("workers")), "workers"), jax.lax.axis_index("workers")[None]

split = P("workers")
mapped = jax.jit(jax.shard_map(total, mesh=mesh, in_specs=split, out_specs=(P(), split)))
x = jax.make_array_from_callback((2,), NamedSharding(mesh, split), lambda at: np.ones(2, "float32")[at])
sums, ranks = compile_once(mapped.lower(x))(x)
print(len(loaded), float(sums.addressable_data(0)[0]), int(ranks.addressable_data(0)[0]))
jax.distributed.shutdown()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Where compiled programs are kept."""
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    yield tmp_path
    jax.config.update("jax_compilation_cache_dir", before)


class Lowered:
    """A program that takes its time to compile, and knows how many are at it."""

    def __init__(self, text: str = "", fails: int = 0) -> None:
        self.text, self.fails = text, fails
        self.begun: list[int] = []  # how many others were compiling
        self.at_it, self.may_end = 0, threading.Event()
        self.changing = threading.Lock()

    def as_text(self) -> str:
        return self.text

    def compile(self) -> str:
        with self.changing:
            self.begun.append(self.at_it)
            self.at_it += 1
            turn = len(self.begun)
        assert self.may_end.wait(60)
        with self.changing:
            self.at_it -= 1
        if turn <= self.fails:
            raise ValueError("no memory")
        return "compiled"


def compile_in(threads: int, lowered: Lowered) -> list[Any]:
    """What came of it in each of them, the first of which ends only after all have asked."""
    with ThreadPoolExecutor(threads) as pool:
        futures = [pool.submit(compile_once, lowered) for _ in range(threads)]
        threading.Timer(0.3, lowered.may_end.set).start()
        return [future.exception(60) or future.result() for future in futures]


def test_two_workers_of_a_group_compile_a_program_once_and_each_knows_its_rank(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = os.environ | {"JAX_COMPILATION_CACHE_DIR": str(tmp_path), "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", TWO_OF_A_GROUP]
    started = [
        subprocess.Popen([*command, str(rank), str(port)], env=environment, stdout=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    said = [process.communicate(timeout=120)[0].splitlines()[-1].split() for process in started]
    assert [process.returncode for process in started] == [0, 0]
    assert sorted(int(loaded) for loaded, _, _ in said) == [0, 1]
    assert [(total, rank) for _, total, rank in said] == [("3.0", "0"), ("3.0", "1")]


def test_a_program_computes_what_it_did_and_lies_in_the_folder(folder: Path) -> None:
    program = compile_once(jax.jit(lambda x: jnp.sin(x) + 1).lower(np.zeros(3)))
    np.testing.assert_allclose(program(np.zeros(3)), 1)
    assert len(list(folder.glob("*.compiled"))) == 1


def test_one_compiles_while_the_others_wait_and_these_need_no_turn(folder: Path) -> None:
    lowered = Lowered()
    assert compile_in(3, lowered) == ["compiled"] * 3
    assert lowered.begun[0] == lowered.begun[1] == 0
    assert len(lowered.begun) == 3


def test_other_programs_do_not_wait(folder: Path) -> None:
    slow, quick = Lowered("slow"), Lowered("quick")
    quick.may_end.set()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(compile_once, slow)
        assert compile_once(quick) == "compiled"
        assert not waiting.done()
        slow.may_end.set()


def test_the_next_compiles_where_the_first_could_not(folder: Path) -> None:
    lowered = Lowered(fails=1)
    found = compile_in(3, lowered)
    assert sorted(map(str, found)) == ["compiled", "compiled", "no memory"]
    assert lowered.begun[:2] == [0, 0]


def test_a_process_that_died_is_not_waited_for(folder: Path) -> None:
    lowered = Lowered()
    lowered.may_end.set()
    compile_once(lowered)
    (marker,) = folder.glob("*.compiled")
    os.truncate(marker, 0)  # as before
    holds = f"import fcntl, time; f = open({str(marker)!r}, 'a'); fcntl.flock(f, 2); print('held', flush=True)"
    command = [sys.executable, "-c", f"{holds}; time.sleep(60)"]
    with ThreadPoolExecutor(1) as pool, subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout and holder.stdout.readline() == "held\n"
        waiting = pool.submit(compile_once, lowered)
        threading.Timer(0.2, holder.kill).start()
        assert waiting.result(30) == "compiled"
        assert holder.wait(30) < 0


def test_a_wait_has_an_end(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_programs, "LONGEST_WAIT", 0.1)
    stuck = Lowered()
    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(compile_once, stuck) for _ in range(2)]
        while len(stuck.begun) < 2:  # the second began although the first has not ended
            assert not any(each.done() for each in both)
        stuck.may_end.set()
        assert [each.result(30) for each in both] == ["compiled"] * 2


@pytest.mark.parametrize("cannot", ["be written", "lock", "be found"])
def test_each_compiles_for_itself_where_files(cannot: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if cannot == "be written":
        jax.config.update("jax_compilation_cache_dir", str(folder / "missing"))
    elif cannot == "lock":
        monkeypatch.setattr(shared_programs, "fcntl", None)
    else:
        jax.config.update("jax_compilation_cache_dir", None)
    lowered = Lowered()
    assert compile_in(3, lowered) == ["compiled"] * 3
    assert sorted(lowered.begun) == [0, 1, 2]


def test_keys_of_other_programs_stay_as_jax_makes_them(folder: Path) -> None:
    before = shared_programs.cache_key._hash_accelerator_config
    compile_once(jax.jit(lambda x: x - 1).lower(np.zeros(3)))
    assert shared_programs.cache_key._hash_accelerator_config is before


def test_threads_leave_keys_as_they_were(folder: Path) -> None:
    before, lowered = shared_programs.cache_key._hash_accelerator_config, [Lowered("a"), Lowered("b")]
    with ThreadPoolExecutor(2) as pool:
        first, second = (pool.submit(compile_once, each) for each in lowered)
        for each, future in zip(lowered, (first, second), strict=True):  # the first that came leaves before the second
            each.may_end.set()
            assert future.result(30) == "compiled"
    assert shared_programs.cache_key._hash_accelerator_config is before


def test_the_first_call_of_a_scoring_program_goes_by_turns_and_later_ones_do_not(folder: Path) -> None:
    lowered, met = Lowered(), set[Any]()

    def scores(*given: Any, part: int) -> Any:
        return lowered.compile()

    def call(rows: int) -> Any:
        return forward._called(
            scores, "network", met if rows == 2 else set(), {}, {"x": np.zeros(rows)}, None, 1, part=1
        )

    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(call, 3) for _ in range(2)]  # of two processes, as what is met is a process's own
        threading.Timer(0.3, lowered.may_end.set).start()
        assert [future.result(60) for future in both] == ["compiled"] * 2
    assert lowered.begun == [0, 0]
    before = set(folder.iterdir())
    assert call(2) == call(2) == "compiled"
    assert len(set(folder.iterdir()) - before) == len(met) == 1
