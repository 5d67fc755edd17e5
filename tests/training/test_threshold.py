"""Threshold sharing: what is sent and what is kept add up to the gradients, and all workers take the same step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from sparkdl.training.exchanges.exchange import WORKERS, Exchange, Moment, Params, Sums
from sparkdl.training.exchanges.message import Bitmap, Header, Indices, pack_message, unpack_messages
from sparkdl.training.exchanges.threshold import AdaptiveThreshold, FixedThreshold, TargetSparsity, ThresholdSharing

pytestmark = pytest.mark.usefixtures("unoptimized")

Numbers = np.ndarray[Any, Any]
Rule = Callable[[float, float], float]

SIZE = 2560  # weights: 160 words of a bitmap, or 10 or 40 indices
HEADER = {"float32": 5, "float64": 9}  # words


class Step(NamedTuple):
    """What a step gave: mean gradient, residual and threshold by worker, totals, and the bytes a worker sent."""

    means: Numbers
    residuals: Numbers
    thresholds: Numbers
    totals: Numbers
    sent: float


def run(exchange: Exchange, gradients: Numbers, totals: Numbers) -> list[Step]:
    """The exchange on gradient sums, shape (steps, workers, SIZE), and totals, shape (steps, workers, 3)."""
    workers = gradients.shape[1]

    def tree(flat: jax.Array) -> dict[str, jax.Array]:
        return {"bias": flat[: SIZE // 2], "kernel": flat[SIZE // 2 :].reshape(-1, 2)}

    def step(*own: Any) -> Any:
        state, flat, totals = jax.tree.map(lambda array: array[0], own)
        sums, params = Sums(tree(flat), totals), Params(tree(flat), (), {})
        agreed = exchange.apply(sums, params, state, lambda old, mean: old._replace(learned=mean), Moment(0, 1))
        learned = agreed.params.learned
        mean = jnp.concatenate([learned["bias"], learned["kernel"].reshape(-1)])
        return jax.tree.map(lambda array: array[None], (agreed.state, mean, agreed.totals, agreed.sent))

    mesh = Mesh(np.array(jax.local_devices()[:workers]), (WORKERS,))
    compiled = jax.jit(jax.shard_map(step, mesh=mesh, in_specs=P(WORKERS), out_specs=P(WORKERS), check_vma=False))
    state = jax.tree.map(lambda leaf: np.stack([leaf] * workers), exchange.init(tree(jnp.asarray(gradients[0, 0]))))
    steps = []
    for flat, numbers in zip(gradients, totals, strict=True):
        state, means, agreed, sent = compiled(state, flat, numbers)
        memory = jax.tree.map(np.asarray, state)
        steps.append(Step(np.asarray(means), memory.residual, memory.threshold, np.asarray(agreed)[0], float(sent[0])))
    return steps


def some(workers: int, steps: int, dtype: str) -> tuple[Numbers, Numbers]:
    """Gradient sums with heavy tails that grow from step to step, of rows with uneven weights.

    The third worker has no rows in the first two steps, and nobody has any in the fifth.
    """
    random = np.random.default_rng(workers)
    weights = random.uniform(1, 5, (steps, workers))
    weights[:2, 2:] = weights[4:5] = 0
    sizes = np.linspace(0.3, 2, steps)[:, None]
    gradients = random.standard_t(3, (steps, workers, SIZE)) * (sizes * weights)[..., None]
    totals = np.stack([weights * 0.7, weights * 0.4, weights], axis=2)
    return gradients.astype(dtype), totals.astype(dtype)


def divided(numbers: Numbers, by: Numbers) -> Numbers:
    """And 0 for division by 0."""
    return np.divide(numbers, by, out=np.zeros(np.broadcast_shapes(numbers.shape, by.shape)), where=by > 0)


def simulated(gradients: Numbers, totals: Numbers, rule: Rule, clip: float, every: int) -> list[Step]:
    """Threshold sharing by the book, in NumPy, from a threshold of 2."""
    residuals, threshold, steps = np.zeros(gradients.shape[1:]), 2.0, []
    for number, (flat, numbers) in enumerate(zip(gradients, totals, strict=True), start=1):
        weights = numbers[:, 2:]
        residuals = residuals + divided(flat, weights)
        messages = np.where((np.abs(residuals) >= threshold) & (weights > 0), np.sign(residuals) * threshold, 0)
        residuals = residuals - messages
        if number % every == 0:
            residuals = np.clip(residuals, -clip * threshold, clip * threshold)
        if weights.any():
            threshold = rule(threshold, (messages[weights[:, 0] > 0] != 0).mean())
        mean = divided((weights * messages).sum(axis=0), weights.sum())
        steps.append(Step(mean[None], residuals, np.array(threshold), numbers.sum(axis=0), 0))
    return steps


ADAPTIVE = AdaptiveThreshold(initial=2.0, min_sparsity=0.01, max_sparsity=0.02, decay=0.8)
TARGET = TargetSparsity(2.0, sparsity=0.02, decay=0.9)


@pytest.mark.parametrize(
    ("workers", "threshold", "rule", "clip", "every"),
    [
        (1, FixedThreshold(2.0), lambda t, share: t, None, 1),
        (2, ADAPTIVE, lambda t, share: t * 0.8 if share < 0.01 else t / 0.8 if share > 0.02 else t, None, 1),
        (3, TARGET, lambda t, share: t * 0.9 if share < 0.02 else t / 0.9, 1.5, 3),
    ],
    ids=["one, fixed", "two, adaptive", "three, target, clipping"],
)
def test_workers_take_the_steps_of_the_algorithm_by_the_book(
    float64: None, workers: int, threshold: Any, rule: Rule, clip: float | None, every: int
) -> None:
    gradients, totals = some(workers, 9, "float64")
    exchange = ThresholdSharing(threshold, clip=clip, clip_every=every, form="bitmap")
    steps = run(exchange, gradients, totals)
    book = simulated(gradients, totals, rule, clip or np.inf, every)
    for number, (actual, expected) in enumerate(zip(steps, book, strict=True)):
        for name in ("means", "residuals", "thresholds", "totals"):
            one, other = np.broadcast_arrays(getattr(actual, name), getattr(expected, name))
            np.testing.assert_allclose(one, other, rtol=0, atol=1e-11, err_msg=f"{name} after step {number}")
    assert [step.sent for step in steps] == [(workers - 1) * 4 * (SIZE / 16 + HEADER["float64"])] * 9


@pytest.mark.parametrize(
    ("form", "dtype", "tolerance", "words"),
    [("auto", "float64", 1e-9, {10, 40, 160}), ("sparse", "float32", 1e-4, {10, 40})],
    ids=["auto, float64", "sparse, float32"],
)
def test_what_is_sent_and_what_is_kept_add_up_to_the_gradients(
    form: str, dtype: str, tolerance: float, words: set[int]
) -> None:
    """Through all switches of form, and when more pass than a message has room for."""
    threshold = 4.0
    gradients, totals = some(3, 14, dtype)
    with jax.enable_x64(dtype == "float64"):
        steps = run(ThresholdSharing(FixedThreshold(threshold), clip=None, form=form), gradients, totals)
    assert {step.sent / 4 / 2 - HEADER[dtype] for step in steps} == words
    weights = totals[..., 2:]
    kept = np.stack([np.zeros((3, SIZE)), *(step.residuals for step in steps)]).astype("float64")
    # A worker's message is what its residual lacks, and must be what the others decoded.
    messages = kept[:-1] + divided(gradients, weights) - kept[1:]
    signs = messages / threshold
    np.testing.assert_allclose(signs, signs.round(), rtol=0, atol=tolerance)
    assert set(np.unique(signs.round())) == {-1, 0, 1}
    means = divided((weights * signs.round() * threshold).sum(axis=1), weights.sum(axis=1))
    for step, mean in zip(steps, means, strict=True):
        np.testing.assert_allclose(step.means, np.stack([mean] * 3), rtol=0, atol=tolerance)
    total = (signs.round() * threshold).sum(axis=0) + kept[-1]
    np.testing.assert_allclose(total, divided(gradients, weights).sum(axis=0), rtol=0, atol=tolerance)
    waiting = (np.abs(kept[1:]) >= threshold) & (signs.round() == 0) & (weights > 0)
    assert waiting.any()


def test_a_gradient_that_is_not_finite_reaches_every_worker() -> None:
    gradients, totals = some(2, 2, "float32")
    gradients[1, 1, 7] = np.nan
    steps = run(ThresholdSharing(FixedThreshold(100.0), form="bitmap"), gradients, totals)
    assert np.isfinite(steps[0].means).all()
    assert np.isnan(steps[1].means).all()


# Messages


@pytest.mark.parametrize("form", [Bitmap(3), Indices(3, 3)], ids=repr)
def test_a_message_takes_the_threshold_away_from_what_passes_it(form: Bitmap | Indices) -> None:
    """The check vector of Deeplearning4j's encoder."""

    @jax.jit
    def shared(residual: jax.Array) -> tuple[jax.Array, jax.Array]:
        body = form.encoded(residual, jnp.float32(0.5), jnp.int32(0))
        assert body.shape == (form.words,)
        return form.added(jnp.zeros(3), body, jnp.float32(0.5)), form.added(residual, body, jnp.float32(-0.5))

    decoded, remainder = shared(np.array([1.5, 2.5, -3.5], "float32"))
    np.testing.assert_array_equal(decoded, [0.5, 0.5, -0.5])
    np.testing.assert_array_equal(remainder, [1, 2, -3])


@pytest.mark.parametrize("size", [1, 33, 1000])
def test_both_forms_say_the_same(size: int) -> None:
    random, one = np.random.default_rng(size), jnp.float32(1)
    for form in (Bitmap(size), Indices(size, size)):
        decoded = jax.jit(
            lambda values, form=form: form.added(values * 0, form.encoded(values, one, jnp.int32(5)), one)
        )
        for share in (0.0, 0.05, 1.0):
            values = np.where(random.random(size) < share, 2.0, 0.1) * random.choice([-1, 1], size)
            expected = np.where(np.abs(values) >= 1, np.sign(values), 0)
            np.testing.assert_array_equal(decoded(values.astype("float32")), expected)


def test_of_too_many_that_pass_every_one_has_its_turn() -> None:
    form = Indices(100, 8)
    values = np.where(np.arange(100) % 3 == 0, -1, 0).astype("float32")  # 34 pass

    @jax.jit
    def decoded(turn: jax.Array) -> jax.Array:
        return form.added(jnp.zeros(100), form.encoded(jnp.asarray(values), jnp.float32(1), turn), jnp.float32(1))

    sent = [decoded(turn) for turn in np.arange(5, dtype="int32")]
    assert [np.count_nonzero(each) for each in sent] == [8] * 5
    np.testing.assert_array_equal(np.min(sent, axis=0), values)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_header_arrives_bit_by_bit(dtype: str) -> None:
    with jax.enable_x64(dtype == "float64"):
        totals, threshold = jnp.array([1 / 3, np.nan, 1e30], dtype), jnp.asarray(0.1, dtype)
        message = pack_message(Header(totals, threshold, jnp.int32(7)), jnp.array([1, 2**32 - 1], jnp.uint32))
        assert message.dtype == np.uint32
        headers, bodies = unpack_messages(jnp.stack([message, message]), totals.dtype, 3)
    np.testing.assert_array_equal(headers.totals, [totals, totals])
    np.testing.assert_array_equal(headers.threshold, [threshold] * 2)
    np.testing.assert_array_equal(headers.passed, [7, 7])
    np.testing.assert_array_equal(bodies, [[1, 2**32 - 1]] * 2)


# What may be written


@pytest.mark.parametrize(
    ("build", "complaint"),
    [
        (lambda: FixedThreshold(0), "value of FixedThreshold must be a number in"),
        (lambda: AdaptiveThreshold(initial=-1), "initial of AdaptiveThreshold must be a number in"),
        (lambda: AdaptiveThreshold(decay=1), "decay of AdaptiveThreshold must be a number in"),
        (lambda: AdaptiveThreshold(min_sparsity=0.5, max_sparsity=0.1), "min_sparsity .* must be at most max_sparsity"),
        (lambda: TargetSparsity(sparsity=1), "sparsity of TargetSparsity must be a number in"),
        (lambda: ThresholdSharing("mean"), "Threshold is expected, received 'mean'"),
        (lambda: ThresholdSharing(clip=0), "clip of ThresholdSharing must be a number in"),
        (lambda: ThresholdSharing(clip_every=0), "clip_every must be a number of steps of at least 1"),
        (lambda: ThresholdSharing(clip=None, clip_every=5), "clip_every is for clipping"),
        (lambda: ThresholdSharing(form="dense"), "form of ThresholdSharing must be one of auto, bitmap, sparse"),
    ],
)
def test_what_makes_no_sense_is_refused_by_a_sentence(build: Callable[[], Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        build()
