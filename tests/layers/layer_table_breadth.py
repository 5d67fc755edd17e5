"""Still more layers that test_layers.py proves: kinds of convolution, space, gates, noise and further normalization."""

from __future__ import annotations

from layer_table import Row

from sparkdl.layers.activation import PRelu, Relu6, Tanh
from sparkdl.layers.affine import Scale, Shift
from sparkdl.layers.capsules import Capsules, CapsuleStrength, PrimaryCapsules, Squash
from sparkdl.layers.dense import Dense, Maxout
from sparkdl.layers.depthwise import DepthwiseConv, SeparableConv
from sparkdl.layers.dropout import (
    AlphaDropout,
    DropConnect,
    GaussianDropout,
    GaussianNoise,
    SpatialDropout,
    StochasticDepth,
    WeightNoise,
)
from sparkdl.layers.gates import Highway, SqueezeExcite
from sparkdl.layers.local import LocallyConnected
from sparkdl.layers.merge import Distance
from sparkdl.layers.normalization import GroupNorm, RMSNorm
from sparkdl.layers.sampling import GaussianSample
from sparkdl.layers.scaling import Normalization
from sparkdl.layers.shape import Permute, RepeatVector
from sparkdl.layers.spatial import Crop, DepthToSpace, SpaceToDepth, UpSample, ZeroPad
from sparkdl.layers.transposed import ConvTranspose

CONVOLUTIONS = [
    Row(DepthwiseConv((3, 3), padding="same"), (5, 4, 3), refused=(5, 4)),
    Row(DepthwiseConv((2, 3), 2, "same", multiplier=2, bias=False), (6, 5, 2), refused=(6, 2)),
    Row(DepthwiseConv(3, dilation=2), (9, 2), refused=(2, 9, 2)),
    Row(SeparableConv(4, (3, 3), padding="same", multiplier=2), (5, 4, 3)),
    Row(SeparableConv(3, 3, 2, bias=False, l2=0.1), (9, 2)),
    Row(ConvTranspose(3, (3, 2)), (4, 3, 2), refused=(4, 3)),
    Row(ConvTranspose(2, (3, 3), 2, "same"), (3, 4, 2), refused=(3,)),
    Row(ConvTranspose(2, (4, 3), (2, 3), ((1, 1), (0, 2)), extra=(1, 0)), (3, 4, 2), refused=(3, 4)),
    Row(ConvTranspose(2, 3, 2, dilation=2, bias=False), (4, 2), refused=(3, 4, 2)),
    Row(ConvTranspose(1, (2, 2, 2), 2), (2, 1, 2, 1), refused=(2, 2, 1)),
    Row(LocallyConnected(3, (2, 3), padding="same"), (4, 3, 2), refused=(4, 3)),
    Row(LocallyConnected(2, 3, 2, bias=False), (8, 2), refused=(2, 2)),
]

SPACE = [
    Row(UpSample(), (3, 2, 2), refused=(3,)),
    Row(UpSample((2, 3)), (3, 2, 2), refused=(3, 2)),
    Row(UpSample(3, method="linear"), (4, 2), refused=(4,)),
    Row(ZeroPad(1), (3, 2, 2), refused=(3,)),
    Row(ZeroPad(((1, 0), (2, 3))), (3, 2, 2), refused=(3, 2)),
    Row(Crop((1, 0)), (4, 2, 2), refused=(2, 2, 2)),
    Row(Crop(((0, 2),)), (4, 2), refused=(2, 2)),
    Row(SpaceToDepth(2), (4, 6, 2), refused=(3, 4, 2)),
    Row(DepthToSpace(2), (2, 3, 8), refused=(2, 3, 6)),
    Row(Permute((2, 0, 1)), (2, 3, 4), refused=(2, 3)),
    Row(RepeatVector(3), (4,)),
]

GATES = [
    Row(Highway(), (4,), refused=(2, 4)),
    Row(Highway(Tanh(), l2=0.1), (3,), refused=()),
    Row(SqueezeExcite(2), (3, 2, 4), refused=(4,)),
    Row(Maxout(3), (4,), refused=(2, 4)),
    Row(Maxout(2, 4, bias=False), (3,), refused=()),
    Row(Relu6(), (3, 4)),
    Row(PRelu(), (3, 4), refused=()),
    Row(PRelu(0.1), (2, 2, 3), refused=()),
]

NOISE = [
    Row(SpatialDropout(0.4), (3, 2, 4)),
    Row(StochasticDepth(0.4), (3, 4)),
    Row(AlphaDropout(0.3), (3, 4)),
    Row(GaussianDropout(0.3), (3, 4)),
    Row(GaussianNoise(0.5), (3, 4)),
    Row(GaussianSample(), (3, 4), refused=(4, 3)),
    Row(GaussianSample(), (6,), refused=()),
    Row(DropConnect(Dense(3), 0.4), (4,)),
    Row(DropConnect(DepthwiseConv((2, 2)), 0.4), (3, 4, 2)),
    Row(WeightNoise(Dense(3), 0.2), (4,)),
    Row(WeightNoise(DepthwiseConv((2, 2)), 0.3, additive=False), (3, 4, 2)),
]

NORMS = [
    Row(GroupNorm(2), (3, 4), refused=(3, 3)),
    Row(GroupNorm(1, epsilon=0.1, bias=False), (2, 3, 4), refused=()),
    Row(GroupNorm(3, scale=False), (6,), refused=(4,)),
    Row(RMSNorm(), (5,), refused=()),
    Row(Normalization((1.0, -2.0, 0.5), (4.0, 0.25, 0.0)), (2, 3), refused=(2,)),
    Row(RMSNorm(bias=True, epsilon=0.1), (2, 3, 4), refused=()),
]

NUMBERS = [
    Row(Scale(-2.5), ()),
    Row(Scale(0.1, per_channel=True), (2, 4), refused=()),
    Row(Shift(3), (2, 4)),
    Row(Shift(0.0, per_channel=True, name="bias"), (4,), refused=()),
]

DISTANCES = [
    Row(Distance(), ((5,), (5,)), refused=((5,), (4,))),
    Row(Distance(squared=True), ((5,), (5,)), refused=((5,), (5,), (5,))),
]

CAPSULES = [
    Row(Squash(), (3, 4), refused=()),
    Row(CapsuleStrength(), (3, 4), refused=(4,)),
    Row(Capsules(2, 3), (4, 5), refused=(5,)),
    Row(Capsules(3, 2, routings=1, kernel_initializer="he_normal"), (2, 3), refused=(2, 2, 3)),
    Row(PrimaryCapsules(2, 3, (2, 2)), (3, 4, 2)),
    Row(PrimaryCapsules(2, 2, 3, 2, "same"), (5, 2)),
]
