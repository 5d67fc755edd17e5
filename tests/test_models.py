"""Ready networks: the published numbers of weights, shapes, and that each can be trained."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sparkdl import Graph, Network, models, training
from sparkdl.initializers import TruncatedNormal
from sparkdl.layers import BatchNorm, Embedding, EmbeddingBag, HashedEmbedding, Normalization, OneHot
from sparkdl.losses import EachPosition
from sparkdl.weights import count_weights

# torchvision's `num_params` (torchvision.models.*_Weights.meta), and the papers' for U-Net and LeNet-5 as taught.
PUBLISHED = {
    "lenet": (models.lenet(), 61_706),
    "cifar10_tutorial": (models.cifar10_tutorial(), 1_068_298),
    "alexnet": (models.alexnet(), 61_100_840),
    "vgg16": (models.vgg16(), 138_357_544),
    "vgg19": (models.vgg19(), 143_667_240),
    "squeezenet": (models.squeezenet(), 1_235_496),
    "resnet18": (models.resnet18(), 11_689_512),
    "resnet34": (models.resnet34(), 21_797_672),
    "resnet50": (models.resnet50(), 25_557_032),
    "mobilenet_v2": (models.mobilenet_v2(), 3_504_872),
    "unet": (models.unet(), 31_030_658),
    # facenet-pytorch's InceptionResnetV1, without classes and with VGGFace2's, and OpenFace's nn4.small2.def.lua.
    "inception_resnet_v1": (models.inception_resnet_v1(), 23_482_624),
    "inception_resnet_v1, VGGFace2": (models.inception_resnet_v1(classes=8631), 27_910_327),
    "nn4_small2": (models.nn4_small2(), 3_733_968),
    "darknet19": (models.darknet19(), 20_842_376),
    "tiny_yolo": (models.tiny_yolo(), 15_861_773),
    "yolo2": (models.yolo2(), 50_962_889),
    "unet, valid, of three channels": (models.unet((572, 572, 3), 1, padding="valid"), 31_031_745),
}
TABLE: dict[str, Any] = {"categories": {"city": 7, "kind": HashedEmbedding(20, 4)}, "numbers": 3}


def learned(network: Network | Graph) -> int:
    return count_weights(network.learned(jax.eval_shape(lambda: network.init(0))))


@pytest.mark.parametrize(("network", "count"), PUBLISHED.values(), ids=PUBLISHED)
def test_weights_are_as_many_as_published(network: Network | Graph, count: int) -> None:
    assert learned(network) == count


@pytest.mark.parametrize(
    ("network", "running"), [(models.resnet18(), 9_600), (models.resnet34(), 17_024), (models.resnet50(), 53_120)]
)
def test_running_values_are_as_many_as_published(network: Network, running: int) -> None:
    every = count_weights(jax.eval_shape(lambda: network.init(0)))
    assert every - learned(network) == running


@pytest.mark.parametrize(
    ("network", "shape"),
    [
        (models.resnet18((32, 32, 3), 10), (10,)),
        (models.resnet50((96, 64, 3), 5), (5,)),
        (models.mobilenet_v2((64, 64, 3), 4, width=0.5), (4,)),
        (models.squeezenet((64, 50, 3), 4), (4,)),
        (models.lenet((28, 28, 1)), (10,)),
        (models.unet((32, 48, 1), 3, filters=4), (32, 48, 3)),
        (models.inception_resnet_v1((75, 80, 3), 20, blocks=(1, 0, 2), width=0.1), (20,)),
        (models.inception_resnet_v1((75, 80, 3), 20, classes=7, blocks=(0, 1, 0), width=0.1), (7,)),
        (models.nn4_small2((65, 90, 1), 20), (20,)),
        (models.darknet19((96, 64, 3), 5), (5,)),
        (models.tiny_yolo((96, 64, 3), 4, anchors=2), (3, 2, 18)),
        (models.yolo2((64, 96, 3), 4, anchors=3), (2, 3, 27)),
        (models.unet((572, 572, 1), 2, filters=2, padding="valid"), (388, 388, 2)),
        (models.mlp((2, 3), 4, (5,), dropout=0.1, batch_norm=True), (4,)),
        (models.tabular_resnet((), 1, blocks=1), (1,)),
        (models.autoencoder((4, 4, 1), (8, 2)), (16,)),
    ],
    ids=lambda given: str(given) if isinstance(given, tuple) else type(given).__name__,
)
def test_shapes(network: Network | Graph, shape: tuple[int, ...]) -> None:
    assert network.output_shape() == shape


def test_layers_of_resnet_bear_torchvisions_names() -> None:
    paths = models.resnet50().paths
    assert {"conv1", "bn1", "layer1_0/body/conv3", "layer4_2/body/bn2", "layer2_0/shortcut/downsample_0", "fc"} <= {
        *paths
    }


def test_a_small_image_keeps_its_positions_in_the_stem() -> None:
    network = models.resnet18((32, 32, 3))
    shapes = dict(zip(network.names, network.shapes((32, 32, 3))[1:], strict=True))
    assert shapes["layer1_1"] == (32, 32, 64) and shapes["layer4_1"] == (4, 4, 512)


@pytest.mark.parametrize(
    "network",
    [
        models.embedded(**TABLE, body=models.mlp((1,), 2, (8,))),
        models.embedded(**TABLE, body=models.tabular_resnet((1,), 2, 8, 16, 2)),
        models.wide_and_deep(**TABLE, outputs=2, units=(8,), crosses=[("city", "kind")], cross_rows=50),
        models.wide_and_deep({"city": 7}, outputs=2, units=()),
        models.dlrm({"city": 7, "kind": HashedEmbedding(20, 4)}, 3, 2, 4, (8,), (8,)),
        models.dlrm({"city": 7, "kind": HashedEmbedding(20, 9)}, Normalization((0.0, 1, 2), (1.0, 1, 4)), 2, 4),
    ],
    ids=["mlp", "tabular_resnet", "wide_and_deep", "wide alone", "dlrm", "dlrm, normalized"],
)
def test_networks_of_tables_learn_what_numbers_and_categories_decide_together(network: Graph) -> None:
    rows, random = 600, np.random.default_rng(6)
    city, kind = random.integers(0, 7, rows).astype("int32"), random.integers(0, 9, rows).astype("int32")
    numbers = random.normal(size=(rows, 3)).astype("float32")
    worth = np.where(np.isin(city, [1, 2, 5]), 1, -1) + (numbers[:, 0] if "numbers" in network.inputs else 0)
    labels = (worth > 0) * 1.0
    features = {name: {"city": city, "kind": kind, "numbers": numbers}[name] for name in network.inputs}
    given: dict[str, Any] = {"optimizer": "adam", "step_size": 0.01, "epochs": 40, "batch_size": 60}
    result = training.fit(network, (features, labels), **given)
    assert (result.history[-1].metric or 0) > 0.95


def test_two_towers_can_stand_alone() -> None:
    network = models.two_tower({"user": 9}, {"film": 12, "genre": 4}, size=5)
    assert network.output_shapes == {"score": (1,)}
    tower = network.up_to("item")
    assert set(tower.inputs) == {"film", "genre"} and tower.output_shape() == (5,)
    y = tower.forward(tower.init(0), (np.array([3], "int32"), np.array([1], "int32")))
    assert np.linalg.norm(y) == pytest.approx(1, rel=1e-5)


def test_networks_of_tables_read_bags() -> None:
    bag = EmbeddingBag(10, 4, mode="sum", unknown=True)
    tower = models.two_tower({"user": 9, "seen": bag}, {"film": 12}, size=5)
    assert tower.input_shapes == {"user": (), "seen": (None,), "film": ()}
    wide = models.wide_and_deep({"seen": bag, "kind": 3}, outputs=2)
    assert wide.output_shape() == (2,)
    assert dict(wide.nodes)["wide_seen"][0] == EmbeddingBag(10, 2, mode="sum", unknown=True)
    assert models.dlrm({"seen": bag, "kind": 3}, 2, size=8).output_shape() == (1,)
    assert models.dlrm({"kind": np.int64(3)}, np.int64(2)) == models.dlrm({"kind": 3}, 2)
    with pytest.raises(ValueError, match="categories must hold numbers of categories, or layers .*received OneHot"):
        models.dlrm({"kind": OneHot(3)}, 2)  # type: ignore[dict-item]


def test_the_linear_part_of_known_vectors_is_learned() -> None:
    known = Embedding(7, 4, trainable=False, unknown=True)
    nodes = dict(models.wide_and_deep({"city": known}).nodes)
    assert nodes["vector_city"][0] == known
    assert nodes["wide_city"][0] == Embedding(7, 1, unknown=True, initializer=TruncatedNormal(0.05))


def test_every_position_of_an_image_is_given_its_class() -> None:
    x = np.random.default_rng(4).normal(size=(64, 8, 8, 1)).astype("float32")
    labels = (x[..., 0] > 0).astype("int32") + (x[..., 0] > 1)
    given: dict[str, Any] = {"loss": EachPosition(), "optimizer": "adam", "step_size": 0.01, "epochs": 30}
    result = training.fit(models.unet((8, 8, 1), 3, filters=8, depth=1), ({"image": x}, labels), batch_size=16, **given)
    assert (result.history[-1].metric or 0) > 0.9
    flat = training.fit(
        models.unet((8, 8, 1), 3, filters=8, depth=1), ({"image": x}, labels.reshape(64, -1)), batch_size=16, **given
    )
    assert flat.history[-1].loss == result.history[-1].loss


def test_an_autoencoder_tells_what_it_knows_better_than_what_it_does_not() -> None:
    random = np.random.default_rng(4)
    code = random.normal(size=(400, 2))
    rows = (code @ random.normal(size=(2, 12))).astype("float32")
    network = models.autoencoder((12,), (16, 2))
    given: dict[str, Any] = {"loss": "squared_error", "optimizer": "adam", "step_size": 0.01, "epochs": 60}
    result = training.fit(network, (rows, rows), batch_size=40, **given)
    strange = random.normal(size=(50, 12)).astype("float32") * rows.std()
    known, unknown = (np.mean((network.forward(result.weights, x) - x) ** 2) for x in (rows, strange))
    assert unknown > 4 * known
    assert network.up_to("code").output_shape() == (2,)


def test_what_makes_no_network_is_refused() -> None:
    with pytest.raises(ValueError, match="crosses must be of two or more of the categories city, received"):
        models.wide_and_deep({"city": 7}, crosses=[("city", "street")])
    crosses = [("a", "b"), ("a", "b")], [("a", "b_c"), ("a_b", "c")], [("a", "d")]  # "a_d" is a category's own
    for given in crosses:
        with pytest.raises(ValueError, match="crosses must have names of their own, received 'a_(b|b_c|d)' twice"):
            models.wide_and_deep({"a": 3, "b": 4, "b_c": 5, "a_b": 3, "c": 2, "d": 2, "a_d": 7}, crosses=given)
    for numbers in (3.0, None, -1, True):
        with pytest.raises(ValueError, match="numbers must be how many there are, or a Normalization, received"):
            models.wide_and_deep({"city": 7}, numbers)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="numbers of dlrm must be at least 1"):
        models.dlrm({"city": 7}, 0)
    with pytest.raises(ValueError, match="must not be called 'numbers'"):
        models.wide_and_deep({"numbers": 7})
    with pytest.raises(ValueError, match="queries and items must have names of their own, received 'id'"):
        models.two_tower({"id": 7}, {"id": 8})
    with pytest.raises(ValueError, match="at least one category or number"):
        models.embedded({}, 0, models.mlp((1,), 1))


def test_networks_of_faces_refuse_what_leaves_them_no_positions() -> None:
    with pytest.raises(ValueError, match=r"input_shape must be .* of at least 75 x 75, received \(74, 90, 3\); resize"):
        models.inception_resnet_v1((74, 90, 3))
    with pytest.raises(ValueError, match=r"input_shape must be .* of at least 65 x 65, received \(65, 64, 3\); resize"):
        models.nn4_small2((65, 64, 3))
    with pytest.raises(ValueError, match=r"input_shape must be \(height, width, channels\) .* received \(96, 96\)"):
        models.nn4_small2((96, 96))
    with pytest.raises(ValueError, match=r"blocks must be three numbers, as \(5, 10, 5\), received \(5, 10\)"):
        models.inception_resnet_v1(blocks=(5, 10))


def test_normalization_is_learned_before_training_and_stays() -> None:
    x = np.random.default_rng(4).normal(size=(200, 2)) * [3, 0.1] + [100, -5]
    network = Network([Normalization(x.mean(axis=0), x.var(axis=0)), BatchNorm()], input_shape=(2,))
    weights = network.init(0)
    y = network.layers[0].forward(weights["normalization_0"], jnp.asarray(x, "float32"))
    np.testing.assert_allclose(y, (x - x.mean(axis=0)) / x.std(axis=0), atol=1e-4)
    assert "normalization_0" not in network.learned(weights)
