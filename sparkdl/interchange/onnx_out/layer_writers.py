"""Which function writes which layer: all families together."""

from __future__ import annotations

from sparkdl.interchange.onnx_out import (
    write_attention,
    write_capsules,
    write_categories,
    write_dense,
    write_masking,
    write_merges,
    write_norms,
    write_numbers,
    write_shapes,
    write_time,
    write_windows,
)
from sparkdl.interchange.onnx_out.writing import Writer
from sparkdl.layers.base import Layer

WRITERS: dict[type[Layer], Writer] = {
    **write_attention.WRITERS,
    **write_capsules.WRITERS,
    **write_categories.WRITERS,
    **write_dense.WRITERS,
    **write_masking.WRITERS,
    **write_merges.WRITERS,
    **write_norms.WRITERS,
    **write_numbers.WRITERS,
    **write_shapes.WRITERS,
    **write_time.WRITERS,
    **write_windows.WRITERS,
}
