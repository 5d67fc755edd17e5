"""benchmarks/large_weights.py watches every kind of process, and prints what it says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "large_weights.py"


@pytest.mark.slow
def test_it_prints_its_figures(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), "--quick", "--json", str(tmp_path / "figures.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    figures = json.loads((tmp_path / "figures.json").read_text())["figures"]
    assert len(figures) == 24 and min(figures.values()) >= 0
    assert figures["training_fit"] > 0
    assert "8 MB of weights" in done.stdout
