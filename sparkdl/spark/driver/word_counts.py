"""How often each word of a column occurs: counted by tasks, so that the driver is sent each word once."""

from __future__ import annotations

from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sparkdl.spark.driver import columns
from sparkdl.spark.driver.interpreter import complaint_in
from sparkdl.spark.driver.old_spark import to_arrow
from sparkdl.spark.tasks.tokenizing import count_words
from sparkdl.subwords.recipe import Recipe


def count_words_of(dataset: DataFrame, name: str, recipe: Recipe) -> dict[str, int]:
    """The words of a column of strings, as the recipe cuts them, and how often each occurs; nulls have none.

    Raises
    ------
    ValueError
        The column is missing or of another type.
    """
    texts = dataset.select(columns.texts(dataset, name, "inputCol").alias("text")).where("text IS NOT NULL")
    parts = texts.mapInArrow(partial(count_words, recipe=recipe), "word string, count long")
    try:
        found = to_arrow(parts.groupBy("word").agg(F.sum("count").alias("count")))
    except Exception as error:
        if message := complaint_in(str(error)):
            raise RuntimeError(message) from None
        raise
    return dict(zip(found["word"].to_pylist(), found["count"].to_pylist(), strict=True))
