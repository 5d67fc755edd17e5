"""What recurrent layers share: one pass over the steps each way, with every product that need not wait outside of it.

A scan over the steps holds only what depends on the step before: one product of the state a step. The product of the
inputs is made for many steps before it. The way back scans the slopes of the gates alone; the gradients and dx are
products over rows x steps after it (derived by `jax.vjp`, the gradient would be added to at every step). Many steps are
as many as leave what passes between scans and products in a CPU's cache, or all. Within, time comes first.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from sparkdl.constraints import Constraint
from sparkdl.initializers import GlorotUniform, Initializer, Orthogonal
from sparkdl.layers.base import Array, CannotCarry, Context, KernelLayer, Shape, Weights, jitted
from sparkdl.layers.products import matmul, transposed_product
from sparkdl.layers.ragged import Ragged, check_vectors, values_of
from sparkdl.specs import check_integers, check_range

# Numbers of z that pass from a product to a scan. A training step of an LSTM (64, 128, 256) to 256 takes 238 ms on one
# core with 2^20, 255 with 2^19, 248 all at once.
CHUNK = 1 << 20
State = tuple[Array, ...]  # of all rows, (batch, units) each; the first is what the layer puts out


class Moment(NamedTuple):
    """What the way back knows of a step; of all steps, with another axis before these.

    Attributes
    ----------
    y : Array, shape (batch, units)
        What the step put out.
    before : Array, shape (batch, units)
        What the step before it put out, zeros at the first.
    kept : Any
        What `Recurrent.advance` kept.
    """

    y: Array
    before: Array
    kept: Any


class Masks(NamedTuple):
    """By what training multiplies, of every row at all steps: (batch, inputs) and (batch, units), or None."""

    x: Array | None = None
    state: Array | None = None


UNMASKED = Masks()


class Ran(NamedTuple):
    """What a pass over all steps leaves for the way back.

    Attributes
    ----------
    y : Array, shape (batch, steps, units)
    kept : Any
        What `Recurrent.advance` kept, of all steps, with these as the first axis.
    masks : Masks
    start, end : State or None
        Before and after a segment of rows; None of whole rows, which start at zeros.
    """

    y: Array
    kept: Any
    masks: Masks
    start: State | None = None
    end: State | None = None


@dataclass(frozen=True)
class Recurrent(KernelLayer):
    """Base of the layers that go from step to step of a row and hand a state on.

    x        Ragged (batch, steps, inputs), or such an array     dx  array (batch, steps, inputs)   dL/dx
    y        Ragged (batch, steps, units), or such an array      dy  array (batch, steps, units)    dL/dy
    weights  kernel (inputs, blocks * units), recurrent (units, blocks * units), bias (blocks * units,)

    y is 0 beyond the end of a row, whose padding nothing looks at.

    Parameters
    ----------
    units : int
        Numbers that it puts out at every step.
    bias : bool, default True
        Whether to add a learned bias.
    kernel_initializer, recurrent_initializer, bias_initializer : Initializer or str
        An initializer or its name; of `recurrent` by default orthogonal (Saxe et al. 2014).
    l1, l2 : float, default 0
        The objective gains l1 * sum|w| + l2 / 2 * sum(w * w) of kernel and recurrent.
    constraint : Constraint or str, optional
        What every update leaves of kernel and recurrent, such as `MaxNorm(3)`.
    backwards : bool, default False
        Whether to go from the last step of every row to the first; y has the order of x all the same.
    dropout, recurrent_dropout : float, default 0
        Probability of DROPPING, in training, a number of x, and of the state where `recurrent` reads it: the same ones
        at all steps of a row, or of its segment if `truncated` (Gal and Ghahramani 2016). What stays is divided by
        1 - rate.
    """

    blocks: ClassVar[int] = 1  # of `units` columns each in the kernels
    states: ClassVar[int] = 1  # arrays that the state consists of

    units: int
    kernel_initializer: Initializer | str = field(default=GlorotUniform(), kw_only=True)
    recurrent_initializer: Initializer | str = field(default=Orthogonal(), kw_only=True)
    backwards: bool = field(default=False, kw_only=True)
    dropout: float = field(default=0.0, kw_only=True)
    recurrent_dropout: float = field(default=0.0, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "recurrent_initializer", Initializer.of(self.recurrent_initializer))
        check_integers(self, 1, "units")
        check_range(self, "[0, 1)", "dropout", "recurrent_dropout")

    @property
    def takes_ragged(self) -> bool:
        return True

    def output_shape(self, input_shape: Shape) -> Shape:
        check_vectors(type(self).__name__, input_shape)
        return (input_shape[0], self.units)

    def multiply_adds(self, input_shape: Shape) -> int:
        steps, inputs = input_shape
        return (steps or 1) * (inputs + self.units) * self.blocks * self.units

    def penalties(self) -> dict[str, tuple[float, float]]:
        return dict.fromkeys(("kernel", "recurrent"), (self.l1, self.l2)) if self.l1 or self.l2 else {}

    def constrained(self, weights: Weights) -> Weights:
        if self.constraint is None or not self.trainable:
            return weights
        project = Constraint.of(self.constraint).project
        return weights | {name: project(weights[name], (0,)) for name in ("kernel", "recurrent")}

    def init(self, key: Array, input_shape: Shape) -> Weights:
        kernel_key, recurrent_key = jax.random.split(key)
        columns = self.blocks * self.units
        recurrent = Initializer.of(self.recurrent_initializer).sample(recurrent_key, (self.units, columns))
        return self.init_kernel(kernel_key, (input_shape[-1], columns)) | {"recurrent": recurrent}

    # One step

    def first_state(self, rows: int, input_shape: Any, dtype: Any = float, longest: int | None = None) -> State:
        """Zeros, (rows, units) each; see `Layer.first_state`."""
        if self.backwards:
            kind = type(self).__name__
            raise CannotCarry(
                f"{kind}(backwards=True) begins at the end of every row and so cannot go from one segment of it to the "
                f"next; use {kind}(...) without backwards."
            )
        return self._zeros(rows, dtype)

    @jitted
    def step(self, weights: Weights, state: State, x: Array) -> tuple[Array, State]:
        """(y, state) after one more step of every row.

        Parameters
        ----------
        weights : dict of arrays
        state : tuple of arrays (batch, units)
            After the step before, or `first_state`.
        x : Array, shape (batch, inputs)
        """
        state, _ = self._advanced(weights, state, matmul(x, weights["kernel"]), None)
        return state[0], state

    @abstractmethod
    def advance(self, weights: Weights, state: State, z: Array, mask: Array | None) -> tuple[State, Any]:
        """(the next state, what the way back needs), from z = x @ kernel + bias of the step."""

    @abstractmethod
    def retreat(
        self, weights: Weights, back: Array, dstate: State, at: Moment, mask: Array | None
    ) -> tuple[State, Any]:
        """(dL/dstate before the step, slopes) from that after it, the first of the slopes being dL/dz.

        `back` is `recurrent` transposed, once for all steps: a product of 64 rows takes 1.1 of the time otherwise.
        """

    def recurrent_gradient(self, weights: Weights, before: Array, at: Moment, slopes: Any) -> Weights:
        """Of all weights but kernel and bias, from all steps, times `before`, which is dropped from."""
        return {"recurrent": transposed_product(flat(before), flat(slopes[0]))}

    # All steps

    @jitted
    def forward(self, weights: Weights, x: Any) -> Any:
        return self._rows(self._run(weights, x).y, x)

    @jitted
    def forward_from(self, weights: Weights, state: State, x: Any) -> tuple[Any, State]:
        ran = self._run(weights, x, start=state)
        assert ran.end is not None
        return self._rows(ran.y, x), ran.end

    @jitted
    def delta(self, weights: Weights, x: Any, y: Any, dy: Array) -> Array:
        return self._back(weights, x, dy, self._run(weights, x, keep=True), True, False)[0]

    @jitted
    def gradient(self, weights: Weights, x: Any, y: Any, dy: Array) -> Weights:
        return self._back(weights, x, dy, self._run(weights, x, keep=True), False, True)[1]

    def train_forward(self, weights: Weights, x: Any, context: Context) -> tuple[Any, Ran]:
        ran = self._run(weights, x, self._masks(x, context), keep=True, start=context.states)
        return self._rows(ran.y, x), ran

    def train_delta(self, weights: Weights, x: Any, y: Any, dy: Array, kept: Ran, context: Context) -> Array:
        return self._back(weights, x, dy, kept, True, False)[0]

    def train_gradient(self, weights: Weights, x: Any, y: Any, dy: Array, kept: Ran, context: Context) -> Weights:
        return self._back(weights, x, dy, kept, False, True)[1]

    def train_backward(
        self, weights: Weights, x: Any, y: Any, dy: Array, kept: Ran, context: Context, wants_delta: bool
    ) -> tuple[Array | None, Weights]:
        return self._back(weights, x, dy, kept, wants_delta, self.trainable)

    def new_state(self, state: State, kept: Ran) -> State:
        assert kept.end is not None
        return kept.end

    def _run(
        self, weights: Weights, x: Any, masks: Masks = UNMASKED, *, keep: bool = False, start: State | None = None
    ) -> Ran:
        """All steps, from zeros or of a segment from `start`; with what `advance` kept if it is to `keep` that."""

        def advance(carried: Any, step: tuple[Array, Array, Array | None]) -> tuple[Any, None]:
            (state, y, kept), (number, z, valid) = carried, step
            new, own = self._advanced(weights, state, z, masks.state)
            y = _with_step(y, number, _where(valid, new[:1])[0], axis=1)
            kept = _with_step(kept, number, own) if keep else None
            return (_where(valid, new, state), y, kept), None

        def chunk(carried: Any, numbers: Array) -> tuple[Any, None]:
            steps, valid = _steps(x, numbers, masks.x)
            z = matmul(flat(steps), weights["kernel"]).reshape(*steps.shape[:2], -1)
            return lax.scan(advance, carried, (numbers, z, valid), reverse=self.backwards)

        values = values_of(x)
        rows, count, _ = values.shape
        first = self._zeros(rows, values.dtype) if start is None else start
        z = jnp.zeros((rows, self.blocks * self.units), values.dtype)
        _, own = jax.eval_shape(self._advanced, weights, first, z, masks.state)
        # Written step by step through both loops: what the inner one would put out, the outer one would copy.
        y = jnp.zeros((rows, count, self.units), values.dtype)
        kept = jax.tree.map(lambda part: jnp.zeros((count, *part.shape), part.dtype), own) if keep else None
        end, y, kept = self._over(chunk, (first, y, kept), values, self.backwards)
        return Ran(y, kept, masks, start, None if start is None else end)

    def _back(
        self, weights: Weights, x: Any, dy: Array, ran: Ran, wants_delta: bool, wants_gradient: bool
    ) -> tuple[Any, Weights]:
        """(dx or None, dweights or {}) from what `_run` gave; the state that it began with counts as a constant."""
        if not wants_delta and not wants_gradient:
            return None, {}
        masks, back = ran.masks, weights["recurrent"].T

        def retreat(dstate: State, step: tuple[Array, Array, Array, Array, Array | None]) -> tuple[State, Any]:
            number, dy, y, before, valid = step
            dstate = _where(valid, (dstate[0] + dy, *dstate[1:]))
            return self.retreat(weights, back, dstate, Moment(y, before, _step(ran.kept, number)), masks.state)

        def chunk(carried: tuple[State, Weights, Array | None], numbers: Array) -> tuple[Any, None]:
            dstate, total, dx = carried
            steps, valid = _steps(x, numbers, masks.x)
            y = _cut(ran.y, numbers)
            before = self._before(ran, y, numbers)
            each = (numbers, _cut(dy, numbers), y, before, valid)
            dstate, slopes = lax.scan(retreat, dstate, each, reverse=not self.backwards)
            if wants_gradient:
                kept = jax.tree.map(lambda part: lax.dynamic_slice_in_dim(part, numbers[0], len(numbers)), ran.kept)
                own = self._gradient(weights, steps, Moment(y, before, kept), slopes, masks)
                total = jax.tree.map(jnp.add, total, own)
            if dx is not None:
                own_dx = matmul(flat(slopes[0]), weights["kernel"].T).reshape(steps.shape)
                own_dx = own_dx if masks.x is None else own_dx * masks.x[None]
                dx = lax.dynamic_update_slice_in_dim(dx, own_dx.swapaxes(0, 1), numbers[0], axis=1)
            return (dstate, total, dx), None

        values = values_of(x)
        empty = jax.tree.map(jnp.zeros_like, weights) if wants_gradient else {}
        began = self._zeros(len(values), ran.y.dtype), empty, jnp.zeros_like(values) if wants_delta else None
        _, gradient, dx = self._over(chunk, began, values, not self.backwards)
        return dx, gradient

    def _over(self, chunk: Callable[[Any, Array], tuple[Any, None]], start: Any, values: Array, reverse: bool) -> Any:
        """What `chunk` comes to, given the numbers of the steps of one chunk after another."""
        numbers, chunks = jnp.arange(values.shape[1]), self._chunks(values)
        if chunks == 1:
            return chunk(start, numbers)[0]
        return lax.scan(chunk, start, numbers.reshape(chunks, -1), reverse=reverse)[0]

    def _advanced(self, weights: Weights, state: State, z: Array, mask: Array | None) -> tuple[State, Any]:
        """`advance` of z without the bias, which costs nothing in the step and a pass over all z before it."""
        return self.advance(weights, state, z + weights["bias"][None] if self.bias else z, mask)

    def _gradient(self, weights: Weights, x: Array, at: Moment, slopes: Any, masks: Masks) -> Weights:
        """dweights of some steps."""
        dz = flat(slopes[0])
        before = at.before if masks.state is None else at.before * masks.state[None]
        gradient = {"kernel": transposed_product(flat(x), dz)} | self.recurrent_gradient(weights, before, at, slopes)
        return gradient | ({"bias": dz.sum(axis=0)} if self.bias else {})

    def _chunks(self, values: Array) -> int:
        """Into how many equal chunks to cut the steps: as few as are small enough, if there are such, else one."""
        rows, count, _ = values.shape
        fewest = -(-count * rows * self.blocks * self.units // CHUNK)
        return next((chunks for chunks in range(fewest, 2 * fewest) if count % chunks == 0), 1)

    def _zeros(self, rows: int, dtype: Any) -> State:
        return (jnp.zeros((rows, self.units), dtype),) * self.states

    def _before(self, ran: Ran, y: Array, numbers: Array) -> Array:
        """What the step before each of these put out, (steps, batch, units), as y is what they did."""
        first = jnp.zeros_like(ran.y[:, 0]) if ran.start is None else ran.start[0]
        edge = numbers[-1] + 1 if self.backwards else numbers[0] - 1
        there = (edge >= 0) & (edge < ran.y.shape[1])
        beyond = jnp.where(there, _step(ran.y, edge, axis=1), first)[None]
        return jnp.concatenate([y[1:], beyond] if self.backwards else [beyond, y[:-1]])

    def _rows(self, y: Array, x: Any) -> Any:
        """y as x is."""
        return Ragged(y, x.lengths) if isinstance(x, Ragged) else y

    def _masks(self, x: Any, context: Context) -> Masks:
        values = x.values if isinstance(x, Ragged) else x
        keys, batch = jax.random.split(context.key), len(values)

        def drawn(key: Array, rate: float, size: int) -> Array | None:
            if not rate:
                return None
            return jax.random.bernoulli(key, 1 - rate, (batch, size)).astype(values.dtype) / (1 - rate)

        return Masks(drawn(keys[0], self.dropout, values.shape[2]), drawn(keys[1], self.recurrent_dropout, self.units))


def flat(steps: Array) -> Array:
    """(steps, batch, n) as (steps * batch, n)."""
    return steps.reshape(-1, steps.shape[-1])


def masked(state: Array, mask: Array | None) -> Array:
    """The state as `recurrent` reads it: times what dropout left, if there is any."""
    return state if mask is None else state * mask


def _cut(rows: Array, numbers: Array) -> Array:
    """Consecutive steps of rows (batch, steps, n) as (steps, batch, n)."""
    return lax.dynamic_slice_in_dim(rows, numbers[0], len(numbers), axis=1).swapaxes(0, 1)


def _steps(x: Any, numbers: Array, mask: Array | None) -> tuple[Array, Array | None]:
    """(steps, batch, n) with zeros for padding; and (steps, batch, 1) of bool, what is none, if there may be some."""
    steps, valid = _cut(values_of(x), numbers), None
    if isinstance(x, Ragged):
        valid = _cut(x.valid[..., None], numbers)
        steps = jnp.where(valid, steps, 0)
    return steps if mask is None else steps * mask[None], valid


def _step(tree: Any, number: Array, axis: int = 0) -> Any:
    """One step of arrays of all steps."""
    return jax.tree.map(lambda array: lax.dynamic_index_in_dim(array, number, axis, keepdims=False), tree)


def _with_step(tree: Any, number: Array, step: Any, axis: int = 0) -> Any:
    """Arrays of all steps with that one written into them, in place."""
    return jax.tree.map(lambda array, own: lax.dynamic_update_index_in_dim(array, own, number, axis), tree, step)


def _where(valid: Array | None, state: State, other: State | None = None) -> State:
    """The state of rows that have the step, else the other, or zeros."""
    if valid is None:
        return state
    others: tuple[Any, ...] = (0,) * len(state) if other is None else other
    return tuple(jnp.where(valid, part, old) for part, old in zip(state, others, strict=True))
