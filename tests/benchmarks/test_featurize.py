"""benchmarks/featurize.py writes the figures that it promises, once both ways have come to the same numbers."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "benchmarks" / "featurize.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=600)


def test_its_figures_are_those_it_promises(tmp_path: Path) -> None:
    done = run("--quick", "--only", "minilm", "--json", str(tmp_path / "figures.json"))
    assert done.returncode == 0, done.stderr
    figures = json.loads((tmp_path / "figures.json").read_text())["figures"]
    expected = {"featurize_minilm_rows_per_s"}
    if find_spec("torch") and find_spec("transformers"):
        expected |= {"featurize_minilm_torch_udf_rows_per_s", "featurize_minilm_over_torch_udf"}
        expected |= {f"featurize_minilm_bfloat16_over_torch_udf{other}" for other in ("", "_bfloat16")}
    assert figures.keys() == expected and min(figures.values()) > 0


@pytest.mark.parametrize("name", ["bert", ""])
def test_a_case_that_is_not_there_is_told(name: str) -> None:
    done = run("--only", name)
    assert done.returncode == 2 and f"--only must be of resnet50, minilm, received '{name}'" in done.stderr
