"""Which strings a column of a DataFrame holds, found in one pass: the vocabulary of a network that reads it."""

from __future__ import annotations

from functools import partial
from typing import Any

from sparkdl.decoding.counting import COUNTS, count_strings
from sparkdl.decoding.names import quoted
from sparkdl.specs import is_integer
from sparkdl.strings import Vocabulary


def vocabulary(
    dataset: Any, column: str, split: str | None = None, size: int | None = None, least: int = 1
) -> Vocabulary:
    """The strings that a column holds, the most frequent first; one Spark job counts them.

    Parameters
    ----------
    dataset : DataFrame
        The rows to train on; nulls do not count.
    column : str
        Its name; of strings, or of `array<string>`, whose items are counted as they are.
    split : {"word", "character"}, optional
        Into what its strings are cut before (see `Vocabulary`).
    size : int, optional
        The most entries, all by default.
    least : int, default 1
        How often a string must be there to be one.

    Returns
    -------
    Vocabulary
        By descending count, equally frequent ones by their code points, however the rows are partitioned.

    Raises
    ------
    ValueError
        The column is missing, of another type, or holds no string as often; or an argument is out of range.

    Examples
    --------
    >>> from sparkdl import models
    >>> from sparkdl.layers import Embedding
    >>> lines = spark.createDataFrame([("To be, or not to be",), ("to sleep",)], ["line"])
    >>> words = models.vocabulary(lines, "line", split="word", size=3)
    >>> words
    Vocabulary(['to', 'be', ','], split='word')
    >>> Embedding(len(words), 8, vocabulary=words, unknown=True).output_shape((None,))
    (None, 8)
    """
    types = dict(dataset.dtypes)
    if column not in types:
        raise ValueError(f"vocabulary reads column {column!r}, which is not there; the columns are {', '.join(types)}.")
    if types[column] not in ("string", "array<string>"):
        raise ValueError(
            f"vocabulary reads columns of string or array<string>, received {column!r} of type {types[column]}; cast "
            "it."
        )
    for name, value in (("size", size), ("least", least)):
        if value is not None and not is_integer(value, 1):
            raise ValueError(f"{name} of vocabulary must be a positive integer, received {value!r}.")
    Vocabulary(("",), split=split)  # refuses another split before any job
    parts = dataset.selectExpr(f"{quoted(column)} as text").mapInArrow(partial(count_strings, split=split), COUNTS)
    counts = parts.groupBy("entry").sum("count").withColumnRenamed("sum(count)", "count").where(f"count >= {least}")
    ordered = counts.orderBy("count", "entry", ascending=[False, True])
    rows = (ordered if size is None else ordered.limit(size)).collect()
    if not rows:
        raise ValueError(
            f"Column {column!r} holds no string {least} times or more, so there is no vocabulary; check the data and "
            "its filters, or lower least."
        )
    return Vocabulary(tuple(row["entry"] for row in rows), split=split)
