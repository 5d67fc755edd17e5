"""What a layer is: a frozen value with three kernels, and how a training step runs it.

`dy` is dL/dy, the derivative of the summed loss by the layer's output, with y's shape; `dx` likewise. Of rows of any
length, `Ragged`, they are arrays of the shape of the values. The kernels return sums over the rows of a batch and never
divide by their number.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeVar

import jax
from jax import Array, lax

from sparkdl.arrays import INTEGERS
from sparkdl.constraints import Constraint
from sparkdl.initializers import HeNormal, Initializer, Zeros
from sparkdl.layers.ragged import Ragged, abstract_rows, values_of, with_values
from sparkdl.specs import Spec, check_range, refuse_stale
from sparkdl.strings import Hashing, Strings

Shape = tuple[int, ...]  # of one row, without the batch axis; of rows of any length the first is None
Weights = dict[str, Any]  # arrays by name; a network's are nested by layer name
Kernel = TypeVar("Kernel", bound=Callable[..., Any])


def map_shapes(function: Callable[[Shape], Any], shapes: Any) -> Any:
    """`function` of a shape, or of each of a tuple of shapes, which a layer has that reads several arrays."""
    if not any(isinstance(size, tuple) for size in shapes):
        return function(shapes)
    return tuple(map_shapes(function, shape) for shape in shapes)


def jitted(kernel: Kernel) -> Kernel:
    """Compile a layer's method; the layer itself, being a frozen value, is a static argument."""
    return jax.jit(kernel, static_argnums=0)  # type: ignore[return-value]


@dataclass(frozen=True)
class Context:
    """What a training step knows besides weights and rows; made inside the compiled step.

    Attributes
    ----------
    key : Array
        Random key of this step, worker and layer.
    row_weights : Array
        Sample weights of the rows at hand, shape (batch,); padding rows weigh 0.
    axis : str or None
        Name of the mesh axis over which the batch is split among workers.
    factored : bool
        Whether the gradient of a kernel may be handed over as `Factored`.
    apart : bool
        Whether that of a table may be handed over as `TableRows`.
    states : Any
        What layers over time go on from, in the structure of `Layer.first_state`, where x is a segment of longer rows;
        None where rows are whole. It is a constant: nothing is derived by it.
    """

    key: Array
    row_weights: Array
    axis: str | None = None
    factored: bool = False
    apart: bool = False
    states: Any = None

    def sum_over_workers(self, value: Array) -> Array:
        """The sum of every worker's `value`; a layer that needs one is given its worker's whole batch at once."""
        return value if self.axis is None else lax.psum(value, self.axis)

    def at(self, index: int, name: str) -> Context:
        """The context of the `index`-th layer of a network: the same, with a key and a state of its own."""
        states = None if self.states is None else self.states.get(name)
        return replace(self, key=jax.random.fold_in(self.key, index), states=states)


class CannotCarry(ValueError):
    """A layer needs the whole of a row, and so cannot go on from one segment of it to the next."""


@dataclass(frozen=True)
class Layer(Spec):
    """A layer's hyperparameters; its weights travel beside it as a dict of arrays.

    A subclass with only `forward` already trains: `delta` and `gradient` are derived from it unless written. A layer
    that is random in training, or that hands something to the way back, writes `train_forward`, from which
    `train_delta` and `train_gradient` are derived unless written. A class that overrides `forward` or `train_forward`
    but inherits kernels written for another one is refused with a TypeError.

    Parameters
    ----------
    name : str, optional
        Key of the layer's weights in its network; by default the type and position, as in "conv_0".
    trainable : bool, default True
        False freezes the layer's weights.

    Attributes
    ----------
    each_step : bool
        Of the class: whether each step of rows of any length goes through the layer as a row of its own (`steps.py`).
    """

    each_step: ClassVar[bool] = False

    name: str | None = field(default=None, kw_only=True)
    trainable: bool = field(default=True, kw_only=True)

    @property
    def takes_integers(self) -> bool:
        """Whether x holds integers, as of indices, which stay as they are; what others read becomes floats."""
        return False

    @property
    def integer_limit(self) -> int | None:
        """Of a layer that takes integers: that these are from 0 to below it; None if they may be any."""
        return None

    @property
    def takes_hashes(self) -> bool:
        """Of a layer that takes integers: whether hashes will do, which strings become."""
        return False

    @property
    def takes_strings(self) -> Strings | None:
        """Of a layer that takes integers: how strings become such; None if it takes none."""
        return Hashing() if self.takes_hashes else None

    @property
    def takes_ragged(self) -> bool:
        """Whether x may be `Ragged`, rows of any length, unless `output_shape` refuses them with a sentence of its own.

        A network with a layer that does not take them is refused when built.
        """
        return False

    @property
    def takes_several_lengths(self) -> bool:
        """Whether x may be a tuple of rows that are not as long as one another; y's are those of the first."""
        return False

    @property
    def gives_lengths(self) -> bool:
        """Whether y is `Ragged` with lengths of its own, which are none of those that x has."""
        return False

    @property
    def step_limit(self) -> int | None:
        """Of a layer over rows of any length: how many steps they may have at most; None if any number."""
        return None

    @property
    def shares(self) -> str:
        """Name of a layer before it in the same network whose weights it uses, and learns, too; "" for its own."""
        return ""

    @property
    def gives_integers(self) -> bool:
        """Whether y holds integers; nothing varies with such."""
        return False

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        refuse_stale(cls, Layer, "forward", "delta", "gradient", "train_forward", "train_delta", "train_gradient")
        refuse_stale(cls, Layer, "forward", "first_state", "forward_from")
        refuse_stale(cls, Layer, "train_forward", "train_delta", "train_gradient", "new_state")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.name, str | None):
            raise ValueError(f"name of {type(self).__name__} must be a string or None, received {self.name!r}.")

    def output_shape(self, input_shape: Shape) -> Shape:
        """Shape of one row of y for a row of shape `input_shape`; ValueError if such rows do not fit."""
        weights = jax.eval_shape(lambda key: self.init(key, input_shape), jax.ShapeDtypeStruct((2,), "uint32"))
        row = abstract_rows(1, input_shape, INTEGERS if self.takes_integers else "float32")
        y = jax.eval_shape(self.forward, weights, row)
        if isinstance(y, Ragged):
            return (None, *y.values.shape[2:])  # type: ignore[return-value]
        if not isinstance(y, jax.ShapeDtypeStruct):
            raise ValueError(f"forward must return an array, received {y!r}.")
        return tuple(y.shape[1:])

    def multiply_adds(self, input_shape: Shape) -> int:
        """Multiplications (each with an addition) that `forward` spends on one row, where they dominate its cost."""
        return 0

    def penalties(self) -> dict[str, tuple[float, float]]:
        """(l1, l2) by weight name: the objective gains l1 * sum|w| + l2 / 2 * sum(w * w)."""
        return {}

    def init(self, key: Array, input_shape: Shape) -> Weights:
        """Fresh weights for rows of shape `input_shape`; {} for a layer without any."""
        return {}

    @abstractmethod
    def forward(self, weights: Weights, x: Array) -> Array:
        """y of shape (batch, *output_shape) from x of shape (batch, *input_shape), as at inference."""
        raise NotImplementedError(f"{type(self).__name__} has no forward kernel.")

    @jitted
    def delta(self, weights: Weights, x: Array, y: Array, dy: Array) -> Array:
        """dL/dx, of x's shape; of Ragged rows that of the values."""

        def y_of(values: Any) -> Any:
            return values_of(self.forward(weights, with_values(x, values)))

        return jax.vjp(y_of, values_of(x))[1](dy)[0]

    @jitted
    def gradient(self, weights: Weights, x: Array, y: Array, dy: Array) -> Weights:
        """dL/dweights, summed over rows, in the structure of `weights`."""
        return jax.vjp(lambda own: values_of(self.forward(own, x)), weights)[1](dy)[0]

    def learned(self, weights: Weights) -> Weights:
        """The part of `weights` that training changes by its gradient."""
        held = self.statistics()
        return {name: value for name, value in weights.items() if self.trainable and name not in held}

    def penalty(self, weights: Weights) -> Array | float:
        """What regularization adds to the objective."""
        terms = self.penalties().items()
        return sum(
            l1 * abs(weights[name]).sum() + l2 / 2 * (weights[name] * weights[name]).sum() for name, (l1, l2) in terms
        )

    def constrained(self, weights: Weights) -> Weights:
        """The weights as an update leaves them: by default as they are."""
        return weights

    # Segments of rows of any length, one after the other. A state is whatever a layer hands from one to the next, in
    # arrays of as many rows; most layers take each step by itself and hand on nothing.

    def first_state(
        self, rows: int, input_shape: Any, dtype: Any = float, longest: int | None = None
    ) -> Any:  # of rows of any length
        """The state before the first step.

        Parameters
        ----------
        rows : int
            In a batch.
        input_shape : tuple
            Of a row, or several of a layer that reads several arrays; with None in place of the steps.
        dtype : dtype
            Of the computation.
        longest : int, optional
            Steps that will come at most, for a layer that keeps them all, as one that attends does.

        Returns
        -------
        pytree of arrays
            {} of a layer that takes each step by itself; of one made of layers a dict by their names.

        Raises
        ------
        CannotCarry
            The layer, or one within it, needs the whole of a row; a ValueError.
        """
        if self.each_step:
            return {}
        raise CannotCarry(
            f"{type(self).__name__} needs the whole of every row and so cannot go from one segment of it to the next; "
            "go on with whole rows, or take the layers before it, as up_to gives them."
        )

    def forward_from(self, weights: Weights, state: Any, x: Any) -> tuple[Any, Any]:
        """(y, the state after it) of the next segment of every row, which may be empty; as `forward` of whole rows.

        Parameters
        ----------
        weights : dict of arrays
        state : Any
            After the segment before, or `first_state`. Where a row has ended, it stays as it is.
        x : Ragged or Array, shape (batch, steps, ...)
        """
        return self.forward(weights, x), state

    # A training step. `kept` is whatever the forward pass hands to the way back; most layers keep nothing.

    def train_forward(self, weights: Weights, x: Array, context: Context) -> tuple[Array, Any]:
        """(y, kept) in training; `forward` unless a layer trains otherwise than it infers, or keeps something.

        Of a segment it goes on from `context.states`, as `forward_from` does.
        """
        if context.states is None:
            return self.forward(weights, x), None
        return self.forward_from(weights, context.states, x)

    def train_delta(self, weights: Weights, x: Array, y: Array, dy: Array, kept: Any, context: Context) -> Array:
        """dL/dx in training: `delta`, or derived from a `train_forward` that the layer has."""
        if type(self).train_forward is Layer.train_forward and context.states is None:
            return self.delta(weights, x, y, dy)

        def y_of(values: Any) -> Any:
            return values_of(self.train_forward(weights, with_values(x, values), context)[0])

        return jax.vjp(y_of, values_of(x))[1](dy)[0]

    def train_gradient(self, weights: Weights, x: Array, y: Array, dy: Array, kept: Any, context: Context) -> Weights:
        """dL/dweights in training: `gradient`, or derived from a `train_forward` that the layer has."""
        if type(self).train_forward is Layer.train_forward and context.states is None:
            return self.gradient(weights, x, y, dy)
        return jax.vjp(lambda own: values_of(self.train_forward(own, x, context)[0]), weights)[1](dy)[0]

    def train_backward(
        self, weights: Weights, x: Array, y: Array, dy: Array, kept: Any, context: Context, wants_delta: bool
    ) -> tuple[Array | None, Weights]:
        """(dx or None, dweights) in training; {} for a frozen layer."""
        dx = self.train_delta(weights, x, y, dy, kept, context) if wants_delta else None
        return dx, self.train_gradient(weights, x, y, dy, kept, context) if weights and self.trainable else {}

    def statistics(self) -> frozenset[str]:
        """Names of the weights that are running statistics rather than learned."""
        return frozenset()

    def new_statistics(self, weights: Weights, kept: Any) -> Weights:
        """The running statistics after a training step, in their place in `weights`; what is left out stays."""
        return {}

    def new_state(self, state: Any, kept: Any) -> Any:
        """The state after a segment that training went over from `state`, which its context had as `states`.

        Raises
        ------
        NotImplementedError
            The layer has a state and a `train_forward`, whose `kept` it alone knows, but does not say.
        """
        if type(self).train_forward is Layer.train_forward:
            return kept
        kind = type(self).__name__
        raise NotImplementedError(f"{kind} writes train_forward, and so must write new_state, as it carries a state.")


@dataclass(frozen=True)
class KernelLayer(Layer):
    """A layer with a `kernel` and perhaps a `bias`: what dense and convolution layers share.

    Parameters
    ----------
    bias : bool, default True
        Whether to add a learned bias to every output channel.
    kernel_initializer, bias_initializer : Initializer or str
        An initializer or its name.
    l1, l2 : float, default 0
        The objective gains l1 * sum|kernel| + l2 / 2 * sum(kernel * kernel); the bias is left alone.
    constraint : Constraint or str, optional
        What every update leaves of the kernel, such as `MaxNorm(3)`; its vectors lead to one output each.
    """

    bias: bool = field(default=True, kw_only=True)
    kernel_initializer: Initializer | str = field(default=HeNormal(), kw_only=True)
    bias_initializer: Initializer | str = field(default=Zeros(), kw_only=True)
    l1: float = field(default=0.0, kw_only=True)
    l2: float = field(default=0.0, kw_only=True)
    constraint: Constraint | str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "kernel_initializer", Initializer.of(self.kernel_initializer))
        object.__setattr__(self, "bias_initializer", Initializer.of(self.bias_initializer))
        if self.constraint is not None:
            object.__setattr__(self, "constraint", Constraint.of(self.constraint))
        check_range(self, "[0, inf)", "l1", "l2")

    def penalties(self) -> dict[str, tuple[float, float]]:
        return {"kernel": (self.l1, self.l2)} if self.l1 or self.l2 else {}

    def vector_axes(self, kernel: Array) -> tuple[int, ...]:
        """The axes of a kernel along which a vector lies that leads to one output."""
        return tuple(range(kernel.ndim - 1))

    def constrained(self, weights: Weights) -> Weights:
        if self.constraint is None or not self.trainable:
            return weights
        kernel = weights["kernel"]
        return weights | {"kernel": Constraint.of(self.constraint).project(kernel, self.vector_axes(kernel))}

    def init_kernel(self, key: Array, kernel_shape: Shape) -> Weights:
        """Kernel of `kernel_shape` (..., inputs, outputs) and, if there is one, the bias of shape (outputs,)."""
        kernel_key, bias_key = jax.random.split(key)
        weights = {"kernel": Initializer.of(self.kernel_initializer).sample(kernel_key, kernel_shape)}
        if self.bias:
            weights["bias"] = Initializer.of(self.bias_initializer).sample(bias_key, kernel_shape[-1:])
        return weights
