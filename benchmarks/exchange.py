"""Step time, bytes and accuracy of every exchange, with 2 workers over slowed networks; and the cost model of them.

    python benchmarks/exchange.py [--quick] [--json FILE] [--data DIR] [--networks NAMES] [--rounds N] [--model [FILE]]

Two processes on a core each, joined as workers of a fit are, in two network namespaces that a pair of veth joins, with
`tc` limiting the rate to 10 Gbit/s, 1 Gbit/s or 100 Mbit/s (and adding a delay where the kernel has netem). Linux and
root are needed for that; elsewhere it is the loopback alone, and says so.

- Steps: all cases take turns of ten steps over batches that stay on the device: a CNN of 0.9 million weights and an
  MLP of 0.8 million on Fashion-MNIST in batches of 256, and the network of TensorFlow's CIFAR-10 tutorial in batches of
  128. The time of an exchange is a step's time less that of a step in which nobody talks (`silent`): packing, network,
  waiting for the other worker, and unpacking. `statistics=True` would not do: every tenth step, which it samples,
  averages always or never, and unpacking lies outside of its stamps.
- Probes: all-reduces of 4 bytes to 4 MiB, one after the other without any compute: latency and rate of the network.
- Learning: the CNN is trained for three epochs by `training.loop.train` with each exchange, over the fastest network.

Figures: `<network>_<trained>_<exchange>_ms` (median of the turns, a step), `..._bytes` (sent by each worker in a step,
as the exchange tells) and `..._wire` (as the network's interface counts, its packets' headers included);
`<network>_probe_<bytes>_ms`; `learn_<exchange>_accuracy` (test rows), `_bytes`, `_ms`. `threshold_bytes_ratio` and
`threshold_sparse_bytes_ratio`: ThresholdSharing's bytes over AllReduce's, of the learning CNN, in bitmap form and as
it is by default; `threshold_bytes_ratio_<trained>` where AllReduce may send factored rows; `threshold_plain_ratio`, the
default's over 4 bytes a weight. `threshold_accuracy_gap`: AllReduce's accuracy less the worse of ThresholdSharing's
two. `averaging_exchange_ratio_<network>`: ParameterAveraging(5)'s time in exchanges over AllReduce's, of the CNN;
`averaging_exchange_ratio` is that at 1 Gbit/s, or what comes closest; `averaging_momentum_exchange_ratio` the same with
momenta averaged too.

`--model` measures nothing: it fits the cost model to a file that `--json` wrote (docs/scaling.json), prints all tables
and renews those of docs/scaling.md.
"""

from __future__ import annotations

import argparse
import json
import signal
import socket
import statistics
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jax
import numpy as np
from contestants.data import data_folder
from contestants.exchange_cases import MODELS, write_rows
from contestants.exchange_link import LOOPBACK, RATES, LinkError, Place, link
from contestants.exchange_report import NETWORKS, PROBED, blocks
from contestants.exchange_tables import TALKING, refreshed
from contestants.exchange_worker import Seat
from contestants.serve import FAREWELL_SECONDS, Spec, Turn
from contestants.turns import ContestantError, Process, available_cores
from reporting import arguments, write

from sparkdl import datasets

DOCS = Path(__file__).parents[1] / "docs"
LEARNERS = [["cnn", name] for name in TALKING if name != "averaging_momentum"]
STEPS = 10
READY_SECONDS, TURN_SECONDS, LEARN_SECONDS = 900.0, 300.0, 1800.0  # deadlines

Case = list[str]


def write_data(folder: Path, directory: Path | None, quick: bool) -> None:
    """Write the rows of all models; Fashion-MNIST from `directory` or, without one, the packaged sample."""
    fashion = datasets.sample() if directory is None else datasets.fashion_mnist(directory)
    images = np.frombuffer(b"".join(fashion["image"].to_pylist()), np.uint8).reshape(-1, 28, 28, 1)
    labels = np.array([datasets.FASHION_CLASSES.index(name) for name in fashion["label"].to_pylist()])
    splits = np.array(fashion["split"].to_pylist())
    for split in ("train", "test"):
        most = 6000 if quick else None
        chosen = np.flatnonzero(splits == split)[:most]
        for model in ("cnn", "mlp"):
            write_rows(folder, model, split, images[chosen], labels[chosen])
    generator = np.random.default_rng(0)  # times do not depend on what CIFAR-10's images show
    write_rows(
        folder, "cifar10", "train", generator.integers(0, 256, (1024, 32, 32, 3), np.uint8), np.arange(1024) % 10
    )


@contextmanager
def pair(
    entry: str, ends: tuple[Place, Place], cases: list[Case], folder: Path, epochs: int = 0
) -> Iterator[list[Process]]:
    """Both workers, ready; they are gone afterwards, whatever happened."""
    cores = available_cores()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        coordinator = f"{ends[0].address}:{probe.getsockname()[1]}"
    processes: list[Process] = []
    try:
        for rank, end in enumerate(ends):
            seat = Seat(rank, end.namespace, end.address, coordinator, cases, epochs)
            spec = Spec(f"exchange_worker:{entry}", [cores[rank % len(cores)]], str(folder), STEPS, asdict(seat))
            processes.append(Process(f"worker {rank}", spec, folder / f"worker_{rank}.log"))
        answers(processes, READY_SECONDS)
        yield processes
    finally:
        for process in processes:
            process.dismiss()
        deadline = time.monotonic() + 2 * FAREWELL_SECONDS
        for process in processes:
            process.close(deadline)


def answers(processes: list[Process], seconds: float) -> list[Turn]:
    """The next answer of each."""
    deadline = time.monotonic() + seconds
    return [process.answer(max(0.0, deadline - time.monotonic())) for process in processes]


def asked(processes: list[Process], seconds: float) -> list[dict[str, float]]:
    """What the first worker tells of a turn; the other one has been there all the while."""
    for process in processes:
        process.ask(STEPS)
    return answers(processes, seconds)[0]["cases"]


def stepped(network: str, ends: tuple[Place, Place], cases: list[Case], folder: Path, rounds: int) -> dict[str, float]:
    """The figures of steps over one network."""
    turns: list[list[dict[str, float]]] = []
    with pair("step", ends, cases, folder) as processes:
        for number in range(rounds):
            turns.append(asked(processes, TURN_SECONDS))
            print(f"{network}: round {number + 1} of {rounds}", file=sys.stderr)
    return {
        f"{network}_{model}_{exchange}_{name}": statistics.median(turn[index][name] for turn in turns)
        for index, (model, exchange) in enumerate(cases)
        for name in turns[0][index]
    }


def learned(ends: tuple[Place, Place], folder: Path, epochs: int) -> dict[str, float]:
    """The figures of learning."""
    with pair("learn", ends, LEARNERS, folder, epochs) as processes:
        found = asked(processes, LEARN_SECONDS)
    print("learning is done", file=sys.stderr)
    cases = zip(LEARNERS, found, strict=True)
    return {f"learn_{exchange}_{name}": value for (_, exchange), own in cases for name, value in own.items()}


def ratios(figures: Mapping[str, float]) -> dict[str, float]:
    """The figures that are made of others."""
    plain = 4 * MODELS["cnn"]().weights
    found = {
        "threshold_bytes_ratio": figures["learn_threshold_bitmap_bytes"] / figures["learn_allreduce_bytes"],
        "threshold_sparse_bytes_ratio": figures["learn_threshold_bytes"] / figures["learn_allreduce_bytes"],
        "threshold_plain_ratio": figures["learn_threshold_bytes"] / plain,
        "threshold_accuracy_gap": figures["learn_allreduce_accuracy"]
        - min(figures["learn_threshold_bitmap_accuracy"], figures["learn_threshold_accuracy"]),
    }
    networks = [name for name in NETWORKS if f"{name}_cnn_silent_ms" in figures]
    for network in networks:
        spent = {
            name: figures[f"{network}_cnn_{name}_ms"] - figures[f"{network}_cnn_silent_ms"]
            for name in ("allreduce", "averaging", "averaging_momentum")
        }
        for name in ("averaging", "averaging_momentum"):
            found[f"{name}_exchange_ratio_{network}"] = spent[name] / spent["allreduce"]
    told = "1gbit" if "1gbit" in networks else networks[0]
    for name in ("averaging", "averaging_momentum"):
        found[f"{name}_exchange_ratio"] = found[f"{name}_exchange_ratio_{told}"]
    for model in MODELS:
        sent = {name: figures.get(f"{told}_{model}_{name}_bytes") for name in ("allreduce", "threshold_bitmap")}
        if model != "cnn" and sent["allreduce"] and sent["threshold_bitmap"]:
            found[f"threshold_bytes_ratio_{model}"] = sent["threshold_bitmap"] / sent["allreduce"]
    return found


def measured(options: argparse.Namespace, folder: Path) -> dict[str, float]:
    """All figures."""
    models = ("cnn",) if options.quick else tuple(MODELS)
    cases = [["probe", str(size)] for size in PROBED]
    cases += [[model, exchange] for model in models for exchange in ("silent", *TALKING)]
    write_data(folder, data_folder(options.data, "the packaged sample is used"), options.quick)
    figures: dict[str, float] = {}
    for network in options.networks:
        try:
            with link(network) as ends:
                if not figures:
                    figures |= learned(ends, folder, options.epochs)
                figures |= stepped(network, ends, cases, folder, options.rounds)
        except LinkError as error:
            print(f"{network} is left out, for this machine does not let us make it: {error}")
    if not figures:
        print("over the machine's loopback instead")
        figures |= learned(LOOPBACK, folder, options.epochs)
        figures |= stepped("loopback", LOOPBACK, cases, folder, options.rounds)
    return figures | ratios(figures)


def parsed() -> argparse.Namespace:
    """The options, with defaults by --quick."""
    parser = arguments(__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--data", type=Path, metavar="DIR", help="folder of Fashion-MNIST's idx files")
    parser.add_argument(
        "--networks", type=lambda text: text.split(","), default=list(RATES), metavar="NAMES", help="only these: a,b"
    )
    parser.add_argument("--rounds", type=int, metavar="N", help="turns of each case (default: 7; quick: 2)")
    parser.add_argument("--epochs", type=int, default=3, metavar="N", help="to learn for (default: 3)")
    parser.add_argument(
        "--model", type=Path, nargs="?", const=DOCS / "scaling.json", metavar="FILE", help="fit to what was measured"
    )
    options = parser.parse_args()
    options.rounds = options.rounds or (2 if options.quick else 7)
    if options.rounds < 1 or options.epochs < 1:
        parser.error("--rounds and --epochs must be at least 1; give larger numbers.")
    for name in options.networks:
        if name not in RATES:
            parser.error(f"--networks names networks, received {name!r}; choose among {', '.join(RATES)}.")
    return options


def show(tables: Mapping[str, str]) -> None:
    """Print all tables."""
    for name, text in tables.items():
        print(f"\n{name}\n\n{text}")


def ended(number: int, frame: Any) -> None:
    """Handle a signal by leaving through everybody's `finally`."""
    sys.exit(128 + number)


def main() -> None:
    """Measure, print, write; or model."""
    options = parsed()
    jax.config.update("jax_platforms", "cpu")  # this process only counts weights
    if options.model:
        tables = blocks(json.loads(options.model.read_text())["figures"])
        show(tables)
        document = DOCS / "scaling.md"
        document.write_text(refreshed(document.read_text(), tables))
        return
    signal.signal(signal.SIGTERM, ended)
    with TemporaryDirectory(prefix="sparkdl-exchange-", ignore_cleanup_errors=True) as folder:
        try:
            figures = measured(options, Path(folder))
        except ContestantError as error:
            sys.exit(str(error))
    show(blocks(figures))
    print()
    for name, value in figures.items():
        print(f"{name} {value:.4f}")
    write(options.json, figures)


if __name__ == "__main__":
    main()
