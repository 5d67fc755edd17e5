"""A recurrent layer of which every step reads what the step before it takes of the whole row."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from sparkdl.constraints import Constraint
from sparkdl.initializers import GlorotUniform, Initializer, Orthogonal
from sparkdl.layers.attention.dot_product import Attention
from sparkdl.layers.attention.steps_and_heads import as_heads, flat_heads, without_padding
from sparkdl.layers.base import Array, Context, KernelLayer, Shape, Weights, jitted
from sparkdl.layers.curves import CURVES, check_curves
from sparkdl.layers.products import matmul, transposed_product
from sparkdl.layers.ragged import Ragged, check_vectors, values_of, with_values
from sparkdl.layers.recurrent import flat
from sparkdl.specs import check_integers


@dataclass(frozen=True)
class RecurrentAttention(KernelLayer):
    """y[t] = activation(x[t] @ kernel + taken(y[t - 1]) @ recurrent + bias): Deeplearning4j's RecurrentAttentionLayer.

    taken(y) is what y takes of all steps of x, later ones too, by attention of several heads (Vaswani et al. 2017,
    section 3.2.2); the first step, which has none before it, goes without::

        taken(y) = heads @ output,   head = softmax(y @ query . (x @ key) / sqrt(head_size)) . (x @ value)

    x        Ragged (batch, steps, inputs), or such an array     dx  array (batch, steps, inputs)   dL/dx
    y        Ragged (batch, steps, units), or such an array      dy  array (batch, steps, units)    dL/dy
    weights  kernel (inputs, units), recurrent (units, units), bias (units,)
             query (units, heads, head_size), key and value (inputs, heads, head_size), output (heads, head_size, units)

    y is 0 beyond the end of a row, whose padding nothing looks at. Whole rows only: it goes from no segment of a row to
    the next.

    Parameters
    ----------
    units : int
        Numbers that it puts out at every step.
    heads : int, default 1
    head_size : int, optional
        Numbers of a query, a key and a value; by default units / heads.
    activation : str, default "tanh"
        Or "relu".
    project : bool, default True
        False leaves query, key, value and output out: y is the query, x are keys and values, of one head, and there
        must be as many inputs as units.
    bias : bool, default True
        Whether to add a learned bias.
    kernel_initializer, recurrent_initializer, bias_initializer : Initializer or str
        An initializer or its name; of `recurrent` by default orthogonal, the first is of all other kernels.
    l1, l2, constraint
        Of all kernels; see `KernelLayer`.

    Examples
    --------
    >>> from sparkdl import Network
    >>> from sparkdl.layers import Dense, Embedding, LastStep, RecurrentAttention
    >>> layers = [Embedding(100, 16), RecurrentAttention(8, heads=2), LastStep(), Dense(2)]
    >>> Network(layers, input_shape=(None,)).output_shape()
    (2,)
    """

    units: int
    heads: int = 1
    head_size: int | None = None
    activation: str = "tanh"
    project: bool = True
    kernel_initializer: Initializer | str = field(default=GlorotUniform(), kw_only=True)
    recurrent_initializer: Initializer | str = field(default=Orthogonal(), kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "recurrent_initializer", Initializer.of(self.recurrent_initializer))
        check_integers(self, 1, "units", "heads", "head_size")
        check_curves(self, "activation")
        if not self.project and (self.heads > 1 or self.head_size is not None):
            raise ValueError(
                "RecurrentAttention with project=False expects neither heads nor head_size, as it has one head of all "
                f"units, received heads={self.heads}, head_size={self.head_size}; leave them out."
            )
        if self.head_size is None and self.units % self.heads:
            raise ValueError(
                f"units of RecurrentAttention must be a multiple of heads={self.heads}, received {self.units}; set "
                "head_size."
            )

    @property
    def takes_ragged(self) -> bool:
        return True

    @property
    def _size(self) -> int:
        """Of a query."""
        return self.head_size or self.units // self.heads

    def _shapes(self, inputs: int) -> dict[str, Shape]:
        """Of the kernels."""
        shapes: dict[str, Shape] = {"kernel": (inputs, self.units), "recurrent": (self.units, self.units)}
        if not self.project:
            return shapes
        head = (self.heads, self._size)
        read = {"query": (self.units, *head), "key": (inputs, *head), "value": (inputs, *head)}
        return shapes | read | {"output": (*head, self.units)}

    def output_shape(self, input_shape: Shape) -> Shape:
        check_vectors("RecurrentAttention", input_shape)
        steps, inputs = input_shape
        if not self.project and inputs != self.units:
            raise ValueError(
                f"RecurrentAttention with project=False expects steps of as many numbers as units={self.units}, "
                f"received {inputs}; leave project out, or put EachStep(Dense({self.units})) before it."
            )
        return (steps, self.units)

    def multiply_adds(self, input_shape: Shape) -> int:
        steps, inputs = input_shape
        steps, width = steps or 1, self.heads * self._size
        each = (inputs + width) * self.units + (width * (2 * inputs + self.units) if self.project else 0)
        return steps * (each + 2 * steps * width)

    def init(self, key: Array, input_shape: Shape) -> Weights:
        shapes = self._shapes(input_shape[-1])
        keys = dict(zip(shapes, jax.random.split(key, len(shapes)), strict=True))
        weights = self.init_kernel(keys["kernel"], shapes["kernel"])
        for name in [name for name in shapes if name != "kernel"]:
            given = self.recurrent_initializer if name == "recurrent" else self.kernel_initializer
            drawn = Initializer.of(given).sample(keys[name], _matrix(name, shapes[name]))
            weights[name] = drawn.reshape(shapes[name])
        return weights

    def penalties(self) -> dict[str, tuple[float, float]]:
        return dict.fromkeys(self._shapes(1), (self.l1, self.l2)) if self.l1 or self.l2 else {}

    def constrained(self, weights: Weights) -> Weights:
        if self.constraint is None or not self.trainable:
            return weights
        project = Constraint.of(self.constraint).project
        axes = {name: (0, 1) if name == "output" else (0,) for name in self._shapes(1)}
        return weights | {name: project(weights[name], axes[name]) for name in axes}

    @jitted
    def forward(self, weights: Weights, x: Any) -> Any:
        rows, attention = without_padding(x), self._attention(x)
        keys, values = (self._heads(weights, name, rows) for name in ("key", "value"))
        read = self._read(weights)
        z = matmul(flat(rows), weights["kernel"])
        z = (z + weights["bias"][None] if self.bias else z).reshape(*rows.shape[:2], self.units)

        def advance(taken: Array, z: Array) -> tuple[Array, Array]:
            y = CURVES[self.activation].value(z + taken)
            heads, _ = attention.forward(self._queries(weights, y[:, None]), keys, values)
            return matmul(flat_heads(heads), read), y

        # What the last step takes nobody reads, and so the first is a step as the others are.
        _, y = lax.scan(advance, jnp.zeros_like(z[:, 0]), z.swapaxes(0, 1))
        return with_values(x, without_padding(with_values(x, y.swapaxes(0, 1))))

    @jitted
    def delta(self, weights: Weights, x: Any, y: Any, dy: Array) -> Array:
        return self._back(weights, x, y, dy, True, False)[0]

    @jitted
    def gradient(self, weights: Weights, x: Any, y: Any, dy: Array) -> Weights:
        return self._back(weights, x, y, dy, False, True)[1]

    def train_backward(
        self, weights: Weights, x: Any, y: Any, dy: Array, kept: Any, context: Context, wants_delta: bool
    ) -> tuple[Array | None, Weights]:
        return self._back(weights, x, y, dy, wants_delta, self.trainable)

    def _back(
        self, weights: Weights, x: Any, y: Any, dy: Array, wants_delta: bool, wants_gradient: bool
    ) -> tuple[Any, Weights]:
        """(dx or None, dweights or {}).

        With y known, so are all queries: the scan goes over the slopes of one step's attention alone, and those of keys
        and values are of all steps at once, after it.
        """
        if not wants_delta and not wants_gradient:
            return None, {}
        rows, y, dy = without_padding(x), values_of(y), without_padding(with_values(x, dy))
        keys, values = (self._heads(weights, name, rows) for name in ("key", "value"))
        queries, attention = self._queries(weights, y), self._attention(x)
        taken, kept = attention.forward(queries, keys, values)
        back = self._read(weights).T

        def retreat(after: Array, step: tuple[Array, ...]) -> tuple[Array, Array]:
            dy, y, query, taken = step
            _, own = attention.forward(query, keys, values)
            dtaken = matmul(after, back).reshape(query.shape)
            dquery, _, _ = attention.backward(query, keys, values, taken, dtaken, own)
            dz = (dy + self._below(weights, "query", flat_heads(dquery))) * CURVES[self.activation].slope(y)
            return dz, dz

        steps = dy.swapaxes(0, 1), y.swapaxes(0, 1), _steps(queries), _steps(taken)
        none = jnp.zeros_like(dy[:, 0])
        _, dz = lax.scan(retreat, none, steps, reverse=True)
        after = flat(jnp.concatenate([dz[1:], none[None]]).swapaxes(0, 1))
        dz = flat(dz.swapaxes(0, 1))
        slopes = attention.backward(queries, keys, values, taken, as_heads(matmul(after, back), taken), kept)
        known = {name: flat_heads(slope) for name, slope in zip(("query", "key", "value"), slopes, strict=True)}
        gradient: Weights = {}
        if wants_gradient:
            gradient = {"kernel": transposed_product(flat(rows), dz)} | ({"bias": dz.sum(axis=0)} if self.bias else {})
            gradient |= self._attention_gradient(weights, rows, y, known, transposed_product(flat_heads(taken), after))
        if not wants_delta:
            return None, gradient
        dx = matmul(dz, weights["kernel"].T) + sum(self._below(weights, name, known[name]) for name in ("key", "value"))
        return dx.reshape(rows.shape), gradient

    def _attention_gradient(
        self, weights: Weights, rows: Array, y: Array, slopes: dict[str, Array], dread: Array
    ) -> Weights:
        """Of what attention is made with, from the slopes of queries, keys and values, and dL/dread of `_read`."""
        if not self.project:
            return {"recurrent": dread}
        asking = {"query": y, "key": rows, "value": rows}
        gradient = {name: transposed_product(flat(asking[name]), slope) for name, slope in slopes.items()}
        gradient["output"] = matmul(dread, weights["recurrent"].T)
        gradient["recurrent"] = matmul(weights["output"].reshape(len(dread), -1).T, dread)
        return {name: own.reshape(weights[name].shape) for name, own in gradient.items()}

    def _heads(self, weights: Weights, name: str, rows: Array) -> Array:
        """Queries, keys or values of rows (batch, steps, n), (batch, heads, steps, size)."""
        if self.project:
            kernel = weights[name]
            made = matmul(flat(rows), kernel.reshape(len(kernel), -1))
        else:
            made = rows
        return made.reshape(*rows.shape[:2], self.heads, self._size).swapaxes(1, 2)

    def _queries(self, weights: Weights, y: Array) -> Array:
        """As `Attention` reads them, (batch, heads, 1, steps, size)."""
        return self._heads(weights, "query", y)[:, :, None]

    def _below(self, weights: Weights, name: str, slope: Array) -> Array:
        """dL/drows, (batch * steps, n), from slopes of what `_heads` made of them, (batch * steps, heads * size)."""
        return matmul(slope, weights[name].reshape(len(weights[name]), -1).T) if self.project else slope

    def _read(self, weights: Weights) -> Array:
        """output @ recurrent, (heads * head_size, units), by which a step multiplies at once what its heads take."""
        recurrent = weights["recurrent"]
        return matmul(weights["output"].reshape(-1, self.units), recurrent) if self.project else recurrent

    def _attention(self, x: Any) -> Attention:
        return Attention(jnp.asarray(x.lengths) if isinstance(x, Ragged) else None)


def _matrix(name: str, shape: Shape) -> Shape:
    """The shape (inputs, outputs) of a kernel."""
    split = -1 if name == "output" else 1
    return (math.prod(shape[:split]), math.prod(shape[split:]))


def _steps(heads: Array) -> Array:
    """(batch, heads, 1, steps, size) as (steps, batch, heads, 1, 1, size)."""
    return jnp.moveaxis(heads, 3, 0)[..., None, :]
