"""What README and guides promise: their code runs as written, lists are complete, links and paths lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession

from sparkdl import constraints, initializers, layers, losses, network, optimizers, schedules
from sparkdl.constraints import Constraint
from sparkdl.initializers import Initializer
from sparkdl.layers import Layer
from sparkdl.losses import Loss
from sparkdl.optimizers import Optimizer
from sparkdl.schedules import Schedule
from sparkdl.specs import Spec

ROOT = Path(__file__).parents[2]
# In the order in which their code runs, each going on with what those before have left.
PAGES = [
    "README.md",
    *(
        f"docs/guides/{name}.md"
        for name in (
            "getting-started",
            "columns",
            "tuning",
            "long-runs",
            "evaluation",
            "inference",
            "own-layers",
            "without-spark",
            "other-formats",
            "building-blocks",
            "tables",
            "sequences",
            "text",
            "series",
            "detection",
            "segmentation",
            "weights",
            "from-mllib",
        )
    ),
]
# Else they lie where the JVM was started.
WRITTEN = (
    "fashion-model",
    "checkpoints",
    "timeline.html",
    "houses.parquet",
    "tokenizer.json",
    "model.safetensors",
    "tuned.safetensors",
    "resnet18.safetensors",
    "model.onnx",
)


def blocks(page: str) -> list[str]:
    """The page's Python code."""
    return re.findall(r"^```python\n(.*?)^```$", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def test_every_block_runs_as_written(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    features = np.random.default_rng(0).normal(size=(40, 4))
    rows = spark.createDataFrame([(row.tolist(), int(row.sum() > 0)) for row in features], ["features", "label"])
    namespace: dict[str, Any] = {"spark": spark, "train": rows, "test": rows}
    printed = []
    for page in PAGES:
        for number, block in enumerate(blocks(page)):
            for name in WRITTEN:
                block = block.replace(f'"{name}"', f'"{tmp_path / name}"')
            exec(compile(block, f"{page}, block {number}", "exec"), namespace)
        printed.append(capsys.readouterr().out.splitlines())
    first, example, frame, tuned, long_run, evaluated, queried, own, alone, imported, *last = printed
    drawn, tabled, stepped, read, forecast, detected, segmented, loaded, perceptrons = last
    assert "probability" in first[1]
    assert float(example[-1]) > 0.7
    assert float(frame[0]) < 1
    assert frame[1] == "(2, 8)"
    assert tuned[-1].count(",") == 3  # the metrics of 4 settings
    assert "2 workers took" in "".join(long_run)
    assert (tmp_path / "timeline.html").exists()
    assert any("r2" in line for line in evaluated)
    assert [line for line in evaluated if "|" in line][-1].count("|") == 3  # of a row of two columns
    assert queried[-1] == "260"
    assert [line for line in own if "|" in line][-1].count("|") == 3
    assert own[-1].count(",") == 1  # the objective of 2 epochs
    assert float(alone[0]) > 0.9 and "to be" in alone[1]
    assert namespace["scores"].shape == (256, 2)
    assert float(next(line for line in drawn if "total" in line).split()[-1]) > 0.9 and "facts" in drawn[2]
    assert any("prediction_rent" in line for line in drawn) and drawn[-7].count("validation_loss") == 2
    assert min(map(float, drawn[-6].strip("[]").split(","))) > 0.9  # by logits, and by centers
    usual, odd = map(float, drawn[-5].strip("[]").split(","))  # losses of rows
    assert odd > usual + 5
    assert min(map(float, drawn[-4].strip("[]").split(","))) > 0.9  # of usual rows, and of others
    assert all(float(accuracy) > 0.9 for accuracy in drawn[-3:])
    assert float(tabled[0]) > 0.95 and float(tabled[-1]) > 0.9
    assert any("prediction_wide_shop" in line for line in tabled)
    accuracies = [float(line) for line in stepped if re.fullmatch(r"[01]\.\d+", line)]
    assert len(accuracies) == 5 and min(accuracies) > 0.85
    assert float(stepped[2].split()[0]) > 0.5 and stepped[2].endswith(" 3")  # fill and programs
    assert "to be" in stepped[-4] and " the " in stepped[-3] and stepped[-1] == "125 (6,)"
    assert any(line.startswith("1.0") for line in read) and "you won free cash" in read
    assert "[UNK]" in "".join(read)
    errors = next(line.split() for line in forecast if re.fullmatch(r"[\d.]+ [\d.]+", line))
    assert float(errors[0]) < float(errors[1]) / 2  # of the network, and of the last step
    assert [line for line in forecast if "|" in line][-1].count("2024-01-1") == 1
    precision = re.search(r"map_50 ([\d.]+)", detected[0])
    assert precision and float(precision[1]) > 0.8
    assert detected[-2:] == ["True", "(2, 2, 14) (2, 3, 21)"]
    assert float(segmented[0].split()[-1]) > 0.8 and segmented[1] == "(64, 32, 32) True"
    # Three epochs; the first layers of a network with weights, and the shape of a kernel; numbers of a text's vector.
    assert loaded[0].count(",") == 2 and loaded[1:] == ["('rescaled', 'normalized', 'conv1') (512, 5)", "32"]
    assert imported[-1].count(",") == 1  # of two epochs
    assert len(perceptrons) == 2 and all(float(accuracy) > 0.9 for accuracy in perceptrons)


def test_every_page_with_code_is_run() -> None:
    pages = {str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")}
    elsewhere = {"docs/index.md", "docs/guides/serving.md"}  # whose code is the README's; which needs no Spark
    assert {page for page in pages if blocks(page)} - set(PAGES) == elsewhere
    assert blocks("docs/index.md") == blocks("README.md")


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


@pytest.mark.parametrize(
    ("module", "family"),
    [
        (layers, Layer),
        (losses, Loss),
        (optimizers, Optimizer),
        (schedules, Schedule),
        (initializers, Initializer),
        (constraints, Constraint),
    ],
)
def test_its_lists_hold_all_there_is(module: ModuleType, family: type[Spec]) -> None:
    """Bases need not be listed; they are what others derive from or what lives in layers.base."""
    present = {name: kind for name, kind in vars(module).items() if isinstance(kind, type) and issubclass(kind, family)}
    bases = {parent for kind in present.values() for parent in kind.__mro__[1:]}
    wanted = {name for name, kind in present.items() if kind not in bases and kind.__module__ != "sparkdl.layers.base"}
    table = (ROOT / "docs/guides/building-blocks.md").read_text(encoding="utf-8").split("\n\n")[1]
    listed = set(re.findall(r"`(\w+)`", table))
    assert wanted
    assert wanted - listed == set()


def test_its_lists_hold_nothing_else() -> None:
    table = (ROOT / "docs/guides/building-blocks.md").read_text(encoding="utf-8").split("\n\n")[1]
    modules = (network, layers, losses, optimizers, schedules, initializers, constraints)
    listed = re.findall(r"`(\w+)`", table)
    assert [name for name in listed if not any(hasattr(module, name) for module in modules)] == []
    assert len(listed) == len(set(listed))


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_and_paths_lead_to_files(name: str) -> None:
    """Those of the pages in docs/ are checked by the build of the site."""
    text = (ROOT / name).read_text(encoding="utf-8")
    links = re.findall(r"\]\((?!https?:)([^)#]+)", text)
    links += re.findall(r"`((?:sparkdl|tests|benchmarks|notebooks)/[\w/.]+)`", text)
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_paths_named_by_pages_lead_to_files() -> None:
    pages = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs").rglob("*.md"))
    named = re.findall(r"`((?:sparkdl|tests|benchmarks|notebooks)/[\w/.]+)`", pages)
    assert named and [path for path in named if not (ROOT / path).exists()] == []
