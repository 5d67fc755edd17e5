"""Lets a worker know the classes that a user's program defines, since a spec's JSON only names them."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Iterator
from dataclasses import fields
from functools import lru_cache
from typing import Any

from sparkdl import specs
from sparkdl.specs import Named, Spec

CLASSES = "classes.pickle"  # file of a worker's directory
PREALLOCATE = "XLA_PYTHON_CLIENT_PREALLOCATE"


def own_classes(value: Any) -> Iterator[tuple[str, type[Spec]]]:
    """Type names and classes of a spec and of all specs within it, but for sparkdl's."""
    if isinstance(value, (tuple, Named)):
        for item in value.values() if isinstance(value, Named) else value:
            yield from own_classes(item)
    if isinstance(value, Spec):
        if not value.is_packaged():
            yield type(value).type_name(), type(value)
        for field in fields(value):
            yield from own_classes(getattr(value, field.name))


def install(shipped: bytes) -> None:
    """Have `Spec.from_json` find the classes that `spark/driver/shipping.py` packed, before all others of their names.

    Specs are to be read right afterwards: another model's classes may have the same names.

    Raises
    ------
    ValueError
        They cannot be loaded on this machine; the message names the classes and what is missing.
    """
    if shipped:
        specs.registry.update(_loaded(shipped))


@lru_cache(maxsize=8)  # Spark keeps its Python workers, and each batch of rows asks
def _loaded(shipped: bytes) -> dict[str, type[Spec]]:
    names, _, data = shipped.partition(b"\n")
    before = os.environ.get(PREALLOCATE)
    # Constants of theirs may be JAX's, which would take most of a GPU that another process is to train on.
    os.environ[PREALLOCATE] = "false"
    try:
        # Not a saved model: this is on its way from a user's program to its own worker, as are Spark's functions.
        classes: list[type[Spec]] = pickle.loads(data)
    except Exception as error:
        raise ValueError(
            f"A worker cannot load {', '.join(json.loads(names))} ({type(error).__name__}: {error}); "
            "install what is missing, and equal versions of it, on every machine."
        ) from error
    finally:
        if before is None:
            del os.environ[PREALLOCATE]
        else:
            os.environ[PREALLOCATE] = before
    found = dict(zip(json.loads(names), classes, strict=True))
    for name, loaded in found.items():
        loaded.__qualname__ = name.removeprefix(f"{loaded.__module__}.")  # pickling forgets that of a nested class
    return found
