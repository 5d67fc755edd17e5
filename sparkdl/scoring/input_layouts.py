"""Decides, from plain values, what the columns that a model reads are to become."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sparkdl.arrays import INTEGERS, kept_dtype
from sparkdl.decoding.layout import Layout
from sparkdl.layers.ragged import is_ragged
from sparkdl.network import BaseNetwork

FEATURES_COL = "features"  # by default


@dataclass(frozen=True)
class Reading:
    """What a stage's Params say of the columns that it reads.

    Attributes
    ----------
    features_col : str
    features_cols : list of str, or dict of lists of str
        [] where featuresCol is read.
    binary, resize : str
        binaryFormat and imageResize.
    max_length : int, dict of int or None
        By input, or for all of them.
    truncation_side, dtype : str
        truncationSide and computeDtype.
    """

    features_col: str
    features_cols: Sequence[str] | Mapping[str, Sequence[str]]
    binary: str
    resize: str
    max_length: int | Mapping[str, int] | None
    truncation_side: str
    dtype: str

    def layouts(self, network: BaseNetwork) -> dict[str, Layout]:
        """What the columns are to become, by input of the network.

        Raises
        ------
        ValueError
            featuresCol and featuresCols are both set, the inputs are not those of the columns, or maxLength fits none.

        Notes
        -----
        OneVsRest sets featuresCol always, to its default unless it is told another.
        """
        if self.features_cols and self.features_col != FEATURES_COL:
            raise ValueError(
                f"featuresCol is {self.features_col!r} but featuresCols is set, too; clear one of the two."
            )
        by_input = isinstance(self.features_cols, Mapping)
        shapes, floats = network.input_shapes, kept_dtype(self.dtype)
        chosen = self._columns(list(shapes))
        if chosen.keys() != shapes.keys():
            raise ValueError(
                f"featuresCols must name columns for the network's inputs {', '.join(map(repr, shapes))}, received "
                f"some for {', '.join(map(repr, chosen))}; write {{'{next(iter(shapes))}': column, ...}}."
            )
        lengths = max_lengths(self.max_length, network)
        return {
            part: Layout(
                names=tuple(chosen[part]),
                shape=shape,
                dtype=INTEGERS if part in network.integers else floats,
                param="featuresCols" if self.features_cols else "featuresCol",
                binary=self.binary,
                resize=self.resize,
                part=part if by_input else "",
                limit=network.limits.get(part),
                table=network.tables.get(part, ""),
                strings=network.strings.get(part),
                max_length=lengths.get(part),
                truncation_side=self.truncation_side,
                most_steps=network.most_steps.get(part),
            )
            for part, shape in shapes.items()
        }

    def _columns(self, inputs: list[str]) -> Mapping[str, Sequence[str]]:
        """By input; those of the only one need not be given by its name."""
        if isinstance(self.features_cols, Mapping):
            return self.features_cols
        if len(inputs) > 1:
            raise ValueError(
                f"The network reads {', '.join(map(repr, inputs))}, so featuresCols must be a dict that names the "
                f"columns of each, received {self.features_cols or self.features_col!r}; write "
                f"featuresCols={{'{inputs[0]}': column, ...}}."
            )
        return {inputs[0]: list(self.features_cols) or [self.features_col]}


def max_lengths(given: int | Mapping[str, int] | None, network: BaseNetwork) -> dict[str, int]:
    """The most steps that are read, by input of the network, as maxLength says.

    Raises
    ------
    ValueError
        It is below 1, or for an input whose rows are not of any length.
    """
    if given is None or given == {}:
        return {}
    able = [name for name, shape in network.input_shapes.items() if is_ragged(shape)]
    if not able:
        raise ValueError(
            f"maxLength is {given}, but the network reads no rows of any length, as of an input_shape that begins "
            "with None; clear it, or give the network such an input."
        )
    lengths = dict(given) if isinstance(given, Mapping) else dict.fromkeys(able, given)
    for name, most in lengths.items():
        if name not in able:
            raise ValueError(
                f"maxLength names {name!r}, but the network's inputs of rows of any length are "
                f"{', '.join(map(repr, able))}; name these only."
            )
        if most < 1:
            raise ValueError(f"maxLength must be at least 1, received {most}.")
    return lengths
