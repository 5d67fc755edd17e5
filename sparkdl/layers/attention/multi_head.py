"""Attention of several heads: each step takes of all steps, of its own row or of another one, what suits it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp

from sparkdl.constraints import Constraint
from sparkdl.initializers import GlorotUniform, Initializer
from sparkdl.layers.attention.carried import check_whole, first_keys, steps_from, with_steps
from sparkdl.layers.attention.dot_product import Attention
from sparkdl.layers.attention.rotary import rotated
from sparkdl.layers.attention.steps_and_heads import (
    as_heads,
    flat_heads,
    is_several,
    only_answered,
    two_of,
    without_padding,
)
from sparkdl.layers.base import Array, CannotCarry, Context, KernelLayer, Shape, Weights, jitted
from sparkdl.layers.products import matmul, transposed_product
from sparkdl.layers.ragged import Ragged, as_ragged, values_of, with_values
from sparkdl.specs import check_integers, check_range

IN_AXES = {"query": (0,), "key": (0,), "value": (0,), "output": (0, 1)}  # of each kernel, those of its inputs


@dataclass(frozen=True)
class MultiHeadAttention(KernelLayer):
    """Every step of x asks all steps, and takes a mean of what they offer (Vaswani et al. 2017, section 3.2.2).

    x        Ragged (batch, steps, inputs), or such an array; of attention to other rows, a tuple (queries, others),
             of which others is (batch, other steps, other inputs) and has lengths of its own
    y        like x, or like queries                dx, dy  arrays of the shapes of the values
    weights  query  kernel (inputs, heads, key_size), bias (heads, key_size)
             key    kernel (other inputs, key_value_heads, key_size), bias (key_value_heads, key_size)
             value  as key
             output kernel (heads, key_size, inputs), bias (inputs,)

    softmax(q . k / sqrt(key_size)) . v in each head. Padding is never looked at. y is 0 beyond the end of a row, and
    where there is no step to look at.

    Parameters
    ----------
    heads : int
    key_size : int, optional
        Numbers of a query, a key and a value; by default inputs / heads.
    key_value_heads : int, optional
        A divisor of `heads`: heads of keys and values, each read by as many neighbouring heads of queries (Ainslie et
        al. 2023, "GQA"); 1 is multi-query attention. By default as many as heads.
    causal : bool, default False
        Whether a step asks only itself and those before it.
    dropout : float, default 0
        Probability of dropping, in training, what a step takes of another one; what stays is divided by 1 - rate.
    rotary : float or False, default False
        The base, as 10000.0, by which queries and keys are turned with their step (Su et al. 2021): numbers i and
        i + key_size / 2 are a pair, as in GPT-NeoX and Llama.

    Notes
    -----
    Kernels and biases are laid out as Keras's. Of PyTorch's `MultiheadAttention`, with E = inputs, H = heads and
    D = E / H, `in_proj_weight` (3 E, E) holds those of query, key and value one after another, transposed: each is
    `part.T.reshape(E, H, D)` here, and its part of `in_proj_bias` `part.reshape(H, D)`; the kernel of output is
    `out_proj.weight.T.reshape(H, D, E)`.

    Up to about 512 steps all scores are made at once and kept for the way back; of longer rows they are made anew
    there, in blocks, so that memory grows with the steps and not with their square.

    Where it is causal it goes on from one segment of a row to the next: what it carries are the keys and values of all
    steps so far, in arrays (batch, key_value_heads, longest, key_size), of which `first_state` is told how long they
    are to be. Of attention to other rows, these must be of one length, and are given whole each time. Training takes
    whole rows.

    Examples
    --------
    >>> from sparkdl import Graph, Network
    >>> from sparkdl.layers import Dense, Embedding, MultiHeadAttention, TimeMean
    >>> Network([Embedding(100, 16), MultiHeadAttention(4), TimeMean(), Dense(2)], input_shape=(None,)).output_shape()
    (2,)
    >>> across = {"y": (MultiHeadAttention(2), "asking", "asked")}
    >>> Graph({"asking": (None, 8), "asked": (None, 6)}, across, "y").output_shape()
    (None, 8)
    """

    heads: int
    key_size: int | None = None
    key_value_heads: int | None = None
    causal: bool = False
    dropout: float = 0.0
    rotary: float | bool = False
    kernel_initializer: Initializer | str = field(default=GlorotUniform(), kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integers(self, 1, "heads", "key_size", "key_value_heads")
        if self.heads % self._key_value_heads:
            raise ValueError(
                f"key_value_heads of MultiHeadAttention must be a divisor of heads={self.heads}, received "
                f"{self.key_value_heads}."
            )
        check_range(self, "[0, 1)", "dropout")
        if self.rotary is not False:
            check_range(self, "(1, inf)", "rotary")

    @property
    def takes_ragged(self) -> bool:
        return True

    @property
    def takes_several_lengths(self) -> bool:
        return True

    @property
    def _key_value_heads(self) -> int:
        return self.key_value_heads or self.heads

    def output_shape(self, input_shape: Any) -> Shape:
        """Of rows of shape (steps, inputs), or of a tuple of two such."""
        shapes = input_shape if is_several(input_shape) else (input_shape,)
        if len(shapes) > 2 or any(len(shape) != 2 for shape in shapes):
            raise ValueError(
                "MultiHeadAttention expects rows of steps, of shape (steps, inputs) or (None, inputs), or two of them, "
                f"what asks and what is asked, received {input_shape}; put a layer before it that gives every step a "
                "vector, such as Embedding."
            )
        if len(shapes) > 1 and (self.causal or self.rotary):
            raise ValueError(
                "MultiHeadAttention to other rows expects neither causal nor rotary, as steps of one row say nothing "
                f"of those of another, received {input_shape}; leave both out."
            )
        self._size(shapes[0][1])
        return tuple(shapes[0])

    def multiply_adds(self, input_shape: Any) -> int:
        (steps, inputs), (others, other_inputs) = input_shape if is_several(input_shape) else (input_shape,) * 2
        size, steps, others = self._size(inputs), steps or 1, others or 1
        numbers = steps * 2 * inputs * self.heads + others * 2 * other_inputs * self._key_value_heads
        return (numbers + 2 * steps * others * self.heads) * size

    def init(self, key: Array, input_shape: Any) -> Weights:
        (_, inputs), (_, other_inputs) = input_shape if is_several(input_shape) else (input_shape,) * 2
        size, few = self._size(inputs), self._key_value_heads
        sizes = {"query": (inputs, self.heads), "key": (other_inputs, few), "value": (other_inputs, few)}
        keys, weights = jax.random.split(key, 4), {}
        for own_key, (name, (read, heads)) in zip(keys, sizes.items(), strict=False):
            flat = self.init_kernel(own_key, (read, heads * size))
            weights[name] = {part: array.reshape(*array.shape[:-1], heads, size) for part, array in flat.items()}
        output = self.init_kernel(keys[3], (self.heads * size, inputs))
        return weights | {"output": output | {"kernel": output["kernel"].reshape(self.heads, size, inputs)}}

    def penalty(self, weights: Weights) -> Array | float:
        kernels = [weights[name]["kernel"] for name in IN_AXES] if self.l1 or self.l2 else []
        return sum(self.l1 * abs(kernel).sum() + self.l2 / 2 * (kernel * kernel).sum() for kernel in kernels)

    def constrained(self, weights: Weights) -> Weights:
        if self.constraint is None or not self.trainable:
            return weights
        project = Constraint.of(self.constraint).project
        return {
            name: weights[name] | {"kernel": project(weights[name]["kernel"], axes)} for name, axes in IN_AXES.items()
        }

    @jitted
    def forward(self, weights: Weights, x: Any) -> Any:
        return self._run(weights, x, None)[0]

    @jitted
    def delta(self, weights: Weights, x: Any, y: Any, dy: Array) -> Any:
        return self._back(weights, x, dy, self._run(weights, x, None)[1], None, True, False)[0]

    @jitted
    def gradient(self, weights: Weights, x: Any, y: Any, dy: Array) -> Weights:
        return self._back(weights, x, dy, self._run(weights, x, None)[1], None, False, True)[1]

    # A part of every row at a time

    def first_state(self, rows: int, input_shape: Any, dtype: Any = float, longest: int | None = None) -> Any:
        """Room for the keys and values of `longest` steps of causal attention; see `Layer.first_state`.

        {} of attention to rows of one length, which are given whole with each segment.
        """
        if is_several(input_shape):
            check_whole(input_shape[1])
            return {}
        if not self.causal:
            raise CannotCarry(
                "MultiHeadAttention asks steps after its own, which the next segment of a row has, and so cannot go "
                "from one to the next; go on with whole rows, or give it causal=True."
            )
        return first_keys(rows, self._key_value_heads, self._size(input_shape[1]), dtype, longest)

    @jitted
    def forward_from(self, weights: Weights, state: Any, x: Any) -> tuple[Any, Any]:
        """(y, the state after it) of the next segment of every row; see `Layer.forward_from`.

        y is NaN in steps beyond the `longest` of `first_state`, as nothing better can be told while a program runs.
        """
        if not state:
            return self.forward(weights, x), state
        rows = as_ragged(x)
        at = steps_from(state, rows)
        queries, keys, values = self._projected(weights, rows, rows, at)
        after = with_steps(state, rows, keys, values)
        attention = Attention(causal=True, starts=state["count"])
        taken, _ = attention.forward(queries, after["keys"], after["values"])
        beyond = (at >= after["keys"].shape[2]) & rows.valid
        y = jnp.where(beyond[..., None], jnp.nan, self._answers(weights, taken, rows, rows))
        return with_values(x, y), after

    @jitted
    def step(self, weights: Weights, state: Any, x: Array) -> tuple[Array, Any]:
        """(y, the state after it) of one more step of every row, both of shape (batch, inputs)."""
        y, state = self.forward_from(weights, state, x[:, None])
        return y[:, 0], state

    # Training

    def train_forward(self, weights: Weights, x: Any, context: Context) -> tuple[Any, Any]:
        if context.states:
            raise ValueError(
                "MultiHeadAttention expects whole rows in training, received a segment of them; leave truncated unset."
            )
        return self._run(weights, x, context.key)

    def train_delta(self, weights: Weights, x: Any, y: Any, dy: Array, kept: Any, context: Context) -> Any:
        return self._back(weights, x, dy, kept, context.key, True, False)[0]

    def train_gradient(self, weights: Weights, x: Any, y: Any, dy: Array, kept: Any, context: Context) -> Weights:
        return self._back(weights, x, dy, kept, context.key, False, True)[1]

    def train_backward(
        self, weights: Weights, x: Any, y: Any, dy: Array, kept: Any, context: Context, wants_delta: bool
    ) -> tuple[Any, Weights]:
        return self._back(weights, x, dy, kept, context.key, wants_delta, self.trainable)

    def _run(self, weights: Weights, x: Any, key: Array | None) -> tuple[Any, Any]:
        """(y, what the way back needs); a single row that asks others asks them all."""
        asking, asked = two_of(x)
        queries, keys, values = self._projected(weights, asking, asked)
        taken, kept = self._attention(asked, key).forward(queries, keys, values)
        y = self._answers(weights, taken, asking, asked)
        return with_values(asking, y), (queries, keys, values, taken, kept)

    def _projected(
        self, weights: Weights, asking: Any, asked: Any, at: Array | None = None
    ) -> tuple[Array, Array, Array]:
        """(queries, keys, values) as of `Attention`; `at` are the numbers of the steps, which begin with 0."""
        rows = {"query": asking, "key": asked, "value": asked}
        queries, keys, values = (self._heads(without_padding(rows[name]), weights[name]) for name in rows)
        if self.rotary:
            queries, keys = (rotated(array, self.rotary, at=at) for array in (queries, keys))
        return queries.reshape(len(queries), self._key_value_heads, -1, *queries.shape[2:]), keys, values

    def _answers(self, weights: Weights, taken: Array, asking: Any, asked: Any) -> Array:
        """Values of y, from what each query takes."""
        kernel = weights["output"]["kernel"]
        y = matmul(flat_heads(taken), kernel.reshape(-1, kernel.shape[2]))
        if self.bias:
            y = y + weights["output"]["bias"][None]
        return only_answered(y.reshape(len(taken), taken.shape[3], kernel.shape[2]), asking, asked)

    def _back(
        self,
        weights: Weights,
        x: Any,
        dy: Array,
        kept: Any,
        key: Array | None,
        wants_delta: bool,
        wants_gradient: bool,
    ) -> tuple[Any, Weights]:
        """(dx or None, dweights or {}) from what `_run` kept."""
        if not wants_delta and not wants_gradient:
            return None, {}
        asking, asked = two_of(x)
        queries, keys, values, taken, own = kept
        kernel, gradient = weights["output"]["kernel"], {}
        dy = only_answered(dy, asking, asked)
        flat_dy = dy.reshape(-1, dy.shape[2])
        dtaken = as_heads(matmul(flat_dy, kernel.reshape(-1, kernel.shape[2]).T), taken)
        dqueries, dkeys, dvalues = self._attention(asked, key).backward(queries, keys, values, taken, dtaken, own)
        dqueries = dqueries.reshape(len(dqueries), self.heads, *dqueries.shape[3:])
        if self.rotary:
            dqueries, dkeys = (rotated(array, self.rotary, back=True) for array in (dqueries, dkeys))
        slopes = {"query": flat_heads(dqueries), "key": flat_heads(dkeys), "value": flat_heads(dvalues)}
        if wants_gradient:
            of_output = {"kernel": transposed_product(flat_heads(taken), flat_dy).reshape(kernel.shape)}
            gradient = {name: self._gradient(asking, asked, name, slope, weights) for name, slope in slopes.items()}
            gradient["output"] = of_output | ({"bias": flat_dy.sum(axis=0)} if self.bias else {})
        if not wants_delta:
            return None, gradient
        below = {name: self._below(slope, weights[name]["kernel"]) for name, slope in slopes.items()}
        down = [below["query"], below["key"] + below["value"]]
        dx = [part.reshape(values_of(of).shape) for part, of in zip(down, (asking, asked), strict=True)]
        return tuple(dx) if isinstance(x, tuple) else dx[0] + dx[1], gradient

    def _gradient(self, asking: Any, asked: Any, name: str, slope: Array, weights: Weights) -> Weights:
        """Of query, key or value, from the slopes of what it gave, (batch * steps, heads * size)."""
        rows = without_padding(asking if name == "query" else asked)
        kernel = transposed_product(rows.reshape(-1, rows.shape[2]), slope).reshape(weights[name]["kernel"].shape)
        if not self.bias:
            return {"kernel": kernel}
        return {"kernel": kernel, "bias": slope.sum(axis=0).reshape(weights[name]["bias"].shape)}

    def _below(self, slope: Array, kernel: Array) -> Array:
        return matmul(slope, kernel.reshape(len(kernel), -1).T)

    def _heads(self, rows: Array, weights: Weights) -> Array:
        """(batch, steps, inputs) as queries, keys or values, (batch, heads, steps, size)."""
        kernel = weights["kernel"]
        made = matmul(rows.reshape(-1, rows.shape[2]), kernel.reshape(len(kernel), -1))
        if self.bias:
            made = made + weights["bias"].reshape(1, -1)
        return made.reshape(*rows.shape[:2], *kernel.shape[1:]).swapaxes(1, 2)

    def _attention(self, asked: Any, key: Array | None) -> Attention:
        lengths = jnp.asarray(asked.lengths) if isinstance(asked, Ragged) else None
        return Attention(lengths, self.causal, self.dropout, key)

    def _size(self, inputs: int) -> int:
        """Of a query."""
        size = self.key_size or inputs // self.heads
        if self.key_size is None and inputs % self.heads:
            raise ValueError(
                f"MultiHeadAttention expects steps of a multiple of heads={self.heads} numbers, received {inputs}; set "
                "key_size."
            )
        if self.rotary and size % 2:
            raise ValueError(f"MultiHeadAttention with rotary expects an even key_size, received {size}; set key_size.")
        return size
