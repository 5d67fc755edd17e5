"""Keras's operations, which stand between the layers of a functional model, as of `x / 255` or `keras.ops.relu(x)`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sparkdl.interchange.keras_in import keras_activations, keras_axes
from sparkdl.interchange.keras_in.calls import Call, Tensor
from sparkdl.interchange.keras_in.keras_axes import Reading
from sparkdl.interchange.keras_in.layer_config import SHOWN, LayerConfig
from sparkdl.interchange.keras_in.part import Part
from sparkdl.layers import (
    Add,
    Celu,
    Concatenate,
    Cube,
    Gelu,
    Layer,
    LeakyRelu,
    LogSoftmax,
    Maximum,
    Minimum,
    Multiply,
    Relu,
    Reshape,
    Scale,
    Shift,
    Subtract,
)
from sparkdl.layers.base import Shape
from sparkdl.specs import is_number

LARGEST = 3.4e38  # about that of float32


def operation(config: LayerConfig, call: Call, shapes: Sequence[Shape]) -> Part:
    """What an operation becomes.

    Raises
    ------
    ValueError
        It has no counterpart, or none with what it is called with; the message names it.
    """
    reading = OPERATIONS.get(config.kind)
    part = reading(config, call.args, shapes) if reading and not (call.named or call.options) else None
    if part is not None:
        return part
    given = [*map(_shown, call.args), *(f"{name}={_shown(value)}" for name, value in call.options.items())]
    called = ", ".join([*given, *(f"{name}=array" for name in call.named)])
    called = called if len(called) <= SHOWN else f"{called[:SHOWN]}..."
    how = f" called with ({called})" if reading else ""
    raise ValueError(
        f"Layer {config.name!r} is the operation {config.kind}{how}, which has no counterpart here; put layers of "
        "Keras in its place that have one, and save the model again."
    )


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_shown, value))}]"
    return "array" if isinstance(value, Tensor) else repr(value)


def add(config: LayerConfig, args: Sequence[Any], shapes: Sequence[Shape]) -> Part | None:
    """x + y, or x + 1."""
    match args:
        case [Tensor(), Tensor()]:
            return Part((Add(),))
        case [Tensor(), number] | [number, Tensor()] if _is_constant(number):
            return Part(_plus(number))
    return None


def subtract(config: LayerConfig, args: Sequence[Any], shapes: Sequence[Shape]) -> Part | None:
    """x - y, x - 1 or 1 - x."""
    match args:
        case [Tensor(), Tensor()]:
            return Part((Subtract(),))
        case [Tensor(), number] if _is_constant(number):
            return Part(_plus(-number))
        case [number, Tensor()] if _is_constant(number):
            return Part((*_times(-1.0), *_plus(number)))
    return None


def multiply(config: LayerConfig, args: Sequence[Any], shapes: Sequence[Shape]) -> Part | None:
    """x * y, or x * 2."""
    match args:
        case [Tensor(), Tensor()]:
            return Part((Multiply(),))
        case [Tensor(), number] | [number, Tensor()] if _is_constant(number):
            return Part(_times(number))
    return None


def divide(config: LayerConfig, args: Sequence[Any], shapes: Sequence[Shape]) -> Part | None:
    """x / 2."""
    match args:
        case [Tensor(), number] if _is_constant(number) and number and _is_constant(1 / number):
            return Part(_times(1 / number))
    return None


def negative(config: LayerConfig, shapes: Any) -> Part:
    """-x."""
    return Part(_times(-1.0))


def maximum(config: LayerConfig, args: Sequence[Any], shapes: Sequence[Shape]) -> Part | None:
    """The larger one of x and y, or of x and 0."""
    match args:
        case [Tensor(), Tensor()]:
            return Part((Maximum(),))
        case [Tensor(), number] | [number, Tensor()] if _is_constant(number) and number == 0:
            return Part((Relu(),))
    return None


def minimum(config: LayerConfig, args: Sequence[Any], shapes: Sequence[Shape]) -> Part | None:
    """The smaller one of x and y."""
    match args:
        case [Tensor(), Tensor()]:
            return Part((Minimum(),))
    return None


def square(config: LayerConfig, shapes: Any) -> Part:
    """x * x."""
    return Part((Multiply(),), reads=(0, 0))


def power(config: LayerConfig, args: Sequence[Any], shapes: Sequence[Shape]) -> Part | None:
    """x to the power of 1, 2 or 3."""
    match args:
        case [Tensor(), number] if _is_constant(number) and number in (1, 2, 3):
            return {1: Part(()), 2: square(config, shapes), 3: Part((Cube(),))}[int(number)]
    return None


def concatenate(config: LayerConfig, args: Sequence[Any], shapes: Sequence[Shape]) -> Part | None:
    """Along the last axis."""
    match args:
        case [list(arrays)] if arrays and all(isinstance(array, Tensor) for array in arrays):
            _over_the_last_axis(config, shapes, default=0)
            return Part((Concatenate(),) if len(arrays) > 1 else ())
    return None


def reshape(config: LayerConfig, shapes: Any) -> Part:
    """Of each row, where the new shape begins with the axis of rows."""
    shape = config.get("newshape")
    match shape:
        case [None, *sizes] | [-1, *sizes] if all(type(size) is int for size in sizes):
            if shape[0] is None or -1 not in sizes:
                return Part((Reshape(tuple(sizes)),))
    raise config.wrong("newshape", shape, "-1 for the batch and then the shape of a row")


def gelu(config: LayerConfig, shapes: Any) -> Part:
    """Gelu, approximate by default unlike the activation "gelu"."""
    return Part((Gelu(config.flag("approximate", True)),))


def celu(config: LayerConfig, shapes: Any) -> Part:
    """Celu."""
    return Part((Celu(config.number("alpha", 1.0)),))


def leaky_relu(config: LayerConfig, shapes: Any) -> Part:
    """LeakyRelu, whose slope by default is not that of the layer."""
    return Part((LeakyRelu(config.number("negative_slope", 0.2)),))


def softmax(config: LayerConfig, shapes: Sequence[Shape]) -> Part:
    """Softmax over the last axis."""
    _over_the_last_axis(config, shapes)
    return keras_activations.softmax(config, shapes)


def log_softmax(config: LayerConfig, shapes: Sequence[Shape]) -> Part:
    """LogSoftmax over the last axis."""
    _over_the_last_axis(config, shapes)
    return Part((LogSoftmax(),))


def _of_one(conversion: Callable[[LayerConfig, Any], Part]) -> Reading:
    """Of an operation on one array, from what makes layers of its options."""

    def reading(config: LayerConfig, args: Sequence[Any], shapes: Sequence[Shape]) -> Part | None:
        return conversion(config, shapes) if len(args) == 1 and isinstance(args[0], Tensor) else None

    return reading


def _named(name: str) -> Reading:
    """Of an activation without options."""
    return _of_one(lambda config, shapes: Part((keras_activations.NAMES[name],)))


def _over_the_last_axis(config: LayerConfig, shapes: Sequence[Shape], default: int = -1) -> None:
    config.last_axis(len(shapes[0]), default)
    if not shapes[0]:  # whose last axis is that of rows
        raise config.wrong("axis", config.get("axis"), "one of a row, which is a single number here")


def _is_constant(value: Any) -> bool:
    return is_number(value) and abs(value) <= LARGEST


def _times(number: float) -> tuple[Layer, ...]:
    return () if number == 1 else (Scale(float(number)),)


def _plus(number: float) -> tuple[Layer, ...]:
    return () if number == 0 else (Shift(float(number)),)


OPERATIONS: dict[str, Reading] = {
    **keras_axes.OPERATIONS,
    "Add": add,
    "Celu": _of_one(celu),
    "Concatenate": concatenate,
    "Divide": divide,
    "Elu": _of_one(keras_activations.elu),
    "Gelu": _of_one(gelu),
    "HardSigmoid": _named("hard_sigmoid"),
    "HardSilu": _named("hard_silu"),
    "HardTanh": _named("hard_tanh"),
    "LeakyRelu": _of_one(leaky_relu),
    "LogSigmoid": _named("log_sigmoid"),
    "LogSoftmax": _of_one(log_softmax),
    "Maximum": maximum,
    "Minimum": minimum,
    "Mish": _named("mish"),
    "Multiply": multiply,
    "Negative": _of_one(negative),
    "Power": power,
    "ReLU": _of_one(keras_activations.relu),
    "Relu": _named("relu"),
    "Relu6": _named("relu6"),
    "Reshape": _of_one(reshape),
    "Selu": _named("selu"),
    "Sigmoid": _named("sigmoid"),
    "Silu": _named("silu"),
    "Softmax": _of_one(softmax),
    "Softplus": _named("softplus"),
    "Softsign": _named("softsign"),
    "Square": _of_one(square),
    "Subtract": subtract,
    "Tanh": _named("tanh"),
    "TrueDivide": divide,
}
