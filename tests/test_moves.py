"""Labels that name places follow what layers move in an image: maps as SciPy moves them, boxes as what is in them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.ndimage import affine_transform

from sparkdl import Graph, Network, training
from sparkdl.layers import (
    Add,
    Conv,
    Layer,
    Parallel,
    RandomAffine,
    RandomBrightness,
    RandomCrop,
    RandomFlip,
    Relu,
)
from sparkdl.layers.base import Context
from sparkdl.losses import EachPosition, Loss, Yolo
from sparkdl.models import unet
from sparkdl.objective import Objective
from sparkdl.weights import named_arrays

DRAW = np.random.default_rng(3)
ROWS, HEIGHT, WIDTH = 8, 12, 16
ANCHORS = ((0.3, 0.3),)
SCIPYS = {"reflect": "reflect", "nearest": "nearest", "wrap": "grid-wrap", "constant": "grid-constant"}
WHOLE = RandomAffine(rotation=25.0, shift=0.1, zoom=0.2)  # all that it can do


def followed(layers: list[Layer], loss: Loss, x: np.ndarray, labels: np.ndarray, seed: int = 0) -> tuple[Any, ...]:
    """(y of the layers, the labels of the last of them, what each of them kept) after a pass in training."""
    network = Network(layers, input_shape=x.shape[1:])
    objective = Objective.of(loss, None, network.output_names)
    context = Context(jax.random.key(seed), jnp.ones(len(x)))
    y, kept = network.train_forward({}, jnp.asarray(x), context)
    own = objective.follow({"label": jnp.asarray(labels)}, {"label": y}, network, kept)["label"]
    return np.asarray(y), np.asarray(own), [np.asarray(drawn) for _, _, drawn in kept]


@pytest.mark.parametrize("axis", ["horizontal", "vertical"])
@pytest.mark.parametrize("dtype", ["int32", "float32"])
def test_the_classes_of_pixels_are_mirrored_with_them(axis: str, dtype: str) -> None:
    classes = DRAW.integers(-1, 5, (ROWS, HEIGHT, WIDTH)).astype(dtype)
    x = classes[..., None].astype(np.float32)
    y, own, drawn = followed([RandomFlip(axis), RandomBrightness(0.0)], EachPosition(), x, classes.reshape(ROWS, -1))
    assert 0 < drawn[0].sum() < ROWS and own.dtype == dtype
    np.testing.assert_array_equal(own.reshape(classes.shape), y[..., 0])


@pytest.mark.parametrize("fill, scipys", SCIPYS.items())
def test_those_of_images_that_are_turned_moved_and_zoomed_are_scipys(fill: str, scipys: str) -> None:
    classes = DRAW.integers(0, 9, (ROWS, HEIGHT, WIDTH))
    layer = RandomAffine(40.0, 0.2, (-0.1, 0.3), (-0.3, 0.4), 0.2, fill=fill)
    labels = np.stack([classes, classes + 100], axis=-1).reshape(ROWS, HEIGHT * WIDTH, 2)
    x, loss = classes[..., None].astype(np.float32), EachPosition(ignore_class=255)
    _, own, [drawn] = followed([layer], loss, x, labels.astype(np.int32))
    _, floats, _ = followed([layer], loss, x, labels.astype(np.float32))
    np.testing.assert_array_equal(np.nan_to_num(floats, nan=-1), own)  # of which none is NaN
    assert (own < 0).any() == (fill == "constant")
    centre, alike = np.array([(HEIGHT - 1) / 2, (WIDTH - 1) / 2]), []
    for image, numbers, found in zip(classes, drawn.astype(np.float64), own, strict=True):
        angle, down, right, tall, wide = numbers
        turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]]) @ np.diag([tall, wide])
        offset = centre - turn @ (centre + [down, right])
        expected = affine_transform(image, turn, offset, order=0, mode=scipys, cval=-1)
        both = np.stack([expected, np.where(expected < 0, -1, expected + 100)], axis=-1)
        alike.append(found.reshape(HEIGHT, WIDTH, 2) == both)
    assert np.mean(alike) > 0.99  # all but some that lie halfway between two


def test_the_network_may_tell_fewer_positions_than_the_image_has() -> None:
    blocks = DRAW.integers(0, 9, (ROWS, HEIGHT // 4, WIDTH // 4))
    x = blocks.repeat(4, axis=1).repeat(4, axis=2)[..., None].astype(np.float32)
    quarter = Conv(1, (4, 4), strides=(4, 4), bias=False)
    network = Network([RandomFlip(), RandomFlip("vertical"), quarter], input_shape=x.shape[1:])
    weights = {"conv_2": {"kernel": jnp.full((4, 4, 1, 1), 1 / 16)}}
    y, kept = network.train_forward(weights, jnp.asarray(x), Context(jax.random.key(1), jnp.ones(ROWS)))
    objective = Objective.of(EachPosition("squared_error"), None, network.output_names)
    labels = {"label": jnp.asarray(blocks.reshape(ROWS, -1, 1), jnp.float32)}
    own = objective.follow(labels, {"label": y}, network, kept)["label"]
    np.testing.assert_allclose(own.reshape(y.shape), y, atol=1e-5)


def rectangles() -> tuple[np.ndarray, np.ndarray]:
    """Dark images (ROWS, 40, 60, 1) with a bright rectangle, and the boxes around these, (left, top, right, bottom)."""
    x, boxes = np.zeros((ROWS, 40, 60, 1), np.float32), []
    for image in x:
        height, width = DRAW.integers(6, 14, 2)
        top, left = DRAW.integers(12, 26 - height // 2), DRAW.integers(16, 40 - width // 2)
        image[top : top + height, left : left + width] = 1.0
        boxes.append([left / 60, top / 40, (left + width) / 60, (top + height) / 40])
    return x, np.array(boxes)


def around(image: np.ndarray) -> np.ndarray:
    """The box around what is bright, measured."""
    rows, columns = np.argwhere(image[..., 0] > 0.5).T
    return np.array([columns.min() / 60, rows.min() / 40, (columns.max() + 1) / 60, (rows.max() + 1) / 40])


@pytest.mark.parametrize(
    "layers, pixels",
    [
        ([RandomFlip()], 1e-4),
        ([RandomFlip("vertical"), RandomFlip()], 1e-4),
        ([RandomAffine(shift=0.2, fill="constant")], 0.6),
        ([RandomAffine(zoom=0.3, width_zoom=0.3, fill="constant"), RandomBrightness(0.1)], 0.8),
        ([RandomFlip(), RandomAffine(rotation=(90.0, 90.0), shift=0.1, fill="constant")], 0.6),
        ([RandomAffine(rotation=(180.0, 180.0), zoom=0.2, fill="constant"), RandomFlip()], 0.8),
    ],
)
def test_boxes_stay_around_what_is_in_them(layers: list[Layer], pixels: float) -> None:
    x, boxes = rectangles()
    labels = np.full((ROWS, 3, 5), -1.0, np.float32)
    labels[:, 1] = np.column_stack([np.arange(ROWS) % 2, boxes])
    y, own, _ = followed(layers, Yolo(ANCHORS, max_boxes=3), x, labels.reshape(ROWS, 15))
    own = own.reshape(ROWS, 3, 5)
    np.testing.assert_array_equal(own[..., 0], labels[..., 0])
    for image, box in zip(y, own[:, 1, 1:], strict=True):
        np.testing.assert_allclose(box * [60, 40, 60, 40], around(image) * [60, 40, 60, 40], atol=pixels)


def test_a_box_around_one_that_was_turned_has_it_within() -> None:
    x, boxes = rectangles()
    labels = np.column_stack([np.zeros(ROWS), boxes]).astype(np.float32)
    y, own, _ = followed([WHOLE], Yolo(ANCHORS, max_boxes=1), x, labels)
    for image, (kind, left, top, right, bottom) in zip(y, own, strict=True):
        seen = around(image)
        assert kind == 0 and left <= seen[0] + 0.01 and top <= seen[1] + 0.015
        assert right >= seen[2] - 0.01 and bottom >= seen[3] - 0.015


def test_boxes_are_cut_off_at_the_edges_and_left_out_when_their_middles_lie_beyond() -> None:
    x = np.zeros((1, 10, 20, 1), np.float32)
    labels = np.array([[1, 0.5, 0.2, 0.9, 0.6], [0, 0.7, 0.2, 0.9, 0.6], [1, 0.0, 0.0, 0.2, 0.3]], np.float32)
    moved = RandomAffine(shift=(0.0, 0.0), width_shift=(0.25, 0.25))
    _, [own], _ = followed([moved], Yolo(ANCHORS, max_boxes=3), x, labels.reshape(1, 15))
    expected = [[1, 0.75, 0.2, 1.0, 0.6], [-1, 0.95, 0.2, 1.0, 0.6], [1, 0.25, 0.0, 0.45, 0.3]]
    np.testing.assert_allclose(own.reshape(3, 5), expected, atol=1e-6)


PIXELWISE = (Conv(6, (1, 1), name="hidden"), Relu(), Conv(3, (1, 1), name="label"))
SHAPE = (6, 8, 2)


@pytest.mark.parametrize(
    "network",
    [
        Network([RandomFlip(), RandomBrightness(0.0), *PIXELWISE], input_shape=SHAPE),
        Network([Network([RandomFlip(), RandomFlip("vertical")]), *PIXELWISE], input_shape=SHAPE),
        Graph(
            {"features": SHAPE},
            {
                "varied": (RandomFlip(), "features"),
                "hidden": (Conv(6, (1, 1)), "varied"),
                "bright": (Relu(), "hidden"),
                "label": (Conv(3, (1, 1)), "bright"),
            },
            "label",
        ),
    ],
    ids=["chain", "network within", "graph"],
)
def test_what_looks_at_pixels_alone_learns_the_same_of_mirrored_images(network: Any) -> None:
    plain = Network(PIXELWISE, input_shape=SHAPE)
    x = DRAW.normal(size=(24, *SHAPE))
    classes = (x[..., 0] > 0).astype(int) + (x[..., 1] > 0)
    options: dict[str, Any] = {"loss": EachPosition(), "optimizer": "sgd", "step_size": 0.5, "batch_size": 8}
    options |= {"epochs": 3, "seed": 1, "dtype": "float64", "devices": 2, "initial": plain.init(0)}
    expected = training.fit(plain, (x, classes), **options)
    found = training.fit(network, (x, classes), validation=(x, classes), **options)
    assert found.history[-1].loss == pytest.approx(expected.history[-1].loss, abs=1e-12)
    assert found.history[-1].loss == pytest.approx(found.history[-1].validation_loss, rel=0.2)
    for (name, array), (_, own) in zip(named_arrays(expected.weights), named_arrays(found.weights), strict=True):
        np.testing.assert_allclose(own, array, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("loss", [EachPosition(), Yolo(ANCHORS)])
def test_a_layer_that_shows_another_part_of_the_image_is_refused(loss: Loss) -> None:
    network = Network([RandomCrop((8, 8)), Conv(7, (1, 1))], input_shape=(12, 12, 3))
    with pytest.raises(ValueError, match=r"Layer 'random_crop_0' \(RandomCrop\) shows another part of the image"):
        training.Training(network=network, loss=loss)


def test_positions_beyond_the_edges_need_a_label_unless_some_may_lack_it() -> None:
    network = Network([Network([RandomAffine(10.0, fill="constant")]), Conv(7, (1, 1))], input_shape=(12, 12, 3))
    with pytest.raises(ValueError, match="Layer 'network_0/random_affine_0' .* EachPosition would have no label; take"):
        training.Training(network=network, loss=EachPosition())
    for loss in (Yolo(ANCHORS), EachPosition(ignore_class=255)):
        training.Training(network=network, loss=loss)


def test_turned_images_need_a_whole_number_of_pixels_for_each_label() -> None:
    layers = [RandomAffine(10.0), Conv(7, (3, 3), strides=(2, 2))]
    with pytest.raises(ValueError, match=r"'random_affine_0' .* in images of 12 x 13, but of 5 x 6 labels nothing"):
        training.Training(network=Network(layers, input_shape=(12, 13, 3)), loss=EachPosition())
    for own in ([RandomFlip(), *layers[1:]], [layers[0], Conv(7, (4, 4), strides=(4, 4))]):
        training.Training(network=Network(own, input_shape=(12, 16, 3)), loss=EachPosition())


def test_a_ready_network_follows_what_is_before_it() -> None:
    network = Network([RandomFlip(), unet((16, 16, 1), classes=3, filters=2, depth=2)], input_shape=(16, 16, 1))
    x = DRAW.normal(size=(ROWS, 16, 16, 1)).astype(np.float32)
    labels = jnp.asarray(DRAW.integers(0, 3, (ROWS, 256)), jnp.int32)
    y, kept = network.train_forward(network.init(0), jnp.asarray(x), Context(jax.random.key(2), jnp.ones(ROWS)))
    objective = Objective.of(EachPosition(), None, network.output_names)
    own = objective.follow({"label": labels}, {"label": y}, network, kept)["label"]
    turned = np.asarray(kept[0][2]).reshape(ROWS)
    expected = np.where(turned[:, None, None], labels.reshape(ROWS, 16, 16)[:, :, ::-1], labels.reshape(ROWS, 16, 16))
    assert 0 < turned.sum() < ROWS
    np.testing.assert_array_equal(own.reshape(ROWS, 16, 16), expected)


def test_a_row_without_one_of_several_labels_goes_on_without_it() -> None:
    nodes = {
        "varied": (RandomFlip(), "features"),
        "boxes": (Conv(7, (4, 4), strides=(4, 4)), "varied"),
        "pixels": (Conv(3, (1, 1)), "varied"),
    }
    graph = Graph({"features": (8, 8, 1)}, nodes, ("boxes", "pixels"))
    x = DRAW.normal(size=(ROWS, 8, 8, 1))
    boxes = np.tile([1, 0.1, 0.2, 0.4, 0.5], (ROWS, 1))
    classes = DRAW.integers(0, 3, (ROWS, 64)).astype(float)
    boxes[::2], classes[::3] = np.nan, np.nan
    loss = {"boxes": Yolo(ANCHORS, max_boxes=1), "pixels": EachPosition()}
    options: dict[str, Any] = {"loss": loss, "optimizer": "sgd", "step_size": 1e-12, "batch_size": ROWS, "epochs": 1}
    labels = {"boxes": boxes, "pixels": classes}
    result = training.fit(graph, ({"features": x}, labels), validation=({"features": x}, labels), **options)
    outputs = result.history[-1].outputs or {}
    assert all(np.isfinite(own["loss"]) and np.isfinite(own["validation_loss"]) for own in outputs.values())
    assert outputs["boxes"]["loss"] == pytest.approx(outputs["boxes"]["validation_loss"], rel=0.3)


def test_two_that_part_are_refused() -> None:
    branches = Parallel([Network([RandomFlip(), Conv(3, (1, 1))]), Network([RandomFlip(), Conv(3, (1, 1))])], Add())
    network = Network([branches], input_shape=(12, 12, 3))
    with pytest.raises(ValueError, match="each move what is in an image, but neither reads"):
        training.Training(network=network, loss=EachPosition())
