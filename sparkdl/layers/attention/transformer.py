"""Blocks of transformers: attention and two dense layers for each step, each in a residual connection with a norm."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from sparkdl.initializers import GlorotUniform, Initializer
from sparkdl.layers.activation import Gelu
from sparkdl.layers.attention.feed_forward import FeedForward
from sparkdl.layers.attention.multi_head import MultiHeadAttention
from sparkdl.layers.base import Layer
from sparkdl.layers.composite import Child, Composite
from sparkdl.layers.dropout import Dropout
from sparkdl.layers.merge import Add
from sparkdl.layers.normalization import LayerNorm
from sparkdl.specs import check_integers, check_range


@dataclass(frozen=True)
class TransformerBlock(Composite):
    """Base of `TransformerEncoder` and `TransformerDecoder`, which say what their parts read."""

    heads: int
    feed_forward: int
    dropout: float = 0.0
    activation: Layer | str = Gelu()
    norm_first: bool = False
    causal: bool = False
    epsilon: float = 1e-5
    attention_dropout: float | None = field(default=None, kw_only=True)
    inner_dropout: float | None = field(default=None, kw_only=True)
    key_size: int | None = field(default=None, kw_only=True)
    key_value_heads: int | None = field(default=None, kw_only=True)
    rotary: float | bool = field(default=False, kw_only=True)
    gated: bool = field(default=False, kw_only=True)
    bias: bool = field(default=True, kw_only=True)
    kernel_initializer: Initializer | str = field(default=GlorotUniform(), kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "activation", Layer.of(self.activation))
        object.__setattr__(self, "kernel_initializer", Initializer.of(self.kernel_initializer))
        check_integers(self, 1, "heads", "feed_forward")
        check_range(self, "[0, 1)", "dropout", "attention_dropout", "inner_dropout")
        super().__post_init__()

    def attention(self, causal: bool = False, rotary: float | bool = False) -> MultiHeadAttention:
        """One of the block's attentions."""
        return MultiHeadAttention(
            self.heads,
            self.key_size,
            self.key_value_heads,
            causal,
            self.dropout if self.attention_dropout is None else self.attention_dropout,
            rotary,
            bias=self.bias,
            kernel_initializer=self.kernel_initializer,
            trainable=self.trainable,
        )

    def dense_layers(self) -> FeedForward:
        """The block's other part."""
        return FeedForward(
            self.feed_forward,
            self.activation,
            self.dropout if self.inner_dropout is None else self.inner_dropout,
            self.gated,
            bias=self.bias,
            kernel_initializer=self.kernel_initializer,
            trainable=self.trainable,
        )

    def parts(self, *named: tuple[str, Layer, tuple[int, ...]]) -> tuple[Child, ...]:
        """Children of parts one after the other, each with its norm, and summed with what it reads.

        Parameters
        ----------
        *named : (str, Layer, tuple of int)
            Name, layer, and what it reads of x besides what the part before it gives.
        """
        children: list[Child] = []

        def put(name: str, layer: Layer, *sources: int) -> int:
            children.append(Child(name, layer, sources))
            return self.entries + len(children) - 1

        at = 0
        for name, layer, others in named:
            norm = LayerNorm(epsilon=self.epsilon, trainable=self.trainable)
            read = put(f"{name}_norm", norm, at) if self.norm_first else at
            made = put(name, layer, read, *others)
            if self.dropout:
                made = put(f"{name}_dropout", Dropout(self.dropout), made)
            at = put(f"{name}_sum", Add(), made, at)
            if not self.norm_first:
                at = put(f"{name}_norm", norm, at)
        return tuple(children)


@dataclass(frozen=True)
class TransformerEncoder(TransformerBlock):
    """A block of a transformer: every step asks those of its row, then passes two dense layers (Vaswani et al. 2017).

    x        Ragged (batch, steps, inputs), or such an array     dx  array (batch, steps, inputs)   dL/dx
    y        likewise                                            dy  array (batch, steps, inputs)   dL/dy
    weights  attention, feed_forward: as of MultiHeadAttention and FeedForward; attention_norm, feed_forward_norm

    With a = attention and f = dense layers, each with dropout: x = norm(x + a(x)), y = norm(x + f(x)); with
    `norm_first` x = x + a(norm(x)), y = x + f(norm(x)), and the last of such blocks wants a LayerNorm behind it.
    Values are those of PyTorch's `TransformerEncoderLayer`, whose activation is "relu" by default.

    Parameters
    ----------
    heads : int
        Of attention.
    feed_forward : int
        Units of the first of the two dense layers; the second has as many as a step has numbers.
    dropout : float, default 0
        Probability of dropping, in training, a number of what each part gives.
    activation : Layer or str, default "gelu"
        Between the dense layers.
    norm_first : bool, default False
        Whether each part reads what is normalized (GPT-2, ViT), in place of the sums being so (BERT).
    causal : bool, default False
        Whether a step asks only itself and those before it, as in GPT-2.
    epsilon : float, default 1e-5
        Of both LayerNorms.
    attention_dropout, inner_dropout : float, optional
        Of what a step takes of another one, and of what the activation gives; by default `dropout`, as in PyTorch.
    key_size, key_value_heads, rotary : optional
        As of `MultiHeadAttention`.
    gated : bool, default False
        As of `FeedForward`.
    bias : bool, default True
        Whether attention and dense layers have biases.
    kernel_initializer : Initializer or str, default GlorotUniform()
        Of all kernels.

    Examples
    --------
    >>> from sparkdl import Network
    >>> from sparkdl.layers import Dense, Embedding, LearnedPositions, TimeMean, TransformerEncoder
    >>> blocks = [TransformerEncoder(4, 64, dropout=0.1) for _ in range(2)]
    >>> text = Network([Embedding(1000, 16), LearnedPositions(128), *blocks, TimeMean(), Dense(3)], input_shape=(None,))
    >>> text.output_shape()
    (3,)
    """

    @cached_property
    def children(self) -> tuple[Child, ...]:
        return self.parts(
            ("attention", self.attention(self.causal, self.rotary), ()),
            ("feed_forward", self.dense_layers(), ()),
        )


@dataclass(frozen=True)
class TransformerDecoder(TransformerBlock):
    """A TransformerEncoder that also asks the steps of other rows, as of a text to translate (Vaswani et al. 2017).

    x        tuple (rows, others) of Ragged (batch, steps, inputs), or of such arrays; others may have other lengths
             and numbers                                         dx  tuple of arrays of their shapes   dL/dx
    y        like rows                                           dy  array (batch, steps, inputs)      dL/dy
    weights  attention, cross_attention, feed_forward, and of each "_norm"

    Each step asks those of its own row, then all of `others`, then passes the dense layers. Values are those of
    PyTorch's `TransformerDecoderLayer`. `norm_first` leaves `others` as they are.

    Parameters
    ----------
    heads, feed_forward, dropout, activation, norm_first, epsilon, and all others
        As of `TransformerEncoder`; `rotary` and `causal` are of the attention to the row itself.
    causal : bool, default True
        Whether a step asks, of its own row, only itself and those before it.

    Examples
    --------
    >>> from sparkdl import Graph
    >>> from sparkdl.layers import Dense, TransformerDecoder, TransformerEncoder
    >>> nodes = {
    ...     "read": (TransformerEncoder(2, 16), "source"),
    ...     "written": (TransformerDecoder(2, 16), "target", "read"),
    ...     "next": (Dense(50), "written"),
    ... }
    >>> Graph({"source": (None, 8), "target": (None, 8)}, nodes, "next").output_shape()
    (None, 50)
    """

    causal: bool = True

    @property
    def entries(self) -> int:
        return 2

    @property
    def takes_several_lengths(self) -> bool:
        return True

    @cached_property
    def children(self) -> tuple[Child, ...]:
        return self.parts(
            ("attention", self.attention(self.causal, self.rotary), ()),
            ("cross_attention", self.attention(), (1,)),
            ("feed_forward", self.dense_layers(), ()),
        )
