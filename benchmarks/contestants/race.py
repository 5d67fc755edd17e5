"""A race of contestants: how long it is, the turns that they take, and their times beside one another."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Mapping
from pathlib import Path

from contestants.serve import Turn
from contestants.turns import Process, turn

Turns = dict[str, list[Turn]]  # by contestant
Peers = Mapping[
    str, tuple[str, tuple[str, ...]]
]  # by figure: ours, and the modes of a peer, of which the fastest counts
Defaults = tuple[int, int]  # with --quick, and without


def race_options(
    parser: argparse.ArgumentParser,
    contestants: Collection[str],
    steps: Defaults,
    learn: Defaults,
    lesson: str,
    rounds: Defaults = (2, 9),
    data: str = "CIFAR-10's binary files",
) -> argparse.Namespace:
    """Add the options of a race of these contestants to the parser, and parse; `lesson` says what --learn counts."""
    numbers = {
        "steps": ("N", "steps of a turn", steps),
        "rounds": ("N", "turns of each", rounds),
        "learn": ("STEPS", lesson, learn),
    }
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--data", type=Path, metavar="DIR", help=f"folder of {data}")
    parser.add_argument(
        "--only", type=lambda text: text.split(","), default=(), metavar="NAMES", help="only these: a,b"
    )
    for name, (metavar, told, (quick, full)) in numbers.items():
        parser.add_argument(f"--{name}", type=int, metavar=metavar, help=f"{told} (default: {full}; quick: {quick})")
    options = parser.parse_args()
    for name, (*_, (quick, full)) in numbers.items():
        if getattr(options, name) is None:
            setattr(options, name, quick if options.quick else full)
    for name in options.only:
        if name not in contestants:
            parser.error(f"--only names contestants, received {name!r}; choose among {', '.join(contestants)}.")
    if options.steps < 1 or options.rounds < 1 or options.learn < 0:
        parser.error("--steps and --rounds must be at least 1 and --learn at least 0; give larger numbers.")
    return options


def take_turns(processes: Mapping[str, list[Process]], rounds: int, steps: int, title: str = "") -> Turns:
    """Everybody's turns of so many steps, in an order that rotates from round to round."""
    names = list(processes)
    turns: Turns = {name: [] for name in names}
    for number in range(rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            turns[name].append(turn(processes[name], steps))
        print(f"{title}round {number + 1} of {rounds}", file=sys.stderr)
    return turns


def milliseconds(answers: list[Turn]) -> list[float]:
    """Of a step, for every turn."""
    return [answer["seconds"] / answer["steps"] * 1e3 for answer in answers]


def over_peers(medians: Mapping[str, float], peers: Peers) -> dict[str, float]:
    """Our median over the peer's, for each figure of which both took part."""
    found = {}
    for figure, (ours, modes) in peers.items():
        present = [medians[mode] for mode in modes if mode in medians]
        if ours in medians and present:
            found[figure] = medians[ours] / min(present)
    return found
