"""The process of one contestant: pins itself to its cores, prepares, and takes a turn whenever it is asked to.

Run as `python -m contestants.serve SPEC`, SPEC being a `Spec` as JSON. Lines of JSON go both ways: {"ready": true} out,
then {"steps": n} in and {"seconds": s, "steps": n, "loss": mean} out, turn by turn. What the frameworks print goes to
standard error. The end of standard input, however the benchmark died, ends this process.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

Turn = dict[str, Any]
Taker = Callable[[int], Turn]  # takes that many steps
FAREWELL_SECONDS = 5.0  # for a turn to end, and for Spark to clean up


@dataclass(frozen=True)
class Spec:
    """What a contestant's process is told; JSON values only.

    Attributes
    ----------
    entry : str
        "module:function" of this package; the function takes this Spec and returns what takes the turns.
    cores : list of int
        To run on; as many threads, or workers.
    folder : str
        Where rows and weights lie.
    steps : int
        Of a turn, to prepare for.
    settings : dict
        What this contestant needs besides.
    """

    entry: str
    cores: list[int]
    folder: str
    steps: int
    settings: dict[str, Any] = field(default_factory=dict)


def main() -> None:
    """Pin, prepare, and take turns until standard input ends."""
    spec = Spec(**json.loads(sys.argv[1]))
    if hasattr(os, "sched_setaffinity"):  # before a framework counts the cores
        os.sched_setaffinity(0, spec.cores)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    requests: queue.Queue[str | None] = queue.Queue()
    threading.Thread(target=_listen, args=(requests,), daemon=True).start()
    module, function = spec.entry.split(":")
    take: Taker = getattr(import_module(f"contestants.{module}"), function)(spec)
    _send(answers, {"ready": True})
    while line := requests.get():
        _send(answers, take(json.loads(line)["steps"]))


def _send(stream: Any, answer: Turn) -> None:
    stream.write(json.dumps(answer) + "\n")
    stream.flush()


def _listen(requests: queue.Queue[str | None]) -> None:
    for line in sys.stdin:
        requests.put(line)
    requests.put(None)
    time.sleep(FAREWELL_SECONDS)
    os._exit(1)


if __name__ == "__main__":
    main()
