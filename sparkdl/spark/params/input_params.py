"""Params of what a stage reads: which columns, what their bytes and images are, what becomes of bad rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

from pyspark.ml.param import Param, Params, TypeConverters
from pyspark.ml.param.shared import HasFeaturesCol, HasHandleInvalid

from sparkdl.base_network import BaseNetwork
from sparkdl.decoding.layout import RESIZES, SIDES, STORAGES
from sparkdl.scoring.input_layouts import max_lengths
from sparkdl.spark.params.converters import one_of


def columns_of_inputs(value: Any) -> list[str] | dict[str, list[str]]:
    """A type converter: a list of column names, or a dict from input to one or to a list of them."""
    if not isinstance(value, Mapping):
        return TypeConverters.toListString(value)
    lists = {name: [columns] if isinstance(columns, str) else columns for name, columns in value.items()}
    if not all(isinstance(name, str) and columns for name, columns in lists.items()):
        raise TypeError(f"featuresCols must name at least one column for every input, received {value!r}.")
    return {name: TypeConverters.toListString(columns) for name, columns in lists.items()}


def lengths_of_inputs(value: Any) -> int | dict[str, int]:
    """A type converter: a whole number, or a dict of them by input."""
    if not isinstance(value, Mapping):
        return TypeConverters.toInt(value)
    if not all(isinstance(name, str) for name in value):
        raise TypeError(f"maxLength must be a whole number, or a dict of them by input, received {value!r}.")
    return {name: TypeConverters.toInt(most) for name, most in value.items()}


class HasInputs(HasFeaturesCol, HasHandleInvalid):
    """Features in one column or several, the forms of their bytes and images, and rows that cannot be used."""

    featuresCols: Param[Any] = Param(
        Params._dummy(),
        "featuresCols",
        "columns of numbers, arrays or Vectors whose values together, in this order, are a row of features; or, for a "
        "network with several inputs, such columns, or one of any type, by input: {'photo': 'image', 'facts': ['age', "
        "'income']}; instead of featuresCol.",
        columns_of_inputs,
    )
    binaryFormat: Param[str] = Param(
        Params._dummy(),
        "binaryFormat",
        "what a binary features column holds: raw (one uint8 a value), image (a JPEG or PNG file), or auto (as each "
        "row's length and first bytes say).",
        one_of("binaryFormat", "auto", "raw", "image"),  # type: ignore[arg-type]
    )
    imageResize: Param[str] = Param(
        Params._dummy(),
        "imageResize",
        "what becomes of images of another size than the network's input_shape: error, or the filter of Pillow that "
        f"resizes them, one of {', '.join(RESIZES)}.",
        one_of("imageResize", "error", *RESIZES),  # type: ignore[arg-type]
    )
    imageStorage: Param[str] = Param(
        Params._dummy(),
        "imageStorage",
        "what a fit keeps of a binary features column of JPEG and PNG files: pixels (each file is decoded once, before "
        "training) or files (decoded again for every batch, beside the training steps).",
        one_of("imageStorage", *STORAGES),  # type: ignore[arg-type]
    )
    maxLength: Param[Any] = Param(
        Params._dummy(),
        "maxLength",
        "the most steps that are read of a row of any length, longer ones being cut; of a network with several inputs "
        "for all such, or a dict by input: {'history': 200} (> 0).",
        lengths_of_inputs,
    )
    truncationSide: Param[str] = Param(
        Params._dummy(),
        "truncationSide",
        "where rows longer than maxLength lose steps: right (their end, so that the first are read) or left (their "
        "start).",
        one_of("truncationSide", *SIDES),  # type: ignore[arg-type]
    )
    handleInvalid: Param[str] = Param(
        Params._dummy(),
        "handleInvalid",
        "what becomes of rows with null, NaN, infinity, another width than the network takes, a category, string or "
        "number of steps that it does not know, or an image that cannot be decoded: error, skip (left out, and counted "
        "in the summary of a fit) or keep (in transform only: null in every output column).",
        one_of("handleInvalid", "error", "skip", "keep"),  # type: ignore[arg-type]
    )

    def __init__(self, *args: str) -> None:
        super().__init__(*args)
        self._setDefault(
            binaryFormat="auto",
            imageResize="error",
            imageStorage="pixels",
            truncationSide="right",
            handleInvalid="error",
        )

    def getFeaturesCols(self) -> list[str] | dict[str, list[str]]:
        """Columns that together are the features, or those of each input; [] where featuresCol is read."""
        return self.getOrDefault(self.featuresCols) if self.isDefined(self.featuresCols) else []

    def getBinaryFormat(self) -> str:
        """What a binary features column holds."""
        return self.getOrDefault(self.binaryFormat)

    def getImageResize(self) -> str:
        """What becomes of images of another size."""
        return self.getOrDefault(self.imageResize)

    def getImageStorage(self) -> str:
        """What a fit keeps of image files."""
        return self.getOrDefault(self.imageStorage)

    def getMaxLength(self) -> int | dict[str, int] | None:
        """The most steps that are read of a row of any length, or those by input; None where all are."""
        return self.getOrDefault(self.maxLength) if self.isDefined(self.maxLength) else None

    def getTruncationSide(self) -> str:
        """Where rows longer than maxLength lose steps."""
        return self.getOrDefault(self.truncationSide)

    def _max_lengths(self, network: BaseNetwork) -> dict[str, int]:
        """The most steps that are read, by input of the network.

        Raises
        ------
        ValueError
            maxLength is below 1, or for an input whose rows are not of any length.
        """
        return max_lengths(self.getMaxLength(), network)

    def setFeaturesCols(self, value: Sequence[str] | Mapping[str, str | Sequence[str]]) -> Self:
        """Set the columns that together are the features, or those of each input; [] goes back to featuresCol."""
        return self._set(featuresCols=value)

    def setBinaryFormat(self, value: str) -> Self:
        """Set what a binary features column holds."""
        return self._set(binaryFormat=value)

    def setImageResize(self, value: str) -> Self:
        """Set what becomes of images of another size."""
        return self._set(imageResize=value)

    def setImageStorage(self, value: str) -> Self:
        """Set what a fit keeps of image files."""
        return self._set(imageStorage=value)

    def setMaxLength(self, value: int | Mapping[str, int] | None) -> Self:
        """Set the most steps that are read of a row of any length, or those by input; None and {} read all."""
        return self._set(maxLength=value)

    def setTruncationSide(self, value: str) -> Self:
        """Set where rows longer than maxLength lose steps."""
        return self._set(truncationSide=value)

    def setHandleInvalid(self, value: str) -> Self:
        """Set what becomes of rows that cannot be used."""
        return self._set(handleInvalid=value)
