"""What to train and how: everything about a run that every one of its workers must know."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import jax

from sparkdl.arrays import DTYPES
from sparkdl.contract import check_layers, check_loss
from sparkdl.layers.ragged import step_shape
from sparkdl.losses import Loss, SoftmaxCrossEntropy
from sparkdl.network import BaseNetwork
from sparkdl.objective import Objective
from sparkdl.optimizers import LBFGS, SGD, Optimizer
from sparkdl.specs import Named, Spec, check_range, is_integer
from sparkdl.training.by_layer import begun_at, checked_factors, checked_rests, network_at
from sparkdl.training.checkpoints.checkpoints import Checkpoints
from sparkdl.training.exchanges.all_reduce import AllReduce
from sparkdl.training.exchanges.exchange import Exchange
from sparkdl.training.records.logs import Logs
from sparkdl.training.stopping import EarlyStopping

MOST_ROWS = 2**31 - 1  # of a batch
MOST_SEED = 2**63 - 1
INTEGERS = {"epochs": (0, math.inf), "batch_size": (1, MOST_ROWS), "seed": (0, MOST_SEED), "length_buckets": (1, 64)}


@dataclass(frozen=True)
class Training(Spec):
    """What to train and how; every worker of a fit holds the same one.

    Parameters
    ----------
    network : Network or Graph
    loss : Loss or str, or dict of them
        Of a network with several outputs by output.
    loss_weights : dict of float, optional
        By output, what its mean loss counts in the sum; 1 for those that it does not name.
    optimizer : Optimizer or str
    exchange : Exchange or str
    step_size : float
        Learning rate; the optimizer's schedule multiplies it.
    step_factors : dict of float, optional
        By name of layers, what multiplies their steps, weight decay included; 0 moves nothing. A name stands for the
        layer, or the array, of that path and for all within it; and where names go on with "_" and a number, for these:
        "layer1" for "layer1_0", "layer1_1" and "layer1_1/conv1". Of several names the longest counts.
    unfreeze_after : dict of int, optional
        By name, likewise, for how many epochs layers rest before they begin to learn: until then they are frozen, as by
        `network.frozen`, and no gradient is worked out below the first layer that learns. What the optimizer keeps of
        them starts when they do.
    epochs : int
        Passes over the data; 0 returns the initial weights.
    batch_size : int
        Rows of a step over all workers; `LBFGS` takes all rows there are, and validates by so many.
    tol : float
        Stop after an epoch that lowers the objective by less than this part of it; 0 never stops.
    seed : int
        Of initial weights, order of rows, and random layers.
    shuffle : bool
        Whether rows are seen in another order every epoch.
    dtype : str
        What layers compute in: "float32"; "bfloat16", for devices that are faster in it (GPUs, CPUs with AVX-512 BF16),
        with weights, loss, sums and validation in float32; or "float64" where JAX has it enabled.
    early_stopping : EarlyStopping, optional
    checkpoints : Checkpoints, optional
        Where and how often to save what a later run needs to go on from.
    logs : Logs, optional
        Where and how often to write TensorBoard events.
    length_buckets : int, default 6
        To at most so many lengths the batches of rows of any length are padded, a program each; 1 pads all to the
        longest.
    truncated : int or (int, int), optional
        Back-propagation through time is truncated: rows of any length are gone through in segments of so many steps,
        each from the state that the one before it left, and every segment takes an update of its own (Williams and Peng
        1990). Of a pair, the second is over how many steps a gradient flows back, a divisor of the first; all steps
        count, those beyond it included.
    statistics : bool, default False
        Whether to take down what happens when, for a timeline.
    """

    network: BaseNetwork
    loss: Loss | str | Mapping[str, Loss | str] = field(default=SoftmaxCrossEntropy(), kw_only=True)
    loss_weights: Mapping[str, float] | None = field(default=None, kw_only=True)
    optimizer: Optimizer | str = field(default=SGD(), kw_only=True)
    exchange: Exchange | str = field(default=AllReduce(), kw_only=True)
    step_size: float = field(default=0.01, kw_only=True)
    step_factors: Mapping[str, float] | None = field(default=None, kw_only=True)
    unfreeze_after: Mapping[str, int] | None = field(default=None, kw_only=True)
    epochs: int = field(default=10, kw_only=True)
    batch_size: int = field(default=128, kw_only=True)
    tol: float = field(default=0.0, kw_only=True)
    seed: int = field(default=0, kw_only=True)
    shuffle: bool = field(default=True, kw_only=True)
    dtype: str = field(default="float32", kw_only=True)
    early_stopping: EarlyStopping | None = field(default=None, kw_only=True)
    checkpoints: Checkpoints | None = field(default=None, kw_only=True)
    logs: Logs | None = field(default=None, kw_only=True)
    length_buckets: int = field(default=6, kw_only=True)
    truncated: int | tuple[int, int] | None = field(default=None, kw_only=True)
    statistics: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, family in (("network", BaseNetwork), ("optimizer", Optimizer), ("exchange", Exchange)):
            object.__setattr__(self, name, family.of(getattr(self, name)))
        by_output = isinstance(self.loss, (Mapping, tuple))  # the second of JSON
        losses = Named({name: Loss.of(loss) for name, loss in Named(self.loss).items()}) if by_output else None
        object.__setattr__(self, "loss", losses or Loss.of(self.loss))
        if self.loss_weights is not None:
            object.__setattr__(self, "loss_weights", Named(self.loss_weights))
        for name, kind in (("early_stopping", EarlyStopping), ("checkpoints", Checkpoints), ("logs", Logs)):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, kind.of(value))
        for name, (least, most) in INTEGERS.items():
            value = getattr(self, name)
            if not is_integer(value):
                raise ValueError(f"{name} must be an integer, received {value!r}.")
            if not least <= value <= most:
                bound = f" and at most {most}" if value > most else ""
                raise ValueError(f"{name} must be at least {least}{bound}, received {value}.")
        check_range(self, "(0, inf)", "step_size")
        check_range(self, "[0, inf)", "tol")
        if self.dtype not in DTYPES:
            raise ValueError(f"dtype must be one of {', '.join(DTYPES)}, received {self.dtype!r}.")
        shapes, objective = self.network.output_shapes, self.objective
        objective.check(self.network)
        objective.check_moving(self.network)
        for name, loss in objective.losses.items():
            try:
                check_loss(loss, step_shape(shapes[name]))
            except ValueError as error:
                raise ValueError(f"Output {name!r}: {error}" if objective.several else str(error)) from None
        check_layers(self.network)
        if self.truncated is not None:
            object.__setattr__(self, "truncated", _checked_truncation(self.truncated, self.network))
        optimizer = Optimizer.of(self.optimizer)
        Exchange.of(self.exchange).check(optimizer)
        if isinstance(optimizer, LBFGS):
            self._check_search()
        if optimizer.is_lazy and self.truncated is not None:
            raise ValueError(
                f"lazy=True of {type(optimizer).__name__} lets no row rest where training is truncated, as a segment "
                "moves whole tables; leave one of the two out."
            )
        if optimizer.no_decay:
            optimizer.check(self.network.learned(jax.eval_shape(lambda: self.network.init(0))))
        for name, checked in (("step_factors", checked_factors), ("unfreeze_after", checked_rests)):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, checked(getattr(self, name), self.network))
        stopping = self.early_stopping
        if stopping:
            stopping.falls(stopping.metric_of(objective))
        if stopping and stopping.unit == "step" and not Exchange.of(self.exchange).agrees_after(stopping.every):
            raise ValueError(
                f"EarlyStopping(every={stopping.every}, unit='step') checks when workers hold different weights under "
                f"{self.exchange!r}; choose a multiple of its frequency."
            )

    def _check_search(self) -> None:
        """ValueError if the steps of LBFGS would not be what it takes them for."""
        given = [field for field in ("step_factors", "unfreeze_after", "truncated") if getattr(self, field) is not None]
        weights = jax.eval_shape(lambda: self.network.init(0))
        if not jax.tree.leaves(self.network.learned(weights)):
            raise ValueError(
                "LBFGS expects weights to move, but every layer of the network is frozen or has none; leave one free "
                "to learn, or take another optimizer."
            )
        if self.dtype == "bfloat16":
            given.append("dtype")
        if jax.make_jaxpr(self.network.constrained)(weights).eqns:
            given.append("constraint")
        if given:
            owner = "a layer" if given[0] == "constraint" else "the training"
            raise ValueError(
                f"{given[0]} of {owner} cannot stand beside LBFGS, whose line search compares the objective at points "
                "that it chose itself; leave it out, or take another optimizer."
            )

    @property
    def step_rows(self) -> int:
        """Rows of a step over all workers, at most."""
        return MOST_ROWS if isinstance(self.optimizer, LBFGS) else self.batch_size

    def order_at(self, epoch: int) -> int | None:
        """Of which epoch the order of rows is; None if they stay in theirs, as where a step takes all of them."""
        return epoch if self.shuffle and not isinstance(self.optimizer, LBFGS) else None

    @property
    def segments(self) -> tuple[int, int] | None:
        """Steps of a segment, and over how many of them a gradient flows back, of `truncated`."""
        assert not isinstance(self.truncated, int)
        return self.truncated

    def network_at(self, epoch: int) -> BaseNetwork:
        """The network of an epoch, the first being 0, in which the layers are frozen that rest then."""
        return network_at(self.network, self.unfreeze_after, epoch) if self.unfreeze_after else self.network

    def begun_at(self, epoch: int) -> Mapping[str, int] | None:
        """By name, the layers that have rested and no longer do in that epoch, and for how many epochs they did."""
        return begun_at(self.unfreeze_after, epoch)

    @property
    def objective(self) -> Objective:
        """What is minimised; ValueError if the losses do not go by the network's outputs."""
        return Objective.of(self.loss, self.loss_weights, self.network.output_names)


def _checked_truncation(given: Any, network: BaseNetwork) -> tuple[int, int]:
    """Steps of a segment, and over how many of them a gradient flows back.

    Raises
    ------
    ValueError
        They are none, or the network cannot be trained on segments of its rows.
    """
    pair = tuple(given) if isinstance(given, (tuple, list)) else (given, given)
    integers = len(pair) == 2 and all(map(is_integer, pair))
    if not integers or not 0 < pair[1] <= pair[0] or pair[0] % pair[1]:
        raise ValueError(
            "truncated must be a positive integer, the steps of a segment, or a pair of them and of a divisor, over "
            f"how many steps a gradient flows back, received {given!r}; 64 is a usual start."
        )
    whole = [name for name in network.output_names if name not in network.step_outputs]
    if whole:
        raise ValueError(
            "truncated expects a network that ends in a prediction for each step of rows of any length, received one "
            f"that has a row's for {whole[0]!r}; leave it unset, or end the network in a prediction for each step."
        )
    try:
        network.first_state(1)
    except ValueError as error:
        raise ValueError(f"truncated: {error}") from None
    return pair
