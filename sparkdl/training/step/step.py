"""One training step, and one scoring step, as jitted programs over a mesh of workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jax.experimental import io_callback
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from sparkdl.arrays import INTEGERS, Parts
from sparkdl.compiler import OPTIONS
from sparkdl.layers.base import Context
from sparkdl.layers.factored import is_factored, is_table_rows, map_factored, multiplied
from sparkdl.layers.ragged import cast, values_of
from sparkdl.network import BaseNetwork
from sparkdl.objective import SENT, Objective, Workers
from sparkdl.optimizers import LBFGS, Optimizer
from sparkdl.training.data.batches import Rows
from sparkdl.training.exchanges.exchange import WORKERS, Agreed, Exchange, Moment, Params, Sums, reciprocal
from sparkdl.training.records.recorder import COMPUTED, ENDED, EXCHANGED, is_sampled
from sparkdl.training.step.factors import with_factors
from sparkdl.training.step.micro_batches import number_of_parts, summed_over_parts
from sparkdl.training.step.segments import padded_to_segments, segment_of, segments_of, summed_over_time
from sparkdl.training.step.state import Settings, State, as_argument
from sparkdl.training.step.tables import apply_update
from sparkdl.weights import updated

Clock = tuple[Callable[[int, Any, Any], Any], int]


class Program(NamedTuple):
    """What decides a step's program, but for the shapes of its arrays; hashes and compares by value.

    Attributes
    ----------
    network : Network or Graph
    objective : Objective
    optimizer : Optimizer
    exchange : Exchange
    mesh : Mesh
        One device a worker, on the axis "workers".
    dtype : str, optional
        What layers compute in, by default that of the weights; loss, sums over parts and workers, and the update are in
        the weights' own.
    steps : int
        Of an epoch.
    updates : int or None
        Of an epoch, where a step takes several.
    total_updates : int
        Of the run, where the schedule looks at it.
    apart : bool
        Whether the gradient of a table is left as the rows that a batch names (see `Optimizer.moves_named_rows`).
    adds_up : bool
        That of the optimizer.
    truncated : tuple of int, optional
        Steps of the segments of rows of any length, of which each takes an update, and over how many of them a gradient
        flows back.
    factors : mapping, optional
        Of the step size, by name of layers.
    begun : mapping, optional
        By name, the layers that began later than others, and after how many epochs; {} if others will.
    """

    network: BaseNetwork
    objective: Objective
    optimizer: Optimizer
    exchange: Exchange
    mesh: Mesh
    dtype: str | None = None
    steps: int = 1
    updates: int | None = None
    total_updates: int = 1
    apart: bool = False
    adds_up: bool = False
    truncated: tuple[int, int] | None = None
    factors: Mapping[str, float] | None = None
    begun: Mapping[str, int] | None = None


def make_step(program: Program, clock: Clock | None = None, several: bool = False, own_rows: bool = False) -> Any:
    """`step(state, settings, rows) -> (state, totals)`, compiled; `state` is given up to it.

    The rows, as of `place`, are those of all workers, split over the mesh axis "workers", and so is the state, which
    has a first axis of workers. `totals` are the sums over rows of weight * (loss + regularization), weight * metric,
    and weight, and the bytes that all workers sent; of several outputs see `Objective`. A clock (callable, k) is called
    with moments of one in k steps (see `recorder.py`) and its number.

    With `several`, the step is that of several runs: state (after its axis of workers), settings and totals have an
    axis of runs, and so have, with `own_rows`, the rows after their first.
    """
    network, objective, optimizer, exchange, mesh, dtype, steps, updates, total_updates, *_ = program
    platform = mesh.devices.flat[0].platform

    def objective_penalty(learned: Any, weights: Any) -> Any:
        return jnp.asarray(network.penalty(updated(weights, learned)), _float_type(weights))

    def step_of_run(state: State, settings: Settings, rows: Rows) -> tuple[State, Array]:
        wide = _float_type(state.weights)
        rows = rows._replace(weights=rows.weights.astype(wide))
        drawn = 0 if isinstance(optimizer, LBFGS) else state.step  # which compares sums of different steps
        key = jax.random.fold_in(jax.random.wrap_key_data(settings.key), drawn)
        key = jax.random.fold_in(key, jax.lax.axis_index(WORKERS))
        if program.truncated:
            new, totals = step_by_segments(state, settings, rows, key, program.truncated[0])
        elif isinstance(optimizer, LBFGS):
            new, totals = step_by_search(optimizer, state, settings, rows, key)
        else:
            new, totals, _ = update_once(state, settings, rows, key)
        return new._replace(step=state.step + 1), _stamped(totals, ENDED, state.step, (new.weights, totals), clock)

    def step_by_segments(state: State, settings: Settings, rows: Rows, key: Array, length: int) -> tuple[State, Array]:
        """An update after each segment of the rows, of which the next goes on with the state that it left."""
        rows = padded_to_segments(rows, length)
        count = segments_of(rows, length, lambda own: jax.lax.pmax(own, WORKERS))
        wide = _float_type(state.weights)
        states = network.first_state(len(rows.weights), dtype=dtype or wide)

        def advance(index: Array, carry: tuple[State, Array, Any]) -> tuple[State, Array, Any]:
            state, totals, states = carry
            segment = segment_of(rows, index * length, length)
            own_key = jax.random.fold_in(key, index)
            new, own, states = update_once(state, settings, segment, own_key, states, index)
            return new, totals + own, states

        nothing = jnp.zeros(objective.size, wide)
        return jax.lax.fori_loop(0, count, advance, (state, nothing, states))[:2]

    def own_sums(
        state: State, rows: Rows, key: Array, states: Any = None, number: Any = 0
    ) -> tuple[Sums, Any, Any, Any]:
        """(this worker's sums, gradient of regularization, statistics, states of the layers) at the state's weights.

        The states are None unless the rows are a segment; `number` is that of several in a step.
        """
        wide = _float_type(state.weights)
        weights = jax.tree.map(lambda array: array.astype(dtype or array.dtype), state.weights)
        axis = WORKERS if exchange.synchronous else None
        shares = objective.shares(rows.labels, rows.weights, lambda own: jax.lax.psum(own, axis) if axis else own)

        def sums_of(part: Array, rows: Rows, states: Any = None) -> tuple[Sums, Any, Any]:
            x, row_weights = network.read(rows.features, dtype or wide), rows.weights
            own_key = jax.random.fold_in(key, part)
            factored = platform == "cpu" and states is None
            context = Context(own_key, row_weights, axis, factored, program.apart, states)
            outputs, kept = network.train_forward(weights, x, context)
            y = network.named(cast(outputs, wide))
            labels = objective.follow(rows.labels, y, network, kept)
            delta = network.joined(objective.delta(y, labels, row_weights, shares, Workers(axis)))
            dy = jax.tree.map(lambda array, like: array.astype(like.dtype), delta, values_of(outputs))
            _, gradient = network.train_backward(weights, x, outputs, dy, kept, context, False)
            gradient = jax.tree.map(lambda part: part if part.dtype == INTEGERS else part.astype(wide), gradient)
            statistics = network.new_statistics(state.weights, kept)
            after = None if states is None else network.new_state(states, kept)
            totals = objective.totals(y, labels, row_weights, shares, Workers(axis))
            return Sums(gradient, totals), statistics, after

        def sums(part: Array, rows: Rows) -> tuple[Sums, Any]:
            return sums_of(part, rows)[:2]

        if program.truncated:
            own, statistics, states = summed_over_time(sums_of, rows, states, program.truncated[1])
        else:
            whole = objective.whole_batch
            row = jax.eval_shape(lambda one: network.read(one, dtype or wide), _one_row(rows.features))
            parts = 1 if whole else number_of_parts(network, weights, row, len(rows.weights), platform)
            own, statistics = summed_over_parts(sums, parts, rows)
            statistics = jax.tree.map(lambda added: (added / parts).astype(added.dtype), statistics)

        own = own if exchange.takes_factored else multiplied(own)
        own = map_factored(_lazily, own) if optimizer.is_lazy else own
        learned = network.learned(state.weights)
        penalty, pull = jax.value_and_grad(objective_penalty)(learned, state.weights)
        totals = objective.penalized(own.totals, penalty)
        own = own._replace(totals=_stamped(totals, COMPUTED, state.step, own, clock, number))
        return own, pull, statistics, states

    def update_once(
        state: State, settings: Settings, rows: Rows, key: Array, states: Any = None, segment: Any = 0
    ) -> tuple[State, Array, Any]:
        """(state, totals, states of the layers); these are None unless the rows are a segment, of that number."""
        own, pull, statistics, states = own_sums(state, rows, key, states, segment)
        step_size = _after(settings.step_size, own)
        cut = WORKERS if exchange.sharded and mesh.size > 1 else None
        transformation = optimizer.transformation(
            step_size, total_updates, updates or steps, settings.weight_decay, cut, **as_argument(program.begun)
        )
        if program.factors:
            transformation = with_factors(transformation, program.factors)

        def update(params: Params, mean_gradient: Any) -> Params:
            own_pull = exchange.part(pull, jax.lax.axis_index(WORKERS), mesh.size)
            mean_gradient = jax.tree.map(_with_pull, mean_gradient, own_pull, is_leaf=is_factored)
            learned, optimizer = apply_update(
                transformation, mean_gradient, params.optimizer, params.learned, program.adds_up
            )
            return Params(learned, optimizer, params.statistics)

        params = Params(network.learned(state.weights), state.optimizer, statistics)
        agreed = exchange.apply(own, params, state.exchange, update, Moment(state.step % steps, steps))
        weights = updated(updated(state.weights, agreed.params.learned), agreed.params.statistics)
        weights = network.constrained(weights)
        new = State(weights, agreed.params.optimizer, agreed.state, state.step)
        return new, exchanged(agreed, state.step, segment), states

    def exchanged(agreed: Agreed, step: Array, number: Any) -> Array:
        """The totals, with what all workers sent for them."""
        sent = jnp.full(1, agreed.sent * jax.lax.axis_size(WORKERS)).astype(agreed.totals.dtype)
        totals = objective.with_sent(agreed.totals, sent)
        return _stamped(totals, EXCHANGED, step, agreed.totals, clock, number)

    def step_by_search(
        optimizer: LBFGS, state: State, settings: Settings, rows: Rows, key: Array
    ) -> tuple[State, Array]:
        """Looks at one point after the other until the optimizer has found where to go on from."""

        def look(search: Any, number: Array) -> tuple[Any, Any, Array]:
            at_point = state._replace(weights=updated(state.weights, optimizer.point(search)))
            own, pull, statistics, _ = own_sums(at_point, rows, key, number=number)

            def with_pull(params: Params, mean_gradient: Any) -> Params:
                return params._replace(learned=jax.tree.map(jnp.add, mean_gradient, pull))

            params = Params(network.learned(at_point.weights), (), statistics)
            agreed = exchange.apply(own, params, state.exchange, with_pull, Moment(jnp.int32(0), 1))
            gradient = agreed.params.learned
            finite = jnp.isfinite(optax.tree.vdot(gradient, gradient))
            agreed = agreed._replace(totals=agreed.totals.at[0].set(jnp.where(finite, agreed.totals[0], jnp.nan)))
            value = agreed.totals[0] * reciprocal(agreed.totals[2])
            search = optimizer.looked(search, value, gradient, settings.step_size)
            return search, agreed.params.statistics, exchanged(agreed, state.step, number)

        def go_on(carry: tuple[Any, Any, Array, Array]) -> tuple[Any, Any, Array, Array]:
            search, _, before, number = carry
            search, statistics, totals = look(search, number)
            return search, statistics, totals.at[SENT].add(before[SENT]), number + 1

        search, count = state.optimizer._replace(found=jnp.zeros((), bool)), jnp.int32(0)
        shapes = jax.eval_shape(look, search, count)[1:]
        nothing = jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)
        search, statistics, totals, _ = jax.lax.while_loop(
            lambda carry: ~carry[0].found, go_on, (search, *nothing, count)
        )
        weights = updated(updated(state.weights, search.memory.params), statistics)
        return State(weights, search, state.exchange, state.step), totals

    def step(stacked: State, settings: Settings, rows: Rows) -> tuple[State, Array]:
        advance = _for_each(step_of_run, own_rows) if several else step_of_run
        new, totals = advance(_drop_axis(stacked), settings, rows)
        return _add_axis(new), totals

    split = P(WORKERS)
    specs = (split, P(), split)
    # check_vma would make jax.vjp of a layer sum its gradient over workers; ours are this worker's, and summed once.
    mapped = jax.shard_map(step, mesh=mesh, in_specs=specs, out_specs=(split, P()), check_vma=False)
    return jax.jit(mapped, donate_argnums=0, compiler_options=OPTIONS.get(platform))


def make_validation(network: BaseNetwork, objective: Objective, mesh: Mesh, several: bool = False) -> Any:
    """`validate(weights, rows) -> totals`: those of `make_step` but for bytes, as at inference."""

    def validate_run(weights: Any, rows: Rows) -> Array:
        wide = _float_type(weights)
        y = network.named(network.forward(weights, network.read(rows.features, wide)))
        totals = objective.totals(y, rows.labels, rows.weights.astype(wide), objective.weights, Workers(WORKERS))
        return objective.penalized(jax.lax.psum(totals, WORKERS), network.penalty(weights))

    def validate(stacked: Any, rows: Rows) -> Array:
        function = _for_each(validate_run, own_rows=False) if several else validate_run
        return function(_drop_axis(stacked), rows)

    split = P(WORKERS)
    mapped = jax.shard_map(validate, mesh=mesh, in_specs=(split, split), out_specs=P(), check_vma=False)
    return jax.jit(mapped)


def _stamped(totals: Array, moment: int, step: Array, done: Any, clock: Clock | None, segment: Any = 0) -> Array:
    """The totals, which are there only once `done` is and the clock has been told of the moment.

    The program must not order this otherwise, so the clock is given a number of each array and its answer is needed.
    """
    if clock is None:
        return totals
    tell, every = clock
    sampled = is_sampled(step, every)
    if moment == ENDED:
        sampled |= is_sampled(step + 1, every)  # which starts now
    numbers = _numbers(done)

    def told() -> Array:
        shape = jax.ShapeDtypeStruct((), jnp.int32)
        return io_callback(lambda *known: tell(moment, *known[:2]), shape, step, jnp.int32(segment), numbers)

    answer = jax.lax.cond(sampled, told, lambda: jnp.int32(0))
    return jnp.where(answer == 0, totals, jnp.nan)


def _after(value: Array, done: Any) -> Array:
    """The value, which is there only once `done` is: what uses it then may write over what that was computed from.

    XLA sees no order between the last look at a weight and its update otherwise, and copies all weights before a step.
    """
    counts = jax.lax.population_count(jax.lax.bitcast_convert_type(_numbers(done), jnp.uint32))  # of bits, at most 32
    return value + (jnp.max(counts) >> 6).astype(value.dtype)


def _numbers(tree: Any) -> Array:
    """One of each array."""
    leaves = [leaf for leaf in jax.tree.leaves(tree) if leaf.size]
    return jnp.stack([leaf.reshape(-1)[0].astype(jnp.float32) for leaf in leaves])


def _for_each(function: Callable[..., Any], own_rows: bool) -> Callable[..., Any]:
    """The function of several runs in turn: its arguments have a first axis of them, the last, rows, perhaps a second.

    A loop comes to what a run comes to alone, and takes the memory of one.
    """

    def in_turn(*arguments: Any) -> Any:
        *own, rows = arguments
        if own_rows:
            rows = jax.tree.map(lambda part: jnp.moveaxis(part, 1, 0), rows)
            return jax.lax.map(lambda each: function(*each), (*own, rows))
        return jax.lax.map(lambda each: function(*each, rows), tuple(own))

    return in_turn


def _lazily(part: Any) -> Any:
    """A factored gradient, which if it is a table's tells rows without one from others, however it travels."""
    return replace(part, lazy=True) if is_table_rows(part) else part


def _with_pull(gradient: Any, pull: Array) -> Any:
    """A gradient and that of regularization, which has none for tables whose rows are left apart."""
    return gradient if is_factored(gradient) else gradient + pull


def _drop_axis(stacked: Any) -> Any:
    return jax.tree.map(lambda array: array[0], stacked)


def _add_axis(own: Any) -> Any:
    return jax.tree.map(lambda array: array[None], own)


def _float_type(weights: Any) -> Any:
    leaves = jax.tree.leaves(weights)
    return leaves[0].dtype if leaves else jax.dtypes.canonicalize_dtype(float)


def _one_row(parts: Parts) -> Parts:
    """Shapes and dtypes of parts of one row."""
    return jax.tree.map(lambda part: jax.ShapeDtypeStruct((1, *part.shape[1:]), part.dtype), parts)
