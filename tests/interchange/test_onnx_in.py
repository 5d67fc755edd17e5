"""Networks of ONNX files compute what onnxruntime computes of the same file, operator by operator."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest
from onnx_graphs import channels_last, computed, rows, written

from sparkdl.interchange import load_onnx
from sparkdl.layers import MultiHeadAttention

pytestmark = pytest.mark.usefixtures("unoptimized")


class Case(NamedTuple):
    """A graph, what it reads, and the layers that come of it."""

    sizes: tuple[int, ...]
    body: str
    constants: dict[str, Any]
    layers: Sequence[str]
    below: int = 0
    opset: int = 17


IMAGE, VECTOR, STEPS = (2, 4, 6, 6), (2, 5), (2, 5, 4)


def ints(*numbers: int) -> Any:
    return np.array(numbers, "int64")


def number(value: float) -> Any:
    return np.float32(value)


def normed(*names: str) -> dict[str, Any]:
    return {name: (4,) for name in names}


HEADS = " ".join(
    f"{name}0 = MatMul(x, w{name}) {name}1 = Add({name}0, b{name}) {name}2 = Reshape({name}1, heads) "
    f"{name} = Transpose<perm={order}>({name}2)"
    for name, order in {"q": [0, 2, 1, 3], "k": [0, 2, 3, 1], "v": [0, 2, 1, 3]}.items()
)
SHARES = "s = MatMul(q, k) m = Div(s, root) a = Softmax(m)"
TAKEN = (
    "o = MatMul(a, v) o1 = Transpose<perm=[0, 2, 1, 3]>(o) o2 = Reshape(o1, flat) o3 = MatMul(o2, wo) y = Add(o3, bo)"
)
ATTENTION = {
    **{f"w{name}": (4, 4) for name in "qkvo"},
    **{f"b{name}": (4,) for name in "qkvo"},
    "heads": ints(0, 0, 2, 2),
    "flat": ints(0, 0, 4),
    "root": number(2**0.5),
}
CASES = {
    # activations
    "relu": Case(VECTOR, "y = Relu(x)", {}, ["Relu"]),
    "leaky relu": Case(VECTOR, "y = LeakyRelu<alpha=0.2>(x)", {}, ["LeakyRelu"]),
    "elu": Case(VECTOR, "y = Elu<alpha=0.5>(x)", {}, ["Elu"]),
    "selu": Case(VECTOR, "y = Selu(x)", {}, ["Selu"]),
    "sigmoid": Case(VECTOR, "y = Sigmoid(x)", {}, ["Sigmoid"]),
    "tanh": Case(VECTOR, "y = Tanh(x)", {}, ["Tanh"]),
    "softplus": Case(VECTOR, "y = Softplus(x)", {}, ["Softplus"]),
    "softplus that ends": Case(
        VECTOR, "s = Softplus(x) g = Greater(x, t) y = Where(g, x, s)", {"t": number(20)}, ["Softplus"]
    ),
    "softplus that ends elsewhere": Case(
        VECTOR, "s = Softplus(x) g = Greater(x, t) y = Where(g, x, s)", {"t": number(15)}, ["Softplus"]
    ),
    "softplus of another slope that ends": Case(
        VECTOR, "m = Mul(x, b) s = Softplus(m) d = Div(s, b) g = Greater(m, t) y = Where(g, x, d)",
        {"b": number(2.5), "t": number(30)}, ["Scale", "Softplus", "Scale"]
    ),
    "no mish, as its softplus is of another slope": Case(
        VECTOR, "m = Mul(x, b) s = Softplus(m) d = Div(s, b) g = Greater(m, t) w = Where(g, x, d) h = Tanh(w) "
        "y = Mul(x, h)", {"b": number(2), "t": number(20)}, ["Scale", "Softplus", "Scale", "Tanh", "Multiply"]
    ),
    "softsign": Case(VECTOR, "y = Softsign(x)", {}, ["Softsign"]),
    "softsign by a quotient": Case(
        VECTOR, "a = Abs(x) b = Add(a, o) y = Div(x, b)", {"o": number(1)}, ["Softsign"]
    ),
    "mish": Case(VECTOR, "y = Mish(x)", {}, ["Mish"], opset=18),
    "mish by tanh": Case(VECTOR, "s = Softplus(x) t = Tanh(s) y = Mul(t, x)", {}, ["Mish"]),
    "celu": Case(VECTOR, "y = Celu<alpha=0.5>(x)", {}, ["Celu"]),
    "thresholded relu": Case(VECTOR, "y = ThresholdedRelu<alpha=-0.5>(x)", {}, ["ThresholdedRelu"]),
    "log sigmoid": Case(VECTOR, "s = Sigmoid(x) y = Log(s)", {}, ["LogSigmoid"]),
    "cube": Case(VECTOR, "y = Pow(x, t)", {"t": number(3)}, ["Cube"]),
    "cube of a constant": Case(VECTOR, "s = Mul(c, c) k = Mul(s, c) y = Mul(x, k)", {"c": (5,)}, ["Scale"]),
    "log softmax": Case(VECTOR, "y = LogSoftmax(x)", {}, ["LogSoftmax"]),
    "log softmax of channels": Case(IMAGE, "y = LogSoftmax<axis=1>(x)", {}, ["LogSoftmax"]),
    "log softmax of steps, together": Case(
        STEPS, "y = LogSoftmax(x)", {}, ["Flatten", "LogSoftmax", "Reshape"], opset=11
    ),
    "softmax": Case(VECTOR, "y = Softmax(x)", {}, ["Softmax"]),
    "softmax of channels": Case(IMAGE, "y = Softmax<axis=1>(x)", {}, ["Softmax"]),
    "softmax of an image, together": Case(
        IMAGE, "y = Softmax(x)", {}, ["Reshape", "Permute", "Flatten", "Softmax", "Reshape", "Permute", "Reshape"],
        opset=11
    ),
    "softmax of rows of an image": Case(IMAGE, "y = Softmax<axis=3>(x)", {}, ["Permute", "Softmax", "Permute"]),
    "clip": Case(VECTOR, "y = Clip(x, l, h)", {"l": number(0), "h": number(6)}, ["Relu6"]),
    "clip by other bounds": Case(VECTOR, "y = Clip(x, l, h)", {"l": number(-0.5), "h": number(1)}, ["HardTanh"]),
    "clip by other bounds, up to opset 10": Case(VECTOR, "y = Clip<min=0.0, max=1.0>(x)", {}, ["HardTanh"], opset=10),
    "clip below": Case(VECTOR, "y = Clip(x, l)", {"l": number(0)}, ["Relu"]),
    "hard swish": Case(VECTOR, "y = HardSwish(x)", {}, ["HardSwish"]),
    "hard sigmoid": Case(VECTOR, "y = HardSigmoid<alpha=0.16666667, beta=0.5>(x)", {}, ["HardSigmoid"]),
    "prelu of channels": Case(IMAGE, "y = PRelu(x, s)", {"s": (4, 1, 1)}, ["PRelu"]),
    "prelu": Case(IMAGE, "y = PRelu(x, s)", {"s": (1,)}, ["LeakyRelu"]),
    "dropout": Case(VECTOR, "y = Dropout(x, r)", {"r": number(0.3)}, ["Dropout"]),
    "gelu": Case(VECTOR, "y = Gelu<approximate=\"tanh\">(x)", {}, ["Gelu"], opset=20),
    # several operators that are one layer
    "gelu by erf": Case(
        VECTOR,
        "a = Div(x, c) e = Erf(a) f = Add(e, one) g = Mul(x, f) y = Mul(g, h)",
        {"c": number(2**0.5), "one": number(1), "h": number(0.5)},
        ["Gelu"],
    ),
    "gelu by tanh": Case(
        VECTOR,
        "p = Pow(x, t) q = Mul(p, c) r = Add(x, q) s = Mul(d, r) t1 = Tanh(s) u = Add(one, t1) "
        "v = Mul(h, x) y = Mul(v, u)",
        {"t": number(3), "c": number(0.044715), "d": number(0.7978846), "one": number(1), "h": number(0.5)},
        ["Gelu"],
    ),
    "silu": Case(VECTOR, "s = Sigmoid(x) y = Mul(s, x)", {}, ["Silu"]),
    "hard swish by clip": Case(
        VECTOR,
        "a = Add(x, t) b = Clip(a, z, s) c = Mul(x, b) y = Div(c, s)",
        {"t": number(3), "z": number(0), "s": number(6)},
        ["HardSwish"],
    ),
    "layer norm by means": Case(
        (2, 3, 4),
        "m = ReduceMean<axes=[-1]>(x) c = Sub(x, m) q = Pow(c, t) v = ReduceMean<axes=[-1]>(q) w = Add(v, e) "
        "s = Sqrt(w) d = Div(c, s) g = Mul(d, scale) y = Add(g, bias)",
        {"t": number(2), "e": number(1e-5), "scale": (4,), "bias": (4,)},
        ["LayerNorm"],
    ),
    "root mean square norm": Case(
        (2, 3, 4),
        "q = Mul(x, x) v = ReduceMean<axes=[2]>(q) w = Add(v, e) s = Sqrt(w) d = Div(x, s) y = Mul(scale, d)",
        {"e": number(1e-6), "scale": (4,)},
        ["RMSNorm"],
    ),
    "group norm by instances": Case(
        IMAGE,
        "r = Reshape(x, t) n = InstanceNormalization(r, o, z) s = Shape(x) b = Reshape(n, s) g = Mul(b, scale) "
        "y = Add(g, bias)",
        {"t": ints(0, 2, -1), "o": np.ones(2, "float32"), "z": np.zeros(2, "float32"), "scale": (4, 1, 1),
         "bias": (4, 1, 1)},
        ["GroupNorm"],
    ),
    # dense layers
    "gemm": Case(VECTOR, "y = Gemm<transB=1>(x, w, b)", {"w": (3, 5), "b": (3,)}, ["Dense"]),
    "gemm with factors": Case(VECTOR, "y = Gemm<alpha=0.5, beta=2.0>(x, w, b)", {"w": (5, 3), "b": (3,)}, ["Dense"]),
    "matmul and add": Case(VECTOR, "m = MatMul(x, w) y = Add(b, m)", {"w": (5, 3), "b": (3,)}, ["Dense"]),
    "matmul of steps": Case((2, 3, 5), "m = MatMul(x, w) y = Add(m, b)", {"w": (5, 2), "b": (2,)}, ["EachStep"]),
    "matmul of positions": Case(
        IMAGE, "t = Transpose<perm=[0, 2, 3, 1]>(x) m = MatMul(t, w) a = Add(m, b) "
        "y = Transpose<perm=[0, 3, 1, 2]>(a)", {"w": (4, 3), "b": (3,)}, ["Conv"],
    ),
    "flatten": Case(
        IMAGE, "c = Relu(x) f = Flatten(c) y = Gemm(f, w, b)", {"w": (144, 3), "b": (3,)}, ["Relu", "Flatten", "Dense"]
    ),
    "reshape for rows of any number": Case(
        IMAGE,
        "s = Shape(x) n = Gather(s, z) u = Unsqueeze(n, zero) t = Concat<axis=0>(u, m) f = Reshape(x, t) "
        "y = MatMul(f, w)",
        {"z": np.int64(0), "zero": ints(0), "m": ints(-1), "w": (144, 3)},
        ["Flatten", "Dense"],
    ),
    "flattened positions by channel": Case(
        IMAGE, "r = Reshape(x, t) y = MatMul(r, w)", {"t": ints(0, 4, 36), "w": (36, 2)},
        ["Reshape", "Permute", "EachStep"]
    ),
    # windows
    "convolution": Case(
        IMAGE, "y = Conv<pads=[1,0,2,1], strides=[2,1], dilations=[1,2]>(x, w, b)", {"w": (3, 4, 3, 2), "b": (3,)},
        ["Conv"],
    ),
    "convolution as same": Case(
        IMAGE, "y = Conv<auto_pad=\"SAME_UPPER\", strides=[2,2]>(x, w)", {"w": (3, 4, 3, 3)}, ["Conv"],
    ),
    "convolution as same, low": Case(IMAGE, "y = Conv<auto_pad=\"SAME_LOWER\">(x, w)", {"w": (3, 4, 2, 2)}, ["Conv"]),
    "convolution in groups": Case(IMAGE, "y = Conv<group=2>(x, w)", {"w": (6, 2, 3, 3)}, ["Conv"]),
    "depthwise convolution": Case(
        IMAGE, "y = Conv<group=4>(x, w, b)", {"w": (8, 1, 3, 3), "b": (8,)}, ["DepthwiseConv"],
    ),
    "bias added to a convolution": Case(
        IMAGE, "c = Conv(x, w) y = Add(c, b)", {"w": (3, 4, 3, 3), "b": (1, 3, 1, 1)}, ["Conv"]
    ),
    "convolution over time": Case((2, 4, 7), "y = Conv<pads=[2, 0]>(x, w)", {"w": (3, 4, 3)}, ["Conv"]),
    "transposed convolution": Case(
        IMAGE, "y = ConvTranspose<strides=[2,2], pads=[1,1,1,1], output_padding=[1,1]>(x, w, b)",
        {"w": (4, 3, 3, 3), "b": (3,)}, ["ConvTranspose"],
    ),
    "max pool": Case(IMAGE, "y = MaxPool<kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1]>(x)", {}, ["MaxPool"]),
    "max pool to the end": Case(
        IMAGE, "y = MaxPool<kernel_shape=[3,3], strides=[2,2], ceil_mode=1>(x)", {}, ["MaxPool"],
    ),
    "average pool": Case(IMAGE, "y = AveragePool<kernel_shape=[2,2], pads=[1,1,0,0]>(x)", {}, ["AvgPool"]),
    "average pool with padding": Case(
        IMAGE, "y = AveragePool<kernel_shape=[2,2], pads=[1,1,0,0], count_include_pad=1>(x)", {}, ["AvgPool"]
    ),
    "global average": Case(IMAGE, "p = GlobalAveragePool(x) y = Flatten(p)", {}, ["GlobalAvgPool"]),
    "global average, kept": Case(IMAGE, "y = GlobalAveragePool(x)", {}, ["GlobalAvgPool", "Reshape"]),
    "mean over positions": Case(IMAGE, "y = ReduceMean<axes=[2, 3], keepdims=0>(x)", {}, ["GlobalAvgPool"]),
    "maximum over positions": Case(IMAGE, "y = ReduceMax<axes=[-1, -2], keepdims=0>(x)", {}, ["GlobalMaxPool"]),
    "norms of windows": Case(
        IMAGE, "y = LpPool<kernel_shape=[3,2], strides=[2,1], pads=[1,0,1,1], p=3>(x)", {}, ["LpPool"]
    ),
    "norms of windows, to the end": Case(
        IMAGE, "y = LpPool<kernel_shape=[4,4], strides=[3,3], ceil_mode=1>(x)", {}, ["LpPool"], opset=18
    ),
    "norm over positions": Case(IMAGE, "p = GlobalLpPool<p=1>(x) y = Flatten(p)", {}, ["GlobalLpPool"]),
    "sum over positions": Case(IMAGE, "y = ReduceSum<keepdims=0>(x, a)", {"a": ints(2, 3)}, ["GlobalSumPool"]),
    "sum over steps": Case(STEPS, "y = ReduceSum<keepdims=0>(x, a)", {"a": ints(1)}, ["TimeSum"]),
    "sum of products over steps": Case(
        STEPS, "t = Tanh(x) m = Mul(t, x) y = ReduceSum<keepdims=0>(m, a)", {"a": ints(1)},
        ["Tanh", "Multiply", "TimeSum"],
    ),
    "steps from the last": Case(
        STEPS, "y = Slice(x, s, e, a, b)", {"s": ints(-1), "e": ints(-(2**63)), "a": ints(1), "b": ints(-1)},
        ["ReverseSteps"],
    ),
    "steps from the last, by lengths that are all of them": Case(
        STEPS, "y = ReverseSequence<batch_axis=0, time_axis=1>(x, l)", {"l": ints(5, 5)}, ["ReverseSteps"]
    ),
    "columns from the last": Case(
        IMAGE, "y = Slice(x, s, e, a, b)", {"s": ints(-1), "e": ints(-7), "a": ints(3), "b": ints(-1)},
        ["Permute", "ReverseSteps", "Permute"],
    ),
    "larger": Case(
        IMAGE, "y = Resize<mode=\"nearest\", coordinate_transformation_mode=\"asymmetric\", "
        "nearest_mode=\"floor\">(x, , s)",
        {"s": np.array([1, 1, 2, 3], "float32")}, ["UpSample"],
    ),
    "larger, linear": Case(
        IMAGE, "y = Resize<mode=\"linear\">(x, , , s)", {"s": ints(2, 4, 12, 12)}, ["UpSample"],
    ),
    "depth to space": Case(IMAGE, "y = DepthToSpace<blocksize=2>(x)", {}, ["DepthToSpace"]),
    "pixel shuffle": Case(
        IMAGE, "d = DepthToSpace<blocksize=2, mode=\"CRD\">(x) y = Relu(d)", {},
        ["Relu", "Reshape", "Permute", "Reshape"]
    ),
    "padded": Case(IMAGE, "y = Pad(x, p)", {"p": ints(0, 0, 1, 2, 0, 0, 3, 0)}, ["ZeroPad"]),
    "cropped": Case(
        IMAGE, "y = Slice(x, s, e, a)", {"s": ints(1, 2), "e": ints(5, -1), "a": ints(2, 3)}, ["Crop", "Crop"],
    ),
    # norms
    "batch norm": Case(
        IMAGE, "y = BatchNormalization<epsilon=0.001>(x, s, b, m, v)", normed("s", "b", "m", "v"), ["BatchNorm"]
    ),
    "batch norm of vectors": Case(
        (2, 4), "y = BatchNormalization(x, s, b, m, v)", normed("s", "b", "m", "v"), ["BatchNorm"]
    ),
    "layer norm": Case(STEPS, "y = LayerNormalization<epsilon=0.001>(x, s, b)", normed("s", "b"), ["LayerNorm"]),
    "instance norm": Case(IMAGE, "y = InstanceNormalization(x, s, b)", normed("s", "b"), ["GroupNorm"]),
    "group norm": Case(
        IMAGE, "y = GroupNormalization<num_groups=2>(x, s, b)", normed("s", "b"), ["GroupNorm"], opset=21
    ),
    "local response norm": Case(IMAGE, "y = LRN<size=3, alpha=0.1, beta=0.75, bias=2.0>(x)", {}, ["LocalResponseNorm"]),
    "unit length": Case(
        VECTOR, "l = ReduceL2<axes=[1], keepdims=1>(x) m = Clip(l, least) s = Shape(x) e = Expand(m, s) y = Div(x, e)",
        {"least": number(1e-12)}, ["L2Normalize"],
    ),
    # constants
    "shifted and scaled": Case(
        VECTOR, "a = Sub(x, m) b = Div(a, s) c = Sub(o, b) y = Neg(c)",
        {"m": (5,), "s": (5,), "o": number(1)}, ["Shift", "Scale", "Scale", "Shift", "Scale"],
    ),
    "standardized images": Case(
        IMAGE, "a = Sub(x, m) y = Div(a, s)", {"m": (4, 1, 1), "s": (1, 4, 1, 1)}, ["Shift", "Scale"]
    ),
    "positions": Case(
        STEPS, "i = Range(z, n, o) p = Gather(t, i) y = Add(x, p)",
        {"z": np.int64(0), "n": np.int64(5), "o": np.int64(1), "t": (9, 4)}, ["LearnedPositions"],
    ),
    "scores of words": Case(
        (2, 5), "e = Gather(t, x) m = ReduceMean<axes=[1], keepdims=0>(e) y = MatMul(m, w)", {"t": (9, 4), "w": (4, 2)},
        ["Embedding", "TimeMean", "Dense"], 9,
    ),
    "class token": Case(
        STEPS,
        "s = Shape(x) i = Slice(s, zero, one) h = Concat<axis=0>(i, one, four) c = Expand(t, h) "
        "y = Concat<axis=1>(c, x)",
        {"zero": ints(0), "one": ints(1), "four": ints(4), "t": (1, 1, 4)},
        ["ClassToken"],
    ),
    "class tokens of a given number of rows": Case(
        STEPS, "y = Concat<axis=1>(t, x)", {"t": np.tile(np.float32([0.1, 0.2, 0.3, 0.4]), (2, 1, 1))}, ["ClassToken"]
    ),
    "two tokens before all": Case(
        STEPS, "y = Concat<axis=1>(t, u, x)",
        {"t": np.full((2, 1, 4), 0.5, "float32"), "u": np.full((2, 1, 4), 0.7, "float32")},
        ["ClassToken", "ClassToken"],
    ),
    "positions of a given number of rows": Case(
        STEPS, "y = Add(x, t)", {"t": np.tile(np.arange(20, dtype="float32").reshape(5, 4), (2, 1, 1))},
        ["LearnedPositions"],
    ),
    "one vector for all steps of all rows": Case(
        STEPS, "y = Add(x, t)", {"t": np.tile(np.float32([0.1, 0.2, 0.3, 0.4]), (2, 5, 1))}, ["Shift"]
    ),
    "alone in being joined": Case(STEPS, "c = Concat<axis=1>(x) y = Relu(c)", {}, ["Relu"]),
    "last step": Case(STEPS, "y = Gather<axis=1>(x, i)", {"i": np.int64(-1)}, ["LastStep"]),
    "first step": Case(STEPS, "g = Slice(x, z, o, o) y = Squeeze(g, o)", {"z": ints(0), "o": ints(1)}, ["FirstStep"]),
    "a step between": Case(STEPS, "y = Gather<axis=1>(x, i)", {"i": np.int64(2)}, ["Unstack"]),
    "some channels": Case(IMAGE, "a, y = Split<axis=1>(x, s)", {"s": ints(1, 3)}, ["Subset"]),
    # attention
    "attention": Case(STEPS, f"{HEADS} {SHARES} {TAKEN}", ATTENTION, ["MultiHeadAttention"]),
    "attention to earlier steps, with noise": Case(
        STEPS,
        f"{HEADS} s = MatMul(q, k) m = Div(s, root) n = Add(m, mask) b = Softmax(n) a = Dropout(b, rate) {TAKEN}",
        ATTENTION | {"mask": np.triu(np.full((5, 5), -np.inf, "float32"), 1), "rate": number(0.1)},
        ["MultiHeadAttention"],
    ),
    "attention of queries, keys and values that are made at once": Case(
        STEPS,
        "p = MatMul(x, wp) h = Reshape(p, three) t = Transpose<perm=[2, 0, 3, 1, 4]>(h) "
        "q1, k1, v1 = Split<axis=0>(t, ones) q = Squeeze(q1, zero) k2 = Squeeze(k1, zero) v = Squeeze(v1, zero) "
        f"k = Transpose<perm=[0, 1, 3, 2]>(k2) {SHARES} {TAKEN}",
        ATTENTION | {"wp": (4, 12), "three": ints(0, 0, 3, 2, 2), "ones": ints(1, 1, 1), "zero": ints(0)},
        ["MultiHeadAttention"],
    ),
    # several branches
    "residual": Case(
        IMAGE, "c = Conv<pads=[1,1,1,1]>(x, w, b) r = Relu(c) s = Add(x, r) y = Relu(s)",
        {"w": (4, 4, 3, 3), "b": (4,)}, ["Conv", "Relu", "Add", "Relu"],
    ),
    "concatenated": Case(
        IMAGE, "a = Conv(x, v) b = Conv(x, w) y = Concat<axis=1>(a, b, a)", {"v": (2, 4, 1, 1), "w": (3, 4, 1, 1)},
        ["Conv", "Conv", "Concatenate"],
    ),
    "concatenated rows of positions": Case(
        IMAGE, "a = Relu(x) c = Concat<axis=2>(a, x) y = Tanh(c)", {}, 
        ["Relu", "Permute", "Permute", "Concatenate", "Tanh", "Permute"],
    ),
    "concatenated steps": Case(STEPS, "a = Relu(x) y = Concat<axis=1>(a, x)", {}, ["Relu", "ConcatenateSteps"]),
    "squeeze and excite": Case(
        IMAGE,
        "p = GlobalAveragePool(x) a = Conv(p, v, c) b = Relu(a) d = Conv(b, w, e) g = Sigmoid(d) y = Mul(g, x)",
        {"v": (2, 4, 1, 1), "c": (2,), "w": (4, 2, 1, 1), "e": (4,)},
        ["GlobalAvgPool", "Reshape", "Conv", "Relu", "Conv", "Sigmoid", "RepeatVector", "Reshape", "Multiply"],
    ),
    "maximum and mean": Case(
        VECTOR, "a = Tanh(x) b = Max(a, x) c = Mean(a, b) y = Sub(c, x)", {}, ["Tanh", "Maximum", "Average", "Subtract"]
    ),
    "minimum": Case(VECTOR, "a = Tanh(x) y = Min(a, x)", {}, ["Tanh", "Minimum"]),
    "squares": Case(VECTOR, "y = Pow(x, t)", {"t": number(2)}, ["Multiply"]),
    "channels against positions": Case(
        IMAGE, "t = Transpose<perm=[0, 1, 3, 2]>(x) y = Add(x, t)", {}, ["Permute", "Add"]
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_it_computes_what_onnxruntime_does(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    sizes = ", ".join(map(str, ("N", *case.sizes[1:])))
    path = written(
        tmp_path / "a.onnx",
        f"{'int64' if case.below else 'float'}[{sizes}] x",
        case.body,
        case.constants,
        opset=case.opset,
    )
    x = rows(case.sizes, case.below)
    (expected,) = computed(path, x)
    network, weights = load_onnx(path)
    own = jnp.asarray(channels_last(x), "int32" if case.below else None)
    if case.sizes == (2, 4, 7):  # over time, with the channels first, too
        own, expected = jnp.swapaxes(own, 1, 2), np.moveaxis(expected, 1, -1)
    y = network.forward(weights, own)
    np.testing.assert_allclose(y, channels_last(expected), rtol=1e-5, atol=1e-5)
    assert [type(child.layer).__name__ for child in network.children] == list(case.layers)


def test_attention_keeps_its_noise_and_what_it_does_not_see(tmp_path: Path) -> None:
    case = CASES["attention to earlier steps, with noise"]
    path = written(tmp_path / "a.onnx", "float[N, 5, 4] x", case.body, case.constants)
    (child,) = load_onnx(path).network.children
    assert isinstance(layer := child.layer, MultiHeadAttention)
    assert (layer.heads, layer.causal, round(layer.dropout, 6)) == (2, True, 0.1)


def test_attention_of_all_steps_to_the_first_alone_is_not_that_to_earlier_ones(tmp_path: Path) -> None:
    """A mask without an axis of queries hides the same steps from all of them."""
    case = CASES["attention to earlier steps, with noise"]
    constants = case.constants | {"mask": np.array([[0, *[-np.inf] * 4]], "float32")}
    path = written(tmp_path / "a.onnx", "float[N, 5, 4] x", case.body, constants)
    with pytest.raises(ValueError, match="masks attention otherwise than to earlier steps"):
        load_onnx(path)


@pytest.mark.parametrize(
    ("body", "constants", "match"),
    [
        ("y = Add(x, t)", {"t": (2, 5, 4)}, "'y' .Add. has arrays of sizes that do not fit it"),
        ("y = Concat<axis=1>(t, x)", {"t": (2, 1, 4)}, "'y' .Concat. joins constants to rows"),
        (
            "y = ReverseSequence<batch_axis=0, time_axis=1>(x, t)",
            {"t": ints(5, 3)},
            "'y' .ReverseSequence. turns round",
        ),
        (
            "y = Slice(x, t, e, z, t)",
            {"t": ints(-1), "e": ints(-(2**63)), "z": ints(0)},
            "puts rows into another order",
        ),
        ("u = Unsqueeze(x, t) y = Relu(u)", {"t": np.float32([1.5])}, "'u' .Unsqueeze. has arrays of sizes that"),
        (
            "l = ReduceL2<axes=[2], keepdims=1>(x) m = Clip(l, half) y = Div(x, m)",
            {"half": number(0.5)},
            "'y' divides by lengths of at least 0.5",
        ),
    ],
)
def test_constants_that_do_not_fit_are_refused(
    body: str, constants: dict[str, Any], match: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=match):
        load_onnx(written(tmp_path / "a.onnx", "float[N, 5, 4] x", body, constants))
