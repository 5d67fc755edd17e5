"""Every benchmark takes the same options and writes the figures it promises."""

from __future__ import annotations

import json
import os
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


def test_the_step_without_spark_runs_on_a_cpu(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    command = [sys.executable, FOLDER / "gpu.py", "--quick", "--batch", "2", "--json", figures]
    subprocess.run(command, env=os.environ | {"JAX_PLATFORMS": "cpu"}, check=True, capture_output=True, timeout=120)
    written = json.loads(figures.read_text())
    assert written["machine"]["cores"] >= 1
    ours, autodiff, ratio = (written["figures"][name] for name in ("step_ms", "autodiff_ms", "step_over_autodiff"))
    assert ours > 0
    assert ratio == pytest.approx(ours / autodiff)
