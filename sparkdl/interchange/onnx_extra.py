"""The package onnx, an extra, which only what reads or writes its files asks for."""

from __future__ import annotations

from typing import Any


def require_onnx() -> Any:
    """The package onnx, with its parts `helper` and `numpy_helper`; ImportError where it is missing."""
    try:
        import onnx
        import onnx.helper
        import onnx.numpy_helper
    except ImportError:
        raise ImportError("ONNX needs the package onnx; pip install 'sparkdl-jax[onnx]'.") from None
    return onnx
