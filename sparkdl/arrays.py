"""What NumPy's arrays are called in signatures (JAX's are `jax.Array`), and the float types that networks have."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
DTYPES = ("float32", "bfloat16", "float64")  # that layers compute in


def kept_dtype(dtype: str) -> str:
    """The dtype of weights, sums and rows where layers compute in `dtype`: bfloat16 is for layers alone."""
    return "float64" if dtype == "float64" else "float32"
