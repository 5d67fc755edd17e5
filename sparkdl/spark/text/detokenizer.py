"""Detokenizer: ids of subwords back to texts, as a Spark ML Transformer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

import pyarrow as pa
from pyspark.ml import Transformer
from pyspark.ml.param import Param, Params, TypeConverters
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType, StringType

from sparkdl.spark.driver import columns
from sparkdl.spark.driver.arrow_udf import arrow_udf
from sparkdl.spark.tasks.tokenizing import Batch, decoded
from sparkdl.spark.text.held_tokenizer import HoldsTokenizer, Work


class Detokenizer(HoldsTokenizer, Transformer):
    """Turns arrays of ids into texts; made by `TokenizerModel.detokenizer` or `load`.

    `transform` adds `outputCol`, a string: null for null, "" for no ids. An id of no token fails the query. The text is
    the one that was tokenized, without what the tokenizer does not keep: capital letters with `lowercase`, unknown
    words, what was cut and, of wordpiece and unigram, how many spaces there were.
    """

    skipSpecialTokens: Param[bool] = Param(
        Params._dummy(),
        "skipSpecialTokens",
        "whether special tokens, such as padding, are left out of texts.",
        TypeConverters.toBoolean,  # type: ignore[arg-type]
    )

    def __init__(self, tokenizerJson: str | None = None) -> None:
        super().__init__(tokenizerJson)
        self._setDefault(skipSpecialTokens=True)

    def getSkipSpecialTokens(self) -> bool:
        """Whether special tokens are left out."""
        return self.getOrDefault(self.skipSpecialTokens)

    def setSkipSpecialTokens(self, value: bool) -> Self:
        """Set whether special tokens are left out."""
        return self._set(skipSpecialTokens=value)

    def _transform(self, dataset: DataFrame) -> DataFrame:
        columns.check_frame(dataset, "transform")
        ids = columns.token_ids(dataset, self.getInputCol(), "inputCol")
        columns.check_outputs(dataset, [self.getOutputCol()])
        texts = arrow_udf(*self._work(dataset.sparkSession, dataset.isStreaming)).asNondeterministic()(ids)
        return columns.in_rows(dataset).withColumn(self.getOutputCol(), texts)

    def _work(self, session: SparkSession, stream: bool = False) -> tuple[Work, DataType]:
        tokenizer, skipped = self._sent(session, stream), self.getSkipSpecialTokens()

        def decode(batches: Iterator[Batch]) -> Iterator[pa.Array]:
            return decoded(batches, tokenizer, skipped)

        return decode, StringType()
