"""Has the fixtures of `tests/spark/spark_fixtures.py`: mutated stages load in the session that all tests share."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "spark"))

import spark_fixtures  # noqa: E402


def pytest_configure(config: pytest.Config) -> None:
    """Register them once, whichever folder comes first, so that there is one session."""
    if not config.pluginmanager.is_registered(spark_fixtures):
        config.pluginmanager.register(spark_fixtures)
