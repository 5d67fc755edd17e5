"""The documentation builds without a warning, and every public name is on a page of it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

if "CI" not in os.environ:
    pytest.importorskip("griffe", reason="griffe is not installed; make docs installs it")

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs"))

from aligned import as_blocks  # noqa: E402
from generated import PUBLIC, at_home, page_of, public_names  # noqa: E402


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if find_spec("mkdocs") is None and "CI" not in os.environ:
        pytest.skip("mkdocs is not installed; make docs installs it")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def test_every_public_name_is_on_its_page(site: Path) -> None:
    for module, names in public_names().items():
        page = (site / page_of(module)).with_suffix(".html").read_text(encoding="utf-8")
        assert [name for name in names if f'id="{module}.{name}"' not in page] == []


def test_every_page_is_in_the_navigation(site: Path) -> None:
    index = (site / "index.html").read_text(encoding="utf-8")
    linked = {link.partition("#")[0] for link in re.findall(r'href="([^"]+)"', index)}
    pages = {str(path.relative_to(site)) for path in site.rglob("*.html")}
    assert pages - linked == {"404.html", "reference/SUMMARY.html"}  # which is the navigation itself


def test_shapes_stand_in_columns(site: Path) -> None:
    page = (site / "reference/layers/dense.html").read_text(encoding="utf-8")
    text = re.sub(r"<[^>]+>", "", page)
    assert "y        (batch, units)         dy  (batch, units)" in text


def test_public_names_are_those_that_packages_offer() -> None:
    names = {name for own in public_names().values() for name in own}
    assert {"DeepClassifier", "Dense", "Residual", "fit", "AllReduce", "Adam", "TrainingSummary", "Timeline"} <= names
    assert not any(name.startswith("_") for name in names) and "exports" not in names
    assert len(PUBLIC) == len(set(PUBLIC))


def test_aligned_lines_become_blocks() -> None:
    text = "One line.\n\nx  (batch, n)   dx\ny  (batch, m)\n   more of y\nA sentence.\n    x  stays"
    expected = "One line.\n\n\n    x  (batch, n)   dx\n    y  (batch, m)\n       more of y\n\nA sentence.\n    x  stays"
    assert as_blocks(text) == expected


def test_links_of_files_of_the_repository_lead_to_pages() -> None:
    text = "[a](docs/cluster.md) [b](CHANGELOG.md) [c](sparkdl/quickstart.py) [d](https://x.y/docs/z)"
    assert at_home(text) == "[a](cluster.md) [b](changelog.md) c (`sparkdl/quickstart.py`) [d](https://x.y/docs/z)"
