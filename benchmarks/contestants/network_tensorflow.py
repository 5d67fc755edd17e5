"""TensorFlow's side of the benchmark of residual networks: the same layers by its own operations, NHWC."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from contestants.network_cases import STEP_SIZE, network_of, read_batches, read_weights, taker
from contestants.serve import Spec, Taker

from sparkdl import Network
from sparkdl.layers import Add, BatchNorm, Conv, Dense, DepthwiseConv, Dropout, GlobalAvgPool, Layer, Relu, Relu6
from sparkdl.layers.composite import Composite, read_by
from sparkdl.layers.windows import Windows

Variables = dict[str, Any]


def forward(layer: Layer, weights: Variables, x: Any, moved: list[tuple[Any, Any]]) -> Any:
    """The layer's output in training; `moved` gets the variables of running statistics with their new values."""
    if isinstance(layer, Composite):
        values = [x]
        for child in layer.children:
            values.append(forward(child.layer, weights.get(child.name, {}), read_by(child, values), moved))
        return values[-1]
    if isinstance(layer, Add):
        return tf.add_n(x)
    if isinstance(layer, Relu):
        return tf.nn.relu(x)
    if isinstance(layer, Relu6):
        return tf.nn.relu6(x)
    if isinstance(layer, Dropout) and layer.rate == 0:
        return x
    if isinstance(layer, GlobalAvgPool):
        return tf.reduce_mean(x, (1, 2))
    if isinstance(layer, Dense):
        return tf.matmul(x, weights["kernel"]) + weights["bias"]
    if isinstance(layer, BatchNorm):
        y, mean, variance = tf.compat.v1.nn.fused_batch_norm(
            x, weights["scale"], weights["bias"], epsilon=layer.epsilon
        )
        moved += [(weights["mean"], mean, layer.momentum), (weights["variance"], variance, layer.momentum)]
        return y
    if isinstance(layer, Conv | DepthwiseConv):
        windows = Windows.over(x.shape[1:3], layer.size, layer.strides, layer.padding)
        padding = [(0, 0), *windows.padding, (0, 0)]
        if isinstance(layer, Conv):
            return tf.nn.conv2d(x, weights["kernel"], windows.strides, padding)
        kernel = tf.transpose(weights["kernel"], (0, 1, 3, 2))
        return tf.nn.depthwise_conv2d(tf.pad(x, padding), kernel, (1, *windows.strides, 1), "VALID")
    raise ValueError(f"A layer must have a counterpart in TensorFlow, received {layer!r}; add it here.")


def step(spec: Spec) -> Taker:
    """Training steps on prepared batches."""
    tf.config.threading.set_intra_op_parallelism_threads(len(spec.cores))
    tf.config.threading.set_inter_op_parallelism_threads(1)
    case, folder = spec.settings["case"], Path(spec.folder)
    network = network_of(case)
    weights = tf.nest.map_structure(tf.Variable, read_weights(folder, case))
    prepared = [(tf.constant(images), tf.constant(labels)) for images, labels in read_batches(folder, case)]
    advance, batches = _make_step(network, weights), itertools.cycle(prepared)
    started = time.perf_counter()
    before = tf.nest.map_structure(lambda variable: variable.numpy(), weights)
    advance(*prepared[0])
    tf.nest.map_structure(lambda variable, value: variable.assign(value), weights, before)
    return taker(advance, batches, time.perf_counter() - started)


def _make_step(network: Network, weights: Variables) -> Any:
    """`step(images, classes) -> loss`: one step of SGD, as a graph."""
    learned = tf.nest.flatten(network.learned(weights))

    def step(images: Any, classes: Any) -> Any:
        moved: list[Any] = []
        with tf.GradientTape() as tape:
            scores = forward(network, weights, images, moved)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(classes, scores))
        for variable, slope in zip(learned, tape.gradient(loss, learned), strict=True):
            variable.assign_sub(np.float32(STEP_SIZE) * slope)
        for variable, value, momentum in moved:
            variable.assign(momentum * variable + (1 - momentum) * value)
        return loss

    return tf.function(step)
