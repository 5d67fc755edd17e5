"""What every kernel of the layers reaches: against the machine's own rates, PyTorch, and `jax.vjp` of the plain layer.

    python benchmarks/layers.py [--quick] [--json FILE] [--only TEXT] [--threads N]

Layers at the sizes of the CIFAR-10 tutorial's network and LeNet (128 rows) and of ResNet-18 (8 rows), in float32 on the
CPU, each kernel as a training step runs it: forward keeps what backward wants (max pooling its arg-max), delta and
gradient are given that. So it is for PyTorch (channels last; of autograd only what is asked for) and for `jax.vjp` of
the textbook layer. A call's time includes starting it. The contestants take turns; medians.

A rate counts what the layer's formula takes, whatever a kernel does: the multiply-adds of forward, for delta and
gradient alike, or every input read and every output written once. The machine's rates, measured in the same run, are
those of a large matrix product (the faster of JAX and PyTorch) and of copying memory. More than all of it is possible:
Winograd's convolutions multiply less, arrays may fit into the cache. Freed memory stays with the process, so that no
kernel waits for new pages.

Figures: `matmul_gflops` (also `jax_...`, `torch_...`), `copy_gbs`; for every kernel `<case>_<kernel>_ms`, `_of_rate`,
`_over_torch`, `_over_vjp` (ratios of ours to theirs); and of the CIFAR-10 network again `max_pool_delta_over_vjp`,
`max_pool_delta_of_copy_rate`, `lrn_delta_over_vjp`, `lrn_delta_of_copy_rate`, `first_conv_gradient_over_vjp`,
`first_conv_gradient_of_matmul_rate`. What `jax.vjp` keeps may be most of delta's work, as it is for LRN, so there are
also `max_pool_over_vjp` and `lrn_over_vjp` of forward and delta together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from contestants import layers_plain
from contestants.layers_machine import Calls, limit, medians, rates
from reporting import chosen, has_torch, write

from sparkdl.layers import BatchNorm, Context, Conv, Dense, GlobalAvgPool, Layer, LocalResponseNorm, MaxPool, Relu


@dataclass(frozen=True)
class Case:
    """A layer at the size it has in a network.

    Attributes
    ----------
    name : str
    layer : Layer
    shape : tuple of int
        Of one row of x.
    batch : int
        Rows.
    """

    name: str
    layer: Layer
    shape: tuple[int, ...]
    batch: int = 128

    @property
    def operations(self) -> int:
        """Floating-point operations of each kernel; 0 where bytes count."""
        return 2 * self.batch * self.layer.multiply_adds(self.shape)

    def moved(self, kernel: str) -> int:
        """Bytes that the kernel of a layer without products reads and writes at least."""
        x, y = (4 * self.batch * math.prod(shape) for shape in (self.shape, self.layer.output_shape(self.shape)))
        # what a delta must know besides dy: x, or one byte an output for the position of its maximum, or nothing
        known = y // 4 if isinstance(self.layer, MaxPool) else 0 if isinstance(self.layer, GlobalAvgPool) else x
        stored = known if isinstance(self.layer, MaxPool) else 0
        return {"forward": x + y + stored, "delta": known + y + x, "gradient": x + y}[kernel]


def resnet_conv(filters: int, size: int, strides: int = 1) -> Conv:
    """A convolution as He et al. 2016 pad it, on both sides alike."""
    return Conv(filters, (size, size), strides, ((size // 2, size // 2),) * 2, bias=False)


CASES = [
    Case("cifar10_conv_1", Conv(64, (5, 5), padding="same"), (24, 24, 3)),
    Case("cifar10_relu", Relu(), (24, 24, 64)),
    Case("cifar10_max_pool", MaxPool(3, 2, padding="same"), (24, 24, 64)),
    Case("cifar10_lrn", LocalResponseNorm(radius=4, bias=1.0, alpha=0.001 / 9, beta=0.75), (12, 12, 64)),
    Case("cifar10_conv_2", Conv(64, (5, 5), padding="same"), (12, 12, 64)),
    Case("cifar10_dense_1", Dense(384), (2304,)),
    Case("cifar10_dense_2", Dense(192), (384,)),
    Case("lenet_conv_1", Conv(32, (5, 5), padding="same"), (28, 28, 1)),
    Case("lenet_max_pool_1", MaxPool(2), (28, 28, 32)),
    Case("lenet_conv_2", Conv(64, (5, 5), padding="same"), (14, 14, 32)),
    Case("lenet_max_pool_2", MaxPool(2), (14, 14, 64)),
    Case("lenet_dense_1", Dense(512), (3136,)),
    Case("lenet_dense_2", Dense(10), (512,)),
    Case("resnet18_conv_7x7", resnet_conv(64, 7, 2), (224, 224, 3), 8),
    Case("resnet18_max_pool", MaxPool(3, 2, ((1, 1), (1, 1))), (112, 112, 64), 8),
    Case("resnet18_conv_56", resnet_conv(64, 3), (56, 56, 64), 8),
    Case("resnet18_batch_norm", BatchNorm(), (56, 56, 64), 8),
    Case("resnet18_conv_28", resnet_conv(128, 3), (28, 28, 128), 8),
    Case("resnet18_conv_1x1", resnet_conv(128, 1, 2), (56, 56, 64), 8),
    Case("resnet18_conv_14", resnet_conv(256, 3), (14, 14, 256), 8),
    Case("resnet18_conv_7", resnet_conv(512, 3), (7, 7, 512), 8),
    Case("resnet18_global_avg_pool", GlobalAvgPool(), (7, 7, 512), 8),
]
AIMS = {  # figure: the kernel, and the rate that bounds it
    "max_pool_delta": ("cifar10_max_pool_delta", "copy"),
    "lrn_delta": ("cifar10_lrn_delta", "copy"),
    "first_conv_gradient": ("cifar10_conv_1_gradient", "matmul"),
}


def our_kernels(layer: Layer, weights: dict[str, Any], x: Any, dy: Any) -> Calls:
    """Calls of a layer's kernels as a training step runs them."""
    ones = jnp.ones(len(x))

    def context(row_weights: Any) -> Context:
        return Context(jax.random.key(0), row_weights)

    @jax.jit
    def forward(weights: Any, x: Any, ones: Any) -> Any:
        return layer.train_forward(weights, x, context(ones))

    @jax.jit
    def delta(weights: Any, x: Any, y: Any, dy: Any, kept: Any, ones: Any) -> Any:
        return layer.train_backward(weights, x, y, dy, kept, context(ones), True)[0]

    @jax.jit
    def gradient(weights: Any, x: Any, y: Any, dy: Any, kept: Any, ones: Any) -> Any:
        return layer.train_backward(weights, x, y, dy, kept, context(ones), False)[1]

    y, kept = forward(weights, x, ones)
    calls: Calls = {
        "forward": lambda: forward(weights, x, ones),
        "delta": lambda: delta(weights, x, y, dy, kept, ones),
    }
    if layer.learned(weights):
        calls["gradient"] = lambda: gradient(weights, x, y, dy, kept, ones)
    return calls


def contestants(case: Case, layers_torch: ModuleType | None) -> dict[str, Calls]:
    """Every contestant's calls, on the same random rows and weights."""
    draw = np.random.default_rng(0)
    x, dy = (
        draw.normal(size=(case.batch, *shape)).astype(np.float32)
        for shape in (case.shape, case.layer.output_shape(case.shape))
    )
    weights = case.layer.init(jax.random.key(0), case.shape)
    on_device = case.layer, weights, jnp.asarray(x), jnp.asarray(dy)
    calls = {"ours": our_kernels(*on_device), "vjp": layers_plain.kernels(*on_device)}
    if layers_torch is not None:
        calls["torch"] = layers_torch.kernels(case.layer, jax.tree.map(np.array, weights), x, dy)
    return calls


def measured(case: Case, rounds: int, machine: dict[str, float], layers_torch: ModuleType | None) -> dict[str, float]:
    """Measure a case's kernels, print a line for each, return their figures."""
    figures: dict[str, float] = {}
    entered = contestants(case, layers_torch)
    for kernel in entered["ours"]:
        times = medians({name: calls[kernel] for name, calls in entered.items()}, rounds)
        ours = times["ours"]
        work = case.operations or case.moved(kernel)
        unit, peak = ("GFLOP/s", machine["matmul_gflops"]) if case.operations else ("GB/s", machine["copy_gbs"])
        rate = work / ours / 1e9
        line = f"{case.name + ' ' + kernel:<34}{ours * 1e3:9.3f}{rate:9.1f} {unit:<8}{rate / peak:6.0%}"
        figures |= {f"{case.name}_{kernel}_ms": ours * 1e3, f"{case.name}_{kernel}_of_rate": rate / peak}
        for name in ("torch", "vjp"):
            if name in times:
                line += f"{times[name] * 1e3:11.3f}{ours / times[name]:7.2f}"
                figures[f"{case.name}_{kernel}_over_{name}"] = ours / times[name]
            else:
                line += f"{'-':>11}{'-':>7}"
        print(line, flush=True)
    return figures


def headlines(figures: dict[str, float]) -> dict[str, float]:
    """The figures that have an aim, under their own names."""
    found = {}
    for name, (kernel, rate) in AIMS.items():
        if f"{kernel}_ms" in figures:
            found[f"{name}_over_vjp"] = figures[f"{kernel}_over_vjp"]
            found[f"{name}_of_{rate}_rate"] = figures[f"{kernel}_of_rate"]
    for name in ("max_pool", "lrn"):
        kernels = [f"cifar10_{name}_{kernel}" for kernel in ("forward", "delta")]
        if f"{kernels[0]}_ms" in figures:
            ours = [figures[f"{kernel}_ms"] for kernel in kernels]
            theirs = [time / figures[f"{kernel}_over_vjp"] for time, kernel in zip(ours, kernels, strict=True)]
            found[f"{name}_over_vjp"] = sum(ours) / sum(theirs)
    return found


def main() -> None:
    """Measure, print, write."""
    options, cases = chosen(__doc__, CASES)
    limit(options.threads)
    layers_torch: ModuleType | None = None
    if has_torch():
        layers_torch = import_module("contestants.layers_torch")
        layers_torch.limit(options.threads)
    rounds = 5 if options.quick else 25
    figures = machine = rates(options.threads, rounds, layers_torch)
    print(f"{options.threads} thread(s), medians of {rounds} turns; the machine itself: ", end="")
    print(", ".join(f"{name} {rate:.1f}" for name, rate in machine.items()))
    print(f"{'kernel':<34}{'ms':>9}{'rate':>18}{'of it':>6}{'PyTorch ms':>11}{'ratio':>7}{'vjp ms':>11}{'ratio':>7}")
    for case in cases:
        figures = figures | measured(case, rounds, machine, layers_torch)
    found = headlines(figures)
    for name, value in found.items():
        print(f"{name} {value:.3f}")
    write(options.json, figures | found)


if __name__ == "__main__":
    main()
