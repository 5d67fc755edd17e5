"""What training minimises: the losses of all outputs, each a mean over the rows that have that output's label."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from sparkdl.arrays import Parts
from sparkdl.decoding.labels import LabelPart, MaskLayout
from sparkdl.decoding.layout import Layout
from sparkdl.decoding.ragged_rows import RaggedRows
from sparkdl.layers.augmentation import RandomImageLayer
from sparkdl.layers.moving import moves_of, moving_layers
from sparkdl.layers.ragged import Ragged, is_ragged, step_shape, values_of
from sparkdl.layers.steps import cut, rejoined, step_weights, steps_of
from sparkdl.losses import Loss
from sparkdl.losses.positions import NO_CLASS
from sparkdl.specs import Named

if TYPE_CHECKING:
    from sparkdl.base_network import BaseNetwork

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
    and the mean is over all of them. Of an output that has a prediction for each step of rows of any length, a step
    that has a label counts as a row: the mean is over those of all rows of all workers.

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

    def encode(self, labels: Parts, shapes: Mapping[str, tuple[int, ...]], optional: bool = False) -> Parts:
        """Labels as `delta` takes them, checked on the host: as of `Loss.encode`; rows that lack one are marked.

        Parameters
        ----------
        labels : dict of arrays (n,) or (n, outputs), or of RaggedRows of such
            By output; of several outputs NaN where a row has no label, and of any where a step has none.
        shapes : dict of tuple of int
            Of a row of every output.
        optional : bool, default False
            Whether a row may lack the label of an only output, too.

        Raises
        ------
        ValueError
            As `Loss.encode`; the message names the output where there are several.
        """
        encoded: Parts = {}
        for name, loss in self.losses.items():
            own, shape = labels[name], shapes[name]
            try:
                if is_ragged(shape):
                    encoded[name] = RaggedRows(_encoded(loss, own.values, shape[1:]), own.lengths, own.steps)
                elif self.several or optional:
                    encoded[name] = _encoded(loss, np.asarray(own), shape)
                else:
                    encoded[name] = loss.encode(own, shape)
            except ValueError as error:
                raise ValueError(f"Output {name!r}: {error}" if self.several else str(error)) from None
        return encoded

    def label_parts(
        self, columns: Mapping[str, str], network: BaseNetwork, layouts: Mapping[str, Layout]
    ) -> dict[str, LabelPart]:
        """How to read the labels of columns whose names are given by output; `layouts` are those of the features."""
        shapes, follows, found = network.output_shapes, network.step_outputs, {}
        for name, column in columns.items():
            loss, shape = self.losses[name], step_shape(shapes[name])
            mask = None if name in follows else loss.mask_shape(shape)
            found[name] = LabelPart(
                column,
                loss.labels_a_row(shape),
                optional=self.several,
                follows=follows.get(name, ""),
                group=loss.label_group,
                mask=mask and MaskLayout.beside(layouts, column, mask),
            )
        return found

    def check(self, network: BaseNetwork) -> None:
        """ValueError when the outputs of a network have no labels that it could learn from; see `Loss.check`."""
        shapes, follows = network.output_shapes, network.step_outputs
        for name, loss in self.losses.items():
            try:
                if follows.get(name) == "":
                    raise ValueError(
                        "Labels for each step need rows as long as those of an input, but the network leaves steps "
                        "out; end it in one vector of a row, by LastStep, TimeMean or TimeMax, or take rows of any "
                        "length without padding in place of Masking or MaskedEmbedding."
                    )
                if is_ragged(shapes[name]) and loss.whole_batch:
                    raise ValueError(
                        f"{type(loss).__name__} compares the rows of a batch, but the network gives {shapes[name]}, a "
                        "prediction for every step; end it in one vector of a row, by LastStep, TimeMean or TimeMax."
                    )
                loss.check(step_shape(shapes[name]))
            except ValueError as error:
                raise ValueError(f"Output {name!r}: {error}" if self.several else str(error)) from None

    def check_moving(self, network: BaseNetwork) -> None:
        """ValueError when labels that name places cannot follow what layers of the network move in training."""
        shapes = network.output_shapes
        for (name, loss), exit in zip(self.losses.items(), network.exits, strict=True):
            if is_ragged(shapes[name]) or not loss.names_places(shapes[name]):
                continue
            layers = moving_layers(network, exit)
            sizes = network.path_shapes(list(layers))
            for path, layer in layers.items():
                subject = f"Layer {path!r} ({type(layer).__name__})"
                if type(layer).move is RandomImageLayer.move:
                    raise ValueError(
                        f"{subject} shows another part of the image, which the labels of {type(loss).__name__} cannot "
                        "follow; vary images by RandomFlip and RandomAffine, or cut rows and labels before."
                    )
                try:
                    loss.check_moved(shapes[name], sizes[path][:2], layer.beyond)
                except ValueError as error:
                    raise ValueError(f"{subject} {error}") from None

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
        """The loss of every row by output, NaN where it lacks that label; of several their weighted sum, too, by "".

        Of an output with a label for each step those of the steps, Ragged; in the sum their mean over a row counts.
        """
        found: Parts = {}
        means, known = {}, {}
        for name, loss in self.losses.items():
            own = _as_long(labels[name], y[name])
            outputs, targets = _by_row(y[name], own)
            losses = loss.losses(outputs, loss.targets(outputs, targets))
            have = self._weights(own, jnp.ones(len(values_of(y[name])), losses.dtype)) > 0
            if isinstance(y[name], Ragged):
                losses = jnp.where(have, losses, jnp.nan)
                found[name], each = rejoined(losses, y[name]), cut(have, y[name])
                sums = jnp.where(each, cut(losses, y[name]), 0).sum(axis=1)
                have, losses = each.any(axis=1), sums / jnp.maximum(each.sum(axis=1), 1).astype(sums.dtype)
            else:
                found[name] = jnp.where(have, losses, jnp.nan) if self.several else losses
            means[name], known[name] = losses, have
        if not self.several:
            return found
        total = sum(weight * jnp.where(known[name], means[name], 0) for name, weight in self.weights.items())
        return found | {"": total}

    def predictions(self, y: Parts) -> Parts:
        """What the outputs mean to a user, by output: see `Loss.predict`; without a loss, themselves."""
        return {name: self._predicted(name, own) for name, own in y.items()}

    # In the compiled step. y, labels: arrays by output.

    def follow(self, labels: Parts, y: Parts, network: BaseNetwork, kept: Any) -> Parts:
        """Labels that name places as they are after what layers moved, as `train_forward` kept it; others as given."""
        found = dict(labels)
        for (name, loss), exit in zip(self.losses.items(), network.exits, strict=True):
            shape = values_of(y[name]).shape[1:]
            if loss.names_places(shape) and not isinstance(y[name], Ragged):
                for move in moves_of(network, exit, kept):
                    found[name] = loss.moved(found[name], shape, move)
        return found

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
            own = _as_long(labels[name], y[name])
            weights = self._weights(own, row_weights)
            given = *_by_row(y[name], own), weights * shares[name] if self.several else weights
            if loss.whole_batch:
                found[name] = workers.own(loss.delta(*workers.gather(given)))
            elif isinstance(y[name], Ragged):
                found[name] = cut(loss.delta(*given), y[name])
            else:
                found[name] = loss.delta(*given)
        return found

    def totals(self, y: Parts, labels: Parts, row_weights: Array, shares: Mapping[str, Any], workers: Workers) -> Array:
        """Sums over rows: of weight times loss, weight times metric, and weight; of several outputs, see `size`."""
        each = []
        for name, loss in self.losses.items():
            truth = _as_long(labels[name], y[name])
            own = self._weights(truth, row_weights)
            given, count = (*_by_row(y[name], truth), own), 1
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

    def _predicted(self, name: str, y: Any) -> Any:
        if name not in self.losses:
            return y
        predict = self.losses[name].predict
        return rejoined(predict(steps_of(y)), y) if isinstance(y, Ragged) else predict(y)

    def _weights(self, labels: Any, row_weights: Array) -> Array:
        """Those of the rows that have this label, 0 for others; of labels for each step, those of all steps."""
        if isinstance(labels, Ragged):
            row_weights, labels = step_weights(row_weights, labels), steps_of(labels)
        elif not self.several:
            return row_weights
        return jnp.where(without_label(labels), 0, row_weights)


def without_label(labels: Any) -> Any:
    """Of each row of an encoded array, NumPy's or JAX's, whether it has no label, at none of its positions."""
    missing = labels == NO_CLASS if np.issubdtype(labels.dtype, np.integer) else labels != labels  # NaN
    return missing.all(axis=tuple(range(1, labels.ndim)))


def read_losses(text: str) -> Loss | dict[str, Loss]:
    """The loss, or that of every output, from the JSON that the Param `loss` holds."""
    found = json.loads(text)
    if isinstance(found.get("type"), str):
        return Loss.from_json(found)
    return {name: Loss.from_json(loss) for name, loss in found.items()}


def _encoded(loss: Loss, labels: Any, shape: tuple[int, ...]) -> Any:
    """As `Loss.encode`, but that some labels may be missing, which are NaN."""
    known = ~np.isnan(labels.astype(np.float64)).any(axis=tuple(range(1, labels.ndim)))
    found = loss.encode(labels[known], shape)
    missing = NO_CLASS if found.dtype.kind == "i" else np.nan
    encoded = np.full((len(labels), *found.shape[1:]), missing, found.dtype)
    encoded[known] = found
    return encoded


def _as_long(labels: Any, outputs: Any) -> Any:
    """Labels for each step padded to as many steps as the outputs, which are enough; others as they are.

    Batches pad labels to the steps of the longest of all inputs, of which the outputs may follow another.
    """
    if not isinstance(labels, Ragged):
        return labels
    return replace(labels, values=labels.values[:, : outputs.values.shape[1]])


def _by_row(outputs: Any, labels: Any) -> tuple[Array, Array]:
    """(outputs, labels), of steps as rows where there is one of each for every step."""
    if isinstance(outputs, Ragged):
        outputs, labels = steps_of(outputs), steps_of(labels)
    return outputs, _as_labels(labels, outputs)


def _as_labels(labels: Array, outputs: Array) -> Array:
    return labels if jnp.issubdtype(labels.dtype, jnp.integer) else labels.astype(outputs.dtype)
