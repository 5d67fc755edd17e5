"""Keras's activations, as options of other layers and as layers of their own."""

from __future__ import annotations

from typing import Any

from sparkdl.interchange.keras_in.layer_config import LayerConfig
from sparkdl.interchange.keras_in.part import Part, Variable
from sparkdl.layers import (
    Celu,
    Elu,
    Gelu,
    HardSigmoid,
    HardSwish,
    HardTanh,
    Layer,
    LeakyRelu,
    LogSigmoid,
    LogSoftmax,
    Mish,
    PRelu,
    Relu,
    Relu6,
    Rescale,
    Selu,
    Sigmoid,
    Silu,
    Softmax,
    Softplus,
    Softsign,
    Tanh,
    ThresholdedRelu,
)

NAMES: dict[str, Layer] = {
    "celu": Celu(),
    "elu": Elu(),
    "gelu": Gelu(),
    "hard_sigmoid": HardSigmoid(),
    "hard_silu": HardSwish(),
    "hard_swish": HardSwish(),
    "hard_tanh": HardTanh(),
    "leaky_relu": LeakyRelu(0.2),
    "log_sigmoid": LogSigmoid(),
    "log_softmax": LogSoftmax(),
    "mish": Mish(),
    "relu": Relu(),
    "relu6": Relu6(),
    "selu": Selu(),
    "sigmoid": Sigmoid(),
    "silu": Silu(),
    "softmax": Softmax(),
    "softplus": Softplus(),
    "softsign": Softsign(),
    "swish": Silu(),
    "tanh": Tanh(),
}


def activation(config: LayerConfig, shapes: Any = ()) -> tuple[Layer, ...]:
    """The layer that the option `activation` asks for, or none."""
    value = config.get("activation")
    if value in (None, "linear"):
        return ()
    if isinstance(value, dict) and value.get("class_name") in LAYERS and isinstance(value.get("config"), dict):
        own = LayerConfig(value["class_name"], config.name, value["config"], config.version)
        part = LAYERS[own.kind](own, shapes)
        own.check_read()
        return part.layers
    if not isinstance(value, str) or value not in NAMES:
        raise config.wrong("activation", value, f"one of {', '.join(NAMES)}")
    if value == "hard_sigmoid" and config.version < 3:  # another one, of slope 0.2
        return Rescale(0.2, 0.5), HardTanh(0.0, 1.0)
    return (NAMES[value],)


def activation_layer(config: LayerConfig, shapes: Any) -> Part:
    """Activation."""
    return Part(activation(config))


def relu(config: LayerConfig, shapes: Any) -> Part:
    """ReLU, with a slope, a threshold or a limit."""
    slope, threshold, limit = (config.get(name) or 0 for name in ("negative_slope", "threshold", "max_value"))
    if config.get("max_value") is None and not (slope and threshold):
        if threshold:
            return Part((ThresholdedRelu(config.number("threshold")),))
        return Part((LeakyRelu(config.number("negative_slope")) if slope else Relu(),))
    if slope or threshold:
        raise config.wrong("max_value", config.get("max_value"), "None with a slope or a threshold, of which one is 0")
    return Part((Relu6() if limit == 6 else HardTanh(0.0, config.number("max_value")),))


def leaky_relu(config: LayerConfig, shapes: Any) -> Part:
    """LeakyReLU, whose slope Keras 2 called alpha."""
    return Part((LeakyRelu(config.number("alpha" if "alpha" in config.options else "negative_slope", 0.3)),))


def elu(config: LayerConfig, shapes: Any) -> Part:
    """ELU."""
    return Part((Elu(config.number("alpha", 1.0)),))


def thresholded_relu(config: LayerConfig, shapes: Any) -> Part:
    """ThresholdedReLU of Keras 2."""
    return Part((ThresholdedRelu(config.number("theta", 1.0)),))


def softmax(config: LayerConfig, shapes: Any) -> Part:
    """Softmax over the last axis."""
    config.last_axis(len(shapes[0]) if shapes else -1)
    return Part((Softmax(),))


def p_relu(config: LayerConfig, shapes: Any) -> Part:
    """PReLU whose positions share their slopes."""
    axes = list(range(1, len(shapes[0])))
    if sorted(config.get("shared_axes") or []) != axes:
        raise config.wrong("shared_axes", config.get("shared_axes"), f"{axes}, all but the last")
    return Part((PRelu(),), (Variable("alpha", ("slope",), lambda array: (array.reshape(-1),)),))


LAYERS = {"ReLU": relu, "LeakyReLU": leaky_relu, "ELU": elu, "Softmax": softmax, "ThresholdedReLU": thresholded_relu}
