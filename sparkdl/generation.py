"""Networks that go on with a sequence of integers: what they put out at a step are the logits of the next one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from numbers import Real
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from sparkdl.arrays import INTEGERS
from sparkdl.layers.base import CannotCarry, Weights
from sparkdl.layers.normalization import wide
from sparkdl.layers.ragged import Ragged, is_ragged
from sparkdl.layers.time_pooling import LastStep
from sparkdl.specs import is_integer
from sparkdl.stepping import Stepped

Advance = Callable[[Any, Array], tuple[Array, Any]]  # (logits, state) from a state and the integer that comes next


class Drawing(NamedTuple):
    """How rows go on; see `Generating.generate`."""

    steps: int
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 0
    stop: int | None = None

    def check(self, count: int) -> None:
        """ValueError if a field is not what is expected where there are so many integers to choose from."""
        _check("steps", self.steps, 1)
        at = self.temperature
        if not isinstance(at, Real) or isinstance(at, bool) or not 0 <= at < math.inf:
            raise ValueError(f"temperature of generate must be a number of at least 0, received {at!r}.")
        if self.top_k is not None:
            _check("top_k", self.top_k, 1, count)
        share = self.top_p
        if share is not None and (not isinstance(share, Real) or isinstance(share, bool) or not 0 < share <= 1):
            raise ValueError(f"top_p of generate must be a number above 0 and up to 1, received {share!r}.")
        _check("seed", self.seed, 0)
        if self.stop is not None:
            _check("stop", self.stop, 0, count - 1)


class Going(NamedTuple):
    """Rows on their way: how many integers each drew, the network's state, the last ones, and which rows have ended."""

    taken: Array
    state: Any
    ids: Array
    ended: Array
    drawn: Array


def _check(name: str, value: Any, least: int, most: int | None = None) -> None:
    """ValueError unless it is an integer between these."""
    if not is_integer(value, least, math.inf if most is None else most):
        bounds = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise ValueError(f"{name} of generate must be an integer {bounds}, received {value!r}.")


@dataclass(frozen=True)
class Generating(Stepped):
    """Base of networks: what those of rows of integers, as of the letters or words of a text, can go on with."""

    def generate(
        self,
        weights: Weights,
        first: Sequence[int] | Ragged,
        steps: int,
        *,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int = 0,
        stop: int | None = None,
    ) -> np.ndarray[Any, Any] | Ragged:
        """Go on with rows of integers: draw the next one from what the network says of it, and go on with that.

        Parameters
        ----------
        weights : nested dict of arrays
        first : sequence of int, or Ragged
            What a row begins with, one integer or more; several rows as `Ragged`.
        steps : int
            How many to draw, at most.
        temperature : float, default 1
            What the logits are divided by before softmax makes probabilities of them: below 1 the likely ones become
            likelier. 0 takes the likeliest each time.
        top_k : int, optional
            Draw from so many of the likeliest only.
        top_p : float, optional
            Draw from the fewest of the likeliest only that have this share of the probability together, after `top_k`
            and `temperature` (nucleus sampling, Holtzman et al. 2020).
        seed : int, default 0
            A row goes on alike with the same seed, whatever rows are beside it; equal rows go on alike.
        stop : int, optional
            The integer at which a row ends.

        Returns
        -------
        array (steps drawn,) of int32, or Ragged of such rows
            What was drawn, without `first` and without `stop`; as many as `steps` unless `stop` was drawn.

        Raises
        ------
        ValueError
            The network is of another kind, a row would get more steps than its positions tell apart, or an argument is
            not what is expected; the message says what to do.

        Notes
        -----
        The network reads one input of integers, (None,), and puts out as many numbers as there are integers, at every
        step or, as with LastStep, of the row so far. Where all layers carry a state (see `first_state`), as recurrent
        ones and causal attention do, which keeps keys and values, only the new integer goes through the network at each
        step; else the whole row does again. One program goes over all steps, or until every row has come to `stop`. It
        is compiled for the shape of `first`: padded to one width as Ragged, rows of several calls share it.

        Examples
        --------
        >>> import numpy as np
        >>> from sparkdl import Network
        >>> from sparkdl.layers import Dense, OneHot
        >>> network = Network([OneHot(4), Dense(4)], input_shape=(None,))
        >>> kernel = np.roll(np.eye(4, dtype="float32"), 1, axis=1)  # after 0 comes 1, after 3 comes 0
        >>> weights = {"dense_1": {"kernel": 9 * kernel, "bias": np.zeros(4, "float32")}}
        >>> network.generate(weights, [2, 3], steps=6, temperature=0).tolist()
        [0, 1, 2, 3, 0, 1]
        """
        drawing, (count, limit) = Drawing(steps, temperature, top_k, top_p, seed, stop), self.choices()
        drawing.check(count)
        prompts, key = _prompts(first, limit), jax.random.key(seed)
        given, room = np.max(prompts.lengths), self.room(steps)
        if room is not None and given > room:
            raise ValueError(
                f"first of generate must hold at most {room} integers in each row where steps={steps}, as the "
                f"network's positions tell {self.longest()} steps apart, received {given}; cut it, or ask for fewer "
                "steps."
            )
        end = np.asarray(-1 if stop is None else stop, INTEGERS)
        how = (float(temperature), None if top_p is None else float(top_p), end)
        ids = np.asarray(_drawn(self, steps, top_k, temperature == 0, weights, prompts, key, *how))
        lengths = _lengths(ids, stop)
        if not isinstance(first, Ragged):
            return ids[0, : lengths[0]]
        return Ragged(np.where(np.arange(steps) < lengths[:, None], ids, 0), lengths)

    def choices(self) -> tuple[int, int]:
        """How many integers it chooses from, and below what those are that it reads.

        Raises
        ------
        ValueError
            It is no network that chooses integers.
        """
        reads = self.row_shape()
        if reads != (None,) or not self.takes_integers or len(self.exits) > 1:
            raise ValueError(
                "generate expects a network of one output that reads rows of any number of integers, input_shape="
                f"(None,) with Embedding or OneHot first, received one of {len(self.exits)} that reads {reads}."
            )
        shape = self.output_shape(reads)
        *before, count = shape or (None,)
        if before not in ([], [None]) or count is None:
            raise ValueError(
                "generate expects a network that puts out logits of the next integer, (None, count) or (count,), "
                f"received {shape}; end it in Dense(count)."
            )
        limits = [limit for layer in self.readers[0] if (limit := layer.integer_limit) is not None]
        limit = min(limits, default=1 << 31)
        if count > limit:
            raise ValueError(
                "generate expects a network that puts out logits of the integers that it reads, received "
                f"{count} for a table of {limit} rows; end it in Dense({limit})."
            )
        return count, limit

    def longest(self) -> int | None:
        """How many steps a row may have at most, by the layers that number them; None if any number."""
        leaves = self.leaves(self.row_shape())
        limits = [limit for leaf in leaves if is_ragged(leaf.before) and (limit := leaf.layer.step_limit) is not None]
        return min(limits, default=None)

    def room(self, steps: int) -> int | None:
        """How many integers a row may begin with that is to go on with so many; None if any number.

        Raises
        ------
        ValueError
            Not even one.
        """
        longest = self.longest()
        if longest is not None and steps > longest:
            raise ValueError(
                f"steps of generate must be at most {longest}, as many as the network's positions tell apart, received "
                f"{steps}."
            )
        return None if longest is None else longest + 1 - steps  # what is drawn last is not read


def _prompts(first: Any, limit: int) -> Ragged:
    """The rows to go on with, on the host; ValueError if one is empty or holds what is no integer below the limit."""
    rows = first if isinstance(first, Ragged) else Ragged(np.asarray(first)[None], np.asarray([np.size(first)]))
    ids, lengths = np.asarray(rows.values), np.asarray(rows.lengths)
    if not lengths.size or lengths.min() < 1:
        raise ValueError("first of generate must hold an integer or more in each row; give one that begins a row.")
    if ids.ndim != 2 or not np.issubdtype(ids.dtype, np.integer):
        raise ValueError(
            f"first of generate must be integers of one row, received {first!r}; give several rows as "
            "Ragged(values, lengths), of arrays (rows, steps) and (rows,)."
        )
    known = ids[np.arange(ids.shape[1]) < lengths[:, None]]
    wrong = known[(known < 0) | (known >= limit)]
    if wrong.size:
        raise ValueError(f"first of generate must hold integers from 0 to {limit - 1}, received {wrong[0]}.")
    return Ragged(ids.astype(INTEGERS), lengths.astype(INTEGERS))


def _lengths(ids: np.ndarray[Any, Any], stop: int | None) -> np.ndarray[Any, Any]:
    """How many come before the first `stop` of each row."""
    if stop is None:
        return np.full(len(ids), ids.shape[1], INTEGERS)
    ends = ids == stop
    return np.where(ends.any(axis=1), ends.argmax(axis=1), ids.shape[1]).astype(INTEGERS)


@partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _drawn(
    network: Generating,
    steps: int,
    top_k: int | None,
    greedy: bool,
    weights: Weights,
    prompts: Ragged,
    key: Array,
    temperature: Array,
    top_p: Array | None,
    stop: Array,
) -> Array:
    """So many integers for each of the prompts, (rows, steps); zeros once all rows have come to `stop`."""
    chances = jax.vmap(lambda own: jax.random.uniform(own, (steps,)))(_keys(key, prompts)).T

    def draw(logits: Array, chance: Array) -> Array:
        if greedy:
            return logits.argmax(axis=-1).astype(INTEGERS)
        sorted_ones = top_k or (None if top_p is None else logits.shape[-1])
        best, ids = lax.top_k(wide(logits), sorted_ones) if sorted_ones else (wide(logits), None)
        beside_best = best - best.max(axis=-1, keepdims=True)  # which a temperature near 0 leaves at 0
        least = jnp.finfo(best.dtype).tiny
        sums = jnp.cumsum(jax.nn.softmax(beside_best / jnp.maximum(temperature, least), axis=-1), axis=-1)
        last = jnp.full(len(sums), sums.shape[-1] - 1, INTEGERS)
        if top_p is not None:
            last = (sums < top_p.astype(sums.dtype) * sums[:, -1:]).sum(axis=-1, dtype=INTEGERS)
        whole = jnp.take_along_axis(sums, last[:, None], axis=1)
        # One number for a row, not one for every integer; what has no share is at the end of none.
        below = sums <= chance.astype(sums.dtype)[:, None] * whole
        place = jnp.minimum(below.sum(axis=-1, dtype=INTEGERS), last)
        return place if ids is None else jnp.take_along_axis(ids, place[:, None], axis=1)[:, 0].astype(INTEGERS)

    def go_on(now: Going) -> Going:
        logits, state = advance(now.state, now.ids)
        ids = draw(logits, chances[now.taken])
        return Going(now.taken + 1, state, ids, now.ended | (ids == stop), now.drawn.at[now.taken].set(ids))

    logits, state, advance = _begun(network, weights, prompts, steps)
    ids = draw(logits, chances[0])
    drawn = jnp.zeros((steps, *ids.shape), ids.dtype).at[0].set(ids)
    going = Going(jnp.asarray(1, ids.dtype), state, ids, ids == stop, drawn)
    return lax.while_loop(lambda now: (now.taken < steps) & ~now.ended.all(), go_on, going).drawn.T


def _keys(key: Array, prompts: Ragged) -> Array:
    """A random key for each row, of what it holds: rows beside it must not matter, nor all draw the same numbers."""

    def fold(keys: Array, step: tuple[Array, Array]) -> tuple[Array, None]:
        ids, valid = step
        return jnp.where(valid, jax.vmap(jax.random.fold_in)(keys, ids), keys), None

    start = jnp.broadcast_to(key, prompts.lengths.shape)
    return lax.scan(fold, start, (prompts.values.T, prompts.valid.T))[0]


def _begun(network: Generating, weights: Weights, prompts: Ragged, steps: int) -> tuple[Array, Any, Advance]:
    """(logits of what comes after the prompts, state, how to go on), with layers' states if all have such."""
    rows, longest = len(prompts.lengths), prompts.values.shape[1] + steps - 1
    if (limit := network.longest()) is not None:
        longest = min(longest, limit)  # rows stay within it, however far they are padded
    leaves = jax.tree.leaves(weights)
    try:
        state = network.first_state(rows, dtype=leaves[0].dtype if leaves else float, longest=longest)
    except CannotCarry:
        return _begun_anew(network, weights, prompts, steps)
    y, state = network.forward_from(weights, state, prompts)
    return _last(y), state, partial(network.step, weights)


def _begun_anew(network: Stepped, weights: Weights, prompts: Ragged, steps: int) -> tuple[Array, Any, Advance]:
    """The same with all of the rows so far as the state."""

    def advance(rows: Ragged, ids: Array) -> tuple[Array, Ragged]:
        places = jnp.arange(rows.values.shape[1], dtype=INTEGERS)[None]
        values = jnp.where(places == rows.lengths[:, None], ids[:, None], rows.values)
        rows = Ragged(values, rows.lengths + 1)
        return _last(network.forward(weights, rows)), rows

    rows = Ragged(jnp.pad(prompts.values, ((0, 0), (0, steps - 1))), prompts.lengths)
    return _last(network.forward(weights, rows)), rows, advance


def _last(y: Any) -> Array:
    """Of outputs at every step those at the last; or those of the row."""
    return LastStep().forward({}, y) if isinstance(y, Ragged) else y
