"""Params of tokenizers: which column becomes which, how long a row is, and how a tokenizer is trained."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self, TypedDict

from pyspark.ml.param import Param, Params, TypeConverters

from sparkdl.spark.params.column_params import HasColumns
from sparkdl.spark.params.converters import one_of
from sparkdl.subwords.recipe import KINDS, Recipe

UNKNOWN = "[UNK]"  # where it is not set, but for bpe


class TokenizerArguments(TypedDict, total=False):
    """Keyword arguments of a Tokenizer: its Params by name."""

    inputCol: str
    outputCol: str
    kind: str
    vocabSize: int
    lowercase: bool
    minFrequency: int
    maxLength: int | None
    padToken: str | None
    unknownToken: str | None
    startToken: str | None
    endToken: str | None
    specialTokens: Sequence[str]


class HasLength(HasColumns):
    """How many ids a row has."""

    maxLength: Param[int] = Param(
        Params._dummy(),
        "maxLength",
        "ids of a row at most (> 0), startToken and endToken among them; longer texts are cut at their end.",
        TypeConverters.toInt,  # type: ignore[arg-type]
    )
    padToken: Param[str] = Param(
        Params._dummy(),
        "padToken",
        "the token whose id fills shorter rows up to maxLength, for networks of rows of one length.",
        TypeConverters.toString,  # type: ignore[arg-type]
    )

    def getMaxLength(self) -> int | None:
        """Ids of a row at most; None without a limit."""
        return self.getOrDefault(self.maxLength) if self.isDefined(self.maxLength) else None

    def getPadToken(self) -> str | None:
        """The token that fills shorter rows; None where rows have as many ids as their text."""
        return self.getOrDefault(self.padToken) if self.isDefined(self.padToken) else None

    def setMaxLength(self, value: int | None) -> Self:
        """Set how many ids a row has at most; None takes it back."""
        return self._set(maxLength=value)

    def setPadToken(self, value: str | None) -> Self:
        """Set the token that fills shorter rows up to maxLength; None takes it back."""
        return self._set(padToken=value)


class TokenizerParams(HasLength):
    """How a tokenizer is trained."""

    kind: Param[str] = Param(
        Params._dummy(),
        "kind",
        "which pieces words are cut into: wordpiece, bpe (of bytes) or unigram.",
        one_of("kind", *KINDS),  # type: ignore[arg-type]
    )
    vocabSize: Param[int] = Param(
        Params._dummy(),
        "vocabSize",
        "tokens of the vocabulary at most, special ones among them (> 0).",
        TypeConverters.toInt,  # type: ignore[arg-type]
    )
    lowercase: Param[bool] = Param(
        Params._dummy(),
        "lowercase",
        "whether texts become small letters first.",
        TypeConverters.toBoolean,  # type: ignore[arg-type]
    )
    minFrequency: Param[int] = Param(
        Params._dummy(),
        "minFrequency",
        "how often two pieces must stand side by side to become one, of wordpiece and bpe (> 0).",
        TypeConverters.toInt,  # type: ignore[arg-type]
    )
    unknownToken: Param[str] = Param(
        Params._dummy(),
        "unknownToken",
        "the token for what has no other, of wordpiece and unigram; bpe has one for every byte.",
        TypeConverters.toString,  # type: ignore[arg-type]
    )
    startToken: Param[str] = Param(
        Params._dummy(),
        "startToken",
        "a token that comes before each text.",
        TypeConverters.toString,  # type: ignore[arg-type]
    )
    endToken: Param[str] = Param(
        Params._dummy(),
        "endToken",
        "a token that comes after each text.",
        TypeConverters.toString,  # type: ignore[arg-type]
    )
    specialTokens: Param[list[str]] = Param(
        Params._dummy(),
        "specialTokens",
        "further tokens that are found whole in a text, however rare; their ids come before those of pieces.",
        TypeConverters.toListString,  # type: ignore[arg-type]
    )

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._setDefault(kind="wordpiece", vocabSize=8000, lowercase=False, minFrequency=2, specialTokens=[])

    def getKind(self) -> str:
        """Which pieces words are cut into."""
        return self.getOrDefault(self.kind)

    def getVocabSize(self) -> int:
        """Tokens of the vocabulary at most."""
        return self.getOrDefault(self.vocabSize)

    def getLowercase(self) -> bool:
        """Whether texts become small letters first."""
        return self.getOrDefault(self.lowercase)

    def getMinFrequency(self) -> int:
        """How often two pieces must stand side by side to become one."""
        return self.getOrDefault(self.minFrequency)

    def getUnknownToken(self) -> str | None:
        """The token for what has no other; None of bpe, which needs none."""
        if self.isDefined(self.unknownToken):
            return self.getOrDefault(self.unknownToken)
        return None if self.getKind() == "bpe" else UNKNOWN

    def getStartToken(self) -> str | None:
        """The token that comes before each text, if any."""
        return self.getOrDefault(self.startToken) if self.isDefined(self.startToken) else None

    def getEndToken(self) -> str | None:
        """The token that comes after each text, if any."""
        return self.getOrDefault(self.endToken) if self.isDefined(self.endToken) else None

    def getSpecialTokens(self) -> list[str]:
        """Further tokens that are found whole."""
        return self.getOrDefault(self.specialTokens)

    def setKind(self, value: str) -> Self:
        """Set which pieces words are cut into."""
        return self._set(kind=value)

    def setVocabSize(self, value: int) -> Self:
        """Set how many tokens the vocabulary has at most."""
        return self._set(vocabSize=value)

    def setLowercase(self, value: bool) -> Self:
        """Set whether texts become small letters first."""
        return self._set(lowercase=value)

    def setMinFrequency(self, value: int) -> Self:
        """Set how often two pieces must stand side by side to become one."""
        return self._set(minFrequency=value)

    def setUnknownToken(self, value: str | None) -> Self:
        """Set the token for what has no other; None goes back to [UNK]."""
        return self._set(unknownToken=value)

    def setStartToken(self, value: str | None) -> Self:
        """Set the token that comes before each text; None takes it back."""
        return self._set(startToken=value)

    def setEndToken(self, value: str | None) -> Self:
        """Set the token that comes after each text; None takes it back."""
        return self._set(endToken=value)

    def setSpecialTokens(self, value: Sequence[str]) -> Self:
        """Set further tokens that are found whole."""
        return self._set(specialTokens=value)

    def _recipe(self) -> Recipe:
        """What these Params make; ValueError for such as do not go together."""
        kind, unknown = self.getKind(), self.getUnknownToken()
        if kind == "bpe" and unknown is not None:
            raise ValueError(
                f"unknownToken goes with kind='wordpiece' or 'unigram', as bpe has a token for every byte, received "
                f"{unknown!r}; leave it out."
            )
        if kind == "unigram" and self.isSet(self.minFrequency):
            raise ValueError(
                f"minFrequency goes with kind='wordpiece' or 'bpe', as unigram joins no pieces, received "
                f"{self.getMinFrequency()}; leave it out."
            )
        if self.getPadToken() is not None and self.getMaxLength() is None:
            raise ValueError(
                f"padToken {self.getPadToken()!r} fills rows up to maxLength, which is not set; set it, or leave "
                "padToken out for rows of any length."
            )
        start, end, most = self.getStartToken(), self.getEndToken(), self.getMaxLength()
        added = sum(token is not None for token in (start, end))
        if most is not None and most <= added:
            raise ValueError(
                f"maxLength must be at least {added + 1} with {added} tokens around texts, received {most}."
            )
        given = [self.getPadToken(), unknown, start, end]
        special = tuple(dict.fromkeys([*(token for token in given if token is not None), *self.getSpecialTokens()]))
        if "" in special:
            raise ValueError("Special tokens must have a name, received ''; leave it out.")
        return Recipe(
            kind=kind,
            vocabulary=self.getVocabSize(),
            lowercase=self.getLowercase(),
            least=self.getMinFrequency(),
            unknown=unknown or "",
            special=special,
            start=start or "",
            end=end or "",
        )
