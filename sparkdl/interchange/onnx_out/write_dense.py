"""Layers that are products of rows with matrices."""

from __future__ import annotations

import numpy as np

from sparkdl.interchange.onnx_out.value import Value
from sparkdl.interchange.onnx_out.writing import Takes, Writer, Writing
from sparkdl.layers import (
    CrossLayer,
    Dense,
    FeatureTokens,
    FeedForward,
    Highway,
    Maxout,
    OneClass,
    Prototypes,
    SqueezeExcite,
    TiedDense,
)
from sparkdl.layers.base import Layer, Weights


def product(
    out: Writing, x: str, weights: Weights, prefix: str = "", kernel: str = "kernel", bias: str = "bias"
) -> str:
    """x @ kernel + bias, along the last axis; the arrays' names begin with `prefix`."""
    y = out.op("MatMul", x, out.weight(prefix + kernel, weights[kernel]))
    return out.op("Add", y, out.weight(prefix + bias, weights[bias])) if bias in weights else y


def _dense(out: Writing, layer: Dense, weights: Weights, x: Value) -> Value:
    """Of an image that was flattened channels first the kernel is put in that order."""
    if x.channels_first:
        x = out.channels_last(x)
    elif x.image:
        kernel = np.asarray(weights["kernel"]).reshape(*x.image, -1)
        kernel = np.moveaxis(kernel, len(x.image) - 1, 0).reshape(-1, layer.units)
        weights = {**weights, "kernel": kernel}
    return Value(product(out, x.name, weights), (layer.units,))


def _maxout(out: Writing, layer: Maxout, weights: Weights, x: Value) -> str:
    pieces = out.reshape(product(out, x.name, weights), 0, layer.pieces, layer.units)
    return out.reduce("ReduceMax", pieces, [1], keep=False)


def _prototypes(out: Writing, layer: Prototypes, weights: Weights, x: Value) -> str:
    apart = out.op("Sub", out.unsqueeze(x.name, -2), out.weight("centers", weights["centers"]))
    return out.op("Neg", out.reduce("ReduceSum", out.op("Mul", apart, apart), [-1], keep=False))


def _tied_dense(out: Writing, layer: TiedDense, weights: Weights, x: Value) -> str:
    return out.op("MatMul", x.name, out.op("Transpose", out.weight("table", weights["table"]), perm=[1, 0]))


def _feed_forward(out: Writing, layer: FeedForward, weights: Weights, x: Value) -> str:
    z = product(out, x.name, weights["gate" if layer.gated else "inner"], "gate/" if layer.gated else "inner/")
    assert isinstance(layer.activation, Layer)
    active = out.layer(
        layer.activation, {}, out.place.within("activation"), Value(z, (*x.shape[:-1], layer.units))
    ).name
    if layer.gated:
        active = out.op("Mul", active, product(out, x.name, weights["inner"], "inner/"))
    return product(out, active, weights["outer"], "outer/")


def _highway(out: Writing, layer: Highway, weights: Weights, x: Value) -> str:
    z = Value(product(out, x.name, weights), x.shape, x.lengths)
    made = out.layer(layer.activation, {}, out.place.within("activation"), z).name
    gate = out.op("Sigmoid", product(out, x.name, weights, "", "gate_kernel", "gate_bias"))
    return out.op("Add", x.name, out.op("Mul", gate, out.op("Sub", made, x.name)))


def _squeeze_excite(out: Writing, layer: SqueezeExcite, weights: Weights, x: Value) -> str:
    mean = out.reduce("ReduceMean", x.name, range(2, x.rank), keep=False)
    squeezed = out.op("Relu", product(out, mean, weights, "", "squeeze", "squeeze_bias"))
    gate = out.op("Sigmoid", product(out, squeezed, weights, "", "excite", "excite_bias"))
    return out.op("Mul", x.name, out.unsqueeze(gate, *range(2, x.rank)))


def _cross_layer(out: Writing, layer: CrossLayer, weights: Weights, first: Value, last: Value) -> str:
    read = last.name
    if layer.rank is not None:
        read = out.op("MatMul", read, out.weight("down", weights["down"]))
    return out.op("Add", out.op("Mul", first.name, product(out, read, weights)), last.name)


def _feature_tokens(out: Writing, layer: FeatureTokens, weights: Weights, x: Value) -> str:
    scaled = out.op("Mul", out.unsqueeze(x.name, -1), out.weight("kernel", weights["kernel"]))
    return out.op("Add", scaled, out.weight("bias", weights["bias"]))


def _one_class(out: Writing, layer: OneClass, weights: Weights, x: Value) -> str:
    return out.op("Sub", product(out, x.name, weights), out.weight("threshold", weights["threshold"]))


WRITERS: dict[type[Layer], Writer] = {
    Dense: Writer(_dense, Takes.ANY),
    Maxout: Writer(_maxout, by_row=True),
    OneClass: Writer(_one_class),
    Prototypes: Writer(_prototypes),
    TiedDense: Writer(_tied_dense),
    FeedForward: Writer(_feed_forward),
    Highway: Writer(_highway),
    SqueezeExcite: Writer(_squeeze_excite, Takes.CHANNELS_FIRST),
    CrossLayer: Writer(_cross_layer),
    FeatureTokens: Writer(_feature_tokens),
}
