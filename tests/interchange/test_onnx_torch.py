"""Networks that PyTorch's exporters write become networks that compute the same, in the layers that they have."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest
from onnx_graphs import channels_last

from sparkdl.interchange import load_onnx

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")
from torch import nn  # noqa: E402

pytestmark = pytest.mark.usefixtures("unoptimized")


class Block(nn.Module):
    """Of a residual network."""

    def __init__(self, channels: int, filters: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, filters, 3, stride, 1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(filters), nn.BatchNorm2d(filters)
        self.conv2 = nn.Conv2d(filters, filters, 3, 1, 1, bias=False)
        self.downsample = nn.Sequential(nn.Conv2d(channels, filters, 1, stride, bias=False), nn.BatchNorm2d(filters))

    def forward(self, x: Any) -> Any:
        inner = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(inner)) + self.downsample(x))


class Inverted(nn.Module):
    """Of a MobileNet, with its gate."""

    def __init__(self, channels: int, gated: bool) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(channels, 2 * channels, 1, bias=False), nn.BatchNorm2d(2 * channels), nn.ReLU6(),
            nn.Conv2d(2 * channels, 2 * channels, 3, 1, 1, groups=2 * channels, bias=False), nn.SiLU(),
        )  # fmt: skip
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(2 * channels, 2, 1), nn.Hardswish(), nn.Conv2d(2, 2 * channels, 1),
            nn.Hardsigmoid(),
        )  # fmt: skip
        self.last = nn.Conv2d(2 * channels, channels, 1)
        self.gated = gated

    def forward(self, x: Any) -> Any:
        inner = self.layers(x)
        return x + self.last(inner * self.gate(inner) if self.gated else inner)


class OverTime(nn.Module):
    """A recurrent layer, of which the last step or the last state is read."""

    def __init__(self, kind: Callable[..., Any], state: bool = False, **told: Any) -> None:
        super().__init__()
        self.layer = kind(4, 3, **told)
        self.head = nn.Linear(3 * (1 + bool(told.get("bidirectional"))), 2)
        self.state, self.first = state, bool(told.get("batch_first"))

    def forward(self, x: Any) -> Any:
        every, state = self.layer(x)
        if self.state:
            state = state[0] if isinstance(state, tuple) else state
            return self.head(torch.cat([state[-2], state[-1]], 1) if self.layer.bidirectional else state[-1])
        return self.head(every[:, -1] if self.first else every[-1])


class Encoder(nn.Module):
    """A transformer's encoder of words."""

    def __init__(self, **told: Any) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(11, 8), nn.Parameter(torch.randn(1, 6, 8))
        layer = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.1, batch_first=True, **told)
        self.encoder = nn.TransformerEncoder(layer, 2, nn.LayerNorm(8), enable_nested_tensor=False)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Any) -> Any:
        return self.head(self.encoder(self.words(x) + self.positions).mean(1))


class Asking(nn.Module):
    """Attention to itself, with earlier steps alone, and of other sizes than PyTorch's own."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(8, 3 * 12), nn.Linear(12, 8, bias=False)

    def forward(self, x: Any) -> Any:
        rows, steps, _ = x.shape
        query, key, value = self.qkv(x).view(rows, steps, 3, 3, 4).permute(2, 0, 3, 1, 4).unbind(0)
        scores = (query * 0.5) @ key.transpose(-2, -1) + torch.full((steps, steps), -torch.inf).triu(1)
        return x + self.out((scores.softmax(-1) @ value).transpose(1, 2).flatten(2))


def perceptron() -> nn.Module:
    layers = [nn.Linear(4, 8), nn.BatchNorm1d(8), nn.GELU(approximate="tanh"), nn.Dropout(0.2), nn.Linear(8, 6)]
    return nn.Sequential(*layers, nn.LayerNorm(6), nn.ELU(), nn.Linear(6, 3), nn.Softmax(1))


def vgg() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d((2, 2)), nn.Flatten(),
        nn.Linear(16, 5), nn.ReLU(), nn.Dropout(), nn.Linear(5, 2),
    )  # fmt: skip


def residual() -> nn.Module:
    stem = [nn.Conv2d(3, 4, 7, 2, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 2)]
    return nn.Sequential(*stem, Block(4, 4, 1), Block(4, 6, 2), *head)


def segmenting() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1, groups=2), nn.GroupNorm(2, 4), nn.LeakyReLU(0.2), nn.AvgPool2d(2),
        nn.ConvTranspose2d(4, 3, 2, 2), nn.Upsample(scale_factor=2), nn.PReLU(3), nn.PixelShuffle(1),
    )  # fmt: skip


def activations() -> nn.Module:
    kinds = [
        nn.Mish(),
        nn.Softsign(),
        nn.Hardtanh(-1, 2),
        nn.LogSigmoid(),
        nn.CELU(0.5),
        nn.Softplus(),
        nn.Softplus(2.0),
    ]
    return nn.Sequential(*(layer for kind in kinds for layer in (nn.Linear(4, 4), kind)), nn.LogSoftmax(1))


class Case(NamedTuple):
    """A network of PyTorch's, the sizes that it reads, and what it is made of here."""

    make: Callable[[], nn.Module]
    sizes: tuple[int, ...]
    has: set[str]
    below: int = 0


WORDS, SERIES = (3, 6), (3, 5, 4)
CASES = {
    "perceptron": Case(perceptron, (3, 4), {"Dense", "Gelu", "LayerNorm", "Softmax"}),
    "activations": Case(
        activations, (3, 4), {"Mish", "Softsign", "HardTanh", "LogSigmoid", "Celu", "Softplus", "Scale", "LogSoftmax"}
    ),
    "vgg": Case(vgg, (3, 3, 8, 8), {"MaxPool", "AvgPool", "Flatten"}),
    "resnet": Case(residual, (3, 3, 16, 16), {"MaxPool", "Add", "GlobalAvgPool"}),
    "mobilenet": Case(lambda: nn.Sequential(Inverted(4, False), Inverted(4, True)), (3, 4, 6, 6), {"DepthwiseConv"}),
    "segmenting": Case(segmenting, (3, 2, 8, 8), {"GroupNorm", "ConvTranspose", "UpSample", "PRelu"}),
    "over time": Case(lambda: nn.Sequential(nn.Conv1d(4, 3, 3, padding=1), nn.ReLU()), (3, 4, 5), {"Conv"}),
    "lstm": Case(lambda: OverTime(nn.LSTM, batch_first=True), SERIES, {"Lstm", "LastStep"}),
    "lstm's state": Case(lambda: OverTime(nn.LSTM, True, batch_first=True), SERIES, {"Lstm", "LastStep"}),
    "two lstms, both ways": Case(
        lambda: OverTime(nn.LSTM, batch_first=True, bidirectional=True, num_layers=2), SERIES, {"Bidirectional"}
    ),
    "gru's states": Case(
        lambda: OverTime(nn.GRU, True, batch_first=True, bidirectional=True), SERIES, {"Bidirectional"}
    ),
    "two grus, steps first": Case(lambda: OverTime(nn.GRU, num_layers=2), (5, 3, 4), {"Gru", "LastStep"}),
    "rnn": Case(lambda: OverTime(nn.RNN, batch_first=True, nonlinearity="relu"), SERIES, {"SimpleRnn"}),
    "encoder": Case(lambda: Encoder(activation="gelu"), WORDS, {"MultiHeadAttention", "LayerNorm", "Gelu"}, 11),
    "encoder, norm first": Case(lambda: Encoder(norm_first=True), WORDS, {"MultiHeadAttention", "Relu"}, 11),
    "attention of one's own": Case(Asking, (3, 5, 8), {"MultiHeadAttention"}),
}


def exported(model: nn.Module, x: Any, path: Path, dynamo: bool, rows: int, opset: int | None = None) -> Path:
    """The file, whose rows may be any number."""
    told: dict[str, Any] = {"dynamic_axes": {"x": {rows: "batch"}}}
    if dynamo:
        named = {rows: torch.export.Dim("batch")}
        told = {"dynamic_shapes": (named,), "external_data": False, "verbose": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        names = {"input_names": ["x"], "output_names": ["y"], "opset_version": opset}
        torch.onnx.export(model, (x,), path, dynamo=dynamo, **names, **told)
    return path


def check(case: Case, path: Path, dynamo: bool, opset: int | None = None) -> Any:
    torch.manual_seed(0)
    model, steps_first = case.make().eval(), case.sizes[0] == 5
    for buffer in model.buffers():
        if buffer.is_floating_point():
            nn.init.uniform_(buffer, 0.5, 1.5)
    x = torch.randint(case.below, case.sizes) if case.below else torch.randn(case.sizes)
    network, weights = load_onnx(exported(model, x, path, dynamo, int(steps_first), opset))
    own = channels_last(x.numpy().astype("int32") if case.below else x.numpy())
    if steps_first or case.sizes == (3, 4, 5):
        own = np.swapaxes(own, *((0, 1) if steps_first else (1, 2)))
    y, expected = network.forward(weights, jnp.asarray(own)), channels_last(model(x).detach().numpy())
    expected = np.swapaxes(expected, 1, 2) if case.sizes == (3, 4, 5) else expected
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)
    made = {type(leaf.layer).__name__ for leaf in network.leaves()} | {type(c.layer).__name__ for c in network.children}
    assert made >= case.has
    return network


@pytest.mark.parametrize("name", CASES)
def test_it_computes_what_pytorch_does(name: str, tmp_path: Path) -> None:
    check(CASES[name], tmp_path / "a.onnx", dynamo=False)


@pytest.mark.parametrize("name", [name for name in CASES if name != "rnn"])  # whose steps it writes one by one
def test_so_it_does_as_written_by_the_exporter_of_programs(name: str, tmp_path: Path) -> None:
    check(CASES[name], tmp_path / "a.onnx", dynamo=True)


@pytest.mark.parametrize(
    ("name", "opset"), [("perceptron", 13), ("activations", 14), ("encoder", 14), ("mobilenet", 13)]
)
def test_what_older_operators_are_made_of_is_one_layer(name: str, opset: int, tmp_path: Path) -> None:
    check(CASES[name], tmp_path / "a.onnx", False, opset)
