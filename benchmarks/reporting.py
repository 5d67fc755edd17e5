"""What benchmarks share: their options, whether PyTorch is there, the machine, and their figures as JSON."""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol, TypeVar

PACKAGES = ("sparkdl-jax", "jax", "jaxlib", "numpy", "optax", "pyspark", "tensorflow-cpu", "torch")


class HasName(Protocol):
    """What is chosen by its name."""

    @property
    def name(self) -> str:
        """As --only and the figures have it."""


Case = TypeVar("Case", bound=HasName)


def arguments(description: str | None) -> argparse.ArgumentParser:
    """A parser with the options that every benchmark takes."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="a minute or a few on two cores, with rougher figures")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    return parser


def chosen(description: str | None, cases: Sequence[Case]) -> tuple[argparse.Namespace, list[Case]]:
    """The options of a benchmark of cases on some cores, and the cases that --only leaves."""
    parser = arguments(description)
    parser.add_argument("--only", default="", metavar="TEXT", help="only the cases with this in their name")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="cores to run on (default: %(default)s)")
    options = parser.parse_args()
    left = [case for case in cases if options.only in case.name]
    if not left:
        names = ", ".join(case.name for case in cases)
        parser.error(f"--only must be part of a case's name, received {options.only!r}; the cases are {names}.")
    if not 1 <= options.threads <= cores():
        parser.error(f"--threads must be from 1 to the {cores()} cores at hand, received {options.threads}; change it.")
    return options, left


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def has_torch() -> bool:
    """Whether PyTorch is installed; if not, prints what brings it."""
    found = find_spec("torch") is not None
    if not found:
        print("PyTorch is not installed and left out; pip install 'sparkdl-jax[benchmarks]' brings it.")
    return found


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    return {
        "system": platform.platform(),
        "processor": _processor(),
        "cores": cores(),
        "python": platform.python_version(),
        "packages": {name: found for name in PACKAGES if (found := _version(name))},
    }


def write(path: Path | None, figures: dict[str, float]) -> None:
    """Write {"figures": {name: number}, "machine": {...}} if a path is given."""
    if path is not None:
        path.write_text(json.dumps({"figures": figures, "machine": machine()}, indent=2) + "\n")


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")
