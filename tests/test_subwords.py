"""Tokenizers are trained from counts of words alone, as the package would from texts, and read with care."""

from __future__ import annotations

import json
import sys
from collections import Counter
from typing import Any

import pytest

from sparkdl.subwords.reading import read_tokenizer
from sparkdl.subwords.recipe import KINDS, Recipe

tokenizers = pytest.importorskip("tokenizers")

TEXTS = [
    "The tokenizer tokenizes tokens, and tokens are the pieces of the words.",
    "Ærøskøbing's wörds: naïve café, Straße, straße!",
    "日本語のテキスト と 日本語 의 텍스트 🙂🙂",
    "the   theme of\tthese\nthermal threads: there, then, thence",
    "",
]


def recipe(kind: str, vocabulary: int = 300, **values: Any) -> Recipe:
    unknown = "" if kind == "bpe" else "[UNK]"
    special = (unknown,) if unknown else ()
    plain = {"lowercase": False, "least": 1, "unknown": unknown, "special": special}
    return Recipe(**({"kind": kind, "vocabulary": vocabulary} | plain | values))


def counted(made: Recipe, texts: list[str] = TEXTS) -> Counter[str]:
    words = made.splitter()
    return Counter(word for text in texts for word in words(text))


@pytest.mark.parametrize("kind", KINDS)
def test_the_order_of_words_has_no_part_in_it(kind: str) -> None:
    made = recipe(kind, 320)
    counts = counted(made)
    trained = {made.train(order) for order in (counts, dict(sorted(counts.items(), reverse=True)), counts)}
    assert len(trained) == 1


@pytest.mark.parametrize("lowercase", [False, True])
def test_bpe_is_what_the_package_trains_on_the_texts(lowercase: bool) -> None:
    own = tokenizers.Tokenizer(tokenizers.models.BPE())
    own.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    if lowercase:
        own.normalizer = tokenizers.normalizers.Lowercase()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300,
        min_frequency=2,
        special_tokens=["<end>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    own.train_from_iterator(TEXTS * 3, trainer)
    made = recipe("bpe", lowercase=lowercase, least=2, special=("<end>",))
    trained = made.train(counted(made, TEXTS * 3))
    assert json.loads(trained)["model"] == json.loads(own.to_str())["model"]


def joined_pieces(counts: Counter[str], special: list[str], size: int, least: int) -> list[str]:
    """The vocabulary of WordPiece in a plain loop: the most frequent pair is joined, of such the first by number."""
    characters = sorted({character for word in counts for character in word})
    vocabulary = [*special, *sorted({f"##{character}" for word in counts for character in word[1:]}), *characters]
    words = [([word[0], *(f"##{character}" for character in word[1:])], count) for word, count in counts.items()]
    while len(vocabulary) < size:
        pairs: Counter[tuple[str, str]] = Counter()
        for pieces, count in words:
            for pair in zip(pieces, pieces[1:], strict=False):
                pairs[pair] += count
        place = vocabulary.index
        best = min(pairs, key=lambda pair: (-pairs[pair], place(pair[0]), place(pair[1])), default=None)  # noqa: B023
        if best is None or pairs[best] < least:
            break
        new = best[0] + best[1].removeprefix("##")
        if new not in vocabulary:
            vocabulary.append(new)
        for pieces, _ in words:
            at = 0
            while at + 1 < len(pieces):
                if (pieces[at], pieces[at + 1]) == best:
                    pieces[at : at + 2] = [new]
                at += 1
    return vocabulary


@pytest.mark.parametrize(("size", "least"), [(170, 1), (1000, 2)])
def test_wordpiece_joins_the_most_frequent_pairs(size: int, least: int) -> None:
    made = recipe("wordpiece", size, least=least)
    counts = counted(made)
    vocabulary = read_tokenizer(made.train(counts)).get_vocab()
    assert sorted(vocabulary, key=vocabulary.__getitem__) == joined_pieces(counts, ["[UNK]"], size, least)


def test_wordpiece_takes_the_longest_piece_first() -> None:
    made = recipe("wordpiece", 200, lowercase=True)
    trained = read_tokenizer(made.train(counted(made)))
    vocabulary = trained.get_vocab()
    for text in [*TEXTS, "the unseen theory: throttle tokenization, Qoth"]:
        expected = []
        for word in made.splitter()(text):
            pieces, first = [], 0
            while first < len(word):
                found = [("##" * (first > 0)) + word[first:last] for last in range(len(word), first, -1)]
                piece = next((piece for piece in found if piece in vocabulary), None)
                if piece is None:
                    pieces = ["[UNK]"]
                    break
                pieces.append(piece)
                first += len(piece.removeprefix("##") if first else piece)
            expected += pieces
        assert trained.encode(text).tokens == expected


def test_unigram_takes_the_likeliest_pieces() -> None:
    made = recipe("unigram", 120)
    text = made.train(counted(made))
    trained, model = read_tokenizer(text), json.loads(text)["model"]
    scores = dict(map(tuple, model["vocab"][1:]))
    assert list(scores.values()) == sorted(scores.values(), reverse=True)
    for word in [word for text in TEXTS for word in made.splitter()(text)]:
        best = [0.0] + [float("-inf")] * len(word)
        for last in range(1, len(word) + 1):
            best[last] = max(best[first] + scores.get(word[first:last], float("-inf")) for first in range(last))
        pieces = trained.encode(word.replace("▁", " ")).tokens
        assert "".join(pieces) == word
        assert sum(scores[piece] for piece in pieces) == pytest.approx(best[-1], abs=1e-9)


@pytest.mark.parametrize("kind", ["wordpiece", "unigram"])
def test_rare_characters_that_find_no_room_are_unknown(kind: str) -> None:
    made = recipe(kind, 4)
    trained = read_tokenizer(made.train(Counter({"a": 5, "b": 4, "c": 2, "d": 2, "ax": 1})))
    assert trained.get_vocab() == {"[UNK]": 0, "a": 1, "b": 2, "c": 3}
    assert trained.get_vocab_size() == 4


def test_a_vocabulary_without_room_for_a_word_is_refused() -> None:
    for kind in ("wordpiece", "unigram"):
        with pytest.raises(ValueError, match="vocabSize has room for . characters, which spell none of the words"):
            recipe(kind, 2).train(Counter({"ab": 5}))


@pytest.mark.parametrize("kind", KINDS)
def test_marks_stand_around_a_text_whatever_they_are_called(kind: str) -> None:
    special = ("[UNK]",) * (kind != "bpe") + ("a $A:1", "</s>")
    made = recipe(kind, special=special, start="a $A:1", end="</s>")
    trained = read_tokenizer(made.train(counted(made)))
    first, *middle, last = trained.encode("the tokens").tokens
    assert (first, last) == ("a $A:1", "</s>") and middle
    assert [trained.token_to_id(token) for token in special] == list(range(len(special)))
    assert trained.decode(trained.encode("the tokens").ids) == "the tokens"


def test_bytes_give_back_every_text() -> None:
    made = recipe("bpe", 280)
    trained = read_tokenizer(made.train(counted(made)))
    for text in [*TEXTS, " leading\r\n\0 and \u200d odd \ufffe", "🏳️‍🌈 \U0010fffd"]:
        assert trained.decode(trained.encode(text).ids) == text


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"vocabulary": 1}, "vocabSize must be at least 2, for 1 special tokens and a character, received 1"),
        ({"kind": "bpe", "vocabulary": 256}, "vocabSize must be at least 257, for 1 special tokens and 256 bytes"),
        ({"least": 0}, "minFrequency must be at least 1, received 0"),
    ],
)
def test_a_recipe_says_what_it_cannot_be(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        recipe(**({"kind": "wordpiece", "special": ("[UNK]",)} | values))


def test_without_words_there_is_nothing_to_train() -> None:
    with pytest.raises(ValueError, match="inputCol holds no text to train a tokenizer from"):
        recipe("unigram").train({})


WHOLE = recipe("bpe").train(counted(recipe("bpe")))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[" * 10_000,
        WHOLE[:-1],
        '{"version": "1.0"}',
        WHOLE.replace('"type":"BPE"', '"type":"Python"'),
        WHOLE.replace('"continuing_subword_prefix":null', '"continuing_subword_prefix":"##"'),  # at which Rust panics
    ],
    ids=["empty", "null", "deep", "cut", "bare", "kind", "prefix"],
)
def test_what_is_no_tokenizer_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="^it is no tokenizer.json of the package tokenizers") as raised:
        read_tokenizer(text)
    assert "\n" not in str(raised.value)


def test_rows_are_cut_and_filled() -> None:
    made = recipe("wordpiece", special=("[PAD]", "[UNK]"))
    text = made.train(counted(made))
    plain = read_tokenizer(text).encode("the tokens of words, then").ids
    assert len(plain) > 4
    assert read_tokenizer(text, 4).encode("the tokens of words, then").ids == plain[:4]
    assert read_tokenizer(text, 4, "[PAD]").encode("the").ids == [plain[0], 0, 0, 0]
    assert read_tokenizer(text).encode("the tokens of words, then").ids == plain, "they are different tokenizers"
    with pytest.raises(ValueError, match="padToken must be a token of the vocabulary, received '<pad>'"):
        read_tokenizer(text, 4, "<pad>")
    with pytest.raises(ValueError, match="padToken '.PAD.' fills rows up to maxLength, which is not set"):
        read_tokenizer(text, None, "[PAD]")
    with pytest.raises(ValueError, match="maxLength must be at least 1, as this tokenizer adds 0 ids .* received 0"):
        read_tokenizer(text, 0)


@pytest.mark.parametrize("padding", [{}, {"length": 40, "pad_to_multiple_of": 16}, {"direction": "left", "length": 40}])
def test_rows_are_as_long_as_they_are_whatever_the_file_fills(padding: Any) -> None:
    """A batch's longest row, or MiniLM's 128, would be words to networks, which read no mask."""
    own = tokenizers.Tokenizer.from_str(WHOLE)
    plain = own.encode("the").ids
    own.enable_padding(pad_id=1, pad_token="[PAD]", **padding)
    assert len({len(each.ids) for each in own.encode_batch(["the", "the tokens of words"])}) == 1
    read = read_tokenizer(own.to_str())
    assert read.encode_batch(["the", "the tokens of words"])[0].ids == plain
    assert read_tokenizer(own.to_str(), 30).encode("the").ids == plain


def test_the_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ImportError, match=r"needs the package tokenizers; pip install 'sparkdl-jax\[text\]' on every"):
        read_tokenizer('{"never": "read before"}')
