"""Names of torchvision's, timm's and facenet-pytorch's files, by ready network."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import dropwhile

from sparkdl.base_network import BaseNetwork
from sparkdl.interchange.layouts import LINEAR, TOKEN, after_flatten
from sparkdl.interchange.links import Link, Table, batch_norm, conv, encoder_block, linear, norm
from sparkdl.layers import BatchNorm, Conv, Dense, DepthwiseConv, Flatten
from sparkdl.layers.composite import Leaf
from sparkdl.network import Network
from sparkdl.weights import named_arrays

COUNTERS = r".*\.num_batches_tracked"  # of batch normalization, by which nothing is computed
MOBILE_BLOCKS = 17  # of MobileNetV2
FIRES = (3, 4, 6, 7, 9, 10, 11, 12)  # places of SqueezeNet's blocks, pools being between them
TORCHVISION_VIT = {
    "qkv": "self_attention.in_proj_", "output": "self_attention.out_proj", "inner": "mlp.0", "outer": "mlp.3",
    "attention_norm": "ln_1", "feed_forward_norm": "ln_2",
}  # fmt: skip
TIMM_VIT = {
    "qkv": "attn.qkv.", "output": "attn.proj", "inner": "mlp.fc1", "outer": "mlp.fc2",
    "attention_norm": "norm1", "feed_forward_norm": "norm2",
}  # fmt: skip


def torchvision(network: BaseNetwork) -> Table | None:
    """torchvision's, of AlexNet, VGG, ResNets, MobileNetV2, SqueezeNet and vision transformers; None of others."""
    for table in (residual, mobile, squeeze, plain):
        if found := table(network):
            return found
    return vision(
        network,
        TORCHVISION_VIT,
        {
            "patches": "conv_proj",
            "class": "class_token",
            "positions": "encoder.pos_embedding",
            "block": "encoder.layers.encoder_layer_",
            "norm": "encoder.ln",
            "head": "heads.head",
        },
    )


def timm(network: BaseNetwork) -> Table | None:
    """timm's, of ResNets, which has torchvision's for them, and of vision transformers; None of others."""
    return residual(network) or vision(
        network,
        TIMM_VIT,
        {
            "patches": "patch_embed.proj",
            "class": "cls_token",
            "positions": "pos_embed",
            "block": "blocks.",
            "norm": "norm",
            "head": "head",
        },
    )


def facenet_pytorch(network: BaseNetwork) -> Table | None:
    """facenet-pytorch's, of `models.inception_resnet_v1`, whose layers are named so; None of others."""
    paths = {leaf.path for leaf in network.leaves()}
    if not {"conv2d_1a/conv", "block8/body/conv2d", "last_linear", "last_bn"} <= paths:
        return None

    def theirs(path: str) -> str:
        path = path.replace("/body/", "/").replace("/branches/", "/").replace("/", ".")
        return re.sub(r"^(repeat_\d+)_", r"\1.", path)

    head = "logits" if "logits" in paths else ""
    found = [link for leaf in weighted(network) for link in links(leaf, theirs(leaf.path))]
    return Table(found, head, besides=rf"{COUNTERS}|logits\..*")  # the published files have a layer of classes


def residual(network: BaseNetwork) -> Table | None:
    """Of `models.resnet`, whose layers are named so."""
    leaves = of_resnet(network)
    if leaves is None:
        return None

    def theirs(path: str) -> str:
        path = path.replace("/body/", "/").replace("/shortcut/", "/").replace("/", ".")
        return re.sub(r"(layer\d+|downsample)_(\d+)", r"\1.\2", path)

    return Table([link for leaf in leaves for link in links(leaf, theirs(leaf.path))], "fc", besides=COUNTERS)


def of_resnet(network: BaseNetwork) -> list[Leaf] | None:
    """The layers with weights of `models.resnet`; None of another network."""
    leaves = weighted(network)
    return leaves if leaves and leaves[0].path == "conv1" and leaves[-1].path == "fc" else None


def mobile(network: BaseNetwork) -> Table | None:
    """Of `models.mobilenet_v2`, whose layers come in the order of theirs."""
    leaves, names = weighted(network), list(_mobile_names())
    if len(leaves) != len(names) or not any(isinstance(leaf.layer, DepthwiseConv) for leaf in leaves):
        return None
    found = [link for leaf, name in zip(leaves, names, strict=True) for link in links(leaf, name)]
    return Table(found, leaves[-1].path, besides=COUNTERS)


def _mobile_names() -> Iterator[str]:
    yield from ("features.0.0", "features.0.1")
    for number in range(1, MOBILE_BLOCKS + 1):
        parts = (
            ("0.0", "0.1", "1", "2") if number == 1 else ("0.0", "0.1", "1.0", "1.1", "2", "3")
        )  # the first is as wide
        yield from (f"features.{number}.conv.{part}" for part in parts)
    yield from (f"features.{MOBILE_BLOCKS + 1}.0", f"features.{MOBILE_BLOCKS + 1}.1", "classifier.1")


def squeeze(network: BaseNetwork) -> Table | None:
    """Of `models.squeezenet`, whose blocks have torchvision's names within."""
    leaves = weighted(network)
    paths = [leaf.path for leaf in leaves]
    if len(paths) != 2 + 3 * len(FIRES) or paths[:2] != ["conv1", "fire2/squeeze"] or paths[-1] != "conv10":
        return None
    parts = ("squeeze", "expand1x1", "expand3x3")
    names = ["features.0", *(f"features.{place}.{part}" for place in FIRES for part in parts), "classifier.1"]
    return Table([link for leaf, name in zip(leaves, names, strict=True) for link in links(leaf, name)], paths[-1])


def plain(network: BaseNetwork) -> Table | None:
    """Of layers one after the other with one Flatten between convolutions and dense layers, as AlexNet and VGG."""
    leaves = _from_first_convolution(network) if isinstance(network, Network) else []
    middle = [place for place, leaf in enumerate(leaves) if isinstance(leaf.layer, Flatten)]
    kinds = [type(leaf.layer) for leaf in leaves]
    if len(middle) != 1 or any("/" in leaf.path for leaf in leaves):
        return None
    (flatten,) = middle
    if Conv not in kinds[:flatten] or set(kinds[flatten:]) & {Conv, BatchNorm} or kinds[-1] is not Dense:
        return None
    found: list[Link] = []
    for place, leaf in enumerate(leaves):
        if isinstance(leaf.layer, Conv):
            found += links(leaf, f"features.{place}")
        elif isinstance(leaf.layer, Dense):
            layout = LINEAR if Dense in kinds[:place] else after_flatten(leaves[flatten].before)
            found += linear(leaf.path, f"classifier.{place - flatten - 1}", layout)
    return Table(found, leaves[-1].path)


def vision(network: BaseNetwork, block: dict[str, str], names: dict[str, str]) -> Table | None:
    """Of `models.vit`, by their names for the parts of a block and for all else."""
    paths = {leaf.path.partition("/")[0] for leaf in network.leaves()}
    if not {"patches", "class", "positions", "block_0", "norm", "head"} <= paths:
        return None
    found = [Link(names["class"], ("class/token",), TOKEN), Link(names["positions"], ("positions/table",), TOKEN)]
    found += conv("patches", names["patches"])
    for index in range(sum(path.startswith("block_") for path in paths)):
        found += encoder_block(f"block_{index}", f"{names['block']}{index}.", block)
    return Table([*found, *norm("norm", names["norm"]), *linear("head", names["head"])], "head")


def weighted(network: BaseNetwork) -> list[Leaf]:
    """The layers that have weights, in the order of computation, from the first convolution on."""
    paths = [path for path, _ in named_arrays(network.abstract_weights())]
    holders = {path[:end] for path in paths for end, sign in enumerate(path) if sign == "/"}
    return [leaf for leaf in _from_first_convolution(network) if leaf.path in holders]


def _from_first_convolution(network: BaseNetwork) -> list[Leaf]:
    """What comes before prepares images, of which their files know nothing."""
    return list(dropwhile(lambda leaf: not isinstance(leaf.layer, Conv), network.leaves()))


def links(leaf: Leaf, theirs: str) -> Iterator[Link]:
    """Of a layer of convolutional networks, by its kind."""
    if isinstance(leaf.layer, BatchNorm):
        return batch_norm(leaf.path, theirs)
    if isinstance(leaf.layer, (Conv, DepthwiseConv)):
        return conv(leaf.path, theirs)
    return linear(leaf.path, theirs)
