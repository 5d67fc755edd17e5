"""Figures of matplotlib that a notebook shows as pictures, whether or not pyplot has been used there."""

from __future__ import annotations

import io

from matplotlib.figure import Figure


class Picture(Figure):
    """A Figure made without pyplot, so that neither a display nor a backend is needed."""

    def _repr_png_(self) -> bytes:
        """What IPython asks for."""
        self.savefig(buffer := io.BytesIO(), format="png")
        return buffer.getvalue()
