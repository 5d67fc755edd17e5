"""Training in one process, without Spark."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from operator import itemgetter
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from sparkdl.arrays import FEATURES, INTEGERS, Array, Parts
from sparkdl.decoding.ragged_rows import RaggedRows, check_steps, common_steps, numbers_of
from sparkdl.layers.base import Shape, Weights
from sparkdl.layers.ragged import Ragged, is_ragged
from sparkdl.network import BaseNetwork
from sparkdl.specs import is_integer
from sparkdl.training.data.batches import Shard, check_numbers, check_weights, lost_digits
from sparkdl.training.exchanges.exchange import WORKERS
from sparkdl.training.loop import Share, train
from sparkdl.training.options import Training
from sparkdl.training.records.meter import Report
from sparkdl.training.results import Result


def fit(
    network: BaseNetwork,
    data: tuple[Any, ...],
    *,
    validation: tuple[Any, ...] | None = None,
    devices: int = 1,
    report: Report | None = None,
    initial: Weights | None = None,
    **options: Any,
) -> Result:
    """Train a network in this process, without Spark.

    Parameters
    ----------
    network : Network or Graph
    data : tuple of arrays
        (features, labels) or (features, labels, weights): features (n, *input_shape); labels (n,) or (n, outputs);
        sample weights (n,), by default 1. Features and labels may be mappings by name: {"features": ...} and
        {"label": ...}; of a Graph they go by its inputs and outputs. Of several outputs, NaN in place of a label says
        that a row has none, which counts nothing there. Rows of any length are a list of lists or arrays, or Ragged,
        and so are labels where the network ends in a prediction for each step; NaN is a step without a label.
    validation : tuple of arrays, optional
        Rows to score after every epoch.
    devices : int, default 1
        Local devices that share every batch.
    report : callable, optional
        Called with a dict of progress now and then: epoch, epochs, rows, total_rows, loss, metric, seconds.
    initial : nested dict of arrays, optional
        Weights to start from, as of another run; layers they lack start fresh.
    **options
        The further fields of `Training`: loss, optimizer, exchange, step_size, epochs, batch_size, seed,
        early_stopping, checkpoints, logs, ...

    Returns
    -------
    Result
        `weights` (NumPy, in the structure of `BaseNetwork.init`), `history`, and why it stopped.

    Raises
    ------
    ValueError
        The network's output does not fit the loss, the rows do not fit the network, there are none, or no epoch
        stayed finite.

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
    available = jax.local_devices()
    if not is_integer(devices, 1, len(available)):
        raise ValueError(f"devices must be an integer from 1 to the {len(available)} there are, received {devices!r}.")
    shards = _shards(plan, data, devices)
    held_out = _shards(plan, validation, devices, "validation rows") if validation is not None else []
    steps = common_steps(shard.longest for shard in (*shards, *held_out))
    shards, held_out = ([shard.padded_to(steps) for shard in part] for part in (shards, held_out))
    with jax.enable_x64(plan.dtype == "float64"):
        mesh = Mesh(np.array(available[:devices]), (WORKERS,))
        lengths = [tuple(len(shard) for shard in part) for part in (shards, held_out)]
        began = time.perf_counter()
        result = train(plan, Share(shards, lengths[0], 0), Share(held_out, lengths[1], 0), mesh, report, initial)
        if result.failure:
            raise ValueError(result.failure)
        labels = [own for shard in shards for own in shard.chunks[0].labels.values()]
        lost = next(filter(None, (lost_digits(own, plan.dtype) for own in labels)), None)
        notes = (
            [f"Labels hold {lost}; subtract a start from them and scale them, or set dtype to float64."] if lost else []
        )
        return replace(result, seconds=time.perf_counter() - began, notes=[*notes, *result.notes])


def _shards(plan: Training, arrays: tuple[Any, ...], devices: int, which: str = "rows") -> list[Shard]:
    """One shard a device, of rows dealt out like cards."""
    if not isinstance(arrays, (tuple, list)) or len(arrays) not in (2, 3):
        given = f"{len(arrays)} of them" if isinstance(arrays, (tuple, list)) else type(arrays).__name__
        raise ValueError(
            f"The {which} must be a tuple (features, labels) or (features, labels, weights), received {given}."
        )
    network, (features, labels, *weights) = plan.network, arrays
    features = features if isinstance(features, Mapping) else {FEATURES: features}
    labels = labels if isinstance(labels, Mapping) else {network.output_names[0]: labels}
    _check_names("features", features, network.input_shapes)
    _check_names("labels", labels, network.output_names)
    features = {name: _rows(features[name], shape, name) for name, shape in network.input_shapes.items()}
    for name in network.input_shapes:
        if name in network.integers and features[name].dtype.kind not in "iu":
            raise ValueError(
                f"The network takes {name!r} as integers, received {features[name].dtype}; cast it to {INTEGERS}."
            )
    for name, limit in network.limits.items():
        numbers = numbers_of(features[name])
        outside = (numbers < 0) | (numbers >= limit)
        if outside.any():
            raise ValueError(
                f"{name!r} must hold categories from 0 to {limit - 1}, the rows of the network's table "
                f"{network.tables[name]!r}, received {numbers[outside][0]}; index them so, give the layer more "
                "rows, or unknown=True."
            )
    for name in network.integers:
        numbers, held = numbers_of(features[name]), np.iinfo(INTEGERS)
        outside = (numbers < held.min) | (numbers > held.max)
        if outside.any():
            raise ValueError(
                f"{name!r} must hold integers that {INTEGERS} holds, received {numbers[outside][0]}; number the "
                "categories from 0."
            )
    for name, most in network.most_steps.items():
        if (received := features[name].longest) > most:
            raise ValueError(
                f"{name!r} must hold at most {most} steps a row, as many as the network's positions tell apart, "
                f"received {received}; cut rows before, or raise the length of LearnedPositions."
            )
    labels = plan.objective.encode(_labels(labels, features, network), network.output_shapes)
    shard = Shard.from_arrays(features, labels, *weights)
    whole = shard.chunks[0]
    check_weights(check_numbers(whole, plan.dtype), len(shard), which)
    dealt = [slice(device, None, devices) for device in range(devices)]
    return [Shard([jax.tree.map(itemgetter(chosen), whole)]) for chosen in dealt]


def _rows(given: Any, shape: Shape, name: str) -> Any:
    """The part of the features of that name, of rows of this shape; ValueError if they have another."""
    if is_ragged(shape):
        given = _unpadded(given, repr(name)) if isinstance(given, Ragged) else given
        return _numeric(RaggedRows.of(given, shape[1:], repr(name)), repr(name))
    rows = _numeric(np.asarray(given), repr(name))
    if rows.shape[1:] != shape:
        raise ValueError(
            f"The network takes rows of shape {shape} as {name!r}, received {rows.shape[1:]}; reshape the features."
        )
    return rows


def _numeric(rows: Any, subject: str, remedy: str = "cast it") -> Any:
    """The rows; ValueError if what they hold are no numbers."""
    if not np.can_cast(rows.dtype, np.float64, "same_kind"):
        raise ValueError(f"{subject} must hold numbers, received {rows.dtype}; {remedy}.")
    return rows


def _labels(given: Mapping[str, Any], features: Parts, network: BaseNetwork) -> Parts:
    """The labels as arrays; those for each step as RaggedRows, as long as the rows of the input that they follow."""
    found: Parts = {}
    for name, own in given.items():
        if name not in network.step_outputs:
            found[name] = _numeric(np.asarray(own), f"labels {name!r}", "number the classes from 0, or cast it")
            continue
        rows = _unpadded(own, f"labels {name!r}") if isinstance(own, Ragged) else own
        step = next((np.asarray(row).shape[1:] for row in rows if np.size(row)), ())
        found[name] = _numeric(RaggedRows.of(rows, step, f"labels {name!r}"), f"labels {name!r}")
        check_steps(found[name].lengths, features[network.step_outputs[name]].lengths, f"labels {name!r}")
    return found


def _unpadded(rows: Ragged, subject: str) -> list[Array]:
    """A row each; ValueError if one would have more steps than there are."""
    values, lengths = np.asarray(rows.values), np.asarray(rows.lengths)
    wrong = lengths[(lengths < 0) | (lengths > values.shape[1])]
    if len(wrong):
        raise ValueError(
            f"lengths of {subject} must be from 0 to the {values.shape[1]} steps there are, received {wrong[0]}."
        )
    return [row[:length] for row, length in zip(values, lengths, strict=True)]


def _check_names(what: str, received: Mapping[str, Any], expected: Collection[str]) -> None:
    if received.keys() != set(expected):
        raise ValueError(
            f"{what} must have the names {', '.join(map(repr, expected))}, received "
            f"{', '.join(map(repr, received)) or 'none'}; name what the network reads."
        )
