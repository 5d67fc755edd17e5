"""The cost model of exchanges: what a step takes by compute, bytes and latency; fitted, and told for more workers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from contestants.exchange_link import RATES
from scipy.optimize import nnls

from sparkdl.training.exchanges.exchange import gathered_bytes, ring_bytes

FREQUENCY = 5  # of parameter averaging


class Sizes(NamedTuple):
    """What the cost of a step depends on of a network.

    Attributes
    ----------
    weights : int
    operations : float
        Floating-point operations of forward and backward, a row.
    """

    weights: int
    operations: float


@dataclass(frozen=True)
class Worker:
    """What a worker costs beside the network's own bits.

    Attributes
    ----------
    operations : float
        Floating-point operations of forward and backward a second.
    latency : float
        Seconds of each of the rounds that an exchange consists of.
    byte : float
        Seconds of each byte sent, as of its copies; the network's come on top.
    waiting : float
        For the slowest worker wherever they meet, as a part of a step's compute.
    handling : dict
        By exchange, seconds for each weight handled (see `handled`).
    sparse : float
        Bytes of a sparse message over those of the plain gradient.
    """

    operations: float
    latency: float
    byte: float
    waiting: float
    handling: Mapping[str, float]
    sparse: float = 1 / 256


def meetings(exchange: str) -> float:
    """How often in a step all workers wait for the slowest."""
    return 1 / FREQUENCY if exchange.startswith("averaging") else 1.0


def rounds(exchange: str, workers: int) -> float:
    """Messages that have to follow one another in a step."""
    if exchange == "tree":
        return 2 * math.ceil(math.log2(workers))
    if exchange.startswith("threshold"):
        return workers - 1
    return 2 * (workers - 1) * meetings(exchange)


def travelled(exchange: str, weights: int, workers: int, sparse: float) -> float:
    """Bytes that each worker sends in a step."""
    gradient = 4 * weights
    if exchange == "threshold_bitmap":
        return gathered_bytes(gradient / 16, workers)
    if exchange == "threshold":
        return gathered_bytes(gradient * sparse, workers)
    parts = {"allreduce_bfloat16": 2, "averaging": FREQUENCY, "averaging_momentum": FREQUENCY / 2}
    return ring_bytes(gradient / parts.get(exchange, 1), workers)


def handled(exchange: str, weights: int, workers: int) -> float:
    """Weights that a worker packs and unpacks in a step, in units of what it does with 2 workers.

    Threshold sharing encodes once and decodes its own message and that of every worker, each at about the same price.
    """
    if exchange.startswith("threshold"):
        return weights * (workers + 2) / 4
    return weights * meetings(exchange)


def exchange_seconds(weights: int, workers: int, rate: float, worker: Worker, exchange: str) -> float:
    """Seconds that an exchange takes of a step over a network of `rate` bits a second."""
    if workers == 1:
        return 0.0
    price = worker.handling["allreduce" if exchange == "tree" else exchange]
    sent = travelled(exchange, weights, workers, worker.sparse)
    seconds = rounds(exchange, workers) * worker.latency + sent * (8 / rate + worker.byte)
    return seconds + handled(exchange, weights, workers) * price


def step_seconds(sizes: Sizes, rows: float, workers: int, rate: float, worker: Worker, exchange: str) -> float:
    """Seconds of a step of `rows` rows a worker."""
    compute = sizes.operations * rows / worker.operations
    if workers > 1:
        compute *= 1 + worker.waiting * meetings(exchange)
    return compute + exchange_seconds(sizes.weights, workers, rate, worker, exchange)


class Observation(NamedTuple):
    """A case that was measured with 2 workers.

    Attributes
    ----------
    network, model, exchange : str
    weights : int
    sent : float
        Bytes that each worker sent in a step.
    silent, seconds : float
        Of a step without exchange, and with this one.
    """

    network: str
    model: str
    exchange: str
    weights: int
    sent: float
    silent: float
    seconds: float


@dataclass(frozen=True)
class Fitted:
    """Constants of the model, fitted to observations.

    Attributes
    ----------
    latency, byte : dict
        By network, seconds of a round and of a byte, the bits on the wire included.
    waiting : float
        See `Worker`.
    handling : dict
        By exchange, seconds a weight.
    predicted : list of float
        Seconds of a step, for each observation.
    """

    latency: dict[str, float]
    byte: dict[str, float]
    waiting: float
    handling: dict[str, float]
    predicted: list[float]


def fitted(observations: Sequence[Observation]) -> Fitted:
    """The constants, none of them negative, that leave the least sum of squared relative errors of the steps' times."""
    networks = list(dict.fromkeys(case.network for case in observations))
    exchanges = list(dict.fromkeys(case.exchange for case in observations))
    wires = 2 * len(networks)
    matrix = np.zeros((len(observations), wires + len(exchanges) + 1))
    for row, case in zip(matrix, observations, strict=True):
        place = 2 * networks.index(case.network)
        row[place : place + 2] = rounds(case.exchange, 2), case.sent
        row[wires + exchanges.index(case.exchange)] = handled(case.exchange, case.weights, 2)
        row[-1] = meetings(case.exchange) * case.silent
    silent, seconds = (np.array([getattr(case, name) for case in observations]) for name in ("silent", "seconds"))
    scaled = matrix / seconds[:, None]
    units = np.maximum(scaled.max(axis=0), 1e-300)  # constants of seconds and of picoseconds are solved for alike
    constants = nnls(scaled / units, np.maximum(0.0, (seconds - silent) / seconds))[0] / units
    return Fitted(
        dict(zip(networks, constants[:wires:2].tolist(), strict=True)),
        dict(zip(networks, constants[1:wires:2].tolist(), strict=True)),
        float(constants[-1]),
        dict(zip(exchanges, constants[wires:-1].tolist(), strict=True)),
        (silent + matrix @ constants).tolist(),
    )


def core(fit: Fitted, operations: float, sparse: float) -> Worker:
    """A worker like those measured: latency and bytes are those of the fastest network, less its bits."""
    fastest = max(fit.byte, key=lambda network: RATES.get(network, math.inf))
    rate = RATES.get(fastest, math.inf)
    return Worker(
        operations, fit.latency[fastest], max(0.0, fit.byte[fastest] - 8 / rate), fit.waiting, fit.handling, sparse
    )
