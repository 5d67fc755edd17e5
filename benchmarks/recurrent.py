"""Recurrent layers on the CPU against PyTorch's, forward and a training step.

    python benchmarks/recurrent.py [--quick] [--json FILE] [--only TEXT] [--threads N]

An LSTM and a GRU of 64 rows of 128 steps, 256 numbers to 256, and ("small") of 32 rows of 60 steps, 12 numbers to 64,
in float32. Forward is as at inference, `train` is forward with dL/dx and dL/dweights, each one call. PyTorch runs
eagerly and by torch.compile, on the same weights and rows; the faster of the two counts. The contestants take turns;
medians. Memory, once freed, stays with the process, so that no time holds the first touch of new pages.

Figures: for `lstm`, `gru`, `lstm_small` and `gru_small`, `<case>_<kernel>_ms`, `_over_torch` (the ratio of ours to
theirs), `_torch_ms` and `_torch_compiled_ms`.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from contestants.layers_machine import Calls, limit, medians
from reporting import arguments, write

from sparkdl.compiler import OPTIONS
from sparkdl.layers import Context, Gru, Lstm
from sparkdl.layers.recurrent import Recurrent


@dataclass(frozen=True)
class Case:
    """A layer and its rows.

    Attributes
    ----------
    name : str
    layer : Recurrent
    batch, steps, inputs : int
    """

    name: str
    layer: Recurrent
    batch: int
    steps: int
    inputs: int


CASES = [
    Case("lstm", Lstm(256), 64, 128, 256),
    Case("gru", Gru(256), 64, 128, 256),
    Case("lstm_small", Lstm(64), 32, 60, 12),
    Case("gru_small", Gru(64), 32, 60, 12),
]


def our_kernels(layer: Recurrent, weights: dict[str, Any], x: Any, dy: Any) -> Calls:
    """Calls of forward, and of `train`: y, dL/dx and dL/dweights."""
    ones = jnp.ones(len(x))

    def step(weights: Any, x: Any, dy: Any, ones: Any) -> Any:
        context = Context(jax.random.key(0), ones)
        y, kept = layer.train_forward(weights, x, context)
        return y, layer.train_backward(weights, x, y, dy, kept, context, True)

    options = OPTIONS["cpu"]
    forward = jax.jit(lambda weights, x: layer.forward(weights, x), compiler_options=options)
    train = jax.jit(step, compiler_options=options)
    return {"forward": lambda: forward(weights, x), "train": lambda: train(weights, x, dy, ones)}


def contestants(case: Case, recurrent_torch: ModuleType | None) -> dict[str, Calls]:
    """Every contestant's calls, on the same random rows and weights."""
    draw = np.random.default_rng(0)
    x, dy = (
        draw.normal(size=(case.batch, case.steps, size)).astype(np.float32) for size in (case.inputs, case.layer.units)
    )
    weights = case.layer.init(jax.random.key(0), (case.steps, case.inputs))
    calls = {"ours": our_kernels(case.layer, weights, jnp.asarray(x), jnp.asarray(dy))}
    if recurrent_torch is not None:
        own = {name: np.array(value) for name, value in weights.items()}
        for name, compiled in (("torch", False), ("torch_compiled", True)):
            calls[name] = recurrent_torch.kernels(case.layer, own, x, dy, compiled)
    return calls


def measured(case: Case, rounds: int, recurrent_torch: ModuleType | None) -> dict[str, float]:
    """Measure a case's kernels, print a line for each, return their figures."""
    figures: dict[str, float] = {}
    entered = contestants(case, recurrent_torch)
    for kernel in ("forward", "train"):
        times = medians({name: calls[kernel] for name, calls in entered.items()}, rounds)
        name, ours = f"{case.name}_{kernel}", times.pop("ours")
        figures[f"{name}_ms"] = ours * 1e3
        figures |= {f"{name}_{peer}_ms": taken * 1e3 for peer, taken in times.items()}
        line = f"{name:<22}{ours * 1e3:9.3f}" + "".join(f"{taken * 1e3:12.3f}" for taken in times.values())
        if times:
            figures[f"{name}_over_torch"] = ours / min(times.values())
            line += f"{figures[f'{name}_over_torch']:8.2f}"
        print(line, flush=True)
    return figures


def options() -> tuple[argparse.Namespace, list[Case]]:
    """The command line's options and the cases they choose."""
    parser = arguments(__doc__)
    parser.add_argument("--only", default="", metavar="TEXT", help="only the cases with this in their name")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="cores to run on (default: %(default)s)")
    chosen = parser.parse_args()
    cases = [case for case in CASES if chosen.only in case.name]
    if not cases:
        names = ", ".join(case.name for case in CASES)
        parser.error(f"--only must be part of a case's name, received {chosen.only!r}; the cases are {names}.")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not 1 <= chosen.threads <= cores:
        parser.error(f"--threads must be from 1 to the {cores} cores at hand, received {chosen.threads}; change it.")
    return chosen, cases


def main() -> None:
    """Measure, print, write."""
    chosen, cases = options()
    limit(chosen.threads)
    recurrent_torch: ModuleType | None = None
    if find_spec("torch") is None:
        print("PyTorch is not installed and left out; pip install 'sparkdl-jax[benchmarks]' brings it.")
    else:
        recurrent_torch = import_module("contestants.recurrent_torch")
        recurrent_torch.limit(chosen.threads)
    rounds = 7 if chosen.quick else 31
    print(f"{chosen.threads} thread(s), medians of {rounds} turns")
    print(f"{'kernel':<22}{'ms':>9}{'PyTorch ms':>12}{'compiled':>12}{'ratio':>8}")
    figures: dict[str, float] = {}
    for case in cases:
        figures |= measured(case, rounds, recurrent_torch)
    write(chosen.json, figures)


if __name__ == "__main__":
    main()
