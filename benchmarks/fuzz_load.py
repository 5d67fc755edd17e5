"""Loads mutated copies of saved stages and counts what comes of it: each is refused in a sentence or is what was saved.

    python benchmarks/fuzz_load.py [--cases N] [--seed S] [--quick] [--json FILE]

The mutations are those of `tests/fuzz/mutations.py`: damaged bytes, files and JSON, forged ones with right digests,
pickles and modules that leave a mark when they run. Stages are loaded in processes of 1,000 cases; Spark hands over
the bytes of every tenth case, of the others they are read from the disk as they are, which is faster.
Figures: `tried`; `executed` (cases by which anything of the directory ran), `crashed` (the process or its JVM died, or
took more than a minute), `silently_wrong` (loaded, but with other weights, Params or network than were saved) and
`unexplained` (an error that is no sentence naming the directory), which should all be 0; and of those tried `refused`,
`same` (the mutation changed nothing that matters) and `forged` (digests of its own making, and the weights they tell).
Each failure is printed with its seed: `--seed S --cases 1` repeats it.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from reporting import arguments, write

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "fuzz"))

CASES, QUICK = 10_000, 300
CASES_OF_A_PROCESS = 1000
SPARK_EVERY = 10
CASE_SECONDS, START_SECONDS = 60.0, 300.0
FIGURES = ("tried", "executed", "crashed", "silently_wrong", "unexplained", "refused", "same", "forged")
NAMES = {"WRONG": "silently_wrong", "UNEXPLAINED": "unexplained"}


def load_each(folder: Path, seeds: range) -> None:
    """Print one line a case: seed, what was done, verdict, and whether anything ran; in a process of its own."""
    from mutations import MUTATIONS
    from verdicts import cases, contents, names, save, trap

    from sparkdl.spark import local_session
    from sparkdl.spark.saving import persistence

    session = local_session("local[1]", **{"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": 1})
    session.sparkContext.setLogLevel("OFF")  # it tells of every damaged file
    if not (folder / "stage").exists():
        save(folder)
    mark = trap(folder)
    print("ready", flush=True)
    through_spark = persistence._contents, persistence._files
    for seed in seeds:
        by_spark = seed % SPARK_EVERY == 0
        persistence._contents, persistence._files = through_spark if by_spark else (contents, names)  # type: ignore
        ((_, what, verdict),) = cases(folder, MUTATIONS, range(seed, seed + 1))
        ran = mark.exists()
        if ran:
            mark.rmdir()
        print(seed, what, " ".join(verdict.split()), "executed" if ran else "-", sep="\t", flush=True)
    session.stop()


def supervise(folder: Path, seeds: range) -> Counter[str]:
    """What came of these cases, in as many processes as it takes to get past those that crash."""
    counts: Counter[str] = Counter()
    while seeds:
        part = seeds[:CASES_OF_A_PROCESS]
        command = [sys.executable, __file__, "--child", str(folder), str(part.start), str(part.stop)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        done = None
        for line in lines(process):
            seed, what, verdict, ran = line.split("\t")
            done = int(seed)
            kind = verdict.split(":")[0]
            counts.update({"tried": 1, NAMES.get(kind, kind): 1, "executed": int(ran == "executed")})
            if kind in NAMES or ran == "executed":
                print(f"seed {seed}: {what}: {verdict} {ran}", flush=True)
            if counts["tried"] % 500 == 0:
                print(f"{counts['tried']} tried", flush=True)
        process.kill()
        process.wait()
        reached = part.start - 1 if done is None else done
        if reached < part.stop - 1:
            reached += 1
            counts.update(tried=1, crashed=1)
            print(f"seed {reached}: the process died or hung", flush=True)
        seeds = seeds[reached + 1 - seeds.start :]
    return counts


def lines(process: subprocess.Popen[bytes]) -> Iterator[str]:
    """What the process prints after "ready", until it ends or is silent for too long."""
    assert process.stdout is not None
    seconds, waiting = START_SECONDS, b""
    while select.select([process.stdout], [], [], seconds)[0]:
        read = os.read(process.stdout.fileno(), 1 << 16)
        if not read:
            return
        *whole, waiting = (waiting + read).split(b"\n")
        for line in whole:
            if line != b"ready":
                yield line.decode()
        seconds = CASE_SECONDS


def main() -> None:
    """Mutate, load, count, write."""
    if sys.argv[1:2] == ["--child"]:
        return load_each(Path(sys.argv[2]), range(int(sys.argv[3]), int(sys.argv[4])))
    parser = arguments(__doc__)
    parser.add_argument("--cases", type=int, metavar="N", help=f"how many ({CASES:,}, and {QUICK} with --quick)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="of the first case; the next has the next")
    options = parser.parse_args()
    count = options.cases or (QUICK if options.quick else CASES)
    os.environ.setdefault("PJRT_NPROC", "1")
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        counts = supervise(Path(folder), range(options.seed, options.seed + count))
    for name in FIGURES:
        print(f"{name} {counts[name]}")
    write(options.json, {name: float(counts[name]) for name in FIGURES})


if __name__ == "__main__":
    main()
