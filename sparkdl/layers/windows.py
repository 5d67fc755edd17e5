"""The geometry that convolution and pooling share: which positions of a row each window covers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

from sparkdl.layers.base import Layer, Shape
from sparkdl.specs import is_integer

Padding = str | tuple[tuple[int, int], ...]


def check_windows(layer: Layer, padding: Padding, causal: bool = False, **counts: int | Shape | None) -> None:
    """Validate the fields of a layer that has windows.

    Parameters
    ----------
    layer : Layer
        The layer, for its name in messages.
    padding : str or tuple of (int, int)
        "full", "same", "valid", or (low, high) for every spatial axis.
    causal : bool, default False
        Whether it may be "causal", too.
    **counts : int, tuple of int, or None
        The fields that hold a positive integer for every spatial axis, or one for all axes; None only by default.

    Raises
    ------
    ValueError
        A field is not of that form, or two fields are made for different numbers of axes.
    """
    owner = type(layer).__name__
    for name, value in counts.items():
        entries = value if isinstance(value, tuple) else (value,)
        whole = all(is_integer(entry, 1) for entry in entries)
        left_out = value is None and getattr(type(layer), name, 0) is None  # its default
        if not left_out and not (whole and 1 <= len(entries) <= 3):
            raise ValueError(
                f"{name} of {owner} must be a positive integer or a tuple of one to three, received {value!r}."
            )
    named = padding in ("full", "same", "valid") or (causal and padding == "causal")
    if not named and not (padding and isinstance(padding, tuple) and all(map(_is_pair, padding))):
        over_time = ", or 'causal' along a single one" if causal else ""
        raise ValueError(
            f"padding of {owner} must be 'full', 'same', 'valid' or a (low, high) pair for every spatial axis"
            f"{over_time}, received {padding!r}."
        )
    tuples = {name: value for name, value in {**counts, "padding": padding}.items() if isinstance(value, tuple)}
    if len(set(map(len, tuples.values()))) > 1:
        given = ", ".join(f"{name}={value}" for name, value in tuples.items())
        raise ValueError(f"{owner} needs as many entries in one tuple as in another, received {given}.")
    if padding == "causal" and any(len(value) > 1 for value in tuples.values()):
        given = ", ".join(f"{name}={value}" for name, value in tuples.items())
        raise ValueError(
            f"padding of {owner} may be 'causal' along a single axis, the time, received {given}; give it an integer "
            "there, or pairs as padding."
        )


def _is_pair(value: object) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and all(is_integer(n, 0) for n in value)


def per_axis(value: int | Shape, rank: int) -> Shape:
    """One entry for each of `rank` axes."""
    return value if isinstance(value, tuple) else (value,) * rank


@dataclass(frozen=True)
class Windows:
    """Windows over the spatial axes of rows; every attribute has one entry per axis.

    Output o of an axis reads the inputs o * stride + k * dilation - low for k = 0 .. size - 1.

    Attributes
    ----------
    inputs, outputs : tuple of int
        Positions of a row, and windows (less than 1 if not one fits).
    size, strides, dilation, extent : tuple of int
        Positions in a window, between two windows, between two positions of a window, and spanned by a window.
    padding : tuple of (int, int)
        Positions added before (low) and after (high) a row.
    """

    inputs: Shape
    outputs: Shape
    size: Shape
    strides: Shape
    dilation: Shape
    extent: Shape
    padding: tuple[tuple[int, int], ...]

    @classmethod
    def over(
        cls, inputs: Shape, size: int | Shape, strides: int | Shape, padding: Padding, dilation: int | Shape = 1
    ) -> Self:
        """The windows over `inputs`.

        "same" splits its padding as TensorFlow does, the odd position at the end; "causal" pads before the row so that
        the last position that window o reads is the input o * stride.
        """
        size, strides, dilation = (per_axis(value, len(inputs)) for value in (size, strides, dilation))
        extent = tuple((k - 1) * d + 1 for k, d in zip(size, dilation, strict=True))
        if padding == "valid":
            pairs = tuple((0, 0) for _ in inputs)
        elif padding == "full":
            pairs = tuple((e - 1, e - 1) for e in extent)
        elif padding == "causal":
            pairs = tuple((e - 1, 0) for e in extent)
        elif padding == "same":
            lacking = (max((-(-n // s) - 1) * s + e - n, 0) for n, s, e in zip(inputs, strides, extent, strict=True))
            pairs = tuple((total // 2, total - total // 2) for total in lacking)
        else:
            assert isinstance(padding, tuple)
            pairs = padding
        outputs = tuple(
            (n + low + high - e) // s + 1 for n, (low, high), e, s in zip(inputs, pairs, extent, strides, strict=True)
        )
        return cls(inputs, outputs, size, strides, dilation, extent, pairs)

    def checked(self, layer: Layer) -> Self:
        """These windows, or ValueError if not one of them fits into a row."""
        if min(self.outputs) < 1:
            raise ValueError(
                f"size of {type(layer).__name__} spans {self.extent} positions, more than the {self.inputs} of a row "
                f"with padding {self.padding}; make it smaller or pad the rows."
            )
        return self

    def axes(self) -> Iterator[tuple[int, int, int, int, tuple[int, int]]]:
        """(inputs, outputs, stride, extent, (low, high)) of every axis."""
        return zip(self.inputs, self.outputs, self.strides, self.extent, self.padding, strict=True)
