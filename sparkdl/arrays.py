"""What NumPy's arrays and the named parts of rows are called in signatures, and the types that networks compute in."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Parts = dict[str, Any]  # arrays by the name of a part of the features or labels, each with its own shape and dtype
FEATURES, LABEL = "features", "label"  # the one part of a network's rows that has one input, and of one label
INTEGERS = "int32"  # of the parts that a network reads as integers
STEPS = 64  # that rows of any length are taken to have where memory and work are planned
DTYPES = ("float32", "bfloat16", "float64")  # that layers compute in


def size_of(shape: Sequence[Any]) -> int:
    """Numbers in a row of that shape; of one of any length about how many."""
    return math.prod(STEPS if size is None else size for size in shape)


def kept_dtype(dtype: str) -> str:
    """The dtype of weights, sums and rows where layers compute in `dtype`: bfloat16 is for layers alone."""
    return "float64" if dtype == "float64" else "float32"
