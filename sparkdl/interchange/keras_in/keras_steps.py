"""Keras's layers over the steps of rows: recurrent ones, and attention."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sparkdl.interchange.keras_in.keras_merges import BY_MODE
from sparkdl.interchange.keras_in.layer_config import LayerConfig
from sparkdl.interchange.keras_in.part import Part, Variable, named
from sparkdl.layers import (
    Bidirectional,
    FirstStep,
    Gru,
    LastStep,
    Lstm,
    Masking,
    MultiHeadAttention,
    Parallel,
    ReverseSteps,
    SimpleRnn,
)
from sparkdl.layers.curves import CURVES
from sparkdl.layers.recurrent import Recurrent
from sparkdl.network import Network


def recurrent(config: LayerConfig, shapes: Any) -> Part:
    """LSTM, GRU and SimpleRNN."""
    layer, variables, sequences = _one_way(config)
    if not sequences:
        return Part((layer, FirstStep() if layer.backwards else LastStep()), variables)
    return Part((layer, *[ReverseSteps()] * layer.backwards), variables)  # Keras leaves y in the order of its steps


def masking(config: LayerConfig, shapes: Any) -> Part:
    """Masking."""
    value = config.number("mask_value", 0.0)
    return Part((Masking(value),) if config.masked else ())


def bidirectional(config: LayerConfig, shapes: Any) -> Part:
    """Bidirectional of one of these."""
    forward, own, sequences = _one_way(_inner(config, "layer"))
    backward, other = replace(forward, backwards=True), own
    if config.get("backward_layer") is not None:
        backward, other, _ = _one_way(_inner(config, "backward_layer"))
    if forward.backwards or replace(forward, backwards=True) != backward:
        raise config.wrong("backward_layer", backward, f"like its layer, {forward}, but for going backwards")
    merge = BY_MODE[config.only("merge_mode", *BY_MODE)]
    sides = {"forward": own, "backward": other}
    variables = {
        side: tuple(variable.within(side, f"{side}_layer") for variable in both) for side, both in sides.items()
    }
    if sequences:
        return Part((Bidirectional(forward, merge),), (*variables["forward"], *variables["backward"]))
    ways = [(forward, LastStep(), "forward"), (backward, FirstStep(), "backward")]
    branches = [Network([replace(layer, name="steps"), end], name=side) for layer, end, side in ways]
    below = [
        replace(variable, ours=tuple(f"{side}/steps/{path.partition('/')[2]}" for path in variable.ours))
        for side in sides
        for variable in variables[side]
    ]
    return Part((Parallel(branches, merge),), tuple(below))


def attention(config: LayerConfig, shapes: Any) -> Part:
    """MultiHeadAttention of rows to themselves or to others."""
    size = config.integer("key_dim")
    config.only("value_dim", None, size)
    config.only("output_shape", None, shapes[0][-1], [shapes[0][-1]])
    config.only("attention_axes", None, [1])
    return _attending(config, config.integer("num_heads"), size)


def grouped_attention(config: LayerConfig, shapes: Any) -> Part:
    """GroupQueryAttention, of which several heads share keys and values."""
    heads, few = config.integer("num_query_heads"), config.integer("num_key_value_heads")
    return _attending(config, heads, config.integer("head_dim"), few)


def _attending(config: LayerConfig, heads: int, size: int, few: int | None = None) -> Part:
    query, value, *key = config.sources
    if (key or [value])[0] != value:
        raise config.wrong("key of its call", key[0], f"its value, {value!r}")
    config.only("flash_attention", None, True, False)  # how it is computed, not what
    causal, bias = config.call.get("use_causal_mask") is True, config.flag("use_bias", True)
    config.read.add("use_causal_mask")
    rate = config.number("dropout", 0.0)
    layer = MultiHeadAttention(heads, size, few, causal=causal, dropout=rate, bias=bias)
    variables = tuple(
        Variable(array, (f"{name}/{array}",), places=(f"{name}_dense", f"_{name}_dense"))
        for name in ("query", "key", "value", "output")
        for array in ("kernel", *["bias"] * bias)
    )
    return Part((layer,), variables, reads=(0,) if query == value else (0, 1))


def _one_way(config: LayerConfig) -> tuple[Recurrent, tuple[Variable, ...], bool]:
    """The layer, its variables, and whether all steps are wanted of it."""
    if (kind := LAYERS.get(config.kind)) is None:
        raise config.wrong("layer", config.kind, f"one of {', '.join(LAYERS)}")
    for option in ("stateful", "return_state", "time_major"):
        config.only(option, False, None)
    trainable = config.flag("trainable", True)
    given: dict[str, Any] = {
        "trainable": trainable,
        "bias": config.flag("use_bias", True),
        "backwards": config.flag("go_backwards", False),
        "dropout": config.number("dropout", 0.0),
        "recurrent_dropout": config.number("recurrent_dropout", 0.0),
    }
    given["activation"] = _curve(config, "activation", "tanh")
    if kind is not SimpleRnn:
        given["recurrent_activation"] = _curve(config, "recurrent_activation", "sigmoid")
    if kind is Lstm:
        config.flag("unit_forget_bias", True)  # of how weights start
    if kind is Gru:
        given["reset_after"] = config.flag("reset_after", config.version >= 3)
    layer = kind(config.integer("units"), **given)
    both = kind is Gru and given["reset_after"] and layer.bias
    bias = Variable("bias", ("bias", "recurrent_bias"), _two_rows, ("cell",)) if both else None
    variables = (
        Variable("kernel", ("kernel",), places=("cell",)),
        Variable("recurrent_kernel", ("recurrent",), places=("cell",)),
        *([bias] if bias else named(place="cell", bias=layer.bias)),
    )
    sequences = config.flag("return_sequences", False)
    config.check_read()
    return layer, tuple(replace(variable, learned=trainable) for variable in variables), sequences


KERAS_CURVES = tuple(name for name in CURVES if name != "hard_sigmoid_0.2")
LAYERS: dict[str, type[Recurrent]] = {"GRU": Gru, "LSTM": Lstm, "SimpleRNN": SimpleRnn}


def _curve(config: LayerConfig, option: str, usual: str) -> str:
    """The name here of an activation; Keras 3 has another hard sigmoid than versions before it."""
    name = str(config.only(option, usual, *KERAS_CURVES))
    return "hard_sigmoid_0.2" if name == "hard_sigmoid" and config.version < 3 else name


def _two_rows(array: Any) -> tuple[Any, ...]:
    one, other = array
    return one, other


def _inner(config: LayerConfig, option: str) -> LayerConfig:
    """That of a layer that is an option of another one."""
    value = config.get(option)
    if not isinstance(value, dict) or not isinstance(value.get("config"), dict):
        raise config.wrong(option, value, "a layer")
    return LayerConfig(str(value.get("class_name")), config.name, value["config"], config.version)
