"""Equal programs are compiled once: many tests train the same network twice, to compare."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import jax
import pytest


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where compiled programs are kept for the length of the suite."""
    return tmp_path_factory.mktemp("compiled")


@pytest.fixture(scope="module", autouse=True)
def _compiled_once(compiled: Path) -> Iterator[None]:
    """Keep them; other folders' tests, which may come after these, compile as they do alone."""
    options = {"jax_compilation_cache_dir": str(compiled), "jax_persistent_cache_min_compile_time_secs": 0.0}
    before = {name: getattr(jax.config, name) for name in options}
    for name, value in options.items():
        jax.config.update(name, value)
    yield
    for name, value in before.items():
        jax.config.update(name, value)
