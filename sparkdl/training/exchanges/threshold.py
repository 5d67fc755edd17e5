"""Threshold sharing: workers tell each other only the gradients that have grown large, and remember the rest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree

from sparkdl.specs import Spec, check_range, is_integer
from sparkdl.training.exchanges.exchange import (
    WORKERS,
    Agreed,
    Array,
    Exchange,
    Moment,
    Params,
    Sums,
    Update,
    gathered_bytes,
    reciprocal,
)
from sparkdl.training.exchanges.message import Bitmap, Header, Indices, pack_message, unpack_messages
from sparkdl.weights import updated

FORMS = ("auto", "bitmap", "sparse")
ROOM = (1 / 256, 1 / 64)  # in index words, parts of the weights; a bitmap takes 1 / 16
SMALLEST = 1e-30  # threshold, lest it vanish where no gradient is left


@dataclass(frozen=True)
class Threshold(Spec):
    """How the threshold of `ThresholdSharing` changes from step to step."""

    def first(self) -> float:
        """That of the first step, in units of the gradient of the mean loss."""
        raise NotImplementedError(f"{type(self).__name__} does not say where its threshold starts.")

    def adjusted(self, threshold: Array, sparsity: Array) -> Array:
        """The next step's threshold, where a share `sparsity` of the weights passed this one."""
        raise NotImplementedError(f"{type(self).__name__} does not say how its threshold changes.")


@dataclass(frozen=True)
class FixedThreshold(Threshold):
    """The same threshold in every step.

    Parameters
    ----------
    value : float
        In units of the gradient of the mean loss.
    """

    value: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "(0, inf)", "value")

    def first(self) -> float:
        return self.value

    def adjusted(self, threshold: Array, sparsity: Array) -> Array:
        return threshold


@dataclass(frozen=True)
class AdaptiveThreshold(Threshold):
    """Lower the threshold while too few weights pass it, raise it while too many do.

    Parameters
    ----------
    initial : float, default 1e-3
        In units of the gradient of the mean loss.
    min_sparsity, max_sparsity : float, default 0.01 and 0.1
        Shares of the weights that pass between which the threshold stays.
    decay : float, default 0.9
        Factor of a step down; a step up divides by it.
    """

    initial: float = 1e-3
    min_sparsity: float = 0.01
    max_sparsity: float = 0.1
    decay: float = 0.9

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "(0, inf)", "initial")
        check_range(self, "[0, 1]", "min_sparsity", "max_sparsity")
        check_range(self, "(0, 1)", "decay")
        if self.min_sparsity > self.max_sparsity:
            raise ValueError(
                f"min_sparsity of AdaptiveThreshold must be at most max_sparsity, received {self.min_sparsity!r} and "
                f"{self.max_sparsity!r}; exchange them."
            )

    def first(self) -> float:
        return self.initial

    def adjusted(self, threshold: Array, sparsity: Array) -> Array:
        lower = jnp.where(sparsity < self.min_sparsity, threshold * self.decay, threshold)
        return jnp.where(sparsity > self.max_sparsity, threshold / self.decay, lower)


@dataclass(frozen=True)
class TargetSparsity(Threshold):
    """Move the threshold in every step towards the one that a given share of the weights passes.

    Parameters
    ----------
    initial : float, default 1e-3
        In units of the gradient of the mean loss.
    sparsity : float, default 0.01
        The share of the weights that is to pass; up to 1/64 a message without a bitmap has room for it.
    decay : float, default 0.9
        Factor of a step down; a step up divides by it.
    """

    initial: float = 1e-3
    sparsity: float = 0.01
    decay: float = 0.9

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "(0, inf)", "initial")
        check_range(self, "(0, 1)", "sparsity", "decay")

    def first(self) -> float:
        return self.initial

    def adjusted(self, threshold: Array, sparsity: Array) -> Array:
        return jnp.where(sparsity < self.sparsity, threshold * self.decay, threshold / self.decay)


class Memory(NamedTuple):
    """What a worker remembers from step to step.

    Attributes
    ----------
    residual : Array, shape (weights,)
        Of its own gradients, what it has not told the others yet.
    threshold : Array, shape ()
        That of the next step, equal on all workers.
    passed : Array, shape (), int32
        Weights that passed in the last step on the worker where most did, equal on all workers.
    step : Array, shape (), int32
        Steps taken.
    """

    residual: Array
    threshold: Array
    passed: Array
    step: Array


@dataclass(frozen=True)
class ThresholdSharing(Exchange):
    """Workers share gradients as +t, -t or nothing a weight, and carry what that leaves out to later steps.

    A worker adds its mean gradient to its residual r and sends q: t where r >= t, -t where r <= -t, and 0. It keeps
    r - q, so that what is sent and what is kept always add up to its gradients (but for `clip`). All update by the mean
    of the q's, weighted by the workers' row weights. A worker without rows in a step sends nothing and keeps its r.
    A single worker quantises likewise and sends nothing.

    Parameters
    ----------
    threshold : Threshold or str
        t, and how it changes. It is common to all workers and follows the mean share of weights that passed: then a
        gradient counts alike wherever it arose, and no worker with small gradients drowns the others in noise.
    clip : float or None, default 1.0
        Bound on |r| after sending, in thresholds; what is above it is forgotten. Without it, gradients that are many
        thresholds large are sent long after their step, which costs accuracy, the more with momentum.
    clip_every : int, default 1
        Steps from one such clipping to the next.
    form : str, default "auto"
        "bitmap": 2 bits a weight. "sparse": 32 bits for each weight that passes, up to 1/64 of all weights; others wait
        in the residual. "auto": the smallest form that the last step's messages, of all workers, would have fitted.

    Notes
    -----
    After Strom, Scalable distributed DNN training using commodity GPU cloud computing, Interspeech 2015, but in step:
    every worker's message goes into the update of the same step. Each worker sends its message to all W - 1 others, so
    that a bitmap is 1/16 of an all-reduce's bytes with 2 workers, 1/4 with 8, and as many with 32.
    """

    threshold: Threshold | str = AdaptiveThreshold()
    clip: float | None = 1.0
    clip_every: int = 1
    form: str = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "threshold", Threshold.of(self.threshold))
        if self.clip is not None:
            check_range(self, "(0, inf)", "clip")
        every = self.clip_every
        if not is_integer(every, 1):
            raise ValueError(f"clip_every must be a number of steps of at least 1, received {every!r}.")
        if self.clip is None and every > 1:
            raise ValueError(f"clip_every is for clipping, received {every!r} without clip; give clip too.")
        if self.form not in FORMS:
            raise ValueError(f"form of ThresholdSharing must be one of {', '.join(FORMS)}, received {self.form!r}.")

    def init(self, learned: object) -> Memory:
        """No residual yet."""
        flat, _ = _raveled(learned)
        if flat.size >= 2**31 - 32:
            raise ValueError(f"ThresholdSharing takes up to 2**31 - 33 weights, received {flat.size}; use AllReduce.")
        first = jnp.asarray(Threshold.of(self.threshold).first(), flat.dtype)
        return Memory(jnp.zeros_like(flat), first, jnp.int32(flat.size), jnp.int32(0))

    def carried(self, state: Memory, fresh: Memory, before: Any, learned: Any) -> Memory:
        """The same, with nothing yet that it has not told of what begins to learn."""
        _, restore = _raveled(before)
        nothing = jax.tree.map(jnp.zeros_like, learned)
        return state._replace(residual=_raveled(updated(nothing, restore(state.residual)))[0])

    def apply(self, sums: Sums, params: Params, state: Memory, update: Update, moment: Moment) -> Agreed:
        workers = lax.axis_size(WORKERS)
        gradient, restore = _raveled(sums.gradient)
        weight = sums.totals[2]
        residual = state.residual + gradient * reciprocal(weight)
        reach = jnp.where(weight > 0, state.threshold, jnp.inf)
        passed = jnp.sum(jnp.abs(residual) >= reach, dtype=jnp.int32)
        # What is not finite passes no threshold; the others must hear of it all the same.
        amount = jnp.where(jnp.isfinite(residual).all(), state.threshold, jnp.nan)

        def shared(form: Bitmap | Indices) -> tuple[Array, Array, Header, Array]:
            body = form.encoded(residual, reach, state.step)
            message = pack_message(Header(sums.totals, amount, passed), body)
            messages = lax.all_gather(message, WORKERS) if workers > 1 else message[None]
            headers, bodies = unpack_messages(messages, residual.dtype, len(sums.totals))
            weights = headers.totals[:, 2]
            amounts = headers.threshold * weights * reciprocal(weights.sum())
            # One worker after the other, lest the order of the additions differ from worker to worker.
            mean, _ = lax.scan(
                lambda mean, each: (form.added(mean, *each), None), jnp.zeros_like(residual), (bodies, amounts)
            )
            mean = jnp.where(jnp.isfinite(amounts.sum()), mean, jnp.nan)
            sent = jnp.float32(gathered_bytes(message.nbytes, workers))
            return mean, form.added(residual, body, -state.threshold), headers, sent

        forms = self._forms(residual.size)
        room = jnp.asarray([form.capacity for form in forms if isinstance(form, Indices)], jnp.int32)
        chosen = jnp.sum(state.passed > room, dtype=jnp.int32)
        branches = [lambda form=form: shared(form) for form in forms]
        mean, residual, headers, sent = lax.switch(chosen, branches)

        if self.clip is not None:
            bound = jnp.where((state.step + 1) % self.clip_every == 0, self.clip * state.threshold, jnp.inf)
            residual = jnp.clip(residual, -bound, bound)
        memory = Memory(
            residual, self._next(state.threshold, headers, residual.size), headers.passed.max(), state.step + 1
        )
        return Agreed(update(params, restore(mean)), memory, headers.totals.sum(axis=0), sent)

    def _forms(self, size: int) -> list[Bitmap | Indices]:
        """The forms there are, from the shortest message to the longest."""
        bitmap = Bitmap(size)
        sparse = [Indices(size, capacity) for capacity in sorted({-int(-size * part // 1) for part in ROOM})]
        if self.form == "bitmap":
            return [bitmap]
        if self.form == "sparse":
            return [*sparse]
        return [*(form for form in sparse if form.words < bitmap.words), bitmap]

    def _next(self, threshold: Array, headers: Header, size: int) -> Array:
        """The next step's threshold, the same on all workers."""
        active = (headers.totals[:, 2] > 0).sum(dtype=threshold.dtype)
        passed = headers.passed.astype(threshold.dtype).sum()
        sparsity = passed / (jnp.maximum(active, 1) * size)
        adjusted = Threshold.of(self.threshold).adjusted(threshold, sparsity)
        return jnp.where(active > 0, jnp.maximum(adjusted, SMALLEST), threshold)


def _raveled(tree: Any) -> tuple[Array, Callable[[Array], Any]]:
    """All arrays of a tree as one, and the way back; a 0 where nothing is learned, as XLA does not place no numbers."""
    flat, restore = ravel_pytree(tree)
    return (flat, restore) if flat.size else (jnp.zeros(1, flat.dtype), lambda padded: restore(padded[:0]))
