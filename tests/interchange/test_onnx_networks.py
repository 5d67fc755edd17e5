"""Every ready network, written as ONNX, gives in onnxruntime what it gives here."""

from __future__ import annotations

import inspect
from dataclasses import replace

import pytest
from onnx_peer import assert_equal

from sparkdl import Network, models
from sparkdl.base_network import BaseNetwork
from sparkdl.layers import Conv, Dense, Embedding, EmbeddingBag, GravesLstm, Gru, HashedEmbedding, Normalization, OneHot
from sparkdl.layers.base import Layer
from sparkdl.strings import Vocabulary

pytestmark = pytest.mark.usefixtures("unoptimized")


def narrow(network: Network) -> Network:
    """The same with a sixteenth of the filters, and few units, which are of no matter here but large."""

    def changed(layer: Layer) -> Layer:
        if isinstance(layer, Dense):
            return replace(layer, units=min(layer.units, 12))
        return replace(layer, filters=layer.filters // 16) if isinstance(layer, Conv) else layer

    return replace(network, layers=[changed(layer) for layer in network.layers])


CITIES = {"city": 7, "kind": HashedEmbedding(20, 4)}
NUMBERS = Normalization((0.0, 1, 2), (1.0, 0, 4))
READY: dict[str, BaseNetwork] = {
    "lenet": models.lenet((28, 28, 1)),
    "cifar10_tutorial": narrow(models.cifar10_tutorial()),
    "alexnet": narrow(models.alexnet((64, 64, 3), 3)),
    "vgg16": narrow(models.vgg16((32, 32, 3), 3)),
    "vgg19": narrow(models.vgg19((32, 32, 3), 3)),
    "squeezenet": models.squeezenet((64, 50, 3), 3),
    "resnet": models.resnet((32, 32, 3), 5, (1, 2), 8),
    "resnet of bottlenecks": models.resnet((64, 64, 3), 5, (1, 2), 8, bottleneck=True, small=False),
    "mobilenet_v2": models.mobilenet_v2((32, 32, 3), 5, width=0.25),
    "inception_resnet_v1": models.inception_resnet_v1((75, 80, 3), 8, blocks=(1, 1, 1), width=0.06),
    "inception_resnet_v1 of classes": models.inception_resnet_v1((75, 75, 3), 8, 3, blocks=(0, 0, 0), width=0.06),
    "nn4_small2": models.nn4_small2((65, 70, 3), 8),
    "unet": models.unet((16, 24, 1), 3, filters=4, depth=2),
    "unet, valid": models.unet((44, 44, 1), 3, filters=4, depth=2, padding="valid"),
    "darknet19": models.darknet19((64, 32, 3), 3, width=0.05),
    "tiny_yolo": models.tiny_yolo((64, 32, 3), 3, 2, width=0.05),
    "yolo2": models.yolo2((32, 64, 3), 3, 2, width=0.05),
    "vit": models.vit((32, 16, 1), 5, 8, 12, 2, 3, dropout=0.1),
    "mlp": models.mlp((2, 3), 4, (5,), dropout=0.1, batch_norm=True),
    "tabular_resnet": models.tabular_resnet((6,), 3, 8, 16, 2),
    "autoencoder": models.autoencoder((4, 4, 1), (8, 2)),
    "embedded": models.embedded(CITIES, NUMBERS, models.mlp((1,), 2, (8,))),
    "wide_and_deep": models.wide_and_deep(CITIES, NUMBERS, 2, (8,), [("city", "kind")], 50),
    "dlrm": models.dlrm(CITIES, NUMBERS, 2, 4, (8,), (8,)),
    "two_tower": models.two_tower({"user": 9, "seen": EmbeddingBag(9, 4)}, {"film": 12}, 5),
    "ft_transformer": models.ft_transformer(CITIES, NUMBERS, 2, 2, 16, 4),
    "lstm_classifier": models.lstm_classifier((None,), 3, (4, 3), Embedding(9, 4), dropout=0.2),
    "lstm_classifier both ways": models.lstm_classifier((None, 3), 3, (4,), bidirectional=True),
    "text_cnn": models.text_cnn((None,), 3, Embedding(9, 4), sizes=(2, 3), filters=4),
    "tcn": models.tcn((None, 2), 3, (4, 4, 5), 3, dropout=0.1),
    "char_rnn": models.char_rnn(9, (4, 4), dropout=0.1, tied=True),
    "char_rnn of vectors of ones": models.char_rnn(OneHot(9, unknown=True), (5,), GravesLstm),
    "char_rnn of a vocabulary": models.char_rnn(Vocabulary(list("abcd")), (5,), Gru),
    "forecaster": models.forecaster(2, 3, known=2, series=5, lstm_units=(4,), units=(4,)),
    "forecaster of a window": models.forecaster(NUMBERS, 3, window=5, units=(4,), quantiles=2),
    "transformer_classifier": models.transformer_classifier(9, 3, 8, 2, 2),
    "bert": models.bert(3, 20, 8, 2, 2, length=9, separator=2),
    "bert, not pooled": models.bert(None, 20, 8, 1, 2, length=9, separator=2, pooled=False),
    "gpt2": models.gpt2(20, 8, 2, 2, 9),
    "gpt2 of as many steps": models.gpt2(20, 8, 1, 2, 9, steps=6),
}
# Others of the sizes of one of these, and what makes none without a DataFrame.
OF_A_SIZE = {"resnet18", "resnet34", "resnet50", "vit_s16", "vit_b16", "distilbert", "minilm"}
OF_DATA = {"tabular", "normalization", "vocabulary"}
QUICK = ("lenet", "resnet", "wide_and_deep")


def param(name: str) -> object:
    """The network of a name, slow unless it is among the quick ones."""
    return pytest.param(READY[name], id=name, marks=[] if name in QUICK else [pytest.mark.slow])


@pytest.mark.parametrize("network", [param(name) for name in READY])
def test_a_ready_network_gives_what_it_gives_here(network: BaseNetwork) -> None:
    assert_equal(network)


def test_all_ready_networks_are_among_them() -> None:
    public = {name for name, _ in inspect.getmembers(models, inspect.isfunction)}
    assert public - OF_A_SIZE - OF_DATA == {name.split()[0].strip(",") for name in READY}


@pytest.mark.parametrize("opset", [13, 21])
@pytest.mark.parametrize("name", ["resnet", "vit", "bert", "tcn", "forecaster", "wide_and_deep"])
def test_operators_of_other_versions_give_the_same(name: str, opset: int) -> None:
    assert_equal(READY[name], opset)
