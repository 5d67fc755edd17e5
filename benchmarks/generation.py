"""What the keys and values that causal attention keeps are worth: a small GPT-2 goes on with rows, with and without.

    python benchmarks/generation.py [--quick] [--json FILE] [--threads N]

`models.gpt2` of 1,000 words, 4 blocks of 128 numbers, in float32, goes on with a row of 32 words for 32, 96 and 224
steps, and with 16 rows for 32 (quick: one row for 32 and 96). Without them the whole row goes through the network
again for each word, as it does behind a layer that says nothing of segments. The two take turns, in one process;
medians. Both draw the same words, but for ties that rounding breaks.

Figures: for `rows_1_steps_32` and the like, `<case>_kept_ms`, `_anew_ms`, `_anew_over_kept` and `_same`, the share of
words that both draw.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
from contestants.layers_machine import limit, medians
from reporting import arguments, write

from sparkdl import Network, models
from sparkdl.layers import Layer, Ragged, jitted

GIVEN = 32
CASES = [(1, 32), (1, 96), (1, 224), (16, 32)]
QUICK = [(1, 32), (1, 96)]


@dataclass(frozen=True)
class Whole(Layer):
    """Rows as they are; as it says nothing of segments, a network with it goes over whole rows."""

    @property
    def takes_ragged(self) -> bool:
        return True

    def output_shape(self, input_shape: Any) -> Any:
        return input_shape

    @jitted
    def forward(self, weights: Any, x: Any) -> Any:
        return x


def networks() -> dict[str, Network]:
    """The one that keeps keys and values, and the one that computes them anew; their weights are the same."""
    kept = models.gpt2(vocabulary=1000, size=128, blocks=4, heads=4, length=256)
    return {"kept": kept, "anew": replace(kept, layers=[*kept.layers, Whole()])}


def measured(rows: int, steps: int, rounds: int) -> dict[str, float]:
    """Measure a case, print a line for it, return its figures."""
    entered = networks()
    weights = jax.tree.map(lambda array: 5 * array, entered["kept"].init(0))  # of which the words differ
    values = np.random.default_rng(0).integers(0, 1000, (rows, GIVEN)).astype("int32")
    first = Ragged(values, np.full(rows, GIVEN, "int32"))
    calls = {name: lambda own=own: own.generate(weights, first, steps, seed=1).values for name, own in entered.items()}
    same = float(np.mean(calls["kept"]() == calls["anew"]()))
    times, name = medians(calls, rounds), f"rows_{rows}_steps_{steps}"
    ratio = times["anew"] / times["kept"]
    print(f"{name:<20}{times['kept'] * 1e3:10.1f}{times['anew'] * 1e3:10.1f}{ratio:8.1f}{same:8.3f}", flush=True)
    found = {f"{kind}_ms": taken * 1e3 for kind, taken in times.items()} | {"anew_over_kept": ratio, "same": same}
    return {f"{name}_{figure}": number for figure, number in found.items()}


def options() -> argparse.Namespace:
    """The command line's options."""
    parser = arguments(__doc__)
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="cores to run on (default: %(default)s)")
    return parser.parse_args()


def main() -> None:
    """Measure, print, write."""
    chosen = options()
    limit(chosen.threads)
    rounds = 1 if chosen.quick else 5
    print(f"{chosen.threads} thread(s), medians of {rounds} turns, {GIVEN} words given")
    print(f"{'case':<20}{'kept ms':>10}{'anew ms':>10}{'ratio':>8}{'same':>8}")
    figures: dict[str, float] = {}
    for rows, steps in QUICK if chosen.quick else CASES:
        figures |= measured(rows, steps, rounds)
    write(chosen.json, figures)


if __name__ == "__main__":
    main()
