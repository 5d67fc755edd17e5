"""Layers for sequences on the CPU, recurrent ones and transformers, against PyTorch's: forward and a training step.

    python benchmarks/recurrent.py [--quick] [--json FILE] [--only TEXT] [--threads N]

An LSTM and a GRU of 64 rows of 128 steps, 256 numbers to 256, and ("small") of 32 rows of 60 steps, 12 numbers to 64;
an encoder of 6 blocks of a transformer, 32 rows of 128 steps of 384 numbers, 12 heads. All in float32. Forward is as at
inference, `train` is forward with dL/dx and dL/dweights, each one call. PyTorch runs eagerly and by torch.compile, on
the same weights and rows; the faster of the two counts. The contestants take turns; medians. Memory is as a
fit's workers have it (see `layers_machine.limit`).

Figures: for `lstm`, `gru`, `lstm_small`, `gru_small` and `encoder`, `<case>_<kernel>_ms`, `_over_torch` (the ratio of
ours to theirs), `_torch_ms` and `_torch_compiled_ms`.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from contestants.layers_machine import Calls, limit, medians
from reporting import chosen, has_torch, write

from sparkdl import Network
from sparkdl.compiler import OPTIONS
from sparkdl.layers import Context, Gru, Layer, Lstm, TransformerEncoder
from sparkdl.layers.base import Weights


@dataclass(frozen=True)
class Case:
    """A layer and its rows.

    Attributes
    ----------
    name : str
    layer : Layer
    batch, steps, inputs : int
    peer : str, default "recurrent_torch"
        The contestant whose `module` makes of the layer and its weights PyTorch's.
    rounds : int, default 31
    """

    name: str
    layer: Layer
    batch: int
    steps: int
    inputs: int
    peer: str = "recurrent_torch"
    rounds: int = 31


CASES = [
    Case("lstm", Lstm(256), 64, 128, 256),
    Case("gru", Gru(256), 64, 128, 256),
    Case("lstm_small", Lstm(64), 32, 60, 12),
    Case("gru_small", Gru(64), 32, 60, 12),
    Case(
        "encoder", Network([TransformerEncoder(12, 1536)] * 6, input_shape=(128, 384)), 32, 128, 384, "encoder_torch", 9
    ),
]


def our_kernels(layer: Layer, weights: Weights, x: Any, dy: Any) -> Calls:
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
    shape = (case.steps, case.inputs)
    x, dy = (draw.normal(size=(case.batch, *row)).astype(np.float32) for row in (shape, case.layer.output_shape(shape)))
    weights = case.layer.init(jax.random.key(0), shape)
    calls = {"ours": our_kernels(case.layer, weights, jnp.asarray(x), jnp.asarray(dy))}
    if recurrent_torch is not None:
        own = jax.tree.map(np.array, weights)
        for name, compiled in (("torch", False), ("torch_compiled", True)):
            peer = import_module(f"contestants.{case.peer}").module(case.layer, own)
            calls[name] = recurrent_torch.kernels(peer, x, dy, compiled)
    return calls


def measured(case: Case, quick: bool, recurrent_torch: ModuleType | None) -> dict[str, float]:
    """Measure a case's kernels, print a line for each, return their figures."""
    figures: dict[str, float] = {}
    rounds = case.rounds // 4 if quick else case.rounds
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


def main() -> None:
    """Measure, print, write."""
    options, cases = chosen(__doc__, CASES)
    limit(options.threads)
    recurrent_torch: ModuleType | None = None
    if has_torch():
        recurrent_torch = import_module("contestants.recurrent_torch")
        recurrent_torch.limit(options.threads)
    print(f"{options.threads} thread(s), medians")
    print(f"{'kernel':<22}{'ms':>9}{'PyTorch ms':>12}{'compiled':>12}{'ratio':>8}")
    figures: dict[str, float] = {}
    for case in cases:
        figures |= measured(case, options.quick, recurrent_torch)
    write(options.json, figures)


if __name__ == "__main__":
    main()
