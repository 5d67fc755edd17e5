"""Where in a user's own code an exception was raised, for errors that otherwise name a layer or a loss alone."""

from __future__ import annotations

import sys
import traceback

LIBRARIES = sys.stdlib_module_names | {"jax", "jaxlib", "numpy", "optax", "pyarrow", "pyspark", "sparkdl"}


def place_of(error: BaseException) -> str:
    """ " (file, line 3)" of the innermost frame that is no library's, to be put after a message; "" if all are."""
    own = [
        (frame.f_code.co_filename, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if _package(frame.f_globals) not in LIBRARIES
    ]
    return " ({}, line {})".format(*own[-1]) if own else ""


def _package(module: dict[str, object]) -> str:
    """Top of a module's name, also of one that runs as a program of its package."""
    return str(module.get("__package__") or module.get("__name__", "")).partition(".")[0]
