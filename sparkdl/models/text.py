"""Transformers that read words: for classes of texts, and the shapes of BERT, DistilBERT, MiniLM and GPT-2."""

from __future__ import annotations

from typing import Any

from sparkdl.graph import Graph
from sparkdl.initializers import TruncatedNormal
from sparkdl.layers import (
    Add,
    Dense,
    Dropout,
    Embedding,
    FirstStep,
    Gelu,
    Layer,
    LayerNorm,
    LearnedPositions,
    Relu,
    Segments,
    SinusoidalPositions,
    Tanh,
    TiedDense,
    TimeMean,
    TransformerEncoder,
)
from sparkdl.models.pretrained import pretrainable
from sparkdl.network import Network

SMALL = TruncatedNormal(0.02)  # from which BERT and GPT-2 draw all kernels and tables


@pretrainable
def transformer_classifier(
    words: int | Embedding,
    classes: int,
    size: int = 64,
    blocks: int = 2,
    heads: int = 4,
    feed_forward: int | None = None,
    dropout: float = 0.1,
) -> Network:
    """A small transformer for texts of any length, which ends in unnormalised log-probabilities of classes.

    Parameters
    ----------
    words : int or Embedding
        The number of words, or an Embedding of one's own, whose size is then that of the network; a HashedEmbedding
        reads a column of `array<string>`.
    classes : int
    size : int, default 64
        Numbers of a step, a multiple of `heads`.
    blocks : int, default 2
    heads : int, default 4
    feed_forward : int, optional
        Units within a block; by default four times the size.
    dropout : float, default 0.1

    Examples
    --------
    >>> from sparkdl import models
    >>> models.transformer_classifier(5000, 4).output_shape()
    (4,)
    """
    table = words if isinstance(words, Embedding) else Embedding(words, size)
    units = feed_forward or 4 * table.size
    body: list[Layer] = [TransformerEncoder(heads, units, dropout, norm_first=True) for _ in range(blocks)]
    before: list[Layer] = [table, SinusoidalPositions(), Dropout(dropout)]
    return Network([*before, *body, LayerNorm(), TimeMean(), Dense(classes)], input_shape=(None,))


@pretrainable
def bert(
    classes: int | None = None,
    vocabulary: int = 30_522,
    size: int = 768,
    blocks: int = 12,
    heads: int = 12,
    feed_forward: int | None = None,
    length: int = 512,
    dropout: float = 0.1,
    separator: int | None = 102,
    pooled: bool = True,
) -> Graph:
    """The encoder of BERT (Devlin et al. 2019); by default of its base, uncased: 109,482,240 weights.

    Its input "tokens" holds the numbers of a text's words, the first being [CLS]. Parts of a text are told apart by the
    separator between them, as by BERT's token types. Nodes are "words", "types", "embedded", "block_0" and so on,
    "pooled" and "outputs"; `up_to("block_11")` gives a vector for each word.

    Parameters
    ----------
    classes : int, optional
        For unnormalised log-probabilities of classes; by default the output is "pooled", a vector of each text.
    vocabulary : int, default 30522
    size, blocks, heads : int, default 768, 12 and 12
    feed_forward : int, optional
        Units within a block; by default four times the size.
    length : int, default 512
        Words that a text may have.
    dropout : float, default 0.1
    separator : int or None, default 102
        The number of [SEP], 102 in the vocabulary of BERT's without capitals; None for no types.
    pooled : bool, default True
        Whether a dense layer and tanh make the vector of a text of its first step; if not, it is that step.

    Examples
    --------
    >>> from sparkdl import models
    >>> models.bert(classes=2, vocabulary=1000, size=32, blocks=2, heads=4).output_shapes
    {'outputs': (2,)}
    """
    nodes: dict[str, Any] = {"words": (Embedding(vocabulary, size, initializer=SMALL), "tokens")}
    at = "words"
    if separator is not None:
        nodes["segments"] = (Segments(separator), "tokens")
        nodes["types"] = (Embedding(2, size, initializer=SMALL), "segments")
        nodes["summed"] = (Add(), "words", "types")
        at = "summed"
    embedding = [LearnedPositions(length, name="positions"), LayerNorm(epsilon=1e-12, name="norm"), Dropout(dropout)]
    nodes["embedded"] = (Network(embedding), at)
    at = "embedded"
    for index in range(blocks):
        block = TransformerEncoder(
            heads,
            feed_forward or 4 * size,
            dropout,
            epsilon=1e-12,
            inner_dropout=0.0,
            kernel_initializer=SMALL,
        )
        nodes[f"block_{index}"] = (block, at)
        at = f"block_{index}"
    last: list[Layer] = [Dense(size, kernel_initializer=SMALL, name="dense"), Tanh()] if pooled else []
    nodes["pooled"] = (Network([FirstStep(), *last]), at)
    if classes is not None:
        head = [Dropout(dropout), Dense(classes, kernel_initializer=SMALL, name="dense")]
        nodes["outputs"] = (Network(head), "pooled")
    return Graph({"tokens": (None,)}, nodes, "pooled" if classes is None else "outputs")


@pretrainable
def distilbert(classes: int | None = None, vocabulary: int = 30_522) -> Graph:
    """DistilBERT, base (Sanh et al. 2019): BERT with 6 blocks, no types and no pooling; 66,362,880 weights.

    Parameters
    ----------
    classes : int, optional
        For unnormalised log-probabilities of classes, behind a dense layer and relu as in Hugging Face's; by default
        the output is "pooled", the first step of each text.
    vocabulary : int, default 30522
    """
    graph = bert(vocabulary=vocabulary, blocks=6, separator=None, pooled=False)
    if classes is None:
        return graph
    before = [Dense(768, kernel_initializer=SMALL, name="pre_classifier"), Relu(), Dropout(0.2)]
    head = Network([*before, Dense(classes, kernel_initializer=SMALL, name="classifier")])
    return graph.with_head({"outputs": (head, "pooled")})


@pretrainable
def minilm(classes: int | None = None, vocabulary: int = 30_522) -> Graph:
    """MiniLM of 6 blocks and 384 numbers a step (Wang et al. 2020): 22,713,216 weights; see `bert`."""
    return bert(classes, vocabulary, size=384, blocks=6)


@pretrainable
def gpt2(
    vocabulary: int = 50_257,
    size: int = 768,
    blocks: int = 12,
    heads: int = 12,
    length: int = 1024,
    dropout: float = 0.1,
    steps: int | None = None,
) -> Network:
    """GPT-2 (Radford et al. 2019), by default its smallest: 124,439,808 weights, as the table of words is used twice.

    At every step it ends in unnormalised log-probabilities of the word after it: rows of words are its features, and
    the same rows one word on its labels. Where `steps` says that all rows are of one length, the loss is to be
    `EachPosition()`.

    Parameters
    ----------
    vocabulary : int, default 50257
    size, blocks, heads : int, default 768, 12 and 12
    length : int, default 1024
        Words that a text may have.
    dropout : float, default 0.1
    steps : int, optional
        Words of every row; by default any number of them.

    Examples
    --------
    >>> from sparkdl import models
    >>> models.gpt2(vocabulary=500, size=32, blocks=2, heads=4).output_shape()
    (None, 500)
    """
    body: list[Layer] = [
        TransformerEncoder(
            heads,
            4 * size,
            dropout,
            Gelu(approximate=True),
            norm_first=True,
            causal=True,
            inner_dropout=0.0,
            kernel_initializer=SMALL,
            name=f"block_{index}",
        )
        for index in range(blocks)
    ]
    before: list[Layer] = [
        Embedding(vocabulary, size, initializer=SMALL, name="words"),
        LearnedPositions(length, name="positions"),
        Dropout(dropout),
    ]
    return Network([*before, *body, LayerNorm(name="norm"), TiedDense(vocabulary, "words")], input_shape=(steps,))
