"""A training step of the CIFAR-10 network, ResNet-18 and ResNet-50 on whatever device JAX has. No Spark in it.

    python benchmarks/gpu.py [--quick] [--json FILE] [--networks cifar10,resnet18,resnet50] [--dtypes float32,bfloat16]
                             [--batch N] [--devices N] [--profile DIR]

Beside sparkdl's step stand plain JAX autodiff of the same network and, where PyTorch is installed, `torch.compile` on
the same device. All take SGD steps from the same weights on the same images, which stay on the device. They take turns,
each of many steps, started without waiting for one another. Weights are float32; in bfloat16 the network computes in
that. float32 products are TF32 in all of them on chips that have it, as JAX's are by default. On a CPU, ResNets are
timed only when named, and PyTorch is not compiled in the quick form.

Figures, each beginning with `<network>_<dtype>_`: `step_ms`, `autodiff_ms`, `torch_ms` (medians), `step_min_ms`,
`step_over_autodiff`, `step_over_torch`, `step_images_per_s`, `step_tflops`, `step_gbs`, `step_compile_s`,
`step_memory_gb`. `step_of_peak` and `step_of_bandwidth` are shares of the datasheet's rates, or, where the chip is not
known here, of the rates that a large matrix product and a large copy reach in the same run; `step_of_matmul` and
`step_of_copy` are always shares of the latter. Operations count multiplications and additions of convolution and dense
layers alone; bytes are what XLA counts for its compiled operations, caches or not, and are left out where a step holds
a loop, whose body it counts once. TFLOP/s, GB/s and GB are one device's.
"""

from __future__ import annotations

import os
import statistics
import time
from argparse import Namespace
from pathlib import Path

import jax
from contestants.resnet_rates import Rates, datasheet, measured
from contestants.resnet_steps import Case, Contestant, our_contestant, plain_contestant
from reporting import arguments, write

from sparkdl import models
from sparkdl.layers import Conv, Dense, Flatten, LocalResponseNorm, MaxPool, Relu
from sparkdl.network import Network

DTYPES = ("float32", "bfloat16")
BATCHES = {"cifar10": 128, "resnet18": 256, "resnet50": 256}
CPU_BATCHES = {"cifar10": 32, "resnet18": 4, "resnet50": 4}
PROFILED_STEPS = 5


def cifar10() -> Network:
    """TensorFlow's tutorial network, of 24 x 24 crops."""
    norm, pool = LocalResponseNorm(radius=4, bias=1.0, alpha=0.001 / 9, beta=0.75), MaxPool(3, 2, padding="same")
    convolution = [Conv(64, (5, 5), padding="same"), Relu()]
    hidden = [Flatten(), Dense(384), Relu(), Dense(192), Relu()]
    return Network([*convolution, pool, norm, *convolution, norm, pool, *hidden, Dense(10)], input_shape=(24, 24, 3))


NETWORKS = {"cifar10": cifar10, "resnet18": models.resnet18, "resnet50": models.resnet50}


def contestants(case: Case, eager: bool) -> dict[str, Contestant]:
    """Those that can run the case, by the name that their figures have."""
    found = {"step": our_contestant(case), "autodiff": plain_contestant(case)}
    if len(case.devices) > 1:
        print("PyTorch is left out: it is timed on one device only.")
        return found
    try:
        from contestants.resnet_torch import torch_contestant
    except ImportError as error:
        print(f"PyTorch is left out: {error}; pip install torch.")
        return found
    return found | {"torch": torch_contestant(case, eager)}


def take_turns(entered: dict[str, Contestant], rounds: int, turn_s: float) -> dict[str, list[float]]:
    """Milliseconds of a step in each turn; a turn is as many steps as take ours about `turn_s` seconds."""
    started = time.perf_counter()
    entered["step"].run(1)
    steps = min(100, max(1, round(turn_s / (time.perf_counter() - started))))
    order = list(entered)
    times: dict[str, list[float]] = {name: [] for name in entered}
    for _ in range(rounds):
        for name in order:
            started = time.perf_counter()
            entered[name].run(steps)
            times[name].append((time.perf_counter() - started) / steps * 1e3)
        order = order[1:] + order[:1]
    return times


def assess(
    case: Case, entered: dict[str, Contestant], times: dict[str, list[float]], peak: Rates, reached: Rates
) -> dict[str, float]:
    """The case's figures, without the beginning of their names."""
    medians = {name: statistics.median(values) for name, values in times.items()}
    seconds, ours = medians["step"] / 1e3, entered["step"]
    tflops = 2 * case.multiply_adds / len(case.devices) / seconds / 1e12
    product = reached.tflops[case.dtype]
    figures = {f"{name}_ms": value for name, value in medians.items()}
    figures |= {f"step_over_{name}": medians["step"] / value for name, value in medians.items() if name != "step"}
    figures |= {
        "step_min_ms": min(times["step"]),
        "step_images_per_s": case.batch / seconds,
        "step_compile_s": ours.compile_s,
        "step_tflops": tflops,
        "step_of_peak": tflops / peak.tflops.get(case.dtype, product),
        "step_of_matmul": tflops / product,
    }
    if ours.bytes_accessed:
        gbs = ours.bytes_accessed / seconds / 1e9
        figures |= {"step_gbs": gbs, "step_of_bandwidth": gbs / peak.gbs, "step_of_copy": gbs / reached.gbs}
    return figures | ({"step_memory_gb": ours.memory / 1e9} if ours.memory else {})


def show_rates(devices: list[jax.Device], chip: Rates | None, reached: Rates) -> None:
    """Print what the device can do."""
    print(f"{len(devices)} x {devices[0].device_kind}, JAX {jax.__version__}")
    print(f"  {'':<18}{'datasheet':>10}{'reached':>10}")
    pairs = {f"{dtype} TFLOP/s": (chip and chip.tflops.get(dtype), reached.tflops[dtype]) for dtype in DTYPES}
    for name, (sheet, run) in (pairs | {"GB/s": (chip and chip.gbs, reached.gbs)}).items():
        print(f"  {name:<18}{sheet or '-':>10}{run:10.4g}")


def show(
    title: str, case: Case, entered: dict[str, Contestant], times: dict[str, list[float]], figures: dict[str, float]
) -> None:
    """Print a case's table."""
    print(f"\n{title}, batch {case.batch}, {2 * case.multiply_adds / case.batch / 1e9:.2f} GFLOP an image")
    print(f"  {'':<16}{'ms a step':>10}{'least':>10}{'images/s':>10}{'compile s':>10}{'GB':>7}{'ours/its':>10}")
    for name, contestant in entered.items():
        ms, memory = statistics.median(times[name]), contestant.memory
        columns = f"{ms:10.2f}{min(times[name]):10.2f}{case.batch / ms * 1e3:10.0f}{contestant.compile_s:10.1f}"
        columns += f"{memory / 1e9:7.2f}" if memory else f"{'-':>7}"
        columns += "" if name == "step" else f"{figures[f'step_over_{name}']:10.2f}"
        print(f"  {contestant.name:<16}{columns}")
    for unit, rate, peak, run in (("TFLOP/s", "tflops", "peak", "matmul"), ("GB/s", "gbs", "bandwidth", "copy")):
        if f"step_{rate}" in figures:
            value, of_peak, of_run = (figures[f"step_{name}"] for name in (rate, f"of_{peak}", f"of_{run}"))
            print(f"  {value:.4g} {unit}: {of_peak:.0%} of the {peak}, {of_run:.0%} of a large {run}'s")


def time_case(
    title: str, case: Case, quick: bool, peak: Rates, reached: Rates, profile: Path | None
) -> dict[str, float]:
    """Time a case, print its table and return its figures, without the beginning of their names."""
    entered = contestants(case, eager=quick)
    times = take_turns(entered, *((5, 0.1) if quick else (15, 0.5)))
    figures = assess(case, entered, times, peak, reached)
    show(title, case, entered, times, figures)
    if profile:
        with jax.profiler.trace(profile / title):
            entered["step"].run(PROFILED_STEPS)
    return figures


def options() -> Namespace:
    """The command line's, checked and with what it leaves open filled in by the device."""
    parser = arguments(__doc__)
    parser.add_argument("--networks", metavar="NAMES", help=f"of {','.join(NETWORKS)} (default: all; on a CPU cifar10)")
    parser.add_argument("--dtypes", metavar="NAMES", default=",".join(DTYPES), help="(default: %(default)s)")
    parser.add_argument("--batch", type=int, metavar="N", help="images of a step (default: by network and device)")
    parser.add_argument("--devices", type=int, default=1, metavar="N", help="of this process (default: %(default)s)")
    parser.add_argument("--profile", type=Path, metavar="DIR", help="write traces of some of our steps there")
    given = parser.parse_args()
    devices = jax.local_devices()
    on_cpu = devices[0].platform == "cpu"
    given.networks = (given.networks or ",".join(["cifar10"] if on_cpu else NETWORKS)).split(",")
    given.dtypes = given.dtypes.split(",")
    for name, known in (("networks", NETWORKS), ("dtypes", DTYPES)):
        for value in getattr(given, name):
            if value not in known:
                parser.error(f"--{name} must be of {', '.join(known)}, received {value!r}; choose among those.")
    if not 1 <= given.devices <= len(devices):
        parser.error(f"--devices must be from 1 to the {len(devices)} there are, received {given.devices}; change it.")
    if given.batch is not None and (given.batch < 1 or given.batch % given.devices):
        parser.error(f"--batch must be a multiple of --devices={given.devices}, received {given.batch}; change it.")
    batches = CPU_BATCHES if on_cpu else BATCHES
    given.batches = {name: given.batch or given.devices * batches[name] for name in given.networks}
    given.devices = devices[: given.devices]
    return given


def main() -> None:
    """Measure, print, write."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # PyTorch needs its part of the device's memory
    given = options()
    device = given.devices[0]
    chip, reached = datasheet(device.device_kind), measured(device, given.quick)
    show_rates(given.devices, chip, reached)
    figures = {f"matmul_{dtype}_tflops": rate for dtype, rate in reached.tflops.items()} | {"copy_gbs": reached.gbs}
    for network in given.networks:
        for dtype in given.dtypes:
            title = f"{network}_{dtype}"
            case = Case(NETWORKS[network](), dtype, given.batches[network], given.devices)
            own = time_case(title, case, given.quick, chip or reached, reached, given.profile)
            figures |= {f"{title}_{name}": value for name, value in own.items()}
            if stats := device.memory_stats():
                figures["device_peak_gb"] = stats["peak_bytes_in_use"] / 1e9
            write(given.json, figures)  # after every case, lest one that fails take those before it along
    print()
    for name, value in figures.items():
        print(f"{name} {value:.4g}")


if __name__ == "__main__":
    main()
