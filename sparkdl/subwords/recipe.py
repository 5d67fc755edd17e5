"""How a tokenizer is trained: from counts of words, so that the order of texts has no part in it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparkdl.subwords.reading import read_tokenizer, require_tokenizers

if TYPE_CHECKING:
    from tokenizers import Tokenizer

KINDS = ("wordpiece", "bpe", "unigram")
CONTINUING = "##"  # begins a WordPiece that is not the first of its word
BYTES = 256  # pieces of one byte, which every byte-level BPE has
REPEATED = 1000  # times at most that a word is handed to a trainer at once
# The trainer of Unigram gives characters of which no piece is left the least score and this much more for each, in an
# order of chance, and adds up scores in another such.
STEP, DIGITS = 1e-4, 6


@dataclass(frozen=True)
class Recipe:
    """How a tokenizer is trained; plain values, which travel to the workers that count words.

    Attributes
    ----------
    kind : str
        "wordpiece", "bpe" (of bytes) or "unigram".
    vocabulary : int
        Its most tokens.
    lowercase : bool
        Whether texts become small letters first.
    least : int
        How often two pieces must stand side by side to become one; of wordpiece and bpe.
    unknown : str
        The token for what has no other; "" for bpe, which has one for every byte.
    special : tuple of str
        Tokens that stand for no text, in the order of their ids, which begin at 0; `unknown` is one of them.
    start, end : str
        Those of them that come before and after each text, or "".
    """

    kind: str
    vocabulary: int
    lowercase: bool
    least: int
    unknown: str
    special: tuple[str, ...]
    start: str = ""
    end: str = ""

    def __post_init__(self) -> None:
        least = len(self.special) + (BYTES if self.kind == "bpe" else 1)
        if self.vocabulary < least:
            text = f"{BYTES} bytes" if self.kind == "bpe" else "a character"
            raise ValueError(
                f"vocabSize must be at least {least}, for {len(self.special)} special tokens and {text}, received "
                f"{self.vocabulary}."
            )
        if self.least < 1:
            raise ValueError(f"minFrequency must be at least 1, received {self.least}.")

    def splitter(self) -> Callable[[str], list[str]]:
        """What cuts a text into the words that no piece reaches beyond, as the trained tokenizer will."""
        parts = self._parts()
        normalizer, cut = parts.get("normalizer"), parts["pre_tokenizer"]

        def words(text: str) -> list[str]:
            normal = normalizer.normalize_str(text) if normalizer else text
            return [word for word, _ in cut.pre_tokenize_str(normal)]

        return words

    def train(self, counts: Mapping[str, int]) -> str:
        """The JSON of a tokenizer trained on words that occur as often as `counts` says.

        Raises
        ------
        ValueError
            There are no words, or the vocabulary has no room for the characters of any.
        """
        if not counts:
            raise ValueError("inputCol holds no text to train a tokenizer from; give fit rows with words in them.")
        model = {"wordpiece": self._wordpiece, "bpe": self._bpe, "unigram": self._unigram}[self.kind](counts)
        tokenizer = require_tokenizers().Tokenizer(model)
        for name, part in self._parts().items():
            setattr(tokenizer, name, part)
        tokenizer.add_special_tokens(list(self.special))
        described = json.loads(tokenizer.to_str()) | {"post_processor": self._framing(tokenizer)}
        return read_tokenizer(json.dumps(described)).to_str()

    def _parts(self) -> dict[str, Any]:
        """What stands before and after the model, by attribute of a Tokenizer."""
        package = require_tokenizers()
        normal, before, after = package.normalizers, package.pre_tokenizers, package.decoders
        small = [normal.Lowercase()] if self.lowercase else []
        if self.kind == "wordpiece":
            cleaned = normal.BertNormalizer(strip_accents=False, lowercase=self.lowercase)
            return {
                "normalizer": normal.Sequence([normal.NFC(), cleaned]),
                "pre_tokenizer": before.BertPreTokenizer(),
                "decoder": after.WordPiece(prefix=CONTINUING),
            }
        if self.kind == "bpe":
            return {
                **({"normalizer": small[0]} if small else {}),
                "pre_tokenizer": before.ByteLevel(add_prefix_space=False),
                "decoder": after.ByteLevel(),
            }
        spaced = [normal.NFKC(), normal.Replace(package.Regex(r"\s+"), " "), normal.Strip()]
        return {
            "normalizer": normal.Sequence([*spaced, *small]),
            "pre_tokenizer": before.Metaspace(),
            "decoder": after.Metaspace(),
        }

    def _framing(self, tokenizer: Tokenizer) -> dict[str, Any] | None:
        """The post-processor that puts `start` and `end` around a text, as JSON, which takes any name of a token."""
        if not self.start and not self.end:
            return None

        def framed(*texts: str) -> list[dict[str, Any]]:
            between = [{"Sequence": {"id": text, "type_id": 0}} for text in texts]
            marks = [[{"SpecialToken": {"id": mark, "type_id": 0}}] if mark else [] for mark in (self.start, self.end)]
            return [*marks[0], *between, *marks[1]]

        marks = {mark: tokenizer.token_to_id(mark) for mark in (self.start, self.end) if mark}
        return {
            "type": "TemplateProcessing",
            "single": framed("A"),
            "pair": framed("A", "B"),
            "special_tokens": {name: {"id": name, "ids": [at], "tokens": [name]} for name, at in marks.items()},
        }

    def _wordpiece(self, counts: Mapping[str, int]) -> Any:
        """A trained model; the trainer is told of all continuing characters as of special tokens, which come first.

        It would number them as it meets them, in an order of chance, and of pairs that are as frequent it takes the one
        of the lower numbers.
        """
        package = require_tokenizers()
        alphabet, counts = self._spelled(counts)
        continuing = sorted({character for word in counts for character in word[1:]})
        trainer = package.trainers.WordPieceTrainer(
            vocab_size=self.vocabulary,
            min_frequency=self.least,
            show_progress=False,
            special_tokens=[*self.special, *(CONTINUING + character for character in continuing)],
            initial_alphabet=alphabet,
            continuing_subword_prefix=CONTINUING,
        )
        return _trained(package.models.WordPiece(unk_token=self.unknown), trainer, counts)

    def _bpe(self, counts: Mapping[str, int]) -> Any:
        package = require_tokenizers()
        trainer = package.trainers.BpeTrainer(
            vocab_size=self.vocabulary,
            min_frequency=self.least,
            show_progress=False,
            special_tokens=list(self.special),
            initial_alphabet=package.pre_tokenizers.ByteLevel.alphabet(),
        )
        return _trained(package.models.BPE(), trainer, counts)

    def _unigram(self, counts: Mapping[str, int]) -> Any:
        package = require_tokenizers()
        counts = self._spelled(counts)[1]
        trainer = package.trainers.UnigramTrainer(
            vocab_size=self.vocabulary,
            show_progress=False,
            special_tokens=list(self.special),
            unk_token=self.unknown,
        )
        trained = _trained(package.models.Unigram(), trainer, counts)
        pieces = json.loads(package.Tokenizer(trained).to_str())["model"]["vocab"]
        scores = {piece: score for piece, score in pieces if piece not in self.special}
        least = min(scores.values())
        level = least + STEP * sum(len(piece) == 1 for piece in scores)
        for piece, score in scores.items():
            scores[piece] = round(least if len(piece) == 1 and score < level else score, DIGITS)
        ordered = sorted(scores.items(), key=lambda item: (-item[1], item[0]))
        special = [(token, 0.0) for token in self.special]
        return package.models.Unigram([*special, *ordered], self.special.index(self.unknown))

    def _spelled(self, counts: Mapping[str, int]) -> tuple[list[str], Mapping[str, int]]:
        """The most frequent characters, as many as the vocabulary has places for, and the words of these alone."""
        frequency: Counter[str] = Counter()
        for word, count in counts.items():
            for character in word:
                frequency[character] += count
        twice = {character for word in counts for character in word[1:]} if self.kind == "wordpiece" else set()
        free, kept = self.vocabulary - len(self.special), []
        for character in sorted(frequency, key=lambda character: (-frequency[character], character)):
            free -= 2 if character in twice else 1
            if free < 0:
                break
            kept.append(character)
        known = set(kept)
        spelled = {word: count for word, count in counts.items() if known.issuperset(word)}
        if not spelled:
            raise ValueError(
                f"vocabSize has room for {len(kept)} characters, which spell none of the words, received "
                f"{self.vocabulary}; raise it."
            )
        return kept, spelled


def _trained(model: Any, trainer: Any, counts: Mapping[str, int]) -> Any:
    """The model that a trainer makes of whole words, each given as often as it occurs."""
    tokenizer = require_tokenizers().Tokenizer(model)
    tokenizer.train_from_iterator(_repeated(counts), trainer)
    return tokenizer.model


def _repeated(counts: Mapping[str, int]) -> Iterator[list[str]]:
    for word, count in sorted(counts.items()):
        for first in range(0, count, REPEATED):
            yield [word] * min(REPEATED, count - first)
