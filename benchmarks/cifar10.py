"""The paper's benchmark: CIFAR-10 on one core and on two, beside TensorFlow, PyTorch and TorchDistributor.

    python benchmarks/cifar10.py [--quick] [--json FILE] [--data DIR] [--only NAMES] [--steps N] [--rounds N]
                                 [--learn STEPS] [--plot FILE]

Model and hyperparameters are those of TensorFlow's CIFAR-10 tutorial, in float32. Every contestant is a process of its
own on the same cores; all are started and warmed up first and then take turns of so many steps of 128 rows, while the
others sleep, in an order that rotates from round to round, so that a machine whose speed drifts hits all alike.

- `ours_1`, `tensorflow_1`, ...: forward, backward and update on one prepared batch, on so many cores. `ours_pair` is
  two copies of `ours_1` at once, each on a core of its own: what two cores of this machine are worth.
- `ours_fit_1`, ...: the whole path with random crops, flips, brightness and contrast; ours is `DeepClassifier.fit` on
  Spark with a worker for each core, timed by its epoch's seconds; the others read shuffled batches from memory.
  `torchdistributor_fit_2` is two processes of 64 rows each, timed within.

The table's last column is the mean objective of the last turn; all that step on the prepared batch come to the same.

Figures: for every contestant `<name>_ms`, the median of a step's milliseconds; `step_1_over_...` and `fit_N_over_...`,
ours / theirs, against the faster of their modes (plain or XLA; eager or torch.compile); `speedup_2`, rows a second of a
fit with two workers over one; `ceiling_speedup_2`, the same of the two copies; `speedup_2_over_ceiling`, the first of
these over the second; of these three the median over rounds, in which a machine that is slow is slow for all. Of
learning, where all start from the same weights and take the same rows in every step, and each draws its augmentation by
itself: `<name>_loss`, the mean objective (cross-entropy and decay) of the last epoch, `<name>_accuracy` on test rows,
and `loss_over_tensorflow`.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import jax
import numpy as np
from contestants import tutorial
from contestants.data import data_folder
from contestants.learning import draw, learned, taught
from contestants.ours import write_weights
from contestants.race import Turns, milliseconds, over_peers, race_options, take_turns
from contestants.roster import LEARNERS, RATIOS, TIMED, chosen
from contestants.turns import Contestant, ContestantError, started
from reporting import arguments, write

from sparkdl import datasets


def write_rows(folder: Path, directory: Path | None, steps: int) -> None:
    """Write the rows that everybody reads, of the data set or, without one, generated for turns of so many steps."""
    if directory is None:
        generator = np.random.default_rng(tutorial.SEED)
        shape = (steps * tutorial.BATCH, tutorial.SIDE, tutorial.SIDE, 3)
        images = generator.integers(0, 256, shape, np.uint8)
        tutorial.write_rows(folder, "train", images, generator.integers(0, 10, len(images)))
        return
    table = datasets.cifar10(directory)
    images = np.frombuffer(b"".join(table["image"].to_pylist()), np.uint8).reshape(-1, tutorial.SIDE, tutorial.SIDE, 3)
    classes = {name: number for number, name in enumerate(datasets.CIFAR10_CLASSES)}
    labels = np.array([classes[name] for name in table["label"].to_pylist()])
    splits = np.array(table["split"].to_pylist())
    for split in ("train", "test"):
        tutorial.write_rows(folder, split, images[splits == split], labels[splits == split])


def timings(turns: Turns) -> dict[str, float]:
    """The figures of the race."""
    medians = {name: statistics.median(milliseconds(answers)) for name, answers in turns.items()}
    figures = {f"{name}_ms": value for name, value in medians.items()} | over_peers(medians, RATIOS)
    by_round = {}
    for figure, one, two, copies in (
        ("speedup_2", "ours_fit_1", "ours_fit_2", 1),
        ("ceiling_speedup_2", "ours_1", "ours_pair", 2),
    ):
        if {one, two} <= turns.keys():
            pairs = zip(milliseconds(turns[one]), milliseconds(turns[two]), strict=True)
            by_round[figure] = [copies * alone / together for alone, together in pairs]
            figures[figure] = statistics.median(by_round[figure])
    if len(by_round) == 2:
        ratios = [reached / ceiling for reached, ceiling in zip(*by_round.values(), strict=True)]
        figures["speedup_2_over_ceiling"] = statistics.median(ratios)
    return figures


def show(contestants: list[Contestant], turns: Turns) -> None:
    """Print the race's table."""
    rivals = {peer: ours for ours, peers in RATIOS.values() for peer in peers}
    print(f"{'contestant':<24}{'cores':>6}{'ms a step':>11}{'min':>9}{'rows/s':>9}{'ours/peer':>11}{'loss':>9}")
    for contestant in contestants:
        times = milliseconds(turns[contestant.name])
        median, rival = statistics.median(times), rivals.get(contestant.name)
        ratio = f"{statistics.median(milliseconds(turns[rival])) / median:.3f}" if rival in turns else "-"
        rate = tutorial.BATCH * contestant.copies / median * 1e3
        line = f"{contestant.name:<24}{contestant.cores:>6}{median:>11.2f}{min(times):>9.2f}{rate:>9,.0f}{ratio:>11}"
        print(f"{line}{turns[contestant.name][-1]['loss']:>9.4f}")
    for contestant in contestants:
        if walls := [answer["wall"] for answer in turns[contestant.name] if "wall" in answer]:
            print(
                f"a whole run of {contestant.name}, processes and compiling included: {statistics.median(walls):.1f} s"
            )


def parsed() -> argparse.Namespace:
    """The options, with defaults by --quick."""
    parser = arguments(__doc__)
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the learning curves there")
    names = [contestant.name for contestant in (*TIMED, *LEARNERS)]
    return race_options(parser, names, steps=(6, 40), learn=(40, 5000), lesson="steps of learning")


def measured(options: argparse.Namespace, folder: Path) -> dict[str, float]:
    """Run the benchmark with its files in `folder`, print its tables; its figures."""
    directory = data_folder(options.data, "the images are generated")
    racers, learners = chosen(options.only, options.quick, learns=directory is not None)
    write_rows(folder, directory, options.steps)
    write_weights(folder)
    figures: dict[str, float] = {}
    if racers:
        print(f"{options.rounds} rounds, in turns of {options.steps} steps of {tutorial.BATCH} rows")
        with started(racers, folder, options.steps) as processes:
            turns = take_turns(processes, options.rounds, options.steps)
        show(racers, turns)
        figures |= timings(turns)
    if learners and options.learn:
        lessons = taught(learners, folder, options.learn)
        figures |= learned(lessons)
        if options.plot:
            draw(options.plot, lessons)
    elif options.plot:
        print("nothing is drawn, since nobody learns")
    return figures


def main() -> None:
    """Measure, print, write."""
    options = parsed()
    jax.config.update("jax_platforms", "cpu")  # this process only draws the initial weights
    with TemporaryDirectory(prefix="sparkdl-cifar10-", ignore_cleanup_errors=True) as folder:
        try:
            figures = measured(options, Path(folder))
        except ContestantError as error:
            sys.exit(str(error))
    for name, value in figures.items():
        print(f"{name} {value:.3f}")
    write(options.json, figures)


if __name__ == "__main__":
    main()
