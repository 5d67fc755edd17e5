"""What queries take of values by their scores with keys, and its slopes, in memory that grows with the steps alone.

All scores of a row at once are steps x steps numbers for every head. Above `SCORES` of them the queries are taken in
blocks, and the way back computes each block's scores anew from the logarithm of their sum (Rabe and Staats 2021,
"Self-attention does not need O(n^2) memory"; Dao et al. 2022, "FlashAttention"). Below, they are kept.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from sparkdl.arrays import INTEGERS
from sparkdl.layers.base import Array
from sparkdl.layers.normalization import wide

# Of one head and row, at once: those of 512 steps with one another. A training step of 512 steps takes 0.85 of the time
# of four blocks, on one core; all at once 1,024 would take 0.71 and 2,048 0.97, in 4 and 16 times the memory. For 64
# rows of 12 heads 512 x 512 are 0.8 GB in float32, which a step's parts cut further.
SCORES = 512 * 512


@dataclass(frozen=True, eq=False)  # arrays have no single answer to ==
class Attention:
    """softmax(scale * queries . keys) . values, with queries of several heads for each head of keys and values.

    queries  (batch, heads, group, steps, size)      keys, values  (batch, heads, others, size)

    Queries of a single row are asked of every row, and dqueries is then the sum over the rows.

    Attributes
    ----------
    lengths : Array (batch,) or None
        Of the keys of every row; None where all are as long as the array.
    causal : bool
        Whether a query sees no key of a later step than its own.
    rate : float
        Probability of dropping what softmax gives; what stays is divided by 1 - rate.
    key : Array or None
        Random key of what is dropped. Every query's step draws by itself, in whatever block it is.
    starts : Array (batch,) or None
        Of every row, which step its first query is of, among those of the keys; None where it is the first.
    """

    lengths: Array | None = None
    causal: bool = False
    rate: float = 0.0
    key: Array | None = None
    starts: Array | None = None

    def forward(self, queries: Array, keys: Array, values: Array) -> tuple[Array, Any]:
        """(what each query takes, (batch, heads, group, steps, size); what `backward` needs).

        0 where a query sees no key.
        """
        steps = jnp.arange(queries.shape[3], dtype=INTEGERS)
        if (blocks := self._blocks(queries, keys)) == 1:
            shares = self._softmax(queries, keys, steps)[0]
            stays = self._stays(queries, keys, steps)
            return self._taken(shares, stays, values), (shares, stays)

        def block(_: None, part: tuple[Array, Array]) -> tuple[None, tuple[Array, Array]]:
            own, steps = part
            shares, logsum = self._softmax(own, keys, steps)
            return None, (self._taken(shares, self._stays(own, keys, steps), values), logsum)

        taken, logsum = lax.scan(block, None, (_cut(queries, blocks), _cut_steps(steps, blocks)))[1]
        return _joined(taken, queries), logsum

    def backward(
        self, queries: Array, keys: Array, values: Array, taken: Array, dtaken: Array, kept: Any
    ) -> tuple[Array, Array, Array]:
        """(dqueries, dkeys, dvalues), from what `forward` took and kept."""
        # Of a softmax p with slopes dp, the derivative is p * (dp - sum(p * dp)), and that sum is dtaken . taken.
        mean = (wide(dtaken) * wide(taken)).sum(axis=-1, keepdims=True)
        if (blocks := self._blocks(queries, keys)) == 1:
            shares, stays = kept
            return self._slopes(queries, keys, values, dtaken, mean, shares, stays)

        def block(total: tuple[Array, Array], part: Any) -> tuple[tuple[Array, Array], Array]:
            own, dtaken, mean, logsum, steps = part
            scores, _ = self._scores(own, keys, steps)
            shares = jnp.exp(scores - logsum[..., None])
            stays = self._stays(own, keys, steps)
            down, dkeys, dvalues = self._slopes(own, keys, values, dtaken, mean, shares, stays)
            return (total[0] + wide(dkeys), total[1] + wide(dvalues)), down

        cut = [_cut(array, blocks) for array in (queries, dtaken, mean)]
        steps = _cut_steps(jnp.arange(queries.shape[3], dtype=INTEGERS), blocks)
        zeros = jnp.zeros_like(wide(keys)), jnp.zeros_like(wide(values))
        (dkeys, dvalues), dqueries = lax.scan(block, zeros, (*cut, kept, steps))
        return _joined(dqueries, queries), dkeys.astype(keys.dtype), dvalues.astype(values.dtype)

    def _blocks(self, queries: Array, keys: Array) -> int:
        return min(queries.shape[3], -(-queries.shape[3] * keys.shape[2] // SCORES))

    def _scores(self, queries: Array, keys: Array, steps: Array) -> tuple[Array, Array | None]:
        """(scores in float32 at least, -inf for keys that are not seen; which are seen, or None if all are)."""
        scores = _product("bhgtd,bhsd->bhgts", queries, keys) * (1 / math.sqrt(queries.shape[-1]))
        others = jnp.arange(keys.shape[2], dtype=INTEGERS)
        seen = None
        if self.lengths is not None:
            seen = (others[None] < self.lengths[:, None])[:, None, None, None]
        if self.causal:
            at = steps[None] if self.starts is None else self.starts[:, None] + steps[None]
            before = (others[None, None] <= at[..., None])[:, None, None]
            seen = before if seen is None else seen & before
        return (scores if seen is None else jnp.where(seen, scores, -jnp.inf)), seen

    def _softmax(self, queries: Array, keys: Array, steps: Array) -> tuple[Array, Array]:
        """(shares that keys have, in float32 at least; logarithm of the sum of exp(scores), inf where none is seen)."""
        scores, seen = self._scores(queries, keys, steps)
        largest = scores.max(axis=-1, keepdims=True)
        largest = largest if seen is None else jnp.where(largest == -jnp.inf, 0, largest)
        powers = jnp.exp(scores - largest)
        total = powers.sum(axis=-1, keepdims=True)
        total = total if seen is None else jnp.where(total == 0, jnp.inf, total)
        return powers / total, (largest + jnp.log(total))[..., 0]

    def _stays(self, queries: Array, keys: Array, steps: Array) -> Array | None:
        """What is not dropped, of the shape of the scores; None if nothing is."""
        if self.key is None or not self.rate:
            return None
        shape, key, rate = (len(keys), *queries.shape[1:3], keys.shape[2]), self.key, self.rate

        def drawn(step: Array) -> Array:
            return jax.random.bernoulli(jax.random.fold_in(key, step), 1 - rate, shape)

        return jax.vmap(drawn, out_axes=3)(steps)

    def _thinned(self, shares: Array, stays: Array | None) -> Array:
        return shares if stays is None else jnp.where(stays, shares / (1 - self.rate), 0)

    def _taken(self, shares: Array, stays: Array | None, values: Array) -> Array:
        thinned = self._thinned(shares, stays).astype(values.dtype)
        return _product("bhgts,bhsd->bhgtd", thinned, values).astype(values.dtype)

    def _slopes(
        self, queries: Array, keys: Array, values: Array, dtaken: Array, mean: Array, shares: Array, stays: Array | None
    ) -> tuple[Array, Array, Array]:
        """(dqueries, dkeys, dvalues) of the queries of a block."""
        dtype = queries.dtype
        dvalues = _product("bhgts,bhgtd->bhsd", self._thinned(shares, stays).astype(dtype), dtaken)
        dshares = self._thinned(_product("bhgtd,bhsd->bhgts", dtaken, values), stays)
        dscores = (shares * (dshares - mean) * (1 / math.sqrt(queries.shape[-1]))).astype(dtype)
        dqueries = _product("bhgts,bhsd->bhgtd", dscores, keys)
        if len(queries) < len(keys):
            dqueries = dqueries.sum(axis=0, keepdims=True)
        dkeys = _product("bhgts,bhgtd->bhsd", dscores, queries)
        return dqueries.astype(dtype), dkeys.astype(dtype), dvalues.astype(dtype)


def _product(axes: str, one: Array, other: Array) -> Array:
    """A product of which bfloat16 is added up, and left, in float32."""
    return jnp.einsum(axes, one, other, preferred_element_type=np.promote_types(one.dtype, np.float32))


def _padded(array: Array, blocks: int, axis: int) -> tuple[Array, int]:
    """(the array with zeros at the end of an axis, for equal blocks; the size of one)."""
    size = -(-array.shape[axis] // blocks)
    widths = [(0, blocks * size - array.shape[axis] if at == axis else 0) for at in range(array.ndim)]
    return jnp.pad(array, widths), size


def _cut(array: Array, blocks: int) -> Array:
    """(batch, heads, group, steps, ...) as (blocks, batch, heads, group, steps of one, ...)."""
    padded, size = _padded(array, blocks, 3)
    return jnp.moveaxis(padded.reshape(*array.shape[:3], blocks, size, *array.shape[4:]), 3, 0)


def _cut_steps(steps: Array, blocks: int) -> Array:
    """Numbers of steps as (blocks, steps of one)."""
    padded, size = _padded(steps, blocks, 0)
    return padded.reshape(blocks, size)


def _joined(cut: Array, like: Array) -> Array:
    """The inverse of `_cut`, with as many steps as `like` has."""
    rows = jnp.moveaxis(cut, 0, 3)
    return rows.reshape(*rows.shape[:3], rows.shape[3] * rows.shape[4], *rows.shape[5:])[:, :, :, : like.shape[3]]
