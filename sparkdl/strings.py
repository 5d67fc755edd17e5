"""How strings become the integers that layers of categories read: hashed or looked up, whole or in parts."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from sparkdl.decoding.arrow_types import is_list
from sparkdl.decoding.hashing import hash_strings, look_up_strings
from sparkdl.decoding.splitting import SPLITS, split_strings
from sparkdl.specs import Spec, take_arrays

SHOWN = 4  # entries of a vocabulary where it is printed


def check_split(spec: Spec, split: str | None) -> None:
    """ValueError unless it is None or one of `SPLITS`."""
    if split is not None and split not in SPLITS:
        choices = ", ".join(map(repr, SPLITS))
        raise ValueError(f"split of {type(spec).__name__} must be {choices} or None, received {split!r}.")


@dataclass(frozen=True)
class Strings(Spec):
    """Base of the ways from strings to integers.

    Parameters
    ----------
    split : {"word", "character"}, optional
        Into what a string is cut, each part being a step of a row; None leaves it whole.
    """

    split: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_split(self, self.split)

    @abstractmethod
    def integers(self, column: pa.Array) -> pa.Array:
        """A column of strings, or of lists of them, as int32, null as null; every other column as it is."""

    def first_unknown(self, column: pa.Array) -> str | None:
        """The first of the column's strings that has no number of its own; None if all have one."""
        return None


@dataclass(frozen=True)
class Hashing(Strings):
    """Each string becomes its hash, so that all strings there are have a number."""

    def integers(self, column: pa.Array) -> pa.Array:
        return hash_strings(column)


@dataclass(frozen=True)
class Vocabulary(Strings):
    """The strings for which a table of categories has rows, in the order of these: what a network knows of a column.

    A layer that is given one, such as `Embedding(len(words), 16, vocabulary=words)`, takes columns of strings and of
    `array<string>`, which workers look up, in a fit and in all that a model does; a saved model so brings its own
    preprocessing. `models.vocabulary` learns one from a DataFrame.

    Parameters
    ----------
    entries : sequence of str, or array of str
        The strings that are numbered 0, 1, ..., each once; parts of strings where these are split.
    split : {"word", "character"}, optional
        Into what a column's strings are cut, each part being a step of a row of any length:

        - "word": lower-cased runs of letters, their marks and digits, and every other character that is no white space
          by itself; "Don't!" is don, ', t, !. Text is brought to Unicode's form NFC before.
        - "character": Unicode's code points, as they are.

        None leaves strings whole. Items of `array<string>` are never cut.

    Examples
    --------
    >>> from sparkdl.layers import Vocabulary
    >>> words = Vocabulary(["to", "be", "or"], split="word")
    >>> [numbers.tolist() for numbers in words.look_up(["To be, or not to be", ""])]
    [[0, 1, 3, 2, 3, 0, 1], []]
    """

    entries: Sequence[str]

    def __post_init__(self) -> None:
        take_arrays(self, "entries")
        super().__post_init__()
        if not isinstance(self.entries, tuple) or not self.entries:
            raise ValueError(f"entries of Vocabulary must be a list of strings, received {self.entries!r:.80}.")
        seen = set()
        for entry in self.entries:
            if not isinstance(entry, str) or entry in seen:
                what = "twice" if isinstance(entry, str) else f"a {type(entry).__name__}"
                raise ValueError(f"entries of Vocabulary must be strings that differ, received {entry!r:.80}, {what}.")
            seen.add(entry)

    def __len__(self) -> int:
        return len(self.entries)

    def __repr__(self) -> str:
        shown = ", ".join(map(repr, self.entries[:SHOWN]))
        more = f", ... {len(self):,} in all" if len(self) > SHOWN else ""
        return f"Vocabulary([{shown}{more}]{'' if self.split is None else f', split={self.split!r}'})"

    def integers(self, column: pa.Array) -> pa.Array:
        """The numbers of the column's strings; len(self) of one that has none."""
        return look_up_strings(column, self.entries)

    def first_unknown(self, column: pa.Array) -> str | None:
        strings, numbers = column, self.integers(column)
        while is_list(strings.type):
            strings, numbers = strings.flatten(), numbers.flatten()
        found = np.flatnonzero(numbers.fill_null(0).to_numpy(zero_copy_only=False) == len(self))
        return strings[int(found[0])].as_py() if len(found) else None

    def look_up(self, strings: Sequence[Any]) -> Any:
        """The numbers of strings as workers find them in a column: what a fit without Spark reads.

        Parameters
        ----------
        strings : sequence of str, or of sequences of str
            The latter are parts already, as the items of `array<string>` are.

        Returns
        -------
        list of arrays (steps,) of int32, or array (n,)
            The latter of whole strings. len(self) is the number of what is no entry.

        Raises
        ------
        ValueError
            They are neither, or None is among them.
        """
        if isinstance(strings, str):
            raise ValueError(
                f"look_up takes strings, or lists of strings, received {strings!r}, one string; give it in a list, "
                f"[{strings!r}]."
            )
        rows = list(strings)
        strings_alone = [isinstance(row, str) for row in rows]
        whole = all(strings_alone)
        if not whole and any(strings_alone):
            other = rows[strings_alone.index(False)]
            raise ValueError(
                f"look_up takes strings, or lists of strings, received strings and {other!r}; leave it out."
            )
        try:
            column = pa.array(rows, pa.string() if whole else pa.list_(pa.string()))
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise ValueError(f"look_up takes strings, or lists of strings, received others: {error}") from None
        if column.null_count or not whole and column.flatten().null_count:
            raise ValueError("look_up takes strings, or lists of strings, received None among them; leave it out.")
        numbers = self.integers(split_strings(column, self.split))
        if not pa.types.is_list(numbers.type):
            return numbers.to_numpy(zero_copy_only=False)
        return np.split(numbers.flatten().to_numpy(zero_copy_only=False), numbers.offsets.to_numpy()[1:-1])[: len(rows)]


def common_strings(found: Sequence[Strings | None]) -> Strings | None:
    """How strings become integers for several layers at once; None where they differ, or where one takes none.

    A layer that takes hashes takes any integers, and so the numbers that another's vocabulary gives.
    """
    given = [how for how in found if how is not None]
    different: set[Strings] = {how for how in given if isinstance(how, Vocabulary)} or set(given)
    agreed = len(given) == len(found) and len(different) == 1 and len({how.split for how in given}) == 1
    return different.pop() if agreed else None
