"""Networks that give a sequence a class, or predict numbers of it: recurrent ones and convolutions over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sparkdl.constraints import MaxNorm
from sparkdl.layers import (
    Bidirectional,
    Conv,
    Dense,
    Dropout,
    Embedding,
    LastStep,
    Layer,
    Lstm,
    Parallel,
    Relu,
    TemporalConvNet,
    TimeMax,
)
from sparkdl.models.pretrained import pretrainable
from sparkdl.network import Network
from sparkdl.specs import is_integer

SIZE = 128  # of the vectors that categories get


@pretrainable
def lstm_classifier(
    input_shape: tuple[Any, ...],
    outputs: int,
    units: Sequence[int] = (128,),
    embedding: int | Embedding | None = None,
    bidirectional: bool = False,
    dropout: float = 0.0,
) -> Network:
    """LSTMs one after another, and a dense layer on what the last of them has come to at a row's last step.

    Both ways, a dense layer on the greatest of each number over all steps: what has gone backwards has seen a single
    step at the last one (Conneau et al. 2017, BiLSTM-max).

    Parameters
    ----------
    input_shape : tuple
        (None, n) for rows of any number of steps of n numbers, or (steps, n); (None,) for categories, such as words.
    outputs : int
        Classes, or numbers to predict.
    units : sequence of int, default (128,)
        Of the LSTMs.
    embedding : int or Embedding, optional
        Of categories how many there are, which gives `Embedding(rows, 128, unknown=True)`, or an Embedding of one's
        own; a HashedEmbedding takes strings.
    bidirectional : bool, default False
        Whether each LSTM goes both ways.
    dropout : float, default 0
        Rate behind each LSTM.
    """
    layers = _vectors(embedding)
    for count in units:
        layers += [Bidirectional(Lstm(count)) if bidirectional else Lstm(count), *_dropped(dropout)]
    pool: Layer = TimeMax() if bidirectional else LastStep()
    return Network([*layers, pool, Dense(outputs)], input_shape=input_shape)


@pretrainable
def text_cnn(
    input_shape: tuple[Any, ...],
    outputs: int,
    embedding: int | Embedding | None = None,
    sizes: Sequence[int] = (3, 4, 5),
    filters: int = 100,
    dropout: float = 0.5,
) -> Network:
    """Convolutions of several widths side by side, the greatest of each filter over time, and a dense layer.

    From Kim 2014, "Convolutional neural networks for sentence classification", with its dropout and, for the last
    layer, its bound of 3 on the length of each output's weights. Windows reach over both ends of a row, into zeros, so
    that a text shorter than they are has some, too.

    Parameters
    ----------
    input_shape : tuple
        (None,) for rows of any number of categories, such as words, or (steps,); (None, n) for vectors made before.
    outputs : int
        Classes, or numbers to predict.
    embedding : int or Embedding, optional
        As of `lstm_classifier`.
    sizes : sequence of int, default (3, 4, 5)
        Steps in a window, two sizes or more.
    filters : int, default 100
        Of each size.
    dropout : float, default 0.5
        Rate before the last layer.
    """
    branches = [
        Network([Conv(filters, size, padding="same"), Relu(), TimeMax()], name=f"size_{size}") for size in sizes
    ]
    last = Dense(outputs, constraint=MaxNorm(3))
    return Network([*_vectors(embedding), Parallel(branches), *_dropped(dropout), last], input_shape=input_shape)


@pretrainable
def tcn(
    input_shape: tuple[Any, ...],
    outputs: int,
    filters: Sequence[int] = (25,) * 8,
    size: int = 7,
    dropout: float = 0.0,
    embedding: int | Embedding | None = None,
) -> Network:
    """A `TemporalConvNet`, and a dense layer on its last step (Bai, Kolter and Koltun 2018).

    The sizes are those of the paper's network for images read pixel by pixel, of 28 x 28: 66,510 weights for steps of
    one number and ten classes.

    Parameters
    ----------
    input_shape : tuple
        As of `lstm_classifier`.
    outputs : int
        Classes, or numbers to predict.
    filters : sequence of int, default (25,) * 8
        Of the blocks; each looks twice as far back as the one before.
    size : int, default 7
        Window of the convolutions.
    dropout : float, default 0
        Rate within the blocks, of whole channels.
    embedding : int or Embedding, optional
        As of `lstm_classifier`.
    """
    blocks = TemporalConvNet(filters, size, dropout)
    return Network([*_vectors(embedding), blocks, LastStep(), Dense(outputs)], input_shape=input_shape)


def _vectors(embedding: int | Embedding | None) -> list[Layer]:
    """The layer that makes vectors of categories, if steps are such."""
    if embedding is None:
        return []
    if isinstance(embedding, Embedding):
        return [embedding]
    if not is_integer(embedding):
        raise ValueError(
            f"embedding must be a number of categories, or a layer such as Embedding, received {embedding!r}."
        )
    return [Embedding(embedding, SIZE, unknown=True)]


def _dropped(rate: float) -> list[Layer]:
    return [Dropout(rate)] if rate else []
