"""Layers of categories that test_layers.py proves: x is integers; where a shape begins with None, of any length."""

from __future__ import annotations

from layer_table import Row

from sparkdl import Graph, Network, Same
from sparkdl.layers.branches import Parallel
from sparkdl.layers.dense import Dense
from sparkdl.layers.embedding import Embedding, HashedEmbedding
from sparkdl.layers.embedding_bag import EmbeddingBag, HashedEmbeddingBag
from sparkdl.layers.merge import Concatenate

# Two inputs of any length that share a table.
TWO_BAGS = Graph(
    {"seen": (None,), "bought": (None,)},
    {
        "a": (EmbeddingBag(5, 3), "seen"),
        "b": (Same("a"), "bought"),
        "both": (Concatenate(), "a", "b"),
        "y": (Dense(2), "both"),
    },
    "y",
)

EMBEDDINGS = [
    Row(Embedding(5, 3), (2,)),
    Row(Embedding(4, 2, unknown=True, l2=0.1), ()),
    Row(Embedding(4, 2, unknown=True, unknown_rate=0.4), (3,)),
    Row(HashedEmbedding(7, 3), (2, 2)),
    Row(Embedding(5, 2, vocabulary=["b", "a", "c", "e", "d"]), (2,)),
]

BAGS = [
    Row(EmbeddingBag(5, 3), (None,), refused=(None, 2)),
    Row(EmbeddingBag(5, 3, mode="sum", constraint="unit_norm"), (None,), refused=()),
    Row(EmbeddingBag(4, 2, unknown=True, l2=0.1), (None,), refused=(2, 2)),
    Row(EmbeddingBag(4, 2, unknown=True, unknown_rate=0.4), (None,), refused=(2, 2)),
    Row(EmbeddingBag(5, 3), (4,)),
    Row(HashedEmbeddingBag(7, 3), (None,), refused=(3, 1)),
    Row(HashedEmbeddingBag(7, 2, mode="sum"), (3,)),
]

WITHIN = [
    Row(Network([EmbeddingBag(5, 3), Dense(2)]), (None,)),
    Row(Parallel([EmbeddingBag(5, 3), HashedEmbeddingBag(7, 2, mode="sum")]), (None,)),
    Row(TWO_BAGS, ((None,), (None,))),
]
