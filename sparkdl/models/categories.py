"""Networks for tables of numbers and categories: graphs with an input for every category and one for all numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sparkdl.graph import Graph
from sparkdl.initializers import TruncatedNormal
from sparkdl.layers import (
    Add,
    Concatenate,
    CrossCategories,
    Dense,
    Dot,
    DotInteractions,
    Embedding,
    EmbeddingBag,
    HashedEmbedding,
    L2Normalize,
    Layer,
    Normalization,
    Relu,
    Stack,
)
from sparkdl.models.perceptrons import mlp
from sparkdl.models.pretrained import pretrainable
from sparkdl.network import Network
from sparkdl.specs import is_integer

NUMBERS = "numbers"  # the input of all numbers


def embedded(categories: Mapping[str, int | Embedding], numbers: int | Normalization, body: Network) -> Graph:
    """Any network of flat rows, over numbers and the vectors of categories side by side.

    Parameters
    ----------
    categories : dict
        By input the number of categories, which gives `Embedding(rows, vector_size(rows), unknown=True)`, or an
        Embedding of one's own; an EmbeddingBag reads any number of categories in a row.
    numbers : int or Normalization
        How many numbers the input "numbers" has, or what normalizes them; 0 if there are none.
    body : Network
        Such as `mlp` or `tabular_resnet`; its input shape is left as it falls out.

    Returns
    -------
    Graph
        With the inputs "numbers" and those of `categories`, and the output "outputs".
    """
    inputs, nodes, joined = entry_nodes(categories, numbers)
    nodes["outputs"] = (Network(body.layers), joined)
    return Graph(inputs, nodes, "outputs")


@pretrainable
def wide_and_deep(
    categories: Mapping[str, int | Embedding],
    numbers: int | Normalization = 0,
    outputs: int = 1,
    units: Sequence[int] = (256, 128),
    crosses: Sequence[Sequence[str]] = (),
    cross_rows: int = 10_000,
    dropout: float = 0.0,
) -> Graph:
    """The sum of a linear model and a multilayer perceptron (Cheng et al. 2016, "Wide & deep learning").

    The linear part has a weight for every category and every number, and, of each of the `crosses`, for every
    combination of categories, hashed to `cross_rows`.

    Parameters
    ----------
    categories, numbers
        As of `embedded`.
    outputs : int, default 1
        Classes, or numbers to predict.
    units : sequence of int, default (256, 128)
        Of the perceptron; see `mlp`.
    crosses : sequence of sequence of str
        Categories that count together, such as [("education", "occupation")].
    cross_rows : int, default 10000
        Rows of the table of each.
    dropout : float, default 0
        Rate in the perceptron.

    Returns
    -------
    Graph
        With the inputs "numbers" and those of `categories`, and the output "outputs".
    """
    inputs, nodes, joined = entry_nodes(categories, numbers)
    terms = ["deep"]
    nodes["deep"] = (Network(mlp((1,), outputs, units, dropout).layers), joined)
    for name, category in categories.items():
        table = embedding_of(category)
        nodes[f"wide_{name}"] = (_sized(table, outputs), name)
        terms.append(f"wide_{name}")
    if NUMBERS in inputs:
        nodes["wide_numbers"] = (Dense(outputs, bias=False), numbers_node(nodes))
        terms.append("wide_numbers")
    for cross in crosses:
        name = "_".join(cross)
        unknown = [each for each in cross if each not in categories]
        if unknown or len(cross) < 2:
            raise ValueError(
                f"crosses must be of two or more of the categories {', '.join(categories)}, received {tuple(cross)!r}."
            )
        if f"wide_{name}" in nodes:
            raise ValueError(f"crosses must have names of their own, received {name!r} twice; rename a category.")
        nodes[f"cross_{name}"] = (CrossCategories(), *cross)
        nodes[f"wide_{name}"] = (HashedEmbedding(cross_rows, outputs), f"cross_{name}")
        terms.append(f"wide_{name}")
    nodes["outputs"] = (Add(), *terms)
    return Graph(inputs, nodes, "outputs")


@pretrainable
def dlrm(
    categories: Mapping[str, int | Embedding],
    numbers: int | Normalization,
    outputs: int = 1,
    size: int = 16,
    bottom: Sequence[int] = (64,),
    top: Sequence[int] = (128, 64),
) -> Graph:
    """Dot products of all pairs of embeddings, between two perceptrons (Naumov et al. 2019, "DLRM").

    The numbers pass the bottom perceptron to a vector of `size`; it and the categories' vectors are multiplied in
    pairs, and what comes out goes, beside the numbers' vector, into the top perceptron.

    Parameters
    ----------
    categories, numbers
        As of `embedded`; the vectors of embeddings are made as long as `size`.
    outputs : int, default 1
        Classes, or numbers to predict.
    size : int, default 16
        Of every vector.
    bottom, top : sequence of int
        Units of the perceptrons before their last layers.

    Returns
    -------
    Graph
        With the inputs "numbers" and those of `categories`, and the output "outputs".
    """
    if numbers == 0:
        raise ValueError("numbers of dlrm must be at least 1, as its bottom part reads them, received 0.")
    sized = {name: replace(embedding_of(given), size=size) for name, given in categories.items()}
    inputs, nodes, _ = entry_nodes(sized, numbers, joined=False)
    nodes["bottom"] = (Network([*mlp((1,), size, bottom).layers, Relu()]), numbers_node(nodes))
    nodes["pairs"] = (DotInteractions(), "bottom", *(f"vector_{name}" for name in categories))
    nodes["joined"] = (Concatenate(), "bottom", "pairs")
    nodes["outputs"] = (Network(mlp((1,), outputs, top).layers), "joined")
    return Graph(inputs, nodes, "outputs")


@pretrainable
def two_tower(
    queries: Mapping[str, int | Embedding],
    items: Mapping[str, int | Embedding],
    size: int = 32,
    units: Sequence[int] = (64,),
    normalize: bool = True,
    pairs: bool = False,
) -> Graph:
    """Two networks whose vectors are near where a query and an item go together (Yi et al. 2019).

    The node "query" puts out the vector of a query, such as a user, and "item" that of an item: after training,
    `network.up_to("item")` alone gives items' vectors.

    Parameters
    ----------
    queries, items : dict
        Categories of each side, as of `embedded`.
    size : int, default 32
        Of the vectors.
    units : sequence of int, default (64,)
        Of both perceptrons.
    normalize : bool, default True
        Whether the vectors have length 1.
    pairs : bool, default False
        Whether the output is "pair", both vectors as the loss InBatchSoftmax reads them, in place of "score", their dot
        product.
    """
    shared = sorted(queries.keys() & items.keys())
    if shared:
        raise ValueError(f"queries and items must have names of their own, received {shared[0]!r} in both.")
    nodes: dict[str, Any] = {}
    inputs: dict[str, tuple[int, ...]] = {}
    for tower, categories in (("query", queries), ("item", items)):
        if not categories:
            raise ValueError(f"Each tower must have a category, received none for the {tower}.")
        own, vectors, joined = entry_nodes(categories, 0, name=f"{tower}_joined")
        inputs |= own
        nodes |= vectors
        last: list[Layer] = [L2Normalize()] if normalize else []
        nodes[tower] = (Network([*mlp((1,), size, units).layers, *last]), joined)
    output = "pair" if pairs else "score"
    nodes[output] = (Stack() if pairs else Dot(), "query", "item")
    return Graph(inputs, nodes, output)


def vector_size(rows: int) -> int:
    """A usual size of the vectors of so many categories: 1.6 * rows ** 0.56, at most 600, as fastai has it."""
    return min(600, round(1.6 * rows**0.56))


def entry_nodes(
    categories: Mapping[str, int | Embedding], numbers: int | Normalization, joined: bool = True, name: str = "joined"
) -> tuple[dict[str, tuple[int, ...]], dict[str, Any], str]:
    """Inputs, nodes that make vectors of them, and the name of the node that joins these."""
    if NUMBERS in categories:
        raise ValueError(f"categories must not be called {NUMBERS!r}, which is the input of the numbers.")
    if not isinstance(numbers, Normalization) and not is_integer(numbers, 0):
        raise ValueError(f"numbers must be how many there are, or a Normalization, received {numbers!r}.")
    count = len(numbers.mean) if isinstance(numbers, Normalization) else int(numbers)
    inputs: dict[str, tuple[Any, ...]] = {NUMBERS: (count,)} if count else {}
    inputs |= {category: (None,) if isinstance(given, EmbeddingBag) else () for category, given in categories.items()}
    if not inputs:
        raise ValueError("There must be at least one category or number, received none.")
    nodes: dict[str, Any] = {}
    parts = []
    if count:
        if isinstance(numbers, Normalization):
            nodes["normalized"] = (numbers, NUMBERS)
        parts.append(numbers_node(nodes))
    for category, given in categories.items():
        nodes[f"vector_{category}"] = (embedding_of(given), category)
        parts.append(f"vector_{category}")
    if joined and len(parts) > 1:
        nodes[name] = (Concatenate(), *parts)
        return inputs, nodes, name
    return inputs, nodes, parts[0]


def numbers_node(nodes: Mapping[str, Any]) -> str:
    """The node, or input, of all numbers as they are to be read."""
    return "normalized" if "normalized" in nodes else NUMBERS


def embedding_of(given: int | Embedding) -> Embedding:
    """The table of an entry of `categories`."""
    if isinstance(given, Embedding):
        return given
    if not is_integer(given):
        raise ValueError(
            f"categories must hold numbers of categories, or layers such as Embedding, received {given!r}."
        )
    return Embedding(given, vector_size(given), unknown=True)


def _sized(table: Embedding, size: int) -> Embedding:
    """A table like another one, with vectors of another size that start near 0 and are learned, whatever those are."""
    return replace(table, size=size, initializer=TruncatedNormal(0.05), name=None, trainable=True)
