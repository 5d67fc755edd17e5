"""Epochs, validation, early stopping, checkpoints: what a worker does from its rows to the learned weights."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import closing
from operator import itemgetter
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from sparkdl.layers.base import Weights
from sparkdl.objective import SENT
from sparkdl.optimizers import Optimizer
from sparkdl.schedules import Schedule
from sparkdl.shared_programs import kept_by_every_process
from sparkdl.training.data.batches import Steps
from sparkdl.training.data.buckets import Buckets
from sparkdl.training.data.feed import feed
from sparkdl.training.data.placing import replicate
from sparkdl.training.exchanges.exchange import Exchange
from sparkdl.training.free_memory import Pieces
from sparkdl.training.group.collectives import meet
from sparkdl.training.options import Training
from sparkdl.training.phases import carried
from sparkdl.training.records.logs import LogWriter, NullWriter
from sparkdl.training.records.meter import Means, Meter, Report, means_of
from sparkdl.training.records.recorder import Recorder, is_sampled, sampling
from sparkdl.training.results import Epoch, Result
from sparkdl.training.resumption import Position, Share, from_arrays, to_arrays
from sparkdl.training.run_folder import RunFolder
from sparkdl.training.step.compiled_phase import CompiledPhase, compile_phase, stacked
from sparkdl.training.step.state import State, initial_state
from sparkdl.training.stopping import MONITORS
from sparkdl.training.watch import Watch, are_finite
from sparkdl.transfer import started_from


def train(
    plan: Training,
    share: Share,
    validation: Share,
    mesh: Mesh,
    report: Report | None = None,
    initial: Weights | None = None,
    recorder: Recorder | None = None,
) -> Result:
    """Train on this process's share together with the other processes of the mesh, who call this too.

    See `train_group`, of which this is the group of one run.
    """
    (result,) = train_group([plan], share, validation, mesh, report, [initial], recorder)
    assert result is not None
    return result


def train_group(
    plans: Sequence[Training],
    share: Share,
    validation: Share,
    mesh: Mesh,
    report: Report | None = None,
    initial: Sequence[Weights | None] = (None,),
    recorder: Recorder | None = None,
) -> list[Result | None]:
    """Train several runs, which take every step together, on this process's share of the rows.

    Parameters
    ----------
    plans : sequence of Training
        One, or several that one program serves and that nobody looks at on the way (see `together.py`).
    share, validation : Share
    mesh : Mesh
        One device a worker.
    report : callable, optional
        Called with a dict of progress of the first run now and then.
    initial : sequence of nested dicts of arrays or None
        For every run weights to start from; layers they lack start fresh.
    recorder : Recorder, optional
        Takes down the events of the run.

    Returns
    -------
    list of Result or None
        None for one of several that diverged, which is to be trained alone, to be stopped at the step where it did.

    Raises
    ------
    ValueError
        There are no rows, they weigh nothing, or checkpoints cannot be written.
    """
    if not sum(share.lengths):
        raise ValueError("There are no rows to train on; check the data and its filters.")
    group = _Group(plans, share, validation, mesh, report, initial, recorder or Recorder(plans[0].statistics))
    try:
        return group.results()
    finally:
        if group.folder:
            group.folder.close()
        group.pieces.close()


class _Group:
    """The runs of one process; all processes of the mesh take the same decisions at the same steps.

    Stopping early, checkpoints, logs and statistics are those of a run alone, `plan`.
    """

    def __init__(
        self,
        plans: Sequence[Training],
        share: Share,
        validation: Share,
        mesh: Mesh,
        report: Report | None,
        initial: Sequence[Weights | None],
        recorder: Recorder,
    ) -> None:
        self.plans, self.several, self.plan = plans, len(plans) > 1, (plan := plans[0])
        self.network = plan.network_at(0)  # of the phase, in which layers may rest
        self.share, self.validation, self.mesh = share, validation, mesh
        self.report, self.initial, self.recorder = report, initial, recorder
        self.objective, self.exchange = plan.objective, Exchange.of(plan.exchange)
        self.rows, self.leads = sum(share.lengths), share.first == 0
        self.steps = Steps(share.lengths, plan.step_rows)
        self.validation_steps = Steps(validation.lengths, plan.batch_size) if sum(validation.lengths) else None
        self.optimizer = Optimizer.of(plan.optimizer)
        self.nothing = [0.0] * self.objective.size
        self.at = Position(self.nothing, self.nothing)
        self.watch = Watch(plan, len(plans), mesh, self.at)
        self.stopper = self.watch.stopper
        if self.stopper and self.stopper.plan.validates and not self.validation_steps:
            raise ValueError(
                f"EarlyStopping monitors {self.stopper.plan.monitor}, but there are no validation rows; give some "
                "or monitor 'loss' or 'metric'."
            )
        self.sampled_every = sampling(self.steps.count * plan.epochs) if recorder.active else 0
        self.records: list[list[Epoch]] = []  # of every epoch that several runs have done, each run's
        self.resumed: list[int] | None = None
        self.folder: RunFolder | None = None
        self.buckets: Buckets | None = None  # of rows of any length
        self.fill: float | None = None
        self.compiled: CompiledPhase | None = None
        self.compile_seconds = 0.0
        self.pieces = Pieces()

    def results(self) -> list[Result | None]:
        plan = self.plan
        with self.recorder.span("compile"), kept_by_every_process():
            self.state = self._first_state()
        if not plan.epochs:
            return [Result(self.watch.kept.of(self.state), [], 0.0, stop_reason="there are no epochs to train")]
        if plan.checkpoints:
            self._resume()
        if self.at.epoch >= plan.epochs or self.at.stopped:
            return [self._result()]

        self.logs = self._open_logs()
        self._begin_phase()
        self.watch.kept.keep(self.at.epoch, self.state)
        self.watch.begin()
        with closing(self.logs):
            while self.at.epoch < plan.epochs and not self.at.stopped and self.watch.finite.any():
                self._begin_phase()
                self._train_epoch()
        return self._results_of_several() if self.several else [self._result()]

    def _first_state(self) -> State:
        """That of all workers, of all runs, before any step."""
        states = [self._initial_state(*each) for each in zip(self.plans, self.initial, strict=True)]
        return replicate(stacked(states) if self.several else states[0], self.mesh)

    def _initial_state(self, plan: Training, initial: Weights | None) -> State:
        weights = plan.network.init(plan.seed)
        if initial is not None:
            weights = started_from(weights, initial)
        return self._state_at(plan, weights, 0)

    def _state_at(self, plan: Training, weights: Weights, epoch: int) -> State:
        """That of a worker before any step, of the phase of an epoch."""
        optimizer, totals, begun = Optimizer.of(plan.optimizer), plan.objective.summed, plan.begun_at(epoch)
        network = plan.network_at(epoch)
        return initial_state(network, weights, optimizer, self.exchange, self.mesh.size, totals, begun)

    def _compile(self) -> CompiledPhase:
        plan, shares, steps = self.plan, (self.share, self.validation), (self.steps, self.validation_steps)
        with self.recorder.span("compile"), kept_by_every_process():
            shard, clock = self.share.shards[0], None
            if shard.padded_steps and not self.buckets:
                first = (plan.seed, plan.order_at(0))
                self.buckets = Buckets.of(self.share, self.steps, self.mesh, *first, plan.length_buckets)
            if self.sampled_every:
                clock = (self.recorder.stamp, self.sampled_every)
            of_phase = (self.plans, self.at.epoch, shares, steps, self.buckets, self.state, clock, self.mesh)
            compiled = compile_phase(*of_phase)
            if self.logs.active:
                self.logs.watch(self.network)
                self.logs.compile(self.watch.kept.of(self.state), shard.take(np.zeros(0, np.int64), self.steps.rows))
        if self.mesh.size > 1:
            meet(self.mesh)  # lest a worker that was sooner take the others' compiling for a slow first step
        return compiled

    def _begin_phase(self) -> None:
        """Compile what the next epoch needs, unless it is there, and go on with the layers that learn in it."""
        network, started = self.plan.network_at(self.at.epoch), time.perf_counter()
        if self.compiled and network == self.network:
            return
        if network != self.network:
            with self.recorder.span("compile"), kept_by_every_process():
                fresh = self._state_at(self.plan, self.watch.kept.of(self.state), self.at.epoch)
                self.state = carried(self.state, fresh, self.exchange, self.network, network, self.mesh)
            self.network = network
        self.compiled = self._compile()
        self.pieces.hold()
        seconds = time.perf_counter() - started
        self.compile_seconds += seconds
        self.watch.leave_out(seconds)

    def _train_epoch(self) -> None:
        plan, epoch, compiled = self.plan, self.at.epoch, self.compiled
        assert compiled is not None
        sums = np.zeros((len(self.plans), self.objective.size)) if self.several else self.at.sums
        before = (self.at.step, sums, self.at.epoch_seconds)
        meter = Meter(epoch, plan.epochs, self.rows, self.steps.count, self.report, self.objective, *before)
        order, arranged = plan.order_at(epoch), None
        if self.buckets:
            arrangement = self.buckets.arrange(self.share, self.steps, self.mesh, plan.seed, order)
            arranged, self.fill = (self.buckets, arrangement), arrangement.fill
        fed, asked = (self.share, self.steps, self.mesh, order, self.at.step, arranged), self.recorder.now()
        with closing(feed(self.plans, *fed)) as placed_batches:
            for placed in placed_batches:
                number = epoch * self.steps.count + self.at.step
                if self.sampled_every and is_sampled(number, self.sampled_every):
                    self.recorder.placed(epoch, number, asked)
                last = self.at.step + 1 == self.steps.count
                weights_before = self.watch.kept.of(self.state) if last and self.logs.active else None
                advance = compiled.steps[arranged[1].levels[self.at.step] if arranged else 0]
                self.state, totals = advance(self.state, compiled.settings, placed)
                if compiled.waits:
                    jax.block_until_ready(totals)
                self.at.step += 1
                for read in meter.add(totals):
                    self.watch.see_totals(*read)
                self.watch.see_time()
                if self.logs.due(number + 1):
                    self.logs.scalars(number + 1, meter.numbers())
                if not last:
                    self._between_steps(meter, number + 1)
                if self.at.stopped and self.exchange.agrees_after(self.at.step):
                    break
                asked = self.recorder.now()
        self._flush(meter)
        self._close_epoch(meter, weights_before, placed)

    def _close_epoch(self, meter: Meter, before: Weights | None, placed: Any) -> None:
        """Validate, and tell of the epoch, of which `before` and `placed` are the last step's weights and rows."""
        means, seconds = meter.means(), meter.seconds()
        held_out, validating = self._validate()
        rows = self.rows * self.at.step // self.steps.count
        sent = meter.sums.reshape(len(self.plans), -1)[:, SENT]
        records = [
            _epoch(*each, rows=rows, seconds=seconds, validation_seconds=validating, steps=self.at.step)
            for each in zip(means, held_out, map(float, sent), strict=True)
        ]
        record = records[0]
        self.at.history.append(record)
        self.records.append(records)
        if self.report:
            self.report(meter.message() | {"history": record._asdict()})
        number = self.at.epoch * self.steps.count + self.at.step
        if before is not None:
            last_rows = jax.tree.map(lambda part: np.asarray(part.addressable_data(0)), placed)
            self.logs.epoch(number, record._asdict(), before, self.watch.kept.of(self.state), last_rows)
        self._end_epoch(meter, held_out[0], seconds, number)

    def _end_epoch(self, meter: Meter, held_out: Means | None, seconds: float, number: int) -> None:
        """Checks and a checkpoint that are due after an epoch, or after its last step before the run was stopped."""
        plan, stopper, improved = self.plan, self.stopper, not self.stopper and _is_best(self.at.history)
        if self.at.step == self.steps.count:
            window = meter.sums - self.at.checked
            in_steps = stopper is not None and stopper.due(self.at.step, self.steps.count)
            self.at.epoch, self.at.step, self.at.epoch_seconds = self.at.epoch + 1, 0, 0.0
            self.watch.see_weights(self.state)
            self.at.sums, self.at.checked = self.nothing, self.nothing
            if stopper and not self.at.stopped and (in_steps or stopper.due_after(self.at.epoch)):
                seen = held_out if stopper.plan.validates else means_of(window, self.objective)
                assert seen is not None
                improved = self.watch.check(stopper.watched(seen), self.state)
            self.watch.see_fall()
        else:
            self.at.sums, self.at.epoch_seconds = meter.sums.tolist(), seconds
        kept, done = None if self.watch.diverged else plan.checkpoints, self.at.stopped or self.at.epoch == plan.epochs
        if kept and (done or (self.at.epoch if kept.unit == "epoch" else number) % kept.every == 0):
            self._save(improved)

    def _between_steps(self, meter: Meter, number: int) -> None:
        """Checks and checkpoints that are due within an epoch."""
        stopper, kept, improved = self.stopper, self.plan.checkpoints, False
        if stopper and stopper.due(self.at.step, self.steps.count):
            self._flush(meter)
            window = meter.sums - self.at.checked
            self.at.checked = meter.sums.tolist()
            if not self.at.stopped:
                seen = self._validate()[0][0] if stopper.plan.validates else means_of(window, self.objective)
                assert seen is not None
                improved = self.watch.check(stopper.watched(seen), self.state)
        if kept and kept.unit == "step" and number % kept.every == 0 and not self.at.stopped:
            self._flush(meter)
            self.at.sums, self.at.epoch_seconds = meter.sums.tolist(), meter.seconds()
            self._save(improved)

    def _flush(self, meter: Meter) -> None:
        for read in meter.flush():
            self.watch.see_totals(*read)

    def _validate(self) -> tuple[list[Means | None], float]:
        """Every run's means on the validation rows, if there are any, and the seconds that took."""
        if not self.validation_steps:
            return [None] * len(self.plans), 0.0
        assert self.compiled is not None
        rows, size = sum(self.validation.lengths), self.objective.size
        sums = np.zeros((len(self.plans), size) if self.several else size)
        count = self.validation_steps.count
        meter = Meter(self.at.epoch, self.plan.epochs, rows, count, None, self.objective, sums=sums)
        with self.recorder.span("validation", epoch=self.at.epoch, rows=rows):
            with closing(feed([self.plan], self.validation, self.validation_steps, self.mesh, None)) as placed_batches:
                for placed in placed_batches:
                    meter.add(self.compiled.validation(self.state.weights, placed))
            meter.flush()
        return list(meter.means()), meter.seconds()

    def _resume(self) -> None:
        """Go on from the newest checkpoint of this run, if there is one."""
        shares = (self.share, self.validation)
        self.folder = RunFolder(self.plan, shares, self.initial[0], self.mesh, self.leads)
        found = self.folder.read()
        if found is None:
            return
        at, arrays = found
        self.at = at
        phase = at.epoch if at.step else max(0, at.epoch - 1)  # of the last step: the next phase begins with an epoch
        if (network := self.plan.network_at(phase)) != self.network:
            weights = self.watch.kept.of(self.state)
            self.state, self.network = replicate(self._state_at(self.plan, weights, phase), self.mesh), network
        self.state, best = from_arrays(arrays, self.state, self.share.first, self.mesh)
        self.resumed = [at.epoch, at.step]
        self.watch.resume(at, best)

    def _save(self, improved: bool) -> None:
        at = self.at
        at.seconds, at.stopper = self.watch.seconds(), self.stopper.to_json() if self.stopper else None
        assert self.folder is not None
        with self.recorder.span("checkpoint", epoch=at.epoch) as facts:
            held = self.watch.kept.of(self.state) if self.leads else None
            arrays = to_arrays(self.state, held, self.watch.kept.best, self.exchange, self.mesh)
            facts["bytes"] = sum(array.nbytes for array in arrays.values())
            self.folder.write(at, at.epoch * self.steps.count + at.step, arrays, improved)

    def _open_logs(self) -> NullWriter:
        plan = self.plan
        if not plan.logs or not self.leads:
            return NullWriter()
        schedule, steps = Schedule.of(self.optimizer.schedule), self.steps.count

        def rate(step: int) -> float:
            assert self.compiled is not None
            updates = self.compiled.updates
            factors = schedule.factors(updates * plan.epochs, updates)
            return plan.step_size * float(factors(step * updates // steps))

        first = self.at.epoch * self.steps.count + self.at.step
        return LogWriter(
            plan.logs,
            plan.network,
            self.objective,
            rate,
            seed=plan.seed,
            dtype=plan.dtype,
            first_step=first,
        )

    def _result(self) -> Result:
        weights, notes, failure = self.watch.ending(self.state)
        if self.folder:
            self.folder.close()
            notes = self.folder.notes + notes
        if not self.watch.diverged:
            notes += _without_labels(self.at.history)
        stopper = self.stopper
        return Result(
            weights,
            self.at.history,
            self.compile_seconds,
            self._events() if self.recorder.active else [],
            stop_reason=self.at.stopped or f"all {self.plan.epochs} epochs are done",
            best=stopper.best if stopper else None,
            checks=stopper.checks if stopper else [],
            resumed=self.resumed,
            notes=notes,
            failure=failure,
            programs=len(self.compiled.steps) if self.compiled else 0,
            fill=self.fill,
        )

    def _results_of_several(self) -> list[Result | None]:
        weights, stopped = self.watch.kept.of(self.state), f"all {len(self.records)} epochs are done"
        each = [jax.tree.map(itemgetter(run), weights) for run in range(len(self.plans))]
        return [
            Result(own, list(history), self.compile_seconds, stop_reason=stopped, notes=_without_labels(history))
            if good and are_finite(own)
            else None
            for own, good, history in zip(each, self.watch.finite, zip(*self.records, strict=True), strict=True)
        ]

    def _events(self) -> list[dict[str, Any]]:
        at, steps = self.at, self.steps.count
        first = self.resumed[0] * steps + self.resumed[1] if self.resumed else 0
        done = max(1, sum(epoch.steps for epoch in at.history))
        sent = round(sum(epoch.bytes for epoch in at.history) / done / self.mesh.size)
        rows = round(self.share.lengths[self.share.first] / steps)
        return self.recorder.finish(first, at.epoch * steps + at.step, rows, sent)


def _epoch(means: Means, held_out: Means | None, sent: float, **facts: Any) -> Epoch:
    validated = held_out or Means(None, None, {})  # type: ignore[arg-type]
    outputs = {
        name: dict(zip(MONITORS, (*own, *validated.outputs.get(name, (None, None))), strict=True))
        for name, own in means.outputs.items()
    }
    return Epoch(*means[:2], *validated[:2], **facts, bytes=sent, outputs=outputs or None)


def _without_labels(history: Sequence[Epoch]) -> list[str]:
    """A note of every output, of several, that no row of the last epoch had a label of: its loss is NaN."""
    outputs = history[-1].outputs if history else None
    return [
        f"Output {name!r} has no label in any row to train on that weighs more than 0, so nothing is learned of it; "
        "check its labels."
        for name, means in (outputs or {}).items()
        if math.isnan(means["loss"])  # type: ignore[arg-type]
    ]


def _is_best(history: list[Epoch]) -> bool:
    """Whether the last epoch has the lowest loss of all: on validation rows if there are any, else in training."""
    losses = [epoch.loss if epoch.validation_loss is None else epoch.validation_loss for epoch in history]
    return all(losses[-1] < loss for loss in losses[:-1])
