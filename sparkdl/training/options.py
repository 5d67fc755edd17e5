"""What to train and how: everything about a run that every one of its workers must know."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from sparkdl.arrays import DTYPES
from sparkdl.contract import check_layers, check_loss
from sparkdl.losses import Loss, SoftmaxCrossEntropy
from sparkdl.network import BaseNetwork
from sparkdl.optimizers import SGD, Optimizer
from sparkdl.specs import Spec, check_range
from sparkdl.training.checkpoints.checkpoints import Checkpoints
from sparkdl.training.exchanges.all_reduce import AllReduce
from sparkdl.training.exchanges.exchange import Exchange
from sparkdl.training.records.logs import Logs
from sparkdl.training.stopping import EarlyStopping

MOST_ROWS = 2**31 - 1  # of a batch
MOST_SEED = 2**63 - 1


@dataclass(frozen=True)
class Training(Spec):
    """What to train and how; every worker of a fit holds the same one.

    Parameters
    ----------
    network : Network or Graph
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
    early_stopping : EarlyStopping, optional
    checkpoints : Checkpoints, optional
        Where and how often to save what a later run needs to go on from.
    logs : Logs, optional
        Where and how often to write TensorBoard events.
    statistics : bool, default False
        Whether to take down what happens when, for a timeline.
    """

    network: BaseNetwork
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
    early_stopping: EarlyStopping | None = field(default=None, kw_only=True)
    checkpoints: Checkpoints | None = field(default=None, kw_only=True)
    logs: Logs | None = field(default=None, kw_only=True)
    statistics: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, family in (
            ("network", BaseNetwork),
            ("loss", Loss),
            ("optimizer", Optimizer),
            ("exchange", Exchange),
        ):
            object.__setattr__(self, name, family.of(getattr(self, name)))
        for name, kind in (("early_stopping", EarlyStopping), ("checkpoints", Checkpoints), ("logs", Logs)):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, kind.of(value))
        for name, least, most in (("epochs", 0, math.inf), ("batch_size", 1, MOST_ROWS), ("seed", 0, MOST_SEED)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool):
                raise ValueError(f"{name} must be an integer, received {value!r}.")
            if not least <= value <= most:
                bound = f" and at most {most}" if value > most else ""
                raise ValueError(f"{name} must be at least {least}{bound}, received {value}.")
        check_range(self, "(0, inf)", "step_size")
        check_range(self, "[0, inf)", "tol")
        if self.dtype not in DTYPES:
            raise ValueError(f"dtype must be one of {', '.join(DTYPES)}, received {self.dtype!r}.")
        if len(names := self.network.output_names) > 1:
            raise ValueError(
                f"network must have one output to be trained, received one with {', '.join(map(repr, names))}; cut it "
                "by up_to."
            )
        loss, outputs = Loss.of(self.loss), self.network.output_shape()
        loss.check(outputs)
        check_loss(loss, outputs)
        check_layers(self.network)
        Exchange.of(self.exchange).check(Optimizer.of(self.optimizer))
        stopping = self.early_stopping
        if stopping:
            stopping.falls(loss.metric)
        if stopping and stopping.unit == "step" and not Exchange.of(self.exchange).agrees_after(stopping.every):
            raise ValueError(
                f"EarlyStopping(every={stopping.every}, unit='step') checks when workers hold different weights under "
                f"{self.exchange!r}; choose a multiple of its frequency."
            )
