"""The table of ready networks in the documentation says what is so; its times are what its benchmark prints."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sparkdl import models

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from contestants.ready_cases import READY, facts

ROOT = Path(__file__).parents[1]
LINES = [line for line in (ROOT / "docs" / "ready-networks.md").read_text().splitlines() if line.startswith("| `")]
OF_COLUMNS = {"embedded", "normalization", "tabular", "vocabulary"}
OF_SIZES = {"resnet", "vit"}  # of which others of the table are some


def test_it_has_every_ready_network() -> None:
    told = [ready.call.partition("(")[0] for ready in READY]
    assert sorted(told) == sorted(
        name
        for name in vars(models)
        if name in told or callable(getattr(models, name)) and name not in OF_COLUMNS | OF_SIZES
    )
    assert len(LINES) == len(READY)


@pytest.mark.parametrize("at", range(len(READY)), ids=[ready.call for ready in READY])
def test_its_facts_are_so(at: int) -> None:
    cells = [cell.strip() for cell in LINES[at].strip("|").split("|")]
    assert cells[:5] == facts(READY[at])
    assert READY[at].published in (None, int(cells[1].replace(",", "")))
