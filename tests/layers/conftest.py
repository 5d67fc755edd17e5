"""Compiles the kernels unoptimized: there are hundreds, and compiling them is most of the work of testing them."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module", autouse=True)
def _unoptimized(unoptimized: None) -> None:
    """All of this folder."""
