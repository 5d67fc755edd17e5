"""Every ready network, at its usual size: what was published of it, and a peer that computes the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from sparkdl import Graph, Network, models
from sparkdl.interchange.weight_files import known_names
from sparkdl.weights import count_weights

CATEGORIES = {"city": 100, "kind": 1000}  # of a table: columns and how many values they have
TEXT, WORDS, SIGNS = 128, 10_000, 65  # words or characters of a text, and how many there are
PEERS = {"torchvision", "timm", "huggingface", "facenet_pytorch"}


class Ready(NamedTuple):
    """A ready network.

    Attributes
    ----------
    call : str
        As a user writes it.
    build : callable
        The network.
    published : int, optional
        Its numbers that learn, as torchvision, timm, Hugging Face or the paper tell.
    peer : dict, optional
        Of Hugging Face's model of the same network its configuration; {} says that PyTorch's own modules are put
        together, layer by layer.
    steps : int, default 128
        Of rows of any length.
    """

    call: str
    build: Callable[[], Network | Graph]
    published: int | None = None
    peer: Mapping[str, Any] | None = None
    steps: int = TEXT


BERT = {"model_type": "bert", "attn_implementation": "sdpa"}
READY = (
    Ready("lenet()", models.lenet, 61_706, {}),
    Ready("cifar10_tutorial()", models.cifar10_tutorial, 1_068_298, {}),
    Ready("alexnet()", models.alexnet, 61_100_840, {}),
    Ready("vgg16()", models.vgg16, 138_357_544, {}),
    Ready("vgg19()", models.vgg19, 143_667_240, {}),
    Ready("squeezenet()", models.squeezenet, 1_235_496, {}),
    Ready("resnet18()", models.resnet18, 11_689_512, {}),
    Ready("resnet34()", models.resnet34, 21_797_672, {}),
    Ready("resnet50()", models.resnet50, 25_557_032, {}),
    Ready("mobilenet_v2()", models.mobilenet_v2, 3_504_872, {}),
    Ready("inception_resnet_v1()", models.inception_resnet_v1, 23_482_624),
    Ready("nn4_small2()", models.nn4_small2, 3_733_968),
    Ready("unet()", models.unet, 31_030_658),
    Ready("darknet19()", models.darknet19, 20_842_376, {}),
    Ready("tiny_yolo()", models.tiny_yolo, 15_861_773),
    Ready("yolo2()", models.yolo2, 50_962_889),
    Ready("vit_s16()", models.vit_s16, 22_050_664, {
        "model_type": "vit", "hidden_size": 384, "num_attention_heads": 6, "intermediate_size": 1536,
    }),
    Ready("vit_b16()", models.vit_b16, 86_567_656, {"model_type": "vit"}),
    Ready("bert()", models.bert, 109_482_240, BERT),
    Ready("distilbert()", models.distilbert, 66_362_880, {"model_type": "distilbert"}),
    Ready("minilm()", models.minilm, 22_713_216, BERT | {
        "hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536,
    }),
    Ready("gpt2()", models.gpt2, 124_439_808, {"model_type": "gpt2"}),
    Ready("transformer_classifier(10000, 4)", lambda: models.transformer_classifier(WORDS, 4)),
    Ready("text_cnn((128,), 4, 10000)", lambda: models.text_cnn((TEXT,), 4, WORDS)),
    Ready("char_rnn(65)", lambda: models.char_rnn(SIGNS)),
    Ready("lstm_classifier((None, 12), 9)", lambda: models.lstm_classifier((None, 12), 9)),
    Ready("tcn((None, 12), 9)", lambda: models.tcn((None, 12), 9)),
    Ready("forecaster(7, 24)", lambda: models.forecaster(7, 24)),
    Ready("mlp((100,), 10)", lambda: models.mlp((100,), 10), None, {}),
    Ready("autoencoder((100,))", lambda: models.autoencoder((100,)), None, {}),
    Ready("tabular_resnet((100,), 10)", lambda: models.tabular_resnet((100,), 10)),
    Ready("wide_and_deep({...}, 10)", lambda: models.wide_and_deep(CATEGORIES, 10)),
    Ready("dlrm({...}, 13)", lambda: models.dlrm(CATEGORIES, 13)),
    Ready("ft_transformer({...}, 13)", lambda: models.ft_transformer(CATEGORIES, 13)),
    Ready("two_tower({...}, {...})", lambda: models.two_tower({"user": 100}, {"film": 1000})),
)  # fmt: skip


def facts(ready: Ready) -> list[str]:
    """Cells of the table that no clock tells: weights, published, multiply-adds, names of files."""
    network = ready.build()
    learned = count_weights(network.learned(network.abstract_weights()))
    published = "" if ready.published is None else f"{ready.published:,}"
    names = ", ".join(name for name in known_names(network) if name in PEERS)
    return [f"`{ready.call}`", f"{learned:,}", published, f"{network.multiply_adds():,}", names]
