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
from collections import deque
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from operator import itemgetter
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from sparkdl.layers.base import Weights
from sparkdl.network import Network
from sparkdl.optimizers import Optimizer
from sparkdl.training.data.batches import Plan
from sparkdl.training.data.feed import differ, feed
from sparkdl.training.exchanges.exchange import Exchange
from sparkdl.training.group.collectives import meet
from sparkdl.training.loop import train
from sparkdl.training.options import Training
from sparkdl.training.records.meter import Report
from sparkdl.training.records.pulse import beat
from sparkdl.training.results import Epoch, Result
from sparkdl.training.resumption import Share
from sparkdl.training.step.compilation import kept_by_every_process
from sparkdl.training.step.programs import compiled_score, compiled_step, initialization, program_of
from sparkdl.training.step.step import Settings, abstract_rows, initial_state, replicate
from sparkdl.training.stopping import are_finite
from sparkdl.transfer import started_from

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
    steps = Plan(share.lengths, plans[0].batch_size).steps if sum(share.lengths) else 1
    groups: dict[Any, list[int]] = {}
    for index, plan in enumerate(plans):
        alone = not _can_join(plan) or not is_faster_together(plan.network, mesh.devices.flat[0].platform)
        key = index if alone else (program_of(plan, steps, mesh), plan.epochs, plan.batch_size, plan.shuffle)
        groups.setdefault(key, []).append(index)
    done = 0
    for chosen in groups.values():
        started = time.perf_counter()
        say = _counting(report, done, len(plans), len(chosen))
        if len(chosen) > 1:
            together = _Together([plans[index] for index in chosen], share, validation, mesh, say)
            found = zip(chosen, together.results([initial[index] for index in chosen]), strict=True)
            results |= {index: result for index, result in found if result}
        for index in chosen:  # one alone, or one that diverged, again, to be stopped at the step where it did
            if index not in results:
                results[index] = train(plans[index], share, validation, mesh, say, initial[index])
        seconds = time.perf_counter() - started
        for index in chosen:
            results[index] = replace(results[index], seconds=seconds)
        done += len(chosen)
    return [results[index] for index in range(len(plans))]


def is_faster_together(network: Network, platform: str) -> bool:
    """Whether one step of several such networks takes less time than several steps."""
    weights = sum(leaf.size for leaf in jax.tree.leaves(network.abstract_weights()))
    # Weights that are used more than once a row are those of convolutions.
    return platform == "cpu" and weights <= SMALL and network.multiply_adds() <= weights


def _can_join(plan: Training) -> bool:
    """Whether the run takes all of its steps, and nobody looks at it on the way."""
    watched = plan.early_stopping or plan.checkpoints or plan.logs or plan.statistics or plan.tol
    return plan.epochs > 0 and not watched


def _counting(report: Report | None, done: int, runs: int, together: int) -> Report | None:
    """Reports that tell which of the runs they are of, if there are several."""
    if report is None or runs == 1:
        return report
    which = {"runs": [done, together, runs]}
    return lambda message: report(message | which)


class _Together:
    """Runs of one program, for all of their epochs."""

    def __init__(
        self, plans: list[Training], share: Share, validation: Share, mesh: Mesh, report: Report | None
    ) -> None:
        self.plans, self.share, self.validation, self.mesh, self.report = plans, share, validation, mesh, report
        self.rows = sum(share.lengths)
        self.steps = Plan(share.lengths, plans[0].batch_size)
        self.scoring = Plan(validation.lengths, plans[0].batch_size) if sum(validation.lengths) else None

    def results(self, initial: Sequence[Weights | None]) -> list[Result | None]:
        """Those of the runs, None for one that diverged."""
        started = time.perf_counter()
        beat()
        with kept_by_every_process():
            self._compile(initial)
        beat()
        if self.mesh.size > 1:
            meet(self.mesh)
        compiling = time.perf_counter() - started
        epochs: list[list[Epoch]] = []
        finite = np.ones(len(self.plans), bool)
        while len(epochs) < self.plans[0].epochs and finite.any():
            epochs.append(self._train_epoch(len(epochs), finite))
        weights = jax.tree.map(lambda leaf: np.array(leaf.addressable_data(0))[0], self.state.weights)
        each = [jax.tree.map(itemgetter(run), weights) for run in range(len(self.plans))]
        stopped = f"all {len(epochs)} epochs are done"
        return [
            Result(own, list(history), compiling, stopped) if good and are_finite(own) else None
            for own, good, history in zip(each, finite, zip(*epochs, strict=True), strict=True)
        ]

    def _compile(self, initial: Sequence[Weights | None]) -> None:
        states, settings = [], []
        for plan, given in zip(self.plans, initial, strict=True):
            weights, optimizer = initialization(plan.network)(np.int64(plan.seed)), Optimizer.of(plan.optimizer)
            weights = weights if given is None else started_from(weights, given)
            exchange = Exchange.of(plan.exchange)
            states.append(initial_state(plan.network, weights, optimizer, exchange, self.mesh.size))
            settings.append(Settings.of(optimizer, plan.step_size, plan.seed))
        self.state = replicate(_stack(states), self.mesh)
        self.settings = _stack(settings)
        program, own_rows = program_of(self.plans[0], self.steps.steps, self.mesh), differ(self.plans)
        rows = abstract_rows(self.share.shards[0], self.steps.rows, self.mesh)
        if own_rows:
            rows = jax.tree.map(lambda part: _beside(part, len(self.plans)), rows)
        self.advance = compiled_step(program, self.state, self.settings, rows, several=True, own_rows=own_rows)
        if self.scoring:
            rows = abstract_rows(self.validation.shards[0], self.scoring.rows, self.mesh)
            self.score = compiled_score(program, self.state.weights, rows, several=True)

    def _train_epoch(self, epoch: int, finite: np.ndarray[Any, Any]) -> list[Epoch]:
        """Every run's record of one pass; `finite` is told which of them diverged."""
        began, sums = time.perf_counter(), _Sums(len(self.plans))
        order = epoch if self.plans[0].shuffle else None
        with closing(feed(self.plans, self.share, self.steps, self.mesh, order)) as batches:
            for number, placed in enumerate(batches):
                self.state, totals = self.advance(self.state, self.settings, placed)
                sums.add(totals)
                if self.report and number % 50 == 0:
                    self.report(self._message(epoch, number, sums, began))
        losses, metrics = sums.means()
        seconds = time.perf_counter() - began
        held_out: Any = (None, None)
        if self.scoring:
            scores = _Sums(len(self.plans))
            with closing(feed(self.plans[:1], self.validation, self.scoring, self.mesh, None)) as batches:
                for placed in batches:
                    scores.add(self.score(self.state.weights, placed))
            held_out = scores.means()
        finite &= sums.finite
        scoring = time.perf_counter() - began - seconds
        records = []
        for run in range(len(self.plans)):
            loss, metric = (None if part is None else float(part[run]) for part in held_out)
            record = Epoch(float(losses[run]), float(metrics[run]), loss, metric, self.rows, seconds, scoring)
            records.append(record._replace(steps=self.steps.steps, bytes=float(sums.sums[run, 3])))
        if self.report:
            message = self._message(epoch, self.steps.steps, sums, began)
            self.report(message | {"history": records[0]._asdict()})
        return records

    def _message(self, epoch: int, step: int, sums: _Sums, began: float) -> dict[str, Any]:
        """What is known so far of the first run."""
        loss, metric, weight, _ = sums.sums[0]
        return {
            "epoch": epoch,
            "epochs": self.plans[0].epochs,
            "rows": self.rows * step // self.steps.steps,
            "total_rows": self.rows,
            "loss": loss / weight if weight > 0 else None,
            "metric": metric / weight if weight > 0 else None,
            "seconds": time.perf_counter() - began,
        }


class _Sums:
    """Totals of a pass by run, read back two steps late so that the device never waits for the host.

    Attributes
    ----------
    sums : array (runs, 4)
    finite : array (runs,) of bool
        Whether the loss of every step was.
    """

    def __init__(self, runs: int) -> None:
        self.sums = np.zeros((runs, 4))
        self.finite = np.ones(runs, bool)
        self._pending: deque[Any] = deque()

    def add(self, totals: Any) -> None:
        self._pending.append(totals)
        if len(self._pending) > 2:
            self._read()

    def means(self) -> tuple[Any, Any]:
        """Mean loss and metric by weight of each run, once every step is done."""
        while self._pending:
            self._read()
        loss, metric, weight, _ = self.sums.T
        return loss / weight, metric / weight

    def _read(self) -> None:
        totals = np.asarray(self._pending.popleft().addressable_data(0), np.float64)
        beat()
        self.sums[:, : totals.shape[1]] += totals
        self.finite &= np.isfinite(totals[:, 0])


def _stack(trees: Sequence[Any]) -> Any:
    return jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *trees)


def _beside(part: jax.ShapeDtypeStruct, runs: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((part.shape[0], runs, *part.shape[1:]), part.dtype, sharding=part.sharding)
