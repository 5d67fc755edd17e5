"""Has Keras, in a process of its own, write models with random weights, what they read and what they put out.

python keras_peer.py FOLDER TABLE writes, for each model of a table, NAME.keras, NAME.h5 and NAME.npz.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

IMAGE, STEPS, VECTOR = (6, 5, 4), (5, 4), (4,)
ROWS = 3
NO_H5 = ("varied images",)  # which Keras 3.15 cannot write as such

# By name: the shape of a row, and the layers, given keras.layers.
LAYERS: dict[str, tuple[tuple[int, ...], Callable[[Any], list[Any]]]] = {
    "activations": (VECTOR, lambda k: [k.Dense(4, activation=name) for name in ACTIVATIONS]),
    "activation layers": (
        IMAGE,
        lambda k: [
            *(k.Activation("tanh"), k.ReLU(), k.ReLU(6.0), k.ReLU(negative_slope=0.1), k.LeakyReLU(0.2), k.ELU(0.5)),
            *(k.ReLU(0.8), k.PReLU(shared_axes=[1, 2]), k.Activation("linear"), k.Softmax()),
        ],
    ),
    "activation of large numbers alone": (IMAGE, lambda k: [k.ReLU(threshold=0.1), k.ReLU(threshold=0.5)]),
    "activation by a layer": (VECTOR, lambda k: [k.Dense(4, activation=k.LeakyReLU(0.4))]),
    "slopes of a vector": (VECTOR, lambda k: [k.PReLU()]),
    "dense over steps": (STEPS, lambda k: [k.Dense(3, "relu"), k.Dense(2, use_bias=False)]),
    "dense over positions": (IMAGE, lambda k: [k.Dense(3)]),
    "conv": (IMAGE, lambda k: [k.Conv2D(6, (3, 2), groups=2, activation="swish"), k.Conv2D(2, 1, use_bias=False)]),
    "conv same": (IMAGE, lambda k: [k.Conv2D(3, 3, 2, "same"), k.Conv2D(2, 2, padding="same", dilation_rate=2)]),
    "conv over time": (STEPS, lambda k: [k.Conv1D(3, 3, padding="causal", dilation_rate=2), k.Conv1D(2, 2, 2)]),
    "conv of volumes": ((4, 3, 5, 2), lambda k: [k.Conv3D(3, 2, padding="same"), k.MaxPooling3D(2, padding="same")]),
    "depthwise": (IMAGE, lambda k: [k.DepthwiseConv2D(3, 2, "same", depth_multiplier=2), k.DepthwiseConv2D(2)]),
    "depthwise over time": (STEPS, lambda k: [k.DepthwiseConv1D(3, padding="same", depth_multiplier=3)]),
    "separable": (IMAGE, lambda k: [k.SeparableConv2D(3, 3, 2, "same", depth_multiplier=2, activation="relu")]),
    "separable over time": (STEPS, lambda k: [k.SeparableConv1D(3, 2, use_bias=False)]),
    "transposed": (IMAGE, lambda k: [k.Conv2DTranspose(3, 3, 2, "same"), k.Conv2DTranspose(2, 2, 3)]),
    "transposed wide": (IMAGE, lambda k: [k.Conv2DTranspose(3, (4, 3), 2, output_padding=(1, 0), activation="elu")]),
    "transposed over time": (STEPS, lambda k: [k.Conv1DTranspose(3, 4, 2, "same"), k.Conv1DTranspose(2, 3, 2)]),
    "pools": (IMAGE, lambda k: [k.MaxPooling2D(2, 1, "same"), k.AveragePooling2D((3, 2), padding="same")]),
    "pools over time": (STEPS, lambda k: [k.MaxPooling1D(2, 1), k.AveragePooling1D(2, 2)]),
    "mean of positions": (IMAGE, lambda k: [k.GlobalAveragePooling2D(keepdims=True), k.Conv2D(2, 1)]),
    "greatest of positions": (IMAGE, lambda k: [k.GlobalMaxPooling2D()]),
    "mean of steps": (STEPS, lambda k: [k.GlobalAveragePooling1D()]),
    "greatest of steps": (STEPS, lambda k: [k.GlobalMaxPooling1D(keepdims=True)]),
    "edges": (IMAGE, lambda k: [k.ZeroPadding2D(((0, 1), (2, 1))), k.Cropping2D(((1, 0), (0, 2))), k.ZeroPadding2D(1)]),
    "edges over time": (STEPS, lambda k: [k.ZeroPadding1D((2, 1)), k.Cropping1D((0, 1)), k.UpSampling1D(2)]),
    "more positions": (IMAGE, lambda k: [k.UpSampling2D((2, 3)), k.UpSampling2D(2, interpolation="bilinear")]),
    "shapes": (IMAGE, lambda k: [k.Permute((3, 1, 2)), k.Reshape((8, -1)), k.Flatten(), k.RepeatVector(3)]),
    "batch norm": (IMAGE, lambda k: [k.BatchNormalization(), k.BatchNormalization(scale=False, epsilon=0.1)]),
    "batch norm frozen": (VECTOR, lambda k: [k.BatchNormalization(trainable=False), k.Dense(2, trainable=False)]),
    "norms": (IMAGE, lambda k: [k.LayerNormalization(center=False), k.GroupNormalization(2), k.RMSNormalization()]),
    "norms of instances": (IMAGE, lambda k: [k.GroupNormalization(-1, scale=False), k.UnitNormalization()]),
    "rescaling": (IMAGE, lambda k: [k.Rescaling(0.5, 1.0), k.Rescaling([0.5, 2.0, 1.0, 3.0], [1.0, 2.0, 0.0, -1.0])]),
    "normalization": (VECTOR, lambda k: [k.Normalization(mean=[0.0, 1, 2, 3], variance=[1.0, 0, 2, 4])]),
    "normalization by one": (IMAGE, lambda k: [k.Normalization(mean=1.0, variance=4.0), k.Flatten()]),
    "normalization learned": (STEPS, lambda k: [adapted(k.Normalization(name="columns")), k.Dense(2)]),
    "noise": (
        IMAGE,
        lambda k: [
            *(k.Dropout(0.2), k.Dropout(0.2, noise_shape=(None, 1, 1, 1)), k.SpatialDropout2D(0.1)),
            *(k.GaussianNoise(0.1), k.GaussianDropout(0.1), k.AlphaDropout(0.1), k.ActivityRegularization(0.1)),
        ],
    ),
    "resizing": (
        IMAGE,
        lambda k: [k.Resizing(8, 7, "bicubic"), k.CenterCrop(7, 4), k.Resizing(3, 9), k.Resizing(2, 4, antialias=True)],
    ),
    "buckets": (VECTOR, lambda k: [k.Discretization([-0.5, 0.0, 0.25]), k.Embedding(4, 3)]),
    "varied images": (
        IMAGE,
        lambda k: [
            *(k.RandomFlip(), k.RandomRotation(0.1), k.RandomTranslation(0.1, (0.0, 0.2)), k.RandomZoom((-0.2, 0.1))),
            *(k.RandomBrightness(0.2), k.RandomContrast(0.2, (0, 1)), k.RandomInvert(), k.Conv2D(2, 2)),
        ],
    ),
    "lstm": (STEPS, lambda k: [k.LSTM(3, return_sequences=True, dropout=0.1), k.LSTM(2, use_bias=False)]),
    "gru": (STEPS, lambda k: [k.GRU(3, return_sequences=True), k.GRU(2, reset_after=False)]),
    "simple rnn": (STEPS, lambda k: [k.SimpleRNN(3, "relu", return_sequences=True), k.SimpleRNN(2, go_backwards=True)]),
    "recurrent activations": (
        STEPS,
        lambda k: [
            k.LSTM(3, "relu", "hard_sigmoid", return_sequences=True),
            k.GRU(3, "softsign", "hard_sigmoid", return_sequences=True),
            k.SimpleRNN(3, "sigmoid", return_sequences=True),
            k.Bidirectional(k.LSTM(2, "elu", "linear")),
        ],
    ),
    "gru from the end": (STEPS, lambda k: [k.GRU(3, return_sequences=True, go_backwards=True), k.LSTM(2)]),
    "bidirectional": (
        STEPS,
        lambda k: [k.Bidirectional(k.LSTM(3, return_sequences=True)), k.Bidirectional(k.GRU(2), merge_mode="ave")],
    ),
    "bidirectional frozen within": (
        STEPS,
        lambda k: [k.Bidirectional(k.LSTM(3, trainable=False)), k.Dense(2, name="head")],
    ),
    "each step": (
        (3, *IMAGE),
        lambda k: [k.TimeDistributed(k.Conv2D(2, 2, activation="relu")), k.TimeDistributed(k.Flatten())],
    ),
}  # fmt: skip
ACTIVATIONS = (
    *("relu", "relu6", "elu", "selu", "gelu", "silu", "sigmoid", "tanh", "softplus", "hard_sigmoid", "leaky_relu"),
    *("celu", "hard_tanh", "log_sigmoid", "mish", "softsign", "log_softmax", "linear", "hard_silu", "softmax"),
)


def adapted(layer: Any) -> Any:
    """A Normalization that has seen rows, one column of which never changes."""
    rows = np.random.default_rng(1).normal(3, 2, (20, *STEPS))
    rows[..., 1] = 7
    layer.adapt(rows)
    return layer


def merging(keras: Any) -> Any:
    k, (one, other) = keras.layers, [keras.Input(VECTOR, name=name) for name in ("one", "other")]
    merged = [k.Add()([one, other]), k.Subtract()([one, other]), k.Multiply()([one, other]), one + other]
    merged += [
        k.Average()([one, other]),
        k.Maximum()([one, other]),
        k.Minimum()([one, other]),
        k.Dot(1, normalize=True)([one, other]),
    ]
    return keras.Model([one, other], [k.Concatenate()(merged), k.Dot(-1)([one, other])])


def one_merge(keras: Any) -> Any:
    one, other = [keras.Input(VECTOR, name=name) for name in ("one", "other")]
    return keras.Model([one, other], keras.layers.Dot(1)([one, other]))


def merge_and_more(keras: Any) -> Any:
    k, (one, other) = keras.layers, [keras.Input(VECTOR, name=name) for name in ("one", "other")]
    return keras.Model([one, other], k.Dense(2)(k.Multiply()([one, other])))


def squeeze_and_excite(keras: Any) -> Any:
    k, x = keras.layers, keras.Input(IMAGE)
    factors = k.Reshape((1, 1, 4))(k.GlobalAveragePooling2D()(x))
    return keras.Model(x, k.Multiply()([x, k.Conv2D(4, 1, activation="sigmoid")(factors)]))


def shared(keras: Any) -> Any:
    """A layer that is called three times, once behind a layer that it is listed before, and a name with a dot."""
    k, (one, other) = keras.layers, [keras.Input(VECTOR, name=name) for name in ("one", "two.5")]
    both = k.Dense(4, "relu", name="shared.dense")
    again = both(k.Dense(4, name="between")(both(one)))
    return keras.Model([one, other], k.Add(name="sum")([again, both(other)]))


def shared_for_two_sizes(keras: Any) -> Any:
    """Layers without weights, which for images of two sizes crop differently, and one with weights, which does not."""
    k, one, other = keras.layers, keras.Input(IMAGE, name="one"), keras.Input((9, 8, 4), name="other")
    crop, conv = k.CenterCrop(4, 3), k.Conv2D(2, 3, activation="relu")
    return keras.Model([one, other], [crop(one), crop(other), conv(one), conv(other)])


def nested(keras: Any) -> Any:
    """Models within a model, one of them frozen in part and called twice."""
    k = keras.layers
    inner = keras.Sequential([keras.Input(VECTOR), k.BatchNormalization(), k.Dense(4, trainable=False)], name="inner")
    inner.add(k.Dense(4, "tanh"))
    a, b = keras.Input(VECTOR, name="a"), keras.Input(VECTOR, name="b")
    two = keras.Model([a, b], k.Concatenate()([k.Dense(2)(a), k.BatchNormalization()(b)]), name="two")
    x, y = keras.Input(VECTOR, name="x"), keras.Input(VECTOR, name="y")
    return keras.Model([x, y], k.Dense(2)(two([inner(x), inner(y)])))


def embedded(keras: Any) -> Any:
    k, words, kind = keras.layers, keras.Input((5,), name="words"), keras.Input((), name="kind")
    steps = k.LSTM(3)(k.Embedding(7, 4)(words))
    return keras.Model([words, kind], k.Concatenate()([steps, k.Embedding(6, 2)(kind)]))


def attending(keras: Any) -> Any:
    k, x, others = keras.layers, keras.Input(STEPS, name="x"), keras.Input((7, 3), name="others")
    own = k.MultiHeadAttention(2, 3)(x, x, use_causal_mask=True)
    y = k.LayerNormalization()(k.Add()([x, own]))
    y = k.GroupQueryAttention(3, 4, 2)(y, y)
    return keras.Model([x, others], k.MultiHeadAttention(2, 2, use_bias=False)(query=y, value=others))


def of_any_length(keras: Any) -> Any:
    k, x = keras.layers, keras.Input((None, 4))
    steps = k.Bidirectional(k.LSTM(3, return_sequences=True))(k.Conv1D(3, 3, padding="same")(k.Dense(3)(x)))
    ends = [k.Bidirectional(k.GRU(2))(steps), k.GlobalAveragePooling1D()(steps), k.GlobalMaxPooling1D()(steps)]
    return keras.Model(x, k.Concatenate()(ends))


def masked(keras: Any) -> Any:
    """Steps without anything in the rows, and categories of which 0 is padding, wherever it stands."""
    k, words, series = keras.layers, keras.Input((5,), name="words"), keras.Input((5, 3), name="steps_or_none")
    steps = k.Dropout(0.1)(k.Embedding(7, 4, mask_zero=True)(words))
    y = k.Bidirectional(k.LSTM(3, return_sequences=True))(steps)
    ends = [k.GRU(2, go_backwards=True)(y), k.GlobalAveragePooling1D()(k.Dense(3, "relu")(y))]
    z = k.LayerNormalization()(k.Masking(-1.0)(series))
    z = k.Add()([z, k.MultiHeadAttention(2, 3)(z, z)])
    ends += [k.Bidirectional(k.LSTM(2))(z), k.GlobalAveragePooling1D()(k.TimeDistributed(k.Dense(2))(z))]
    return keras.Model([words, series], k.Concatenate()(ends))


def masked_of_any_length(keras: Any) -> Any:
    k = keras.layers
    layers = [k.Embedding(7, 4, mask_zero=True), k.LSTM(3, return_sequences=True), k.SimpleRNN(2), k.Dense(3)]
    return keras.Sequential([keras.Input((None,), name="words"), *layers])


def masked_steps(keras: Any) -> Any:
    k = keras.layers
    return keras.Sequential([keras.Input((None,), name="words"), k.Embedding(7, 4, mask_zero=True), k.Dense(2)])


def masked_and_more(keras: Any) -> Any:
    """A mask that a layer does not heed."""
    k = keras.layers
    layers = [k.Embedding(7, 4, mask_zero=True), k.Conv1D(3, 2, padding="same"), k.GlobalMaxPooling1D()]
    return keras.Sequential([keras.Input((None,), name="words"), *layers])


def masked_by_another(keras: Any) -> Any:
    """A mask that is none of the padding's, and that no row of those that are drawn is changed by."""
    k, words = keras.layers, keras.Input((None,), name="words")
    steps = k.Embedding(7, 4, mask_zero=True)(words)
    return keras.Model(words, k.LSTM(3)(steps, mask=keras.ops.not_equal(words, 6)))


def models_at_the_end(keras: Any) -> Any:
    """A functional model within a model whose first call is an output while the second is read on."""
    k, start, x, y = keras.layers, keras.Input(VECTOR), keras.Input(VECTOR, name="x"), keras.Input(VECTOR, name="y")
    inner = keras.Model(start, k.Dense(4, "tanh")(start), name="inner")
    return keras.Model([x, y], [inner(x), k.Dense(2)(inner(y))])


def inputs_by_name(keras: Any) -> Any:
    """Models called with mappings whose names are in another order than their inputs, and with more than they read."""
    k, a, b = keras.layers, keras.Input(VECTOR, name="a"), keras.Input(VECTOR, name="b")
    two, one = keras.Model([b, a], k.Subtract()([k.Dense(4)(b), a])), keras.Model(b, k.Dense(4)(b))
    x, y = keras.Input(VECTOR, name="x"), keras.Input(VECTOR, name="y")
    return keras.Model([x, y], [two({"a": x, "b": y}), one({"a": x, "b": y})])


def row_of_layers(keras: Any) -> Any:
    k, x = keras.layers, keras.Input(IMAGE)
    return keras.Model(
        x,
        k.Dense(3, "softmax", name="predictions")(
            k.Flatten(name="flat")(k.Conv2D(2, 2, activation="relu", name="conv")(x))
        ),
    )


def arithmetic(keras: Any) -> Any:
    """Arrays with arrays, and with numbers either way round."""
    k, ops, x = keras.layers, keras.ops, keras.Input(VECTOR)
    half = x / 2  # read twice
    sums = [x + 0.5, 0.25 + x, x - 1.0, 1.0 - x, 0 - x, x - 0, half + half, half - x, ops.minimum(half, x)]
    products = [x * 2, 3.0 * x, x * np.float32(0.1), x / 255.0, ops.divide(x, -4), -half, x * half, 1.0 * x]
    powers = [x**2, x**3, x**1.0, ops.square(x), ops.maximum(x, 0.0), ops.maximum(0, x), ops.maximum(x, half)]
    return keras.Model(x, k.Concatenate()([*sums, *products, *powers]))


def activations_between(keras: Any) -> Any:
    ops, of, x = keras.ops, keras.activations, keras.Input(STEPS)
    names = ("celu", "elu", "gelu", "hard_sigmoid", "hard_tanh", "leaky_relu", "log_sigmoid", "log_softmax", "relu")
    names += ("relu6", "selu", "sigmoid", "silu", "softmax", "softplus", "softsign", "tanh")
    made = [getattr(home, name)(x) for home in (ops, of) for name in names]
    made += [ops.celu(x, 0.5), ops.elu(x, 0.3), ops.gelu(x, approximate=False), ops.leaky_relu(x, 0.4), of.swish(x)]
    made += [of.relu(x, max_value=0.5), of.relu(x, max_value=6), of.relu(x, 0.1), of.relu(x, threshold=0.2)]
    made += [ops.softmax(x, axis=2), of.gelu(x, approximate=True), ops.hard_silu(x)]
    return keras.Model(x, ops.concatenate(made, axis=-1))


def operations_between(keras: Any) -> Any:
    """Operations among layers of weights, some called as layers of the model are, whose kinds return behind them."""
    k, ops, x = keras.layers, keras.ops, keras.Input(VECTOR, name="x")
    y = ops.relu(k.BatchNormalization()(k.Dense(4)(1.0 - x / 255.0)))
    y = k.Softmax()(k.Dense(4)(ops.softmax(k.Multiply()([y, x]) * x, axis=-1)))
    y = k.BatchNormalization()(k.ReLU()(keras.activations.relu(y - 0.1)))
    start = keras.Input(VECTOR)
    inner = keras.Model(start, k.Dense(4)(2 - k.Dense(4)(start / 2)))
    y = inner(ops.tanh(inner(y)))
    steps = ops.reshape(k.Dense(6)(ops.concatenate([y, x], axis=1)), (-1, 3, 2))
    return keras.Model(x, [k.Conv1D(2, 2)(steps), y + x])


def positions_taken(keras: Any) -> Any:
    """Steps, neighbours and sums of rows, as networks that are written without layers for it have them."""
    k, ops, x, image = keras.layers, keras.ops, keras.Input(STEPS), keras.Input(IMAGE)
    steps = [x[:, 0], x[:, -1], x[:, 3], ops.mean(x, axis=1), ops.max(x, axis=-2), k.Dense(4)(x)[:, 1, :]]
    cuts = [x[:, 1:3], x[:, :-1, 1:3], x[..., -2:], x[:, 2:100], x[:, :] + 1.0]
    positions = [ops.mean(image, axis=(1, 2)), ops.max(image, (-3, -2)), ops.mean(image, [1, 2], keepdims=True)]
    positions += [
        ops.sum(image, axis=(1, 2)),
        ops.sum(x, axis=1),
        image[:, 1:-1, 2:4],
        image[:, 0],
        image[..., :3],
        image[:, -3:, :, 3:],
    ]
    return keras.Model([x, image], [*steps, *cuts, *positions])


def axes_moved(keras: Any) -> Any:
    ops, x = keras.ops, keras.Input(STEPS)
    moved = [ops.expand_dims(x, axis) for axis in (1, 2, 3, -1, -2)]
    moved += [ops.squeeze(moved[0], 1), ops.squeeze(moved[3], -1), ops.squeeze(x[:, :1, 2:3]), ops.squeeze(x) + 1.0]
    moved += [
        ops.flip(x, axis=1),
        ops.transpose(x, (0, 2, 1)),
        ops.stack([x, 2 * x, x], axis=1),
        ops.cast(x, "float32") + 1.0,
    ]
    return keras.Model(x, moved)


def operations_of_any_length(keras: Any) -> Any:
    k, ops, x = keras.layers, keras.ops, keras.Input((None, 4))
    y = ops.concatenate([ops.softmax(k.Dense(4)(1 - x / 2)), x**2, ops.gelu(x)], axis=-1)
    made = [k.GlobalAveragePooling1D()(y), k.LSTM(2)(-y + 0.5), y[:, 0], y[:, -1], y[..., 2:5]]
    return keras.Model(x, [*made, ops.mean(y, axis=1), ops.max(y, axis=1), ops.sum(y, axis=-2), ops.flip(y, axis=1)])


def of_applications(keras: Any) -> Any:
    """Layers of Keras's own that only ConvNeXt and InceptionResNetV2 have."""
    from keras.src.applications.convnext import LayerScale, StochasticDepth
    from keras.src.applications.inception_resnet_v2 import CustomScaleLayer

    k, x = keras.layers, keras.Input(IMAGE)
    y = k.Add()([x, StochasticDepth(0.3, name="drop")(LayerScale(0.5, 4, name="scaled")(k.Conv2D(4, 1)(x)))])
    z = CustomScaleLayer(0.17)([y, k.Conv2D(4, 3, padding="same")(y)])
    return keras.Model(x, k.GlobalAveragePooling2D()(z))


def by_name(*models: Callable[[Any], Any]) -> dict[str, Callable[[Any], Any]]:
    return {model.__name__: model for model in models}


def application(name: str, **options: Any) -> Callable[[Any], Any]:
    options = {"input_shape": (32, 32, 3), "weights": None, "classes": 5, "classifier_activation": None, **options}
    return lambda keras: getattr(keras.applications, name)(**options)


APPLICATIONS: dict[str, Callable[[Any], Any]] = {
    "EfficientNetB0": application("EfficientNetB0"),
    "MobileNetV3Small": application("MobileNetV3Small", include_top=False, pooling="avg"),
    "MobileNetV2": application("MobileNetV2", alpha=0.35, classifier_activation="softmax"),
    "ResNet50": application("ResNet50"),
    "VGG16": application(
        "VGG16", include_top=False, pooling="avg"
    ),  # a dense layer alone would have 17,000,000 weights
}


def sequential(row: tuple[int, ...], layers: Callable[[Any], list[Any]]) -> Callable[[Any], Any]:
    return lambda keras: keras.Sequential([keras.Input(row), *layers(keras.layers)])


TABLES: dict[str, Mapping[str, Callable[[Any], Any]]] = {
    "layers": {name: sequential(*row) for name, row in LAYERS.items()},
    "models": by_name(
        merging,
        one_merge,
        merge_and_more,
        squeeze_and_excite,
        shared,
        shared_for_two_sizes,
        nested,
        row_of_layers,
        of_applications,
    ),
    "operations": by_name(
        arithmetic, activations_between, operations_between, operations_of_any_length, positions_taken, axes_moved
    ),
    "sequences": by_name(embedded, attending, of_any_length, masked, masked_of_any_length),
    "applications": APPLICATIONS,
}
# Of which only what they compute without padding can be read.
UNMASKED = by_name(masked_steps, masked_and_more, masked_by_another)


def draw(model: Any, rng: np.random.Generator) -> None:
    """Other weights than new ones, in which a scale is 1 and a bias 0; variances and scales stay positive."""
    for variable in model.weights:
        if variable.dtype.startswith("float"):
            values = np.array(variable)
            if values.ndim < 2 or not values.any():  # kernels are random already
                values = values + rng.normal(0, 0.1, values.shape)
            variable.assign(abs(values) if variable.name in ("moving_variance", "gamma") else values)


def rows_of(name: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """What an input of that name reads."""
    if name in ("words", "kind"):
        return rng.integers(0, 6, shape)
    x = rng.normal(size=shape).astype("float32")
    if name == "steps_or_none":
        x[0, :2], x[1, 3:], x[2, 1] = -1, -1, -1
    return x


def main(folder: Path, table: str) -> None:
    os.environ["KERAS_BACKEND"] = "numpy"  # compiles nothing
    warnings.simplefilter("ignore")
    import keras

    for name, build in {**TABLES, "unmasked": UNMASKED}[table].items():
        model, rng = build(keras), np.random.default_rng(0)
        if "learned" not in name:
            draw(model, rng)
        shapes = [(ROWS, *(4 if size is None else size for size in x.shape[1:])) for x in model.inputs]
        inputs = [rows_of(x.name, shape, rng) for x, shape in zip(model.inputs, shapes, strict=True)]
        outputs = model(inputs if len(inputs) > 1 else inputs[0], training=False)
        outputs = outputs if isinstance(outputs, (list, tuple)) else [outputs]
        arrays = {f"x{at}": x for at, x in enumerate(inputs)} | {f"y{at}": np.array(y) for at, y in enumerate(outputs)}
        np.savez(folder / f"{name}.npz", **arrays)
        for ending in ("keras", *["h5"] * (name not in NO_H5)):
            model.save(folder / f"{name}.{ending}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
