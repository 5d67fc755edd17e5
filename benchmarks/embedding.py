"""A step that touches only the rows of a large table that its batch names, beside the step of the whole, and PyTorch.

    python benchmarks/embedding.py [--quick] [--json FILE] [--rows N] [--threads N]

A table of 1,000,000 x 64 (100,000 with --quick), 4,096 random ids a step, each with one number to predict by a Dense
layer from its vector; float32, on the CPU. The step is that of a fit: forward, backward, exchange, update. "dense" is
the same program given the whole gradient. PyTorch has `nn.Embedding(sparse=True)` and the same optimizer. The
contestants take turns of 10 steps, each of other ids; medians. Bytes are those that two workers send in a step of the
exchange AllReduce, half of the ids each.

Figures, of SGD and, with the prefix `adagrad_`, of AdaGrad: `sparse_over_dense_step` and `step_over_torch_sparse` (time
over time), `sparse_over_dense_bytes`; `lazy_adam_over_dense_step` of `Adam(lazy=True)` beside Adam.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=2"

import jax
import numpy as np
from contestants.layers_machine import limit, medians
from jax.sharding import Mesh
from reporting import arguments, has_torch, write

from sparkdl import Network
from sparkdl.arrays import FEATURES, LABEL
from sparkdl.layers import Dense, Embedding
from sparkdl.losses import SquaredError
from sparkdl.objective import SENT, Objective
from sparkdl.optimizers import SGD, AdaGrad, Adam, Optimizer
from sparkdl.training import AllReduce
from sparkdl.training.data.batches import Rows
from sparkdl.training.data.placing import place, replicate
from sparkdl.training.exchanges.exchange import WORKERS
from sparkdl.training.step.state import Settings, initial_state
from sparkdl.training.step.step import Program, make_step

SIZE, BATCH, STEPS, STEP_SIZE = 64, 4096, 10, 0.01


class Run:
    """A network and its state, which a call advances by some steps."""

    def __init__(self, rows: int, optimizer: Optimizer, apart: bool, workers: int = 1) -> None:
        network = Network([Embedding(rows, SIZE), Dense(1)], input_shape=())
        mesh = Mesh(np.array(jax.devices()[:workers]), (WORKERS,))
        objective = Objective.of(SquaredError(), None, network.output_names)
        program = Program(network, objective, optimizer, AllReduce(), mesh, apart=apart, adds_up=optimizer.adds_up)
        ones = np.ones(BATCH, np.float32)
        self.batches = [place(Rows({FEATURES: ids}, {LABEL: labels}, ones), mesh) for ids, labels in batches(rows)]
        self.settings = Settings.of(optimizer, STEP_SIZE, 0)
        self.state = replicate(initial_state(network, network.init(0), optimizer, AllReduce(), workers), mesh)
        self.step = make_step(program)

    def __call__(self) -> Any:
        for batch in self.batches:
            self.state, totals = self.step(self.state, self.settings, batch)
        return totals


def batches(rows: int) -> list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
    """Ids and what is to be predicted of them, for every step."""
    draw = np.random.default_rng(0)
    shapes = [(draw.integers(0, rows, BATCH), draw.normal(size=(BATCH, 1))) for _ in range(STEPS)]
    return [(ids.astype(np.int32), labels.astype(np.float32)) for ids, labels in shapes]


def torch_steps(rows: int, name: str, threads: int) -> Callable[[], Any]:
    """PyTorch's steps with a sparse gradient of the table; the dense layer has an optimizer of the same kind."""
    import torch

    torch.set_num_threads(threads)
    table, dense = torch.nn.Embedding(rows, SIZE, sparse=True), torch.nn.Linear(SIZE, 1)
    kind = {"sgd": torch.optim.SGD, "adagrad": torch.optim.Adagrad}[name]
    optimizer = kind([*table.parameters(), *dense.parameters()], lr=STEP_SIZE)
    given = [(torch.tensor(ids), torch.tensor(labels)) for ids, labels in batches(rows)]

    def steps() -> Any:
        for ids, labels in given:
            optimizer.zero_grad()
            loss = ((dense(table(ids)) - labels) ** 2).mean()
            loss.backward()
            optimizer.step()
        return loss.item()

    return steps


def sent(rows: int, optimizer: Optimizer, apart: bool) -> float:
    """Bytes that two workers send in a step."""
    return float(Run(rows, optimizer, apart, workers=2)()[SENT])


def main() -> None:
    """Measure, print, write."""
    parser = arguments(__doc__)
    parser.add_argument("--rows", type=int, metavar="N", help="of the table (default: 1000000, or 100000)")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="cores to run on (default: %(default)s)")
    options = parser.parse_args()
    rows = options.rows or (100_000 if options.quick else 1_000_000)
    limit(options.threads)
    beside = has_torch()
    figures: dict[str, float] = {}
    print(f"{rows:,} rows of {SIZE}, {BATCH:,} ids a step, {options.threads} thread(s); medians in ms")
    for prefix, few, whole in (("", SGD(), SGD()), ("adagrad_", AdaGrad(), AdaGrad()), ("", Adam(lazy=True), Adam())):
        calls: dict[str, Callable[[], Any]] = {"sparse": Run(rows, few, True), "dense": Run(rows, whole, False)}
        name = type(few).__name__.lower()
        if beside and name != "adam":
            calls["torch"] = torch_steps(rows, name, options.threads)
        times = medians(calls, 3 if options.quick else 9)
        print(
            f"{name:<10}" + "".join(f"{each:>10}{time / STEPS * 1e3:9.3f}" for each, time in times.items()), flush=True
        )
        over = "lazy_adam_over_dense_step" if name == "adam" else f"{prefix}sparse_over_dense_step"
        figures[over] = times["sparse"] / times["dense"]
        if "torch" in times:
            figures[f"{prefix}step_over_torch_sparse"] = times["sparse"] / times["torch"]
        if name != "adam":
            figures[f"{prefix}sparse_over_dense_bytes"] = sent(rows, few, True) / sent(rows, whole, False)
    for name, value in figures.items():
        print(f"{name} {value:.4f}")
    write(options.json, figures)


if __name__ == "__main__":
    main()
