"""What NumPy's arrays are called in signatures; JAX's are `jax.Array`."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
