"""benchmarks/generation.py compares networks that draw the same, and writes the figures that it promises."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "generation.py"


def test_it_writes_the_figures_it_promises(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    command = [sys.executable, SCRIPT, "--quick", "--json", figures]
    environment = os.environ | {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}  # programs run a few times
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found = json.loads(figures.read_text())["figures"]
    cases = ("rows_1_steps_32", "rows_1_steps_96")
    ends = ("kept_ms", "anew_ms", "anew_over_kept", "same")
    assert found.keys() == {f"{case}_{end}" for case in cases for end in ends}
    for case in cases:
        assert found[f"{case}_anew_over_kept"] == pytest.approx(found[f"{case}_anew_ms"] / found[f"{case}_kept_ms"])
        assert found[f"{case}_same"] > 0.9
