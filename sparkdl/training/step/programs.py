"""Compiled programs, each once in a process for all runs that it can serve: they may differ in settings and weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from functools import lru_cache
from typing import Any

import jax
from jax.sharding import Mesh

from sparkdl.initializers import Initializer
from sparkdl.optimizers import Optimizer
from sparkdl.shared_programs import compile_once
from sparkdl.specs import Named, Spec
from sparkdl.training.data.batches import Rows
from sparkdl.training.exchanges.exchange import Exchange
from sparkdl.training.options import Training
from sparkdl.training.step.state import Settings, State
from sparkdl.training.step.step import Clock, Program, make_step, make_validation

KEPT = 16  # programs of each kind


def program_of(plan: Training, steps: int, mesh: Mesh, updates: int | None = None, epoch: int = 0) -> Program:
    """The program of a run with `steps` steps an epoch; runs that one program serves have equal ones.

    `updates` is how many an epoch has where a step takes several. `epoch` is the one that it serves, where layers rest
    in some.

    Initializers, which no step reads, are left at their defaults, and so is the weight decay, which is a setting.
    """
    optimizer = Optimizer.of(plan.optimizer)
    return Program(
        network=_without_initializers(plan.network_at(epoch)),
        objective=plan.objective,
        optimizer=replace(optimizer, weight_decay=0.0),
        exchange=Exchange.of(plan.exchange),
        mesh=mesh,
        dtype=plan.dtype,
        steps=steps,
        updates=updates,
        total_updates=(updates or steps) * plan.epochs if optimizer.looks_ahead() else 1,
        apart=optimizer.moves_named_rows and Exchange.of(plan.exchange).takes_factored and not plan.segments,
        adds_up=optimizer.adds_up,
        truncated=plan.segments,
        factors=plan.step_factors,
        begun=plan.begun_at(epoch),
    )


def compiled_step(
    program: Program,
    state: State,
    settings: Settings,
    batch: Rows,
    clock: Clock | None = None,
    several: bool = False,
    own_rows: bool = False,
) -> Any:
    """The step of `make_step`, compiled for arrays like these."""

    def lowered() -> Any:
        return make_step(program, clock, several, own_rows).lower(state, settings, batch)

    if clock:  # one run's own
        return lowered().compile()
    return _kept(lowered, (program, several, own_rows, _shapes((state, settings, batch))))


def compiled_validation(program: Program, weights: Any, batch: Rows, several: bool = False) -> Any:
    """The validation step of `make_validation`, compiled for arrays like these."""
    network, objective, mesh = program.network, program.objective, program.mesh

    def lowered() -> Any:
        return make_validation(network, objective, mesh, several).lower(weights, batch)

    return _kept(lowered, (network, objective, mesh, several, _shapes((weights, batch))))


class _Lowered:
    """Makes a program to compile, and is equal to any other that would make the same one: the key of a cache."""

    def __init__(self, make: Callable[[], Any], key: Any) -> None:
        self.make, self.key = make, key

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Lowered) and self.key == other.key


@lru_cache(KEPT)
def _compiled(program: _Lowered) -> Any:
    return compile_once(program.make())


def _kept(make: Callable[[], Any], key: Any) -> Any:
    return _compiled(_Lowered(make, key))


def _shapes(tree: Any) -> Any:
    leaves, structure = jax.tree.flatten(tree)
    return structure, tuple((leaf.shape, leaf.dtype, getattr(leaf, "sharding", None)) for leaf in leaves)


def _without_initializers(value: Any) -> Any:
    """The spec with the default wherever it has an initializer."""
    if isinstance(value, tuple):
        return tuple(_without_initializers(item) for item in value)
    if isinstance(value, Named):
        return Named({name: _without_initializers(item) for name, item in value.items()})
    if not isinstance(value, Spec):
        return value
    changes = {}
    for field in fields(value):
        held = getattr(value, field.name)
        changes[field.name] = field.default if isinstance(held, Initializer) else _without_initializers(held)
    return replace(value, **changes)
