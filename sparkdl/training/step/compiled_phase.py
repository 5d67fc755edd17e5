"""The programs of a run while the same layers learn, compiled for the shapes of its batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from sparkdl.optimizers import Optimizer
from sparkdl.training.data.batches import Steps
from sparkdl.training.data.buckets import Buckets
from sparkdl.training.data.feed import differ
from sparkdl.training.data.placing import abstract_rows
from sparkdl.training.options import Training
from sparkdl.training.resumption import Share
from sparkdl.training.step.programs import compiled_step, compiled_validation, program_of
from sparkdl.training.step.state import Settings, State
from sparkdl.training.step.step import Clock

OVERLAP_BYTES = 64 << 20  # of a step's memory, above which the next waits for its end, which takes no time to speak of


class CompiledPhase(NamedTuple):
    """What steps run.

    Attributes
    ----------
    steps : list
        The program of a training step; of rows of any length one for each of `Buckets.levels`.
    validation : program or None
    settings : Settings
        What programs are given besides state and rows; of several runs stacked.
    updates : int
        Of an epoch.
    waits : bool
        For each step to end, lest two that follow each other take their memory at once.
    """

    steps: list[Any]
    validation: Any
    settings: Settings
    updates: int
    waits: bool


def compile_phase(
    plans: Sequence[Training],
    epoch: int,
    shares: tuple[Share, Share],
    steps: tuple[Steps, Steps | None],
    buckets: Buckets | None,
    state: State,
    clock: Clock | None,
    mesh: Mesh,
) -> CompiledPhase:
    """The programs of the phase that an epoch is of; every process of the mesh calls this.

    Parameters
    ----------
    plans : sequence of Training
        One, or several that take every step together.
    epoch : int
    shares, steps : pair
        Of the rows to train and to validate on.
    buckets : Buckets or None
        Of rows of any length.
    state : State
    clock : Clock or None
    mesh : Mesh
    """
    plan, several, own_rows = plans[0], len(plans) > 1, differ(plans)
    shard = shares[0].shards[0]
    padded = [shard.padded_to(level) for level in buckets.levels] if buckets else [shard]
    batches = [abstract_rows(each, steps[0].rows, mesh) for each in padded]
    if own_rows:
        batches = [jax.tree.map(lambda part: _beside(part, len(plans)), batch) for batch in batches]
    updates = _updates(plan, shares[0], steps[0], buckets, mesh)
    program = program_of(plan, steps[0].count, mesh, updates, epoch)
    each = [Settings.of(Optimizer.of(each.optimizer), each.step_size, each.seed) for each in plans]
    settings = stacked(each) if several else each[0]
    programs: list[Any] = [None] * len(batches)
    first = jax.process_index() * len(batches) // jax.process_count()  # each process begins with others: `compile_once`
    for index in [*range(first, len(batches)), *range(first)]:
        programs[index] = compiled_step(program, state, settings, batches[index], clock, several, own_rows)
    on_cpu = mesh.devices.flat[0].platform == "cpu"
    waits = on_cpu and max(map(_temporary_bytes, programs)) > OVERLAP_BYTES
    validation = None
    if steps[1]:
        rows = abstract_rows(shares[1].shards[0], steps[1].rows, mesh)
        beginning = program_of(plan, steps[0].count, mesh, updates)  # as layers that rest are validated like others
        validation = compiled_validation(beginning, state.weights, rows, several)
    return CompiledPhase(programs, validation, settings, updates or steps[0].count, waits)


def stacked(trees: Sequence[Any]) -> Any:
    """Of trees of equal structure one, whose arrays have a first axis of them."""
    return jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *trees)


def _updates(plan: Training, share: Share, steps: Steps, buckets: Buckets | None, mesh: Mesh) -> int | None:
    """Of an epoch, by the lengths of the first, where a step takes one for each segment of its rows."""
    if not plan.segments:
        return None
    assert buckets is not None
    arrangement = buckets.arrange(share, steps, mesh, plan.seed, plan.order_at(0))
    longest = np.array([max(level.values()) for level in buckets.levels])[arrangement.levels]
    return int((-(-longest // plan.segments[0])).sum())


def _beside(part: jax.ShapeDtypeStruct, runs: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((part.shape[0], runs, *part.shape[1:]), part.dtype, sharding=part.sharding)


def _temporary_bytes(program: Any) -> int:
    """What a compiled program takes besides its arguments and results."""
    return int(program.memory_analysis().temp_size_in_bytes)
