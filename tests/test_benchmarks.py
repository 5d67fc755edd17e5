"""Every benchmark takes the same options."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"
SCRIPTS = sorted(path.name for path in FOLDER.glob("*.py") if path.name != "reporting.py")


HELP = """
import runpy, sys

folder, *scripts = sys.argv[1:]
for script in scripts:
    print("=====", script)
    sys.path.insert(0, folder)
    sys.argv = [script, "--help"]
    try:
        runpy.run_path(f"{folder}/{script}", run_name="__main__")
    except SystemExit as ended:
        print("ended with", ended.code)
"""


@pytest.fixture(scope="module")
def told() -> dict[str, str]:
    """What every script says of itself, in one process, as their imports take longer than all else."""
    command = [sys.executable, "-c", HELP, str(FOLDER), *SCRIPTS]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert shown.returncode == 0, shown.stderr
    names, texts = zip(*(part.split("\n", 1) for part in shown.stdout.split("===== ")[1:]), strict=True)
    return dict(zip(names, texts, strict=True))


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_script_has_the_common_options(told: dict[str, str], script: str) -> None:
    assert f"usage: {script}" in told[script]
    assert "--quick" in told[script]
    assert "--json FILE" in told[script]
    assert told[script].endswith("ended with 0\n")
