"""Compiles the kernels unoptimized: there are hundreds, and compiling them is most of the work of testing them."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import pytest


@pytest.fixture(scope="module", autouse=True)
def unoptimized() -> Iterator[None]:
    """For the tests of this folder only."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)
