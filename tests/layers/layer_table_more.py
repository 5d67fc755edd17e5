"""More layers that test_layers.py proves: activations, normalization, dropout, shapes and images."""

from __future__ import annotations

from layer_table import Row
from noisy_layers import KeepingNoisyGain, NoisyGain

from sparkdl import Graph, Network, Same
from sparkdl.layers.activation import (
    Cube,
    Elu,
    Gelu,
    HardSigmoid,
    LeakyRelu,
    Relu,
    Selu,
    Sigmoid,
    Silu,
    Softmax,
    Softplus,
    Tanh,
)
from sparkdl.layers.augmentation import RandomBrightness, RandomContrast, RandomCrop, RandomFlip, RandomInvert
from sparkdl.layers.batch_norm import BatchNorm
from sparkdl.layers.branches import Parallel, Residual
from sparkdl.layers.convolution import Conv
from sparkdl.layers.dense import Dense
from sparkdl.layers.dropout import Dropout
from sparkdl.layers.image import Rescale, Resize, Standardize
from sparkdl.layers.interaction import CrossLayer, DotInteractions
from sparkdl.layers.log_probabilities import LogSigmoid, LogSoftmax
from sparkdl.layers.merge import Add, Average, Concatenate, Dot, Maximum, Minimum, Multiply, Stack, Subtract
from sparkdl.layers.normalization import L2Normalize, LayerNorm, LocalResponseNorm
from sparkdl.layers.random_affine import RandomAffine
from sparkdl.layers.random_erasing import RandomErasing
from sparkdl.layers.rectifying import Celu, HardSwish, Mish, ThresholdedRelu
from sparkdl.layers.shape import Flatten, Reshape, Subset, Unstack
from sparkdl.layers.squashing import HardTanh, RationalTanh, RectifiedTanh, Softsign

# One source twice, a node that three read, normalization over the batch within.
DIAMONDS = Graph(
    {"x": (4,)},
    {
        "first": (Dense(3), "x"),
        "bent": (Tanh(), "first"),
        "norm": (BatchNorm(), "first"),
        "both": (Add(), "bent", "norm", "first"),
        "twice": (Concatenate(), "both", "both", "x"),
        "last": (Dense(2), "twice"),
    },
    "last",
)
# Two nodes that share their weights, statistics among them.
TWINS = Graph(
    {"left": (3,), "right": (3,)},
    {
        "a": (Network([Dense(4), BatchNorm(), Tanh()]), "left"),
        "b": (Same("a"), "right"),
        "both": (Multiply(), "a", "b"),
    },
    "both",
)

ACTIVATIONS = [
    Row(Relu(), (3, 4)),
    Row(LeakyRelu(0.3), (2, 3, 2)),
    Row(Elu(0.5), (3, 4)),
    Row(Selu(), (3, 4)),
    Row(Gelu(), (3, 4)),
    Row(Gelu(approximate=True), (3, 4)),
    Row(Silu(), (3, 4)),
    Row(Sigmoid(), ()),
    Row(Tanh(), (3, 4)),
    Row(Softplus(), (3, 4)),
    Row(Softmax(), (5,), refused=()),
    Row(Softmax(), (2, 3, 4), refused=()),
    Row(HardSigmoid(), (3, 4)),
    Row(HardSwish(), (3, 4)),
    Row(Mish(), (3, 4)),
    Row(Celu(0.5), (3, 4)),
    Row(ThresholdedRelu(0.3), (3, 4)),
    Row(Softsign(), (3, 4)),
    Row(HardTanh(), (2, 3, 2)),
    Row(HardTanh(-0.3, 2), (3, 4)),
    Row(RationalTanh(), (3, 4)),
    Row(RectifiedTanh(), (3, 4)),
    Row(Cube(), ()),
    Row(LogSigmoid(), (3, 4)),
    Row(LogSoftmax(), (5,), refused=()),
    Row(LogSoftmax(), (2, 3, 4), refused=()),
]

MERGES = [
    Row(Add(), ((3, 2), (3, 2), (3, 2)), refused=((3, 2), (2, 3))),
    Row(Concatenate(), ((3, 2), (3, 4)), refused=((3, 2), (2, 2))),
    Row(Concatenate(name="joined"), ((2,), (1,), (2,)), refused=((2,), (2, 2))),
    Row(Concatenate(), ((), (3,), ()), refused=((3, 1), ())),
    Row(Subtract(), ((3, 2), (3, 2)), refused=((2,), (2,), (2,))),
    Row(Multiply(), ((3, 2), (3, 2), (3, 2)), refused=((3,), (2,))),
    Row(Multiply(), ((3, 2), (1, 2)), refused=((3, 2), (2,))),
    Row(Average(), ((4,), (4,), (4,)), refused=((3,), (2,))),
    Row(Maximum(), ((3, 2), (3, 2), (3, 2)), refused=((3,), (2,))),
    Row(Minimum(), ((3, 2), (3, 2)), refused=((3,), (2,))),
    Row(Stack(), ((3, 2), (3, 2), (3, 2)), refused=((3,), (2,))),
    Row(Dot(), ((5,), (5,)), refused=((5,), (5,), (5,))),
    Row(Dot(normalize=True), ((5,), (5,)), refused=((5,), (4,))),
    Row(CrossLayer(l2=0.2), ((5,), (5,)), refused=((5,), (4,))),
    Row(CrossLayer(rank=2, bias=False), ((5,), (5,)), refused=((5,), (5,), (5,))),
    Row(DotInteractions(), ((4,), (4,), (4,)), refused=((3,), (2,))),
    Row(DotInteractions(itself=True), ((4,), (4,)), refused=((2, 2), (2, 2))),
]

GRAPHS = [
    Row(DIAMONDS, (4,)),
    Row(TWINS, ((3,), (3,))),
    Row(Graph({"x": (3,)}, {"inner": (TWINS, "x", "x"), "y": (Concatenate(), "inner", "x")}, "y"), (3,)),
]

COMPOSITES = [
    Row(Residual([Dense(3), Tanh()]), (3,)),
    Row(
        Residual([Conv(4, (3, 3), 2, "same"), BatchNorm(), Tanh(), Dropout(0.3)], [Conv(4, (1, 1), 2, bias=False)]),
        (4, 5, 2),
    ),
    Row(Residual([Residual([Dense(3)]), Residual([NoisyGain()], [BatchNorm()])]), (3,)),
    Row(Parallel([Dense(2), Tanh(), KeepingNoisyGain()]), (3,)),
    Row(Parallel([BatchNorm(name="a"), Residual([Dense(3)]), Tanh()], Add()), (3,)),
]

NOISY = [
    Row(NoisyGain(), (3, 4)),
    Row(KeepingNoisyGain(), (3, 4)),
]

NORMALIZATIONS = [
    Row(LocalResponseNorm(), (3, 4, 7), refused=()),
    Row(LocalResponseNorm(2, bias=2.0, alpha=0.3, beta=0.75), (2, 7), refused=()),
    Row(LocalResponseNorm(1, beta=1.3, name="local"), (5,), refused=()),
    Row(LayerNorm(), (5,), refused=()),
    Row(L2Normalize(), (2, 5), refused=()),
    Row(LayerNorm(epsilon=0.1, bias=False), (2, 3, 4), refused=()),
    Row(LayerNorm(scale=False), (3, 4), refused=()),
    Row(BatchNorm(), (4,), refused=()),
    Row(BatchNorm(0.99, epsilon=0.1), (2, 3, 4), refused=()),
    Row(BatchNorm(scale=False), (3, 4), refused=()),
    Row(BatchNorm(scale=False, bias=False), (2, 2, 2, 3), refused=()),
]

SHAPES = [
    Row(Dropout(0.4), (3, 4)),
    Row(Flatten(), (2, 3, 2)),
    Row(Unstack(1), (3, 2), refused=(1, 2)),
    Row(Subset(1, 3), (2, 4), refused=(2, 2)),
    Row(Reshape((2, -1)), (3, 4), refused=(5,)),
    Row(Reshape((2, 2, 3)), (12,), refused=(13,)),
]

IMAGES = [
    Row(Rescale(1 / 255, offset=-0.5), (5,)),
    Row(Standardize(), (3, 4, 2)),
    Row(Resize((5, 3)), (3, 4, 2), refused=(3, 4)),
    Row(Resize((2, 7), method="cubic"), (5, 4, 1), refused=(2, 5, 4, 1)),
    Row(Resize((2, 6), method="nearest"), (4, 3, 2), refused=()),
    Row(Resize((2, 3), antialias=False), (5, 4, 2), refused=(3, 4)),
    Row(RandomCrop((3, 2)), (5, 4, 2), refused=(2, 4, 2)),
    Row(RandomCrop((4, 3)), (4, 3, 1), refused=(4, 3)),
    Row(RandomFlip(), (3, 4, 2), refused=(3, 4)),
    Row(RandomFlip("vertical"), (3, 4, 2), refused=()),
    Row(RandomInvert(), (3, 4, 2), refused=(3, 4)),
    Row(RandomInvert((-1.0, 1.0)), (3, 4, 2), refused=()),
    Row(RandomBrightness(0.3), (3, 4, 2), refused=(3, 4)),
    Row(RandomContrast(0.5, 1.5), (3, 4, 2), refused=(3, 4)),
    Row(RandomErasing(0.7, (0.1, 0.5)), (3, 4, 2), refused=(3, 4)),
    Row(RandomAffine(20.0, 0.1, zoom=(-0.2, 0.3)), (3, 4, 2), refused=(3, 4)),
]
