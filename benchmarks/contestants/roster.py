"""Who takes part in the CIFAR-10 benchmark, and which of their figures stand beside which."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection
from importlib.util import find_spec

from contestants.turns import Contestant, available_cores

XLA, COMPILED = (("", False), ("_xla", True)), (("", False), ("_compiled", True))
TIMED = [
    Contestant("ours_1", "ours:step"),
    Contestant("ours_pair", "ours:step", copies=2),
    *(
        Contestant(f"tensorflow{mode}_{n}", "tensorflow_peer:step", n, package="tensorflow", settings={"xla": xla})
        for n in (1, 2)
        for mode, xla in XLA
    ),
    *(
        Contestant(f"torch{mode}_{n}", "torch_peer:step", n, package="torch", settings={"compiled": compiled})
        for n in (1, 2)
        for mode, compiled in COMPILED
    ),
    *(Contestant(f"ours_fit_{n}", "ours_fit:fit", n) for n in (1, 2)),
    *(
        Contestant(f"tensorflow{mode}_fit_{n}", "tensorflow_peer:fit", n, package="tensorflow", settings={"xla": xla})
        for n in (1, 2)
        for mode, xla in XLA
    ),
    *(Contestant(f"torch_fit_{n}", "torch_peer:fit", n, package="torch") for n in (1, 2)),
    Contestant("torchdistributor_fit_2", "torch_distributor:fit", 2, package="torch"),
]
LEARNERS = [
    Contestant("ours_learn", "ours_fit:learn", 2),
    Contestant("tensorflow_learn", "tensorflow_peer:learn", 2, package="tensorflow"),
    Contestant("torch_learn", "torch_peer:learn", 2, package="torch"),
]
# ours, and the modes of a peer of which the faster counts
RATIOS = {
    "step_1_over_tensorflow": ("ours_1", ("tensorflow_1", "tensorflow_xla_1")),
    "step_1_over_torch": ("ours_1", ("torch_1", "torch_compiled_1")),
    "fit_1_over_tensorflow": ("ours_fit_1", ("tensorflow_fit_1", "tensorflow_xla_fit_1")),
    "fit_1_over_torch": ("ours_fit_1", ("torch_fit_1",)),
    "fit_2_over_tensorflow": ("ours_fit_2", ("tensorflow_fit_2", "tensorflow_xla_fit_2")),
    "fit_2_over_torch": ("ours_fit_2", ("torch_fit_2",)),
    "fit_2_over_torchdistributor": ("ours_fit_2", ("torchdistributor_fit_2",)),
}


def chosen(only: Collection[str], quick: bool, learns: bool) -> tuple[list[Contestant], list[Contestant]]:
    """Who takes turns and who learns, after telling who does not and why.

    Parameters
    ----------
    only : collection of str
        Names of contestants; empty for all.
    quick : bool
        Whether to leave out those that take minutes to start.
    learns : bool
        Whether there are images to learn from.
    """
    found: list[Contestant] = []
    left_out: dict[str, list[str]] = {}
    for contestant in (*TIMED, *LEARNERS):
        if only and contestant.name not in only:
            continue
        if reason := _obstacle(contestant, quick and not only, learns, LEARNERS[0] in found):
            left_out.setdefault(reason, []).append(contestant.name)
        else:
            found.append(contestant)
    for reason, names in left_out.items():
        print(f"left out: {', '.join(names)}; {reason}")
    return [one for one in found if one in TIMED], [one for one in found if one in LEARNERS]


def lacking(contestant: Contestant) -> str:
    """What it lacks on this machine to take part; "" if nothing."""
    cores = len(available_cores())
    if not find_spec(contestant.package):
        return f"{contestant.package} is not installed: pip install 'sparkdl-jax[benchmarks]'"
    if contestant.cores > cores:
        return f"of the {contestant.cores} cores that each takes, {cores} is available"
    return ""


def _obstacle(contestant: Contestant, hurried: bool, learns: bool, ours_learns: bool) -> str:
    """Why it cannot take part; "" if it can."""
    if reason := lacking(contestant):
        return reason
    if contestant.settings.get("compiled"):
        if hurried:
            return "torch.compile takes longer than --quick"
        if not (shutil.which(os.environ.get("CXX", "g++")) or shutil.which("clang++")):
            return "torch.compile needs a C++ compiler, and there is none on PATH"
    if contestant in LEARNERS and not learns:
        return "generated images teach nothing: name CIFAR-10 by --data or SPARKDL_DATA"
    if contestant in LEARNERS[1:] and not ours_learns:
        return f"{LEARNERS[0].name} finds out which rows make a batch, and does not take part"
    return ""
