"""What a layer reads and puts out while a network is written as ONNX: a tensor, and how it holds the rows."""

from __future__ import annotations

from dataclasses import dataclass

from sparkdl.layers.base import Shape


@dataclass(frozen=True)
class Value:
    """A tensor of rows.

    Attributes
    ----------
    name : str
        Of the tensor.
    shape : tuple of int
        Of a row as the layers have it, the channels last; None first is any length.
    lengths : str
        Name of the tensor of the rows' lengths, "" of rows of one length.
    channels_first : bool
        Whether the tensor holds the channels before the positions, as ONNX's convolutions ask for.
    image : tuple of int
        Of a vector that was (height, width, channels): that shape, if its numbers are in the order of channels first.
    cleared : bool
        Whether zeros stand beyond the end of a row.
    """

    name: str
    shape: Shape
    lengths: str = ""
    channels_first: bool = False
    image: Shape = ()
    cleared: bool = False

    @property
    def rank(self) -> int:
        """Axes of the tensor."""
        return len(self.shape) + 1

    @property
    def channel_axis(self) -> int:
        """Of the tensor, counted from its end."""
        return -len(self.shape) if self.channels_first else -1

    @property
    def spatial_axes(self) -> list[int]:
        """Of the tensor, those of positions."""
        return list(range(2, self.rank)) if self.channels_first else list(range(1, self.rank - 1))
