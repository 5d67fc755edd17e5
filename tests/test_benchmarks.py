"""Every benchmark takes the same options."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"
SCRIPTS = sorted(path.name for path in FOLDER.glob("*.py") if path.name != "reporting.py")


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_script_has_the_common_options(script: str) -> None:
    shown = subprocess.run([sys.executable, FOLDER / script, "--help"], capture_output=True, text=True, timeout=60)
    assert shown.returncode == 0, shown.stderr
    assert "--quick" in shown.stdout
    assert "--json FILE" in shown.stdout
