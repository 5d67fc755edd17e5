"""The process that one worker of a fit runs in: join the others, train, write the weights, leave.

Run as `python -m sparkdl.training.worker DIRECTORY`. It reads one `Job` as a line of JSON on standard input and writes
events as lines of JSON on standard output; whatever the libraries print goes to standard error. Standard input stays
open for as long as the parent lives: its end, however the parent died, ends this process and removes the directory.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import threading
import time
import traceback
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NoReturn, TextIO

from sparkdl.places import place_of
from sparkdl.training.records import pulse

HEARTBEAT_SECONDS = 2.0
PROCESS_NAME = "sparkdl-worker"
TRAINING, VALIDATION, WEIGHTS = "training.arrow", "validation.arrow", "weights.safetensors"
INITIAL = "initial-{}.safetensors"  # by number of the run


@dataclass(frozen=True)
class Job:
    """What a worker is told; JSON values only.

    Attributes
    ----------
    trainings : list of dict
        A `Training` as JSON for every run on these rows; all compute in the same dtype.
    directory : str
        Where the worker finds its shards, `training.arrow` and `validation.arrow`, and perhaps `initial-N.safetensors`,
        weights that run N starts from; and leaves `weights.safetensors`, whose names start with the number of the run.
    rank : int
    rows, validation_rows : list of int
        Rows in every worker's shards, in the order of ranks.
    addresses : list of str
        The numeric address of every worker's machine, in the order of ranks.
    port : int
        Of rank 0's machine, at which it brings several workers together.
    start_seconds : float
        How long to wait for the others at the start.
    steps : dict of int
        To how many steps all workers pad rows of any length, by part of the features that has such.
    even : bool
        Whether those that have more rows than others hand some on before they train.
    """

    trainings: list[dict[str, Any]]
    directory: str
    rank: int
    rows: list[int]
    validation_rows: list[int]
    addresses: list[str]
    port: int
    start_seconds: float
    steps: dict[str, int] = field(default_factory=dict)
    even: bool = True


class Events:
    """Writes events to the parent, from any thread."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    def send(self, event: str, **values: Any) -> None:
        """Write one event; if nobody listens any more, the end of standard input is about to say so."""
        with self._lock:
            try:
                self._stream.write(json.dumps({"event": event, **values}) + "\n")
                self._stream.flush()
            except OSError:
                pass


def run(job: Job, events: Events) -> None:
    """Train as `job` says and send "done" with what every run came to."""
    import jax

    from sparkdl.classes import CLASSES, install
    from sparkdl.training.data.batches import even_shares
    from sparkdl.training.group.balance import shared_shard
    from sparkdl.training.group.joining import join
    from sparkdl.training.options import Training
    from sparkdl.training.resumption import Share
    from sparkdl.training.together import train_all
    from sparkdl.weights import write_weights

    jax.config.update("jax_enable_x64", job.trainings[0].get("dtype") == "float64")
    joining = time.perf_counter()
    mesh = join(job.rank, job.addresses, job.port, job.start_seconds)
    directory = Path(job.directory)
    if (directory / CLASSES).exists():  # read now, as constants of theirs may be JAX's, of which joining is to be first
        install((directory / CLASSES).read_bytes())
    plans = [Training.from_json(training) for training in job.trainings]
    shares = []
    for name, held in ((TRAINING, job.rows), (VALIDATION, job.validation_rows)):
        rows = even_shares(held) if job.even else tuple(held)
        shard = shared_shard(directory / name, held, rows, job.rank, mesh)
        shares.append(Share([shard.padded_to(job.steps)], rows, job.rank))
    events.send("joined", seconds=time.perf_counter() - joining, device=mesh.devices.flat[job.rank].device_kind)
    report = (lambda message: events.send("progress", **message)) if job.rank == 0 else None
    initial = [_initial(directory / INITIAL.format(number)) for number in range(len(plans))]
    results = train_all(plans, shares[0], shares[1], mesh, report, initial)
    if job.rank == 0:
        write_weights(directory / WEIGHTS, {str(number): run.weights for number, run in enumerate(results)})
    if len(job.addresses) > 1:
        jax.distributed.shutdown()
    told = [
        {
            "history": [epoch._asdict() for epoch in result.history],
            "compile_seconds": result.compile_seconds,
            "training_seconds": result.seconds - result.compile_seconds,
            "events": result.events,
            "ending": asdict(result.ending()),
        }
        for result in results
    ]
    events.send("done", runs=told)


def _initial(path: Path) -> dict[str, Any] | None:
    """The weights to start from, if there are any."""
    from sparkdl.weights import read_weights

    return read_weights(path) if path.exists() else None


def main(directory: str) -> None:
    """Read the job, run it, and stay until ended: Python's own farewell could wait for a peer that is gone."""
    call_process(PROCESS_NAME)
    events = Events(os.fdopen(os.dup(1), "w"))
    os.dup2(2, 1)
    threading.Thread(target=_beat, args=(events,), daemon=True).start()
    try:
        import sparkdl.training.together  # noqa: F401  # the slow imports, while the parent still reads rows

        events.send("ready", at=time.time())
        line = sys.stdin.readline()
        if not line:
            _end(directory)
        threading.Thread(target=_end_with_parent, args=(directory,), daemon=True).start()
        pulse.beat()
        run(Job(**json.loads(line)), events)
    except BaseException as error:
        traceback.print_exc()
        sys.stderr.flush()
        events.send("error", type=_kind(error), message=f"{error}{place_of(error)}")
    threading.Event().wait()  # for the parent, which ends this process, or for its death, after which we clean up


def call_process(name: str) -> None:
    """Give this process the name that Linux's `ps` and `top` are to show, of at most 15 characters."""
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text(name)


def _kind(error: BaseException) -> str:
    """Name of the exception's class; a ValueError of sparkdl's tells users all there is to know, others' do not."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    own = frame.f_globals.get("__name__", "").partition(".")[0] == "sparkdl"
    return type(error).__name__ if own or type(error) is not ValueError else "ValueError of a class or library"


def _beat(events: Events) -> None:
    while True:
        events.send("alive", idle=pulse.idle())
        time.sleep(HEARTBEAT_SECONDS)


def _end_with_parent(directory: str) -> None:
    sys.stdin.read()
    _end(directory)


def _end(directory: str) -> NoReturn:
    gone = f"{directory}.gone"  # where the main thread, which works on, puts no more files
    with contextlib.suppress(OSError):
        os.rename(directory, gone)
    shutil.rmtree(gone, ignore_errors=True)
    os._exit(1)


def job_line(job: Job) -> str:
    """The job as the line that `main` reads."""
    return json.dumps(asdict(job)) + "\n"


if __name__ == "__main__":
    main(sys.argv[1])
