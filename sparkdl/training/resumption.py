"""What a checkpoint holds of a run: how far it is, the arrays it goes on from, and by what it is told from others."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

import sparkdl
from sparkdl.classes import own_classes
from sparkdl.layers.base import Weights
from sparkdl.optimizers import Optimizer
from sparkdl.training.checkpoints.own_code import code_of
from sparkdl.training.data.batches import Shard
from sparkdl.training.data.placing import local_workers, spread
from sparkdl.training.exchanges.exchange import Exchange
from sparkdl.training.group.collectives import gather_from_all
from sparkdl.training.options import Training
from sparkdl.training.results import Epoch
from sparkdl.training.step.state import State
from sparkdl.weights import named_arrays, nested_weights

Arrays = dict[str, np.ndarray[Any, Any]]


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


@dataclass
class Position:
    """How far a run is.

    Attributes
    ----------
    epoch, step : int
        Epochs that are done, and steps of the next one.
    history : list of Epoch
    sums, checked : list of float
        Totals (see `Meter.sums`) of the epoch under way, and what they were at the last check of early stopping.
    seconds, epoch_seconds : float
        Of training so far, and of the epoch under way.
    stopped : str or None
        Why the run has ended early.
    late : bool
        Whether that was for want of time.
    stopper : dict or None
        Of early stopping.
    """

    sums: list[float]
    checked: list[float]
    epoch: int = 0
    step: int = 0
    history: list[Epoch] = field(default_factory=list)
    seconds: float = 0.0
    epoch_seconds: float = 0.0
    stopped: str | None = None
    late: bool = False
    stopper: dict[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """As plain JSON."""
        plain = {entry.name: getattr(self, entry.name) for entry in dataclasses.fields(self)}
        return plain | {"history": [epoch._asdict() for epoch in self.history]}

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> Position:
        """The inverse."""
        return cls(**plain | {"history": [Epoch(**epoch) for epoch in plain["history"]]})


def to_arrays(state: State, held: Weights | None, best: Weights | None, exchange: Exchange, mesh: Mesh) -> Arrays:
    """Copies of all arrays that a run goes on from; every process of the mesh calls this, one wants them.

    That one has on the host, `held`, what its first worker holds of the weights, and changes it no more; others give
    None. What is equal on all workers is kept once. The rest, being each worker's own, is gathered.
    """
    differ = State._fields if not exchange.synchronous else ("optimizer", "exchange")[not exchange.sharded :]
    own = gather_from_all({name: getattr(state, name) for name in differ}, mesh)
    if held is None:
        return {}
    same = {"weights": jax.tree.map(lambda array: array[None], held)}
    kept = jax.tree.map(
        lambda leaf: leaf if isinstance(leaf, np.ndarray) else np.array(leaf.addressable_data(0)),
        state._replace(**same | own),
    )
    arrays = {f"state/{index}": leaf for index, leaf in enumerate(jax.tree.leaves(kept))}
    return arrays | {f"best/{name}": array for name, array in named_arrays(best or {})}


def from_arrays(arrays: Arrays, state: State, first: int, mesh: Mesh) -> tuple[State, Weights | None]:
    """The state and best weights again; `state` is one of the same structure, `first` this process's first worker."""
    own = slice(first, first + local_workers(mesh))
    leaves, structure = jax.tree.flatten(state)
    restored = [
        spread(np.broadcast_to(arrays[f"state/{index}"], leaf.shape)[own], mesh) for index, leaf in enumerate(leaves)
    ]
    best = {name.removeprefix("best/"): array for name, array in arrays.items() if name.startswith("best/")}
    return jax.tree.unflatten(structure, restored), nested_weights(best) if best else None


class Fingerprint(NamedTuple):
    """By what a run is told from others.

    Attributes
    ----------
    digest : str
        Of all that decides what the run comes to, but for where it ends.
    unknown : list of str
        What else does, in code of the user's own, as `Code.unknown` has it.
    """

    digest: str
    unknown: list[str]


def fingerprint(plan: Training, shares: tuple[Share, Share], initial: Weights | None, mesh: Mesh) -> Fingerprint:
    """That of a run; every process of the mesh calls this."""
    stopping = plan.early_stopping and dataclasses.replace(plan.early_stopping, max_seconds=None)
    same = dataclasses.replace(plan, early_stopping=stopping, epochs=0, checkpoints=None, logs=None, statistics=False)
    start = hashlib.sha256()
    for name, array in named_arrays(initial or {}):
        start.update(name.encode() + np.ascontiguousarray(array).tobytes())
    digests = [[shard.digest() for shard in share.shards] or [0] * local_workers(mesh) for share in shares]
    code = code_of({found for _, found in own_classes(plan)})
    facts = {
        "training": same.to_json(),
        "rows": [share.lengths for share in shares],
        "shapes": [[part.dtype.str, *part.shape[1:]] for part in shares[0].shards[0].chunks[0].each().values()],
        "digests": gather_from_all(spread(np.array(digests, np.uint32).T, mesh), mesh).tolist(),
        "initial": start.hexdigest(),
        "epochs": plan.epochs if Optimizer.of(plan.optimizer).looks_ahead() else None,
        "code": code.digest,
        "versions": [sparkdl.__version__, jax.__version__],
    }
    return Fingerprint(hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest(), code.unknown)
