"""Tokenizers read from their JSON, which is checked and runs nothing."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenizers import Tokenizer

KEPT = 8  # tokenizers of a process at a time


def require_tokenizers() -> Any:
    """The package tokenizers, an extra; ImportError where it is missing."""
    try:
        import tokenizers
    except ImportError:
        raise ImportError(
            "A tokenizer needs the package tokenizers; pip install 'sparkdl-jax[text]' on every machine."
        ) from None
    return tokenizers


@lru_cache(maxsize=KEPT)
def read_tokenizer(text: str, max_length: int | None = None, pad_token: str | None = None) -> Tokenizer:
    """The tokenizer that a JSON describes; shared, so not to be changed.

    Parameters
    ----------
    text : str
        A tokenizer.json.
    max_length : int, optional
        Ids of a text at most, those that the tokenizer adds included; without it what the JSON says.
    pad_token : str, optional
        What fills shorter rows up to `max_length`, which it needs; without it rows are as long as they are, whatever
        the JSON says.

    Returns
    -------
    tokenizers.Tokenizer

    Raises
    ------
    ValueError
        It is no JSON of a tokenizer, `pad_token` is none of its tokens, or `max_length` leaves no place for a text.
    ImportError
        The package tokenizers is missing.
    """
    tokenizer = _parsed(text)
    tokenizer.no_padding()  # as a network that reads rows of any length would take it for words of the text
    added = tokenizer.num_special_tokens_to_add(False)
    if max_length is not None:
        if max_length <= added:
            raise ValueError(
                f"maxLength must be at least {added + 1}, as this tokenizer adds {added} ids to those of a text, "
                f"received {max_length}."
            )
        tokenizer.enable_truncation(max_length)
    if pad_token is not None:
        number = tokenizer.token_to_id(pad_token)
        if number is None:
            raise ValueError(f"padToken must be a token of the vocabulary, received {pad_token!r}.")
        if max_length is None:
            raise ValueError(
                f"padToken {pad_token!r} fills rows up to maxLength, which is not set; set it, or leave padToken out "
                "for rows of any length."
            )
        tokenizer.enable_padding(length=max_length, pad_id=number, pad_token=pad_token)
    return tokenizer


def _parsed(text: str) -> Tokenizer:
    package = require_tokenizers()
    try:
        tokenizer: Tokenizer = package.Tokenizer.from_str(text)
    except BaseException as error:  # a panic of Rust's is no Exception
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        reason = " ".join(str(error).split())[:300].rstrip(".")
        raise ValueError(
            f"it is no tokenizer.json of the package tokenizers ({reason}); take a file that its Tokenizer.save wrote"
        ) from None
    return tokenizer
