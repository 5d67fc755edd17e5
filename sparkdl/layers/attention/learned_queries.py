"""A fixed number of vectors of each sequence: what queries that are learned take of all its steps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import jax

from sparkdl.constraints import Constraint
from sparkdl.initializers import GlorotUniform, Initializer
from sparkdl.layers.attention.multi_head import MultiHeadAttention
from sparkdl.layers.attention.steps_and_heads import without_padding
from sparkdl.layers.base import Array, Context, KernelLayer, Shape, Weights, jitted
from sparkdl.layers.ragged import check_vectors
from sparkdl.specs import check_integers, check_range


@dataclass(frozen=True)
class LearnedSelfAttention(KernelLayer):
    """Learned queries ask all steps of a row, of whatever length: Deeplearning4j's LearnedSelfAttentionLayer.

    It is the attention of "pooling by multihead attention" (Lee et al. 2019, "Set Transformer", section 3.2)::

        y = heads @ output,   head = softmax(queries @ query . (x @ key) / sqrt(head_size)) . (x @ value)

    x        Ragged (batch, steps, inputs), or such an array     dx  array (batch, steps, inputs)    dL/dx
    y        (batch, queries, units), zeros for a row            dy  array (batch, queries, units)   dL/dy
             without steps
    weights  queries (queries, units)
             query  kernel (units, heads, head_size), bias (heads, head_size)
             key    kernel (inputs, heads, head_size), bias (heads, head_size)
             value  as key
             output kernel (heads, head_size, units), bias (units,)

    Padding is never looked at, and y does not change with the order of the steps.

    Parameters
    ----------
    queries : int
        Vectors that it puts out of every row.
    units : int, optional
        Numbers of each; by default as many as a step has.
    heads : int, default 1
    head_size : int, optional
        Numbers of a query, a key and a value in a head; by default units / heads.
    project : bool, default True
        False leaves query, key, value and output out, with their biases: x are keys and values, of one head, and units
        are as many as inputs.
    dropout : float, default 0
        Probability of dropping, in training, what a query takes of a step; what stays is divided by 1 - rate.
    bias : bool, default True
        Whether query, key, value and output add learned biases.
    kernel_initializer, bias_initializer : Initializer or str
        An initializer or its name; that of the kernels draws the queries, too.
    l1, l2, constraint
        Of all kernels and of the queries, each of which is a vector; see `KernelLayer`.

    Examples
    --------
    >>> from sparkdl import Network
    >>> from sparkdl.layers import Dense, Embedding, Flatten, LearnedSelfAttention
    >>> layers = [Embedding(100, 16), LearnedSelfAttention(4, units=8, heads=2), Flatten(), Dense(2)]
    >>> network = Network(layers, input_shape=(None,))
    >>> network.layers[1].output_shape((None, 16)), network.output_shape()
    ((4, 8), (2,))
    """

    queries: int
    units: int | None = None
    heads: int = 1
    head_size: int | None = None
    project: bool = True
    dropout: float = 0.0
    kernel_initializer: Initializer | str = field(default=GlorotUniform(), kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integers(self, 1, "queries", "units", "heads", "head_size")
        check_range(self, "[0, 1)", "dropout")
        if not self.project and (self.heads > 1 or self.head_size is not None):
            raise ValueError(
                "LearnedSelfAttention with project=False expects neither heads nor head_size, as it has one head of "
                f"all inputs, received heads={self.heads}, head_size={self.head_size}; leave them out."
            )

    @property
    def takes_ragged(self) -> bool:
        return True

    @property
    def _asking(self) -> MultiHeadAttention:
        """The attention by which the queries, as steps of a row that is the same for all, ask the steps of x."""
        return MultiHeadAttention(
            self.heads, self.head_size, dropout=self.dropout, bias=self.bias, l1=self.l1, l2=self.l2,
            kernel_initializer=self.kernel_initializer, bias_initializer=self.bias_initializer,
            constraint=self.constraint, trainable=self.trainable,
        )  # fmt: skip

    def output_shape(self, input_shape: Shape) -> Shape:
        check_vectors("LearnedSelfAttention", input_shape)
        inputs = input_shape[1]
        units = self.units or inputs
        if not self.project and units != inputs:
            raise ValueError(
                f"LearnedSelfAttention with project=False expects steps of as many numbers as units={units}, received "
                f"{inputs}; leave units or project out."
            )
        if self.head_size is None and units % self.heads:
            raise ValueError(
                f"units of LearnedSelfAttention must be a multiple of heads={self.heads}, received {units}; set "
                "head_size."
            )
        return (self.queries, units)

    def multiply_adds(self, input_shape: Shape) -> int:
        steps, inputs = input_shape
        steps, units = steps or 1, self.units or inputs
        width = self.heads * (self.head_size or units // self.heads)
        projected = 2 * steps * inputs + self.queries * units if self.project else 0
        return (projected + 2 * self.queries * steps) * width

    def init(self, key: Array, input_shape: Shape) -> Weights:
        key, own_key = jax.random.split(key)
        units = self.units or input_shape[1]
        queries = Initializer.of(self.kernel_initializer).sample(own_key, (units, self.queries)).T
        asking = self._asking.init(key, ((self.queries, units), input_shape)) if self.project else {}
        return asking | {"queries": queries}

    def penalties(self) -> dict[str, tuple[float, float]]:
        return {"queries": (self.l1, self.l2)} if self.l1 or self.l2 else {}

    def penalty(self, weights: Weights) -> Array | float:
        own = super().penalty(weights)
        return own + self._asking.penalty(weights) if self.project else own

    def constrained(self, weights: Weights) -> Weights:
        if self.constraint is None or not self.trainable:
            return weights
        queries = Constraint.of(self.constraint).project(weights["queries"], (1,))
        return (self._asking.constrained(weights) if self.project else {}) | {"queries": queries}

    @jitted
    def forward(self, weights: Weights, x: Any) -> Array:
        return self._run(weights, x, None)[0]

    @jitted
    def delta(self, weights: Weights, x: Any, y: Array, dy: Array) -> Any:
        return self._back(weights, x, dy, self._run(weights, x, None)[1], None, True, False)[0]

    @jitted
    def gradient(self, weights: Weights, x: Any, y: Array, dy: Array) -> Weights:
        return self._back(weights, x, dy, self._run(weights, x, None)[1], None, False, True)[1]

    def train_forward(self, weights: Weights, x: Any, context: Context) -> tuple[Array, Any]:
        return self._run(weights, x, context.key)

    def train_delta(self, weights: Weights, x: Any, y: Array, dy: Array, kept: Any, context: Context) -> Any:
        return self._back(weights, x, dy, kept, context.key, True, False)[0]

    def train_gradient(self, weights: Weights, x: Any, y: Array, dy: Array, kept: Any, context: Context) -> Weights:
        return self._back(weights, x, dy, kept, context.key, False, True)[1]

    def train_backward(
        self, weights: Weights, x: Any, y: Array, dy: Array, kept: Any, context: Context, wants_delta: bool
    ) -> tuple[Any, Weights]:
        return self._back(weights, x, dy, kept, context.key, wants_delta, self.trainable)

    def _run(self, weights: Weights, x: Any, key: Array | None) -> tuple[Array, Any]:
        """(y, what the way back needs)."""
        queries, asking = weights["queries"][None], self._asking
        if self.project:
            return asking._run(weights, (queries, x), key)
        rows = without_padding(x)[:, None]
        taken, kept = asking._attention(x, key).forward(queries[:, None, None], rows, rows)
        return taken[:, 0, 0], (taken, kept)

    def _back(
        self, weights: Weights, x: Any, dy: Array, kept: Any, key: Array | None, wants_delta: bool, wants_gradient: bool
    ) -> tuple[Any, Weights]:
        """(dx or None, dweights or {}) from what `_run` kept."""
        if not wants_delta and not wants_gradient:
            return None, {}
        queries, asking = weights["queries"][None], self._asking
        if self.project:
            (dqueries, dx), gradient = asking._back(weights, (queries, x), dy, kept, key, True, wants_gradient)
            dqueries = dqueries[0]
        else:
            rows, gradient = without_padding(x)[:, None], {}
            taken, own = kept
            dqueries, dkeys, dvalues = asking._attention(x, key).backward(
                queries[:, None, None], rows, rows, taken, dy[:, None, None], own
            )
            dqueries, dx = dqueries[0, 0, 0], (dkeys + dvalues)[:, 0]
        return dx if wants_delta else None, gradient | {"queries": dqueries} if wants_gradient else {}
