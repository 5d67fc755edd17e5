"""The messages of threshold sharing: which weights pass a threshold and with which sign, in words of 32 bits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

FILLER = 2**31 - 1  # an index word that stands for no weight


class Header(NamedTuple):
    """What a worker says of itself in front of every message; of several workers, with a first axis of workers.

    Attributes
    ----------
    totals : Array
        Sums over its rows of weight * loss, weight * metric, weight, ...
    threshold : Array, shape ()
        What each +1 and -1 of the body stands for.
    passed : Array, shape (), int32
        Weights that passed the threshold, whether or not the body had room for them.
    """

    totals: Array
    threshold: Array
    passed: Array


def pack_message(header: Header, body: Array) -> Array:
    """Header and body as one vector of uint32 words."""
    numbers = jnp.append(header.totals, header.threshold)
    front = lax.bitcast_convert_type(numbers, jnp.uint32).reshape(-1)
    return jnp.concatenate([front, header.passed.astype(jnp.uint32)[None], body])


def unpack_messages(messages: Array, dtype: jnp.dtype, totals: int) -> tuple[Header, Array]:
    """Headers and bodies of messages, shape (workers, words), whose headers had so many totals, all of `dtype`."""
    words, count = dtype.itemsize // 4, totals + 1  # of a number, of numbers
    front, rest = messages[:, : count * words], messages[:, count * words :]
    numbers = lax.bitcast_convert_type(front.reshape((-1, count) if words == 1 else (-1, count, words)), dtype)
    return Header(numbers[:, :totals], numbers[:, totals], rest[:, 0].astype(jnp.int32)), rest[:, 1:]


@dataclass(frozen=True)
class Bitmap:
    """Two bits a weight: 1 for +1, 2 for -1; a sixteenth of float32, whatever passes.

    Bit pair k of word j is weight k * words + j, so that neighbours in memory go to neighbouring words: that is what
    processors do many of at a time.

    Parameters
    ----------
    size : int
        Number of weights.
    """

    size: int

    @property
    def words(self) -> int:
        """Length of a body."""
        return -(-self.size // 16)

    def encoded(self, values: Array, threshold: Array, turn: Array) -> Array:
        """The body that says which of `values`, shape (size,), are at least `threshold` away from 0."""
        codes = jnp.where(values >= threshold, jnp.uint32(1), jnp.where(values <= -threshold, jnp.uint32(2), 0))
        return _packed_bits(codes, self.words, 2)

    def added(self, values: Array, body: Array, amount: Array) -> Array:
        """`values` plus `amount` times the +1, -1 and 0 of a body."""
        codes = (body[None] >> _shifts(2)) & jnp.uint32(3)
        signs = (codes & 1).astype(jnp.int32) - (codes >> 1).astype(jnp.int32)
        return values + amount * signs.reshape(-1)[: self.size].astype(values.dtype)


@dataclass(frozen=True)
class Indices:
    """A word for each weight that passes: its sign in the top bit, 1 for -1, and its index below.

    Where more pass than there is room for, those that go are others every time.

    Parameters
    ----------
    size : int
        Number of weights, less than 2**31 - 32.
    capacity : int
        Words of a body.

    Notes
    -----
    The k-th that passes is found by a search among the counts of words of 32 flags, then by halves of its word: 0.4 ms
    for a million weights on one core, where `jnp.nonzero` takes 6 ms.
    """

    size: int
    capacity: int

    @property
    def words(self) -> int:
        """Length of a body."""
        return self.capacity

    def encoded(self, values: Array, threshold: Array, turn: Array) -> Array:
        """The body that says which of `values`, shape (size,), are at least `threshold` away from 0.

        `turn`, an integer that grows by 1 from message to message, decides which of too many go.
        """
        length = -(-self.size // 32)
        flags = _packed_bits((jnp.abs(values) >= threshold).astype(jnp.uint32), length, 1)
        ends = jnp.cumsum(lax.population_count(flags).astype(jnp.int32))
        passed = ends[-1]
        slots = jnp.arange(self.capacity, dtype=jnp.int32)
        start = (turn.astype(jnp.uint32) * self.capacity % jnp.maximum(passed, 1).astype(jnp.uint32)).astype(jnp.int32)
        start = jnp.where(passed > self.capacity, start, 0)
        ranks = slots - (passed - start)
        ranks = jnp.where(ranks < 0, slots + start, ranks)
        words = jnp.minimum(jnp.searchsorted(ends, ranks, side="right").astype(jnp.int32), length - 1)
        flag = flags[words]
        below = ends[words] - lax.population_count(flag).astype(jnp.int32)
        index = _position(flag, ranks - below) * length + words
        negative = values.at[index].get(mode="clip") < 0
        body = index.astype(jnp.uint32) | (negative.astype(jnp.uint32) << 31)
        return jnp.where(slots < passed, body, FILLER)

    def added(self, values: Array, body: Array, amount: Array) -> Array:
        """`values` plus `amount` times the +1, -1 and 0 of a body."""
        index = (body & jnp.uint32(FILLER)).astype(jnp.int32)
        return values.at[index].add(jnp.where(body >> 31 == 1, -amount, amount), mode="drop")


def _packed_bits(codes: Array, words: int, bits: int) -> Array:
    """Codes of `bits` bits as uint32 words, code k * words + j in word j."""
    table = jnp.pad(codes, (0, words * 32 // bits - codes.size)).reshape(32 // bits, words)
    return jnp.sum(table << _shifts(bits), axis=0, dtype=jnp.uint32)


def _shifts(bits: int) -> Array:
    return jnp.arange(0, 32, bits, dtype=jnp.uint32)[:, None]


def _position(word: Array, rank: Array) -> Array:
    """Of the set bit that has `rank` set bits below it."""
    position = jnp.zeros_like(rank)
    for width in (16, 8, 4, 2, 1):
        half = (word >> position.astype(jnp.uint32)) & jnp.uint32(2**width - 1)
        below = lax.population_count(half).astype(jnp.int32)
        above = below <= rank
        rank = jnp.where(above, rank - below, rank)
        position = jnp.where(above, position + width, position)
    return position
