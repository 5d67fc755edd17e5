"""Kills processes of fits at random moments and counts what comes of it: every fit should complete, bit for bit.

    python benchmarks/chaos.py [--kills N] [--seed S] [--executors | --cluster] [--quick] [--json FILE]

In each round, two workers train on local[3] with checkpoints, and one process is ended by SIGKILL: a worker's child
process or the Python worker that Spark started for it, or, with --executors, an executor's JVM on
local-cluster[2,1,1024]. The moment is uniform over the time that an undisturbed fit takes. Where nothing of the kind
lives then, another is drawn; a fit that ends before it is struck does not count. Figures: `kills`, `completed` (fits
that gave a model), `identical` (to the undisturbed fit in every bit), `resumed` (from a checkpoint), `orphans` and
`files_left` (processes and folders of workers, and unfinished checkpoints, that were there 10 seconds after a fit).

With --cluster fits train on hosts that are really apart (network namespaces, as root), and what befalls them is drawn
from `KINDS` of contestants/cluster_chaos.py: a killed training process or executor, a host or the driver cut off for 20
seconds, or a host for good. Figures: `strikes`, `completed`, `identical`, and `slowest_s`, the longest that a fit took.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import tempfile
import threading
import time
import warnings
from collections import Counter
from glob import glob
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from contestants import cluster_chaos
from pyspark.sql import DataFrame, SparkSession
from reporting import arguments, write

from sparkdl import DeepClassificationModel, DeepClassifier, Network, datasets
from sparkdl.launch.fork_server import SERVER_NAME, WARDEN_NAME
from sparkdl.layers import Dense, Dropout, Flatten, Relu, Rescale
from sparkdl.spark import local_session
from sparkdl.training.worker import PROCESS_NAME
from sparkdl.weights import named_arrays

LAYERS = [Rescale(1 / 255), Flatten(), Dense(64), Relu(), Dropout(0.2), Dense(10)]
CHILD, DAEMON, EXECUTOR = PROCESS_NAME, "\0sparkdl.spark.daemon\0", "CoarseGrainedExecutorBackend"
LEFT_SECONDS = 10.0  # in which what a fit leaves may go


def dataset(session: SparkSession) -> DataFrame:
    """The 5,000 training images of the packaged sample, cached: image and class."""
    table = datasets.sample()
    table = table.filter(pc.field("split") == "train")
    classes = np.array([datasets.FASHION_CLASSES.index(name) for name in table["label"].to_pylist()])
    rows = session.createDataFrame(pa.table({"features": table["image"], "label": classes})).cache()
    rows.count()
    return rows


def classifier(checkpoints: Path) -> DeepClassifier:
    """What is fitted, in 4 to 8 seconds."""
    return DeepClassifier(
        network=Network(LAYERS, input_shape=(28, 28, 1)),
        optimizer="adam",
        stepSize=0.001,
        batchSize=64,
        maxIter=15,
        numWorkers=2,
        progress="off",
        checkpointDir=str(checkpoints),
        checkpointUnit="step",
        checkpointInterval=20,
    )


def processes() -> dict[int, tuple[int, str, str]]:
    """Parent's id, name and command of every descendant of this process, by its id."""
    known: dict[int, tuple[int, str, str]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if fields[0] != "Z":  # it has ended
                name, command = ((folder / part).read_text() for part in ("comm", "cmdline"))
                known[int(folder.name)] = int(fields[1]), name.strip(), command
        except OSError:
            continue

    def descends(pid: int) -> bool:
        return pid == os.getpid() or (pid in known and descends(known[pid][0]))

    return {pid: known[pid] for pid in known if descends(known[pid][0])}


def victims(kind: str) -> list[int]:
    """Ids of the living processes of a kind: "child", "worker" or "executor"."""
    there = processes()
    if kind == "child":
        return [pid for pid, (_, name, _) in there.items() if name == CHILD]
    if kind == "executor":
        return [pid for pid, (_, _, command) in there.items() if EXECUTOR in command]
    forks = {pid: parent for pid, (parent, _, command) in there.items() if DAEMON in command}
    daemons = set(forks) - {pid for pid, parent in forks.items() if parent in forks}
    return [pid for pid, (parent, name, _) in there.items() if parent in daemons and name != SERVER_NAME]


def orphans(scratch: Path) -> list[str]:
    """Worker processes of this run's sessions and their wardens, whoever is their parent now."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if (folder / "comm").read_text().strip() in (CHILD, WARDEN_NAME) and (
                str(scratch).encode() in (folder / "environ").read_bytes()
            ):
                found.append(folder.name)
        except OSError:
            continue
    return found


def files(scratch: Path) -> list[str]:
    """Folders of workers and unfinished checkpoints."""
    patterns = [f"{scratch}/**/sparkdl-*", f"{scratch}/**/.sparkdl-*.tmp"]
    return [path for pattern in patterns for path in glob(pattern, recursive=True)]


class Killer(threading.Thread):
    """Ends one process at a random moment within so many seconds; `hit` is its kind, or None if there was none left."""

    def __init__(self, seconds: float, kinds: list[str], chance: random.Random) -> None:
        super().__init__(daemon=True)
        self._seconds, self._kinds, self._chance = seconds, kinds, chance
        self._over = threading.Event()
        self.hit: str | None = None
        self.moment = 0.0

    def run(self) -> None:
        """Wait, strike; draw again if there is nobody to strike."""
        began = time.monotonic()
        while not self._over.wait(self._chance.uniform(0, max(0.1, self._seconds - (time.monotonic() - began)))):
            kind = self._chance.choice(self._kinds)
            living = victims(kind)
            if not living:
                continue
            try:
                os.kill(self._chance.choice(living), signal.SIGKILL)
            except ProcessLookupError:
                continue
            self.hit, self.moment = kind, time.monotonic() - began
            return

    def end(self) -> None:
        """Strike no more."""
        self._over.set()
        self.join()


def bits(model: DeepClassificationModel) -> dict[str, bytes]:
    """A model's weights, as bytes by path."""
    return {name: array.tobytes() for name, array in named_arrays(model.weights)}


def left(scratch: Path) -> tuple[int, int]:
    """How many orphans and files there are still after some seconds."""
    deadline = time.monotonic() + LEFT_SECONDS
    while (counts := (len(orphans(scratch)), len(files(scratch)))) != (0, 0) and time.monotonic() < deadline:
        time.sleep(0.1)
    return counts


def rounds(
    rows: DataFrame, kills: int, chance: random.Random, kinds: list[str], scratch: Path
) -> tuple[Counter[str], Counter[str]]:
    """Strike fits until `kills` of them were hit; what came of them, and how often each kind was."""
    classifier(scratch / "first").setMaxIter(1).fit(rows)  # the JVM's first job is its slowest
    started = time.monotonic()
    expected = bits(classifier(scratch / "undisturbed").fit(rows))
    seconds = time.monotonic() - started
    print(f"an undisturbed fit takes {seconds:.1f} s", flush=True)
    counts: Counter[str] = Counter(dict.fromkeys(("kills", "completed", "identical", "resumed"), 0))
    hits: Counter[str] = Counter()
    while counts["kills"] < kills:
        checkpoints = scratch / "struck"
        shutil.rmtree(checkpoints, ignore_errors=True)
        killer = Killer(seconds, kinds, chance)
        killer.start()
        model, said, started = None, "", time.monotonic()
        try:
            model = classifier(checkpoints).fit(rows)
        except Exception as error:  # every way to fail counts
            said = f"{type(error).__name__}: {str(error).splitlines()[0]}"
        killer.end()
        if killer.hit is None:
            continue
        took = time.monotonic() - started
        processes_left, files_left = left(scratch)
        same = model is not None and bits(model) == expected
        resumed = model is not None and model.summary.resumedFrom is not None
        counts.update(kills=1, completed=int(model is not None), identical=int(same), resumed=int(resumed))
        counts.update(orphans=processes_left, files_left=files_left)
        hits[killer.hit] += 1
        outcome = said or ("identical" if same else "OTHER WEIGHTS") + (" after resuming" if resumed else "")
        trace = f", left {processes_left} processes and {files_left} files" if processes_left or files_left else ""
        print(
            f"{counts['kills']:>4}  {killer.hit:<9}at {killer.moment:5.2f} s, {took:5.1f} s: {outcome}{trace}",
            flush=True,
        )
    return counts, hits


def main() -> None:
    """Strike, count, write."""
    parser = arguments(__doc__)
    parser.add_argument("--kills", type=int, metavar="N", help="how many (50, and 3 with --quick)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="of moments and victims")
    parser.add_argument("--executors", action="store_true", help="kill executors too, on a cluster of two")
    parser.add_argument("--cluster", action="store_true", help="strike hosts that are really apart; takes root")
    options = parser.parse_args()
    kills = options.kills or (3 if options.quick else 50)
    warnings.filterwarnings("ignore", ".*were left out, as writing was slower than training")
    if options.cluster:
        with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
            show(cluster_chaos.run(kills, random.Random(options.seed), Path(folder)), options.json)
        return
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        os.environ["SPARK_LOCAL_DIRS"] = folder
        settings: dict[str, Any] = {"spark.ui.enabled": False, "spark.sql.shuffle.partitions": 2}
        if options.executors:
            settings |= {"spark.executor.memory": "1g", "spark.deploy.maxExecutorRetries": -1}
            settings |= {"spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "1s"}
        session = local_session("local-cluster[2,1,1024]" if options.executors else "local[3]", **settings)
        session.sparkContext.setLogLevel("OFF")  # it tells of every death
        kinds = ["child", "worker", *["executor"] * options.executors]
        counts, hits = rounds(dataset(session), kills, random.Random(options.seed), kinds, Path(folder))
        session.stop()
    figures = {name: float(counts[name]) for name in ("kills", "completed", "identical", "resumed")}
    figures |= {name: float(counts[name]) for name in ("orphans", "files_left")}
    figures |= {f"kills_of_{kind}": float(hits[kind]) for kind in kinds}
    show(figures, options.json)


def show(figures: dict[str, float], file: Path | None) -> None:
    """Print and write them."""
    for name, value in figures.items():
        print(f"{name} {value:.0f}")
    write(file, figures)


if __name__ == "__main__":
    main()
