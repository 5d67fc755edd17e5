"""Residual networks on a CPU: a training step on one core and a fit on two, beside PyTorch and TensorFlow.

    python benchmarks/resnet.py [--quick] [--json FILE] [--data DIR] [--only NAMES] [--steps N] [--rounds N]
                                [--learn STEPS]

ResNet-18 on 32 x 32 and 64 x 64 images and MobileNetV2 on 64 x 64, from `sparkdl.models`, 10 classes, batches of 64,
SGD, float32, channels last in all. Every contestant is a process of its own on the same cores; those of a case are
started first and then take turns of so many steps, in an order that rotates from round to round. The images are
CIFAR-10's, or generated where there are none; all contestants begin with the same weights and take the same batches.

- `<case>_ours_1`, `_torch_1`, `_torch_compiled_1`, `_tensorflow_1`: forward, backward and update on one core.
- `resnet18_32_ours_fit_2`: an epoch of `DeepClassifier.fit` on Spark with two workers, whose batch statistics are those
  of all 64 rows; `resnet18_32_torchdistributor_fit_2`: two processes of 32 rows with DDP, each with its own statistics.

Figures: `<name>_ms`, the median of a step's milliseconds; `resnet18_step_1_over_torch` (32 x 32),
`resnet18_64_step_1_over_torch` and `mobilenet_step_1_over_torch`, ours over the faster of PyTorch's two modes, and
`..._over_tensorflow`; `resnet18_fit_2_over_torchdistributor`; and of the first `--learn` steps of ResNet-18 on 32 x 32,
`resnet18_loss_over_torch` and `..._over_tensorflow`, the ratio of mean losses; `<name>_compile_s`, the seconds that
compiling took.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import jax
import numpy as np
from contestants.data import data_folder
from contestants.network_cases import BATCH, BATCHES, CLASSES, SIDE, write_case
from contestants.race import Turns, milliseconds, over_peers, race_options, take_turns
from contestants.turns import Contestant, ContestantError, available_cores, started, turn
from reporting import arguments, write

from sparkdl import datasets

CASES = {"resnet18_32": "resnet18", "resnet18_64": "resnet18_64", "mobilenet_64": "mobilenet"}  # to names of figures
LEARNING = "resnet18_32"
ENTRIES = {
    "ours_1": ("network_ours:step", 1, "sparkdl", {}),
    "torch_1": ("network_torch:step", 1, "torch", {"compiled": False}),
    "torch_compiled_1": ("network_torch:step", 1, "torch", {"compiled": True}),
    "tensorflow_1": ("network_tensorflow:step", 1, "tensorflow", {}),
    "ours_fit_2": ("network_ours:fit", 2, "sparkdl", {}),
    "torchdistributor_fit_2": ("network_torch:fit", 2, "torch", {}),
}
STEPPING = [name for name in ENTRIES if name.endswith("_1")]
RATIOS = {
    "step_1_over_torch": ("ours_1", ("torch_1", "torch_compiled_1")),
    "step_1_over_tensorflow": ("ours_1", ("tensorflow_1",)),
    "fit_2_over_torchdistributor": ("ours_fit_2", ("torchdistributor_fit_2",)),
}


def write_images(folder: Path, directory: Path | None) -> None:
    """Write the rows that everybody reads, of the data set or generated."""
    count = BATCH * BATCHES
    if directory is None:
        generator = np.random.default_rng(0)
        images = generator.integers(0, 256, (count, SIDE, SIDE, 3), np.uint8)
        labels = generator.integers(0, CLASSES, count, np.int32)
    else:
        table = datasets.cifar10(directory).slice(0, count)
        images = np.frombuffer(b"".join(table["image"].to_pylist()), np.uint8).reshape(-1, SIDE, SIDE, 3)
        classes = {name: number for number, name in enumerate(datasets.CIFAR10_CLASSES)}
        labels = np.array([classes[name] for name in table["label"].to_pylist()], np.int32)
    np.save(folder / "images.npy", images)
    np.save(folder / "labels.npy", labels)


def contestants(case: str, options: argparse.Namespace) -> list[Contestant]:
    """Those of a case that can take part; tells who is left out."""
    found = []
    for name, (entry, threads, package, settings) in ENTRIES.items():
        if (name not in STEPPING and case != LEARNING) or (options.only and f"{case}_{name}" not in options.only):
            continue
        reason = ""
        if not find_spec(package):
            reason = f"{package} is not installed: pip install 'sparkdl-jax[benchmarks]'"
        elif threads > len(available_cores()):
            reason = f"it takes {threads} cores"
        elif options.quick and not options.only and name == "torch_compiled_1":
            reason = "torch.compile takes longer than --quick"
        if reason:
            print(f"left out: {case}_{name}; {reason}")
        else:
            found.append(Contestant(name, entry, threads, package=package, settings={"case": case, **settings}))
    return found


def race(case: str, folder: Path, options: argparse.Namespace) -> tuple[Turns, Turns]:
    """The first steps of those that learn, and everybody's turns."""
    entered = contestants(case, options)
    lessons: Turns = {}
    write_case(folder, case)
    with started(entered, folder, options.steps) as processes:
        for name in processes:
            if name in STEPPING:
                lessons[name] = [turn(processes[name], options.learn if case == LEARNING and options.learn else 1)]
        return lessons, take_turns(processes, options.rounds, options.steps, f"{case}: ")


def assess(case: str, lessons: Turns, turns: Turns) -> dict[str, float]:
    """Print the case's table; its figures."""
    times = {name: milliseconds(own) for name, own in turns.items()}
    medians = {name: statistics.median(values) for name, values in times.items()}
    print(f"{case:<28}{'ms a step':>11}{'min':>9}{'compile s':>11}{'loss':>9}")
    for name, values in times.items():
        compile_s = turns[name][-1].get("compile")
        shown = f"{compile_s:>11.1f}" if compile_s is not None else f"{'-':>11}"
        print(f"{name:<28}{medians[name]:>11.1f}{min(values):>9.1f}{shown}{turns[name][-1]['loss']:>9.4f}")
    figures = {f"{case}_{name}_ms": value for name, value in medians.items()}
    figures |= {f"{case}_{name}_compile_s": own[0]["compile"] for name, own in turns.items() if "compile" in own[0]}
    figures |= {f"{CASES[case]}_{figure}": value for figure, value in over_peers(medians, RATIOS).items()}
    if case == LEARNING and len(lessons.get("ours_1", [{"losses": []}])[0]["losses"]) > 1:
        mean = {name: statistics.mean(own[0]["losses"]) for name, own in lessons.items()}
        for peer in ("torch", "tensorflow"):
            if f"{peer}_1" in mean:
                figures[f"{CASES[case]}_loss_over_{peer}"] = mean["ours_1"] / mean[f"{peer}_1"]
    return figures


def parsed() -> argparse.Namespace:
    """The options, with defaults by --quick."""
    names = [f"{case}_{name}" for case in CASES for name in ENTRIES if case == LEARNING or name in STEPPING]
    return race_options(arguments(__doc__), names, steps=(1, 8), learn=(4, 200), lesson="first steps to compare")


def main() -> None:
    """Measure, print, write."""
    options = parsed()
    jax.config.update("jax_platforms", "cpu")  # this process only draws the initial weights
    figures: dict[str, float] = {}
    with TemporaryDirectory(prefix="sparkdl-resnet-", ignore_cleanup_errors=True) as folder:
        write_images(Path(folder), data_folder(options.data, "the images are generated"))
        for case in CASES:
            if contestants(case, options):
                try:
                    lessons, turns = race(case, Path(folder), options)
                except ContestantError as error:
                    sys.exit(str(error))
                figures |= assess(case, lessons, turns)
                write(options.json, figures)
    for name, value in figures.items():
        print(f"{name} {value:.3f}")


if __name__ == "__main__":
    main()
