"""Weights by our names and by others': laid out as theirs, whole or refused, with a head of one's own."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from attention_peers import ragged

from sparkdl import Graph, Network, models, training
from sparkdl.interchange import load_weights, save_weights
from sparkdl.interchange.torch_names import links, weighted
from sparkdl.layers import AvgPool, Conv, Dense, Embedding, Flatten, Normalization, Relu, Rescale
from sparkdl.spark.params.warm_start import weights_of
from sparkdl.tensor_file import read_tensors, write_tensors
from sparkdl.weights import named_arrays, nested_weights

pytestmark = pytest.mark.usefixtures("unoptimized")

BOTTLENECKS = models.resnet((64, 64, 3), 5, (1, 2), 8, bottleneck=True, small=False)
BASIC = models.resnet((32, 32, 3), 5, (1, 2), 8, small=False)
VIT = models.vit((32, 32, 3), 5, 16, 8, 2, 2)
FACES = models.inception_resnet_v1((75, 107, 3), 12, blocks=(2, 1, 1), width=1 / 16)
OF_PERSONS = models.inception_resnet_v1((75, 107, 3), 12, 5, blocks=(2, 1, 1), width=1 / 16)
BERT = {"vocabulary": 50, "size": 8, "blocks": 2, "heads": 2, "length": 9, "separator": 2}
READY: dict[str, tuple[str, Network | Graph]] = {
    "resnet, torchvision": ("torchvision", BOTTLENECKS),
    "mobilenet_v2, torchvision": ("torchvision", models.mobilenet_v2((32, 32, 3), 5, width=0.25)),
    "squeezenet, torchvision": ("torchvision", models.squeezenet((32, 32, 3), 5)),
    "vit, torchvision": ("torchvision", VIT),
    "inception_resnet_v1": ("facenet_pytorch", OF_PERSONS),
    "inception_resnet_v1 without classes": ("facenet_pytorch", FACES),
    "resnet, timm": ("timm", BASIC),
    "vit, timm": ("timm", VIT),
    "resnet, huggingface": ("huggingface", BOTTLENECKS),
    "vit, huggingface": ("huggingface", VIT),
    "bert": ("huggingface", models.bert(3, **BERT)),
    "bert without a head": ("huggingface", models.bert(**BERT)),
    "bert, not pooled": ("huggingface", models.bert(**BERT, pooled=False)),
    "gpt2": ("huggingface", models.gpt2(50, 8, 2, 2, 9)),
}
PLAIN = Network(
    [Conv(3, (3, 3)), Relu(), AvgPool(2), Flatten(), Dense(4), Relu(), Dense(2)], input_shape=(8, 10, 2)
)  # AlexNet and VGG are like it, and large


def random(network: Network | Graph, seed: int = 0, dtype: Any = "float32") -> Any:
    """Weights none of which is like another, and variances above 0."""
    draw = np.random.default_rng(seed)
    return jax.tree.map(lambda array: draw.uniform(0.1, 1, array.shape).astype(dtype), network.abstract_weights())


def assert_same(found: Any, wanted: Any) -> None:
    arrays = dict(named_arrays(wanted))
    assert dict(named_arrays(found)).keys() == arrays.keys()
    for name, array in named_arrays(found):
        assert array.shape == arrays[name].shape, name
        np.testing.assert_array_equal(array, arrays[name], err_msg=name)


@pytest.mark.parametrize(
    ("names", "network"),
    [*READY.values(), ("sparkdl", BASIC), ("torchvision", PLAIN)],
    ids=[*READY, "resnet, sparkdl", "plain, torchvision"],
)
def test_what_is_written_is_read(names: str, network: Network | Graph, tmp_path: Path) -> None:
    weights = random(network)
    save_weights(tmp_path / "a.safetensors", weights, network, names)
    assert_same(load_weights(tmp_path / "a.safetensors", network, names), weights)
    assert_same(load_weights(tmp_path / "a.safetensors", network), weights)  # whose names they are is seen


def test_by_our_names_any_network_is_written(tmp_path: Path) -> None:
    network = Network([Embedding(5, 3), Flatten(), Dense(2)], input_shape=(4,))
    weights = network.init(3)
    save_weights(tmp_path / "a", weights)
    assert set(read_tensors(tmp_path / "a").arrays) == {name for name, _ in named_arrays(weights)}
    assert_same(load_weights(tmp_path / "a", network), weights)
    labels, initial = np.array([0, 1, 0, 1], "int32"), load_weights(tmp_path / "a", network)
    result = training.fit(network, (np.zeros((4, 4), "int32"), labels), epochs=0, initial=initial)
    assert_same(result.weights, weights)


# The names of the libraries, each as a file of theirs has it, with what it is shaped like there.
TOLD = {
    "resnet, torchvision": {
        "conv1.weight": (8, 3, 7, 7),
        "bn1.running_var": (8,),
        "layer1.0.conv3.weight": (32, 8, 1, 1),
        "layer1.0.downsample.0.weight": (32, 8, 1, 1),
        "layer2.0.downsample.1.running_mean": (64,),
        "layer2.1.bn2.bias": (16,),
        "fc.weight": (5, 64),
    },
    "squeezenet, torchvision": {
        "features.0.weight": (64, 3, 3, 3),
        "features.3.squeeze.bias": (16,),
        "features.12.expand3x3.weight": (256, 64, 3, 3),
        "classifier.1.weight": (5, 512, 1, 1),
    },
    "mobilenet_v2, torchvision": {
        "features.0.0.weight": (8, 3, 3, 3),
        "features.1.conv.0.0.weight": (8, 1, 3, 3),
        "features.1.conv.1.weight": (8, 8, 1, 1),
        "features.1.conv.2.running_var": (8,),
        "features.2.conv.1.0.weight": (48, 1, 3, 3),
        "features.17.conv.3.weight": (80,),
        "features.18.1.bias": (1280,),
        "classifier.1.weight": (5, 1280),
    },
    "vit, torchvision": {
        "class_token": (1, 1, 8),
        "conv_proj.weight": (8, 3, 16, 16),
        "encoder.pos_embedding": (1, 5, 8),
        "encoder.layers.encoder_layer_1.ln_2.weight": (8,),
        "encoder.layers.encoder_layer_0.self_attention.in_proj_weight": (24, 8),
        "encoder.layers.encoder_layer_0.self_attention.in_proj_bias": (24,),
        "encoder.layers.encoder_layer_0.self_attention.out_proj.weight": (8, 8),
        "encoder.layers.encoder_layer_1.mlp.3.weight": (8, 32),
        "encoder.ln.bias": (8,),
        "heads.head.weight": (5, 8),
    },
    "vit, timm": {
        "cls_token": (1, 1, 8),
        "pos_embed": (1, 5, 8),
        "patch_embed.proj.bias": (8,),
        "blocks.1.attn.qkv.weight": (24, 8),
        "blocks.0.attn.proj.bias": (8,),
        "blocks.0.mlp.fc1.weight": (32, 8),
        "blocks.1.norm2.weight": (8,),
        "norm.weight": (8,),
        "head.bias": (5,),
    },
    "inception_resnet_v1": {
        "conv2d_1a.conv.weight": (2, 3, 3, 3),
        "conv2d_4b.bn.running_var": (16,),
        "repeat_1.1.branch0.conv.weight": (2, 16, 1, 1),
        "repeat_1.0.branch2.2.bn.bias": (2,),
        "repeat_1.1.conv2d.weight": (16, 6, 1, 1),
        "mixed_6a.branch0.conv.weight": (24, 16, 3, 3),
        "repeat_2.0.branch1.1.conv.weight": (8, 8, 1, 7),
        "repeat_2.0.branch1.2.conv.weight": (8, 8, 7, 1),
        "mixed_7a.branch0.1.bn.running_mean": (24,),
        "repeat_3.0.conv2d.bias": (112,),
        "block8.branch1.1.conv.weight": (12, 12, 1, 3),
        "last_linear.weight": (12, 112),
        "last_bn.weight": (12,),
        "logits.bias": (5,),
    },
    "bert": {
        "bert.embeddings.word_embeddings.weight": (50, 8),
        "bert.encoder.layer.1.attention.self.key.weight": (8, 8),
        "bert.encoder.layer.0.intermediate.dense.weight": (32, 8),
        "bert.pooler.dense.bias": (8,),
        "classifier.weight": (3, 8),
    },
    "bert without a head": {"embeddings.LayerNorm.weight": (8,), "pooler.dense.weight": (8, 8)},
    "gpt2": {"wte.weight": (50, 8), "h.1.attn.c_attn.weight": (8, 24), "h.0.mlp.c_fc.weight": (8, 32)},
}


@pytest.mark.parametrize("case", TOLD)
def test_files_have_their_names_and_shapes(case: str, tmp_path: Path) -> None:
    names, network = READY[case]
    save_weights(tmp_path / "a", random(network), network, names)
    file = read_tensors(tmp_path / "a")
    assert {name: file.arrays[name].shape for name in TOLD[case]} == TOLD[case]
    assert file.metadata == {"format": "pt"}


def test_kernels_are_laid_out_as_pytorchs(tmp_path: Path, float64: None) -> None:
    """Convolved, pooled, flattened channels first and multiplied in NumPy, by the arrays of a file."""
    draw = np.random.default_rng(0)
    theirs = {
        "features.0.weight": draw.normal(size=(3, 2, 3, 3)),
        "features.0.bias": draw.normal(size=3),
        "classifier.0.weight": draw.normal(size=(4, 3 * 3 * 4)),
        "classifier.0.bias": draw.normal(size=4),
        "classifier.2.weight": draw.normal(size=(2, 4)),
        "classifier.2.bias": draw.normal(size=2),
    }
    x = draw.normal(size=(5, 2, 8, 10))
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(2, 3))
    y = np.einsum("nchwij,ocij->nohw", windows, theirs["features.0.weight"]) + theirs["features.0.bias"][:, None, None]
    y = np.maximum(y, 0).reshape(5, 3, 3, 2, 4, 2).mean(axis=(3, 5)).reshape(5, -1)
    y = np.maximum(y @ theirs["classifier.0.weight"].T + theirs["classifier.0.bias"], 0)
    y = y @ theirs["classifier.2.weight"].T + theirs["classifier.2.bias"]
    write_tensors(tmp_path / "a", theirs)
    weights = load_weights(tmp_path / "a", PLAIN, "torchvision")
    np.testing.assert_allclose(PLAIN.forward(weights, x.transpose(0, 2, 3, 1)), y, atol=1e-12)


@pytest.mark.parametrize("network", [PLAIN, BASIC, VIT], ids=["plain", "residual", "vision"])
def test_what_prepares_images_stays_as_it_is(network: Network, tmp_path: Path) -> None:
    channels = network.input_shape[-1]
    mean, variance = np.arange(1.0, channels + 1), np.arange(2.0, channels + 2)
    prepared = Network([Rescale(1 / 255), Normalization(mean, variance), *network.layers], network.input_shape)
    weights = random(network)
    save_weights(tmp_path / "a", weights, network, "torchvision")
    found = load_weights(tmp_path / "a", prepared, "torchvision")
    names = [name for name in found if "normalization" in name]
    np.testing.assert_allclose(found[names[0]]["variance"], variance)
    pixels = np.random.default_rng(3).integers(0, 256, (2, *network.input_shape)).astype("float32")
    expected = network.forward(weights, (pixels / 255 - mean.astype("float32")) / np.sqrt(variance).astype("float32"))
    np.testing.assert_allclose(prepared.forward(found, pixels), expected, rtol=1e-3)
    save_weights(tmp_path / "b", found, prepared, "torchvision")
    assert (tmp_path / "b").read_bytes() == (tmp_path / "a").read_bytes()
    found[names[0]]["mean"] += 5  # by our names a file has these, too
    save_weights(tmp_path / "c", found, prepared)
    assert_same(load_weights(tmp_path / "c", prepared), found)


def test_layers_may_lack_their_biases(tmp_path: Path) -> None:
    layers = [Conv(3, (3, 3), bias=False), Relu(), Flatten(), Dense(4, bias=False), Relu(), Dense(2)]
    network = Network(layers, input_shape=(8, 10, 2))
    weights = random(network)
    save_weights(tmp_path / "a", weights, network, "torchvision")
    assert [name for name in read_tensors(tmp_path / "a").arrays if "bias" in name] == ["classifier.2.bias"]
    assert_same(load_weights(tmp_path / "a", network, "torchvision"), weights)


def test_an_encoder_takes_files_of_networks_that_end_in_classes(tmp_path: Path) -> None:
    whole, encoder = models.bert(3, **BERT), models.bert(**BERT)
    weights = random(whole)
    save_weights(tmp_path / "a", weights, whole, "huggingface")
    assert_same(load_weights(tmp_path / "a", encoder), {name: weights[name] for name in encoder.abstract_weights()})


def renamed(path: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    write_tensors(path, change(dict(read_tensors(path).arrays)))


@pytest.fixture
def bert(tmp_path: Path) -> tuple[Graph, Any, Path]:
    """BERT with a head of three classes, its weights, and a file of them."""
    network = READY["bert"][1]
    assert isinstance(network, Graph)
    weights = random(network)
    save_weights(tmp_path / "a", weights, network, "huggingface")
    return network, weights, tmp_path / "a"


def test_names_of_layers_may_begin_as_wrappers_do(tmp_path: Path) -> None:
    network = Network([Dense(3, name="model.first"), Dense(2, name="model.last")], input_shape=(4,))
    weights = random(network)
    save_weights(tmp_path / "a", weights, network)
    assert_same(load_weights(tmp_path / "a", network), weights)


def test_published_vision_transformers_of_torchvision_have_older_names(tmp_path: Path) -> None:
    """vit_b_16-c867db91.pth has "mlp.linear_1", which torchvision turns into "mlp.0" as it loads it."""
    weights = random(VIT)
    save_weights(tmp_path / "a", weights, VIT, "torchvision")
    older = {"mlp.0.": "mlp.linear_1.", "mlp.3.": "mlp.linear_2."}
    renamed(
        tmp_path / "a",
        lambda arrays: {re.sub(r"mlp\.[03]\.", lambda new: older[new[0]], name): arrays[name] for name in arrays},
    )
    assert "encoder.layers.encoder_layer_1.mlp.linear_2.bias" in read_tensors(tmp_path / "a").arrays
    assert_same(load_weights(tmp_path / "a", VIT), weights)


@pytest.mark.parametrize(
    ("case", "others"),
    [
        ("bert", ["qa_outputs.weight"]),
        ("inception_resnet_v1 without classes", ["logits.weight", "logits.bias"]),
        ("gpt2", ["score.weight", "classifier.bias", "multiple_choice_head.summary.weight"]),
        ("vit, huggingface", ["vit.embeddings.mask_token", "decoder.0.weight"]),
    ],
)
def test_heads_of_other_tasks_count_nothing(case: str, others: list[str], tmp_path: Path) -> None:
    names, network = READY[case]
    weights = random(network)
    save_weights(tmp_path / "a", weights, network, names)
    renamed(tmp_path / "a", lambda arrays: arrays | {name: np.zeros((2, 8), "float32") for name in others})
    assert_same(load_weights(tmp_path / "a", network), weights)


def test_scores_by_another_table_than_that_of_words_are_refused(tmp_path: Path) -> None:
    """A GPT-2 of `tie_word_embeddings=False` has two tables, and our network only one."""
    names, network = READY["gpt2"]
    weights = random(network)
    save_weights(tmp_path / "a", weights, network, names)
    table = np.asarray(weights["words"]["table"])
    renamed(tmp_path / "a", lambda arrays: arrays | {"lm_head.weight": table})
    assert_same(load_weights(tmp_path / "a", network), weights)
    renamed(tmp_path / "a", lambda arrays: arrays | {"lm_head.weight": 2 * table})
    with pytest.raises(ValueError, match="'lm_head.weight' differs from 'transformer.wte.weight', where the network"):
        load_weights(tmp_path / "a", network)


def in_shards(path: Path, folder: Path, count: int = 3) -> Path:
    """The index of the arrays of a file, cut into several files as Hugging Face's libraries cut them."""
    arrays, places = read_tensors(path).arrays, {}
    for at in range(count):
        file = f"model-{at + 1:05}-of-{count:05}.safetensors"
        own = {name: arrays[name] for name in list(arrays)[at::count]}
        write_tensors(folder / file, own, {"format": "pt"})
        places |= dict.fromkeys(own, file)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": 0}, "weight_map": places}))
    return index


def test_an_index_lists_the_files_of_a_large_model(bert: tuple[Graph, Any, Path], tmp_path: Path) -> None:
    network, weights, path = bert
    index = in_shards(path, tmp_path)
    assert_same(load_weights(index, network), weights)
    assert_same(weights_of(str(index), "initialModel", lambda: network), weights)
    with pytest.raises(IsADirectoryError, match="is a folder; name the file in it .*, model.safetensors.index.json"):
        load_weights(tmp_path, network)


def test_an_index_that_does_not_fit_its_files_is_refused(bert: tuple[Graph, Any, Path], tmp_path: Path) -> None:
    network, _, path = bert
    index = in_shards(path, tmp_path)
    places = json.loads(index.read_text())["weight_map"]
    first, *_, last = places
    changes: dict[str, Any] = {
        "is no index of safetensors files: it has no weight_map": [None, [], {}, {first: 3}],
        f"does not fit 'model-00001-of-00003.safetensors': '{first}' is in only one": [
            {name: file for name, file in places.items() if name != first},
            places | {first: places[last]},
        ],
        "lists '../a.safetensors', which is no safetensors file in its folder": [places | {first: "../a.safetensors"}],
        "lists '/etc/passwd', which is no": [places | {first: "/etc/passwd"}],
        "lists 'model.bin', which is no": [places | {first: "model.bin"}],
    }
    for sentence, maps in changes.items():
        for other in maps:
            index.write_text(json.dumps({"weight_map": other}))
            with pytest.raises(ValueError, match=sentence):
                load_weights(index, network)
    for text in ("", "[]", "{", "[" * 100_000):
        index.write_text(text)
        with pytest.raises(ValueError, match="is no index of safetensors files"):
            load_weights(index, network)
    index.write_text(json.dumps({"weight_map": places}))
    (tmp_path / places[last]).unlink()
    with pytest.raises(FileNotFoundError, match=re.escape(places[last])):
        load_weights(index, network)


CHANGES: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "a wrapper": lambda arrays: {f"module.{name}": array for name, array in arrays.items()},
    "two wrappers": lambda arrays: {f"module._orig_mod.{name}": array for name, array in arrays.items()},
    "no prefix": lambda arrays: {name.removeprefix("bert."): array for name, array in arrays.items()},
    "TensorFlow's": lambda arrays: {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): array
        for name, array in arrays.items()
    },
    "what counts nothing": lambda arrays: (
        arrays | {"bert.embeddings.position_ids": np.arange(9)[None], "cls.predictions.bias": np.zeros(50, "float32")}
    ),
    "another order": lambda arrays: dict(reversed(arrays.items())),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_files_differ_in_what_does_not_matter(change: Any, bert: tuple[Graph, Any, Path]) -> None:
    network, weights, path = bert
    renamed(path, change)
    assert_same(load_weights(path, network, "huggingface"), weights)


@pytest.mark.parametrize("dtype", ["float16", jnp.bfloat16], ids=str)
def test_half_precision_becomes_float32(dtype: Any, bert: tuple[Graph, Any, Path]) -> None:
    network, weights, path = bert
    renamed(path, lambda arrays: {name: array.astype(dtype) for name, array in arrays.items()})
    found = load_weights(path, network, "huggingface")
    assert {array.dtype.name for _, array in named_arrays(found)} == {"float32"}
    assert_same(found, jax.tree.map(lambda array: array.astype(dtype).astype("float32"), weights))


@pytest.mark.parametrize(("classes", "lacking"), [(3, False), (7, False), (7, True)])
def test_a_head_of_other_classes_starts_afresh(classes: int, lacking: bool, bert: tuple[Graph, Any, Path]) -> None:
    _, weights, path = bert
    if lacking:
        renamed(path, lambda arrays: {name: array for name, array in arrays.items() if "classifier" not in name})
    network = models.bert(classes, **BERT)
    found = load_weights(path, network, "huggingface", seed=4)
    head = weights["outputs"] if classes == 3 else network.init(4)["outputs"]
    assert_same(found, weights | {"outputs": head})


def test_float64_stays_beside_a_head_that_starts_afresh(bert: tuple[Graph, Any, Path]) -> None:
    renamed(bert[2], lambda arrays: {name: array.astype("float64") for name, array in arrays.items()})
    found = load_weights(bert[2], models.bert(5, **BERT))
    dtypes = {name: str(array.dtype) for name, array in named_arrays(found)}
    assert {name for name, dtype in dtypes.items() if dtype == "float32"} == {
        "outputs/dense/kernel",
        "outputs/dense/bias",
    }


def test_what_does_not_fit_is_told_in_a_sentence(bert: tuple[Graph, Any, Path], tmp_path: Path) -> None:
    network, weights, path = bert
    before = dict(read_tensors(path).arrays)

    def refused(change: Callable[[dict[str, Any]], dict[str, Any]], match: str) -> None:
        write_tensors(path, change(dict(before)))
        with pytest.raises(ValueError, match=match):
            load_weights(path, network, "huggingface")

    one = "bert.encoder.layer.1.output.dense.bias"
    refused(lambda arrays: {n: a for n, a in arrays.items() if n != one}, f"fit the network: it lacks '{one}'; see")
    refused(
        lambda arrays: arrays | {"lora.a": np.zeros(1), "lora.b": np.zeros(1)},
        "it has 'lora.a', 'lora.b', which the network has not; see",
    )
    refused(
        lambda arrays: {f"x.{name}": array for name, array in arrays.items() if "LayerNorm" in name},
        "it lacks 'bert.embeddings.word_embeddings.weight', .* and .* more and has 'x.bert",
    )
    refused(
        lambda arrays: arrays | {one: np.zeros(9, "float32")},
        rf"'{one}' has the shape \(9,\), where the network's 'block_1/feed_forward/outer/bias' would be \(8,\); build",
    )
    refused(lambda arrays: arrays | {one: np.zeros(8, "int32")}, f"'{one}' must hold floats, received int32")
    with pytest.raises(ValueError, match="names must be one of 'sparkdl', 'torchvision', .*'keras'"):
        load_weights(path, network, "keras")
    with pytest.raises(ValueError, match="No table of names='torchvision' is known for this network.*'block_0', 'b"):
        load_weights(path, network, "torchvision")
    with pytest.raises(ValueError, match="save_weights with names='timm' needs network="):
        save_weights(path, weights, names="timm")
    with pytest.raises(ValueError, match="words/table"):
        save_weights(path, {**weights, "words": {"table": np.zeros((3, 3))}}, network)
    write_tensors(path, {"a": np.zeros(3), "b": np.zeros(3)})
    with pytest.raises(ValueError, match="has none of the names that are known for this .* it has 'a', 'b'"):
        load_weights(path, network)
    with pytest.raises(OSError, match="nowhere"):
        load_weights(tmp_path / "nowhere", network)


def test_networks_that_only_look_like_theirs_have_no_table(tmp_path: Path) -> None:
    for network in (
        Network([Conv(3, (3, 3), name="conv1"), Flatten(), Dense(2, name="fc"), Dense(2)], input_shape=(5, 5, 1)),
        Network([Dense(2)], input_shape=(4,)),
    ):
        for names in ("torchvision", "timm", "huggingface", "facenet_pytorch"):
            if network.layers[0].name == "conv1" and names == "torchvision":
                continue  # one like AlexNet
            with pytest.raises(ValueError, match=f"No table of names='{names}'"):
                load_weights(tmp_path / "a", network, names)


# Values


def drawn(module: Any) -> Any:
    """The module in float64, with weights none of which is like another."""
    torch = pytest.importorskip("torch")
    draw = np.random.default_rng(1)
    module = module.double().eval()
    with torch.no_grad():
        for name, array in module.state_dict().items():
            shape = tuple(array.shape)
            if array.ndim > 1:  # so that what differs in rows is not lost on the way
                array.copy_(torch.from_numpy(draw.normal(size=shape) * (2 / array[0].numel()) ** 0.5))
            elif array.ndim == 1:
                low, high = (0.5, 1.5) if name.endswith(("weight", "running_var")) else (-0.3, 0.3)
                array.copy_(torch.from_numpy(draw.uniform(low, high, shape)))
    return module


def assert_equal_outputs(network: Network | Graph, weights: Any, given: Any, expected: Any) -> None:
    found = jax.jit(network.forward)(weights, given)
    values = np.asarray(getattr(found, "values", found))
    wanted = expected.detach().numpy()
    assert np.ptp(wanted, axis=0).max() > 1e-3 * np.abs(wanted).max()
    np.testing.assert_allclose(values, wanted, rtol=0, atol=1e-10 * np.abs(wanted).max())


def equal_to(module: Any, network: Network, path: Path, x: Any, given: Any, names: str = "torchvision") -> None:
    """The network gives what the module gives, by the module's file; and the module takes the file that we write."""
    torch = pytest.importorskip("torch")
    expected = drawn(module)(torch.from_numpy(x))
    write_tensors(path, {name: array.numpy() for name, array in module.state_dict().items()})
    weights = load_weights(path, network, names)
    assert_equal_outputs(network, weights, given, expected)
    save_weights(path, jax.tree.map(lambda array: 2 * array, weights), network, names)
    written = {name: torch.from_numpy(np.array(array)) for name, array in read_tensors(path).arrays.items()}
    doubled = {name: 2 * array for name, array in module.state_dict().items()}
    module.load_state_dict(written)
    for name, array in module.state_dict().items():
        assert torch.equal(array, doubled[name]), name


def equal_to_saved(module: Any, network: Network | Graph, folder: Path, x: Any, given: Any, **asked: Any) -> None:
    """The same of a model of Hugging Face's, by what its `save_pretrained` and `from_pretrained` write and read."""
    torch = pytest.importorskip("torch")
    expected = drawn(module)(torch.from_numpy(x), **asked).logits
    module.save_pretrained(folder)
    weights = load_weights(folder / "model.safetensors", network, "huggingface")
    assert_equal_outputs(network, weights, given, expected)
    save_weights(folder / "model.safetensors", weights, network, "huggingface")
    again = type(module).from_pretrained(folder, dtype=torch.float64).eval()
    torch.testing.assert_close(again(torch.from_numpy(x), **asked).logits, expected, rtol=1e-10, atol=0)


def images(height: int, width: int) -> tuple[Any, Any]:
    """Channels first, and last."""
    x = np.random.default_rng(2).normal(size=(3, 3, height, width))
    return x, jnp.asarray(x.transpose(0, 2, 3, 1))


def test_residual_networks_are_those_of_torchvision(tmp_path: Path, float64: None) -> None:
    torch = pytest.importorskip("torch")
    nn = torch.nn

    class Bottleneck(nn.Module):  # type: ignore[misc, name-defined]
        """Of torchvision's names and order, "V1.5"."""

        def __init__(self, channels: int, width: int, stride: int) -> None:
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(channels, width, 1, bias=False), nn.BatchNorm2d(width)
            self.conv2, self.bn2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
            self.conv3, self.bn3 = nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)
            self.downsample = None
            if stride > 1 or channels != 4 * width:
                own = nn.Conv2d(channels, 4 * width, 1, stride, bias=False)
                self.downsample = nn.Sequential(own, nn.BatchNorm2d(4 * width))

        def forward(self, x: Any) -> Any:
            y = torch.relu(self.bn1(self.conv1(x)))
            y = torch.relu(self.bn2(self.conv2(y)))
            return torch.relu(self.bn3(self.conv3(y)) + (x if self.downsample is None else self.downsample(x)))

    class Residual(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8)
            self.maxpool = nn.MaxPool2d(3, 2, 1)
            self.layer1 = nn.Sequential(Bottleneck(8, 8, 1))
            self.layer2 = nn.Sequential(Bottleneck(32, 16, 2), Bottleneck(64, 16, 1))
            self.fc = nn.Linear(64, 5)

        def forward(self, x: Any) -> Any:
            y = self.maxpool(torch.relu(self.bn1(self.conv1(x))))
            return self.fc(self.layer2(self.layer1(y)).mean((2, 3)))

    x, given = images(64, 64)
    equal_to(Residual(), BOTTLENECKS, tmp_path / "a", x, given)


def test_mobile_networks_are_those_of_torchvision(tmp_path: Path, float64: None) -> None:
    torch = pytest.importorskip("torch")
    nn = torch.nn

    def normalized(inputs: int, outputs: int, size: int, stride: int = 1, groups: int = 1) -> Any:
        own = nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False)
        return nn.Sequential(own, nn.BatchNorm2d(outputs), nn.ReLU6())

    class Inverted(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
            super().__init__()
            hidden = inputs * expansion
            layers = [normalized(inputs, hidden, 1)] if expansion > 1 else []
            layers += [normalized(hidden, hidden, 3, stride, hidden)]
            self.conv = nn.Sequential(*layers, nn.Conv2d(hidden, outputs, 1, bias=False), nn.BatchNorm2d(outputs))
            self.adds = stride == 1 and inputs == outputs

        def forward(self, x: Any) -> Any:
            return x + self.conv(x) if self.adds else self.conv(x)

    class Mobile(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            layers, channels = [normalized(3, 8, 3, 2)], 8
            # Table 2 of the paper at a quarter of its filters, in multiples of 8.
            for expansion, filters, blocks, strides in (
                (1, 8, 1, 1), (6, 8, 2, 2), (6, 8, 3, 2), (6, 16, 4, 2), (6, 24, 3, 1), (6, 40, 3, 2), (6, 80, 1, 1),
            ):  # fmt: skip
                for index in range(blocks):
                    layers.append(Inverted(channels, filters, strides if index == 0 else 1, expansion))
                    channels = filters
            self.features = nn.Sequential(*layers, normalized(channels, 1280, 1))
            self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, 5))

        def forward(self, x: Any) -> Any:
            return self.classifier(self.features(x).mean((2, 3)))

    x, given = images(32, 32)
    network = READY["mobilenet_v2, torchvision"][1]
    assert isinstance(network, Network)
    equal_to(Mobile(), network, tmp_path / "a", x, given)


@pytest.mark.parametrize("size", [(62, 48), (35, 67)])
def test_squeezenet_is_that_of_torchvision(size: tuple[int, int], tmp_path: Path, float64: None) -> None:
    torch = pytest.importorskip("torch")
    nn = torch.nn

    class Fire(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, inputs: int, squeezed: int, expanded: int) -> None:
            super().__init__()
            self.squeeze = nn.Conv2d(inputs, squeezed, 1)
            self.expand1x1 = nn.Conv2d(squeezed, expanded, 1)
            self.expand3x3 = nn.Conv2d(squeezed, expanded, 3, padding=1)

        def forward(self, x: Any) -> Any:
            x = torch.relu(self.squeeze(x))
            return torch.cat([torch.relu(self.expand1x1(x)), torch.relu(self.expand3x3(x))], 1)

    def pool() -> Any:
        return nn.MaxPool2d(3, 2, ceil_mode=True)

    features = nn.Sequential(
        nn.Conv2d(3, 64, 3, 2), nn.ReLU(), pool(), Fire(64, 16, 64), Fire(128, 16, 64), pool(), Fire(128, 32, 128),
        Fire(256, 32, 128), pool(), Fire(256, 48, 192), Fire(384, 48, 192), Fire(384, 64, 256), Fire(512, 64, 256),
    )  # fmt: skip
    classifier = nn.Sequential(nn.Dropout(0.5), nn.Conv2d(512, 5, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
    module = nn.Sequential()
    module.add_module("features", features)
    module.add_module("classifier", classifier)
    module.add_module("flatten", nn.Flatten())
    x, given = images(*size)
    equal_to(module, models.squeezenet((*size, 3), 5), tmp_path / "a", x, given)


@pytest.mark.parametrize("network", [FACES, OF_PERSONS], ids=["vectors", "classes"])
def test_inception_resnet_is_that_of_facenet_pytorch(network: Network, tmp_path: Path, float64: None) -> None:
    torch = pytest.importorskip("torch")
    nn = torch.nn

    def unit(inputs: int, outputs: int, size: Any, stride: int = 1, padding: Any = 0) -> Any:
        module = nn.Sequential()
        module.add_module("conv", nn.Conv2d(inputs, outputs, size, stride, padding, bias=False))
        module.add_module("bn", nn.BatchNorm2d(outputs, eps=0.001))
        module.add_module("relu", nn.ReLU())
        return module

    class Branches(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, *branches: Any) -> None:
            super().__init__()
            for number, branch in enumerate(branches):
                self.add_module(f"branch{number}", branch)
            self.count = len(branches)

        def forward(self, x: Any) -> Any:
            return torch.cat([getattr(self, f"branch{number}")(x) for number in range(self.count)], 1)

    class Block(Branches):
        """What its branches see, scaled and added."""

        def __init__(self, inputs: int, seen: int, scale: float, rectified: bool, *branches: Any) -> None:
            super().__init__(*branches)
            self.conv2d = nn.Conv2d(seen, inputs, 1)
            self.scale, self.rectified = scale, rectified

        def forward(self, x: Any) -> Any:
            y = self.conv2d(super().forward(x)) * self.scale + x
            return torch.relu(y) if self.rectified else y

    def block35() -> Any:
        second = nn.Sequential(unit(16, 2, 1), unit(2, 2, 3, 1, 1))
        third = nn.Sequential(unit(16, 2, 1), unit(2, 2, 3, 1, 1), unit(2, 2, 3, 1, 1))
        return Block(16, 6, 0.17, True, unit(16, 2, 1), second, third)

    def wide(inputs: int, own: int, length: int, scale: float, rectified: bool) -> Any:
        """Block17 and Block8, whose kernels are rows and columns of such a length."""
        row, column = unit(own, own, (1, length), 1, (0, length // 2)), unit(own, own, (length, 1), 1, (length // 2, 0))
        branches = unit(inputs, own, 1), nn.Sequential(unit(inputs, own, 1), row, column)
        return Block(inputs, 2 * own, scale, rectified, *branches)

    class Faces(nn.Module):  # type: ignore[misc, name-defined]
        """At a sixteenth of its channels."""

        def __init__(self, classes: int | None) -> None:
            super().__init__()
            self.conv2d_1a, self.conv2d_2a, self.conv2d_2b = unit(3, 2, 3, 2), unit(2, 2, 3), unit(2, 4, 3, 1, 1)
            self.maxpool_3a = nn.MaxPool2d(3, 2)
            self.conv2d_3b, self.conv2d_4a, self.conv2d_4b = unit(4, 5, 1), unit(5, 12, 3), unit(12, 16, 3, 2)
            self.repeat_1 = nn.Sequential(block35(), block35())
            second = nn.Sequential(unit(16, 12, 1), unit(12, 12, 3, 1, 1), unit(12, 16, 3, 2))
            self.mixed_6a = Branches(unit(16, 24, 3, 2), second, nn.MaxPool2d(3, 2))
            self.repeat_2 = nn.Sequential(wide(56, 8, 7, 0.1, True))
            first = nn.Sequential(unit(56, 16, 1), unit(16, 24, 3, 2))
            second = nn.Sequential(unit(56, 16, 1), unit(16, 16, 3, 2))
            third = nn.Sequential(unit(56, 16, 1), unit(16, 16, 3, 1, 1), unit(16, 16, 3, 2))
            self.mixed_7a = Branches(first, second, third, nn.MaxPool2d(3, 2))
            self.repeat_3 = nn.Sequential(wide(112, 12, 3, 0.2, True))
            self.block8 = wide(112, 12, 3, 1.0, False)
            self.last_linear, self.last_bn = nn.Linear(112, 12, bias=False), nn.BatchNorm1d(12, eps=0.001)
            self.logits = classes and nn.Linear(12, classes)

        def forward(self, x: Any) -> Any:
            y = self.conv2d_2b(self.conv2d_2a(self.conv2d_1a(x)))
            y = self.conv2d_4b(self.conv2d_4a(self.conv2d_3b(self.maxpool_3a(y))))
            y = self.repeat_2(self.mixed_6a(self.repeat_1(y)))
            y = self.block8(self.repeat_3(self.mixed_7a(y))).mean((2, 3))
            y = self.last_bn(self.last_linear(y))
            return self.logits(y) if self.logits else nn.functional.normalize(y)

    x, given = images(75, 107)
    module = Faces(5 if network is OF_PERSONS else None)
    equal_to(module, network, tmp_path / "a", x, given, "facenet_pytorch")


def test_nn4_small2_is_that_of_openface(float64: None) -> None:
    """Put together as its nn4.small2.def.lua, whose files none but Torch 7 reads: layers are matched by their order."""
    torch = pytest.importorskip("torch")
    nn = torch.nn

    def unit(inputs: int, outputs: int, size: int = 1, stride: int = 1) -> list[Any]:
        return [nn.Conv2d(inputs, outputs, size, stride, size // 2), nn.BatchNorm2d(outputs), nn.ReLU()]

    class Inception(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, inputs: int, pool: Any, projected: int, one: int, *sizes: tuple[int, int, int]) -> None:
            super().__init__()
            stride = 1 if one else 2
            branches = [[*unit(inputs, inner), *unit(inner, outer, size, stride)] for size, inner, outer in sizes]
            branches.append([pool, *(unit(inputs, projected) if projected else [])])
            branches += [unit(inputs, one)] if one else []
            self.branches = nn.ModuleList([nn.Sequential(*branch) for branch in branches])

        def forward(self, x: Any) -> Any:
            found = [branch(x) for branch in self.branches]
            height, width = found[0].shape[2:]
            for at, y in enumerate(found):
                above, left = (height - y.shape[2]) // 2, (width - y.shape[3]) // 2
                wider = y.new_zeros(*y.shape[:2], height, width)
                wider[:, :, above : above + y.shape[2], left : left + y.shape[3]] = y
                found[at] = wider
            return torch.cat(found, 1)

    largest, norm = nn.MaxPool2d(3, 2), nn.LPPool2d(2, 3, 3)
    module = nn.Sequential(
        *unit(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1), nn.LocalResponseNorm(5, 1e-4, 0.75),
        *unit(64, 64), *unit(64, 192, 3), nn.LocalResponseNorm(5, 1e-4, 0.75), nn.MaxPool2d(3, 2, 1),
        Inception(192, largest, 32, 64, (3, 96, 128), (5, 16, 32)),
        Inception(256, norm, 64, 64, (3, 96, 128), (5, 32, 64)),
        Inception(320, largest, 0, 0, (3, 128, 256), (5, 32, 64)),
        Inception(640, norm, 128, 256, (3, 96, 192), (5, 32, 64)),
        Inception(640, largest, 0, 0, (3, 160, 256), (5, 64, 128)),
        Inception(1024, norm, 96, 256, (3, 96, 384)),
        Inception(736, largest, 96, 256, (3, 96, 384)),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(736, 128),
    )  # fmt: skip
    x, given = images(65, 104)
    expected = nn.functional.normalize(drawn(module)(torch.from_numpy(x)))
    network = models.nn4_small2((65, 104, 3))
    leaves = weighted(network)
    theirs = [name.removesuffix(".weight") for name in module.state_dict() if name.endswith(".weight")]
    arrays, shapes = module.state_dict(), dict(named_arrays(network.abstract_weights()))
    found = {}
    for leaf, name in zip(leaves, theirs, strict=True):
        for link in links(leaf, name):
            found |= link.read(arrays[link.theirs].numpy(), {path: shapes[path].shape for path in link.ours})
    assert_equal_outputs(network, nested_weights(found), given, expected)


def test_plain_networks_are_those_of_torchvision(tmp_path: Path, float64: None) -> None:
    torch = pytest.importorskip("torch")
    nn = torch.nn
    module = nn.Sequential()
    module.add_module("features", nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.AvgPool2d(2)))
    module.add_module("flatten", nn.Flatten())
    module.add_module("classifier", nn.Sequential(nn.Linear(36, 4), nn.ReLU(), nn.Linear(4, 2)))
    x = np.random.default_rng(2).normal(size=(3, 2, 8, 10))
    equal_to(module, PLAIN, tmp_path / "a", x, jnp.asarray(x.transpose(0, 2, 3, 1)))


def of_hugging_face(kind: str, **settings: Any) -> Any:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("torch")
    config, model = kind.split()
    return getattr(transformers, model)(getattr(transformers, config)(**settings))


SIZES = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}


def test_vision_transformers_are_those_of_hugging_face(tmp_path: Path, float64: None) -> None:
    sizes = SIZES | {"image_size": 32, "patch_size": 16}
    module = of_hugging_face("ViTConfig ViTForImageClassification", **sizes, num_labels=5)
    x, given = images(32, 32)
    network = models.vit((32, 32, 3), 5, 16, 8, 2, 2, epsilon=1e-12)
    equal_to_saved(module, network, tmp_path, x, given)


@pytest.mark.parametrize(("kind", "network"), [("bottleneck", BOTTLENECKS), ("basic", BASIC)])
def test_residual_networks_are_those_of_hugging_face(
    kind: str, network: Network, tmp_path: Path, float64: None
) -> None:
    sizes = [32, 64] if kind == "bottleneck" else [8, 16]
    module = of_hugging_face(
        "ResNetConfig ResNetForImageClassification",
        embedding_size=8,
        hidden_sizes=sizes,
        depths=[1, 2],
        layer_type=kind,
        num_labels=5,
    )
    x, given = images(*network.input_shape[:2])
    equal_to_saved(module, network, tmp_path, x, given)


IDS = np.array([[1, 9, 2, 7, 8, 2], [1, 5, 6, 7, 3, 4], [1, 4, 2, 6, 2, 2]])
WHOLE = ragged(IDS.astype("int32"), (6, 6, 6))


def test_bert_is_that_of_hugging_face(tmp_path: Path, float64: None) -> None:
    torch = pytest.importorskip("torch")
    module = of_hugging_face(
        "BertConfig BertForSequenceClassification",
        **SIZES,
        vocab_size=50,
        max_position_embeddings=9,
        num_labels=3,
    )
    types = torch.tensor([[0, 0, 0, 1, 1, 1], [0] * 6, [0, 0, 0, 1, 1, 1]])
    equal_to_saved(module, READY["bert"][1], tmp_path, IDS, WHOLE, token_type_ids=types)


def test_distilbert_is_that_of_hugging_face(tmp_path: Path, float64: None) -> None:
    module = of_hugging_face(
        "DistilBertConfig DistilBertForSequenceClassification", vocab_size=50, num_labels=3, n_layers=6
    )
    network = models.distilbert(3, vocabulary=50)
    equal_to_saved(module, network, tmp_path, IDS, WHOLE)


def test_gpt2_is_that_of_hugging_face(tmp_path: Path, float64: None) -> None:
    module = of_hugging_face("GPT2Config GPT2LMHeadModel", vocab_size=50, n_embd=8, n_layer=2, n_head=2, n_positions=9)
    network = READY["gpt2"][1]
    equal_to_saved(module, network, tmp_path, IDS, WHOLE)
