"""The clock and the machine behind the comparison of kernels: its cores, its memory, and the rates that it reaches."""

from __future__ import annotations

import math
import os
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sparkdl.spark.tasks.environment import TRAINING_MEMORY, TUNABLES

Calls = dict[str, Callable[[], Any]]
TURN_S = 0.003  # a turn repeats its call for so long, or once


def limit(threads: int) -> None:
    """Keep this process to so many cores, and JAX, which has not started yet, to as many threads on the CPU.

    Memory is as a fit's workers have it, for everybody; glibc is told as a program starts, so this starts anew. Once
    freed, it stays with the process, so that nobody's time holds the first touch of new pages, which for a large array
    takes longer than most kernels do; and it comes in pages of 2 MiB, where the system has them.
    """
    if TUNABLES not in os.environ:
        os.execve(sys.executable, sys.orig_argv, os.environ | {TUNABLES: TRAINING_MEMORY})
    os.environ["PJRT_NPROC"] = str(threads)
    jax.config.update("jax_platforms", "cpu")
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])


def medians(calls: Calls, rounds: int) -> dict[str, float]:
    """Median seconds of a call of each, over so many rounds in which the calls take turns."""
    repeats = {}
    for name, call in calls.items():
        seconds(call, 1)  # compiles
        repeats[name] = max(1, math.ceil(TURN_S / seconds(call, 1)))
    turns: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            turns[name].append(seconds(call, repeats[name]))
    return {name: statistics.median(times) for name, times in turns.items()}


def seconds(call: Callable[[], Any], repeats: int) -> float:
    """Mean seconds of a call."""
    started = time.perf_counter()
    for _ in range(repeats):
        jax.block_until_ready(call())
    return (time.perf_counter() - started) / repeats


def rates(threads: int, rounds: int, layers_torch: ModuleType | None) -> dict[str, float]:
    """GFLOP/s of a product of two matrices of 1024 x 1024, GB/s of copying 256 MiB, which are read and written."""
    size, length = 1024, 2**26
    factors = np.random.default_rng(0).normal(size=(2, size, size)).astype(np.float32)
    a, b = jnp.asarray(factors)
    product = jax.jit(jnp.matmul)
    calls: Calls = {"jax_matmul_gflops": lambda: product(a, b)}
    if layers_torch is not None:
        calls["torch_matmul_gflops"] = layers_torch.product(factors)
    source, target = (np.array_split(np.full(length, number, np.float32), threads) for number in (1, 0))
    with ThreadPoolExecutor(threads) as pool:  # NumPy copies without Python's lock
        calls["copy_gbs"] = lambda: list(pool.map(np.copyto, target, source))
        times = medians(calls, rounds)
    work = {name: 2 * size**3 for name in times} | {"copy_gbs": 2 * 4 * length}
    found = {name: work[name] / taken / 1e9 for name, taken in times.items()}
    return {"matmul_gflops": max(rate for name, rate in found.items() if name != "copy_gbs")} | found
