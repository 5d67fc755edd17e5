"""What training minimises: the losses of all outputs, each a mean over the rows that have that output's label."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from sparkdl.arrays import Parts
from sparkdl.layers.ragged import is_ragged
from sparkdl.losses import Loss
from sparkdl.specs import Named

NO_CLASS = -1  # in place of a class where a row has no label; elsewhere that is NaN
SENT, PENALTY, FIRST = 3, 4, 5  # places in totals: bytes sent; of several outputs the penalty, then three of each


@dataclass(frozen=True)
class Workers:
    """Those of a compiled step, over whose axis of the mesh a batch is split; None for one that is alone.

    Attributes
    ----------
    axis : str or None
    """

    axis: str | None = None

    @property
    def count(self) -> int:
        """How many there are."""
        return lax.axis_size(self.axis) if self.axis else 1

    def gather(self, rows: Any) -> Any:
        """Arrays of rows of all workers, in their order."""
        if not self.axis:
            return rows
        return jax.tree.map(lambda array: lax.all_gather(array, self.axis, tiled=True), rows)

    def own(self, array: Array) -> Array:
        """This worker's rows of such an array."""
        if not self.axis:
            return array
        size = len(array) // self.count
        return lax.dynamic_slice_in_dim(array, lax.axis_index(self.axis) * size, size)


@dataclass(frozen=True)
class Objective:
    """The sum over outputs of weight times mean loss; hashes and compares by value.

    A row without an output's label is as if it were not there for that output. Of one output, every row has a label,
    and the mean is over all of them.

    Attributes
    ----------
    losses : Named of Loss
        By output, in the order of the network's; none of a network that only scores.
    weights : Named of float
        By output.
    """

    losses: Named
    weights: Named

    @classmethod
    def of(cls, loss: Any, weights: Mapping[str, float] | None, outputs: tuple[str, ...]) -> Objective:
        """That of what a user gives: a loss of the only output, or a mapping by output.

        Raises
        ------
        ValueError
            An output has none, something that is no output has one, or a weight is below 0.
        """
        if not isinstance(loss, Mapping):
            if len(outputs) > 1:
                raise ValueError(
                    f"loss must be a dict by output, {', '.join(map(repr, outputs))}, received {loss!r}; name one for "
                    "each."
                )
            loss = {outputs[0]: loss}
        if loss.keys() != set(outputs):
            raise ValueError(
                f"loss must have one for each of {', '.join(map(repr, outputs))}, received some for "
                f"{', '.join(map(repr, loss)) or 'none'}."
            )
        given = dict(weights or {})
        for name, weight in given.items():
            if name not in outputs:
                raise ValueError(f"loss_weights names {name!r}; the outputs are {', '.join(map(repr, outputs))}.")
            number = isinstance(weight, (int, float)) and not isinstance(weight, bool)
            if not number or not 0 <= weight < np.inf:
                raise ValueError(f"loss_weights must be finite and at least 0, received {weight!r} for {name!r}.")
        losses = Named({name: Loss.of(loss[name]) for name in outputs})
        return cls(losses, Named({name: float(given.get(name, 1.0)) for name in outputs}))

    @property
    def several(self) -> bool:
        """Whether there are several outputs."""
        return len(self.losses) > 1

    @property
    def whole_batch(self) -> bool:
        """Whether a loss looks at all rows of a batch at once."""
        return any(loss.whole_batch for loss in self.losses.values())

    @property
    def size(self) -> int:
        """Numbers in `totals`, that of the bytes sent among them."""
        return FIRST + 3 * len(self.losses) if self.several else SENT + 1

    @property
    def summed(self) -> int:
        """Numbers in `totals` before the bytes sent are known."""
        return self.size if self.several else SENT

    @property
    def metric(self) -> str:
        """What the metric of the only output is; "metric" of several, which have one each."""
        return "metric" if self.several else next(iter(self.losses.values())).metric

    @property
    def metrics(self) -> dict[str, str]:
        """What the metrics of several outputs are, by output; none of one output."""
        return {name: loss.metric for name, loss in self.losses.items()} if self.several else {}

    def encode(self, labels: Parts, shapes: Mapping[str, tuple[int, ...]]) -> Parts:
        """Labels as `delta` takes them, checked on the host: as of `Loss.encode`; rows that lack one are marked.

        Parameters
        ----------
        labels : dict of arrays (n,) or (n, outputs)
            By output; of several outputs NaN where a row has no label.
        shapes : dict of tuple of int
            Of a row of every output.

        Raises
        ------
        ValueError
            As `Loss.encode`; the message names the output where there are several.
        """
        if not self.several:
            return {name: loss.encode(labels[name], shapes[name]) for name, loss in self.losses.items()}
        encoded = {}
        for name, loss in self.losses.items():
            values = np.asarray(labels[name])
            known = ~np.isnan(values.astype(np.float64)).any(axis=tuple(range(1, values.ndim)))
            try:
                found = loss.encode(values[known], shapes[name])
            except ValueError as error:
                raise ValueError(f"Output {name!r}: {error}") from None
            missing = NO_CLASS if found.dtype.kind == "i" else np.nan
            encoded[name] = np.full((len(values), *found.shape[1:]), missing, found.dtype)
            encoded[name][known] = found
        return encoded

    def check(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """ValueError when outputs of these shapes of rows cannot be trained; see `Loss.check`."""
        for name, loss in self.losses.items():
            try:
                if is_ragged(shapes[name]):
                    raise ValueError(
                        f"the network gives {shapes[name]}, a prediction for every step, which no loss takes yet; end "
                        "it in one vector of a row, by LastStep, TimeMean or TimeMax."
                    )
                loss.check(shapes[name])
            except ValueError as error:
                raise ValueError(f"Output {name!r}: {error}" if self.several else str(error)) from None

    def check_rows_alone(self, method: str) -> None:
        """ValueError from a method that takes rows by themselves, if a loss compares those of a batch."""
        for loss in self.losses.values():
            if loss.whole_batch:
                raise ValueError(
                    f"{method} takes rows by themselves, but {type(loss).__name__} compares the rows of a batch; see "
                    "validation_loss in the summary."
                )

    def to_json(self) -> dict[str, Any]:
        """As plain JSON."""
        return {
            "losses": [[name, loss.to_json()] for name, loss in self.losses.items()],
            "weights": dict(self.weights),
        }

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> Objective:
        """The inverse."""
        losses = {name: Loss.from_json(loss) for name, loss in plain["losses"]}
        return cls(Named(losses), Named({name: plain["weights"][name] for name in losses}))

    def losses_of_rows(self, y: Parts, labels: Parts) -> Parts:
        """The loss of every row by output, NaN where it lacks that label; of several their weighted sum, too, by ""."""
        found = {}
        for name, loss in self.losses.items():
            found[name] = loss.losses(y[name], loss.targets(y[name], labels[name]))
        if not self.several:
            return found
        known = {name: self._weights(labels[name], jnp.ones_like(own)) > 0 for name, own in found.items()}
        total = sum(weight * jnp.where(known[name], found[name], 0) for name, weight in self.weights.items())
        return {name: jnp.where(known[name], own, jnp.nan) for name, own in found.items()} | {"": total}

    def predictions(self, y: Parts) -> Parts:
        """What the outputs mean to a user, by output: see `Loss.predict`; without a loss, themselves."""
        return {name: self.losses[name].predict(own) if name in self.losses else own for name, own in y.items()}

    # In the compiled step. y, labels: arrays by output.

    def shares(self, labels: Parts, row_weights: Array, add_up: Callable[[Array], Array]) -> Parts:
        """By output what a row's loss counts, so that all are to be divided by the sum of row weights only.

        Parameters
        ----------
        labels : dict of arrays
        row_weights : Array (batch,)
            Of all rows of this worker's step, not of a part of them.
        add_up : callable
            The sum over workers.
        """
        if not self.several:
            return {}
        own = [row_weights.sum(), *(self._weights(labels[name], row_weights).sum() for name in self.losses)]
        total, *each = add_up(jnp.stack(own))
        return {
            name: weight * jnp.where(labelled > 0, total / jnp.where(labelled > 0, labelled, 1), 0)
            for (name, weight), labelled in zip(self.weights.items(), each, strict=True)
        }

    def delta(self, y: Parts, labels: Parts, row_weights: Array, shares: Parts, workers: Workers) -> Parts:
        """The derivative by y of the sum over rows of weight times loss."""
        found = {}
        for name, loss in self.losses.items():
            weights = self._weights(labels[name], row_weights) * shares[name] if self.several else row_weights
            given = y[name], _as_labels(labels[name], y[name]), weights
            if loss.whole_batch:
                found[name] = workers.own(loss.delta(*workers.gather(given)))
            else:
                found[name] = loss.delta(*given)
        return found

    def totals(self, y: Parts, labels: Parts, row_weights: Array, shares: Mapping[str, Any], workers: Workers) -> Array:
        """Sums over rows: of weight times loss, weight times metric, and weight; of several outputs, see `size`."""
        each = []
        for name, loss in self.losses.items():
            own = self._weights(labels[name], row_weights)
            given, count = (y[name], _as_labels(labels[name], y[name]), own), 1
            if loss.whole_batch:  # of all rows, of which each worker then has an equal part
                given, count = workers.gather(given), workers.count
            each.append((loss.value(*given) / count, loss.metric_sum(*given) / count, own.sum()))
        if not self.several:
            return jnp.stack(each[0])
        objective = sum(shares[name] * loss for name, (loss, _, _) in zip(self.losses, each, strict=True))
        nothing = jnp.zeros_like(row_weights.sum())
        numbers = [objective, nothing, row_weights.sum(), nothing, nothing, *(number for own in each for number in own)]
        return jnp.stack(numbers)

    def penalized(self, totals: Array, penalty: Any) -> Array:
        """Totals whose loss has what regularization adds to every row's."""
        added = totals.at[0].add(penalty * totals[2])
        return added.at[PENALTY].add(penalty * totals[2]) if self.several else added

    def with_sent(self, totals: Array, sent: Array) -> Array:
        """Totals with the bytes sent, an array (1,)."""
        return totals.at[SENT].set(sent[0]) if self.several else jnp.concatenate([totals, sent])

    def _weights(self, labels: Array, row_weights: Array) -> Array:
        """Those of the rows that have this label, 0 for others."""
        if not self.several:
            return row_weights
        if jnp.issubdtype(labels.dtype, jnp.integer):
            known = labels != NO_CLASS
        else:
            known = ~jnp.isnan(labels).any(axis=tuple(range(1, labels.ndim)))
        return jnp.where(known, row_weights, 0)


def _as_labels(labels: Array, outputs: Array) -> Array:
    return labels if jnp.issubdtype(labels.dtype, jnp.integer) else labels.astype(outputs.dtype)
