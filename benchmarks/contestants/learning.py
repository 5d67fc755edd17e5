"""The part of the CIFAR-10 benchmark that asks how well everybody learns: the same weights, rows and steps for all."""

from __future__ import annotations

from pathlib import Path

from contestants.serve import Turn
from contestants.turns import Contestant, started, turn


def taught(learners: list[Contestant], folder: Path, steps: int) -> dict[str, Turn]:
    """What every learner learned, one after the other; ours comes first, since it leaves the order of the rows."""
    with started(learners, folder, steps) as processes:
        return {learner.name: turn(processes[learner.name], steps) for learner in learners}


def learned(lessons: dict[str, Turn]) -> dict[str, float]:
    """Print the curves; the figures of learning."""
    print("mean objective of every epoch; all draw their own augmentation")
    print(f"{'epoch':>5}" + "".join(f"{name:>18}" for name in lessons))
    for epoch, values in enumerate(zip(*(lesson["history"] for lesson in lessons.values()), strict=True), start=1):
        print(f"{epoch:>5}" + "".join(f"{value:>18.4f}" for value in values))
    figures: dict[str, float] = {}
    for name, lesson in lessons.items():
        figures |= {f"{name}_loss": lesson["loss"], f"{name}_accuracy": lesson["accuracy"]}
    if {"ours_learn", "tensorflow_learn"} <= lessons.keys():
        figures["loss_over_tensorflow"] = figures["ours_learn_loss"] / figures["tensorflow_learn_loss"]
    return figures


def draw(path: Path, lessons: dict[str, Turn]) -> None:
    """The curves as a picture."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    for name, lesson in lessons.items():
        axes.plot(range(1, len(lesson["history"]) + 1), lesson["history"], label=name.removesuffix("_learn"))
    axes.set(xlabel="epoch", ylabel="mean objective", title="CIFAR-10, the same weights and batches")
    axes.legend()
    figure.savefig(path)
