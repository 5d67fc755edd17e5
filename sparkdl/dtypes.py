"""The float types that a network computes in, and those that it is kept in."""

DTYPES = ("float32", "bfloat16", "float64")


def kept_dtype(dtype: str) -> str:
    """The dtype of weights, sums and rows where layers compute in `dtype`: bfloat16 is for layers alone."""
    return "float64" if dtype == "float64" else "float32"
