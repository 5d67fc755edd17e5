"""Has the fixtures of `spark_fixtures.py`, which the tests of faults share."""

from __future__ import annotations

import pytest
import spark_fixtures


def pytest_configure(config: pytest.Config) -> None:
    """Register them once, whichever folder comes first, so that there is one session."""
    if not config.pluginmanager.is_registered(spark_fixtures):
        config.pluginmanager.register(spark_fixtures)
