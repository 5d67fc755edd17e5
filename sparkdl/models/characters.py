"""The character model: a recurrent network that says at every step which character comes next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sparkdl.layers import (
    Dense,
    Dropout,
    Embedding,
    EmbeddingBag,
    HashedEmbedding,
    Layer,
    Lstm,
    OneHot,
    TiedDense,
    Vocabulary,
)
from sparkdl.layers.recurrent import Recurrent
from sparkdl.models.pretrained import pretrainable
from sparkdl.network import Network
from sparkdl.specs import is_integer

NAME = "characters"  # of an Embedding whose table is used twice


@pretrainable
def char_rnn(
    characters: int | Vocabulary | OneHot | Embedding,
    units: Sequence[int] = (256, 256),
    cell: type[Recurrent] = Lstm,
    dropout: float = 0.0,
    tied: bool = False,
) -> Network:
    """Recurrent layers one after another, and at every step scores of the character that comes next.

    Karpathy's char-rnn ("The unreasonable effectiveness of recurrent neural networks", 2015), which reads characters
    one-hot: of 65 characters and units of (128, 128), its default, 239,297 weights.

    Rows of characters are its features, and the same rows one character on its labels; long ones are trained on with
    `truncated=64`. `generate` writes on.

    Parameters
    ----------
    characters : int, Vocabulary, OneHot or Embedding
        How many characters there are, or which, of `split="character"` for a column of text; they are read as `OneHot`.
        Or the layer that reads them; what it has as `unknown` is scored, too, after all others.
    units : sequence of int, default (256, 256)
        Of the recurrent layers.
    cell : type, default Lstm
        Their kind: Lstm, GravesLstm, Gru or SimpleRnn.
    dropout : float, default 0
        Rate behind each of them.
    tied : bool, default False
        Whether the vectors of an Embedding, as long as the last of the units, give the scores, too (Press and Wolf
        2017); what would be read one-hot is then read by such an Embedding.

    Examples
    --------
    >>> from sparkdl import models
    >>> from sparkdl.layers import Gru, Vocabulary
    >>> models.char_rnn(65).output_shape()
    (None, 65)
    >>> letters = Vocabulary(list("abc "), split="character")
    >>> network = models.char_rnn(letters, units=(16,), cell=Gru)
    >>> begun = letters.look_up(["a cab"])[0]
    >>> network.generate(network.init(0), begun, steps=8).shape
    (8,)
    """
    if not (isinstance(cell, type) and issubclass(cell, Recurrent)):
        raise ValueError(f"cell must be a recurrent layer's class, such as Lstm or Gru, received {cell!r}.")
    if not units:
        raise ValueError("units must hold the size of one recurrent layer or more, received none; give such as (256,).")
    first = _reader(characters)
    if tied:
        first = _table(first, units[-1])
    count = first.rows + first.unknown
    layers: list[Layer] = [first]
    for size in units:
        layers += [cell(size), *([Dropout(dropout)] if dropout else [])]
    last = TiedDense(count, first.name) if tied and first.name else Dense(count)
    return Network([*layers, last], input_shape=(None,))


def _reader(characters: int | Vocabulary | OneHot | Embedding) -> OneHot | Embedding:
    """The layer that reads characters."""
    if isinstance(characters, Vocabulary):
        return OneHot(len(characters), vocabulary=characters)
    if is_integer(characters):
        return OneHot(characters)
    if isinstance(characters, OneHot | Embedding) and not isinstance(characters, HashedEmbedding | EmbeddingBag):
        return characters
    raise ValueError(
        "characters must be a number of characters, a Vocabulary of them, or a layer, OneHot or Embedding, received "
        f"{characters!r:.80}."
    )


def _table(reader: OneHot | Embedding, size: int) -> Embedding:
    """An Embedding with a name, whose vectors are so long."""
    if isinstance(reader, OneHot):
        return Embedding(
            reader.rows, size, unknown=reader.unknown, vocabulary=reader.vocabulary, name=reader.name or NAME
        )
    if reader.size != size:
        raise ValueError(
            f"characters must be an Embedding of size {size}, the last of the units, for tied=True, received "
            f"{reader!r:.80}."
        )
    return replace(reader, name=reader.name or NAME)
