"""Tells what installed packages bring from code of the user's own; `own` names packages that count as the latter."""

from __future__ import annotations

import sys
import types
from importlib.machinery import EXTENSION_SUFFIXES
from typing import Any

INSTALLED = {"sparkdl", "jax", "jaxlib", "numpy", "optax", "pyspark", "pyarrow", "pandas"}  # wherever they lie


def is_installed(name: str, own: set[str]) -> bool:
    """Whether a module of this name belongs to Python or to an installed package."""
    top = name.partition(".")[0]
    if top in own or top == "__main__":
        return False
    if top in INSTALLED or top in sys.stdlib_module_names:
        return True
    file = getattr(sys.modules.get(name), "__file__", None) or ""
    return "site-packages" in file or "dist-packages" in file


def is_installed_module(module: types.ModuleType, own: set[str]) -> bool:
    """Likewise of a module, which may be one that was sent here and has the name of another."""
    return sys.modules.get(module.__name__) is module and is_installed(module.__name__, own)


def is_imported(value: Any, own: set[str]) -> bool:
    """Whether a value is found by its own name in an installed module."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or not is_installed(module, own):
        return False
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found is value


def is_compiled(value: Any, own: set[str]) -> bool:
    """Whether a class or function is of a module of C of the user's own."""
    name = getattr(value, "__module__", None)
    if not isinstance(name, str) or is_installed(name, own):
        return False
    return str(getattr(sys.modules.get(name), "__file__", "")).endswith(tuple(EXTENSION_SUFFIXES))


def with_version(module: str) -> tuple[str, str]:
    """A module's name, and the version of its package if that tells one."""
    version = getattr(sys.modules.get(module.partition(".")[0]), "__version__", "")
    return module, version if isinstance(version, str) else ""
