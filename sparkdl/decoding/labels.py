"""Labels from Arrow to NumPy: one of a row, several of it, an image of them, or one for each step of a row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from sparkdl.boxes import NO_OBJECT
from sparkdl.decoding.arrow_types import depth_of, is_number
from sparkdl.decoding.catalyst import unpack_column
from sparkdl.decoding.columns import typed
from sparkdl.decoding.images import decode_bytes, decode_images
from sparkdl.decoding.layout import KINDS, MOST_PIXELS, NULL, VALID, WIDTH, Decoded, Layout
from sparkdl.decoding.numbers import decode_numbers, decode_scalars, row_widths
from sparkdl.decoding.ragged_rows import RaggedRows, cut_lists


@dataclass(frozen=True)
class MaskLayout(Layout):
    """What an image becomes whose pixels are the classes of a row's positions; its shape is their rows and columns."""

    pixels_are_classes = True

    @classmethod
    def beside(cls, layouts: Mapping[str, Layout], column: str, shape: tuple[int, int]) -> MaskLayout:
        """That of a column, beside features of these layouts: masks are resized where images are."""
        images = [layout for layout in layouts.values() if layout.pixels]
        resize = "nearest" if any(layout.resize != "error" for layout in images) else "error"
        most = max((layout.most_pixels for layout in images), default=MOST_PIXELS)
        return cls((column,), shape, "float64", resize=resize, most_pixels=most)

    @property
    def purpose(self) -> str:
        return f"for the {self.shape[0]} x {self.shape[1]} positions that the network has outputs for"


@dataclass(frozen=True)
class LabelPart:
    """A part of the labels.

    Attributes
    ----------
    column : str
        The user's name of the column.
    outputs : int
        Of the network; as many labels are in a list.
    is_list : bool
        Whether it holds a list of labels a row, or a step.
    classes : tuple of int or None
        The least and the greatest label where only classes will do and the loss takes other numbers too.
    optional : bool
        Whether a row may lack it, as one of several.
    follows : str
        The part of the features that has a label for each step; "" where a row has one.
    group : int
        Labels come so many together, and a row may have fewer, filled up to `outputs` with -1; 0 where it may not.
    mask : MaskLayout, optional
        What they become where an image may hold them, or arrays of arrays.
    """

    column: str
    outputs: int
    is_list: bool = False
    classes: tuple[int, int] | None = None
    optional: bool = False
    follows: str = ""
    group: int = 0
    mask: MaskLayout | None = None


def decode_labels(column: pa.Array, part: LabelPart, features: Mapping[str, Decoded] | None = None) -> Decoded:
    """(n,) of float64 from numbers, (n, outputs) from lists and Vectors, which must be as long.

    Where each step has a label, RaggedRows of these, as long as the features; NaN is a step that has none, for which
    the column holds null. So is a row without one of several labels.

    Raises
    ------
    ValueError
        A number is no whole one within `classes`.
    """
    if part.follows:
        return _of_steps(column, part, (features or {})[part.follows])
    if part.optional:
        found = decode_labels(column, replace(part, optional=False))
        missing = column.is_null().to_numpy(zero_copy_only=False)  # not one that holds null
        values = np.where(missing.reshape(-1, *[1] * (found.values.ndim - 1)), np.nan, found.values)
        return found._replace(values=values, status=np.where(missing, VALID, found.status).astype(np.uint8))
    column, subject = typed(column), f"labelCol {part.column!r}"
    if is_number(column.type):
        decoded = decode_scalars(column, subject, "float64")
        if part.classes:
            least, most = part.classes
            wrong = decoded.values[~np.isin(decoded.values, range(least, most + 1))]
            if len(wrong):
                raise ValueError(
                    f"{subject} must hold classes from {least} to {most}, since the network has one output, received "
                    f"{wrong[0]:.15g}; index the classes, or train a DeepEstimator on labels that are no classes."
                )
        return decoded
    if part.group and depth_of((column := unpack_column(column)).type):
        return _of_groups(column, part, subject)
    if part.mask:
        if pa.types.is_struct(column.type) and "nChannels" in [field.name for field in column.type]:
            return _of_pixels(decode_images(column, subject, part.mask))
        if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
            return _of_pixels(decode_bytes(column, subject, part.mask))
        if depth_of((column := unpack_column(column)).type) > 1:
            found = decode_numbers(column, subject, part.mask.shape, "float64", f"fit {part.mask.shape}")
            return found._replace(values=found.values.reshape(len(column), part.outputs))
    must = f"hold {part.outputs} labels a row, since the network has {part.outputs} outputs"
    return decode_numbers(column, subject, (part.outputs,), "float64", must)


def _of_pixels(found: Decoded) -> Decoded:
    return found._replace(values=found.values.astype(np.float64))


def _of_groups(column: pa.Array, part: LabelPart, subject: str) -> Decoded:
    """(n, outputs) from lists of groups, or of the numbers of one group after another, filled up with -1."""
    size, most = part.group if depth_of(column.type) > 1 else 1, part.outputs // part.group
    must = f"hold up to {most} times {part.group} labels a row"
    items = decode_numbers(column.flatten(), subject, (size,), "float64", must)
    lengths = row_widths(column, subject)
    counts = np.maximum(lengths, 0)
    status = np.where((counts * size > part.outputs) | (counts * size % part.group != 0), WIDTH, VALID).astype(np.uint8)
    status[lengths < 0] = NULL
    row_of = np.repeat(np.arange(len(counts)), counts)
    bad = np.flatnonzero((items.status != VALID) & (status[row_of] == VALID))[::-1]
    status[row_of[bad]] = items.status[bad]  # that of the first, which comes last
    good = status[row_of] == VALID
    places = np.arange(len(row_of)) - np.repeat(np.cumsum(counts) - counts, counts)
    values = np.full((len(counts), part.outputs // size, size), NO_OBJECT)
    values[row_of[good], places[good]] = items.values[good].reshape(-1, size)

    def problem(row: int) -> str:
        wrong = bad[row_of[bad] == row]
        if len(wrong):
            return items.problem(int(wrong[-1]))
        if status[row] == WIDTH:
            return f"{subject} must {must}, received a row of {counts[row] * size}"
        return f"{subject} holds {KINDS[status[row]]}"

    return Decoded(values.reshape(len(counts), part.outputs), status, problem)


def _of_steps(column: pa.Array, part: LabelPart, features: Decoded) -> Decoded:
    """Lists with an item for each step, of which each is decoded as a row's label that may be missing.

    They are cut as the features were.
    """
    column, subject, wanted = typed(column), f"labelCol {part.column!r}", features.values.lengths
    held = lengths = row_widths(column, subject)
    whole = features.cut.lengths if features.cut else wanted
    if features.cut:
        column, _ = cut_lists(column, features.cut.most, features.cut.side)
        lengths = np.minimum(held, features.cut.most)
    steps = decode_labels(column.flatten(), replace(part, follows="", optional=True))
    row_of = np.repeat(np.arange(len(lengths)), np.maximum(lengths, 0))
    status = np.where(lengths < 0, VALID if part.optional else NULL, VALID).astype(np.uint8)
    status[(held >= 0) & (held != whole) & (features.status == VALID)] = WIDTH
    bad = np.flatnonzero(steps.status)[::-1]
    status[row_of[bad]] = steps.status[bad]  # that of the first, which comes last
    values = np.full((wanted.sum(), *steps.values.shape[1:]), np.nan)
    known = (status == VALID) & (lengths == wanted)
    values[np.repeat(known, wanted)] = steps.values[known[row_of]]

    def problem(row: int) -> str:
        if status[row] == WIDTH and held[row] != whole[row]:
            return (
                f"{subject} must hold one label for each step of the row, received {held[row]} for {whole[row]} steps"
            )
        wrong = bad[row_of[bad] == row]
        return steps.problem(int(wrong[-1])) if len(wrong) else f"{subject} holds {KINDS[status[row]]}"

    return Decoded(RaggedRows(values, wanted), status, problem)
