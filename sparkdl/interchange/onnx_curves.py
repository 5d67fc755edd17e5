"""Activations of recurrent layers as ONNX names them."""

from __future__ import annotations

# By our name theirs, with alpha and beta where it has such.
ONNX_CURVES: dict[str, tuple[str, tuple[float, ...]]] = {
    "elu": ("Elu", (1.0,)),
    "hard_sigmoid": ("HardSigmoid", (1 / 6, 0.5)),
    "hard_sigmoid_0.2": ("HardSigmoid", (0.2, 0.5)),
    "linear": ("Affine", (1.0, 0.0)),
    "relu": ("Relu", ()),
    "sigmoid": ("Sigmoid", ()),
    "softsign": ("Softsign", ()),
    "tanh": ("Tanh", ()),
}
