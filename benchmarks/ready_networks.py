"""The ready networks: weights, published count, multiply-adds, whose names they read, and a row's time beside PyTorch.

    python benchmarks/ready_networks.py [--quick] [--json FILE] [--only TEXT] [--rounds N]

Prints the table of docs/ready-networks.md. Timed is the forward pass of 8 rows in float32 on one core, texts and other
rows of any length having 128 steps; PyTorch's network is the same, put together of its own modules or Hugging Face's,
channels last, under `inference_mode`. Both must come to the same numbers before the clock runs; then they take turns;
medians. Memory is as a fit's workers have it (see `layers_machine.limit`).

Figures: for each network that PyTorch has here, `<name>_row_ms`, `<name>_torch_row_ms` and `<name>_over_torch`, ours
over theirs; for the others the first alone.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from contestants.layers_machine import Calls, limit, medians
from contestants.ready_cases import READY, Ready, facts
from reporting import arguments, has_torch, write

from sparkdl import Graph, Network
from sparkdl.compiler import OPTIONS
from sparkdl.layers import Ragged

ROWS = 8
HEADER = ("network", "weights", "published", "multiply-adds", "names", "ms a row", "over PyTorch")


def rows(network: Network | Graph, steps: int) -> dict[str, Any]:
    """By input, random rows; of any length ones of so many steps."""
    draw, found = np.random.default_rng(0), {}
    for at, (name, shape) in enumerate(network.input_shapes.items()):
        own = (ROWS, *(steps if size is None else size for size in shape))
        whole = at in network.integer_entries
        made: Any = draw.integers(1, 60, own).astype("int32") if whole else draw.normal(size=own).astype("float32")
        ragged = bool(shape) and shape[0] is None
        found[name] = Ragged(jnp.asarray(made), jnp.full(ROWS, steps, "int32")) if ragged else jnp.asarray(made)
    return found


def calls(ready: Ready, torch: bool) -> Calls:
    """Everybody's forward pass on the same rows and weights."""
    network = ready.build()
    weights, given = network.init(0), rows(network, ready.steps)
    values = network.read(given, "float32")
    forward = jax.jit(network.forward, compiler_options=OPTIONS["cpu"])
    found: Calls = {"ours": lambda: forward(weights, values)}
    if torch and ready.peer is not None:
        from contestants.ready_torch import peer

        found["torch"] = peer(ready, network, weights, next(iter(given.values())))
        ours, theirs = found["ours"](), np.asarray(found["torch"]())
        ours = np.asarray(ours.values if isinstance(ours, Ragged) else ours)
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-4 * max(1.0, np.abs(theirs).max()))
    return found


def main() -> None:
    """Measure, print, write."""
    parser = arguments(__doc__)
    parser.add_argument("--only", default="", metavar="TEXT", help="only the networks with this in their name")
    parser.add_argument("--rounds", type=int, metavar="N", help="turns of each (default: 7; quick: 1)")
    options = parser.parse_args()
    chosen = [ready for ready in READY if options.only in ready.call]
    if not chosen:
        parser.error(f"--only must be part of a network's name, received {options.only!r}.")
    limit(1)
    torch, figures = has_torch(), {}
    print(f"| {' | '.join(HEADER)} |\n|{'---|' * len(HEADER)}")
    for ready in chosen:
        times = medians(calls(ready, torch), options.rounds or (1 if options.quick else 7))
        name = ready.call.partition("(")[0]
        figures[f"{name}_row_ms"] = times["ours"] * 1e3 / ROWS
        cells = [*facts(ready), f"{figures[f'{name}_row_ms']:.3g}", ""]
        if "torch" in times:
            figures[f"{name}_torch_row_ms"] = times["torch"] * 1e3 / ROWS
            figures[f"{name}_over_torch"] = times["ours"] / times["torch"]
            cells[-1] = f"{figures[f'{name}_over_torch']:.2f}"
        print(f"| {' | '.join(cells)} |", flush=True)
    write(options.json, figures)


if __name__ == "__main__":
    main()
