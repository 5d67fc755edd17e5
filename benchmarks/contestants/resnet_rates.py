"""What a chip can do: by its datasheet where there is one here, and as measured in the same run."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


class Rates(NamedTuple):
    """TFLOP/s of products by dtype, and GB/s of memory; a dtype that the chip has no units for is missing."""

    tflops: dict[str, float]
    gbs: float


def _rates(gbs: float, float32: float, bfloat16: float | None = None) -> Rates:
    return Rates({"float32": float32} | ({"bfloat16": bfloat16} if bfloat16 else {}), gbs)


# From NVIDIA's datasheets of the H200, H100, A100 (80GB; 40GB PCIe), L4, T4, V100 and V100S Tensor Core GPUs; what they
# give with sparsity is halved. float32 is TF32 on chips that have it. The first entry whose words all stand in JAX's
# `device_kind` counts.
DATASHEETS = {
    "H200 NVL": _rates(4800, 417.5, 835.5),
    "H200": _rates(4800, 494.5, 989.5),
    "H100 PCIe": _rates(2000, 378, 756.5),
    "H100 NVL": _rates(3900, 417.5, 835.5),
    "H100": _rates(3350, 494.5, 989.5),
    "A100 80GB PCIe": _rates(1935, 156, 312),
    "A100 80GB": _rates(2039, 156, 312),
    "A100": _rates(1555, 156, 312),
    "L4": _rates(300, 60, 121),
    "T4": _rates(300, 8.1),
    "V100S": _rates(1134, 16.4),
    "V100 PCIE": _rates(900, 14),
    "V100": _rates(900, 15.7),
}


def datasheet(device_kind: str) -> Rates | None:
    """The datasheet's rates of a chip as JAX names it, such as "NVIDIA H100 80GB HBM3"."""
    words = set(device_kind.replace("-", " ").split())
    return next((rates for name, rates in DATASHEETS.items() if set(name.split()) <= words), None)


def measured(device: jax.Device, quick: bool) -> Rates:
    """Rates of a large matrix product of each dtype, and of a pass over an array far larger than any cache.

    The pass adds 1 in place and counts each byte twice, read and written.
    """
    size, megabytes = (1024, 256) if device.platform == "cpu" else (8192, 2048)
    repeats = 3 if quick else 9

    def product_tflops(dtype: str) -> float:
        a, b = (jax.random.normal(jax.random.key(seed), (size, size), dtype) for seed in range(2))
        product = jax.jit(jnp.matmul)
        return 2 * size**3 / _seconds(lambda _: product(a, b), a, repeats) / 1e12

    add = jax.jit(lambda x: x + 1, donate_argnums=0)
    copy_s = _seconds(add, jnp.zeros(megabytes * 250_000), repeats)
    return Rates({dtype: product_tflops(dtype) for dtype in ("float32", "bfloat16")}, 2 * megabytes / 1e3 / copy_s)


def _seconds(function: Callable[[Any], Any], state: Any, repeats: int) -> float:
    """Least time of one of four calls, each given what the one before it returned: a limit is what was reached once."""
    times = []
    for _ in range(1 + repeats):
        started = time.perf_counter()
        for _ in range(4):
            state = function(state)
        jax.block_until_ready(state)
        times.append((time.perf_counter() - started) / 4)
    return min(times[1:])
