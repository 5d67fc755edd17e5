"""What Spark's Python workers need not search for garbage, as they do after each of their tasks."""

from __future__ import annotations

import gc
import sys

_known = 0  # modules when this was last done


def spare_modules() -> None:
    """Set aside what is imported by now: with JAX, a search takes a tenth of a second, more than many a task."""
    global _known
    if len(sys.modules) > _known:
        _known = len(sys.modules)
        gc.freeze()
