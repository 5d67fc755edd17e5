"""A network that forecasts: of the past of a series it makes numbers, or quantiles of them, for steps to come."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sparkdl.graph import Graph
from sparkdl.layers import (
    Add,
    Concatenate,
    Embedding,
    Flatten,
    LastStep,
    Layer,
    Lstm,
    Normalization,
    Parallel,
    Permute,
    RepeatStep,
    RepeatVector,
    Reshape,
    Scale,
    Subset,
    Subtract,
    TemporalConvNet,
)
from sparkdl.models.categories import vector_size
from sparkdl.models.perceptrons import mlp
from sparkdl.models.pretrained import pretrainable
from sparkdl.network import Network
from sparkdl.specs import is_integer

HISTORY, KNOWN, SERIES = "history", "known", "series"  # the inputs


@pretrainable
def forecaster(
    values: int | Normalization,
    horizon: int,
    targets: Sequence[int] = (0,),
    known: int | Normalization = 0,
    series: int | Embedding = 0,
    quantiles: int = 0,
    window: int | None = None,
    lstm_units: Sequence[int] | None = None,
    filters: Sequence[int] | TemporalConvNet = (),
    units: Sequence[int] = (64,),
    dropout: float = 0.0,
    from_last: bool = True,
    relative: bool = False,
) -> Graph:
    """An LSTM over the past of a series, and a perceptron that makes all steps of the future at once of where it ends.

    Causal convolutions may read the past in the LSTM's place. Beside the past it reads what is known of the future, and
    which series it is: one network then serves many (a global model; Wen et al. 2017, "A multi-horizon quantile
    recurrent forecaster", has the parts). `SeriesWindows` makes the columns of the same names.

    Parameters
    ----------
    values : int or Normalization
        How many numbers a step of the history has, or what normalizes them, as `models.normalization` finds it. The
        outputs are then in the targets' own units, too.
    horizon : int
        Steps to forecast.
    targets : sequence of int, default (0,)
        Which of the history's numbers are forecast, from 0.
    known : int or Normalization, default 0
        How many numbers of each step of the future are known before, or what normalizes them.
    series : int or Embedding, default 0
        How many series there are, numbered from 0 as StringIndexer does, which gives
        `Embedding(series, vector_size(series), unknown=True)`, or an Embedding of one's own, such as a HashedEmbedding,
        which reads strings; 0 to tell none from the others.
    quantiles : int, default 0
        How many quantiles of every number, for the loss `EachPosition(Quantile((0.1, 0.5, 0.9)))`; 0: the number
        itself, for SquaredError, AbsoluteError or Huber.
    window : int, optional
        Steps of the history; without it, it may have any length.
    lstm_units : sequence of int, optional
        Of the LSTMs, one behind the other; (64,) where there are no filters.
    filters : sequence of int or TemporalConvNet, default ()
        Of a TemporalConvNet, or such a layer, that reads the history in place of the LSTMs. Of the window it sees the
        last `steps_seen` steps: 2 blocks see 13, 3 blocks 29, each further one twice as far.
    units : sequence of int, default (64,)
        Of the perceptron's layers before its last; see `mlp`.
    dropout : float, default 0
        Rate in the perceptron.
    from_last : bool, default True
        Whether what is made is how far the future is from the history's last step, to which it is added: of a series
        that wanders this is the easier task.
    relative : bool, default False
        Whether the targets' own past is read as how far it is from the last step, too, so that the network sees no
        level: what it makes at levels that training has not seen is then what it makes at others (Zeng et al. 2023,
        NLinear). It needs `from_last`.

    Returns
    -------
    Graph
        With the inputs "history" (window, values), "known" (horizon, known) and "series" (), as far as it reads them,
        and the output "future", step after step and within a step target after target: (horizon * targets,) or, with
        quantiles, (horizon * targets, quantiles).

    Examples
    --------
    >>> from sparkdl.models import forecaster
    >>> network = forecaster(values=3, horizon=24, known=2, series=50, quantiles=3)
    >>> network.input_shapes
    {'history': (None, 3), 'known': (24, 2), 'series': ()}
    >>> network.output_shape()
    (24, 3)
    """
    count, steps_ahead = _count("values", values, 1), _count("horizon", horizon, 1)
    chosen = tuple(targets)
    if not chosen or not all(is_integer(at, 0, count - 1) for at in chosen):
        raise ValueError(f"targets must be from 0 to {count - 1}, as a step has {count} values, received {targets!r}.")
    reading = _reading(lstm_units, filters)
    _count("quantiles", quantiles, 0)
    inputs: dict[str, tuple[Any, ...]] = {HISTORY: (window, count)}
    nodes: dict[str, Any] = {}
    past = HISTORY
    if isinstance(values, Normalization):
        nodes["normalized"] = (values, HISTORY)
        past = "normalized"
    seen = past
    if relative:
        if not from_last:
            raise ValueError("relative is of changes against the last step, but from_last is False; set it to True.")
        nodes["level"] = (Network([LastStep(), _targets_only(count, chosen)]), past)
        nodes["levels"] = (RepeatStep(), "level", past)
        nodes["changes"] = (Subtract(), past, "levels")
        seen = "changes"
    nodes["state"] = (Network([*reading, LastStep()]), seen)
    parts = ["state"]
    if known_count := _count("known", known, 0):
        inputs[KNOWN] = (steps_ahead, known_count)
        layers: list[Layer] = [known] if isinstance(known, Normalization) else []
        nodes["ahead"] = (Network([*layers, Flatten()]), KNOWN)
        parts.append("ahead")
    if series:
        inputs[SERIES] = ()
        table = series
        if not isinstance(series, Embedding):
            table = Embedding(_count("series", series, 1), vector_size(series), unknown=True)
        nodes["vector_series"] = (table, SERIES)
        parts.append("vector_series")
    if len(parts) > 1:
        nodes["joined"] = (Concatenate(), *parts)
    joined, each = list(nodes)[-1], max(1, quantiles)
    made: list[Layer] = list(mlp((1,), steps_ahead * len(chosen) * each, units, dropout).layers)
    ending: list[Layer] = (
        [_denormalized(values, chosen, steps_ahead, each)] if isinstance(values, Normalization) else []
    )
    ending += [Reshape((steps_ahead * len(chosen), quantiles))] if quantiles else []
    if not from_last:
        nodes["future"] = (Network([*made, *ending]), joined)
        return Graph(inputs, nodes, "future")
    nodes["change"] = (Network(made), joined)
    nodes["last"] = (Network(_last(chosen, steps_ahead, each)), past)
    nodes["moved" if ending else "future"] = (Add(), "change", "last")
    if ending:
        nodes["future"] = (Network(ending), "moved")
    return Graph(inputs, nodes, "future")


def _reading(lstm_units: Sequence[int] | None, filters: Sequence[int] | TemporalConvNet) -> list[Layer]:
    """The layers that go over the history."""
    convolutional = isinstance(filters, TemporalConvNet) or bool(filters)
    if convolutional and lstm_units is not None:
        raise ValueError(
            f"filters are in place of lstm_units, received both, {filters!r} and {lstm_units!r}; leave one out."
        )
    if convolutional:
        return [filters if isinstance(filters, TemporalConvNet) else TemporalConvNet(filters)]
    if lstm_units is not None and not lstm_units:
        raise ValueError("lstm_units must be of one LSTM or more, received none.")
    return [Lstm(size) for size in ((64,) if lstm_units is None else lstm_units)]


def _targets_only(count: int, chosen: tuple[int, ...]) -> Layer:
    """A layer that puts zeros where a step's numbers are no targets."""
    kept: list[Layer] = [Subset(at, at + 1) for at in range(count)]
    columns = [each if at in chosen else Network([each, Scale(0.0)]) for at, each in enumerate(kept)]
    return columns[0] if count == 1 else Parallel(columns, Concatenate())


def _last(chosen: tuple[int, ...], horizon: int, quantiles: int) -> list[Layer]:
    """Layers that repeat the last step's targets as often as there are outputs of each, in their order."""
    subsets: list[Layer] = [Subset(at, at + 1) for at in chosen]
    taken = subsets[0] if len(subsets) == 1 else Parallel(subsets, Concatenate())
    layers: list[Layer] = [LastStep(), taken, RepeatVector(horizon), Flatten()]
    return [*layers, *([RepeatVector(quantiles), Permute((1, 0)), Flatten()] if quantiles > 1 else [])]


def _denormalized(by: Normalization, chosen: tuple[int, ...], horizon: int, quantiles: int) -> Normalization:
    """The inverse of a normalization, for outputs: y * scale + mean is (y - -mean / scale) / sqrt(1 / scale ** 2)."""
    mean, variance = (np.asarray(each)[list(chosen)] for each in (by.mean, by.variance))
    scale = np.sqrt(np.where(variance > 0, variance, 1))
    inverse = (np.tile(np.repeat(each, quantiles), horizon) for each in (-mean / scale, 1 / scale**2))
    return Normalization(*(each.tolist() for each in inverse))


def _count(name: str, given: Any, least: int) -> int:
    """How many numbers are meant by a number or what normalizes as many."""
    if isinstance(given, Normalization) and name != "horizon":
        return len(given.mean)
    if not is_integer(given, least):
        raise ValueError(f"{name} of forecaster must be an integer of at least {least}, received {given!r}.")
    return int(given)
