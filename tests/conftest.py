"""The suite is strict: warnings are errors, JAX neither promotes dtypes or ranks nor sees a single device only."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import pytest

jax.config.update("jax_num_cpu_devices", 3)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture
def float64() -> Iterator[None]:
    """Compute in float64 for the length of a test."""
    with jax.enable_x64(True):
        yield
