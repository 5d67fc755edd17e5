"""TensorFlow's side of the CIFAR-10 benchmark: the tutorial's network by TensorFlow's own operations, NHWC."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from contestants import tutorial
from contestants.serve import Spec, Taker, Turn
from contestants.tutorial import BATCH, CROP, DECAY, DECAYED, SEED, SIDE

Variables = dict[str, Any]


def variables(weights: Mapping[str, tutorial.Array]) -> Variables:
    """Variables of these weights."""
    return {name: tf.Variable(array) for name, array in weights.items()}


def logits(weights: Variables, x: Any) -> Any:
    """Scores (n, 10) of standardised images (n, CROP, CROP, 3)."""
    x = _lrn(tf.nn.max_pool2d(_conv(weights, "conv_1", x), 3, 2, "SAME"))
    x = tf.nn.max_pool2d(_lrn(_conv(weights, "conv_2", x)), 3, 2, "SAME")
    x = tf.reshape(x, (-1, weights["dense_1/kernel"].shape[0]))
    for name in ("dense_1", "dense_2"):
        x = tf.nn.relu(_dense(weights, name, x))
    return _dense(weights, "dense_3", x)


def objective(weights: Variables, x: Any, labels: Any) -> Any:
    """Mean cross-entropy plus the decay's penalty."""
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits(weights, x))
    return tf.reduce_mean(losses) + DECAY * tf.add_n([tf.nn.l2_loss(weights[name]) for name in DECAYED])


def augmented(images: Any, number: Any) -> Any:
    """Random crops, flips, brightness and contrast of uint8 images (n, SIDE, SIDE, 3), for step `number`."""
    rows = tf.shape(images)[0]

    def draw(kind: int, shape: tuple[Any, ...], low: Any, high: Any, dtype: Any = tf.float32) -> Any:
        return tf.random.stateless_uniform(shape, tf.stack([SEED * 4 + kind, number]), low, high, dtype)

    corner = draw(0, (rows, 2), 0, SIDE - CROP + 1, tf.int32)
    mirrored = draw(1, (rows, 1), 0, 2, tf.int32) > 0
    along = tf.range(CROP)
    across = corner[:, 1:] + tf.where(mirrored, CROP - 1 - along, along)
    x = tf.gather(tf.gather(images, corner[:, :1] + along, batch_dims=1), across, axis=2, batch_dims=1)
    x = tf.cast(x, tf.float32) + draw(2, (rows, 1, 1, 1), -tutorial.MAX_DELTA, tutorial.MAX_DELTA)
    mean = tf.reduce_mean(x, (1, 2), keepdims=True)
    return tf.image.per_image_standardization((x - mean) * draw(3, (rows, 1, 1, 1), *tutorial.CONTRAST) + mean)


def make_step(weights: Variables, xla: bool, augment: bool) -> Callable[..., Any]:
    """`step(images, labels, rate, number) -> objective`, compiled."""

    def step(images: Any, labels: Any, rate: Any, number: Any) -> Any:
        x = augmented(images, number) if augment else images
        with tf.GradientTape() as tape:
            value = objective(weights, x, labels)
        for name, slope in tape.gradient(value, weights).items():
            weights[name].assign_sub(rate * slope)
        return value

    return tf.function(step, jit_compile=True if xla else None, reduce_retracing=True)


def step(spec: Spec) -> Taker:
    """Training steps on one prepared batch; the setting `xla` compiles them with XLA."""
    _threads(spec)
    images, labels = tutorial.read_rows(Path(spec.folder), "train", BATCH)
    batch = tf.constant(tutorial.centred(images)), tf.constant(labels)
    advance = make_step(variables(tutorial.read_weights(Path(spec.folder))), spec.settings["xla"], augment=False)
    rate, number = tf.constant(tutorial.STEP_SIZE), tf.constant(0)
    return _taker(lambda: advance(*batch, rate, number))


def fit(spec: Spec) -> Taker:
    """Training steps on shuffled batches from memory, with augmentation; the setting `xla` compiles them with XLA."""
    _threads(spec)
    batches = tutorial.shuffled(*tutorial.read_rows(Path(spec.folder), "train", spec.steps * BATCH))
    advance = make_step(variables(tutorial.read_weights(Path(spec.folder))), spec.settings["xla"], augment=True)
    rate = tf.constant(tutorial.STEP_SIZE)
    numbered = enumerate(batches)

    def once() -> Any:
        number, (images, labels) = next(numbered)
        return advance(tf.constant(images), tf.constant(labels), rate, tf.constant(number))

    return _taker(once)


def learn(spec: Spec) -> Taker:
    """Training on the batches that ours has left, of as many whole epochs as hold the steps."""
    _threads(spec)
    folder = Path(spec.folder)
    (images, labels), (test, truth) = (tutorial.read_lesson(folder, split, spec.steps) for split in ("train", "test"))

    def take(steps: int) -> Turn:
        weights = variables(tutorial.read_weights(folder))
        advance = make_step(weights, xla=False, augment=True)
        number, history, started = 0, [], time.perf_counter()
        for epoch, batches in enumerate(tutorial.read_order(folder, steps)):
            rate, values = tf.constant(tutorial.step_size(epoch)), []
            for chosen in batches:
                batch = tf.constant(images[chosen]), tf.constant(labels[chosen])
                values.append(advance(*batch, rate, tf.constant(number)) * len(chosen))
                number += 1
            history.append(float(np.sum(values)) / len(labels))
        seconds = time.perf_counter() - started
        found = [np.argmax(logits(weights, part), axis=1) for part in np.array_split(tutorial.centred(test), 20)]
        accuracy = float(np.mean(np.concatenate(found) == truth))
        return tutorial.lesson(seconds, number, history, accuracy)

    return take


def _threads(spec: Spec) -> None:
    tf.config.threading.set_intra_op_parallelism_threads(len(spec.cores))
    tf.config.threading.set_inter_op_parallelism_threads(1)


def _taker(once: Callable[[], Any]) -> Taker:
    """What takes turns of such steps, warmed up."""

    def take(steps: int) -> Turn:
        started = time.perf_counter()
        values = [once() for _ in range(steps)]
        loss = float(np.mean(values))
        return {"seconds": time.perf_counter() - started, "steps": steps, "loss": loss}

    take(2)
    return take


def _conv(weights: Variables, name: str, x: Any) -> Any:
    y = tf.nn.conv2d(x, weights[f"{name}/kernel"], 1, "SAME")
    return tf.nn.relu(tf.nn.bias_add(y, weights[f"{name}/bias"]))


def _lrn(x: Any) -> Any:
    return tf.nn.local_response_normalization(x, tutorial.RADIUS, tutorial.BIAS, tutorial.ALPHA, tutorial.BETA)


def _dense(weights: Variables, name: str, x: Any) -> Any:
    return tf.nn.bias_add(tf.matmul(x, weights[f"{name}/kernel"]), weights[f"{name}/bias"])
