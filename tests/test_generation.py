"""Rows of integers that a network goes on with: what it says next, drawn as often as it says so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sparkdl import Graph, Network, models
from sparkdl.layers import (
    Bidirectional,
    Dense,
    Embedding,
    Flatten,
    Gru,
    LastStep,
    Layer,
    LearnedPositions,
    Lstm,
    OneHot,
    Ragged,
    TimeMean,
    TransformerEncoder,
    jitted,
)
from sparkdl.layers.base import CannotCarry

pytestmark = pytest.mark.usefixtures("unoptimized")

COUNT = 5
PROMPTS = ([3], [1, 4, 0, 2], [2, 2])


@dataclass(frozen=True)
class Attend(Layer):
    """y of a step is the mean of the steps so far, weighted by exp(x @ their x): it keeps all of them."""

    @property
    def takes_ragged(self) -> bool:
        return True

    def output_shape(self, input_shape: Any) -> Any:
        return input_shape

    def first_state(self, rows: int, input_shape: Any, dtype: Any = float, longest: int | None = None) -> Any:
        assert longest is not None
        return {"seen": jnp.zeros((rows, longest, *input_shape[1:]), dtype), "count": jnp.zeros(rows, "int32")}

    @jitted
    def forward(self, weights: Any, x: Ragged) -> Ragged:
        rows, steps, *shape = x.values.shape
        return self.forward_from({}, self.first_state(rows, (None, *shape), x.values.dtype, steps), x)[0]

    @jitted
    def forward_from(self, weights: Any, state: Any, x: Ragged) -> tuple[Ragged, Any]:
        at = state["count"][:, None] + jnp.arange(x.values.shape[1], dtype="int32")[None]
        longest = state["seen"].shape[1]
        places = jnp.where(x.valid, at, longest)  # of padding, none
        seen = jax.vmap(lambda kept, place, new: kept.at[place].set(new, mode="drop"))(state["seen"], places, x.values)
        scores = jnp.einsum("btn,bsn->bts", x.values, seen)
        later = jnp.arange(longest, dtype="int32")[None, None] > at[..., None]
        shares = jax.nn.softmax(jnp.where(later, -jnp.inf, scores), axis=-1)
        y = jnp.where(x.valid[..., None], jnp.einsum("bts,bsn->btn", shares, seen), 0)
        return replace(x, values=y), {"seen": seen, "count": state["count"] + x.lengths}


NETWORKS = {
    "that carries": Network([Embedding(COUNT, 4), Gru(4), Dense(COUNT)], input_shape=(None,)),
    "that keeps all steps": Network([Embedding(COUNT, 4), Attend(), Dense(COUNT)], input_shape=(None,)),
    "of whole rows": Network([Embedding(COUNT, 4), Bidirectional(Gru(3)), Dense(COUNT)], input_shape=(None,)),
    "of the last step": Network([Embedding(COUNT, 4), Gru(4), LastStep(), Dense(COUNT)], input_shape=(None,)),
}
NETWORKS["of a transformer"] = Network(
    [Embedding(COUNT, 4), LearnedPositions(9), TransformerEncoder(2, 8, causal=True), Dense(COUNT)],
    input_shape=(None,),
)
FREE = Network([OneHot(COUNT), Dense(COUNT)], input_shape=(None,))  # whose next integer depends on the last one alone


def drawn(network: Any, seed: int = 1) -> Any:
    random = np.random.default_rng(seed)
    return jax.tree.map(lambda array: 2 * random.normal(size=array.shape), network.abstract_weights())


def rows(*prompts: Any) -> Ragged:
    """With integers in the padding that no table has."""
    longest = max(map(len, prompts))
    values = np.array([[*prompt, *[99] * (longest - len(prompt))] for prompt in prompts], "int32")
    return Ragged(values, np.array([len(prompt) for prompt in prompts], "int32"))


def lists(found: Any) -> list[list[int]]:
    return [row[:length].tolist() for row, length in zip(found.values, found.lengths, strict=True)]


def logits_of(logits: Any) -> Any:
    """Weights of `FREE` by which what comes next is drawn from the same logits always."""
    return {"dense_1": {"kernel": np.zeros((COUNT, COUNT)), "bias": np.asarray(logits, "float64")}}


@pytest.mark.parametrize(
    "kind",
    [
        "that carries",
        "that keeps all steps",
        "of the last step",
        pytest.param("of whole rows", marks=pytest.mark.slow),
        pytest.param("of a transformer", marks=pytest.mark.slow),
    ],
)
def test_it_goes_on_with_the_likeliest_as_a_loop_over_whole_rows_does(kind: str, float64: None) -> None:
    network = NETWORKS[kind]
    weights, steps = drawn(network), 5
    found = lists(network.generate(weights, rows(*PROMPTS), steps, temperature=0))
    for prompt, own in zip(PROMPTS, found, strict=True):
        longest = max(map(len, PROMPTS)) + steps
        row = list(prompt)
        for _ in range(steps):
            length, padding = len(row), [0] * (longest - len(row))
            y = network.forward(weights, Ragged(np.array([row + padding], "int32"), np.array([length], "int32")))
            logits = np.asarray(y.values)[0, length - 1] if isinstance(y, Ragged) else np.asarray(y)[0]
            row.append(int(logits.argmax()))
        assert own == row[len(prompt) :]


@dataclass(frozen=True)
class Whole(Layer):
    """Rows as they are, by a layer that says nothing of segments: a network with it goes over whole rows."""

    @property
    def takes_ragged(self) -> bool:
        return True

    def output_shape(self, input_shape: Any) -> Any:
        return input_shape

    @jitted
    def forward(self, weights: Any, x: Any) -> Any:
        return x


def attending(length: int) -> Network:
    """A small GPT-2, and with it rotary positions and grouped heads."""
    small = models.gpt2(COUNT, size=8, blocks=1, heads=2, length=length)
    rotary = TransformerEncoder(4, 8, causal=True, key_value_heads=2, rotary=50.0, name="rotary")
    return replace(small, layers=[*small.layers[:-2], rotary, *small.layers[-2:]])


@pytest.mark.parametrize(
    "options",
    [{"temperature": 0}, {"seed": 3}, {"seed": 4, "top_k": 3, "temperature": 2.0}, {"seed": 5, "top_p": 0.7}],
    ids=["likeliest", "drawn", "of three", "of a share"],
)
def test_with_keys_and_values_kept_it_draws_what_it_draws_of_whole_rows(options: Any, float64: None) -> None:
    network = attending(9)
    anew = replace(network, layers=[*network.layers, Whole()])
    with pytest.raises(CannotCarry, match="Whole"):
        anew.first_state(1, longest=9)
    weights, steps = drawn(network, seed=3), 6
    weights["norm"]["bias"] *= 0  # which would have one integer be the likeliest always
    found = lists(network.generate(weights, rows(*PROMPTS), steps, **options))
    assert found == lists(anew.generate(weights, rows(*PROMPTS), steps, **options))
    assert len({tuple(row) for row in found}) == len(PROMPTS)


@pytest.mark.parametrize("temperature", [1e-20, 1e-39, 1e-300])
def test_a_temperature_near_0_draws_the_likeliest(temperature: float) -> None:
    weights = drawn(FREE)
    likeliest = lists(FREE.generate(weights, rows(*PROMPTS), 5, temperature=0))
    assert lists(FREE.generate(weights, rows(*PROMPTS), 5, temperature=temperature)) == likeliest


def test_rows_go_on_to_the_last_step_that_positions_tell_apart_however_far_they_are_padded(float64: None) -> None:
    network = attending(9)
    weights = drawn(network)
    padded = Ragged(np.array([[1, 4, 0, 2, *[99] * 9]], "int32"), np.array([4], "int32"))
    expected = network.generate(weights, [1, 4, 0, 2], 6, temperature=0)
    assert lists(network.generate(weights, padded, 6, temperature=0)) == [expected.tolist()]
    with pytest.raises(ValueError, match="at most 3 integers in each row where steps=7, .* 9 steps apart, received 4"):
        network.generate(weights, rows(*PROMPTS), 7)
    with pytest.raises(ValueError, match="steps of generate must be at most 9, as many as the .* received 10"):
        network.generate(weights, [1], 10)


@pytest.mark.slow
def test_a_cache_of_all_steps_gives_what_whole_rows_give(float64: None) -> None:
    """That the state which `generate` asks for is enough for layers that attend."""
    network = NETWORKS["that keeps all steps"]
    weights, x = drawn(network), rows([1, 4, 0, 2, 3], [2, 0, 1])
    whole = np.asarray(network.forward(weights, x).values)
    state, found = network.first_state(2, dtype="float64", longest=5), []
    for start, stop in ((0, 2), (2, 4), (4, 5)):
        y, state = network.forward_from(weights, state, x.between(start, stop))
        found.append(y.values)
    valid = np.asarray(x.valid)[..., None]
    np.testing.assert_allclose(np.concatenate(found, axis=1) * valid, whole * valid, atol=1e-12)


@pytest.mark.parametrize("kind", ["that carries", pytest.param("of the last step", marks=pytest.mark.slow)])
def test_a_row_goes_on_alike_whatever_rows_are_beside_it(kind: str, float64: None) -> None:
    network = NETWORKS[kind]
    weights = drawn(network)
    together = lists(network.generate(weights, rows(*PROMPTS), 8, seed=3))
    assert together == lists(network.generate(weights, rows(*PROMPTS), 8, seed=3))
    assert network.generate(weights, PROMPTS[1], 8, seed=3).tolist() == together[1]
    assert lists(network.generate(weights, rows(*PROMPTS[::-1]), 8, seed=3)) == together[::-1]
    assert network.generate(weights, PROMPTS[1], 8, seed=4).tolist() != together[1]


@pytest.mark.parametrize(
    ("options", "among"),
    [
        ({}, range(COUNT)),
        ({"temperature": 0.5}, range(COUNT)),
        ({"top_k": 2, "temperature": 2.0}, [1, 4]),
        ({"top_p": 0.7}, [1, 4]),  # whose shares are 0.45 and 0.27
        ({"top_p": 0.8}, [1, 4, 0]),  # the third has 0.14
        ({"top_p": 0.8, "temperature": 0.5}, [1, 4]),  # 0.66 and 0.24
        ({"top_p": 0.9, "top_k": 3}, [1, 4, 0]),  # of whom two have 0.84
        ({"top_p": 0.4}, [1]),
        ({"top_p": 1}, range(COUNT)),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_it_draws_as_often_as_the_softmax_says(options: Any, among: Any, float64: None) -> None:
    logits, count = np.array([0.3, 1.5, -1.0, 0.0, 1.0]), 4000
    powers = np.exp(logits / options.get("temperature", 1.0))
    shares = np.where(np.isin(np.arange(COUNT), among), powers, 0)
    shares /= shares.sum()
    drawn = FREE.generate(logits_of(logits), [2], count, **options)
    found = np.bincount(drawn, minlength=COUNT)
    spread = np.sqrt(count * shares * (1 - shares))
    assert (np.abs(found - count * shares) <= 4 * spread).all(), (found, count * shares)
    pairs = np.mean(drawn[1:] == drawn[:-1])  # no draw knows of the one before
    assert abs(pairs - (shares**2).sum()) < 0.04


@pytest.mark.slow
def test_rows_that_begin_otherwise_draw_other_numbers() -> None:
    first, second = lists(FREE.generate(logits_of(np.zeros(COUNT)), rows([0], [1]), 400))
    assert abs(np.mean(np.array(first) == np.array(second)) - 1 / COUNT) < 0.1


def test_a_row_ends_where_it_is_to_stop() -> None:
    weights = {"dense_1": {"kernel": np.roll(np.eye(COUNT), 1, axis=1), "bias": np.zeros(COUNT)}}
    options: Any = {"steps": 4, "temperature": 0, "stop": 4}
    found = FREE.generate(weights, rows([1], [3], [0, 4]), **options)
    assert lists(found) == [[2, 3], [], [0, 1, 2, 3]]
    assert not found.values[1].any()
    np.testing.assert_array_equal(FREE.generate(weights, [1], **options), [2, 3])
    assert FREE.generate(weights, [1], **options).dtype == "int32"


@dataclass(frozen=True)
class Watched(Layer):
    """y = x, and the numbers of rows that come by are kept."""

    seen: ClassVar[list[int]] = []

    @property
    def takes_ragged(self) -> bool:
        return True

    def output_shape(self, input_shape: Any) -> Any:
        return input_shape

    def first_state(self, rows: int, input_shape: Any, dtype: Any = float, longest: int | None = None) -> Any:
        return ()

    def forward(self, weights: Any, x: Ragged) -> Ragged:
        jax.debug.callback(lambda lengths: self.seen.append(len(lengths)), x.lengths)
        return x

    def forward_from(self, weights: Any, state: Any, x: Ragged) -> tuple[Ragged, Any]:
        return self.forward(weights, x), state


def test_no_steps_are_taken_once_every_row_has_ended() -> None:
    network = Network([OneHot(COUNT), Watched(), Dense(COUNT)], input_shape=(None,))
    weights = {"dense_2": {"kernel": np.roll(np.eye(COUNT), 1, axis=1), "bias": np.zeros(COUNT)}}
    for stop, steps in ((4, 5), (0, 4), (None, 50)):
        Watched.seen.clear()
        found = network.generate(weights, rows([1], [3], [0, 4]), steps=50, temperature=0, stop=stop)
        jax.effects_barrier()
        assert Watched.seen == [3] * steps  # that with the prompts, and those of the row that ends last
        assert max(found.lengths) == (50 if stop is None else steps - 1)


PICTURES = Network([Embedding(COUNT, 2), Flatten(), Dense(COUNT)], input_shape=(4,))
SERIES = Network([Lstm(2), Dense(COUNT)], input_shape=(None, 1))
TWICE = Graph({"x": (None,)}, {"a": (Embedding(COUNT, COUNT), "x"), "b": (TimeMean(), "a")}, ("a", "b"))
WIDE = Network([Embedding(COUNT, 2), Dense(COUNT + 1)], input_shape=(None,))


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: PICTURES.generate({}, [1], 2), r"expects a network of one output that .* one of 1 that reads \(4,\)"),
        (lambda: SERIES.generate({}, [1], 2), r"Embedding or OneHot first, received one of 1 that reads \(None, 1\)"),
        (lambda: TWICE.generate({}, [1], 2), r"received one of 2 that reads \(None,\)"),
        (
            lambda: Network([OneHot(3), Gru(2), LastStep()], input_shape=(None,)).generate({}, [5], 2),
            "first of generate must hold integers from 0 to 2, received 5",
        ),
        (
            lambda: Network([Embedding(3, 2)], input_shape=(None, 4)).generate({}, [1], 2),
            r"received one of 1 that reads \(None, 4\)",
        ),
        (lambda: WIDE.generate({}, [1], 2), r"received 6 for a table of 5 rows; end it in Dense\(5\)"),
        (lambda: FREE.generate({}, 3, 2), "first of generate must be integers of one row, received 3"),
        (lambda: FREE.generate({}, [], 2), "first of generate must hold an integer or more in each row"),
        (lambda: FREE.generate({}, rows([1], []), 2), "first of generate must hold an integer or more in each row"),
        (
            lambda: FREE.generate({}, [[1, 2]], 2),
            r"must be integers of one row, received \[\[1, 2\]\]; give",
        ),
        (lambda: FREE.generate({}, [0.5], 2), r"must be integers of one row, received \[0.5\]; give several"),
        (lambda: FREE.generate({}, [-1], 2), "must hold integers from 0 to 4, received -1"),
        (lambda: FREE.generate({}, [1], 0), "steps of generate must be an integer of at least 1, received 0"),
        (lambda: FREE.generate({}, [1], 2, temperature=-1), "temperature of generate must be a number of at least 0"),
        (lambda: FREE.generate({}, [1], 2, top_k=6), "top_k of generate must be an integer from 1 to 5, received 6"),
        (
            lambda: FREE.generate({}, [1], 2, top_p=0),
            "top_p of generate must be a number above 0 and up to 1, received 0",
        ),
        (lambda: FREE.generate({}, [1], 2, top_p=1.5), "top_p of generate must be a number above 0 and up to 1"),
        (lambda: FREE.generate({}, [1], 2, top_p=True), "top_p of generate must be a number above 0 and up to 1"),
        (lambda: FREE.generate({}, [1], 2, stop=5), "stop of generate must be an integer from 0 to 4, received 5"),
        (
            lambda: FREE.generate({}, [1], 2, seed=0.5),
            "seed of generate must be an integer of at least 0, received",
        ),
    ],
)
def test_what_cannot_go_on_is_refused(call: Callable[[], Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        call()
