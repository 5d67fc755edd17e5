"""Several runs on the same rows, as of a tuning grid: those that differ in settings only take their steps together.

A step of small networks is mostly overhead, which one program for the steps of several runs has once. On one core of an
AMD EPYC, four networks of 0.4 thousand weights (batches of 32) take 0.27 of four single steps, of 25 thousand (batches
of 128) 0.45, of 100 thousand 0.78, of 200 thousand 1.09. The program is a loop over the runs, in which the gradient of
a convolution would be slow; it takes 1.05 to 1.2 of a vmapped step, but its runs come to the weights of runs alone, bit
for bit, save for sums that XLA fuses otherwise (batch normalization in some shapes, LAMB's norms).

On accelerators every run trains alone: only a vmapped step would be faster there, but it takes as many times the memory
as there are runs, and rounds otherwise.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
from jax.sharding import Mesh

from sparkdl.layers.base import Weights
from sparkdl.network import BaseNetwork
from sparkdl.optimizers import LBFGS
from sparkdl.training.data.batches import Steps
from sparkdl.training.loop import train, train_group
from sparkdl.training.options import Training
from sparkdl.training.records.meter import Report
from sparkdl.training.results import Result
from sparkdl.training.resumption import Share
from sparkdl.training.step.programs import program_of

SMALL = 120_000  # weights of a network whose steps are faster together on a CPU


def train_all(
    plans: Sequence[Training],
    share: Share,
    validation: Share,
    mesh: Mesh,
    report: Report | None = None,
    initial: Sequence[Weights | None] | None = None,
) -> list[Result]:
    """Train every plan on the same rows; the results in the order of the plans. See `train`."""
    initial = initial or [None] * len(plans)
    results: dict[int, Result] = {}
    steps = Steps(share.lengths, plans[0].step_rows).count if sum(share.lengths) else 1
    groups: dict[Any, list[int]] = {}
    for index, plan in enumerate(plans):
        alone = not _can_join(plan) or not is_faster_together(plan.network, mesh.devices.flat[0].platform)
        shaped = (plan.seed, plan.length_buckets) if share.shards[0].padded_steps else ()  # its steps, by these
        key = index if alone else (program_of(plan, steps, mesh), plan.epochs, plan.batch_size, plan.shuffle, shaped)
        groups.setdefault(key, []).append(index)
    done = 0
    for chosen in groups.values():
        started = time.perf_counter()
        say = _counting(report, done, len(plans), len(chosen))
        if len(chosen) > 1:
            group = [plans[index] for index in chosen]
            found = train_group(group, share, validation, mesh, say, [initial[index] for index in chosen])
            results |= {index: result for index, result in zip(chosen, found, strict=True) if result}
        for index in chosen:  # one alone, or one that diverged, again, to be stopped at the step where it did
            if index not in results:
                results[index] = train(plans[index], share, validation, mesh, say, initial[index])
        seconds = time.perf_counter() - started
        for index in chosen:
            results[index] = replace(results[index], seconds=seconds)
        done += len(chosen)
    return [results[index] for index in range(len(plans))]


def is_faster_together(network: BaseNetwork, platform: str) -> bool:
    """Whether one step of several such networks takes less time than several steps."""
    weights = sum(leaf.size for leaf in jax.tree.leaves(network.abstract_weights()))
    # Weights that are used more than once a row are those of convolutions.
    return platform == "cpu" and weights <= SMALL and network.multiply_adds() <= weights


def _can_join(plan: Training) -> bool:
    """Whether the run takes all of its steps by one program, and nobody looks at it on the way."""
    watched = plan.early_stopping or plan.checkpoints or plan.logs or plan.statistics or plan.tol
    searches = isinstance(plan.optimizer, LBFGS)
    return plan.epochs > 0 and not (watched or plan.unfreeze_after or searches)


def _counting(report: Report | None, done: int, runs: int, together: int) -> Report | None:
    """Reports that tell which of the runs they are of, if there are several."""
    if report is None or runs == 1:
        return report
    which = {"runs": [done, together, runs]}
    return lambda message: report(message | which)
