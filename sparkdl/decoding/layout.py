"""What features columns are to become, and what decoding tells: shared by all decoders and by those who call them."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from sparkdl.arrays import Array, size_of
from sparkdl.decoding.catalyst import unpack_column
from sparkdl.strings import Strings

KINDS = (
    "valid",
    "null",
    "NaN",
    "infinity",
    "wrong width",
    "wrong size",
    "undecodable image",
    "no integer",
    "no category",
    "too many steps",
)
VALID, NULL, NAN, INFINITY, WIDTH, SIZE, IMAGE, FRACTION, CATEGORY, STEPS = range(len(KINDS))
RESIZES = ("nearest", "bilinear", "bicubic", "lanczos")  # Pillow's filters
STORAGES = ("pixels", "files")
SIDES = ("right", "left")  # on which rows of any length are cut
STRINGS = ("string", "large_string")  # as Spark and Arrow call the type
CHANNELS = (1, 3, 4)  # of an image: gray, RGB, RGBA
MOST_PIXELS = 1 << 26  # 8192 x 8192, which take half a GB while they are decoded, at 8 bytes a pixel
PIXELS_SETTING = "sparkdl.maxImagePixels"

_short = reprlib.Repr()
_short.maxlist = _short.maxtuple = 4
_short.maxstring = _short.maxother = 40


@dataclass(frozen=True)
class Layout:
    """What features columns are to become.

    Attributes
    ----------
    names : tuple of str
        The columns, for messages.
    shape : tuple of int
        Of a row of the network's input; None first for rows of any length.
    limit : int or None
        That integers are from 0 to below it, as they choose rows of a table.
    table : str
        The path of the layer whose rows they choose.
    strings : Strings or None
        How strings become integers, where they are taken.
    part : str
        The input's name, where columns are given by those.
    dtype : str
        Of the numbers: float32 or float64, or int32 for a network that reads integers. Bytes and images become uint8.
    param : str
        featuresCol or featuresCols.
    binary : str
        What a binary column holds: raw values, an image, or auto.
    resize : str
        One of `RESIZES`, or error.
    most_pixels : int
        Of an image file; one of more counts as undecodable.
    max_length : int or None
        The most steps that a row of any length keeps.
    truncation_side : str
        Where longer ones lose steps, one of `SIDES`: right is their end.
    most_steps : int or None
        The most that a row of any length may have, as the network tells no more apart.
    rows : tuple, optional
        Where the layout is that of a step, the shape of the rows, which are of any length.
    """

    names: tuple[str, ...]
    shape: tuple[Any, ...]
    dtype: str
    param: str = "featuresCol"
    binary: str = "auto"
    resize: str = "error"
    most_pixels: int = MOST_PIXELS
    part: str = ""
    limit: int | None = None
    table: str = ""
    strings: Strings | None = None
    max_length: int | None = None
    truncation_side: str = "right"
    most_steps: int | None = None
    rows: tuple[Any, ...] | None = None
    pixels_are_classes: ClassVar[bool] = False  # as in masks: those of a palette are its numbers, none are mixed

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Layout:
        """That of which `dataclasses.asdict` gave these fields, stored as JSON."""
        return cls(**fields | {name: tuple(fields[name]) for name in ("names", "shape")})

    @property
    def subject(self) -> str:
        """The columns, as the beginning of a sentence."""
        return f"{self.param} {', '.join(self.names) if self.joined else repr(self.names[0])}"

    @property
    def joined(self) -> bool:
        """Whether the columns' values are put one after another; one that is given by the input's name is as it is."""
        return len(self.names) > 1 or (self.param == "featuresCols" and not self.part and not self.ragged)

    @property
    def ragged(self) -> bool:
        """Whether rows are of any length."""
        return self.shape[:1] == (None,)

    @property
    def of_step(self) -> Layout:
        """What each step of such a row is to become."""
        return replace(self, shape=self.shape[1:], rows=self.shape)

    @property
    def width(self) -> int:
        """Values in a row; about how many if rows are of any length."""
        return size_of(self.shape)

    @property
    def row_bytes(self) -> int:
        """Of a row's float features."""
        return self.width * np.dtype(self.dtype).itemsize

    @property
    def pixels(self) -> tuple[int, int, int] | None:
        """Height, width and channels if images can fill the shape, else None."""
        shape = (*self.shape, 1) if len(self.shape) == 2 else self.shape
        return shape if len(shape) == 3 and shape[2] in CHANNELS and not self.ragged else None

    @property
    def purpose(self) -> str:
        """What the values are for, as part of a sentence."""
        which = f"input {self.part!r} of shape" if self.part else "input_shape"
        return f"to fill {'each step of ' if self.rows else ''}the network's {which} {self.rows or self.shape}"

    def check_form(self, depth: int, images: bool, received: str) -> None:
        """Raise ValueError for columns that cannot fill the shape, whatever they hold.

        Parameters
        ----------
        depth : int
            How deep arrays are nested in them.
        images : bool
            Whether they hold those.
        received : str
            Their type.
        """
        if "string" in received and depth and not self.shape and self.strings and self.strings.split:
            raise ValueError(
                f"{self.subject} holds strings in parts, {self.strings.split}s, {self.purpose}, which must be (None,) "
                "or (n,); begin the network with such rows, or leave split out."
            )
        if self.ragged and (self.joined or not depth):
            what = f"{len(self.names)} columns" if self.joined else received
            hint = "put them together by F.array" if self.joined else "convert it, a Vector by vector_to_array"
            hint = "give the layer that reads it a split of 'word' or 'character'" if received in STRINGS else hint
            raise ValueError(f"{self.subject} must be one column of arrays {self.purpose}, received {what}; {hint}.")
        most = 1 if self.joined else len(self.shape)
        if depth > most:
            wanted, hint = f"arrays nested at most {most} deep", "flatten it"
            if not most:
                wanted, hint = "one value a row", "name a column of such, or begin the network with rows of arrays"
            raise ValueError(f"{self.subject} must hold {wanted} {self.purpose}, received {received}; {hint}.")
        if images and self.pixels is None:
            raise ValueError(
                f"{self.subject} holds images, for which input_shape must be (height, width) or (height, width, "
                f"channels) with 1, 3 or 4 channels, received {self.shape}; begin the network with such rows and "
                "Flatten()."
            )


class Cut(NamedTuple):
    """How rows of any length were cut.

    Attributes
    ----------
    lengths : array (n,)
        Their steps before; -1 for null.
    most : int
        The steps that they keep at most.
    side : str
        Where they lost the others, one of `SIDES`.
    """

    lengths: Array
    most: int
    side: str


class Decoded(NamedTuple):
    """A decoded column of n rows.

    Attributes
    ----------
    values : array (n, ...), or RaggedRows
        Rows that are not valid hold zeros, or nothing.
    status : array (n,) of uint8
        For every row an index into `KINDS`.
    problem : callable
        What is wrong with row i, as the beginning of a sentence.
    widths : array (n, columns) or None
        Of several columns: the values that each holds in a row; -1 for null.
    cut : Cut or None
        Of rows of any length that may have lost steps.
    """

    values: Any
    status: Array
    problem: Callable[[int], str]
    widths: Array | None = None
    cut: Cut | None = None


def check_rows(parts: Sequence[Decoded], columns: Mapping[str, pa.Array], remedy: str | None) -> Array:
    """(n,) of uint8: for every row the first of its columns' statuses that is not valid.

    Parameters
    ----------
    parts : sequence of Decoded
        The columns of the same rows.
    columns : mapping of pyarrow arrays
        The rows as they came, by the user's names.
    remedy : str or None
        What to do about rows that are not valid; None to let them pass.

    Raises
    ------
    ValueError
        A row is not valid, and there is a remedy: which column, what is wrong, what the row holds, what to do.
    """
    status = parts[0].status
    for part in parts[1:]:
        status = np.where(status != VALID, status, part.status)
    if remedy is None or not status.any():
        return status
    row = int(np.flatnonzero(status)[0])
    wrong = next(part for part in parts if part.status[row])
    held = ", ".join(
        f"{name}: {_shown(unpack_column(column.slice(row, 1))[0].as_py())}" for name, column in columns.items()
    )
    raise ValueError(f"{wrong.problem(row)}, as in the row ({held}); {remedy}.")


def _shown(value: Any) -> str:
    """A short form of what a row holds; Vectors as Spark prints them, images by origin and size."""
    if isinstance(value, bytes):
        return f"{value[:8]!r}... of {len(value)} bytes" if len(value) > 8 else repr(value)
    if isinstance(value, dict) and "data" in value:
        size = f"{value['height']} x {value['width']}, {value['nChannels']} channels"
        return f"{value.get('origin') or 'image'} of {size}"
    if isinstance(value, dict) and "values" in value:
        indices, values = (_short.repr(value[name]) for name in ("indices", "values"))
        return values if value["type"] == 1 else f"({value['size']}, {indices}, {values})"
    return _short.repr(value)
