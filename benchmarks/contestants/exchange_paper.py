"""Tables of the exchange benchmark: what the cost model says of more workers than were measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

from contestants.exchange_model import Sizes, Worker, exchange_seconds, step_seconds
from contestants.exchange_tables import NAMES, TALKING, table
from contestants.ours import NETWORK as TUTORIAL

from sparkdl import Network, models
from sparkdl.layers import Conv, Dense, Flatten, MaxPool, Relu
from sparkdl.weights import count_weights

FORMS = ("allreduce", "tree", *TALKING[1:])  # a tree is on paper only
EVERY_STEP = ("allreduce", "allreduce_bfloat16", "threshold_bitmap", "threshold")  # of those there are
ON_PAPER = {"1 Gbit/s": 1e9, "10 Gbit/s": 1e10, "100 Gbit/s": 1e11}
WORKERS = (8, 64, 256, 1024)
ROWS = {"LeNet": 128, "CIFAR-10 tutorial": 128, "ResNet-50": 32}  # of each worker
BATCH = 1024  # of all workers, where the batch stays
# Assumed: ResNet-50 at a thousand rows a second, messages between GPUs' network cards, six passes over the weights.
GPU = Worker(25e12, latency=20e-6, byte=0.0, waiting=0.02, handling=dict.fromkeys(TALKING, 6 * 4 / 2e12))


@cache
def sizes() -> dict[str, Sizes]:
    """Of the networks on paper."""
    lenet = [Conv(20, (5, 5)), MaxPool(2), Conv(50, (5, 5)), MaxPool(2), Flatten(), Dense(500), Relu(), Dense(10)]
    networks = {
        "LeNet": Network(lenet, input_shape=(28, 28, 1)),
        "CIFAR-10 tutorial": TUTORIAL,
        "ResNet-50": models.resnet50(),
    }
    return {
        name: Sizes(count_weights(network.abstract_weights()), 6.0 * network.multiply_adds())
        for name, network in networks.items()
    }


Cell = Callable[[Sizes, int, float, Worker, str], str]


def paper_table(kinds: Mapping[str, Worker], cell: Cell) -> str:
    """A cell for each kind of worker, network trained, number of workers, and rate."""
    rows = [
        [kind, name, str(count), *(cell(own, count, rate, worker, name) for rate in ON_PAPER.values())]
        for kind, worker in kinds.items()
        for name, own in sizes().items()
        for count in WORKERS
    ]
    return table(["worker", "network trained", "workers", *ON_PAPER], rows)


def growing(own: Sizes, count: int, rate: float, worker: Worker, name: str) -> str:
    """Time of a step, and how much more rows a second, with `ROWS` of every worker."""
    alone = step_seconds(own, ROWS[name], 1, rate, worker, "allreduce")
    seconds = step_seconds(own, ROWS[name], count, rate, worker, "allreduce")
    return f"{written(seconds)}, x{count * alone / seconds:,.4g}, {alone / seconds:.0%}"


def staying(own: Sizes, count: int, rate: float, worker: Worker, name: str) -> str:
    """Time of a step, and how much faster, with `BATCH` rows of all workers."""
    alone = step_seconds(own, BATCH, 1, rate, worker, "allreduce")
    seconds = step_seconds(own, BATCH / count, count, rate, worker, "allreduce")
    faster = alone / seconds
    return f"{written(seconds)}, x{faster:.3g}, {faster / count:.0%}" if faster > 1 else "one machine"


def fastest(own: Sizes, count: int, rate: float, worker: Worker, name: str) -> str:
    """Of the exchanges that talk in every step the quickest, and its step over AllReduce's, `ROWS` of every worker."""
    times = {form: step_seconds(own, ROWS[name], count, rate, worker, form) for form in EVERY_STEP}
    best = min(times, key=lambda form: times[form])
    share = times[best] / times["allreduce"]
    return f"{NAMES[best]}, {share:.2f}" if share < 0.95 else "AllReduce()"


def forms_table(kinds: Mapping[str, Worker]) -> str:
    """Time that each exchange takes of a step, for more and more workers."""
    cases = [("core", "CIFAR-10 tutorial", "1 Gbit/s"), ("GPU", "ResNet-50", "10 Gbit/s")]
    counts = (2, *WORKERS)
    rows = [
        [
            f"{kind}, {name}, {rate}",
            NAMES[form],
            *(written(exchange_seconds(sizes()[name].weights, n, ON_PAPER[rate], kinds[kind], form)) for n in counts),
        ]
        for kind, name, rate in cases
        for form in FORMS
        if form == "tree" or form in kinds["core"].handling  # which is of what was measured
    ]
    return table(["", "exchange", *(f"{count} workers" for count in counts)], rows)


def best_counts_table(kinds: Mapping[str, Worker]) -> str:
    """With how many workers, of 1, 2, 4, ..., a step of `BATCH` rows is shortest, and how much faster than with one."""
    rows = []
    for kind, worker in kinds.items():
        for name, own in sizes().items():
            row = []
            for rate in ON_PAPER.values():
                times = {
                    count: step_seconds(own, BATCH / count, count, rate, worker, "allreduce")
                    for count in (2**power for power in range(11))
                }
                best = min(times, key=lambda count: times[count])
                row.append(f"{best}, x{times[1] / times[best]:.3g}" if best > 1 else "one machine")
            rows.append([kind, name, *row])
    return table(["worker", "network trained", *ON_PAPER], rows)


def written(seconds: float) -> str:
    """ "8.2 ms", "1.3 s"."""
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"
