"""Every layer, written as ONNX, gives in onnxruntime what it gives here."""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any

import pytest
from layer_table import Row
from onnx_peer import assert_equal

import sparkdl.layers
from sparkdl import Graph, Network
from sparkdl.base_network import BaseNetwork
from sparkdl.layers import (
    Add,
    BatchNorm,
    Bucketize,
    Concatenate,
    Conv,
    CrossCategories,
    Dense,
    EachStep,
    Embedding,
    FirstStep,
    Flatten,
    GroupNorm,
    HashedEmbedding,
    LastStep,
    LayerNorm,
    Lstm,
    Masking,
    Maxout,
    Multiply,
    OneHot,
    Parallel,
    PRelu,
    Relu,
    Rescale,
    Scale,
    Segments,
    Softmax,
    Standardize,
    Subset,
    TiedDense,
    TimeMax,
    TimeMean,
)
from sparkdl.layers.base import KernelLayer, Layer
from sparkdl.layers.composite import Composite
from sparkdl.layers.ragged import is_ragged

pytestmark = pytest.mark.usefixtures("unoptimized")

NAMES = ("layer_table", "layer_table_more", "layer_table_breadth", "layer_table_categories", "layer_table_sequences")
TABLES = [rows for name in NAMES for rows in vars(import_module(name)).values() if isinstance(rows, list)]
CROSS = Graph(
    {"city": (), "kind": ()},
    {"pair": (CrossCategories(), "city", "kind"), "y": (HashedEmbedding(50, 3), "pair")},
    ("y", "pair"),
)
MORE = [
    Row(OneHot(4, unknown=True), (3,)),
    Row(OneHot(5), (None,)),
    Row(Segments(3, 3), (6,)),
    Row(Segments(3), (None,)),
    Row(CROSS, ((), ())),
    Row(Bucketize((-1.0, 0.0, 0.5)), (4,)),
    Row(Bucketize((0.25,)), (None,)),
    Row(Embedding(4, 2, unknown=True), (None,)),
    Row(Network([Embedding(5, 3, name="words"), TiedDense(5, to="words")]), (None,)),
    # Steps of rows of any length that a layer takes as rows, and such that are images.
    Row(Standardize(), (None, 3)),
    Row(BatchNorm(), (None, 3)),
    Row(Network([Maxout(3), Softmax(), PRelu()]), (None, 4)),
    Row(EachStep([Conv(2, (2, 2)), Relu(), GroupNorm(2), Flatten(), Dense(3)]), (None, 4, 3, 2)),
    Row(Network([Conv(3, 3, padding="same"), Relu(), BatchNorm(), LayerNorm(), Dense(2), TimeMax()]), (None, 3)),
    Row(Network([TimeMean(), FirstStep()]), (None, 2, 3)),
    # Half of the steps are left out.
    Row(Network([Relu(), Masking(), Lstm(3), LastStep()]), (None, 1)),
    Row(Network([Relu(), Masking(), Dense(2), TimeMean()]), (6, 1)),
    Row(Network([Relu(), Masking(), TimeMax()]), (6, 1, 1)),
    # What reads images channels first, and what does not, behind the same convolution.
    Row(Network([Conv(4, (2, 2)), Flatten(), Scale(1.0, per_channel=True), Relu(), Dense(3)]), (4, 3, 2)),
    Row(Network([Conv(4, (2, 2)), Flatten(), Relu(), Dense(3)]), (4, 3, 2)),
    Row(
        Network([Conv(4, (1, 1)), Parallel([Relu(), Rescale(2.0)], Concatenate()), Softmax(), Subset(1, 3)]), (4, 3, 2)
    ),
    Row(Parallel([Network([Conv(2, (1, 1)), Relu()]), Relu()], Add()), (3, 3, 2)),
    Row(Parallel([Network([Conv(2, (1, 1)), Flatten()]), Flatten()], Multiply()), (3, 3, 2)),
]


def kinds(layer: Layer) -> set[type[Layer]]:
    """The layer's class, and those of the layers within it."""
    inner = layer.children if isinstance(layer, Composite) else ()
    return {type(layer)}.union(*(kinds(child.layer) for child in inner))


def is_written(layer: Layer) -> bool:
    """Whether it stands for itself, without a layer whose table it reads, and has no layer of a user's own."""
    return type(layer) is not TiedDense and not any(kind.__module__ == "noisy_layers" for kind in kinds(layer))


ROWS = [row for rows in [*TABLES, MORE] for row in (Row(*row) for row in rows) if is_written(row.layer)]
FIRSTS = list({type(row.layer): row for row in reversed(ROWS)}.values())


def network_of(row: Row) -> BaseNetwork:
    """A network of the one layer, with an input for each array that it reads."""
    if isinstance(row.layer, Graph) and row.layer.entries > 1:
        return row.layer
    shapes = row.shape if any(isinstance(size, tuple) for size in row.shape) else (row.shape,)
    inputs = {f"x{at}": shape for at, shape in enumerate(shapes)}
    if row.layer.gives_lengths and is_ragged(row.layer.output_shape(row.shape)):  # which no output has
        return Graph(inputs, {"kept": (row.layer, *inputs), "y": (TimeMean(), "kept")}, "y")
    return Graph(inputs, {"y": (row.layer, *inputs)}, "y")


def param(row: Row) -> Any:
    """The row, slow unless it is the first of its kind, and no layer of layers, which are such of these."""
    first = any(row is one for one in FIRSTS) and not isinstance(row.layer, Composite)
    return pytest.param(row, id=f"{row.layer}-{row.shape}", marks=[] if first else [pytest.mark.slow])


@pytest.mark.parametrize("row", [param(row) for row in ROWS])
def test_a_layer_gives_what_it_gives_here(row: Row) -> None:
    assert_equal(network_of(row))


@pytest.mark.parametrize("opset", [13, 21])
@pytest.mark.parametrize("row", [pytest.param(row, id=f"{row.layer}-{row.shape}") for row in FIRSTS])
def test_operators_of_other_versions_give_the_same(row: Row, opset: int) -> None:
    assert_equal(network_of(row), opset)


def test_every_public_layer_is_among_them() -> None:
    public = {kind for _, kind in inspect.getmembers(sparkdl.layers, inspect.isclass) if issubclass(kind, Layer)}
    assert not public - {Layer, KernelLayer, Composite} - {kind for row in ROWS for kind in kinds(row.layer)}


def test_steps_with_lengths_of_their_own_are_no_output() -> None:
    network = Network([Masking()], input_shape=(4, 3))
    with pytest.raises(ValueError, match="Output 'label' has rows of lengths of their own, as a layer such as Masking"):
        network.to_onnx({})
