"""What a task does with text: count its words, turn it into tokens, and tokens into text."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from sparkdl.decoding.arrow_types import is_list
from sparkdl.subwords.reading import read_tokenizer
from sparkdl.subwords.recipe import Recipe

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Batch = tuple[pa.Array, ...]

COUNTS = pa.schema([("word", pa.string()), ("count", pa.int64())])
COUNTED_WORDS = 1 << 18  # that a task keeps at a time
CHARACTERS, TEXTS = 1 << 20, 1024  # at a time, since what the package tells of a token takes a hundred times its id
MOST = 1 << 32  # ids are less
SHOWN = 80  # characters of a text in a message
IDS = pa.list_(pa.field("element", pa.int32(), nullable=False))


def count_words(batches: Iterator[pa.RecordBatch], recipe: Recipe) -> Iterator[pa.RecordBatch]:
    """How often each word of the column occurs, in parts in which a word may come again."""
    words, counts = recipe.splitter(), Counter[str]()
    for batch in batches:
        for text in batch.column(0):
            if text.is_valid:
                counts.update(words(text.as_py()))
                if len(counts) > COUNTED_WORDS:
                    yield _counted(counts)
                    counts.clear()
    yield _counted(counts)


def _counted(counts: Counter[str]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"word": list(counts.keys()), "count": list(counts.values())}, COUNTS)


def encoded(
    batches: Iterator[Batch], tokenizer: Callable[[], bytes], max_length: int | None, pad_token: str | None
) -> Iterator[pa.Array]:
    """The ids of each text, null for null.

    Parameters
    ----------
    batches : iterator of tuple of one Arrow array
        Of strings.
    tokenizer : callable
        Gives the bytes of its JSON.
    max_length, pad_token
        As of `read_tokenizer`.
    """
    own = _loaded(tokenizer, max_length, pad_token)
    for (texts,) in batches:
        parts = [_ids(part, own) for part in _parts(texts.to_pylist())]
        yield pa.chunked_array(parts, IDS).combine_chunks() if len(parts) != 1 else parts[0]


def decoded(batches: Iterator[Batch], tokenizer: Callable[[], bytes], skip_special: bool) -> Iterator[pa.Array]:
    """The text of each list of ids, null for null; special tokens are left out if `skip_special`."""
    own = _loaded(tokenizer, None, None)
    for (rows,) in batches:
        yield pa.array(
            [None if ids is None else text_of(own, ids, skip_special) for ids in rows.to_pylist()], pa.string()
        )


def check_argument(batch: Batch, call: str, lists: bool) -> Batch:
    """The batch, if SQL called a function with what it takes, texts or lists of ids.

    Raises
    ------
    ValueError
        There is another number of arguments, or it is of another type; `call` is how it is meant.
    """
    if len(batch) != 1:
        raise ValueError(f"Call it as {call}, received {len(batch)} arguments.")
    kind = batch[0].type
    fits = is_list(kind) if lists else pa.types.is_string(kind) or pa.types.is_large_string(kind)
    if lists and fits:
        kind = kind.value_type
        fits = pa.types.is_integer(kind) or pa.types.is_null(kind)
    if not fits and not pa.types.is_null(kind):
        must = "an array of whole numbers" if lists else "a string"
        raise ValueError(f"Call it as {call} of {must}, received {batch[0].type}; cast it.")
    return batch


def ids_of(tokenizer: Tokenizer, texts: list[str]) -> list[list[int]]:
    """The ids of texts; ValueError for one that the tokenizer cannot take, as some have no token for the unknown."""
    try:
        return [encoding.ids for encoding in tokenizer.encode_batch_fast(texts)]
    except Exception as error:
        if len(texts) > 1:  # find out which
            return [ids for text in texts for ids in ids_of(tokenizer, [text])]
        raise ValueError(
            f"The tokenizer cannot take the text {texts[0][:SHOWN]!r} ({error}); drop such rows or take a tokenizer "
            "with a token for what is unknown."
        ) from None


def text_of(tokenizer: Tokenizer, ids: Sequence[int], skip_special: bool) -> str:
    """The text of ids; ValueError for one that the vocabulary lacks."""
    for each in ids:
        if not isinstance(each, int) or not 0 <= each < MOST or tokenizer.id_to_token(each) is None:
            raise ValueError(
                f"Ids must be of tokens of the vocabulary, which has {tokenizer.get_vocab_size()} from 0 on, received "
                f"{each!r}; decode them by the tokenizer that made them."
            )
    return tokenizer.decode(list(ids), skip_special_tokens=skip_special)


def _loaded(tokenizer: Callable[[], bytes], max_length: int | None, pad_token: str | None) -> Tokenizer:
    """Kept for the next task of this Python worker, of which Spark has as many as there are tasks at a time."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    return read_tokenizer(tokenizer().decode(), max_length, pad_token)


def _parts(texts: list[str | None]) -> Iterator[list[str | None]]:
    part: list[str | None] = []
    characters = 0
    for text in texts:
        part.append(text)
        characters += len(text or "")
        if characters >= CHARACTERS or len(part) >= TEXTS:
            yield part
            part, characters = [], 0
    if part:
        yield part


def _ids(texts: list[str | None], tokenizer: Tokenizer) -> pa.Array:
    found = iter(ids_of(tokenizer, [text for text in texts if text is not None]))
    return pa.array([None if text is None else next(found) for text in texts], IDS)
