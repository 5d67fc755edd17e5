"""A transformer whose steps are the features of a row of a table."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from sparkdl.graph import Graph
from sparkdl.initializers import TruncatedNormal
from sparkdl.layers import (
    ClassToken,
    ConcatenateSteps,
    Dense,
    Embedding,
    FeatureTokens,
    FeedForward,
    FirstStep,
    LayerNorm,
    MultiHeadAttention,
    Normalization,
    Relu,
    Reshape,
    Residual,
    TransformerEncoder,
)
from sparkdl.models.categories import NUMBERS, embedding_of, entry_nodes, numbers_node
from sparkdl.models.pretrained import pretrainable
from sparkdl.network import Network
from sparkdl.specs import is_integer

# By the number of blocks, from 1: what the paper's authors take for a start. The last is for more of them, too.
SIZES = (96, 128, 192, 256, 320, 384)
ATTENTION_DROPOUTS = (0.1, 0.15, 0.2, 0.25, 0.3, 0.35)
DROPOUTS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25)


@pretrainable
def ft_transformer(
    categories: Mapping[str, int | Embedding],
    numbers: int | Normalization = 0,
    outputs: int = 1,
    blocks: int = 3,
    size: int | None = None,
    heads: int = 8,
    attention_dropout: float | None = None,
    dropout: float | None = None,
) -> Graph:
    """FT-Transformer: every number and category is a step, and what a learned step takes of them is the answer.

    From Gorishniy et al. 2021, "Revisiting deep learning models for tabular data". Numbers should be normalized. Norms
    come first, but for none before the first attention; the dense layers are gated by relu and of 4 / 3 of the size.
    The authors train it by AdamW with step size 1e-4 and weight decay 1e-5, which norms, biases and embeddings are
    spared: `no_decay=["bias", "scale", "table", "number_tokens"]`.

    Parameters
    ----------
    categories, numbers
        As of `embedded`; the vectors of embeddings are made as long as `size`.
    outputs : int, default 1
        Classes, or numbers to predict.
    blocks : int, default 3
    size : int, optional
        Numbers of a step, a multiple of `heads`; by default from 96 for 1 block to 384 for 6, as the authors have it.
    heads : int, default 8
    attention_dropout, dropout : float, optional
        Of what a step takes of another one, and within the dense layers; by default by the number of blocks, too.

    Returns
    -------
    Graph
        With the inputs "numbers" and those of `categories`, and the output "outputs".

    Examples
    --------
    >>> from sparkdl import models
    >>> graph = models.ft_transformer({"city": 50, "kind": 4}, numbers=6, outputs=3)
    >>> dict(zip(graph.names, graph.shapes(graph.row_shape())[3:]))["tokens"]
    (8, 192)
    """
    if not is_integer(blocks, 1):
        raise ValueError(f"blocks of ft_transformer must be a positive integer, received {blocks!r}.")
    usual = min(blocks, len(SIZES)) - 1
    size = SIZES[usual] if size is None else size
    attention_dropout = ATTENTION_DROPOUTS[usual] if attention_dropout is None else attention_dropout
    dropout = DROPOUTS[usual] if dropout is None else dropout
    sized = {name: replace(embedding_of(given), size=size) for name, given in categories.items()}
    inputs, nodes, _ = entry_nodes(sized, numbers, joined=False)
    parts = [f"vector_{name}" for name in categories]
    if NUMBERS in inputs:
        nodes["number_tokens"] = (FeatureTokens(size), numbers_node(nodes))
        parts.insert(0, "number_tokens")
    tokens = ConcatenateSteps() if len(parts) > 1 else Reshape((-1, size))
    nodes["tokens"] = (tokens, *parts)
    nodes["class"] = (ClassToken(initializer=TruncatedNormal(1 / math.sqrt(size))), "tokens")
    hidden, at = size * 4 // 3, "class"
    first = Network(
        [
            Residual([MultiHeadAttention(heads, dropout=attention_dropout)], name="attention"),
            Residual([LayerNorm(), FeedForward(hidden, "relu", dropout, gated=True)], name="feed_forward"),
        ]
    )
    block = TransformerEncoder(
        heads,
        hidden,
        activation="relu",
        norm_first=True,
        attention_dropout=attention_dropout,
        inner_dropout=dropout,
        gated=True,
    )
    for index in range(blocks):
        nodes[f"block_{index}"] = (block if index else first, at)
        at = f"block_{index}"
    nodes["outputs"] = (Network([FirstStep(), LayerNorm(), Relu(), Dense(outputs)]), at)
    return Graph(inputs, nodes, "outputs")
