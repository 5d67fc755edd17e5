"""Epochs, validation and history: trains a network from the shards of one process or of many."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from sparkdl.layers.base import Weights
from sparkdl.losses import Loss, SoftmaxCrossEntropy
from sparkdl.network import Network
from sparkdl.optimizers import SGD, Optimizer
from sparkdl.specs import Spec, check_range
from sparkdl.training.batches import Plan, Rows, Shard, batches, epoch_order, prefetched
from sparkdl.training.compilation import kept_by_every_process
from sparkdl.training.exchange import WORKERS, AllReduce, Exchange, meet
from sparkdl.training.meter import Meter, Report
from sparkdl.training.step import DTYPES, abstract_rows, initial_state, make_score, make_step, place, replicate


@dataclass(frozen=True)
class Training(Spec):
    """What to train and how; every worker of a fit holds the same one.

    Parameters
    ----------
    network : Network
    loss : Loss or str
    optimizer : Optimizer or str
    exchange : Exchange or str
    step_size : float
        Learning rate; the optimizer's schedule multiplies it.
    epochs : int
        Passes over the data; 0 returns the initial weights.
    batch_size : int
        Rows of a step over all workers.
    tol : float
        Stop after an epoch that lowers the objective by less than this part of it; 0 never stops.
    seed : int
        Of initial weights, order of rows, and random layers.
    shuffle : bool
        Whether rows are seen in another order every epoch.
    dtype : str
        What layers compute in: "float32"; "bfloat16", for devices that are faster in it, with weights, loss, sums and
        validation in float32; or "float64" where JAX has it enabled.
    """

    network: Network
    loss: Loss | str = field(default=SoftmaxCrossEntropy(), kw_only=True)
    optimizer: Optimizer | str = field(default=SGD(), kw_only=True)
    exchange: Exchange | str = field(default=AllReduce(), kw_only=True)
    step_size: float = field(default=0.01, kw_only=True)
    epochs: int = field(default=10, kw_only=True)
    batch_size: int = field(default=128, kw_only=True)
    tol: float = field(default=0.0, kw_only=True)
    seed: int = field(default=0, kw_only=True)
    shuffle: bool = field(default=True, kw_only=True)
    dtype: str = field(default="float32", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, family in (("network", Network), ("loss", Loss), ("optimizer", Optimizer), ("exchange", Exchange)):
            object.__setattr__(self, name, family.of(getattr(self, name)))
        for name, least in (("epochs", 0), ("batch_size", 1), ("seed", 0)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ValueError(f"{name} must be an integer of at least {least}, received {value!r}.")
        check_range(self, "(0, inf)", "step_size")
        check_range(self, "[0, inf)", "tol")
        if self.dtype not in DTYPES:
            raise ValueError(f"dtype must be one of {', '.join(DTYPES)}, received {self.dtype!r}.")
        Loss.of(self.loss).check(self.network.output_shape())


class Epoch(NamedTuple):
    """What one pass over the data came to.

    Attributes
    ----------
    loss : float
        Mean over rows, by sample weight, of loss plus regularization, each row under the weights of its step.
    metric : float
        Mean likewise of the loss's metric (accuracy for classification).
    validation_loss, validation_metric : float or None
        The same over the validation rows after the epoch; None without such rows.
    rows : int
        Rows trained on, over all workers.
    seconds, validation_seconds : float
        Wall time of the pass, and of the validation after it.
    """

    loss: float
    metric: float
    validation_loss: float | None
    validation_metric: float | None
    rows: int
    seconds: float
    validation_seconds: float


class Result(NamedTuple):
    """What a training run returns.

    Attributes
    ----------
    weights : nested dict of NumPy arrays
    history : list of Epoch
    compile_seconds : float
        Wall time spent on compiling.
    """

    weights: Weights
    history: list[Epoch]
    compile_seconds: float


def fit(
    network: Network,
    data: tuple[Any, ...],
    *,
    validation: tuple[Any, ...] | None = None,
    devices: int = 1,
    report: Report | None = None,
    **options: Any,
) -> Result:
    """Train a network in this process, without Spark.

    Parameters
    ----------
    network : Network
    data : tuple of arrays
        (features, labels) or (features, labels, weights): features (n, *input_shape); labels (n,) or (n, outputs);
        sample weights (n,), by default 1.
    validation : tuple of arrays, optional
        Rows to score after every epoch.
    devices : int, default 1
        Local devices that share every batch.
    report : callable, optional
        Called with a dict of progress now and then: epoch, epochs, rows, total_rows, loss, metric, seconds.
    **options
        The further fields of `Training`: loss, optimizer, step_size, epochs, batch_size, seed, ...

    Returns
    -------
    Result
        `weights` (NumPy, in the structure of `Network.init`) and `history`.

    Raises
    ------
    ValueError
        The network's output does not fit the loss, the rows do not fit the network, or there are none.

    Examples
    --------
    >>> import numpy as np
    >>> from sparkdl import Network, training
    >>> from sparkdl.layers import Dense, Relu
    >>> x = np.random.default_rng(0).normal(size=(256, 2)).astype("float32")
    >>> network = Network([Dense(16), Relu(), Dense(2)], input_shape=(2,))
    >>> result = training.fit(network, (x, x[:, 0] > 0), optimizer="adam", step_size=0.01, epochs=20)
    >>> result.history[-1].metric > 0.9
    True
    """
    plan = Training(network, **options)
    shards = _shards(plan, data, devices)
    held_out = _shards(plan, validation, devices) if validation is not None else []
    with jax.enable_x64(plan.dtype == "float64"):
        available = jax.local_devices()
        if not 1 <= devices <= len(available):
            raise ValueError(f"devices must be between 1 and the {len(available)} there are, received {devices}.")
        mesh = Mesh(np.array(available[:devices]), (WORKERS,))
        lengths = [tuple(len(shard) for shard in part) for part in (shards, held_out)]
        return train(plan, Share(shards, lengths[0], 0), Share(held_out, lengths[1], 0), mesh, report)


class Share(NamedTuple):
    """What one process holds of the data.

    Attributes
    ----------
    shards : list of Shard
        One for each of its devices.
    lengths : tuple of int
        Rows of every worker of the fit, a worker being a device with a shard.
    first : int
        The number of this process's first worker.
    """

    shards: list[Shard]
    lengths: tuple[int, ...]
    first: int


def train(plan: Training, share: Share, validation: Share, mesh: Mesh, report: Report | None = None) -> Result:
    """Train on this process's share together with the other processes of the mesh, who call this too."""
    rows = sum(share.lengths)
    if not rows:
        raise ValueError("There are no rows to train on; check the data and its filters.")
    network, loss = plan.network, Loss.of(plan.loss)
    schedule = Plan(share.lengths, plan.batch_size)
    scoring = Plan(validation.lengths, plan.batch_size) if sum(validation.lengths) else None
    transformation = Optimizer.of(plan.optimizer).transformation(
        plan.step_size, schedule.steps * plan.epochs, schedule.steps
    )
    exchange = Exchange.of(plan.exchange)
    # Compiled without optimization: random numbers run once, and their code is slow to optimize.
    init = jax.jit(network.init, compiler_options={"xla_backend_optimization_level": 0})
    with kept_by_every_process():
        weights = init(jax.random.key(plan.seed))
    state = replicate(initial_state(network, weights, transformation, exchange), mesh)
    if not plan.epochs:
        return Result(_host(state.weights), [], 0.0)

    started = time.perf_counter()
    batch = abstract_rows(share.shards[0], schedule.rows, mesh)
    step = make_step(network, loss, transformation, exchange, mesh, plan.seed, plan.dtype)
    with kept_by_every_process():
        step = step.lower(state, *batch).compile()
        if scoring:
            batch = abstract_rows(validation.shards[0], scoring.rows, mesh)
            score = make_score(network, loss, mesh).lower(state.weights, *batch).compile()
    if mesh.size > 1:
        meet(mesh)  # lest a worker that was sooner take the others' compiling for a slow first step
    compile_seconds = time.perf_counter() - started

    history: list[Epoch] = []
    for epoch in range(plan.epochs):
        meter = Meter(epoch, plan.epochs, rows, schedule.steps, report)
        with closing(_feed(plan, share, schedule, mesh, epoch if plan.shuffle else None)) as feed:
            for placed in feed:
                state, totals = step(state, *placed)
                meter.add(totals)
        loss_mean, metric = meter.means()
        seconds = meter.seconds()

        held_out = Meter(epoch, plan.epochs, sum(validation.lengths), 0, None)
        if scoring:
            with closing(_feed(plan, validation, scoring, mesh, None)) as feed:
                for placed in feed:
                    held_out.add(score(state.weights, *placed))
        validation_loss, validation_metric = held_out.means() if scoring else (None, None)
        history.append(Epoch(loss_mean, metric, validation_loss, validation_metric, rows, seconds, held_out.seconds()))
        if report:
            report(meter.message() | {"history": history[-1]._asdict()})
        if plan.tol and epoch and history[-2].loss - loss_mean < plan.tol * abs(history[-2].loss):
            break
    return Result(_host(state.weights), history, compile_seconds)


def _shards(plan: Training, arrays: tuple[Any, ...], devices: int) -> list[Shard]:
    """One shard a device, of rows dealt out like cards."""
    features, labels, *weights = arrays
    expected = plan.network.input_shape
    features = np.asarray(features)
    if features.shape[1:] != expected:
        raise ValueError(
            f"The network takes rows of shape {expected}, received {features.shape[1:]}; reshape the features."
        )
    labels = Loss.of(plan.loss).encode(np.asarray(labels), plan.network.output_shape())
    whole = Shard.from_arrays(features, labels, *weights).chunks[0]
    return [Shard([Rows(*(part[device::devices] for part in whole))]) for device in range(devices)]


def _feed(plan: Training, share: Share, steps: Plan, mesh: Mesh, epoch: int | None) -> Generator[Any]:
    """An epoch's batches on the devices; in the order of the rows if `epoch` is None."""
    streams = []
    for worker, shard in enumerate(share.shards, start=share.first):
        order = np.arange(len(shard)) if epoch is None else epoch_order(len(shard), plan.seed, epoch, worker)
        streams.append(batches(shard, steps, worker, order))

    def placed() -> Iterator[Any]:
        for parts in zip(*streams, strict=True):
            rows = parts[0] if len(parts) == 1 else Rows(*(np.concatenate(part) for part in zip(*parts, strict=True)))
            with jax.enable_x64(plan.dtype == "float64"):  # it holds for one thread, and this one is another
                batch = place(rows, mesh)
            yield batch

    return prefetched(placed())


def _host(weights: Any) -> Weights:
    return jax.tree.map(lambda leaf: np.asarray(leaf.addressable_data(0)), weights)
