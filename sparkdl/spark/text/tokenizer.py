"""Tokenizer and TokenizerModel: texts to ids of subwords, as a Spark ML Estimator and Transformer."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Self, Unpack

import pyarrow as pa
from pyspark.ml import Estimator, Model
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ArrayType, DataType, IntegerType

from sparkdl.spark.driver import columns
from sparkdl.spark.driver.arrow_udf import arrow_udf
from sparkdl.spark.driver.word_counts import count_words_of
from sparkdl.spark.params.tokenizer_params import HasLength, TokenizerArguments, TokenizerParams
from sparkdl.spark.saving.persistence import Saved, read_file
from sparkdl.spark.tasks.tokenizing import Batch, encoded, ids_of
from sparkdl.spark.text.detokenizer import Detokenizer
from sparkdl.spark.text.held_tokenizer import HoldsTokenizer, Work
from sparkdl.subwords.reading import read_tokenizer, require_tokenizers


class TokenizerModel(HoldsTokenizer, HasLength, Model):
    """A trained tokenizer as a Transformer; made by `Tokenizer.fit`, `TokenizerModel.from_file` or `load`.

    `transform` adds `outputCol`: for each text an array<int> of ids, null for null. An empty text has the ids that the
    tokenizer adds to each, if any. `maxLength` and `padToken` may be set anew.

    Attributes
    ----------
    tokenizerJson : str
        As of a tokenizer.json, which Tokenizer.from_str of the package tokenizers reads; what `maxLength` and
        `padToken` say is not in it.
    """

    @classmethod
    def from_file(
        cls,
        path: str | os.PathLike[str],
        inputCol: str | None = None,
        outputCol: str | None = None,
        maxLength: int | None = None,
        padToken: str | None = None,
    ) -> Self:
        """The model of a tokenizer.json, as the package tokenizers and the models that came with one have it.

        Parameters
        ----------
        path : str or Path
            Of the file, on the driver, or a URI that Spark reads, such as hdfs://host/folder/tokenizer.json.
        inputCol, outputCol : str, optional
            The column of texts, and that of ids.
        maxLength, padToken : int, str, optional
            As of `Tokenizer`. Without maxLength rows are cut as the file says; without padToken they are not filled,
            whatever the file says, as networks of rows of any length would take what fills them for words.

        Raises
        ------
        FileNotFoundError
            There is no such file.
        ValueError
            It is no tokenizer.json, or `maxLength` and `padToken` do not go with it.
        ImportError
            The package tokenizers is missing.
        """
        where = os.fspath(path)
        try:
            if "://" in where:
                text = read_file(SparkSession.active(), where).decode()
            else:
                text = Path(where).read_bytes().decode()
            model = cls()
            model._restore_text(text)
        except ValueError as error:
            raise ValueError(f"{where} cannot be read: {str(error).rstrip('.')}.") from None
        model.setParams(inputCol=inputCol, outputCol=outputCol, maxLength=maxLength, padToken=padToken)
        model._check_length()
        return model

    def encode(self, text: str) -> list[int]:
        """The ids of a text, on the driver: those that `transform` gives it.

        Raises
        ------
        ValueError
            The tokenizer cannot take the text, or there is none.
        """
        own = read_tokenizer(self.tokenizerJson, self.getMaxLength(), self.getPadToken())
        return ids_of(own, [text])[0]

    def detokenizer(self, inputCol: str | None = None, outputCol: str = "text") -> Detokenizer:
        """A Transformer that goes the way back, from ids to texts.

        Parameters
        ----------
        inputCol : str, optional
            The column of ids; the `outputCol` of this model, if it is not given.
        outputCol : str, default "text"
            The column of texts that it adds.
        """
        made = Detokenizer(self.tokenizerJson)
        return made.setParams(inputCol=inputCol or self.getOutputCol(), outputCol=outputCol)

    def _transform(self, dataset: DataFrame) -> DataFrame:
        columns.check_frame(dataset, "transform")
        texts = columns.texts(dataset, self.getInputCol(), "inputCol")
        columns.check_outputs(dataset, [self.getOutputCol()])
        # Spark takes it for random, lest a filter on its results run it twice.
        ids = arrow_udf(*self._work(dataset.sparkSession, dataset.isStreaming)).asNondeterministic()(texts)
        return columns.in_rows(dataset).withColumn(self.getOutputCol(), ids)

    def _work(self, session: SparkSession, stream: bool = False) -> tuple[Work, DataType]:
        self._check_length()
        tokenizer, most, pad = self._sent(session, stream), self.getMaxLength(), self.getPadToken()

        def encode(batches: Iterator[Batch]) -> Iterator[pa.Array]:
            return encoded(batches, tokenizer, most, pad)

        return encode, ArrayType(IntegerType(), False)

    def _check_length(self) -> None:
        """ValueError for a maxLength or padToken that does not go with the tokenizer."""
        read_tokenizer(self.tokenizerJson, self.getMaxLength(), self.getPadToken())


class Tokenizer(Estimator[TokenizerModel], TokenizerParams, Saved):
    """Trains a tokenizer on a column of texts: a vocabulary of words and parts of words, each with an id.

    Spark's tasks count the words, and the driver trains from these counts by the package tokenizers (extra `text`), so
    that neither the order of rows nor partitions have a part in it: equal rows give an equal tokenizer. The driver
    holds each distinct word once and hands it to the trainer as often as it occurs, about a million words a second; of
    texts for which it has not the time or memory, train on a sample.

    Parameters
    ----------
    inputCol, outputCol : str
        The column of texts, strings, in which nulls count nothing; and that of ids, which the model adds.
    kind : str, default "wordpiece"
        Which pieces words are cut into. "wordpiece", as of BERT: words and punctuation, longest pieces first, those
        within a word marked by ##; a word with a character that is not in the vocabulary is unknown. "bpe", as of
        GPT-2: pairs of bytes joined in the order of training; any text has ids, which give back each character of it.
        "unigram", as of SentencePiece: the likeliest pieces by a model of each piece's frequency; a space is a part of
        the word after it.
    vocabSize : int, default 8000
        Tokens of the vocabulary at most, special ones among them. Of wordpiece and unigram the most frequent characters
        are tokens, as many as there is room for, and bpe has 256 for the bytes.
    lowercase : bool, default False
        Whether texts become small letters first.
    minFrequency : int, default 2
        Of wordpiece and bpe: how often two pieces must stand side by side in the texts to become one.
    maxLength : int, optional
        Ids of a row at most, those of `startToken` and `endToken` among them; longer texts are cut at their end.
    padToken : str, optional
        For networks of rows of one length: a token, of id 0, that fills shorter rows up to `maxLength`. Networks of
        rows of any length, `input_shape=(None,)`, need none.
    unknownToken : str, default "[UNK]"
        Of wordpiece and unigram: the token for what has no other.
    startToken, endToken : str, optional
        Tokens that come before and after each text.
    specialTokens : list of str, optional
        Further tokens that are found whole in a text, however rare they are. The ids of special tokens begin at 0:
        `padToken`, `unknownToken`, `startToken`, `endToken`, then these.

    Raises
    ------
    ValueError
        In `fit`: a Param has no usable value, the column is missing or holds no strings, or there are no words.
    ImportError
        In `fit`: the package tokenizers is missing.

    Notes
    -----
    Of unigram the package adds up floats in an order of chance, so scores are rounded to 6 decimals. In rare cases two
    fits may still differ: in the last decimal of a score, or in pieces of equal weight where the vocabulary ends.

    Where the name of a special token stands in a text it is taken for that token, as the package does.

    wordpiece: Wu et al., Google's Neural Machine Translation System, arXiv:1609.08144. bpe: Sennrich, Haddow, Birch,
    arXiv:1508.07909. unigram: Kudo, arXiv:1804.10959.

    Examples
    --------
    >>> from sparkdl.text import Tokenizer
    >>> rows = spark.createDataFrame([("low lower lowest",), ("slow and slower",), (None,)], ["text"])
    >>> model = Tokenizer(inputCol="text", outputCol="tokens", vocabSize=40).fit(rows)
    >>> [token for token in model.getVocabulary() if len(token) > 3]
    ['[UNK]', '##ow', '##er', '##low', 'slow']
    >>> model.decode(model.encode("slower and lower"))
    'slower and lower'
    >>> model.transform(rows).where("tokens IS NULL").count()
    1
    """

    def __init__(self, **params: Unpack[TokenizerArguments]) -> None:
        super().__init__()
        self.setParams(**params)

    def _fit(self, dataset: DataFrame) -> TokenizerModel:
        columns.check_rows(dataset, "fit")
        recipe, name = self._recipe(), self.getInputCol()
        columns.check_outputs(dataset, [self.getOutputCol()])
        require_tokenizers()
        model = TokenizerModel(recipe.train(count_words_of(dataset, name, recipe)))
        model._resetUid(self.uid)
        return self._copyValues(model)
