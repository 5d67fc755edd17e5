"""Ready networks of sequences: weights counted by hand, what they read, and that each learns."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from sparkdl import Network, models, training
from sparkdl.layers import (
    Dropout,
    Embedding,
    GravesLstm,
    Gru,
    HashedEmbedding,
    LastStep,
    OneHot,
    SimpleRnn,
    TimeMax,
    Vocabulary,
)
from sparkdl.layers.ragged import Ragged
from sparkdl.weights import count_weights

LSTM = 4 * 16 * (10 + 16 + 1)  # of 10 inputs and 16 units
COUNTED = {
    "lstm": (models.lstm_classifier((None, 10), 3, (16,)), LSTM + 16 * 3 + 3),
    "two lstms of words": (
        models.lstm_classifier((None,), 3, (16, 16), Embedding(50, 10)),
        50 * 10 + LSTM + 4 * 16 * (16 + 16 + 1) + 16 * 3 + 3,
    ),
    "lstm both ways": (
        models.lstm_classifier((20, 10), 3, (16,), bidirectional=True, dropout=0.1),
        2 * LSTM + 32 * 3 + 3,
    ),
    "lstm of numbered words": (
        models.lstm_classifier((None,), 1, (16,), 50),
        51 * 128 + 4 * 16 * (128 + 16 + 1) + 16 + 1,  # a row more than words, for all others
    ),
    "kim's": (
        models.text_cnn((None,), 2, Embedding(20_000, 300)),
        20_000 * 300 + (3 + 4 + 5) * 300 * 100 + 3 * 100 + 300 * 2 + 2,
    ),
    "cnn of vectors": (models.text_cnn((30, 4), 2, sizes=(2, 3), filters=5), (2 + 3) * 4 * 5 + 2 * 5 + 10 * 2 + 2),
    "the paper's of pixels": (
        models.tcn((784, 1), 10),
        (7 + 1) * 25 + (7 * 25 + 1) * 25 + 2 * 25 + 7 * 2 * (7 * 25 + 1) * 25 + 25 * 10 + 10,
    ),
    "tcn of words": (
        models.tcn((None,), 2, (6,), 2, embedding=Embedding(9, 6)),  # as wide as the vectors: nothing on the shortcut
        9 * 6 + 2 * (2 * 6 + 1) * 6 + 6 * 2 + 2,
    ),
    # Of char-rnn's source: of the two products of a layer that of the inputs alone has a bias.
    "char-rnn's default": (
        models.char_rnn(65, (128, 128)),
        4 * 128 * (65 + 128 + 1) + 4 * 128 * (128 + 128 + 1) + 65 * (128 + 1),
    ),
    "characters by peepholes": (
        models.char_rnn(OneHot(9, unknown=True), (16,), GravesLstm, dropout=0.1),
        LSTM + 3 * 16 + 10 * (16 + 1),
    ),
    "characters by a table used twice": (
        models.char_rnn(Embedding(9, 10), (16, 10), Gru, tied=True),
        9 * 10 + 3 * 16 * (10 + 16 + 2) + 3 * 10 * (16 + 10 + 2),
    ),
}


@pytest.mark.parametrize(("network", "count"), COUNTED.values(), ids=COUNTED)
def test_weights_are_as_many_as_counted_by_hand(network: Network, count: int) -> None:
    assert count_weights(jax.eval_shape(lambda: network.init(0))) == count


def test_char_rnn_is_as_large_as_its_source_has_it() -> None:
    assert COUNTED["char-rnn's default"][1] == 239_297


def test_the_tcn_of_pixels_sees_all_of_an_image() -> None:
    assert COUNTED["the paper's of pixels"][1] == 66_510
    assert models.tcn((784, 1), 10).layers[0].steps_seen >= 28 * 28  # type: ignore[attr-defined]


def test_what_goes_both_ways_is_not_read_at_the_last_step() -> None:
    kinds = [type(layer) for layer in models.lstm_classifier((None, 3), 2, bidirectional=True).layers]
    assert TimeMax in kinds and LastStep not in kinds
    assert LastStep in [type(layer) for layer in models.lstm_classifier((None, 3), 2).layers]


def test_strings_are_read_by_a_hashed_embedding() -> None:
    network = models.text_cnn((None,), 2, HashedEmbedding(1000, 8), filters=3)
    assert set(network.strings) == {"features"}


def test_a_text_shorter_than_a_window_has_outputs_and_an_empty_one_the_bias() -> None:
    network = models.text_cnn((None,), 2, Embedding(9, 4), filters=3)
    random = np.random.default_rng(1)
    weights: Any = jax.tree.map(lambda w: random.normal(size=w.shape).astype("float32"), network.abstract_weights())
    texts = Ragged(np.array([[3, 1], [0, 0]], "int32"), np.array([2, 0], "int32"))
    y = np.asarray(network.forward(weights, texts))
    assert y.shape == (2, 2)
    assert not np.allclose(y[0], y[1])
    np.testing.assert_array_equal(y[1], weights[network.names[-1]]["bias"])


@pytest.mark.parametrize(
    "network",
    [
        models.tcn((None,), 2, (8,), 2, embedding=Embedding(9, 8)),
        models.text_cnn((None,), 2, Embedding(9, 8), sizes=(1, 2), filters=8, dropout=0.1),
        models.lstm_classifier((None,), 2, (8,), Embedding(9, 8)),
        models.lstm_classifier((None,), 2, (8,), Embedding(9, 8), bidirectional=True),
    ],
    ids=["tcn", "text_cnn", "lstm_classifier", "both ways"],
)
def test_the_loss_falls(network: Network) -> None:
    """Whether the last two words are equal."""
    random = np.random.default_rng(2)
    texts = [random.integers(0, 9, random.integers(2, 7)) for _ in range(120)]
    for text in texts[::2]:
        text[-1] = text[-2]
    labels = np.array([text[-1] == text[-2] for text in texts], "int32")
    given: dict[str, Any] = {
        "optimizer": "adam",
        "step_size": 0.02,
        "epochs": 20,
        "batch_size": 40,
        "length_buckets": 1,
    }
    history = training.fit(network, ([text.tolist() for text in texts], labels), **given).history
    assert history[-1].loss < 0.7 * history[0].loss


@pytest.mark.parametrize(
    "network",
    [models.char_rnn(Vocabulary(list("abc ")), (12,), Gru), models.char_rnn(4, (12, 12), tied=True)],
    ids=["one-hot", "tied"],
)
def test_a_character_model_writes_what_it_has_read(network: Network) -> None:
    text = np.array([0, 1, 2, 3, 0, 2, 1, 3] * 20, "int32")  # what follows 0 and 3 depends on what was before
    rows = [text[at : at + 40] for at in range(0, 112, 4)], [text[at + 1 : at + 41] for at in range(0, 112, 4)]
    learned = training.fit(network, rows, optimizer="adam", step_size=0.03, batch_size=14, epochs=25, truncated=20)
    assert learned.history[-1].metric > 0.9
    written = network.generate(learned.weights, text[:9], steps=16, temperature=0)
    np.testing.assert_array_equal(written, text[9:25])


def test_an_unknown_character_is_scored_last_and_dropout_is_behind_each_layer() -> None:
    read = Embedding(5, 3, unknown=True, name="letters")
    network = models.char_rnn(read, (4, 3), SimpleRnn, dropout=0.2, tied=True)
    assert network.output_shape() == (None, 6)
    assert network.layers[0] is read or network.layers[0] == read
    kinds = [type(layer) for layer in network.layers[1:-1]]
    assert kinds == [SimpleRnn, Dropout, SimpleRnn, Dropout]
    assert models.char_rnn(OneHot(5, unknown=True), (4,), tied=True).abstract_weights()["characters"][
        "table"
    ].shape == (6, 4)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"characters": "abc"}, "characters must be a number of characters, a Vocabulary of them.* received 'abc'"),
        ({"characters": HashedEmbedding(9, 4)}, "characters must be .*, received HashedEmbedding"),
        ({"characters": 9, "cell": "lstm"}, "cell must be a recurrent layer's class.* received 'lstm'"),
        ({"characters": 9, "units": ()}, "units must hold the size of one recurrent layer or more"),
        ({"characters": Embedding(9, 4), "tied": True}, "must be an Embedding of size 256, the last of the units"),
    ],
    ids=["text", "hashes", "no cell", "no units", "another size"],
)
def test_a_character_model_of_something_else_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        models.char_rnn(**given)


def test_what_is_no_embedding_is_refused() -> None:
    with pytest.raises(ValueError, match="embedding must be a number of categories, or a layer .* received 'words'"):
        models.text_cnn((None,), 2, "words")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"Lstm expects rows of steps.*received \(None,\); put a layer before it"):
        models.lstm_classifier((None,), 2)
