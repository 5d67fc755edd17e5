"""Packs the classes of layers, losses and other specs that a user's program defines, to take them to the workers."""

from __future__ import annotations

import copyreg
import io
import json
import sys
import sysconfig
import threading
from collections import ChainMap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
from pyspark import cloudpickle

from sparkdl.classes import own_classes
from sparkdl.specs import Spec

# All workers have these, wherever they lie.
EVERYWHERE = {"sparkdl", "pyspark", "py4j", "jax", "jaxlib", "optax", "numpy", "pyarrow", "pandas"}
_registering = threading.Lock()


def packed_classes(*specs: Spec) -> bytes:
    """The classes of these specs, and of all specs within them, that are not sparkdl's; b"" where there are none.

    They go by value, with the functions and constants that they use: those of a notebook, a script, or a module beside
    it. What is installed goes by name, and is imported on the workers.

    Returns
    -------
    bytes
        For `classes.py`: the names as a line of JSON, then a pickle.

    Raises
    ------
    ValueError
        A class holds what cannot be sent; the message names the class and the reason.
    """
    classes = {name: found for name, found in own_classes(specs)}
    if not classes:
        return b""
    with _by_value(_own_modules()):
        try:
            data = _pickled(list(classes.values()))
        except Exception as error:
            name = next((name for name, found in classes.items() if not _can_be_sent(found)), ", ".join(classes))
            raise ValueError(
                f"The class {name} cannot be sent to the workers: {error}; "
                "keep that out of the class and of what it uses, or install its module on every machine."
            ) from error
    return json.dumps(list(classes)).encode() + b"\n" + data


def _pickled(value: Any) -> bytes:
    stream = io.BytesIO()
    _Pickler(stream).dump(value)
    return stream.getvalue()


def _without_arguments(function: Any) -> tuple[Any, ...]:
    """What pickle is to make a `jax.custom_vjp` from: its class by itself cannot be called without a function."""
    return copyreg._reconstructor, (type(function), object, None), vars(function)  # type: ignore[attr-defined]


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    dispatch_table = ChainMap({jax.custom_vjp: _without_arguments}, cloudpickle.Pickler.dispatch_table)


def _can_be_sent(found: type[Spec]) -> bool:
    try:
        _pickled(found)
    except Exception:
        return False
    return True


def _own_modules() -> list[ModuleType]:
    """Imported modules that lie in the user's own folders, which workers may not have."""
    standard = tuple(f"{Path(sysconfig.get_path(name))}/" for name in ("stdlib", "platstdlib"))
    found = []
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if (
            isinstance(file, str)
            and file.endswith(".py")
            and not file.startswith(standard)
            and not {"site-packages", "dist-packages"} & set(Path(file).parts)
            and name.partition(".")[0] not in EVERYWHERE
            and module.__name__ == name != "__main__"
        ):
            found.append(module)
    return found


@contextmanager
def _by_value(modules: list[ModuleType]) -> Iterator[None]:
    """A context in which cloudpickle takes along what it finds in these modules, rather than import it again."""
    with _registering:  # cloudpickle has one list for all threads
        known = cloudpickle.cloudpickle.list_registry_pickle_by_value()
        added = [module for module in modules if module.__name__ not in known]
        for module in added:
            cloudpickle.register_pickle_by_value(module)
        try:
            yield
        finally:
            for module in added:
                cloudpickle.unregister_pickle_by_value(module)
