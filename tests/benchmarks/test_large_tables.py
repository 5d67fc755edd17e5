"""benchmarks/embedding.py measures steps that come to the same, and prints what it says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "embedding.py"


@pytest.mark.slow
def test_it_prints_its_figures(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), "--quick", "--rows", "20000", "--json", str(tmp_path / "figures.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    figures = json.loads((tmp_path / "figures.json").read_text())["figures"]
    assert {"sparse_over_dense_step", "adagrad_sparse_over_dense_step", "lazy_adam_over_dense_step"} <= figures.keys()
    assert 0 < figures["sparse_over_dense_bytes"] < 0.2  # 4,096 rows of 20,000, gathered in place of summed
